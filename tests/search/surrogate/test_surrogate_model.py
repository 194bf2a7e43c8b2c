"""The regression against textbook formulas written out in full."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from routewright.search.surrogate.model import (
    LATENCY_GUESSES,
    Beliefs,
    Floats,
    Layout,
    Regression,
    Scales,
    fit,
)

OWNER = np.array([0, 1, 2, 2, 3])
RNG = np.random.default_rng(5)


def routes(count: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    rows = (rng.random((count, len(OWNER))) < 0.4).astype(float)
    rows[:, 3] *= 1.0 - rows[:, 2]
    return rows


def expanded(rows: Floats) -> Floats:
    """Return main effects and all products of columns of different knobs, and a constant."""
    pairs = [
        rows[:, i] * rows[:, j]
        for i, j in itertools.combinations(range(len(OWNER)), 2)
        if OWNER[i] != OWNER[j]
    ]
    return np.column_stack([np.ones(len(rows)), rows, *pairs])


SCALES = Scales(main=0.2, pair=0.07, rest=0.0, misfit=0.01, offset=0.1)
RELEVANCE = np.array([1.0, 0.5, 2.0, 2.0, 0.3])


def prior_variance() -> Floats:
    pairs = [
        SCALES.pair**2 * RELEVANCE[i] * RELEVANCE[j]
        for i, j in itertools.combinations(range(len(OWNER)), 2)
        if OWNER[i] != OWNER[j]
    ]
    return np.array([SCALES.offset**2, *(SCALES.main**2 * RELEVANCE), *pairs])


def textbook(rows: Floats, values: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Return mean and covariance of all coefficients."""
    design = expanded(rows)
    precision = np.diag(1 / prior_variance()) + design.T @ (design / noise[:, None])
    covariance = np.linalg.inv(precision)
    return covariance @ design.T @ (values / noise), covariance


def data(count: int = 12) -> tuple[Floats, Floats, Floats]:
    rows = routes(count)
    sds = np.random.default_rng(1).uniform(0.005, 0.05, count)
    values = rows @ np.array([0.1, -0.2, 0.05, 0.3, 0.0]) + 0.2 * rows[:, 0] * rows[:, 1]
    return rows, values, sds


def regression() -> Regression:
    rows, values, sds = data()
    return Regression(rows, values, sds**2, Layout.of_contrasts(OWNER), SCALES, RELEVANCE, None)


def test_trials_of_one_engine_err_together() -> None:
    # One measurement, known of four routes: the last three knobs change nothing, and that is sure.
    rows = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 0, 1]], float)
    values, noise = np.full(4, 0.2), np.full(4, 0.05**2)
    layout = Layout.of_contrasts(OWNER)

    def sds(engines: np.ndarray) -> tuple[Floats, Floats]:
        model = Regression(rows, values, noise, layout, SCALES, RELEVANCE, None, engines)
        both = model.predict(np.array([[1, 0, 0, 0, 0], [1, 1, 1, 0, 1]], float))[1]
        return both, np.sqrt(model.effects()[1])

    (one, _), same = sds(np.zeros(4, dtype=np.intp))
    (four, _), different = sds(np.arange(4))
    assert one > 1.1 * four  # Four measurements would tell more of the time itself ...
    assert np.all(same[[1, 2, 4]] < 0.9 * different[[1, 2, 4]])  # ... but less of the differences.


def test_predictions_are_those_of_the_regression_in_weight_space() -> None:
    rows, values, sds = data()
    mean, covariance = textbook(rows, values, sds**2 + SCALES.misfit**2)
    new = routes(20, seed=9)
    design = expanded(new)
    predicted, sd = regression().predict(new)
    np.testing.assert_allclose(predicted, design @ mean, atol=1e-5)
    np.testing.assert_allclose(
        sd**2, np.einsum("ij,jk,ik->i", design, covariance, design), rtol=1e-3
    )


def test_evidence_is_the_density_of_the_data() -> None:
    rows, values, sds = data()
    design = expanded(rows)
    covariance = design * prior_variance() @ design.T
    covariance += np.diag(sds**2 + SCALES.misfit**2 + 1e-7)
    expected = multivariate_normal(np.zeros(len(values)), covariance).logpdf(values)
    assert regression().log_evidence == pytest.approx(expected, rel=1e-6)


def test_coefficients_give_the_mean_of_the_predictions() -> None:
    model = regression()
    new = routes(20, seed=9)
    np.testing.assert_allclose(model.coefficients().value(new), model.predict(new)[0], atol=1e-8)


def test_draws_have_the_mean_and_spread_of_the_predictions() -> None:
    model = regression()
    new = routes(8, seed=9)
    mean, sd = model.predict(new)
    rng = np.random.default_rng(0)
    drawn = np.array([model.coefficients(rng).value(new) for _ in range(3000)])
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.012)
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.1, atol=0.003)


def test_effects_have_the_marginals_of_the_coefficients() -> None:
    rows, values, sds = data()
    mean, covariance = textbook(rows, values, sds**2 + SCALES.misfit**2)
    found, variance = regression().effects()
    np.testing.assert_allclose(found, mean[1 : 1 + len(OWNER)], atol=1e-6)
    np.testing.assert_allclose(variance, np.diag(covariance)[1 : 1 + len(OWNER)], rtol=1e-3)


def test_smooth_columns_are_handled_like_the_others() -> None:
    rng = np.random.default_rng(3)
    rows = routes(10)
    rows[:, 2:4] = rng.normal(size=(10, 2))
    values = rng.normal(size=10)
    noise = np.full(10, 0.01)
    mean, covariance = textbook(rows, values, noise + SCALES.misfit**2)
    squares = np.where(np.isin(np.arange(len(OWNER)), [2, 3]), np.nan, 1.0)
    model = Regression(rows, values, noise, Layout(OWNER, squares), SCALES, RELEVANCE, None)
    new = routes(5, seed=2)
    new[:, 2:4] = rng.normal(size=(5, 2))
    predicted, sd = model.predict(new)
    np.testing.assert_allclose(predicted, expanded(new) @ mean, atol=1e-5)
    design = expanded(new)
    np.testing.assert_allclose(
        sd**2, np.einsum("ij,jk,ik->i", design, covariance, design), rtol=1e-3
    )


def test_a_believed_route_is_more_certain_and_no_different() -> None:
    model = regression()
    new = routes(6, seed=4)
    mean, sd = model.predict(new)
    after = model.with_believed(new)
    mean_after, sd_after = after.predict(new)
    np.testing.assert_allclose(mean_after, mean, atol=1e-6)
    assert (sd_after <= sd + 1e-9).all()


def test_fitting_finds_effects_and_the_noise() -> None:
    rng = np.random.default_rng(0)
    layout = Layout.of_contrasts(np.arange(12))
    rows = (rng.random((80, 12)) < 0.4).astype(float)
    truth = np.where(np.arange(12) < 4, [0.3, -0.2, 0.1, -0.1] * 3, 0.0)
    values = rows @ truth + 0.15 * rows[:, 0] * rows[:, 1] + rng.normal(0, 0.02, 80)
    model = fit(rows, values, np.full(80, 0.02), layout, LATENCY_GUESSES)
    mean, _ = model.effects()
    np.testing.assert_allclose(mean, truth, atol=0.04)
    assert model.coefficients().joint[0, 1] == pytest.approx(0.15, abs=0.05)
    assert model.relevance[:4].min() > model.relevance[4:].max()


def test_no_data_leaves_the_prior() -> None:
    model = fit(
        np.zeros((0, 5)), np.zeros(0), np.zeros(0), Layout.of_contrasts(OWNER), LATENCY_GUESSES
    )
    mean, sd = model.predict(routes(3))
    np.testing.assert_allclose(mean, routes(3).sum(axis=1) * model.scales.lean)
    assert (sd > 0).all()


def told(right: float) -> tuple[Regression, Floats]:
    """Fit data with beliefs that are right (1), or have their signs flipped (-1)."""
    rng = np.random.default_rng(1)
    layout = Layout.of_contrasts(np.arange(12))
    truth = rng.normal(0, 0.15, 12)
    rows = (rng.random((10, 12)) < 0.3).astype(float)
    values = rows @ truth + rng.normal(0, 0.01, 10)
    beliefs = Beliefs(right * truth, np.full(12, 0.03**2))
    model = fit(rows, values, np.full(10, 0.01), layout, LATENCY_GUESSES, beliefs=beliefs)
    return model, truth


def test_a_right_belief_is_followed_and_a_wrong_one_loses_its_weight() -> None:
    right, truth = told(1.0)
    wrong, _ = told(-1.0)
    assert right.scales.belief > 0.4
    assert wrong.scales.belief == 0.0
    assert np.abs(right.effects()[0] - truth).mean() < np.abs(wrong.effects()[0] - truth).mean()
