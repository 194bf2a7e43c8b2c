"""Finding routes that a model expects much of, by local search."""

from __future__ import annotations

import numpy as np

from routewright.search.surrogate.encoding import Codes, Floats, Options
from routewright.search.surrogate.model import Coefficients

_MOST_STEPS = 60
_PENALTY = 2.0
"""What a log loss beyond the limit costs, in units of log relative latency."""


def climb(
    options: Options,
    start: Codes,
    latency: Coefficients,
    loss: Coefficients | None,
    limit: float,
) -> Codes:
    """Return a route that no change of one knob makes better, as coefficients say.

    Args:
        options: The values to choose from.
        start: Codes of the route to start from.
        latency: What is to become small.
        loss: What must not exceed ``limit``, or None.
        limit: See ``loss``.
    """
    codes = start.copy()
    at = _At(options, codes, latency)
    bound = None if loss is None else _At(options, codes, loss)
    for _ in range(_MOST_STEPS):
        change = at.gains()
        if bound is not None:
            then = bound.value + bound.gains()
            excess = np.maximum(then - limit, 0.0) - max(bound.value - limit, 0.0)
            change = change + _PENALTY * excess
        best = int(np.argmin(change))
        if change[best] >= -1e-9:
            break
        for each in (at, bound):
            if each is not None:
                each.move(best)
        codes[options.knob[best]] = best
    settled: Codes = options.settle(codes[None, :])[0]
    return settled


class _At:
    """Where a climb is on one quantity, kept up to date from step to step."""

    def __init__(self, options: Options, codes: Codes, coefficients: Coefficients) -> None:
        self._options = options
        self._codes = codes
        self._joint = coefficients.joint
        vector = options.rows[codes].sum(axis=0)
        self._slope = coefficients.single + coefficients.joint @ vector
        self.value = float(coefficients.value(vector[None, :])[0])

    def gains(self) -> Floats:
        """Return the change of the quantity for setting each option."""
        worth = self._options.rows @ self._slope
        result: Floats = worth - worth[self._codes][self._options.knob]
        return result

    def move(self, option: int) -> None:
        """Set an option; the codes are still those before."""
        rows = self._options.rows
        moved = rows[option] - rows[self._codes[self._options.knob[option]]]
        changed = np.flatnonzero(moved)
        # Columns of one knob have no joint effects, so that the change is linear.
        self.value += float(self._slope[changed] @ moved[changed])
        self._slope += self._joint[:, changed] @ moved[changed]
