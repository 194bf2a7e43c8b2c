from __future__ import annotations

from typing import Any

import pytest

from routewright.backends.tensorrt.profiles import NetworkInput, plan_profiles
from routewright.errors import ModelError

IMAGE = NetworkInput("image", None, (-1, 3, -1, 320), decides_shapes=False)
FIXED = NetworkInput("fixed", None, (2, 4), decides_shapes=False)
SIZES = NetworkInput("sizes", None, (2,), decides_shapes=True)


def plan(*inputs: NetworkInput, **given: Any) -> Any:
    settings: dict[str, Any] = {"shapes": {}, "profiles": (), "shape_values": {}, **given}
    return plan_profiles(inputs, **settings)


def test_without_profiles_there_is_one_at_the_timed_shapes() -> None:
    made = plan(IMAGE, FIXED, shapes={"image": (1, 3, 64, 320)})
    exact = (1, 3, 64, 320)
    assert made.profiles == ({"image": (exact, exact, exact)},)
    assert made.shapes == {"image": exact, "fixed": (2, 4)}


def test_fixed_networks_have_no_profiles() -> None:
    assert plan(FIXED).profiles == ()


def test_without_shapes_the_optimum_is_timed() -> None:
    profile = {"image": ((1, 3, 32, 320), (2, 3, 64, 320), (4, 3, 128, 320))}
    assert plan(IMAGE, profiles=(profile,)).shapes["image"] == (2, 3, 64, 320)


def test_timed_shapes_may_lie_in_any_profile() -> None:
    small = {"image": ((1, 3, 32, 320), (1, 3, 32, 320), (1, 3, 64, 320))}
    large = {"image": ((2, 3, 32, 320), (8, 3, 64, 320), (16, 3, 64, 320))}
    made = plan(IMAGE, profiles=(small, large), shapes={"image": (9, 3, 64, 320)})
    assert len(made.profiles) == 2


def test_profiles_may_name_fixed_inputs_too() -> None:
    low, high = (1, 3, 32, 320), (4, 3, 32, 320)
    profile = {"image": (low, low, high), "fixed": ((2, 4), (2, 4), (2, 4))}
    assert set(plan(IMAGE, FIXED, profiles=(profile,)).profiles[0]) == {"image"}


def test_values_that_decide_shapes() -> None:
    given = ((1, 1), (4, 6), (24, 24))
    made = plan(SIZES, shape_values={"sizes": given})
    assert made.profiles == ({"sizes": given},)
    assert made.shapes == {"sizes": (2,)}


@pytest.mark.parametrize(
    ("inputs", "given", "part"),
    [
        ((IMAGE,), {}, "--shape image:?x3x?x320"),
        ((IMAGE,), {"shapes": {"imgae": (1, 3, 1, 320)}}, "did you mean 'image'"),
        ((IMAGE,), {"shapes": {"image": (1, 3, 1)}}, "has 3 axes"),
        ((IMAGE,), {"shapes": {"image": (1, 4, 1, 320)}}, "axis 1 is fixed at 3"),
        ((FIXED,), {"shapes": {"fixed": (2, 5)}}, "axis 1 is fixed at 4"),
        (
            (IMAGE,),
            {"profiles": ({"image": ((2, 3, 1, 320), (1, 3, 1, 320), (4, 3, 1, 320))},)},
            "min <= opt <= max",
        ),
        (
            (IMAGE,),
            {
                "profiles": ({"image": ((1, 3, 1, 320), (1, 3, 1, 320), (4, 3, 1, 320))},),
                "shapes": {"image": (5, 3, 1, 320)},
            },
            "5x3x1x320 is outside the profile 1x3x1x320 to 4x3x1x320",
        ),
        ((SIZES,), {}, "decide shapes"),
        ((SIZES,), {"shape_values": {"sizes": ((1,), (1,), (1,))}}, "by 2 values, not 1"),
        ((FIXED,), {"shape_values": {"sizes": ((1,), (1,), (1,))}}, "no input 'sizes'"),
    ],
)
def test_what_is_refused(inputs: Any, given: dict[str, Any], part: str) -> None:
    with pytest.raises(ModelError) as caught:
        plan(*inputs, **given)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
