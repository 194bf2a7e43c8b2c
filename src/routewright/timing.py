"""Relative latency of a candidate engine, measured in interleaved pairs with the baseline.

Absolute times drift by a quarter within minutes on a shared machine, their ratio within one short
pair of blocks does not. So blocks are short and many, the order within pairs alternates (AB BA),
and all that counts is the log ratio of the two blocks' medians. Measuring stops when the interval
is tight, when the candidate is clearly no contender, or when its time is up.

Two builds of one route differ persistently by some tenths of a percent, for where their memory
came to lie. No number of pairs averages that out, so every interval carries it as a component of
its own, and a claim needs several rounds with fresh builds: :func:`combine_rounds`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median, stdev
from typing import Protocol

import numpy as np

from routewright.errors import SettingsError
from routewright.intervals import (
    Interval,
    hodges_lehmann,
    normal_quantile,
    pooled_interval,
    signed_rank_interval,
    student_quantile,
)

INSTANCE_SD = 0.005
"""Standard deviation of the log ratio between two builds of one route, as a share of 1.

Between fresh pairs of sessions of three models on two cores it was 0.1 % to 0.65 %, most where a
run takes a millisecond.
"""

_ROUND_SD = 0.01
"""What rounds of fresh builds are expected to differ by at least, on the log scale.

Builds of one route differ by 0.3 % to 2 % in the recorded tables of models on ONNX Runtime. A
verdict goes by it; a single trial's interval needs no more than :data:`INSTANCE_SD`, since what it
misses is found out here.
"""

_FOLD_FROM_PAIRS = 12
"""From here on the two orders of a couple are averaged: six couples carry a 95 % interval."""

_SPIKE_RATIO = 5.0
"""A run that takes this many times the median is reported as a spike."""

_OVERHEAD_SHARE = 0.4
"""Blocks last at least this share of what comes with each one (settling, warm-up, messages)."""

_REWARMING_SHARE = 0.06
"""Warm-up of a block, as a share of the same."""

_GROWTH_BETWEEN_LOOKS = 1.15
"""The interval is looked at when the pairs have grown by this: each look costs some coverage."""


class PairOfBlocks(Protocol):
    """One timing block of each engine, as :class:`routewright.workbench.Block`."""

    @property
    def baseline_ms(self) -> Sequence[float]:
        """Latency of each baseline run, in ms."""

    @property
    def candidate_ms(self) -> Sequence[float]:
        """Latency of each candidate run, in ms."""


class TimePair(Protocol):
    """Times one block of each engine; what :meth:`Workbench.time_pair` does, less its deadline."""

    def __call__(self, *, runs: int, warmup_runs: int, candidate_first: bool) -> PairOfBlocks:
        """Time ``runs`` runs of each engine, after ``warmup_runs`` that do not count."""


class ReadingError(Exception):
    """An engine's times cannot be: NaN, infinite, zero or negative, or too many or too few."""


class StopReason(StrEnum):
    """Why measuring stopped."""

    TIGHT = "tight"
    NO_CONTENDER = "no contender"
    PRUNED = "pruned"
    TIME_CAP = "time cap"
    PAIR_CAP = "pair cap"


@dataclass(frozen=True, slots=True)
class TimingLimits:
    """How far to measure.

    Attributes:
        target_half_width: Half-width of the 95 % interval, as a share of 1, that is tight enough.
        min_pairs: Pairs before an interval may count as tight.
        max_pairs: Pairs at which to stop.
        max_s: Seconds at which to stop; two pairs are measured in any case.
        block_ms: Length of a block in ms, warm-up not counted. Where much time goes between
            blocks, they are longer.
        min_runs: Least runs in a block.
        max_runs: Most runs in a block.
        warmup_runs: Uncounted runs at the start of each block; they bring an engine's data back
            into the caches after the other one has run.
        warmup_s: Seconds of pairs that do not count, before the first that does.
        reject_confidence: Confidence with which a candidate must be worse than the contender to
            be given up.
        instance_sd: Standard deviation of the log ratio between two builds of one route.
    """

    target_half_width: float = 0.015
    min_pairs: int = 16
    max_pairs: int = 400
    max_s: float = 6.0
    block_ms: float = 3.0
    min_runs: int = 1
    max_runs: int = 301
    warmup_runs: int = 1
    warmup_s: float = 0.1
    reject_confidence: float = 0.995
    instance_sd: float = INSTANCE_SD

    def __post_init__(self) -> None:
        """Check every rule.

        Raises:
            SettingsError: A value is out of its range, or two contradict each other.
        """
        _require(self.instance_sd >= 0, "instance_sd must be 0 or more", self.instance_sd)
        least = normal_quantile(0.975) * self.instance_sd
        _require(
            least < self.target_half_width < 1,
            f"target_half_width must lie between {least:.4f} (what two builds of one route differ "
            "by) and 1",
            self.target_half_width,
        )
        _require(self.min_pairs >= 2, "min_pairs must be 2 or more", self.min_pairs)
        _require(self.max_pairs >= self.min_pairs, "max_pairs is below min_pairs", self.max_pairs)
        _require(0 < self.max_s < math.inf, "max_s must be above 0", self.max_s)
        _require(0 < self.block_ms < math.inf, "block_ms must be above 0", self.block_ms)
        _require(self.min_runs >= 1, "min_runs must be 1 or more", self.min_runs)
        _require(self.max_runs >= self.min_runs, "max_runs is below min_runs", self.max_runs)
        _require(self.warmup_runs >= 0, "warmup_runs must be 0 or more", self.warmup_runs)
        _require(0 <= self.warmup_s < math.inf, "warmup_s must be 0 or more", self.warmup_s)
        _require(
            0.5 < self.reject_confidence < 1,
            "reject_confidence must lie between 0.5 and 1",
            self.reject_confidence,
        )


@dataclass(frozen=True, slots=True)
class PairedTiming:
    """What a candidate's timing yielded.

    Attributes:
        log_ratios: Candidate over baseline, log of the block medians' ratio, one per pair.
        relative_latency: The estimate; below 1 is faster than the baseline.
        ci95: 95 % interval of the relative latency, the difference between builds included.
        latency_ms: Median of all the candidate's runs, in ms.
        baseline_ms: Median of all the baseline's runs, in ms.
        spread: Interquartile range of the candidate's runs, as a share of their median.
        p99_ms: 99th percentile of the candidate's runs, in ms.
        max_ms: The candidate's slowest run, in ms.
        runs: Measured runs of the candidate, and as many of the baseline.
        wall_s: Seconds that it all took.
        stopped: Why measuring stopped.
        instance_sd: The difference between builds that ``ci95`` includes.
        notes: Remarks, one line each.
        saved_s: Seconds that were likely saved by giving the candidate up before its interval
            was tight; 0 where it was not given up.
    """

    log_ratios: tuple[float, ...]
    relative_latency: float
    ci95: tuple[float, float]
    latency_ms: float
    baseline_ms: float
    spread: float
    p99_ms: float
    max_ms: float
    runs: int
    wall_s: float
    stopped: StopReason
    instance_sd: float
    notes: tuple[str, ...] = ()
    saved_s: float = 0.0

    @property
    def half_width(self) -> float:
        """Half the width of the interval on the log scale, so as a share of the latency."""
        low, high = self.ci95
        return math.log(high / low) / 2

    @property
    def standard_error(self) -> float:
        """Standard error of the log estimate from these pairs alone, builds not included."""
        readings = _readings(self.log_ratios)
        return signed_rank_interval(readings, 0.95).half_width / normal_quantile(0.975)


def measure(
    pair: TimePair,
    limits: TimingLimits,
    *,
    now_s: Callable[[], float],
    contender: float | None = None,
    on_block: Callable[[PairedTiming], bool] | None = None,
    seed: int = 0,
) -> PairedTiming:
    """Measure until the interval is tight, the candidate is out of the race, or time is up.

    Args:
        pair: Times one block of each engine.
        limits: How far to measure.
        now_s: The clock, in seconds.
        contender: Relative latency that the candidate has to reach, such as the upper end of the
            best one's interval; None to measure on regardless.
        on_block: Called with what is known so far whenever the interval is looked at; returns
            True to stop there.
        seed: Seed of the order within pairs.

    Raises:
        ReadingError: An engine reported a time that cannot be.
    """
    begin_s = now_s()
    tally = _Tally(instance_sd=limits.instance_sd)
    order = random.Random(seed)
    plan = _calibrate(pair, limits, now_s, tally)
    next_look = 2
    was_tight = False
    while True:
        couple_begin_s = now_s()
        candidate_first = order.random() < 0.5
        # A calibration that was kept had the baseline first and lacks its other half.
        firsts = (True,) if tally.pairs % 2 else (candidate_first, not candidate_first)
        for first in firsts:
            blocks = pair(runs=plan.runs, warmup_runs=plan.warmup_runs, candidate_first=first)
            tally.add(blocks, plan.runs)
        end_s = now_s()
        # The next couple's pairs will take about as long as these.
        couple_s = 2 * (end_s - couple_begin_s) / len(firsts)
        at_cap = end_s - begin_s + couple_s > limits.max_s
        full = tally.pairs + 2 > limits.max_pairs
        if not (at_cap or full or tally.pairs >= next_look):
            continue
        next_look = math.ceil(tally.pairs * _GROWTH_BETWEEN_LOOKS)
        last = StopReason.TIME_CAP if at_cap else StopReason.PAIR_CAP if full else None
        timing = tally.summary(end_s - begin_s, last or StopReason.TIGHT)
        tight = tally.pairs >= limits.min_pairs and timing.half_width <= limits.target_half_width
        if contender is not None and _surely_above(timing, limits.reject_confidence) > contender:
            return _given_up(timing, StopReason.NO_CONTENDER, limits)
        # Noise makes an interval look tight too early; it has to look so twice in a row.
        if tight and (was_tight or last is not None):
            return replace(timing, stopped=StopReason.TIGHT)
        if on_block is not None and on_block(timing):
            return _given_up(timing, StopReason.PRUNED, limits)
        if last is not None:
            return timing
        was_tight = tight


def _given_up(timing: PairedTiming, reason: StopReason, limits: TimingLimits) -> PairedTiming:
    """Return the timing with why it ended, and what measuring on would likely have taken.

    An interval narrows with the square root of the pairs, but for the part that comes with builds
    and does not narrow at all.
    """
    pairs = len(timing.log_ratios)
    builds = normal_quantile(0.975) * timing.instance_sd
    wanted = math.sqrt(limits.target_half_width**2 - builds**2)
    noise = math.sqrt(max(timing.half_width**2 - builds**2, 0.0))
    needed = max(pairs * (noise / wanted) ** 2, limits.min_pairs)
    full_s = min(timing.wall_s * min(needed, limits.max_pairs) / pairs, limits.max_s)
    return replace(timing, stopped=reason, saved_s=max(full_s - timing.wall_s, 0.0))


@dataclass(frozen=True, slots=True)
class CombinedTiming:
    """What several rounds with fresh builds say together.

    Attributes:
        relative_latency: The estimate.
        interval: Its interval, at ``confidence`` for all comparisons together.
        latency_ms: Median of the rounds' candidate latencies, in ms.
        baseline_ms: Median of the rounds' baseline latencies, in ms.
        rounds: Number of rounds.
        round_sd: Standard deviation of the rounds' log ratios; 0 for one round.
        confidence: Probability that none of the ``comparisons`` intervals misses its truth.
        comparisons: Candidates among which this one was picked.
    """

    relative_latency: float
    interval: tuple[float, float]
    latency_ms: float
    baseline_ms: float
    rounds: int
    round_sd: float
    confidence: float
    comparisons: int

    @property
    def faster(self) -> bool:
        """Whether the candidate is faster than the baseline beyond this confidence."""
        return self.interval[1] < 1


def combine_rounds(
    rounds: Sequence[PairedTiming],
    *,
    confidence: float = 0.95,
    comparisons: int = 1,
    prior_weight: float = 3.0,
    siblings: Sequence[Sequence[PairedTiming]] = (),
) -> CombinedTiming:
    """Combine independent rounds, each with fresh builds of both routes.

    A round's log ratio is the truth, plus how its two builds happened to fall out, plus noise.
    The spread of rounds is pooled with the expected difference between builds and with the spread
    that other candidates' rounds show on this machine
    (:func:`routewright.intervals.pooled_interval`): two rounds that agree by chance do not make a
    certainty, and rounds that disagree widen the interval. Where builds differ four times as much
    as expected, three equal candidates in four rounds still give a false claim in one of twenty
    studies only (``scripts/bench_aa``). Having picked the best of many is
    corrected for by Bonferroni's rule: each interval errs with ``(1 - confidence) / comparisons``.

    Rounds should build the candidate first as often as the baseline: the later build tends to lie
    better or worse in memory.

    Args:
        rounds: One or more rounds.
        confidence: Probability, above 0 and below 1.
        comparisons: Candidates among which this one was picked; 1 for a single comparison.
        prior_weight: Rounds that the expected difference between builds is worth.
        siblings: Rounds of other candidates in the same study.

    Raises:
        ValueError: No rounds, or a value out of its range.
    """
    if not rounds:
        raise ValueError("combine_rounds needs one round or more")
    if comparisons < 1:
        raise ValueError(f"comparisons must be 1 or more, not {comparisons}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    estimates = [math.log(timing.relative_latency) for timing in rounds]
    interval = pooled_interval(
        estimates,
        [timing.standard_error**2 for timing in rounds],
        prior_sd=max(_ROUND_SD, *(timing.instance_sd for timing in rounds)),
        prior_weight=prior_weight,
        confidence=1 - (1 - confidence) / comparisons,
        others=[[math.log(timing.relative_latency) for timing in others] for others in siblings],
    )
    return CombinedTiming(
        relative_latency=math.exp(interval.estimate),
        interval=(math.exp(interval.low), math.exp(interval.high)),
        latency_ms=median(timing.latency_ms for timing in rounds),
        baseline_ms=median(timing.baseline_ms for timing in rounds),
        rounds=len(rounds),
        round_sd=stdev(estimates) if len(rounds) > 1 else 0.0,
        confidence=confidence,
        comparisons=comparisons,
    )


def glitch_suspicion(
    timing: PairedTiming, *, expected: float, expected_sd: float = 0.1, deviations: float = 3.0
) -> str | None:
    """Return why a reading is too good to be believed at once, or None.

    Such a reading has to be measured again in a fresh worker before anything is built on it.

    Args:
        timing: The reading.
        expected: Relative latency that a surrogate predicts or, without one, the best so far.
        expected_sd: Standard deviation of the log prediction. The default lets one step gain a
            quarter over the best so far.
        deviations: Standard deviations below the expectation that arouse suspicion.

    Raises:
        ValueError: ``expected`` is not above 0, or ``expected_sd`` is negative.
    """
    if not (expected > 0 and math.isfinite(expected)):
        raise ValueError(f"expected must be finite and above 0, not {expected}")
    if not expected_sd >= 0:
        raise ValueError(f"expected_sd must be 0 or more, not {expected_sd}")
    # The reading's own standard error does not excuse it: a glitch may well be noisy.
    shortfall = math.log(expected / timing.relative_latency)
    if shortfall <= deviations * math.hypot(expected_sd, timing.instance_sd):
        return None
    return (
        f"relative latency {timing.relative_latency:.3f} is far below the {expected:.3f} expected"
    )


class _Tally:
    """Readings so far."""

    def __init__(self, *, instance_sd: float) -> None:
        self._instance_sd = instance_sd
        self._log_ratios: list[float] = []
        self._candidate_ms: list[float] = []
        self._baseline_ms: list[float] = []

    @property
    def pairs(self) -> int:
        return len(self._log_ratios)

    def add(self, blocks: PairOfBlocks, runs: int) -> None:
        candidate_ms = _checked(blocks.candidate_ms, runs, "candidate")
        baseline_ms = _checked(blocks.baseline_ms, runs, "baseline")
        self._log_ratios.append(_log_ratio(candidate_ms, baseline_ms))
        self._candidate_ms += candidate_ms
        self._baseline_ms += baseline_ms

    def summary(self, wall_s: float, stopped: StopReason) -> PairedTiming:
        interval = _with_builds(
            signed_rank_interval(_readings(self._log_ratios), 0.95), self._instance_sd
        )
        lower, middle, upper, p99 = np.percentile(self._candidate_ms, [25, 50, 75, 99])
        return PairedTiming(
            log_ratios=tuple(self._log_ratios),
            relative_latency=math.exp(interval.estimate),
            ci95=(math.exp(interval.low), math.exp(interval.high)),
            latency_ms=float(middle),
            baseline_ms=float(np.median(self._baseline_ms)),
            spread=float((upper - lower) / middle),
            p99_ms=float(p99),
            max_ms=max(self._candidate_ms),
            runs=len(self._candidate_ms),
            wall_s=wall_s,
            stopped=stopped,
            instance_sd=self._instance_sd,
            notes=_spikes(self._candidate_ms, "candidate")
            + _spikes(self._baseline_ms, "baseline"),
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """How many runs make a block."""

    runs: int
    warmup_runs: int


def _calibrate(
    pair: TimePair, limits: TimingLimits, now_s: Callable[[], float], tally: _Tally
) -> _Plan:
    """Warm both engines up and plan the blocks.

    Where a single pair takes a good part of the time there is, it is kept as the first reading.
    """
    begin_s = now_s()
    while True:
        pair_begin_s = now_s()
        blocks = pair(runs=limits.min_runs, warmup_runs=limits.warmup_runs, candidate_first=False)
        end_s = now_s()
        candidate_ms = _checked(blocks.candidate_ms, limits.min_runs, "candidate")
        baseline_ms = _checked(blocks.baseline_ms, limits.min_runs, "baseline")
        if end_s - begin_s >= limits.warmup_s or end_s == begin_s:
            break
    run_ms = (median(candidate_ms) + median(baseline_ms)) / 2
    pair_s = end_s - pair_begin_s
    busy_ms = run_ms * (limits.min_runs + limits.warmup_runs)
    plan = _plan(run_ms, max(0.0, pair_s * 1e3 / 2 - busy_ms), limits)
    if plan == _Plan(limits.min_runs, limits.warmup_runs) and (
        pair_s * limits.min_pairs > limits.max_s
    ):
        tally.add(blocks, plan.runs)
    return plan


def plan_blocks(run_ms: float, overhead_ms: float, limits: TimingLimits) -> tuple[int, int]:
    """Return how many runs a block has, and how many uncounted ones before these.

    Args:
        run_ms: Length of one run, in ms.
        overhead_ms: What comes with each block besides its runs, in ms.
        limits: How far to measure.
    """
    plan = _plan(run_ms, overhead_ms, limits)
    return plan.runs, plan.warmup_runs


def _plan(run_ms: float, overhead_ms: float, limits: TimingLimits) -> _Plan:
    wanted_ms = max(limits.block_ms, _OVERHEAD_SHARE * overhead_ms)
    runs = min(max(round(wanted_ms / run_ms), limits.min_runs), limits.max_runs)
    # An odd number has a run in its middle, which one spike cannot move.
    if runs % 2 == 0 and runs > limits.min_runs:
        runs -= 1
    # The longer a core rested between blocks, the longer it takes to come back to speed.
    rewarming = min(round(_REWARMING_SHARE * overhead_ms / run_ms), limits.max_runs)
    return _Plan(runs, max(limits.warmup_runs, rewarming) if limits.warmup_runs else 0)


def _surely_above(timing: PairedTiming, confidence: float) -> float:
    """Return what the relative latency exceeds with this confidence, from three readings on.

    Student's bound, since a rank test cannot be sure of anything with fewer than eight readings,
    and a candidate at twice the baseline's time shows that in three. Spikes only loosen it.
    """
    readings = _readings(timing.log_ratios)
    if len(readings) < 3:
        return 0.0
    error = stdev(readings) / math.sqrt(len(readings))
    noise = student_quantile(confidence, len(readings) - 1) * error
    builds = normal_quantile(confidence) * timing.instance_sd
    return math.exp(hodges_lehmann(readings) - math.hypot(noise, builds))


def _readings(log_ratios: Sequence[float]) -> list[float]:
    """Return independent readings of the log ratio.

    Whether an engine comes first or second in its pair moves the pair's ratio; the mean of a
    couple in both orders is free of that, and has the thinner tails that narrow the interval.
    """
    if len(log_ratios) < _FOLD_FROM_PAIRS:
        return list(log_ratios)
    couples = zip(log_ratios[0::2], log_ratios[1::2], strict=False)
    return [(one + other) / 2 for one, other in couples]


def _with_builds(interval: Interval, instance_sd: float) -> Interval:
    return interval.widened(normal_quantile(0.975) * instance_sd)


def _log_ratio(candidate_ms: Sequence[float], baseline_ms: Sequence[float]) -> float:
    return math.log(median(candidate_ms) / median(baseline_ms))


def _checked(latencies_ms: Sequence[float], runs: int, side: str) -> list[float]:
    if len(latencies_ms) != runs:
        raise ReadingError(f"{side} reported {len(latencies_ms)} times for {runs} runs")
    for latency_ms in latencies_ms:
        if not (math.isfinite(latency_ms) and latency_ms > 0):
            raise ReadingError(f"{side} reported a time of {latency_ms} ms, which cannot be")
    return list(latencies_ms)


def _spikes(latencies_ms: Sequence[float], side: str) -> tuple[str, ...]:
    ratios = np.asarray(latencies_ms) / np.median(latencies_ms)
    count = int(np.count_nonzero(ratios > _SPIKE_RATIO))
    if not count:
        return ()
    return (
        f"{count} of {len(latencies_ms)} {side} runs took over {_SPIKE_RATIO:g} times the median "
        f"(worst {ratios.max():.0f} times)",
    )


def _require(holds: bool, rule: str, received: float) -> None:
    if not holds:
        raise SettingsError(f"timing limits: {rule}, not {received}")
