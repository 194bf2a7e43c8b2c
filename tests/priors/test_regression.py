from __future__ import annotations

import math

import numpy as np
import pytest

from prior_studies import random_study
from routewright.priors.regression import Trial, estimate_effects
from routewright.records import TrialRecord

EFFECTS = {"-a=on": -0.2, "-b=on": 0.1, "-c=on": 0.0, "-d=on": -0.05, "-e=on": 0.3}


def trials_of(records: list[TrialRecord]) -> list[Trial]:
    return [
        Trial(tuple(r.route.split()), math.log(r.relative_latency or 1.0), r.log_sd or 0.01)
        for r in records
        if r.route
    ]


def test_effects_are_found_with_other_settings_taken_into_account() -> None:
    found = estimate_effects(trials_of(random_study(EFFECTS, count=80))).single
    for setting, effect in EFFECTS.items():
        assert found[setting].value == pytest.approx(effect, abs=4 * found[setting].se)
        assert found[setting].se < 0.02


def test_raw_averages_would_have_been_wrong() -> None:
    # -b always comes with the fast -a, so routes with -b are fast though -b is slow.
    trials = [
        Trial(("-a=on",), -0.30, 0.01),
        Trial(("-a=on", "-b=on"), -0.22, 0.01),
        Trial(("-a=on", "-b=on", "-c=on"), -0.22, 0.01),
        Trial(("-c=on",), 0.0, 0.01),
    ]
    assert estimate_effects(trials).single["-b=on"].value > 0.05


def test_intervals_hold_what_they_promise() -> None:
    inside = total = 0
    for seed in range(40):
        records = random_study(EFFECTS, count=30, sd=0.03, seed=seed)
        found = estimate_effects(trials_of(records)).single
        for setting, effect in EFFECTS.items():
            total += 1
            inside += abs(found[setting].value - effect) <= 1.96 * found[setting].se
    assert inside / total >= 0.9


def test_settings_that_only_come_together_are_not_told_apart() -> None:
    trials = [Trial(("-a=on", "-b=on"), -0.4, 0.005) for _ in range(6)]
    found = estimate_effects(trials).single
    assert all(effect.se > 0.1 for effect in found.values())


def test_an_interaction_is_found_and_named() -> None:
    pairs = {("-a=on", "-e=on"): -0.25}
    found = estimate_effects(trials_of(random_study(EFFECTS, count=120, pairs=pairs)))
    assert list(found.pairs) == [("-a=on", "-e=on")]
    assert found.pairs["-a=on", "-e=on"].value == pytest.approx(-0.25, abs=0.05)
    assert found.single["-a=on"].value == pytest.approx(-0.2, abs=0.05)


def test_interactions_are_not_seen_in_noise() -> None:
    seen = sum(
        len(estimate_effects(trials_of(random_study(EFFECTS, seed=seed, sd=0.03))).pairs)
        for seed in range(20)
    )
    assert seen <= 1


def test_a_precise_trial_counts_more_than_a_vague_one() -> None:
    trials = [Trial(("-a=on",), -0.2, 0.005), Trial(("-a=on",), 0.4, 0.5)]
    assert estimate_effects(trials).single["-a=on"].value == pytest.approx(-0.2, abs=0.02)


def test_nothing_is_said_without_trials() -> None:
    assert estimate_effects([]).single == {}


def test_the_order_of_trials_does_not_matter() -> None:
    trials = trials_of(random_study(EFFECTS))
    shuffled = [trials[i] for i in np.random.default_rng(1).permutation(len(trials))]
    one, other = estimate_effects(trials).single, estimate_effects(shuffled).single
    for setting in EFFECTS:
        assert one[setting].value == pytest.approx(other[setting].value, rel=1e-9)
