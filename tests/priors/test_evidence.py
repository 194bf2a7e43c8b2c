from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from prior_studies import BASELINE, random_study, singles, source, timed
from routewright.records import Outcome, Phase, TrialRecord


def row(frame: pd.DataFrame, setting: str) -> Any:
    knob, _, value = setting.partition("=")
    (found,) = frame[(frame.knob == knob) & (frame.value == value)].itertuples()
    return found


def failed(number: int, route: str) -> TrialRecord:
    return TrialRecord(number, route, Phase.SEARCH, Outcome.FAILED, failure="crash")


def test_a_setting_has_its_effect_its_loss_and_its_builds() -> None:
    records = singles({"-a=on": -0.2, "-b=on": 0.1}, loss=1e-4)
    found = source("s", records).settings
    assert row(found, "-a=on").effect == pytest.approx(-0.2, abs=0.02)
    assert row(found, "-a=on").loss_log10 == pytest.approx(-4.0, abs=0.01)
    assert row(found, "-a=on").builds == 1
    assert row(found, "-a=on").live == 1


def test_a_group_with_the_default_engine_is_inert() -> None:
    records = [
        BASELINE,
        replace(timed(1, "-a=on -b=on", 0.0, fingerprint="base"), outcome=Outcome.REUSED),
        timed(2, "-b=on -c=on", -0.1),
    ]
    found = source("s", records).settings
    assert (row(found, "-a=on").live, row(found, "-b=on").live) == (0, 0)
    # All but one of a live group are inert, so that one is live.
    assert row(found, "-c=on").live == 1


def test_a_failure_is_blamed_on_what_was_in_no_build_that_worked() -> None:
    records = [BASELINE, timed(1, "-a=on", 0.0), failed(2, "-a=on -b=on"), failed(3, "-b=on")]
    found = source("s", records).settings
    assert row(found, "-a=on").failures == 0
    assert row(found, "-b=on").failures == 2


def test_a_loss_is_shared_out_by_what_each_loses_alone() -> None:
    records = [
        BASELINE,
        timed(1, "-a=on", 0.0, loss=1e-3),
        timed(2, "-a=on -b=on", 0.0, loss=1.1e-3),
        timed(3, "-a=on -c=on", 0.0, loss=1e-3),
    ]
    found = source("s", records).settings
    assert row(found, "-b=on").loss_log10 == pytest.approx(-4.0, abs=0.01)
    assert row(found, "-c=on").loss_log10 < -6
    assert row(found, "-b=on").loss_se > row(found, "-a=on").loss_se


def test_inaccurate_trials_tell_their_loss() -> None:
    records = [BASELINE, timed(1, "-a=on", 0.0, loss=0.5, bound=0.01)]
    found = source("s", records).settings
    assert row(found, "-a=on").timed == 0
    assert row(found, "-a=on").loss_log10 == pytest.approx(-0.3, abs=0.01)


def test_what_the_user_interrupted_says_nothing() -> None:
    records = [BASELINE, replace(failed(1, "-a=on"), failure="interrupted")]
    assert source("s", records).settings.empty


def test_knobs_known_to_be_inert_are_told_without_a_trial() -> None:
    found = source("s", singles({"-a=on": 0.1}), knobs=["-a", "-x"], inert=["-a", "-x"]).settings
    assert row(found, "-x=*").live == 0
    assert row(found, "-a=on").live == 1


def test_the_key_names_the_source_not_what_it_says() -> None:
    one = source("s", random_study({"-a=on": 0.1}, seed=0))
    later = source("s", random_study({"-a=on": 0.1}, seed=1))
    assert one.key == later.key
    assert one.key != source("t", [BASELINE]).key
    assert one.key != source("s", [BASELINE], model_sha256="0" * 64).key
