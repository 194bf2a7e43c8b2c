from __future__ import annotations

import os
from pathlib import Path

import pytest

from routewright.backends.onnxruntime import hardware
from routewright.backends.onnxruntime.knobs import knob_database
from routewright.backends.onnxruntime.options import Options
from routewright.backends.onnxruntime.settings import (
    ModelTraits,
    SessionSettings,
    SettingKnob,
    read_settings,
    setting_knobs,
    thread_counts,
)
from routewright.backends.onnxruntime.transformers import Catalog, installed_catalog
from routewright.errors import SettingsError
from routewright.space import SearchSpace

ALL = ModelTraits(convolutions=True, quantized=True)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return installed_catalog()


@pytest.fixture(scope="module")
def knobs(catalog: Catalog) -> tuple[SettingKnob, ...]:
    return setting_knobs(ALL, catalog, default_threads=2, usable_threads=4)


def read(knobs: tuple[SettingKnob, ...], **values: str) -> SessionSettings:
    named = {name.replace("__", ":"): value for name, value in values.items()}
    return read_settings({f"-{name}": v for name, v in named.items()}, knobs, ("ConvBNFusion",))


def test_the_default_route_sets_threads_and_stops_spinning(
    knobs: tuple[SettingKnob, ...],
) -> None:
    settings = read(knobs)
    assert settings.config_entries == {"session.force_spinning_stop": "1"}
    assert settings.disabled_optimizers == ()
    assert settings.options == {
        "graph_optimization_level": "ORT_ENABLE_ALL",
        "execution_mode": "ORT_SEQUENTIAL",
        "execution_order": "DEFAULT",
        "intra_op_num_threads": 2,
        "inter_op_num_threads": 1,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_cpu_mem_arena": True,
    }


def test_every_value_of_every_knob_is_read(knobs: tuple[SettingKnob, ...]) -> None:
    # Settings between operators are only written where operators run in parallel.
    parallel = {"-session:parallel": "on"}
    plain = read_settings(parallel, knobs, ()).document()
    assert plain != read(knobs).document()
    for knob in knobs:
        for value in knob.values:
            settings = read_settings({knob.name: value} | parallel, knobs, ())
            changed = knob.name not in parallel and value != knob.default
            assert (settings.document() != plain) == changed


def test_no_value_is_named_twice_and_defaults_are_listed(knobs: tuple[SettingKnob, ...]) -> None:
    for knob in knobs:
        assert knob.default in knob.values
        assert len(set(knob.values)) == len(knob.values)
        ours = knob.name == "-session:spinning:force_stop"
        assert knob.option or ours or knob.default not in knob.writes


def test_children_of_a_parent_that_is_off_are_inactive(
    catalog: Catalog, knobs: tuple[SettingKnob, ...]
) -> None:
    database = knob_database(catalog, knobs, [])
    space = SearchSpace.whole(database)
    route = space.route(
        {"-session:parallel": "off", "-session:parallel:inter_op_num_threads": "4"}
    )
    assert str(route) == ""
    route = space.route({"-optimizer": "disable", "-optimizer:ConvBNFusion": "off"})
    assert str(route) == "-optimizer=disable"
    route = space.route({"-session:spinning": "off", "-session:spinning:backoff_max": "4"})
    assert str(route) == "-session:spinning=off"


def test_knobs_that_cannot_matter_for_the_model_are_left_out(catalog: Catalog) -> None:
    plain = ModelTraits(convolutions=False, quantized=False)
    few = setting_knobs(plain, catalog, default_threads=1, usable_threads=1)
    names = {knob.name for knob in few}
    assert "-mlas:pointwise_batch" not in names
    assert not any("qdq" in name for name in names)


def test_a_key_that_the_version_lacks_gives_no_knob(catalog: Catalog) -> None:
    bare = Catalog("0", (), (), frozenset(), catalog.option_values, True)
    names = {k.name for k in setting_knobs(ALL, bare, default_threads=1, usable_threads=1)}
    assert "-session:spinning" not in names
    assert "-session:parallel" in names


def test_what_cannot_act_does_not_tell_sessions_apart(knobs: tuple[SettingKnob, ...]) -> None:
    def identity(**values: str) -> object:
        return read(knobs, **values).runtime_identity(nchwc_convolutions=False)

    default, single = identity(), identity(session__intra_op_num_threads="1")
    assert default != single
    assert identity(session__intra_op_num_threads="1", session__spinning="off") == single
    assert identity(session__spinning__force_stop="off") != default
    assert identity(mlas__pointwise_batch="16") == default
    assert identity(optimizer="disable") == default
    assert identity(optimizer__ConvBNFusion="off") == default
    both = {"session__parallel": "on", "session__mem_pattern": "off"}
    assert identity(**both) == identity(session__parallel="on")
    batch = read(knobs, mlas__pointwise_batch="16")
    assert batch.runtime_identity(nchwc_convolutions=True) != read(knobs).runtime_identity(
        nchwc_convolutions=True
    )


def test_spinning_is_told(knobs: tuple[SettingKnob, ...]) -> None:
    free = {"session__spinning__force_stop": "off"}
    assert not read(knobs).spins
    assert read(knobs, **free).spins
    assert not read(knobs, session__intra_op_num_threads="1", **free).spins
    assert not read(knobs, session__spinning="off").spins
    parallel = {"session__intra_op_num_threads": "1", "session__parallel": "on"}
    assert read(knobs, **parallel, **free).spins


@pytest.mark.parametrize(
    ("default", "usable", "expected"),
    [(1, 1, ["1"]), (2, 4, ["1", "2", "3", "4"]), (4, 2, ["1", "2", "4"])],
)
def test_thread_counts_of_small_machines(default: int, usable: int, expected: list[str]) -> None:
    assert list(thread_counts(default, usable)) == expected


def test_thread_counts_of_large_machines_grow_in_steps() -> None:
    counts = [int(count) for count in thread_counts(96, 192)]
    assert counts[:16] == list(range(1, 17))
    assert {96, 192} <= set(counts)
    assert len(counts) < 32


def test_the_tightest_quota_counts(tmp_path: Path) -> None:
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    membership = tmp_path / "cgroup"
    membership.write_text("0::/a/b\n")
    assert hardware.quota_cores(tmp_path, membership) is None
    (group / "cpu.max").write_text("max 100000\n")
    assert hardware.quota_cores(tmp_path, membership) is None
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    assert hardware.quota_cores(tmp_path, membership) == 1.5
    (group / "cpu.max").write_text("50000 100000\n")
    assert hardware.quota_cores(tmp_path, membership) == 0.5


def test_the_quota_of_the_older_control_groups_counts(tmp_path: Path) -> None:
    group = tmp_path / "cpu,cpuacct" / "box"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("300000")
    (group / "cpu.cfs_period_us").write_text("100000")
    membership = tmp_path / "cgroup"
    membership.write_text("3:cpu,cpuacct:/box\n9:memory:/other\n")
    assert hardware.quota_cores(tmp_path, membership) == 3
    (group / "cpu.cfs_quota_us").write_text("-1")
    assert hardware.quota_cores(tmp_path, membership) is None


def test_threads_follow_the_affinity_mask() -> None:
    assert hardware.usable_threads() <= len(os.sched_getaffinity(0))
    assert 1 <= hardware.default_threads() <= hardware.usable_threads()
    assert hardware.usable_threads(1) == hardware.default_threads(1) == 1
    assert hardware.cpu_model()


def test_options_are_checked() -> None:
    assert Options.read({}).threads is None
    assert Options.read({"threads": 3, "input_ranges": {"x": [0, 255]}}).input_ranges == {
        "x": (0, 255)
    }
    for given, message in [
        ({"thread": 2}, "did you mean 'threads'"),
        ({"threads": 0}, "whole number above 0"),
        ({"threads": True}, "whole number above 0"),
        ({"input_ranges": [1]}, r"name: \[low, high\]"),
        ({"input_ranges": {"x": [2, 1]}}, "the smaller first"),
        ({"input_ranges": {"x": ["a", "b"]}}, "two numbers"),
    ]:
        with pytest.raises(SettingsError, match=message):
            Options.read(given)  # type: ignore[arg-type]
