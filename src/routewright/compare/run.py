"""One run: a search method on a work until its extent is used up.

A run goes by the rules of ``tune``: the same baseline, trials and knowledge of routes and
fingerprints (:mod:`routewright.trial`), the same estimate of what still fits. There is no
confirmation: what a run would report is held against the work's truth instead. Nothing is stored
meanwhile, so that a run costs little more than what its sampler thinks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from routewright.baseline import measure_baseline
from routewright.compare.plan import Extent, RunKey
from routewright.compare.work import Work
from routewright.errors import BackendError, RoutewrightError, StorageError
from routewright.records import Phase, TrialRecord
from routewright.search.base import History, RouteSampler
from routewright.search.candidates import generator
from routewright.search.registry import make_sampler
from routewright.searching import best_of, expected_s, value_of
from routewright.space import SearchSpace
from routewright.timing import TimingLimits
from routewright.trial import KnownResults, TrialRules, run_trial
from routewright.tuning import TIMING_SHARE
from routewright.workbench import TrialFailure

RUN_SCHEMA_VERSION = 1

_MOST_IDLE_TRIALS = 2_000
"""Trials in a row that cost no time, after which a run on a budget alone is ended."""


@dataclass(frozen=True)
class Run:
    """What one run did.

    Attributes:
        key: Which run it is.
        records: Its trials, the baseline first.
        proposal_s: Seconds of this machine that the sampler took to propose each, 0 for the
            baseline; the only numbers of a run that a repetition does not reproduce.
        stopped: Why it ended.
    """

    key: RunKey
    records: tuple[TrialRecord, ...]
    proposal_s: tuple[float, ...]
    stopped: str

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON values."""
        return {
            "schema_version": RUN_SCHEMA_VERSION,
            "work": self.key.work,
            "sampler": self.key.sampler,
            "seed": self.key.seed,
            "stopped": self.stopped,
            "trials": [
                {"proposal_s": round(seconds, 6), **record.to_attributes()}
                for record, seconds in zip(self.records, self.proposal_s, strict=True)
            ],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Run:
        """Read back what :meth:`to_dict` wrote.

        Raises:
            StorageError: It is none of ours, or another version's.
        """
        if content.get("schema_version") != RUN_SCHEMA_VERSION:
            raise StorageError(
                f"it has schema version {content.get('schema_version')!r}, this version reads "
                f"{RUN_SCHEMA_VERSION}"
            )
        try:
            trials = content["trials"]
            return cls(
                RunKey(content["work"], content["sampler"], content["seed"]),
                tuple(TrialRecord.from_attributes(n, t) for n, t in enumerate(trials)),
                tuple(float(trial["proposal_s"]) for trial in trials),
                content["stopped"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"it is no run of a comparison: {error!r}") from error


def carry_out(
    work: Work,
    key: RunKey,
    extent: Extent,
    timing: TimingLimits,
    *,
    shuffle_knobs: bool = False,
    sampler: RouteSampler | None = None,
    is_done: Callable[[Sequence[TrialRecord]], bool] = lambda records: False,
) -> Run:
    """Carry out one run.

    Args:
        work: What to search.
        key: Sampler and seed.
        extent: How far to go.
        timing: When timing a candidate ends, before the budget's share is taken into account.
        shuffle_knobs: Whether the sampler gets the knobs in an order that the seed decides.
        sampler: The search method; made after the key's name, if None.
        is_done: Ends the run early, given its trials so far.

    Raises:
        RoutewrightError: The baseline cannot be measured, or the sampler cannot be made.
    """
    bench = work.bench(key.seed)
    began_s = bench.now_s()
    end_s = math.inf
    if extent.budget_s is not None:
        end_s = began_s + extent.budget_s
        timing = replace(timing, max_s=min(timing.max_s, TIMING_SHARE * extent.budget_s))
    rules = TrialRules(limits=work.limits, timing=timing, seed=key.seed)
    if sampler is None:
        space = _shuffled(work.space, key.seed) if shuffle_knobs else work.space
        sampler = make_sampler(key.sampler, space, seed=key.seed, hints=work.hints)
    measured, _ = measure_baseline(
        bench, rules, end_s=end_s, engine_folder=None, explain=_no_baseline(key)
    )
    baseline = replace(measured, number=0, elapsed_s=bench.now_s() - began_s)
    records, proposal_s = [baseline], [0.0]
    known = KnownResults(records)
    best = best_of(records)
    idle = 0
    stopped = "every trial is used"
    while extent.trials is None or len(records) <= extent.trials:
        if is_done(records):
            stopped = "what was asked for is reached"
            break
        left_s = None if math.isinf(end_s) else end_s - bench.now_s()
        thinking_s = time.perf_counter()
        proposal = sampler.propose(History(tuple(records), remaining_s=left_s))
        thinking_s = time.perf_counter() - thinking_s
        if proposal is None:
            stopped = "every route worth it was tried"
            break
        if bench.now_s() + expected_s(records, baseline, proposal, rules) > end_s:
            stopped = "the budget is used"
            break
        before_s = bench.now_s()
        record = run_trial(
            bench,
            len(records),
            proposal,
            rules=rules,
            known=known,
            deadline_s=end_s,
            baseline=baseline,
            incumbent=best,
        )
        record = replace(record, elapsed_s=bench.now_s() - began_s)
        records.append(record)
        proposal_s.append(thinking_s)
        known.add(record)
        if record.eligible and (best is None or value_of(record) < value_of(best)):
            best = record
            if _is_there(work, best, extent):
                stopped = f"within {extent.until:.1%} of the best route"
                break
        idle = 0 if bench.now_s() > before_s else idle + 1
        if extent.trials is None and idle >= _MOST_IDLE_TRIALS:
            stopped = "it only repeats routes"
            break
    bench.close()
    return Run(key, tuple(records), tuple(proposal_s), stopped)


def _shuffled(space: SearchSpace, seed: int) -> SearchSpace:
    """Return the same routes with the knobs in another order; parents stay before their knobs."""
    names = list(space.variable)
    order = generator(seed, "order of knobs").permutation(len(names))
    return SearchSpace(
        space.database, {names[i]: space.variable[names[i]] for i in order}, space.pinned
    )


def _is_there(work: Work, incumbent: TrialRecord, extent: Extent) -> bool:
    if extent.until is None:
        return False
    return work.truth(incumbent.route) <= work.best * (1 + extent.until)


def was_built(record: TrialRecord) -> bool:
    """Whether a trial cost a build: all but those whose route was known before."""
    if record.phase is Phase.BASELINE:
        return False
    return record.build_s is not None or bool(record.failure and record.reused_from is None)


def _no_baseline(key: RunKey) -> Any:
    def explain(failure: TrialFailure) -> RoutewrightError:
        return BackendError(
            f"the default route of {key.work} cannot be measured: {failure.message}"
        )

    return explain
