"""Many finished trials at once, against Optuna's own way."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from routewright import bulk
from routewright.bulk import add_finished_trials, set_attributes
from routewright.storage import open_storage, sqlite_url


def finished_trials() -> list[FrozenTrial]:
    return [
        create_trial(
            value=0.5, user_attrs={"a": [1, None], "b": "é"}, constraints={"accuracy": -0.5}
        ),
        create_trial(
            value=1.5,
            params={"-a": "on", "-n": 7},
            distributions={
                "-a": CategoricalDistribution(["off", "on"]),
                "-n": IntDistribution(1, 99),
            },
        ),
        create_trial(state=TrialState.PRUNED, user_attrs={"a": {"x": 1.5}}),
        create_trial(state=TrialState.FAIL, constraints={"accuracy": 1e6}),
        create_trial(value=1e-300),
    ]


def url_in(folder: Path, kind: str) -> str:
    return sqlite_url(folder / "s.db") if kind == "sqlite" else f"journal:///{folder / 's.log'}"


def told(study: optuna.Study) -> list[tuple[object, ...]]:
    return [
        (
            t.number,
            t.state,
            t.value,
            t.params,
            t.distributions,
            t.user_attrs,
            t.constraints,
            t.datetime_complete,
        )
        for t in study.get_trials(deepcopy=False)
    ]


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_the_trials_are_those_that_optuna_would_have_added(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, trials = url_in(tmp_path, kind), finished_trials()
    monkeypatch.setattr(bulk, "_ROWS_AT_ONCE", 3)
    for name, most in (("plain", 100), ("bulk", 0)):
        monkeypatch.setattr(bulk, "_ROWS_ONE_BY_ONE", most)
        storage = open_storage(url)
        study = optuna.create_study(storage=storage, study_name=name)
        study.set_user_attr("before", 1)
        add_finished_trials(study, storage, trials, attributes={"x": {"y": [1.5]}, "z": "é"})
    plain, added = (
        optuna.load_study(study_name=name, storage=open_storage(url)) for name in ("plain", "bulk")
    )
    assert told(plain) == told(added)
    assert plain.user_attrs == added.user_attrs == {"before": 1, "x": {"y": [1.5]}, "z": "é"}
    # And the study goes on like any other.
    trial = added.ask()
    assert trial.number == 5
    added.tell(trial, 0.25)
    assert added.best_value == 1e-300


def test_a_schema_that_is_not_known_is_left_to_optuna(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_ROWS_ONE_BY_ONE", 0)
    changed = {**bulk._COLUMNS, "trials": {*bulk._COLUMNS["trials"], "moved_elsewhere"}}
    for columns in (changed, {**bulk._COLUMNS, "no_such_table": {"x"}}):
        monkeypatch.setattr(bulk, "_COLUMNS", columns)
        storage = open_storage(sqlite_url(tmp_path / "s.db"))
        study = optuna.create_study(storage=storage)
        add_finished_trials(study, storage, finished_trials())
        assert [t.state for t in study.trials] == [t.state for t in finished_trials()]


def test_what_others_write_to_a_journal_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_in(tmp_path, "journal")
    monkeypatch.setattr(bulk, "_ROWS_ONE_BY_ONE", 0)
    storage = open_storage(url)
    study = optuna.create_study(storage=storage, study_name="mine")
    hand_on = bulk._Pending.hand_on

    def after_another(pending: bulk._Pending) -> None:
        other = optuna.create_study(storage=open_storage(url), study_name="other")
        other.add_trial(create_trial(value=7.0))
        hand_on(pending)

    monkeypatch.setattr(bulk._Pending, "hand_on", after_another)
    add_finished_trials(study, storage, finished_trials())
    read = open_storage(url)
    assert len(optuna.load_study(study_name="mine", storage=read).trials) == 5
    assert [t.value for t in optuna.load_study(study_name="other", storage=read).trials] == [7.0]


def test_an_in_memory_storage_is_left_to_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_ROWS_ONE_BY_ONE", 0)
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage)
    add_finished_trials(study, storage, finished_trials())
    assert len(study.trials) == 5


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_attributes_set_at_once_are_those_that_optuna_would_have_set(
    tmp_path: Path, kind: str
) -> None:
    study = optuna.create_study(storage=open_storage(url_in(tmp_path, kind)))
    trial = study.ask()
    trial.set_user_attr("already", 1)
    set_attributes(trial, {"a": [1, None], "b": "é"})
    # A second try, of which only the answer was lost, replaces them.
    set_attributes(trial, {"a": [2], "b": "é", "c": {"x": 1.5}})
    study.tell(trial, 1.0)

    (read,) = optuna.load_study(
        study_name=study.study_name, storage=open_storage(url_in(tmp_path, kind))
    ).trials
    assert read.user_attrs == {"already": 1, "a": [2], "b": "é", "c": {"x": 1.5}}
    assert read.value == 1.0
