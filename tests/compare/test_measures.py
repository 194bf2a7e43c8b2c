"""What a run would report, and how good that is, from records."""

from __future__ import annotations

import numpy as np
import pytest

from routewright.compare.measures import Reached, rows_of, trace_of
from routewright.compare.plan import RunKey
from routewright.compare.run import Run
from routewright.records import Outcome, Phase, TrialRecord

TRUTH = {"": 1.0, "-a=on": 0.9, "-b=on": 0.8, "-c=on": 0.82, "-d=on": 1.3}


def run_of(*records: TrialRecord) -> Run:
    baseline = TrialRecord(
        0, "", Phase.BASELINE, Outcome.TIMED, build_s=1.0, relative_latency=1.0, elapsed_s=5.0
    )
    return Run(RunKey("w", "s", 3), (baseline, *records), (0.0, *[0.01] * len(records)), "end")


def timed(number: int, route: str, measured: float, **more: object) -> TrialRecord:
    given = {"build_s": 1.0, "elapsed_s": 5.0 + number, "violation": -0.5, **more}
    outcome = given.pop("outcome", Outcome.TIMED)
    return TrialRecord(
        number,
        route,
        Phase.SEARCH,
        outcome,  # type: ignore[arg-type]
        relative_latency=measured,
        **given,  # type: ignore[arg-type]
    )


def traced(run: Run, best: float = 0.8) -> tuple[list[float], list[int]]:
    rows = rows_of(run, TRUTH.__getitem__, best)
    return [round(row.regret, 6) for row in rows], [row.builds for row in rows]


def test_the_incumbent_is_picked_by_what_was_measured_and_judged_by_the_truth() -> None:
    run = run_of(
        timed(1, "-a=on", 0.91),
        timed(2, "-b=on", 0.84),
        timed(3, "-c=on", 0.81),
    )
    rows = rows_of(run, TRUTH.__getitem__, 0.8)
    assert [row.incumbent for row in rows] == [0, 1, 2, 3]
    # The last one only looked faster: that is an error of selection, not of exploration.
    assert [round(row.regret, 6) for row in rows] == [0.25, 0.125, 0.0, 0.025]
    assert [row.tried_true for row in rows] == [1.0, 0.9, 0.8, 0.8]
    assert rows[3].incumbent_measured == 0.81
    assert [row.seconds for row in rows] == [5.0, 6.0, 7.0, 8.0]


def test_what_is_not_eligible_never_counts() -> None:
    run = run_of(
        timed(1, "-b=on", 0.7, violation=0.1),
        TrialRecord(
            2, "-b=on", Phase.SEARCH, Outcome.INACCURATE, build_s=1.0, violation=2.0, elapsed_s=7
        ),
        TrialRecord(3, "-b=on", Phase.SEARCH, Outcome.FAILED, failure="crash", elapsed_s=8),
    )
    assert traced(run)[0] == [0.25] * 4


def test_a_build_counts_whatever_came_of_it_but_a_known_route_costs_none() -> None:
    run = run_of(
        TrialRecord(1, "-a=on", Phase.SCREENING, Outcome.SCREENED, build_s=1.0, elapsed_s=6),
        TrialRecord(2, "-d=on", Phase.SEARCH, Outcome.FAILED, failure="crash", elapsed_s=7),
        TrialRecord(
            3, "-d=on", Phase.SEARCH, Outcome.FAILED, failure="crash", reused_from=2, elapsed_s=7
        ),
        timed(4, "-a=on", 0.9, outcome=Outcome.REUSED, reused_from=1),
        timed(5, "-a=on", 0.9, outcome=Outcome.REUSED, reused_from=1, build_s=None),
    )
    assert traced(run)[1] == [0, 1, 2, 2, 3, 3]


def test_when_a_target_was_reached_and_until_when_it_was_not() -> None:
    run = run_of(timed(1, "-a=on", 0.91), timed(2, "-c=on", 0.84), timed(3, "-d=on", 0.79))
    trace = trace_of(run, rows_of(run, TRUTH.__getitem__, 0.8), 0.8)
    assert trace.builds_to(0.05) == Reached(2.0, True)
    assert trace.seconds_to(0.05) == Reached(7.0, True)
    assert trace.builds_to(0.01) == Reached(3.0, False)
    assert trace.builds_to(0.3) == Reached(0.0, True)
    # Before the baseline, its own regret; after the end, the last one.
    assert trace.regret_at_seconds([0, 5.5, 7, 99]) == pytest.approx([0.25, 0.25, 0.025, 0.625])
    assert np.allclose(trace.regret_at_builds([0, 1, 2, 50]), [0.25, 0.125, 0.025, 0.625])


def test_shares_are_of_the_trials_after_the_baseline() -> None:
    run = run_of(
        timed(1, "-a=on", 0.91),
        TrialRecord(
            2, "-b=on", Phase.SEARCH, Outcome.INACCURATE, build_s=1.0, violation=2.0, elapsed_s=7
        ),
    )
    trace = trace_of(run, rows_of(run, TRUTH.__getitem__, 0.8), 0.8)
    assert trace.shares["timed"] == 0.5
    assert trace.shares["inaccurate"] == 0.5
    assert sum(trace.shares.values()) == 1.0
    assert trace.proposal_s.tolist() == [0.01, 0.01]


def test_a_run_is_read_back_as_it_was() -> None:
    run = run_of(timed(1, "-a=on", 0.91, ci95=(0.9, 0.92), losses={"y": float("inf")}))
    assert Run.from_dict(run.to_dict()) == run
