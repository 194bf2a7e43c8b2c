"""Expected seconds of a trial."""

from __future__ import annotations

import numpy as np
import pytest

from routewright.knobs import Knob, KnobDatabase
from routewright.routes import Route
from routewright.search.observations import Observation
from routewright.search.surrogate.cost import Cost
from routewright.search.surrogate.encoding import Encoding
from routewright.space import SearchSpace

DATABASE = KnobDatabase("test", tuple(Knob.of(f"-k{i}", "[on|off]", "on") for i in range(4)))
ENCODING = Encoding(SearchSpace.whole(DATABASE))


def trial(text: str, build_s: float, use_s: float, *, timed: bool = True) -> Observation:
    return Observation(
        text=text,
        route=Route.parse(text, DATABASE),
        log_ratio=0.0 if timed else None,
        sd=0.01,
        violation=-1.0 if timed else 1.0,
        is_checked=True,
        failed=False,
        fingerprint=None,
        is_measured=True,
        is_slow=False,
        build_s=build_s,
        use_s=use_s,
    )


HISTORY = [
    *(trial(f"-k{i}=off", 10.0, 20.0) for i in (1, 2)),
    *(trial("-k0=off", 60.0, 20.0), trial("-k0=off -k1=off", 60.0, 20.0)),
    *(trial("", 10.0, 20.0), trial("-k3=off", 10.0, 2.0, timed=False)),
]


def seconds(text: str, eligible: float = 1.0, builds: float = 1.0) -> float:
    rows = ENCODING.encode_all([Route.parse(text, DATABASE)])
    cost = Cost(ENCODING, HISTORY)
    return float(cost.seconds(rows, np.array([eligible]), np.array([builds]))[0])


def test_slow_builds_are_learned_by_change() -> None:
    assert seconds("-k0=off -k2=off") > 2 * seconds("-k1=off -k2=off") - 20


def test_what_is_not_eligible_is_not_timed() -> None:
    assert seconds("", 1.0) - seconds("", 0.0) == pytest.approx(18.0)


def test_what_does_not_build_is_not_checked() -> None:
    assert seconds("", 1.0, 1.0) - seconds("", 1.0, 0.0) == pytest.approx(20.0)


def test_without_trials_every_route_costs_the_same() -> None:
    rows = ENCODING.encode_all([Route(), Route.parse("-k0=off", DATABASE)])
    first, second = Cost(ENCODING, []).seconds(rows, np.ones(2), np.ones(2))
    assert first == second > 0
