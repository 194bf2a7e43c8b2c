"""How much a route is worth trying."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from routewright.search.surrogate.encoding import Floats


def log_expected_improvement(mean: Floats, sd: Floats, best: float) -> Floats:
    """Return the log of the expected amount by which each value falls below ``best``.

    Args:
        mean: Expected values.
        sd: Standard deviations, above 0.
        best: The value to improve on.
    """
    z = (best - mean) / sd
    density = -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi)
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.log(np.maximum(np.exp(density) + z * ndtr(z), 1e-300))
        # Far below, density and z times the tail cancel; this is the asymptotic form.
        far = density - 2.0 * np.log(np.maximum(-z, 1.0))
    return np.asarray(np.log(sd) + np.where(z > -6.0, near, far))
