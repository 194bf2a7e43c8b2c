"""What the figures hold: all kinds of trials, counted where they are too many."""

from __future__ import annotations

import math
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from routewright.report.effects import knob_effects
from routewright.report.figures.best_so_far import best_so_far
from routewright.report.figures.knob_effects import MOST_SETTINGS, knob_effect_figure
from routewright.report.figures.selection import MOST_POINTS, ratio_range
from routewright.report.figures.speed_loss import speed_against_loss
from routewright.report.figures.study import study_figures
from routewright.report.figures.timing_blocks import timing_blocks
from routewright.report.source import StudyView
from routewright.report.story import tell
from routewright.result import KnobCensus

from studies import BOUND, baseline, finished_view, record, wide_records  # isort: skip


def traces(figure: go.Figure) -> dict[str, go.Scatter]:
    return {str(trace.name).partition(" (")[0]: trace for trace in figure.data}


def test_speed_and_loss_shows_the_bound_the_best_and_what_broke_it() -> None:
    figure = speed_against_loss(finished_view().records, BOUND, best_route="-a=on")
    drawn = traces(figure)
    assert len(drawn["best"].x) == 3
    assert list(drawn["broke the bound, not timed"].x) == [0.5]
    assert any(shape.x0 == shape.x1 == 0.01 for shape in figure.layout.shapes)
    texts = [annotation.text for annotation in figure.layout.annotations]
    assert "eligible" in texts
    assert "bound 0.01" in texts


@pytest.mark.parametrize("threshold", [0.0, "inf", 1e-300])
def test_any_bound_can_be_drawn(threshold: float | str) -> None:
    figure = speed_against_loss(finished_view().records, {"loss": "l1", "threshold": threshold})
    low, high = figure.layout.xaxis.range
    assert math.isfinite(low)
    assert low < high


def test_outputs_with_their_own_bounds_are_drawn_as_multiples() -> None:
    bound = {**BOUND, "per_output": {"y": 0.1}}
    figure = speed_against_loss([baseline(), record(1, "-a=on", violation=-0.25)], bound)
    assert 0.75 in traces(figure)["eligible"].x


def test_the_best_so_far_never_rises_and_leaves_confirmations_out() -> None:
    records = wide_records(300, 20)
    line = traces(best_so_far(records))["best eligible reading so far"]
    assert list(line.y) == sorted(line.y, reverse=True)
    assert list(line.x) == sorted(line.x)
    assert min(r.relative_latency or 9.0 for r in records if r.eligible) == line.y[-1]


def test_thousands_of_trials_are_thinned_and_counted() -> None:
    records = wide_records(4000, 209)
    figure = best_so_far(records)
    assert sum(len(trace.x) for trace in figure.data if trace.mode == "markers") == MOST_POINTS
    assert "fastest 1,500 of" in figure.layout.title.text


def test_wide_studies_draw_the_clearest_settings_and_count_the_rest() -> None:
    effects = knob_effects(wide_records(1500, 209))
    census = KnobCensus(209, ("-a",), tuple(f"-i{i}" for i in range(100)), ("-u",))
    figure = knob_effect_figure(effects, census)
    drawn = [y for trace in figure.data if trace.showlegend is None for y in trace.y]
    assert len(drawn) == MOST_SETTINGS
    counted = [y for trace in figure.data if trace.showlegend is False for y in trace.y]
    assert any("more settings" in row for row in counted)
    assert "100 inert knobs: the engine stays the same" in counted


def test_timing_blocks_are_ratios_beside_the_baselines_own() -> None:
    figure = timing_blocks(finished_view().records, "-a=on", ci95=(0.88, 0.92))
    drawn = traces(figure)
    assert drawn["default itself"].y[0] == pytest.approx(math.exp(0.01))
    assert drawn["build 1"].y[0] == pytest.approx(math.exp(-0.1))


def test_hostile_names_are_shown_literally_in_figures() -> None:
    view = finished_view()
    records = tuple(replace(r, route="-<b>$x$</b>=on") if r.route else r for r in view.records)
    for shown in study_figures(tell(replace(view, records=records))):
        assert "<b>" not in shown.figure.to_json().replace("\\u003c", "<")


def test_an_empty_study_has_no_figures() -> None:
    assert study_figures(tell(StudyView("empty"))) == []


def test_the_axis_is_not_pressed_by_a_few_slow_routes() -> None:
    low, high = ratio_range([0.8, 0.9, 1.0, 1.0, 1.1, 1.1, 1.1, 1.2, 1.2, 40.0])
    assert 0.6 < low < 0.8
    assert high < 1.5
