"""Will a route meet the bound?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from seen_routes import DATABASE, ENCODING, seen

from routewright.records import WORST_VIOLATION
from routewright.routes import Route
from routewright.search.observations import Observation
from routewright.search.surrogate.feasibility import (
    PRODUCTS,
    SUMS,
    Accuracy,
    LossScale,
)


def chance(accuracy: Accuracy, *texts: str) -> list[float]:
    rows = ENCODING.encode_all([Route.parse(text, DATABASE) for text in texts])
    return accuracy.probability(rows).tolist()


@pytest.mark.parametrize("scale", [SUMS, PRODUCTS])
def test_the_bound_lies_where_the_loss_equals_the_threshold(scale: LossScale) -> None:
    assert scale.of(0.0) == pytest.approx(scale.limit)
    assert scale.of(-1.0) < scale.of(-0.5) < scale.limit < scale.of(0.1)
    assert scale.of(WORST_VIOLATION) == scale.of(1e4)


def of_blocks(losses: Sequence[float], join: Callable[[list[float]], float]) -> list[Observation]:
    """Blocks 0 to 3 alone, and three pairs of them; a start with a tenth of the allowed loss."""
    groups = [(), (0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3)]
    return [
        seen(
            " ".join(f"-k{i}=off" for i in group),
            join([losses[i] for i in group]) - 1.0,
        )
        for group in groups
    ]


def test_it_learns_whether_losses_add_up_or_multiply() -> None:
    added = of_blocks([0.15, 0.2, 0.15, 0.2], lambda each: 0.1 + sum(each))
    multiplied = of_blocks([2.5, 3.0, 2.5, 3.0], lambda each: 0.1 * math.prod(each))
    four = "-k0=off -k1=off -k2=off -k3=off"
    assert chance(Accuracy(ENCODING, added), four)[0] > 0.3  # 0.8 of what is allowed
    assert chance(Accuracy(ENCODING, multiplied), four)[0] < 0.1  # 5.6 times that


def test_losses_near_the_bound_say_more_than_pass_and_fail() -> None:
    # Two changes pass alone, with half and with a hundredth of the allowed loss each.
    near = [seen(""), seen("-k0=off", -0.4), seen("-k1=off", -0.4)]
    far = [seen(""), seen("-k0=off", -0.95), seen("-k1=off", -0.95)]
    both = "-k0=off -k1=off"
    assert chance(Accuracy(ENCODING, near), both)[0] < 0.5
    assert chance(Accuracy(ENCODING, far), both)[0] > 0.8


def test_what_broke_the_bound_is_expected_to_break_it_again() -> None:
    observations = [seen(""), seen("-k0=off", 5.0), seen("-k1=off", -0.9)]
    lossy, harmless = chance(
        Accuracy(ENCODING, observations), "-k0=off -k2=off", "-k1=off -k2=off"
    )
    assert lossy < 0.2
    assert harmless > 0.6


def test_without_any_loss_every_route_is_expected_to_pass() -> None:
    accuracy = Accuracy(ENCODING, [seen("", -1.0), seen("-k0=off", -1.0)])
    assert chance(accuracy, "-k0=off -k1=off") == [1.0]
    assert accuracy.model is None


def test_a_threshold_of_zero_is_pass_or_fail() -> None:
    observations = [seen("", 0.0), seen("-k0=off", 1e-7), seen("-k1=off", 0.0)]
    lossy, exact = chance(Accuracy(ENCODING, observations), "-k0=off", "-k1=off")
    assert lossy < 0.1
    assert exact > 0.9
