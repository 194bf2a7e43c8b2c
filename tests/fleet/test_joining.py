"""Who may join a group, and what is refused with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import BaseStorage

from routewright.errors import SettingsError, StorageError
from routewright.fleet.assignment import assignment
from routewright.fleet.identity import comparable, describe, is_of_group, study_name
from routewright.fleet.joining import TERMS, Terms, join, members
from routewright.fleet.running import refuse_unfit
from routewright.storage import open_storage, sqlite_url
from routewright.study import MARK

ROOT = Path(__file__).resolve().parent.parent.parent
TERMS_OF_G = Terms("g", 60.0, None, 30.0)
SETTINGS = {"model": "m.onnx", "seed": 1}


def identity(**changes: Any) -> dict[str, Any]:
    environment = {"device": "NVIDIA H200", "library_version": "11.4", "driver": "580"}
    made = {"model_sha256": "aa", "bound": {"loss": "cos"}, "environment": environment}
    return {**made, **changes}


def other_device() -> dict[str, Any]:
    return identity(environment={**identity()["environment"], "device": "NVIDIA L4"})


@pytest.fixture
def storage(tmp_path: Path) -> BaseStorage:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return open_storage(sqlite_url(tmp_path / "f.db"))


def joined(
    storage: BaseStorage, what: dict[str, Any], *, new: bool = False, **settings: Any
) -> tuple[optuna.Study, bool]:
    return join(
        storage,
        terms=TERMS_OF_G,
        identity=what,
        notes={"settings": {**SETTINGS, **settings}},
        new_environment=new,
    )


def test_the_first_begins_the_study_and_others_of_the_environment_join_it(
    storage: BaseStorage,
) -> None:
    first, began = joined(storage, identity())
    second, began_again = joined(storage, identity())
    assert (began, began_again) == (True, False)
    assert first.study_name == second.study_name == study_name("g", identity())
    assert Terms.from_json(second.user_attrs[TERMS]) == TERMS_OF_G


def test_another_environment_is_refused_by_name_of_the_difference(storage: BaseStorage) -> None:
    joined(storage, identity())
    with pytest.raises(SettingsError, match="device was 'NVIDIA H200' and is 'NVIDIA L4'"):
        joined(storage, other_device())
    assert len(members(storage, "g")) == 1


def test_another_environment_may_open_its_own_study_of_the_group(storage: BaseStorage) -> None:
    joined(storage, identity())
    _, began = joined(storage, other_device(), new=True)
    assert began
    devices = [describe(m.identity["environment"]) for m in members(storage, "g")]
    assert [text.partition(",")[0] for text in devices] == ["NVIDIA H200", "NVIDIA L4"]
    # From now on its machines join without further ado.
    assert not joined(storage, other_device())[1]


def test_another_model_is_no_study_of_the_group(storage: BaseStorage) -> None:
    joined(storage, identity())
    with pytest.raises(SettingsError, match="tunes something else: model_sha256 was 'aa'"):
        joined(storage, identity(model_sha256="bb"), new=True)


def test_a_study_whose_maker_was_killed_while_making_it_is_completed(
    storage: BaseStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("routewright.fleet.joining._SETTLE_S", 0.0)
    optuna.create_study(storage=storage, study_name=study_name("g", identity()))
    study, _ = joined(storage, identity())
    assert {MARK, TERMS, "settings"} <= study.user_attrs.keys()
    assert len(members(storage, "g")) == 1


def test_two_units_of_one_kind_are_one_environment() -> None:
    one = {
        "device_uuid": "GPU-1",
        "cores": [0, 1],
        "memory_bytes": 10,
        "load_now": 1.0,
        "cpu": "x",
    }
    two = {
        "device_uuid": "GPU-2",
        "cores": [2, 3],
        "memory_bytes": 11,
        "load_now": 2.0,
        "cpu": "x",
    }
    assert comparable(one) == comparable(two)
    assert comparable(one) != comparable({**two, "cores": [2]})
    assert comparable(one) != comparable({**two, "cpu": "y"})


@pytest.mark.parametrize(("name", "belongs"), [("g@1", True), ("g", False), ("gg@1", False)])
def test_a_study_belongs_to_its_group(name: str, belongs: bool) -> None:
    assert is_of_group(name, "g") is belongs


def test_a_study_that_tune_made_is_not_joined(storage: BaseStorage) -> None:
    optuna.create_study(storage=storage, study_name="g")
    with pytest.raises(StorageError, match="was not made by workers"):
        assignment("g", storage, model=None, metric=None)


def test_an_unknown_group_is_begun_from_a_study_file(storage: BaseStorage) -> None:
    with pytest.raises(StorageError, match=r"no group 'h'.*STUDY\.toml"):
        assignment("h", storage, model=None, metric=None)


def test_a_group_is_joined_by_its_name_with_the_model_where_it_lies_here(
    storage: BaseStorage,
) -> None:
    joined(storage, identity())
    settings, group, known = assignment("g", storage, model="/here/m.onnx", metric=None)
    assert (group, settings.model, settings.seed, len(known)) == ("g", "/here/m.onnx", 1, 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"samples": ["a.npz"]},
        {"expr_file": "e.txt"},
        {"option": ["plugins=evil.so"]},
        {"sampler": "their.module:Sampler"},
    ],
)
def test_files_and_code_that_somebody_else_named_are_refused(
    storage: BaseStorage, settings: dict[str, Any]
) -> None:
    joined(storage, identity(), **settings)
    with pytest.raises(SettingsError, match="join with the study file"):
        assignment("g", storage, model=None, metric=None)


def test_a_metric_runs_only_if_this_worker_names_it(storage: BaseStorage, tmp_path: Path) -> None:
    file = tmp_path / "g.toml"
    file.write_text('model = "m.onnx"\nmetric = "their.code:loss"\nbound = 1.0\n')
    with pytest.raises(SettingsError, match=r"--metric their\.code:loss if you trust it"):
        assignment(str(file), storage, model=None, metric=None)
    with pytest.raises(SettingsError, match="code to be run here"):
        assignment(str(file), storage, model=None, metric="other:loss")
    settings, _, _ = assignment(str(file), storage, model=None, metric="their.code:loss")
    assert settings.metric == "their.code:loss"


def test_a_study_file_that_differs_from_the_groups_is_refused(
    storage: BaseStorage, tmp_path: Path
) -> None:
    joined(storage, identity())
    file = tmp_path / "g.toml"
    file.write_text('model = "m.onnx"\nseed = 2\n')
    with pytest.raises(SettingsError, match="seed was 1 and is now 2"):
        assignment(str(file), storage, model=None, metric=None)


def test_a_table_says_itself_what_its_study_file_leaves_out(
    storage: BaseStorage, tmp_path: Path
) -> None:
    (tmp_path / "table").symlink_to(ROOT / "studies" / "tables" / "ppocr-v4-det")
    file = tmp_path / "g.toml"
    file.write_text('model = "table"\nbackend = "replay"\n')
    first, _, _ = assignment(str(file), storage, model=None, metric=None)
    join(
        storage,
        terms=TERMS_OF_G,
        identity=identity(),
        notes={"settings": first.to_dict()},
        new_environment=False,
    )
    again, _, known = assignment(str(file), storage, model=None, metric=None)
    assert (again, len(known)) == (first, 1)


@pytest.mark.parametrize("name", ["a@b", ""])
def test_a_name_that_is_none_for_a_group_is_refused(storage: BaseStorage, name: str) -> None:
    with pytest.raises(SettingsError, match="no name for a group"):
        assignment(name, storage, model=None, metric=None)


def test_a_journal_file_is_refused_with_what_to_use() -> None:
    with pytest.raises(StorageError, match=r"half a line.*PostgreSQL.*sqlite:///FILE"):
        refuse_unfit("journal:////tmp/study.log")


def test_sqlite_on_a_network_file_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routewright.fleet.running._file_system", lambda path: "nfs4")
    with pytest.raises(StorageError, match="network file system"):
        refuse_unfit("sqlite:////share/f.db")
