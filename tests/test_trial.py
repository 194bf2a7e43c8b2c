"""One trial: the order of vetoes, what is kept of each, and what a fault does."""

from __future__ import annotations

import pytest

from routewright.bounds import Limits
from routewright.knobs import KnobDatabase
from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import Proposal
from routewright.timing import TimingLimits
from routewright.trial import KnownResults, TrialRules, run_trial
from routewright.workbench import TrialFailure
from scripted_bench import Engine, ScriptedBench

DATABASE = KnobDatabase.from_json(
    """{"tuner_version": "1", "tuner_options": [
    {"option": "-a", "allowed_values": "-a=[on|off]", "default_value": "on", "help": ""},
    {"option": "-b", "allowed_values": "-b=[on|off]", "default_value": "on", "help": ""}]}""",
    source="test",
)
RULES = TrialRules(limits=Limits("cos", {"y": 1e-3}), timing=TimingLimits(max_s=3.0))
A_OFF = Proposal(Route.parse("-a=off", DATABASE))


def run(
    bench: ScriptedBench,
    proposal: Proposal = A_OFF,
    *,
    known: KnownResults | None = None,
    deadline_s: float = 100.0,
    incumbent: TrialRecord | None = None,
    baseline: TrialRecord | None = None,
) -> TrialRecord:
    bench.build("baseline", "", deadline_s=1e9)
    bench.calls.clear()
    return run_trial(
        bench,
        7,
        proposal,
        rules=RULES,
        known=known or KnownResults(),
        deadline_s=deadline_s,
        incumbent=incumbent,
        baseline=baseline,
    )


def test_an_eligible_route_is_built_checked_and_timed_in_this_order() -> None:
    bench = ScriptedBench({"-a=off": Engine(ratio=0.8, loss=1e-4, fingerprint="f")})
    record = run(bench)
    steps = list(dict.fromkeys(step for step, _ in bench.calls))
    assert steps == ["build", "check first", "check", "time"]
    assert record.outcome is Outcome.TIMED
    assert record.eligible
    assert record.ci95 is not None
    assert record.ci95[0] < 0.8 < record.ci95[1]
    assert record.losses == {"y": 1e-4}
    assert record.violation == pytest.approx(-0.9)


def test_a_route_that_breaks_the_bound_is_never_timed_and_keeps_the_amount() -> None:
    bench = ScriptedBench({"-a=off": Engine(ratio=0.1, loss=4e-3, fingerprint="f")})
    record = run(bench)
    assert record.outcome is Outcome.INACCURATE
    assert not record.eligible
    assert record.violation == pytest.approx(3.0)
    assert ("check", "-a=off") not in bench.calls
    assert all(step != "time" for step, _ in bench.calls)
    assert "cos 0.004 is above 0.001" in record.reason


def test_outputs_that_cannot_be_compared_are_never_eligible() -> None:
    record = run(ScriptedBench({"-a=off": Engine(ratio=0.1, loss=float("inf"))}))
    assert record.outcome is Outcome.INACCURATE
    assert record.violation == 1e6


def test_a_known_fingerprint_reuses_the_result_without_a_check_or_timing() -> None:
    earlier = TrialRecord(
        3,
        "-b=off",
        Phase.SEARCH,
        Outcome.TIMED,
        fingerprint="same",
        relative_latency=0.9,
        ci95=(0.89, 0.91),
        violation=-1.0,
    )
    bench = ScriptedBench({"-a=off": Engine(fingerprint="same")})
    record = run(bench, known=KnownResults([earlier]))
    assert record.outcome is Outcome.REUSED
    assert record.reused_from == 3
    assert record.relative_latency == 0.9
    assert [step for step, _ in bench.calls] == ["build"]


def test_a_known_route_is_not_even_built() -> None:
    bench = ScriptedBench()
    earlier = TrialRecord(3, "-a=off", Phase.SEARCH, Outcome.TIMED, relative_latency=0.9)
    assert run(bench, known=KnownResults([earlier])).outcome is Outcome.REUSED
    assert bench.calls == []


def test_a_route_known_to_fail_is_not_tried_again() -> None:
    bench = ScriptedBench()
    earlier = TrialRecord(3, "-a=off", Phase.SEARCH, Outcome.FAILED, failure="crash", reason="x")
    record = run(bench, known=KnownResults([earlier]))
    assert record.outcome is Outcome.FAILED
    assert record.failure == "crash"
    assert bench.calls == []


def test_a_build_for_its_fingerprint_only_is_neither_checked_nor_timed() -> None:
    bench = ScriptedBench()
    proposal = Proposal(A_OFF.route, phase=Phase.SCREENING, time_it=False)
    record = run(bench, proposal)
    assert record.outcome is Outcome.SCREENED
    assert record.fingerprint == "-a=off"
    assert [step for step, _ in bench.calls] == ["build"]


def test_a_slow_candidate_is_given_up_early() -> None:
    slow = ScriptedBench({"-a=off": Engine(ratio=2.0)})
    record = run(slow)
    assert record.outcome is Outcome.SLOW
    full = ScriptedBench({"-a=off": Engine(ratio=0.9)}, noise_sd=0.05)
    run(full)
    timed = [step for step, _ in slow.calls].count("time")
    assert timed < [step for step, _ in full.calls].count("time") / 3


@pytest.mark.parametrize("step", ["build", "check", "timing"])
def test_a_crash_anywhere_is_a_failed_trial_with_its_reason(step: str) -> None:
    crash = TrialFailure("crash", "killed by signal 11", log="line 1\nline 2")
    record = run(ScriptedBench({"-a=off": Engine(failure=crash, fails_at=step)}))
    assert record.outcome is Outcome.FAILED
    assert record.failure == "crash"
    assert record.reason == f"{step}: killed by signal 11"
    assert record.notes[-2:] == ("line 1", "line 2")
    assert not record.eligible


def test_a_transient_failure_gets_one_more_try_and_a_permanent_one_none() -> None:
    oom = TrialFailure("oom", "out of memory", transient=True)
    once = ScriptedBench({"-a=off": Engine(failure=oom, failures_left=1)})
    record = run(once)
    assert record.outcome is Outcome.TIMED
    assert "built again after: out of memory" in record.notes
    always = ScriptedBench({"-a=off": Engine(failure=oom)})
    assert run(always).failure == "oom"
    assert always.calls.count(("build", "-a=off")) == 2
    crash = ScriptedBench({"-a=off": Engine(failure=TrialFailure("crash", "x"))})
    run(crash)
    assert crash.calls.count(("build", "-a=off")) == 1


def test_a_build_may_take_many_times_the_baselines_but_not_forever() -> None:
    baseline = TrialRecord(0, "", Phase.BASELINE, Outcome.TIMED, build_s=5.0)
    slow = ScriptedBench({"-a=off": Engine(build_s=60.0)})
    assert run(slow, deadline_s=1000.0, baseline=baseline).failure == "timeout"
    fine = ScriptedBench({"-a=off": Engine(build_s=40.0)})
    assert run(fine, deadline_s=1000.0, baseline=baseline).outcome is Outcome.TIMED


@pytest.mark.parametrize("step", ["check", "timing"])
def test_no_step_may_take_all_that_is_left(step: str) -> None:
    class Watched(ScriptedBench):
        def check(self, slot, *, samples, deadline_s):  # type: ignore[no-untyped-def]
            ends["check"] = deadline_s - self.now_s()
            return super().check(slot, samples=samples, deadline_s=deadline_s)

        def time_pair(self, *, deadline_s, **asked):  # type: ignore[no-untyped-def]
            ends.setdefault("timing", deadline_s - self.now_s())
            return super().time_pair(deadline_s=deadline_s, **asked)

    ends: dict[str, float] = {}
    baseline = TrialRecord(0, "", Phase.BASELINE, Outcome.TIMED, check_s=3.0, time_s=3.0)
    run(Watched(), deadline_s=1000.0, baseline=baseline)
    assert 0 < ends[step] <= 30.0


def test_a_reading_too_good_to_be_true_is_taken_again_in_a_fresh_process() -> None:
    bench = ScriptedBench({"-a=off": Engine(ratio=0.97)}, glitches={1: 0.1})
    record = run(bench)
    assert ("restart", "") in bench.calls
    assert record.relative_latency == pytest.approx(0.97, rel=0.03)
    assert any("fresh process" in note for note in record.notes)


def test_a_suspicious_reading_stands_where_there_is_no_time_for_another() -> None:
    bench = ScriptedBench({"-a=off": Engine(ratio=0.4)})
    record = run(bench, deadline_s=4.0)
    assert record.outcome is Outcome.TIMED
    assert record.relative_latency == pytest.approx(0.4, rel=0.05)
    assert any("no time to measure again" in note for note in record.notes)


def test_times_that_are_no_times_fail_the_trial() -> None:
    record = run(ScriptedBench({"-a=off": Engine(ratio=float("nan"))}))
    assert record.outcome is Outcome.FAILED
    assert "cannot be" in record.reason
