"""What a history says about each route, pooled over its trials."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routewright.records import WORST_VIOLATION, Outcome, TrialRecord
from routewright.routes import Route
from routewright.search.candidates import Change, holds, parsed
from routewright.space import SearchSpace

LEAST_SD = 1e-4
"""No interval is believed to be narrower than this, on the log scale."""

UNKNOWN_SD = 0.1
"""Standard error of a time that came without an interval."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One route and all that was measured of it.

    Attributes:
        text: The route as written.
        route: The route.
        log_ratio: Pooled log relative latency, or None if it was not timed.
        sd: Standard error of ``log_ratio``; 0 if it was not timed.
        violation: Amount by which the bound is exceeded, see :class:`TrialRecord`; 0 where the
            outputs were not checked.
        is_checked: Whether the outputs were checked.
        failed: Whether it could not be built or run.
        fingerprint: The engine's fingerprint, or None.
        is_measured: Whether it was measured itself, rather than known from another route's engine.
        is_slow: Whether timing ended early because the route is no contender.
        build_s: Mean seconds of its builds, or None.
        use_s: Mean seconds of check and timing, or None.
    """

    text: str
    route: Route
    log_ratio: float | None
    sd: float
    violation: float
    is_checked: bool
    failed: bool
    fingerprint: str | None
    is_measured: bool
    is_slow: bool
    build_s: float | None
    use_s: float | None

    @property
    def built_to_run(self) -> bool:
        """Whether it says more than a fingerprint."""
        return self.failed or self.is_checked or self.log_ratio is not None


def observations_of(
    space: SearchSpace, records: Iterable[TrialRecord], *, inert: Collection[Change] = ()
) -> list[Observation]:
    """Pool the records by route, in the order in which the routes were first tried.

    Routes outside the space are left out.

    Args:
        space: The space.
        records: The trials.
        inert: Changes that leave the engine as it is. A route with some that the space does not
            have counts as the route without them.
    """
    by_route: dict[str, tuple[Route, list[TrialRecord]]] = {}
    foreign = {change for change in inert if change[0] not in space.variable}
    for record in records:
        route, text = parsed(space, record.route), record.route
        if route is not None and not foreign.isdisjoint(route.pairs):
            route = Route(tuple(pair for pair in route.pairs if pair not in foreign))
            text = str(route)
        if route is not None and holds(space, route):
            by_route.setdefault(text, (route, []))[1].append(record)
    return [pool(text, route, trials) for text, (route, trials) in by_route.items()]


def pool(text: str, route: Route, trials: list[TrialRecord]) -> Observation:
    """Pool all trials of one route.

    Times are weighted by their intervals. A route is taken to break the bound if any trial did,
    and to have failed if the last one did.
    """
    weight = 0.0
    total = 0.0
    for trial in trials:
        if trial.log_relative_latency is not None:
            precision = log_sd(trial) ** -2
            weight += precision
            total += precision * trial.log_relative_latency
    checked = [t.violation for t in trials if t.violation is not None]
    failed = trials[-1].outcome is Outcome.FAILED
    violation = max(checked, default=0.0)
    return Observation(
        text=text,
        route=route,
        log_ratio=total / weight if weight else None,
        sd=math.sqrt(1.0 / weight) if weight else 0.0,
        violation=WORST_VIOLATION if failed else violation,
        is_checked=bool(checked),
        failed=failed,
        fingerprint=next((t.fingerprint for t in trials if t.fingerprint is not None), None),
        is_measured=any(t.reused_from is None for t in trials),
        is_slow=any(t.outcome is Outcome.SLOW for t in trials),
        build_s=_mean([t.build_s for t in trials if t.build_s is not None]),
        use_s=_mean(
            [
                (t.check_s or 0.0) + (t.time_s or 0.0)
                for t in trials
                if t.check_s is not None or t.time_s is not None
            ]
        ),
    )


def engine_labels(observations: Sequence[Observation]) -> npt.NDArray[np.intp]:
    """Return a label of each observation's engine, from 0 on."""
    labels: dict[str, int] = {}
    found = [labels.setdefault(o.fingerprint or o.text, len(labels)) for o in observations]
    return np.array(found, dtype=np.intp)


def times_of_engines(
    timed: Sequence[Observation], engines: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return log ratio and standard error of each observation's engine.

    Routes that lead to one engine have that engine's time, pooled over its own measurements.

    Args:
        timed: Observations with a time.
        engines: Their :func:`engine_labels`.
    """
    own = np.array([o.is_measured for o in timed], dtype=bool)
    measured = set(engines[own].tolist())
    for index, engine in enumerate(engines.tolist()):
        if engine not in measured:
            own[index] = True
            measured.add(engine)
    weights = own * np.array([o.sd**-2.0 for o in timed], dtype=float)
    values = np.array([o.log_ratio for o in timed], dtype=float)
    total = np.bincount(engines, weights=weights).astype(np.float64)
    means = np.bincount(engines, weights=weights * values) / total
    return means[engines], total[engines] ** -0.5


def log_sd(record: TrialRecord) -> float:
    """Return the standard error of a timed trial's log relative latency, never 0."""
    sd = record.log_sd
    return UNKNOWN_SD if sd is None or not math.isfinite(sd) else max(sd, LEAST_SD)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
