"""Made-up compilers, for trying search methods out in seconds.

A :class:`Problem` answers like a real study: it has knobs of which few are live, effects that add
up on the log scale, pairs of knobs that interact, changes that cost accuracy, pairs that do not
build, knobs that hide others, noise, and seconds for builds. :class:`Simulation` runs a search
method on it by the rules of :mod:`routewright.trial`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from routewright.knobs import Knob, KnobDatabase
from routewright.records import WORST_VIOLATION, Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import History, Proposal, RouteSampler
from routewright.search.candidates import Change, generator
from routewright.space import SearchSpace

_SLOW_MARGIN = 0.1
"""A candidate this much worse than the incumbent, on the log scale, is not timed to the end."""

_SLOW_SD_FACTOR = 3.0


@dataclass(frozen=True)
class Problem:
    """A compiler and a model, made up.

    Attributes:
        space: The routes.
        live: Changes that alter the engine.
        effects: Change of log relative latency, by change.
        pairs: Further change where both changes are made.
        losses: Change of the log loss relative to the threshold, by change; see ``start_loss``.
        start_loss: Log of the default route's loss relative to the threshold.
        failing: Sets of changes that do not build together.
        hidden_by: For a knob, the change that makes it inert.
        shown_by: For a knob, the changes without any of which it is inert.
        noise_sd: Standard error of one trial's log relative latency.
        build_s: Seconds of a build.
        time_s: Seconds of a check and a timing.
    """

    space: SearchSpace
    live: frozenset[Change] = frozenset()
    effects: Mapping[Change, float] = field(default_factory=dict)
    pairs: Mapping[tuple[Change, Change], float] = field(default_factory=dict)
    losses: Mapping[Change, float] = field(default_factory=dict)
    start_loss: float = -3.0
    failing: tuple[frozenset[Change], ...] = ()
    hidden_by: Mapping[str, Change] = field(default_factory=dict)
    shown_by: Mapping[str, frozenset[Change]] = field(default_factory=dict)
    noise_sd: float = 0.01
    build_s: float = 10.0
    time_s: float = 5.0

    def alive(self, route: Route) -> tuple[Change, ...]:
        """Return the changes of ``route`` that alter the engine."""
        made = set(route.pairs)
        return tuple(
            change
            for change in route.pairs
            if change in self.live
            and self.space.is_active(change[0], route)
            and self.hidden_by.get(change[0]) not in made
            and (change[0] not in self.shown_by or self.shown_by[change[0]] & made)
        )

    def fingerprint(self, route: Route) -> str:
        """Return the engine's fingerprint."""
        return hashlib.sha256(repr(self.alive(route)).encode()).hexdigest()[:16]

    def log_ratio(self, route: Route) -> float:
        """Return the true log relative latency."""
        made = set(self.alive(route))
        single = sum(self.effects.get(change, 0.0) for change in sorted(made))
        joint = sum(
            effect for pair, effect in self.pairs.items() if pair[0] in made and pair[1] in made
        )
        return single + joint

    def log_loss(self, route: Route) -> float:
        """Return the log of the loss relative to the threshold; above 0 breaks the bound."""
        return self.start_loss + sum(self.losses.get(change, 0.0) for change in self.alive(route))

    def fails(self, route: Route) -> bool:
        """Whether the route does not build."""
        made = set(route.pairs)
        return any(group <= made for group in self.failing)

    def is_eligible(self, route: Route) -> bool:
        """Whether the route builds and meets the bound."""
        return not self.fails(route) and self.log_loss(route) <= 0.0


def random_problem(
    seed: int,
    *,
    knobs: int = 40,
    live: int = 8,
    values: int = 2,
    pairs: int = 6,
    failing: int = 2,
    effect: float = 0.08,
    joint_effect: float = 0.08,
    lossy: float = 0.4,
    noise_sd: float = 0.01,
) -> Problem:
    """Return a problem drawn at random.

    Args:
        seed: Seed of everything.
        knobs: Number of knobs.
        live: How many of them are live.
        values: Most values of a knob, at least 2.
        pairs: How many pairs of live changes interact.
        failing: How many pairs of live changes do not build together.
        effect: Typical size of one change's effect.
        joint_effect: Typical size of an interaction.
        lossy: Share of the live changes that cost accuracy; these tend to be fast.
        noise_sd: Noise of one trial.
    """
    rng = np.random.default_rng(seed)
    listed = [
        Knob.of(
            f"-knob{number}", f"[{'|'.join(_VALUES[: int(rng.integers(2, values + 1))])}]", "on"
        )
        for number in range(knobs)
    ]
    space = SearchSpace.whole(KnobDatabase("made-up", tuple(listed)))
    chosen = sorted(int(i) for i in rng.choice(knobs, live, replace=False))
    changes = [(listed[i].name, value) for i in chosen for value in listed[i].values[1:]]
    effects = {change: float(rng.normal(0.02, effect)) for change in changes}
    losses: dict[Change, float] = {}
    for change in changes:
        if rng.random() < lossy:
            losses[change] = float(rng.gamma(2.0, 0.8))
            effects[change] = -abs(effects[change])
    couples = [(a, b) for i, a in enumerate(changes) for b in changes[i + 1 :] if a[0] != b[0]]
    order = [int(i) for i in rng.permutation(len(couples))]
    return Problem(
        space=space,
        live=frozenset(changes),
        effects=effects,
        pairs={couples[i]: float(rng.normal(0.0, joint_effect)) for i in order[:pairs]},
        losses=losses,
        failing=tuple(frozenset(couples[i]) for i in order[pairs : pairs + failing]),
        noise_sd=noise_sd,
    )


@dataclass(frozen=True)
class BlockProblem(Problem):
    """A model of several blocks, as compilers see it: effects are not additive on any scale.

    Each block takes a share of the time. A change multiplies the time of the blocks that it
    touches. A reduced block is faster and adds to the loss; where a reduced block meets one that
    is not, converting costs time. One switch may take the effect of others away.

    Attributes:
        shares: Time of each block, summing to 1.
        factors: Factor on the time of each block, by change.
        reduced: Block that a change reduces, and its loss relative to the threshold, by change.
        reduced_factor: Factor on the time of a reduced block.
        convert: Time of one conversion.
    """

    shares: tuple[float, ...] = (1.0,)
    factors: Mapping[Change, tuple[float, ...]] = field(default_factory=dict)
    reduced: Mapping[Change, tuple[int, float]] = field(default_factory=dict)
    reduced_factor: float = 0.6
    convert: float = 0.02

    def log_ratio(self, route: Route) -> float:
        """Return the true log relative latency."""
        times = np.array(self.shares)
        is_reduced = np.zeros(len(times), dtype=bool)
        for change in self.alive(route):
            if change in self.reduced:
                is_reduced[self.reduced[change][0]] = True
            if change in self.factors:
                times = times * np.array(self.factors[change])
        times = np.where(is_reduced, times * self.reduced_factor, times)
        conversions = int(np.count_nonzero(np.diff(is_reduced.astype(int))))
        return math.log(float(times.sum()) + self.convert * conversions)

    def log_loss(self, route: Route) -> float:
        """Return the log of the loss relative to the threshold."""
        losses = [
            self.reduced[change][1] for change in self.alive(route) if change in self.reduced
        ]
        # Errors of later blocks are amplified by those of earlier ones, a little.
        return math.log(math.exp(self.start_loss) + sum(losses) * (1.0 + 0.1 * len(losses)))


def block_problem(
    seed: int,
    *,
    knobs: int = 60,
    live: int = 6,
    blocks: int = 6,
    hides: bool = True,
    harm: float = 0.05,
    noise_sd: float = 0.01,
) -> BlockProblem:
    """Return a block problem drawn at random.

    Args:
        seed: Seed of everything.
        knobs: Number of switches besides the reductions of the blocks.
        live: How many of the switches are live; they have two or three values.
        blocks: Number of blocks, each with a knob that reduces it.
        hides: Whether one live switch takes the effect of some others away.
        harm: By how much a change of a switch slows a block down on average, on the log scale.
        noise_sd: Noise of one trial.
    """
    rng = np.random.default_rng(seed)
    listed = [Knob.of(f"-switch{number}", "[on|off|auto]", "on") for number in range(knobs)]
    reductions = [Knob.of(f"-reduce{number}", "[off|int8]", "off") for number in range(blocks)]
    space = SearchSpace.whole(KnobDatabase("made-up", (*listed, *reductions)))
    chosen = [listed[int(i)].name for i in sorted(rng.choice(knobs, live, replace=False))]
    changes = [(name, value) for name in chosen for value in ("off", "auto")]
    changes = [change for change in changes if rng.random() < 0.75]
    factors: dict[Change, tuple[float, ...]] = {}
    for change in changes:
        touched = rng.random(blocks) < 0.4
        touched[int(rng.integers(blocks))] = True
        sizes = np.exp(rng.normal(harm, 0.2, blocks))
        factors[change] = tuple(float(x) for x in np.where(touched, sizes, 1.0))
    reduced = {
        (knob.name, "int8"): (number, float(np.exp(rng.normal(-1.5, 1.2))))
        for number, knob in enumerate(reductions)
    }
    hidden: dict[str, Change] = {}
    if hides and len(chosen) > 2 and changes:
        boss = changes[int(rng.integers(len(changes)))]
        hidden = {name: boss for name in chosen[::2] if name != boss[0]}
    shares = rng.dirichlet(np.full(blocks, 2.0))
    return BlockProblem(
        space=space,
        live=frozenset([*changes, *reduced]),
        start_loss=-6.0,
        hidden_by=hidden,
        noise_sd=noise_sd,
        shares=tuple(float(x) for x in shares),
        factors=factors,
        reduced=reduced,
        reduced_factor=float(rng.uniform(0.5, 0.8)),
        convert=float(rng.uniform(0.01, 0.05)),
    )


def family_problem(
    seed: int,
    *,
    switches: int = 59,
    live_switches: int = 5,
    settings: int = 12,
    blocks: int = 5,
    noise_sd: float = 0.01,
) -> BlockProblem:
    """Return a problem whose knobs come in families, as those of a real compiler do.

    Graph switches of which few are live and those do good; run-time settings, all live, of which
    most matter little; reductions of blocks, which are fast and cost accuracy; and details of the
    reductions, which are inert while nothing is reduced.

    Args:
        seed: Seed of everything.
        switches: Number of graph switches.
        live_switches: How many of them are live.
        settings: Number of run-time settings.
        blocks: Number of blocks.
        noise_sd: Noise of one trial.
    """
    rng = np.random.default_rng(seed)
    graph = [Knob.of(f"-graph:switch{number}", "[on|off]", "on") for number in range(switches)]
    run = [
        Knob.of(f"-run:setting{number}", f"[{'|'.join(_VALUES[: 2 + number % 3])}]", "on")
        for number in range(settings)
    ]
    reduce = [Knob.of(f"-reduce:block{number}", "[off|int8]", "off") for number in range(blocks)]
    detail = [Knob.of(f"-detail:{name}", "[on|off]", "on") for name in ("a", "b", "c")]
    space = SearchSpace.whole(KnobDatabase("made-up", (*graph, *run, *reduce, *detail)))
    chosen = [graph[int(i)].name for i in sorted(rng.choice(switches, live_switches, False))]
    factors: dict[Change, tuple[float, ...]] = {}
    for name in chosen:
        sizes = np.exp(rng.normal(0.12, 0.12, blocks))
        touched = rng.random(blocks) < 0.5
        factors[name, "off"] = tuple(float(x) for x in np.where(touched, sizes, 1.0))
    for knob in run:
        for value in knob.values[1:]:
            matters = rng.random() < 0.3
            size = float(np.exp(rng.normal(0.1, 0.1))) if matters else 1.0
            factors[knob.name, value] = (size,) * blocks
    for knob in detail:
        sizes = np.exp(rng.normal(0.02, 0.04, blocks))
        factors[knob.name, "off"] = tuple(float(x) for x in sizes)
    reduced = {
        (knob.name, "int8"): (number, float(np.exp(rng.normal(-1.5, 1.2))))
        for number, knob in enumerate(reduce)
    }
    return BlockProblem(
        space=space,
        live=frozenset([*factors, *reduced]),
        start_loss=-6.0,
        shown_by={knob.name: frozenset(reduced) for knob in detail},
        noise_sd=noise_sd,
        shares=tuple(float(x) for x in rng.dirichlet(np.full(blocks, 2.0))),
        factors=factors,
        reduced=reduced,
        reduced_factor=float(rng.uniform(0.5, 0.85)),
        convert=float(rng.uniform(0.01, 0.04)),
    )


_VALUES = ("on", "off", "auto", "fast", "small", "large", "first", "last")


class Simulation:
    """A study of a made-up problem.

    Args:
        problem: The problem.
        seed: Seed of the noise.
        budget_s: Seconds of simulated time, or None for no limit.
    """

    def __init__(self, problem: Problem, *, seed: int, budget_s: float | None = None) -> None:
        self.problem = problem
        self.records: list[TrialRecord] = []
        self._seed = seed
        self._budget_s = budget_s
        self._used_s = 0.0
        self._by_route: dict[str, TrialRecord] = {}
        self._by_engine: dict[str, TrialRecord] = {}
        self.carry_out(Proposal(Route(), phase=Phase.BASELINE))

    @property
    def builds(self) -> int:
        """Builds so far, the baseline's among them."""
        return sum(r.build_s is not None or r.failure != "" for r in self.records)

    def history(self) -> History:
        """Return what a search method gets to see."""
        left_s = None if self._budget_s is None else max(self._budget_s - self._used_s, 0.0)
        return History(tuple(self.records), remaining_s=left_s)

    def run(self, sampler: RouteSampler, *, builds: int) -> None:
        """Carry out what ``sampler`` proposes until ``builds`` are used or nothing is left."""
        idle = 0
        while self.builds < builds and idle < builds:
            if self._budget_s is not None and self._used_s >= self._budget_s:
                return
            before = self.builds
            proposal = sampler.propose(self.history())
            if proposal is None:
                return
            self.carry_out(proposal)
            idle = 0 if self.builds > before else idle + 1

    def carry_out(self, proposal: Proposal) -> TrialRecord:
        """Try a route, add its record and return it."""
        record = self._tried(proposal, len(self.records))
        self._used_s += record.cost_s
        record = replace(record, elapsed_s=self._used_s, origin=proposal.origin)
        self.records.append(record)
        if record.outcome not in (Outcome.SCREENED, Outcome.REUSED):
            self._by_route[record.route] = record
        elif record.outcome is Outcome.REUSED:
            self._by_route.setdefault(record.route, record)
        if record.fingerprint is not None and record.outcome is not Outcome.SCREENED:
            self._by_engine.setdefault(record.fingerprint, record)
        return record

    def best_true_ratio(self, builds: int | None = None) -> float:
        """Return the true log ratio of the route that looks best after some builds."""
        used = 0
        best: TrialRecord | None = None
        for record in self.records:
            used += record.build_s is not None or record.failure != ""
            if builds is not None and used > builds:
                break
            if record.eligible and _ratio(record) < (1.0 if best is None else _ratio(best)):
                best = record
        if best is None:
            return 0.0
        return self.problem.log_ratio(Route.parse(best.route, self.problem.space.database))

    def _tried(self, proposal: Proposal, number: int) -> TrialRecord:
        problem, route = self.problem, proposal.route
        record = TrialRecord(number, str(route), proposal.phase, Outcome.FAILED)
        known = self._by_route.get(record.route)
        if known is not None:
            return known.standing_for(number, record.route, phase=proposal.phase, reason="known")
        if problem.fails(route):
            return replace(record, failure="error", reason="does not build")
        record = replace(record, build_s=problem.build_s, fingerprint=problem.fingerprint(route))
        known = self._by_engine.get(record.fingerprint or "")
        if known is not None:
            stood = known.standing_for(
                number, record.route, phase=proposal.phase, reason="same engine"
            )
            return replace(stood, build_s=problem.build_s)
        if not proposal.time_it:
            return replace(record, outcome=Outcome.SCREENED)
        log_loss = problem.log_loss(route)
        violation = min(math.expm1(log_loss), WORST_VIOLATION)
        record = replace(record, violation=violation, losses={"y": math.exp(log_loss)})
        if violation > 0.0:
            return replace(record, outcome=Outcome.INACCURATE, check_s=0.2 * problem.time_s)
        return self._timed(record, route)

    def _timed(self, record: TrialRecord, route: Route) -> TrialRecord:
        problem = self.problem
        rng = generator(self._seed, "noise", record.number)
        true = problem.log_ratio(route)
        best = min((_ratio(r) for r in self.records if r.eligible), default=1.0)
        is_slow = bool(true > math.log(best) + _SLOW_MARGIN) and record.phase is Phase.SEARCH
        sd = problem.noise_sd * (_SLOW_SD_FACTOR if is_slow else 1.0)
        seen = 0.0 if record.phase is Phase.BASELINE else true + sd * float(rng.normal())
        return replace(
            record,
            outcome=Outcome.SLOW if is_slow else Outcome.TIMED,
            time_s=problem.time_s * (0.3 if is_slow else 1.0),
            latency_ms=10.0 * math.exp(seen),
            baseline_ms=10.0,
            relative_latency=math.exp(seen),
            ci95=(math.exp(seen - 1.96 * sd), math.exp(seen + 1.96 * sd)),
        )


def _ratio(record: TrialRecord) -> float:
    return 1.0 if record.relative_latency is None else record.relative_latency
