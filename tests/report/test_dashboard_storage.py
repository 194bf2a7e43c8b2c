"""What the dashboard is given, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage
from optuna.trial import TrialState
from optuna_dashboard import get_note, save_note

from routewright.bulk import add_finished_trials
from routewright.records import Outcome, Phase
from routewright.report.dashboard_storage import MOST_KNOBS, SHOWN_KNOBS, DashboardStorage
from routewright.storage import open_storage
from routewright.study import MARK, constraint_of, state_of

from studies import IDENTITY, baseline, finished_view, record, result  # isort: skip
from studies import wide_records  # isort: skip


def storage_with(folder: Path, records: object, **attributes: object) -> BaseStorage:
    """Return a storage with a finished study in which every knob of a route is a parameter."""
    storage = open_storage(str(folder / "study.db"))
    study = optuna.create_study(storage=storage, study_name="study")
    study.set_user_attr(MARK, IDENTITY)
    for key, value in attributes.items():
        study.set_user_attr(key, value)
    choices = CategoricalDistribution(("off", "on"))
    trials = []
    for one in records:  # type: ignore[attr-defined]
        state = state_of(one)
        knobs = {token.partition("=")[0]: "on" for token in one.route.split()}
        trial = optuna.trial.create_trial(
            state=state,
            value=one.relative_latency if state is TrialState.COMPLETE else None,
            params=knobs,
            distributions=dict.fromkeys(knobs, choices),
            user_attrs={**one.to_attributes(), "owner": {"pid": 1}},
            system_attrs={"constraints:accuracy": constraint_of(one)},
        )
        trials.append(trial)
    add_finished_trials(study, storage, trials)
    return storage


def shown(storage: BaseStorage) -> DashboardStorage:
    return DashboardStorage(storage)


def test_infeasible_trials_carry_the_mark_that_the_dashboard_reads(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, finished_view().records)
    trials = shown(storage).get_all_trials(1)
    marks = [trial.user_attrs["eligible"] for trial in trials]
    assert marks[1] == "yes"
    assert marks[3] == "no: breaks the bound"
    assert marks[4] == "no: failed"
    assert trials[3]._system_attrs["constraints"][0] > 0
    assert trials[1]._system_attrs["constraints"][0] <= 0
    # What lies in the storage is as it was.
    assert "constraints" not in storage.get_all_trials(1)[3]._system_attrs


def test_attributes_come_in_one_order_without_those_for_machines(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, finished_view().records)
    keys = list(shown(storage).get_all_trials(1)[1].user_attrs)
    assert keys[:6] == ["eligible", "outcome", "phase", "route", "relative_latency", "ci95"]
    assert not {"owner", "log_ratios"} & set(keys)


def test_a_wide_study_shows_a_few_knobs(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, wide_records(60, MOST_KNOBS + 20))
    trials = shown(storage).get_all_trials(1)
    assert len({name for trial in trials for name in trial.params}) == SHOWN_KNOBS
    assert all(trial.distributions.keys() == trial.params.keys() for trial in trials)


def test_the_best_trial_is_the_confirmed_one(tmp_path: Path) -> None:
    records = (
        baseline(),
        record(1, "-a=on", relative_latency=0.5),
        record(2, "-a=on", phase=Phase.CONFIRMATION, relative_latency=0.89),
        record(3, "-a=on", phase=Phase.CONFIRMATION, relative_latency=0.95),
        record(4, "-b=on", relative_latency=0.9, outcome=Outcome.REUSED, reused_from=2),
    )
    storage = storage_with(tmp_path, records, result=result("-a=on"))
    assert shown(storage).get_best_trial(1).number == 2
    told = result("", "no gain")
    told["best"]["relative_latency"] = 1.0
    storage.set_study_user_attr(1, "result", told)
    assert shown(storage).get_best_trial(1).number == 0


def test_a_note_of_the_study_is_kept_and_may_be_edited(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, finished_view().records)
    view = shown(storage)
    study = optuna.load_study(study_name="study", storage=view)
    assert "so far, not confirmed" in get_note(study)
    save_note(study, "a user's own words")
    assert get_note(study) == "a user's own words"
    stored = optuna.load_study(study_name="study", storage=storage)
    assert get_note(stored) == "a user's own words"


def test_studies_of_others_are_left_alone(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "study.db"))
    study = optuna.create_study(storage=storage, study_name="other")
    study.add_trial(optuna.trial.create_trial(value=1.0, user_attrs={"mine": 1}))
    view = shown(storage)
    assert view.get_all_trials(1)[0].user_attrs == {"mine": 1}
    (listed,) = view.get_all_studies()
    assert not any(key.startswith("dashboard:") for key in listed.system_attrs)
