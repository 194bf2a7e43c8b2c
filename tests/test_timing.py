from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from routewright.errors import SettingsError
from routewright.timing import (
    CombinedTiming,
    PairedTiming,
    ReadingError,
    StopReason,
    TimingLimits,
    combine_rounds,
    glitch_suspicion,
    measure,
)


@dataclass
class Blocks:
    baseline_ms: list[float]
    candidate_ms: list[float]


@dataclass
class Machine:
    """Two engines on a noisy machine with a clock of its own.

    Both share a drift that wanders and is remembered; each block has heavy-tailed noise, each run
    a little, some runs are spikes, and whichever engine comes first in a pair is a bit slower.
    """

    seed: int
    ratio: float = 1.0
    run_ms: float = 5.0
    block_noise: float = 0.03
    instance_sd: float = 0.004
    overhead_ms: float = 0.3
    scale: float = 1.0
    now: float = 0.0
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._candidate = self.ratio * math.exp(self._random.normal(0, self.instance_sd))
        self._drift = 0.0

    def now_s(self) -> float:
        return self.now

    def pair(self, *, runs: int, warmup_runs: int, candidate_first: bool) -> Blocks:
        self.calls.append(
            {"runs": runs, "warmup_runs": warmup_runs, "candidate_first": candidate_first}
        )
        self._drift = 0.98 * self._drift + self._random.normal(0, 0.03)
        times: dict[bool, list[float]] = {}
        for position, candidate in enumerate((candidate_first, not candidate_first)):
            block = self.run_ms * math.exp(
                self._drift + self.block_noise * self._random.standard_t(3) / math.sqrt(3)
            )
            block *= (self._candidate if candidate else 1.0) * (1.02 if position == 0 else 1.0)
            noise = np.exp(self._random.normal(0, 0.01, runs))
            spikes = np.where(self._random.random(runs) < 0.005, 20.0, 1.0)
            times[candidate] = (block * noise * spikes).tolist()
            self.now += (sum(times[candidate]) + warmup_runs * block + self.overhead_ms) / 1e3
        return Blocks(
            [self.scale * time for time in times[False]],
            [self.scale * time for time in times[True]],
        )

    def measure(self, limits: TimingLimits | None = None, **options: Any) -> PairedTiming:
        return measure(
            self.pair, limits or TimingLimits(), now_s=self.now_s, seed=self.seed, **options
        )


def covers(timing: PairedTiming, truth: float) -> bool:
    low, high = timing.ci95
    return low <= truth <= high


@pytest.mark.parametrize("block_noise", [0.005, 0.03, 0.1])
def test_equal_engines_are_found_equal(block_noise: float) -> None:
    timings = [Machine(seed, block_noise=block_noise).measure() for seed in range(300)]
    covered = np.mean([covers(timing, 1.0) for timing in timings])
    assert covered >= 0.93
    if block_noise < 0.1:
        assert np.median([timing.half_width for timing in timings]) <= 0.0151
        assert {timing.stopped for timing in timings} == {StopReason.TIGHT}


@pytest.mark.parametrize("ratio", [0.95, 1.05])
def test_five_percent_is_found(ratio: float) -> None:
    timings = [Machine(seed, ratio=ratio).measure() for seed in range(200)]
    assert np.mean([covers(timing, ratio) for timing in timings]) >= 0.93
    assert np.mean([covers(timing, 1.0) for timing in timings]) <= 0.02


def test_confirmation_claims_nothing_where_nothing_is() -> None:
    # The best of four equal candidates looks faster than it is; that must not become a claim.
    def confirmed(study: int, route: int) -> CombinedTiming:
        seeds = (100 * study + 10 * route + k for k in range(2))
        return combine_rounds([Machine(seed).measure() for seed in seeds], comparisons=4)

    claims = 0
    for study in range(50):
        best = min(
            (confirmed(study, route) for route in range(4)),
            key=lambda combined: combined.relative_latency,
        )
        claims += best.faster
    assert claims <= 2


def test_confirmation_finds_three_percent() -> None:
    found = [
        combine_rounds(
            [Machine(100 * study + k, ratio=0.97).measure() for k in range(3)], comparisons=4
        ).faster
        for study in range(50)
    ]
    assert sum(found) >= 48


def test_units_do_not_matter() -> None:
    one = Machine(3, ratio=1.1).measure()
    other = Machine(3, ratio=1.1, scale=1000.0).measure(
        replace(TimingLimits(), block_ms=3000.0, warmup_runs=1)
    )
    # The same readings in another unit; only how long the machine's own clock ran is the same.
    assert len(other.log_ratios) == len(one.log_ratios)
    assert other.log_ratios == pytest.approx(one.log_ratios, abs=1e-12)
    assert other.ci95 == pytest.approx(one.ci95)
    assert other.latency_ms == pytest.approx(1000 * one.latency_ms)


def test_swapping_the_sides_inverts_the_ratio() -> None:
    machine = Machine(8, ratio=1.2)
    recorded: list[tuple[Blocks, float]] = []

    def record(**options: Any) -> Blocks:
        blocks = machine.pair(**options)
        recorded.append((blocks, machine.now))
        return blocks

    forward = measure(record, TimingLimits(), now_s=machine.now_s)
    now, again = 0.0, iter(recorded)

    def swapped(**_: Any) -> Blocks:
        nonlocal now
        blocks, now = next(again)
        return Blocks(blocks.candidate_ms, blocks.baseline_ms)

    backward = measure(swapped, TimingLimits(), now_s=lambda: now)
    assert backward.log_ratios == pytest.approx([-ratio for ratio in forward.log_ratios])
    assert backward.relative_latency == pytest.approx(1 / forward.relative_latency)
    assert backward.ci95 == pytest.approx((1 / forward.ci95[1], 1 / forward.ci95[0]))
    assert backward.latency_ms == forward.baseline_ms


def test_orders_alternate_within_couples_and_vary_between_them() -> None:
    machine = Machine(1, block_noise=0.05)
    timing = machine.measure()
    firsts = [call["candidate_first"] for call in machine.calls][-len(timing.log_ratios) :]
    couples = list(zip(firsts[0::2], firsts[1::2], strict=True))
    assert all(one != other for one, other in couples)
    assert len(set(couples)) == 2


def test_same_seed_gives_the_same_measurement() -> None:
    assert Machine(4).measure() == Machine(4).measure()


@pytest.mark.parametrize(
    ("run_ms", "overhead_ms", "runs"),
    [(0.02, 0.3, 149), (1.0, 0.3, 3), (5.0, 0.3, 1), (200.0, 0.3, 1), (1.0, 50.0, 19)],
)
def test_blocks_fit_the_engine_and_what_goes_between_them(
    run_ms: float, overhead_ms: float, runs: int
) -> None:
    machine = Machine(2, run_ms=run_ms, overhead_ms=overhead_ms, block_noise=0.0001)
    machine.measure(TimingLimits(max_s=20.0))
    assert machine.calls[-1]["runs"] == pytest.approx(runs, rel=0.15, abs=0.1)
    assert machine.calls[-1]["runs"] % 2 == 1
    assert machine.calls[-1]["warmup_runs"] >= (3 if overhead_ms > 1 and run_ms == 1 else 1)


def test_a_hopeless_candidate_is_given_up_early() -> None:
    patient = Machine(5, ratio=1.5).measure()
    machine = Machine(5, ratio=1.5)
    quick = machine.measure(contender=1.0)
    assert quick.stopped is StopReason.NO_CONTENDER
    assert len(quick.log_ratios) < len(patient.log_ratios) / 2
    assert quick.ci95[0] > 1


def test_a_true_contender_is_hardly_ever_given_up() -> None:
    given_up = sum(
        Machine(seed, ratio=0.99).measure(contender=1.0).stopped is StopReason.NO_CONTENDER
        for seed in range(300)
    )
    assert given_up <= 3


def test_a_pruner_can_stop_it() -> None:
    seen: list[int] = []

    def after_ten(timing: PairedTiming) -> bool:
        seen.append(len(timing.log_ratios))
        return len(timing.log_ratios) >= 10

    timing = Machine(6).measure(on_block=after_ten)
    assert timing.stopped is StopReason.PRUNED
    assert seen == sorted(set(seen))
    assert len(timing.log_ratios) == seen[-1]


def test_caps_hold() -> None:
    noisy = Machine(7, block_noise=0.5)
    timing = noisy.measure(TimingLimits(max_s=1.0))
    assert timing.stopped is StopReason.TIME_CAP
    assert noisy.now <= 1.1
    assert timing.wall_s == pytest.approx(noisy.now)
    capped = Machine(7, block_noise=0.5).measure(TimingLimits(max_pairs=31))
    assert capped.stopped is StopReason.PAIR_CAP
    assert len(capped.log_ratios) == 30


def test_a_slow_engine_still_gets_two_pairs_and_a_finite_interval() -> None:
    machine = Machine(9, run_ms=4000.0)
    timing = machine.measure(TimingLimits(max_s=6.0))
    assert timing.stopped is StopReason.TIME_CAP
    assert len(timing.log_ratios) == 2
    assert [call["candidate_first"] for call in machine.calls] == [False, True]
    assert all(math.isfinite(end) for end in timing.ci95)


def test_spikes_do_not_matter_and_are_noted() -> None:
    machine = Machine(10, run_ms=1.0, block_noise=0.01)
    plain = machine.pair
    count = 0

    def with_spikes(**options: Any) -> Blocks:
        nonlocal count
        blocks = plain(**options)
        count += 1
        if count % 7 == 0:
            blocks.candidate_ms[0] *= 35
        return blocks

    timing = measure(with_spikes, TimingLimits(), now_s=machine.now_s)
    assert covers(timing, 1.0)
    assert timing.max_ms > 20
    assert timing.p99_ms > 5
    assert timing.spread < 0.5
    assert "candidate runs took over 5 times the median" in timing.notes[0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("side", ["baseline", "candidate"])
@pytest.mark.parametrize("when", [0, 30])
def test_times_that_cannot_be_are_refused(bad: float, side: str, when: int) -> None:
    machine = Machine(11)
    count = 0

    def broken(**options: Any) -> Blocks:
        nonlocal count
        blocks = machine.pair(**options)
        if count == when:
            getattr(blocks, f"{side}_ms")[-1] = bad
        count += 1
        return blocks

    with pytest.raises(ReadingError, match=f"{side} reported a time of"):
        measure(broken, TimingLimits(), now_s=machine.now_s)


def test_missing_runs_are_refused() -> None:
    machine = Machine(12)

    def short(**options: Any) -> Blocks:
        blocks = machine.pair(**options)
        return Blocks(blocks.baseline_ms, blocks.candidate_ms[1:])

    with pytest.raises(ReadingError, match="candidate reported 0 times for 1 runs"):
        measure(short, TimingLimits(), now_s=machine.now_s)


@pytest.mark.parametrize(
    "change",
    [
        {"target_half_width": 0.0},
        {"target_half_width": 0.005},
        {"target_half_width": 1.0},
        {"target_half_width": math.nan},
        {"min_pairs": 1},
        {"max_pairs": 10},
        {"max_s": 0.0},
        {"max_s": math.inf},
        {"block_ms": -1.0},
        {"min_runs": 0},
        {"max_runs": 0},
        {"warmup_runs": -1},
        {"warmup_s": -0.1},
        {"reject_confidence": 1.0},
        {"instance_sd": -0.001},
        {"instance_sd": math.nan},
    ],
)
def test_limits_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="timing limits: ") as caught:
        TimingLimits(**change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [{"min_pairs": 2}, {"max_pairs": 16}, {"instance_sd": 0.0, "target_half_width": 1e-6}],
)
def test_limits_at_their_bounds_are_allowed(change: dict[str, Any]) -> None:
    TimingLimits(**change)


def test_combining_needs_rounds_and_sensible_numbers() -> None:
    timing = Machine(14).measure()
    with pytest.raises(ValueError, match="one round"):
        combine_rounds([])
    with pytest.raises(ValueError, match="comparisons"):
        combine_rounds([timing], comparisons=0)
    with pytest.raises(ValueError, match="confidence"):
        combine_rounds([timing], confidence=1.0)


def test_more_rounds_narrow_and_more_candidates_widen() -> None:
    rounds = [Machine(20 + k, ratio=0.97).measure() for k in range(4)]

    def width(**options: Any) -> float:
        count = options.pop("count", 4)
        low, high = combine_rounds(rounds[:count], **options).interval
        return math.log(high / low)

    assert width(count=4) < width(count=2) < width(count=1)
    assert width() < width(comparisons=3) < width(comparisons=30)
    combined = combine_rounds(rounds)
    assert combined.rounds == 4
    assert combined.faster
    assert combined.relative_latency == pytest.approx(
        math.exp(np.mean([math.log(timing.relative_latency) for timing in rounds]))
    )


def test_rounds_that_contradict_each_other_prove_nothing() -> None:
    rounds = [Machine(30 + k, ratio=ratio).measure() for k, ratio in enumerate((0.85, 0.9, 1.1))]
    assert not combine_rounds(rounds).faster


@pytest.mark.parametrize(
    ("reading", "expected", "suspicious"),
    [(0.1, 0.95, True), (0.6, 0.95, True), (0.8, 0.95, False), (0.95, 0.95, False), (2, 1, False)],
)
def test_a_reading_too_good_to_be_true_is_suspected(
    reading: float, expected: float, suspicious: bool
) -> None:
    timing = replace(Machine(40).measure(), relative_latency=reading)
    found = glitch_suspicion(timing, expected=expected)
    assert (found is not None) == suspicious


def test_a_sure_prediction_suspects_more() -> None:
    timing = replace(Machine(41).measure(), relative_latency=0.9)
    assert glitch_suspicion(timing, expected=1.0) is None
    assert glitch_suspicion(timing, expected=1.0, expected_sd=0.02) is not None
    for bad in ({"expected": 0.0}, {"expected": math.nan}, {"expected": 1, "expected_sd": -1}):
        with pytest.raises(ValueError, match="expected"):
            glitch_suspicion(timing, **bad)
