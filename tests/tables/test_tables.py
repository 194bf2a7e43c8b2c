"""Tables: what they answer, and what they refuse to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from routewright.bounds import AccuracyBound
from routewright.tables import Measurements, Table, TableError
from routewright.tables.files import card_digest
from routewright.tables.made_up import Truth, equalized, made_up_table

TRUTH = Truth(
    knobs={"-a": ("off", "on"), "-b": ("1", "2", "4"), "-q": ("off", "int8")},
    inert=3,
    effects={("-a=on",): -0.1, ("-b=2",): 0.05, ("-a=on", "-b=4"): -0.2, ("-q=int8",): -0.4},
    losses={("-q=int8",): 0.05, ("-a=on",): 1e-3},
    failures=[("-b=4", "-q=int8")],
)

SHIPPED = sorted((Path(__file__).parents[2] / "studies" / "tables").iterdir())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "made-up"
    made_up_table(TRUTH).save(folder)
    return folder


def test_a_saved_table_answers_as_before(saved: Path) -> None:
    table, read = made_up_table(TRUTH), Table.load(saved)
    assert read.live == table.live == ("-a", "-b", "-q")
    assert read.database.knobs == table.database.knobs
    for item in fields(Measurements):
        np.testing.assert_array_equal(
            getattr(read.data, item.name), getattr(table.data, item.name)
        )
    assert {key: read.card[key] for key in table.card} == table.card


def test_an_entry_tells_what_was_measured_of_the_route(saved: Path) -> None:
    table = Table.load(saved)
    entry = table.entry("-a=on -b=4")
    assert entry.relative_latency == pytest.approx(math.exp(-0.3), abs=1e-4)
    assert entry.losses == {"y": pytest.approx(1e-3)}
    assert entry.baseline_ms.shape == entry.candidate_ms.shape == (12, 3)
    assert table.eligible(entry)
    assert table.default.relative_latency == pytest.approx(1.0, abs=1e-4)


def test_inert_knobs_do_not_change_the_answer(saved: Path) -> None:
    table = Table.load(saved)
    plain = table.entry("-a=on")
    more = table.entry("-a=on -inert:0=off -inert:2=off")
    assert more.fingerprint == plain.fingerprint
    assert more.relative_latency == plain.relative_latency
    assert table.space.size == table.live_space.size * 2**3


def test_a_route_that_was_not_built_says_why(saved: Path) -> None:
    table = Table.load(saved)
    entry = table.entry("-b=4 -q=int8")
    assert entry.failure == ("unsupported", "made not to build")
    assert entry.failed_step == "build"
    assert entry.fingerprint is None
    assert not entry.timed
    assert not table.eligible(entry)


def test_the_best_depends_on_the_bound(saved: Path) -> None:
    table = Table.load(saved)
    assert table.best().route == "-a=on -b=4"
    assert table.best(AccuracyBound("cos", 0.1)).route == "-a=on -q=int8"
    exact = table.best(AccuracyBound("cos", 0.0))
    assert exact.relative_latency == pytest.approx(1.0, abs=1e-4)
    lossy = made_up_table(Truth({"-a": ("off", "on")}, losses={(): 0.5}))
    with pytest.raises(TableError, match="meets the bound"):
        lossy.best()


def test_there_is_an_entry_for_each_engine_by_its_simplest_route(saved: Path) -> None:
    table = Table.load(saved)
    assert len(table.entries) == 2 * 3 * 2 - 2
    assert len({entry.fingerprint for entry in table.entries}) == len(table.entries)
    assert table.entry(table.entries[3].route).fingerprint == table.entries[3].fingerprint


@pytest.mark.parametrize(
    ("route", "reason"),
    [("-a=maybe", "-a"), ("-zz=1", "-zz"), ("-b=8", "-b"), ("nonsense", "nonsense")],
)
def test_a_route_outside_is_refused(saved: Path, route: str, reason: str) -> None:
    with pytest.raises(TableError, match=reason) as caught:
        Table.load(saved).entry(route)
    assert "made-up" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_equalized_table_has_nothing_to_win() -> None:
    table = made_up_table(TRUTH)
    same = equalized(table)
    assert [entry.relative_latency for entry in same.entries] == pytest.approx(
        [1.0] * len(table.entries), abs=1e-5
    )
    assert all(same.eligible(entry) for entry in same.entries)
    assert same.entry("-b=4 -q=int8").failure is not None


def _edit(key: str, value: Any, *, sealed: bool) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        card = json.loads((folder / "card.json").read_text())
        card[key] = value
        if sealed:
            card["digest"] = card_digest(card)
        (folder / "card.json").write_text(json.dumps(card))

    return edit


def _cut(folder: Path) -> None:
    data = (folder / "table.npz").read_bytes()
    (folder / "table.npz").write_bytes(data[: len(data) // 2])


def _foreign(folder: Path) -> None:
    (folder / "card.json").write_text("[1, 2]")


def _half(folder: Path) -> None:
    text = (folder / "card.json").read_text()
    (folder / "card.json").write_text(text[: len(text) // 2])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_cut, "cut off or changed"),
        (_half, "no JSON"),
        (_foreign, "schema None"),
        (_edit("schema", 2, sealed=True), "schema 2"),
        (_edit("name", "other", sealed=False), "changed after it was written"),
        (_edit("live", ["-a"], sealed=True), "damaged"),
        (_edit("outputs", {"y": "float32", "z": "float32"}, sealed=True), "damaged"),
        (_edit("failures", [], sealed=True), "damaged"),
        (_edit("live", None, sealed=True), "lacks 'live'"),
        (lambda folder: (folder / "card.json").unlink(), "there is no"),
        (lambda folder: (folder / "table.npz").unlink(), "there is no"),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    made_up_table(TRUTH).save(tmp_path / "t")
    damage(tmp_path / "t")
    with pytest.raises(TableError, match=reason) as caught:
        Table.load(tmp_path / "t")
    assert "\n" not in str(caught.value)


def test_numbers_of_another_table_are_refused(tmp_path: Path) -> None:
    made_up_table(TRUTH).save(tmp_path / "one")
    made_up_table(TRUTH, seed=1).save(tmp_path / "other")
    (tmp_path / "other" / "table.npz").replace(tmp_path / "one" / "table.npz")
    with pytest.raises(TableError, match="not the file"):
        Table.load(tmp_path / "one")


@pytest.mark.parametrize(
    "folder",
    sorted((Path(__file__).parents[2] / "studies" / "tables").iterdir()),
    ids=lambda p: p.name,
)
def test_the_tables_that_ship_are_whole(folder: Path) -> None:
    table = Table.load(folder)
    assert table.name == folder.name
    assert table.default.fingerprint is not None
    assert table.best().relative_latency <= 1.02
    assert table.card["prediction"]["routes"] > 0
    assert str(folder.name) in (folder / "README.md").read_text()
