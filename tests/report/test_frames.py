"""Trials as a pandas frame."""

from __future__ import annotations

import math

from routewright.frames import COLUMNS, trials_frame
from routewright.report.source import StudyView

from studies import finished_view  # isort: skip


def test_a_frame_has_one_row_a_trial_and_typed_columns() -> None:
    frame = finished_view().trials_dataframe()
    assert list(frame.columns) == list(COLUMNS)
    assert list(frame["trial"]) == list(range(8))
    assert frame["relative_latency"].dtype == "float64"
    assert frame["eligible"].dtype == "bool"
    best = frame[frame["eligible"] & (frame["phase"] == "search")].nsmallest(1, "relative_latency")
    assert best["route"].item() == "-a=on"
    assert best["ci95_high"].item() == 0.92
    assert best["pairs"].item() == 4
    broken = frame[frame["outcome"] == "inaccurate"].iloc[0]
    assert math.isnan(broken["relative_latency"])
    assert broken["loss"] == 0.5
    assert frame["reused_from"].dropna().tolist() == [0]


def test_an_empty_study_is_an_empty_frame() -> None:
    frame = trials_frame(StudyView("empty").records)
    assert list(frame.columns) == list(COLUMNS)
    assert frame.empty
