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
    vector = options.rows[codes].sum(axis=0)
    for _ in range(_MOST_STEPS):
        change = _gain(options, codes, latency, vector)
        if loss is not None:
            now = float(loss.value(vector[None, :])[0])
            then = now + _gain(options, codes, loss, vector)
            excess = np.maximum(then - limit, 0.0) - max(now - limit, 0.0)
            change = change + _PENALTY * excess
        best = int(np.argmin(change))
        if change[best] >= -1e-9:
            break
        knob = options.knob[best]
        vector = vector + options.rows[best] - options.rows[codes[knob]]
        codes[knob] = best
    settled: Codes = options.settle(codes[None, :])[0]
    return settled


def _gain(options: Options, codes: Codes, coefficients: Coefficients, vector: Floats) -> Floats:
    """Return the change of f for setting each option."""
    worth = options.rows @ (coefficients.single + coefficients.joint @ vector)
    result: Floats = worth - worth[codes][options.knob]
    return result
