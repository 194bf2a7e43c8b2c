"""Expected improvement against numeric integration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from routewright.search.surrogate.acquisition import log_expected_improvement


@pytest.mark.parametrize("mean", [-0.1, 0.0, 0.05, 0.2])
@pytest.mark.parametrize("sd", [0.02, 0.1])
def test_it_is_the_log_of_the_integral(mean: float, sd: float) -> None:
    best = 0.0
    expected, _ = quad(lambda y: (best - y) * norm.pdf(y, mean, sd), mean - 12 * sd, best)
    found = log_expected_improvement(np.array([mean]), np.array([sd]), best)[0]
    assert found == pytest.approx(np.log(expected), rel=0.01, abs=0.02)


def test_hopeless_routes_are_still_ranked() -> None:
    means = np.array([0.5, 1.0, 5.0, 50.0])
    found = log_expected_improvement(means, np.full(4, 0.05), 0.0)
    assert np.isfinite(found).all()
    assert (np.diff(found) < 0).all()
