"""A storage as Optuna's dashboard can show it: current figures, marks, pages of bearable size.

Nothing is written for this: what the dashboard should see is worked out as it reads. So it is
there for studies that are running, that were killed, and that came from another tuner.

- Optuna keeps named constraints since version 5; the dashboard reads the older list and would
  show no trial as infeasible.
- Two hundred parameters a trial make pages of tens of megabytes, and figures that nobody can
  read. Of a wide study, the knobs that matter most are shown; the route has all of them.
- Note and figures that a study does not have are made from its trials as they are now.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard import save_note, save_plotly_graph_object

from routewright.census import take_census
from routewright.records import RECORD, Outcome, Phase, TrialRecord, record_of
from routewright.report.markdown import study_note
from routewright.report.source import view_of
from routewright.report.story import tell
from routewright.result import RESULT_ATTRIBUTE
from routewright.study import MARK

MOST_KNOBS = 30
"""Knobs above which a study is wide."""

SHOWN_KNOBS = 20
"""Knobs that are shown as parameters of a wide study's trials."""

_ORDER = (
    "eligible",
    "outcome",
    "phase",
    "route",
    "relative_latency",
    "ci95",
    "latency_ms",
    "baseline_ms",
    "losses",
    "violation",
    "build_s",
    "check_s",
    "time_s",
    "elapsed_s",
    "fingerprint",
    "reused_from",
    "reason",
    "failure",
    "origin",
    "notes",
)
"""User attributes as they are shown: the columns of the dashboard's table, in this order."""

_REFRESH_S = 10.0
_REFRESH_SHARE = 0.05
"""Share of the time that goes into drawing the figures of a study that is being watched."""


class DashboardStorage(BaseStorage):
    """Reads a storage for the dashboard; what is written goes through as it is.

    Args:
        storage: The storage.
        results: Results by study name that only an output folder has.
    """

    def __init__(
        self, storage: BaseStorage, results: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self._results = dict(results or {})
        self._inner = optuna.storages.get_storage(storage)
        self._lock = threading.Lock()
        self._is_ours: dict[int, bool] = {}
        self._finished: dict[int, tuple[frozenset[str] | None, FrozenTrial]] = {}
        self._knobs: dict[int, tuple[int, frozenset[str] | None]] = {}
        self._made: dict[int, _Made] = {}

    def get_all_studies(self) -> list[FrozenStudy]:
        """Return all studies in the order they were made."""
        studies = sorted(self._inner.get_all_studies(), key=lambda study: study._study_id)
        shown = []
        for study in studies:
            self._is_ours[study._study_id] = MARK in study.user_attrs
            if MARK in study.user_attrs:
                study = copy.copy(study)
                study.system_attrs = self._attributes(study._study_id, study.system_attrs)
            shown.append(study)
        return shown

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Return a study's attributes, with note and figures."""
        attributes = self._inner.get_study_system_attrs(study_id)
        return self._attributes(study_id, attributes) if self._ours(study_id) else attributes

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return the trials as they are shown."""
        if not self._ours(study_id):
            return self._inner.get_all_trials(study_id, deepcopy=deepcopy, states=states)
        trials = self._inner.get_all_trials(study_id, deepcopy=False, states=None)
        knobs = self._shown_knobs(study_id, trials)
        chosen = [t for t in trials if states is None or t.state in states]
        shown = [self._shown(trial, knobs) for trial in chosen]
        return copy.deepcopy(shown) if deepcopy else shown

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial as it is stored."""
        return self._inner.get_trial(trial_id)

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Return the trial that the study's result stands on; before that, the lowest value.

        The lowest of many noisy readings looks better than it is.
        """
        best = self._inner.get_best_trial(study_id)
        if not self._ours(study_id):
            return best
        attributes = self._inner.get_study_user_attrs(study_id)
        result = attributes.get(RESULT_ATTRIBUTE) or self._results.get(
            self._inner.get_study_name_from_id(study_id)
        )
        if isinstance(result, Mapping):
            trials = self._inner.get_all_trials(study_id, deepcopy=False)
            best = _standing_for(result, trials) or best
        return self._shown(best, self._knobs.get(study_id, (0, None))[1])

    def _ours(self, study_id: int) -> bool:
        if study_id not in self._is_ours:
            self._is_ours[study_id] = MARK in self._inner.get_study_user_attrs(study_id)
        return self._is_ours[study_id]

    def _shown_knobs(self, study_id: int, trials: Sequence[FrozenTrial]) -> frozenset[str] | None:
        """Return the knobs that are shown as parameters; None for all of them."""
        counted, knobs = self._knobs.get(study_id, (0, None))
        # A page that grows keeps its columns for a while.
        if counted == 0 or len(trials) > 1.2 * counted:
            names = {name for trial in trials for name in trial.params}
            knobs = _telling_knobs(trials) if len(names) > MOST_KNOBS else None
            self._knobs[study_id] = (len(trials), knobs)
        return knobs

    def _shown(self, trial: FrozenTrial, knobs: frozenset[str] | None) -> FrozenTrial:
        known = self._finished.get(trial._trial_id)
        if known is not None and known[0] == knobs:
            return known[1]
        shown = _shown_trial(trial, knobs)
        if trial.state.is_finished():
            self._finished[trial._trial_id] = (knobs, shown)
        return shown

    def _attributes(self, study_id: int, stored: dict[str, Any]) -> _Attributes:
        return _Attributes(stored, lambda: self._missing(study_id, stored))

    def _missing(self, study_id: int, stored: dict[str, Any]) -> dict[str, Any]:
        """Return what the dashboard shows of a study and the study does not have."""
        kinds = [kind for kind in _KINDS if not any(key.startswith(kind) for key in stored)]
        if not kinds:
            return {}
        with self._lock:
            made = self._made.get(study_id)
            finished = self._inner.get_n_trials(study_id, state=_FINISHED)
            if made is None or (made.trials != finished and time.monotonic() >= made.until_s):
                made = self._make(study_id, finished)
                self._made[study_id] = made
        return {k: v for k, v in made.attributes.items() if k.startswith(tuple(kinds))}

    def _make(self, study_id: int, finished: int) -> _Made:
        # Plotly takes a while to load; the list of studies should not wait for it.
        from routewright.report.figures.study import study_figures

        started_s = time.monotonic()
        name = self._inner.get_study_name_from_id(study_id)
        study = optuna.load_study(study_name=name, storage=self._inner)
        known = {"result": self._results[name]} if name in self._results else {}
        story = tell(view_of(study, **known))
        # The dashboard's own functions know how it keeps them.
        kept = optuna.create_study()
        save_note(kept, study_note(story))
        for shown in study_figures(story, compact=True):
            save_plotly_graph_object(kept, shown.figure, graph_object_id=shown.key)
        attributes = kept._storage.get_study_system_attrs(kept._study_id)
        now_s = time.monotonic()
        until_s = now_s + max(_REFRESH_S, (now_s - started_s) / _REFRESH_SHARE)
        return _Made(finished, until_s, attributes)

    # The rest goes through as it is.

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        """See the storage."""
        return self._inner.create_new_study(directions, study_name)

    def delete_study(self, study_id: int) -> None:
        """See the storage."""
        self._inner.delete_study(study_id)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """See the storage."""
        self._inner.set_study_user_attr(study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """See the storage."""
        self._inner.set_study_system_attr(study_id, key, value)

    def get_study_id_from_name(self, study_name: str) -> int:
        """See the storage."""
        return self._inner.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        """See the storage."""
        return self._inner.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """See the storage."""
        return self._inner.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """See the storage."""
        return self._inner.get_study_user_attrs(study_id)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """See the storage."""
        return self._inner.create_new_trial(study_id, template_trial)

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        """See the storage."""
        self._inner.set_trial_param(trial_id, param_name, param_value_internal, distribution)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """See the storage."""
        return self._inner.set_trial_state_values(trial_id, state, values)

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        """See the storage."""
        self._inner.set_trial_intermediate_value(trial_id, step, intermediate_value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """See the storage."""
        self._inner.set_trial_user_attr(trial_id, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """See the storage."""
        self._inner.set_trial_system_attr(trial_id, key, value)

    def remove_session(self) -> None:
        """See the storage."""
        self._inner.remove_session()


_KINDS = ("dashboard:note_", "dashboard:plot_data:")
"""How the keys of note and figures begin."""

_FINISHED = tuple(state for state in TrialState if state.is_finished())


@dataclass(frozen=True, slots=True)
class _Made:
    """Note and figures of a study, and until when they are shown though trials were added."""

    trials: int
    until_s: float
    attributes: dict[str, Any]


class _Attributes(dict[str, Any]):
    """A study's attributes; those of the dashboard are worked out when they are looked at.

    The list of studies asks every study for a few others, and must not wait for figures.
    """

    def __init__(self, stored: dict[str, Any], make: Callable[[], dict[str, Any]]) -> None:
        super().__init__(stored)
        self._make: Callable[[], dict[str, Any]] | None = make

    def _complete(self) -> None:
        make, self._make = self._make, None
        if make is not None:
            self.update(make())

    def __iter__(self) -> Iterator[str]:
        self._complete()
        return super().__iter__()

    def items(self) -> Any:
        self._complete()
        return super().items()

    def keys(self) -> Any:
        self._complete()
        return super().keys()

    def __contains__(self, key: object) -> bool:
        if str(key).startswith("dashboard:"):
            self._complete()
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        if key.startswith("dashboard:"):
            self._complete()
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - this is get


def _shown_trial(trial: FrozenTrial, knobs: frozenset[str] | None) -> FrozenTrial:
    shown = copy.copy(trial)
    attributes = trial.user_attrs
    nested = attributes.get(RECORD)
    if isinstance(nested, dict):
        attributes = {**attributes, **nested}
    record = record_of(trial)
    told = {"eligible": _eligibility(record)} if record is not None else {}
    told |= {key: attributes[key] for key in _ORDER if key in attributes}
    shown._user_attrs = told
    constraints = list(trial.constraints.values())
    if constraints:
        shown._system_attrs = {**trial.system_attrs, "constraints": constraints}
    if knobs is not None:
        shown._params = {k: v for k, v in trial.params.items() if k in knobs}
        shown._distributions = {k: v for k, v in trial.distributions.items() if k in knobs}
    return shown


def _standing_for(result: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """Return the trial of a result's route that is nearest to the result, confirmations first."""
    try:
        route = result["best"]["route"]
        value = float(result["best"]["relative_latency"])
    except (KeyError, TypeError, ValueError):
        return None
    chosen: list[tuple[bool, float, int, FrozenTrial]] = []
    for trial in trials:
        record = record_of(trial) if trial.state is TrialState.COMPLETE else None
        if record is None or record.route != route or record.relative_latency is None:
            continue
        if record.outcome is not Outcome.REUSED:
            is_other = record.phase not in (Phase.CONFIRMATION, Phase.BASELINE)
            away = abs(record.relative_latency - value)
            chosen.append((is_other, away, trial.number, trial))
    return min(chosen, default=(True, 0.0, 0, None))[3]


def _eligibility(record: TrialRecord) -> str:
    if record.outcome is Outcome.FAILED:
        return "no: failed"
    if record.violation is None:
        return "not checked"
    return "no: breaks the bound" if record.violation > 0 else "yes"


def _telling_knobs(trials: Sequence[FrozenTrial]) -> frozenset[str]:
    """Return the knobs whose values differ most among the trials, live ones first."""
    values: defaultdict[str, Counter[Any]] = defaultdict(Counter)
    for trial in trials:
        for knob, value in trial.params.items():
            values[knob][value] += 1
    records = [r for r in map(record_of, trials) if r is not None]
    live = set(take_census(records, values).live)

    def rank(knob: str) -> tuple[bool, int, str]:
        counts = values[knob]
        return knob not in live, max(counts.values()) - sum(counts.values()), knob

    return frozenset(sorted(values, key=rank)[:SHOWN_KNOBS])
