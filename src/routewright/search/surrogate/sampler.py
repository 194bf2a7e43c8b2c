"""The surrogate search."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from routewright.choices import IntegerRange, representatives
from routewright.routes import Route
from routewright.search.base import History, Proposal, RouteSampler
from routewright.search.candidates import (
    Change,
    base_route,
    generator,
    holds,
    parsed,
    unseen_random,
)
from routewright.search.hints import NO_HINTS, SearchHints
from routewright.search.observations import (
    Observation,
    engine_labels,
    observations_of,
    times_of_engines,
)
from routewright.search.surrogate.acquisition import log_expected_improvement
from routewright.search.surrogate.blame import Blame, breaches, failures
from routewright.search.surrogate.cost import Cost
from routewright.search.surrogate.encoding import (
    Codes,
    Encoding,
    Floats,
    Options,
    distinct,
    stacked,
)
from routewright.search.surrogate.feasibility import PRODUCTS, SUMS, Accuracy
from routewright.search.surrogate.model import (
    LATENCY_GUESSES,
    Beliefs,
    Regression,
    ScaleMemory,
    fit,
)
from routewright.search.surrogate.optimize import climb
from routewright.space import SearchSpace

_DRAWS = 6
_FEW_DRAWS = 1
_MANY_COLUMNS = 150
_STARTS = 3
_NEIGHBOURS = 80
_MUTATIONS = 12
_START_SD = 1e-3
_OFFSET_SD = 0.3
_PER_STEP = 0.5
"""What the log of the improvement is lowered by for each further knob in which a route differs
from all timed ones.

Changes that may do anything make a route look worth a trial; but several at once seldom turn out
well together, and say less about each.
"""

_NEXT_TO_NOTHING = 1e-10


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal and what it promises.

    Attributes:
        proposal: The proposal.
        expected_gain: Expected improvement of log relative latency over the best route so far,
            the probability that the route is eligible included.
        expected_s: Expected seconds of the trial.
        effect_sd: How large the effect of a change is, typically.
        build_s: Seconds of a typical build.
        timing_s: Seconds of a typical check and timing.
    """

    proposal: Proposal
    expected_gain: float
    expected_s: float = 1.0
    effect_sd: float = 0.0
    build_s: float = 1.0
    timing_s: float = 1.0


class LatencyJudge(Protocol):
    """Predicts log relative latency of encoded routes."""

    def mean(self, rows: Floats) -> Floats:
        """Return what to expect of each row."""

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return what to expect of each row, and its standard deviation."""


class SurrogateSearch(RouteSampler):
    """Proposes the route with the most expected improvement per second.

    Candidates come from the regression of :mod:`.model`. A subclass may have another model of
    latency choose among them; see :meth:`judge_of`.

    Args:
        space: The routes to choose from.
        seed: Seed of every random choice.
        hints: Beliefs about effects.
    """

    name = "surrogate"

    def __init__(self, space: SearchSpace, *, seed: int, hints: SearchHints = NO_HINTS) -> None:
        super().__init__(space, seed=seed)
        self._encoding = Encoding(space)
        self._options = Options(self._encoding)
        self._beliefs = _beliefs(self._encoding, hints)
        self._memory = ScaleMemory()
        self._loss_memories = {scale.shift: ScaleMemory() for scale in (SUMS, PRODUCTS)}

    def propose(self, history: History) -> Proposal | None:
        """Return the route to try next, or None when the space is used up."""
        best = self.best_candidate(history)
        return None if best is None else best.proposal

    def best_candidate(
        self, history: History, *, inert: Collection[Change] = ()
    ) -> Candidate | None:
        """Return the route to try next and what it promises, or None if there is none left.

        Args:
            history: All trials so far.
            inert: Changes outside the space that are known to leave the engine as it is.
        """
        tried = history.tried()
        if not self.space.variable:
            only = base_route(self.space)
            untried = str(only) not in tried
            return Candidate(Proposal(only, origin="the only route"), 0.0) if untried else None
        rng = generator(self.seed, "surrogate", len(history.records), *sorted(history.running))
        pooled = observations_of(self.space, history.records, inert=inert)
        observations = [each for each in pooled if each.built_to_run]
        view = self._view(observations, history)
        seen = self._seen(view.options, tried)
        pool = distinct(self._pool(view, rng), seen)
        if not len(pool):
            other = unseen_random(self.space, tried, rng)
            if other is None:
                return None
            return Candidate(Proposal(other, origin="surrogate: a route at random"), 0.0)
        gains, seconds = view.judge(pool)
        further = np.maximum(view.steps(pool) - 1, 0)
        best = int(np.argmax(gains - np.log(seconds) - _PER_STEP * further))
        route = view.options.route_of(pool[best])
        return Candidate(
            Proposal(route, origin="surrogate: most expected improvement per second"),
            float(np.exp(gains[best])),
            expected_s=float(seconds[best]),
            effect_sd=view.latency.scales.main,
            build_s=view.cost.build_s,
            timing_s=view.cost.timing_s,
        )

    def judge_of(self, own: Regression, rows: Floats, values: Floats, sds: Floats) -> LatencyJudge:
        """Return what the latency of routes is judged by: the search's own model.

        Args:
            own: The model that candidates come from; routes being tried count as measured.
            rows: Encoded routes that were timed, and the start where its value is known.
            values: Log relative latency of each.
            sds: Standard error of each.
        """
        return own

    def _view(self, observations: Sequence[Observation], history: History) -> _View:
        encoding = self._encoding
        timed = [o for o in observations if o.log_ratio is not None and o.violation <= 0.0]
        rows = encoding.encode_all([o.route for o in timed])
        engines = engine_labels(timed)
        values, sds = times_of_engines(timed, engines)
        starts_at_default = not base_route(self.space).pairs
        if starts_at_default:
            # The start is the baseline, whose relative latency is 1 by definition.
            rows = np.vstack([np.zeros((1, encoding.columns)), rows])
            values = np.append(0.0, values)
            sds = np.append(_START_SD, sds)
            engines = np.append(engines.max(initial=-1) + 1, engines)
        model = fit(
            rows,
            values,
            sds,
            encoding.layout,
            LATENCY_GUESSES,
            offset=0.0 if starts_at_default else _OFFSET_SD,
            beliefs=self._beliefs,
            engines=engines,
            memory=self._memory,
        )
        running = [parsed(self.space, text) for text in sorted(set(history.running))]
        pending = [r for r in running if r is not None and self.space.contains(r)]
        if pending:
            model = model.with_believed(encoding.encode_all(pending))
        judge = self.judge_of(model, rows, values, sds)
        means = judge.mean(rows[len(rows) - len(timed) :])
        order = np.argsort(means, kind="stable")
        tops = [timed[int(i)].route for i in order[:_STARTS]] or [base_route(self.space)]
        options = self._options_near(tops)
        codes = [options.codes_of(route) for route in tops]
        return _View(
            options=options,
            latency=model,
            judged_by=judge,
            accuracy=Accuracy(encoding, observations, self._loss_memories),
            failures=failures(encoding, observations),
            breaches=breaches(encoding, observations),
            cost=Cost(encoding, observations),
            incumbents=[each for each in codes if each is not None],
            timed=_codes_tried(options, timed),
            best=min(float(means[order[0]]) if len(order) else 0.0, 0.0),
        )

    def _options_near(self, tops: Sequence[Route]) -> Options:
        """Return the options, with values beside those of the best routes in wide ranges."""
        also: dict[str, set[str]] = {}
        for route in tops:
            for name, value in self._encoding.changes(route).items():
                values = self.space.variable[name]
                if isinstance(values, IntegerRange):
                    also.setdefault(name, set()).update(representatives(values, value))
        if not also:
            return self._options
        return Options(self._encoding, also)

    def _seen(self, options: Options, tried: set[str]) -> set[bytes]:
        seen: set[bytes] = set()
        for text in tried:
            route = parsed(self.space, text)
            if route is not None and holds(self.space, route):
                codes = options.key_of(route)
                if codes is not None:
                    seen.add(codes)
        return seen

    def _pool(self, view: _View, rng: np.random.Generator) -> Codes:
        options, loss = view.options, view.accuracy.model
        width = len(self._encoding.knobs)
        starts = view.incumbents or [options.at_start]
        parts: list[Codes] = []
        draws = _DRAWS if self._encoding.columns <= _MANY_COLUMNS else _FEW_DRAWS
        for draw in range(draws + 1):
            latency = view.latency.coefficients(rng if draw else None)
            losses = None if loss is None else loss.coefficients(rng if draw else None)
            for start in (starts[draw % len(starts)], options.at_start):
                top = climb(options, start, latency, losses, view.accuracy.limit)
                parts.append(top)
                parts.append(options.mutated(np.tile(top, (4, 1)), 1, rng))
        for start in starts:
            near = options.neighbours(start)
            if len(near) > _NEIGHBOURS:
                near = near[rng.permutation(len(near))[:_NEIGHBOURS]]
            parts.append(near)
            for changes in (2, 3):
                parts.append(options.mutated(np.tile(start, (_MUTATIONS, 1)), changes, rng))
        return stacked(parts, width)


@dataclass(frozen=True)
class _View:
    """What the data say, ready to judge routes by."""

    options: Options
    latency: Regression
    judged_by: LatencyJudge
    accuracy: Accuracy
    failures: Blame
    breaches: Blame
    cost: Cost
    incumbents: Sequence[Codes]
    timed: Codes
    best: float

    def steps(self, codes: Codes) -> npt.NDArray[np.intp]:
        """Return in how many knobs each route differs from the nearest that was timed."""
        known = np.vstack([self.options.at_start[None, :], self.timed])
        alike = self.options.indicators(codes) @ self.options.indicators(known).T
        nearest: npt.NDArray[np.intp] = codes.shape[1] - alike.max(axis=1).astype(np.intp)
        return nearest

    def judge(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return the log of the expected improvement and the expected seconds of each route."""
        rows = self.options.encode(codes)
        mean, sd = self.judged_by.predict(rows)
        eligible = self.accuracy.probability(rows)
        eligible = eligible * self.breaches.probability(self.options, codes)
        builds = self.failures.probability(self.options, codes)
        gain = log_expected_improvement(mean, sd, self.best)
        gain = gain + np.log(np.maximum(eligible, 1e-12)) + np.log(np.maximum(builds, 1e-12))
        return gain, self.cost.seconds(rows, eligible, builds)


def _codes_tried(options: Options, timed: Sequence[Observation]) -> Codes:
    """Return the codes of timed routes, less those with a value that is no option."""
    keys = [key for o in timed if (key := options.key_of(o.route)) is not None]
    return np.frombuffer(b"".join(keys), dtype=np.int32).reshape(-1, len(options.at_start))


def _beliefs(encoding: Encoding, hints: SearchHints) -> Beliefs | None:
    mean = np.zeros(encoding.columns)
    variance = np.full(encoding.columns, np.nan)
    for (name, value), belief in hints.effects.items():
        column = encoding.column_of(name, value)
        if column is not None:
            entry = encoding.part(encoding.position[name], value)[
                column - encoding.slices[encoding.position[name]].start
            ]
            mean[column] = belief.mean / entry
            variance[column] = (belief.sd / entry) ** 2
            shared = encoding.shared_column_of(name)
            if shared is not None:
                # What the values have in common is part of the beliefs about each.
                mean[shared], variance[shared] = 0.0, _NEXT_TO_NOTHING
    return Beliefs(mean, variance) if not np.isnan(variance).all() else None
