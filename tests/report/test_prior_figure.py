from __future__ import annotations

import math

from prior_studies import random_study, source
from routewright.priors.overview import overview
from routewright.report.figures.prior import prior_figure

EFFECTS = {"-fast=on": -0.3, "-slow=on": 0.3, "-none=on": 0.0}


def test_each_setting_stands_at_its_effect_with_its_interval() -> None:
    sources = [source(f"s{seed}", random_study(EFFECTS, seed=seed)) for seed in (0, 1, 2)]
    figure = prior_figure(overview(sources))
    drawn = {
        (trace.name, setting): (x, minus, plus)
        for trace in figure.data
        for setting, x, minus, plus in zip(
            trace.y, trace.x, trace.error_x.arrayminus, trace.error_x.array, strict=True
        )
    }
    assert {kind for kind, _ in drawn} == {"faster", "slower", "not clear"}
    factor, minus, plus = drawn["faster", "-fast=on"]
    assert abs(factor - math.exp(-0.3)) < 0.05
    assert factor - minus < factor < factor + plus < 1


def test_only_the_clearest_are_drawn() -> None:
    effects = {f"-k{chr(97 + i)}=on": -0.05 * i for i in range(6)}
    sources = [source(f"s{seed}", random_study(effects, seed=seed)) for seed in (0, 1)]
    figure = prior_figure(overview(sources), top=2)
    assert {y for trace in figure.data for y in trace.y} == {"-ke=on", "-kf=on"}
