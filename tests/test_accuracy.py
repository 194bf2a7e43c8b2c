from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial import distance

from routewright import losses
from routewright.accuracy import (
    LOSSES,
    METRIC,
    NOT_IDENTICAL,
    VIOLATION_CAP,
    AccuracyBound,
    Comparison,
    Limits,
    OutputComparison,
    all_losses,
    compare_outputs,
    load_metric,
    parse_output_bound,
    parse_threshold,
    suggested_threshold,
    worst_of,
)
from routewright.errors import RoutewrightError, SettingsError
from routewright.losses import Tolerance
from routewright.tensors import EXACT_DTYPES, NUMPY_DTYPES, onnx_dtype

Array = np.ndarray[Any, Any]

FLOATS = sorted(set(NUMPY_DTYPES) - EXACT_DTYPES - {"complex64", "complex128"})
EXACT = sorted(EXACT_DTYPES - {"string"})


def f32(*values: float) -> Array:
    return np.array(values, dtype=np.float32)


def strings(*items: str) -> Array:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def compare_one(
    reference: Array, actual: Array, loss: str = "linf", **options: Any
) -> OutputComparison:
    bound = AccuracyBound(loss, 0.0, **options)
    return compare_outputs({"y": reference}, {"y": actual}, bound).outputs["y"]


def eligible(reference: Array, actual: Array, loss: str, threshold: float) -> bool:
    bound = AccuracyBound(loss, threshold)
    compared = compare_outputs({"y": reference}, {"y": actual}, bound)
    limits = bound.limits({"y": onnx_dtype(reference.dtype)})
    verdict = limits.judge(compared.losses, compared.reasons)
    assert verdict.eligible == (limits.violation(compared.losses) <= 0)
    return verdict.eligible


# Losses against an independent implementation: exact rational arithmetic and plain loops


def plain_losses(reference: Array, actual: Array, atol: float, rtol: float) -> dict[str, float]:
    r = [Fraction(float(item)) for item in reference.reshape(-1)]
    a = [Fraction(float(item)) for item in actual.reshape(-1)]
    count = len(r)
    gaps = [abs(x - y) for x, y in zip(a, r, strict=True)]
    allowed = [Fraction(atol) + Fraction(rtol) * abs(y) for y in r]
    dot = float(sum(x * y for x, y in zip(a, r, strict=True)))
    norms = math.sqrt(float(sum(x * x for x in a))) * math.sqrt(float(sum(y * y for y in r)))
    return {
        "l0": sum(gap > limit for gap, limit in zip(gaps, allowed, strict=True)) / count,
        "l1": float(sum(gaps) / count),
        "l2": float(sum(gap * gap for gap in gaps) / count),
        "linf": float(max(gaps)),
        "cos": (1.0 - dot / norms) if norms else (0.0 if not any(r + a) else 1.0),
    }


def pairs(low: float, high: float, dtype: Any = np.float32) -> st.SearchStrategy[Any]:
    values = st.floats(low, high, width=np.dtype(dtype).itemsize * 8).map(
        # Squares of these do not vanish in the plain implementation.
        lambda number: number if abs(number) > 1e-15 else 0.0
    )
    shapes = hnp.array_shapes(max_dims=3, max_side=5)
    return shapes.flatmap(
        lambda shape: st.tuples(
            hnp.arrays(dtype, shape, elements=values), hnp.arrays(dtype, shape, elements=values)
        )
    )


@settings(max_examples=150, deadline=None)
@given(pairs(-1000, 1000), st.sampled_from([0.0, 1e-5, 0.5]), st.sampled_from([0.0, 1e-3, 1.0]))
def test_losses_are_what_they_say(pair: tuple[Array, Array], atol: float, rtol: float) -> None:
    reference, actual = pair
    expected = plain_losses(reference, actual, atol, rtol)
    # Rounding may put an element that lies just on the border on either side.
    gaps = np.abs(actual.astype(float) - reference) - (
        atol + rtol * np.abs(reference.astype(float))
    )
    on_border = np.abs(gaps) < 1e-12 * (1 + np.abs(reference.astype(float)))
    for name, loss in LOSSES.items():
        got = loss(reference, actual, Tolerance(atol, rtol))
        if name == "l0" and on_border.any() and (atol or rtol):
            continue
        assert got == pytest.approx(expected[name], rel=1e-12, abs=1e-14), name


@settings(max_examples=60, deadline=None)
@given(pairs(-10, 10, np.float64))
def test_losses_agree_with_scipy(pair: tuple[Array, Array]) -> None:
    r, a = (side.reshape(-1) for side in pair)
    tolerance = Tolerance()
    assert losses.l1(r, a, tolerance) == pytest.approx(distance.cityblock(r, a) / r.size)
    assert losses.l2(r, a, tolerance) == pytest.approx(distance.sqeuclidean(r, a) / r.size)
    assert losses.linf(r, a, tolerance) == pytest.approx(distance.chebyshev(r, a))
    if np.linalg.norm(r) > 1e-6 and np.linalg.norm(a) > 1e-6:
        assert losses.cos(r, a, tolerance) == pytest.approx(distance.cosine(r, a), abs=1e-12)


def test_losses_by_hand() -> None:
    reference, actual = f32(1, 2, 0, -4), f32(1, 2.5, 0.25, -4)
    found = all_losses({"y": reference}, {"y": actual})["y"]
    assert found["l0"] == 0.5
    assert found["l1"] == 0.1875
    assert found["l2"] == pytest.approx((0.25 + 0.0625) / 4)
    assert found["linf"] == 0.5
    dot, norms = 1 + 5 + 16, math.sqrt(21) * math.sqrt(1 + 6.25 + 0.0625 + 16)
    assert found["cos"] == pytest.approx(1 - dot / norms)


def test_l0_uses_the_references_size_and_takes_in_the_border() -> None:
    tolerance = Tolerance(atol=0.5, rtol=0.25)
    assert losses.l0(f32(2.0), f32(3.0), tolerance) == 0.0
    assert losses.l0(f32(2.0), f32(3.0001), tolerance) == 1.0
    assert losses.l0(f32(0.0), f32(0.5), tolerance) == 0.0
    assert losses.l0(f32(0.0), f32(-0.51), tolerance) == 1.0
    assert losses.l0(f32(3.0), f32(2.0), Tolerance(0.0, 0.4)) == 0.0
    assert losses.l0(f32(2.0), f32(3.0), Tolerance(0.0, 0.4)) == 1.0


def test_cosine_of_special_vectors() -> None:
    tolerance = Tolerance()
    zero, x = f32(0, 0), f32(1, 2)
    assert losses.cos(zero, zero, tolerance) == 0.0
    assert losses.cos(zero, x, tolerance) == 1.0
    assert losses.cos(x, zero, tolerance) == 1.0
    assert losses.cos(x, x, tolerance) == 0.0
    assert losses.cos(x, -x, tolerance) == pytest.approx(2.0, rel=1e-15)
    assert losses.cos(x, f32(-2, 1), tolerance) == pytest.approx(1.0)
    assert losses.cos(x, 3 * x, tolerance) == pytest.approx(0.0, abs=1e-15)


def test_small_cosine_losses_keep_their_digits() -> None:
    reference = np.array([1.0, 0.0])
    actual = np.array([1.0, 1e-9])
    assert losses.cos(reference, actual, Tolerance()) == pytest.approx(5e-19, rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(pairs(-1e300, 1e300, np.float64))
def test_losses_are_symmetric_zero_for_equals_and_never_negative(
    pair: tuple[Array, Array],
) -> None:
    reference, actual = pair
    for name, loss in LOSSES.items():
        value = loss(reference, actual, Tolerance())
        assert value >= 0
        assert math.isfinite(value)
        assert loss(reference, reference.copy(), Tolerance()) == 0.0
        if name != "l0":
            mirrored = loss(actual, reference, Tolerance())
            assert value == pytest.approx(mirrored, rel=1e-12, abs=1e-15)
    if not np.array_equal(reference, actual):
        assert losses.linf(reference, actual, Tolerance()) > 0


@settings(max_examples=100, deadline=None)
@given(pairs(-100, 100), st.floats(1.5, 10))
def test_losses_grow_with_the_distance(pair: tuple[Array, Array], factor: float) -> None:
    reference = pair[0].astype(np.float64)
    step = pair[1].astype(np.float64)
    near, far = reference + step, reference + factor * step
    for name in ("l0", "l1", "l2", "linf"):
        loss = LOSSES[name]
        assert loss(reference, near, Tolerance()) <= loss(reference, far, Tolerance()) * (1 + 1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e308, 1e200, 1e-200, 5e-324])
def test_extreme_numbers_give_finite_losses_and_no_warnings(scale: float) -> None:
    reference = np.array([scale, -scale, 0.0, scale])
    actual = np.array([-scale, scale, scale, scale])
    found = all_losses({"y": reference}, {"y": actual})["y"]
    assert all(math.isfinite(value) and value > 0 for value in found.values())
    assert found["cos"] == pytest.approx(1 - (-1 / math.sqrt(3 * 4)), abs=1e-12)
    assert found["linf"] == max(min(2 * scale, sys.float_info.max), NOT_IDENTICAL)


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((7, 11, 5)).astype(np.float32)
    actual = reference + rng.standard_normal(reference.shape).astype(np.float32)
    reference[3, 4, 1] = actual[3, 4, 1] = np.nan
    whole = all_losses({"y": reference}, {"y": actual})["y"]
    monkeypatch.setattr(losses, "_BLOCK_ELEMENTS", 8)
    for name, value in all_losses({"y": reference}, {"y": actual})["y"].items():
        assert value == pytest.approx(whole[name], rel=1e-13)
    transposed = {"y": reference.transpose(2, 0, 1)}, {"y": actual.transpose(2, 0, 1)}
    for name, value in all_losses(*transposed)["y"].items():
        assert value == pytest.approx(whole[name], rel=1e-13)


# Element types


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_floating_type_is_compared_in_double_precision(dtype: str) -> None:
    held = NUMPY_DTYPES[dtype]
    reference = np.array([1, 2, 4, 1], dtype=np.float32).astype(held)
    actual = np.array([1, 4, 4, 1], dtype=np.float32).astype(held)
    found = all_losses({"y": reference}, {"y": actual})["y"]
    assert found["l0"] == 0.25
    assert found["l1"] == 0.5
    assert found["l2"] == 1.0
    assert found["linf"] == 2.0
    assert compare_one(reference, reference.copy()).loss == 0.0


def test_half_precision_differences_do_not_overflow() -> None:
    reference, actual = np.array([65504.0], np.float16), np.array([-65504.0], np.float16)
    assert compare_one(reference, actual).loss == 131008.0


def test_complex_numbers_by_absolute_difference() -> None:
    reference = np.array([1 + 1j, 2], np.complex64)
    actual = np.array([1 + 1j, 2 + 3j], np.complex64)
    found = all_losses({"y": reference}, {"y": actual})["y"]
    assert found["linf"] == 3.0
    assert found["l1"] == 1.5
    assert found["l0"] == 0.5
    assert found["cos"] == pytest.approx(1 - 6 / math.sqrt(6 * 15))
    bad = np.array([1 + 1j, complex(2, math.nan)], np.complex64)
    assert math.isinf(compare_one(reference, bad).loss)
    assert compare_one(bad, bad.copy()).loss == 0.0


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_integers_have_the_share_of_unequal_elements(dtype: str, loss: str) -> None:
    held = NUMPY_DTYPES[dtype]
    reference = np.array([[1, 0], [0, 1]]).astype(held)
    actual = np.array([[1, 1], [0, 1]]).astype(held)
    assert compare_one(reference, actual, loss).loss == 0.25
    assert compare_one(reference, reference.copy(), loss).loss == 0.0


def test_large_integers_are_compared_exactly() -> None:
    assert compare_one(np.array([2**62]), np.array([2**62 + 1])).loss == 1.0
    top = np.array([2**64 - 1], np.uint64)
    assert compare_one(top, top - np.uint64(1)).loss == 1.0


def test_strings_compare_however_they_are_held() -> None:
    reference = strings("a", "b", "c", "ü")
    assert compare_one(reference, np.array(["a", "b", "x", "ü"])).loss == 0.25
    assert compare_one(reference, np.array([b"a", b"b", b"c", "ü".encode()])).loss == 0.0
    broken = strings("a", "b", "c", "d")
    broken[1] = 3
    assert "not a string tensor" in str(compare_one(reference, broken).reason)


def test_types_must_agree() -> None:
    for left, right in itertools.combinations(
        [f32(1), f32(1).astype(np.float16), np.array([1]), np.array([True]), strings("1")], 2
    ):
        compared = compare_one(left, right)
        assert math.isinf(compared.loss)
        assert "element type" in str(compared.reason)
    unknown = np.array(["2020"], "M8[D]")
    assert "cannot be compared" in str(compare_one(unknown, unknown).reason)


def test_a_declared_type_allows_a_wider_reference() -> None:
    reference, actual = {"y": f32(1.0, 1e5)}, {"y": np.array([1.0, 60000], np.float16)}
    bound = AccuracyBound("linf", 0.0)
    half = compare_outputs(reference, actual, bound, dtypes={"y": "float16"}).outputs["y"]
    assert half.loss == 40000.0
    assert math.isinf(compare_outputs(reference, actual, bound).outputs["y"].loss)
    single = compare_outputs(reference, actual, bound, dtypes={"y": "float"}).outputs["y"]
    assert "is float16 where float is expected" in str(single.reason)
    equal = {"y": np.array([0.5, -0.0], np.float16)}
    wide = {"y": np.array([0.5, -0.0], np.float32)}
    same = compare_outputs(wide, equal, bound, dtypes={"y": "float16"}).outputs["y"]
    assert same.loss == 0.0
    unknown = compare_outputs(equal, equal, bound, dtypes={"y": "undefined"}).outputs["y"]
    assert unknown.loss == 0.0
    overflow = {"y": np.array([1.0, np.inf], np.float16)}
    lost = compare_outputs(reference, overflow, bound, dtypes={"y": "float16"}).outputs["y"]
    assert math.isinf(lost.loss)


# Shapes and names


@pytest.mark.parametrize(
    "shape", [(1, 2), (2, 1), (1,), (), (2, 2), (0,), (3,)], ids=lambda shape: str(shape)
)
def test_nothing_is_broadcast(shape: tuple[int, ...]) -> None:
    compared = compare_one(f32(1, 1), np.ones(shape, np.float32))
    assert math.isinf(compared.loss)
    assert "the reference's is [2]" in str(compared.reason)


@pytest.mark.parametrize("dtype", ["float", "int64", "string", "bfloat16", "complex64"])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_equal_empty_outputs_pass(dtype: str, loss: str) -> None:
    empty = np.zeros((1, 0), NUMPY_DTYPES[dtype])
    assert compare_one(empty, empty.copy(), loss).loss == 0.0
    assert math.isinf(compare_one(empty, np.zeros((0, 1), NUMPY_DTYPES[dtype]), loss).loss)


def test_scalars_are_compared() -> None:
    assert compare_one(np.float32(1).reshape(()), np.float32(3).reshape(())).loss == 2.0
    nan = np.array(np.nan, np.float32)
    assert compare_one(nan, nan.copy()).loss == 0.0
    assert math.isinf(compare_one(np.array(1, np.float32), nan).loss)


def test_outputs_must_be_the_same_ones() -> None:
    bound = AccuracyBound("l1", math.inf)
    compared = compare_outputs({"a": f32(1), "b": f32(1)}, {"b": f32(1), "c": f32(1)}, bound)
    assert compared.losses == {"a": math.inf, "b": 0.0, "c": math.inf}
    assert set(compared.reasons) == {"a", "c"}
    limits = bound.limits({"a": "float", "b": "float"})
    assert not limits.judge(compared.losses).eligible
    assert limits.violation(compared.losses) == VIOLATION_CAP
    assert limits.violation({"a": 0.0}) == VIOLATION_CAP
    assert limits.judge({"a": 0.0}).broken == ("output 'b' is missing",)


# NaN and infinity


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_of_its_own_are_never_eligible(loss: str, bad: float) -> None:
    reference, actual = f32(1, 2, 3), f32(1, bad, 3)
    compared = compare_one(reference, actual, loss)
    assert math.isinf(compared.loss)
    assert "1 of 3 elements are NaN or infinite" in str(compared.reason)
    assert "[1]" in str(compared.reason)
    for threshold in (0.0, 1.0, math.inf):
        assert not eligible(reference, actual, loss, threshold)
    assert "finite where the reference is" in str(compare_one(actual, reference, loss).reason)
    assert not eligible(actual, reference, loss, math.inf)


def test_nan_and_infinity_of_the_reference_are_left_out_and_counted() -> None:
    reference = f32(math.nan, math.inf, -math.inf, 1, 2)
    actual = f32(math.nan, math.inf, -math.inf, 1, 4)
    compared = compare_one(reference, actual, "l1")
    assert compared.loss == 1.0
    assert compared.same_non_finite == 3
    assert "3 elements are the same" in Comparison({"y": compared}).notes[0]
    assert compare_one(reference, reference.copy(), "cos").loss == 0.0
    only = f32(math.nan, math.inf)
    assert all(value == 0 for value in all_losses({"y": only}, {"y": only.copy()})["y"].values())


@pytest.mark.parametrize(
    ("expected", "given_value"),
    [(math.inf, -math.inf), (math.nan, math.inf), (math.inf, math.nan), (-math.inf, 1e30)],
)
def test_another_nan_or_infinity_is_a_difference(expected: float, given_value: float) -> None:
    assert math.isinf(compare_one(f32(0, expected), f32(0, given_value)).loss)


# Bounds of 0 and infinity


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_a_bound_of_zero_passes_identical_outputs_only(loss: str) -> None:
    reference = f32(1, -2, 3)
    assert eligible(reference, reference.copy(), loss, 0.0)
    for other in (reference * 2, np.nextafter(reference, f32(9, 9, 9)), f32(1, -2, 3 + 1e-6)):
        compared = compare_one(reference, other, loss)
        assert compared.loss >= NOT_IDENTICAL
        assert not eligible(reference, other, loss, 0.0)
    assert not eligible(f32(0.0), f32(-0.0), loss, 0.0)
    assert eligible(f32(0.0), f32(-0.0), loss, 1e-30)
    payloads = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert eligible(payloads, payloads[::-1].copy(), loss, 0.0)


def test_a_bound_of_zero_says_why() -> None:
    bound = AccuracyBound("l0", 0.0)
    compared = compare_outputs({"y": f32(1)}, {"y": f32(1.000001)}, bound)
    assert compared.losses == {"y": NOT_IDENTICAL}
    verdict = bound.limits({"y": "float"}).judge(compared.losses, compared.reasons)
    assert "not identical" in verdict.broken[0]


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_an_infinite_bound_passes_everything_finite(loss: str) -> None:
    assert eligible(f32(1, 2), f32(-1e30, 1e30), loss, math.inf)
    assert eligible(np.array([1e308]), np.array([-1e308]), loss, math.inf)
    assert eligible(np.array([1, 2]), np.array([3, 4]), loss, math.inf)
    assert not eligible(f32(1, 2), f32(1, math.nan), loss, math.inf)


# Limits, violations, verdicts


def test_exact_outputs_are_held_against_shares_only() -> None:
    dtypes = {"labels": "int64", "names": "string", "scores": "float", "odd": "undefined"}
    assert AccuracyBound("l0", 0.1).limits(dtypes).thresholds == dict.fromkeys(dtypes, 0.1)
    assert AccuracyBound("cos", 0.1).limits(dtypes).thresholds["labels"] == 0.1
    for loss in ("l1", "l2", "linf"):
        thresholds = AccuracyBound(loss, 12.0).limits(dtypes).thresholds
        assert thresholds == {"labels": 0.0, "names": 0.0, "scores": 12.0, "odd": 12.0}
    loose = AccuracyBound("linf", 12.0, per_output={"labels": 0.5}).limits(dtypes).thresholds
    assert loose["labels"] == 0.5
    assert loose["names"] == 0.0
    infinite = AccuracyBound("linf", math.inf).limits(dtypes).thresholds
    assert set(infinite.values()) == {math.inf}
    assert not eligible(np.array([1, 2]), np.array([1, 3]), "linf", 12.0)
    assert eligible(np.array([1, 2]), np.array([1, 3]), "l0", 0.5)


def test_a_bound_for_an_unknown_output_is_refused() -> None:
    bound = AccuracyBound("l1", 1.0, per_output={"scorez": 2.0})
    with pytest.raises(SettingsError, match="did you mean 'scores'"):
        bound.limits({"scores": "float"})


def test_violations() -> None:
    limits = Limits("l1", {"a": 0.5, "b": 0.0, "c": math.inf})
    assert limits.violation({"a": 0.5, "b": 0.0, "c": 7.0}) == 0.0
    assert limits.violation({"a": 1.0, "b": 0.0, "c": 7.0}) == 1.0
    assert limits.violation({"a": 0.25, "b": 0.125, "c": 7.0}) == 0.125
    assert limits.violation({"a": 0.0, "b": 0.0, "c": math.inf}) == VIOLATION_CAP
    assert limits.violation({"a": math.nan, "b": 0.0, "c": 0.0}) == VIOLATION_CAP
    assert limits.violation({"a": 1e300, "b": 1e300, "c": 0.0}) == VIOLATION_CAP
    assert Limits("l1", {"a": 0.5}).violation({"a": 0.0}) == -1.0
    assert Limits("l1", {"a": math.inf}).violation({"a": 1e308}) == -1.0
    assert Limits("l1", {"a": 5e-324}).violation({"a": 1.0}) == VIOLATION_CAP
    assert Limits("l1", {"a": 1.0}).violation({"a": -0.5}) == VIOLATION_CAP


def test_nothing_compared_is_nothing_passed() -> None:
    assert Limits("l1", {}).violation({}) == VIOLATION_CAP
    verdict = Limits("l1", {}).judge({})
    assert not verdict.eligible
    assert verdict.broken == ("no outputs were compared",)


def test_a_verdict_tells_the_worst_first() -> None:
    limits = Limits("cos", {"a": 0.1, "b": 0.1, "c": 0.1})
    verdict = limits.judge({"a": 0.2, "b": 0.4, "c": 0.0})
    assert not verdict.eligible
    assert verdict.violation == pytest.approx(3.0)
    assert verdict.worst == "b"
    assert verdict.broken == (
        "output 'b': cos 0.4 is above 0.1",
        "output 'a': cos 0.2 is above 0.1",
    )
    told = limits.judge({"a": 0.0, "b": math.inf, "c": 0.0}, {"b": "its shape is [1]"})
    assert told.broken == ("output 'b': cos inf is above 0.1: its shape is [1]",)
    fine = limits.judge({"a": 0.0, "b": 0.05, "c": 0.1})
    assert fine.eligible
    assert fine.worst == "c"
    assert fine.broken == ()


AMOUNTS = st.floats(0, allow_nan=False) | st.just(0.0) | st.just(math.inf) | st.floats(0, 2)


@settings(deadline=None)
@given(AMOUNTS | st.just(math.nan), AMOUNTS)
def test_eligible_means_finite_and_within_the_threshold(loss: float, threshold: float) -> None:
    limits = Limits("l1", {"y": threshold})
    violation = limits.violation({"y": loss})
    assert math.isfinite(violation)
    assert -1 <= violation <= VIOLATION_CAP
    expected = math.isfinite(loss) and loss <= threshold
    assert limits.judge({"y": loss}).eligible == expected
    assert (violation <= 0) == expected


@settings(deadline=None)
@given(st.floats(1e-300, 1e300), st.floats(0, 1e300), st.floats(0, 1e300))
def test_violations_grow_with_the_loss(threshold: float, first: float, second: float) -> None:
    assume(first <= second)
    limits = Limits("l1", {"y": threshold})
    assert limits.violation({"y": first}) <= limits.violation({"y": second})


def test_eligible_routes_shrink_with_the_bound() -> None:
    rng = np.random.default_rng(0)
    reference = rng.standard_normal(100).astype(np.float32)
    noise = rng.standard_normal(100).astype(np.float32)
    others = [reference + noise * np.float32(10.0**-power) for power in range(7)] + [reference]
    for loss in LOSSES:
        counts = [
            sum(eligible(reference, other, loss, threshold) for other in others)
            for threshold in (math.inf, 10.0, 1e-1, 1e-2, 1e-4, 1e-8, 0.0)
        ]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] == len(others)
        assert counts[-1] == 1


# Several samples


def test_the_worst_sample_counts() -> None:
    bound = AccuracyBound("linf", 1.0)
    reference = {"y": f32(1, 2), "z": np.array([1, 2])}
    compared = [
        compare_outputs(reference, actual, bound)
        for actual in (
            {"y": f32(1, 2.5), "z": np.array([1, 2])},
            {"y": f32(1, 2), "z": np.array([1, 3])},
            {"y": f32(1, math.nan), "z": np.array([1, 2])},
        )
    ]
    assert worst_of(compared[:2]).losses == {"y": 0.5, "z": 0.5}
    worst = worst_of(compared)
    assert worst.losses == {"y": math.inf, "z": 0.5}
    assert set(worst.reasons) == {"y"}
    assert worst_of([]).losses == {}


def test_counts_of_samples_are_added_up() -> None:
    nan = {"y": f32(math.nan, 1)}
    bound = AccuracyBound("l1", 0.0)
    compared = [compare_outputs(nan, {"y": f32(math.nan, 1)}, bound) for _ in range(3)]
    assert worst_of(compared).outputs["y"].same_non_finite == 3


# Settings


def test_bounds_are_normalized_and_survive_json() -> None:
    bound = AccuracyBound("lInf", math.inf, per_output={"b": 0, "a": math.inf}, atol=0, rtol=1)
    assert bound.loss == "linf"
    text = json.dumps(bound.to_dict(), allow_nan=False)
    assert AccuracyBound.from_dict(json.loads(text)) == bound
    assert list(bound.per_output) == ["a", "b"]
    metric = AccuracyBound(METRIC, 0.5, metric="m:f")
    assert AccuracyBound.from_dict(metric.to_dict()) == metric


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"loss": "cosine", "threshold": 1}, "did you mean 'cos'?"),
        ({"loss": "", "threshold": 1}, "known: 'l0'"),
        ({"loss": "l1", "threshold": math.nan}, "must be a number from 0 on"),
        ({"loss": "l1", "threshold": -1e-9}, "must be a number from 0 on"),
        ({"loss": "l1", "threshold": -math.inf}, "must be a number from 0 on"),
        ({"loss": "l1", "threshold": True}, "must be a number from 0 on"),
        ({"loss": "l1", "threshold": None}, "must be a number from 0 on"),
        ({"loss": "l1", "threshold": "much"}, "must be a number from 0 on"),
        ({"loss": "l1", "threshold": 1, "per_output": {"y": math.nan}}, "output 'y' is nan"),
        ({"loss": "l0", "threshold": 1, "atol": -1}, "atol is -1"),
        ({"loss": "l0", "threshold": 1, "rtol": math.inf}, "rtol must be a finite number"),
        ({"loss": "metric", "threshold": 1}, "go together"),
        ({"loss": "l1", "threshold": 1, "metric": "m:f"}, "go together"),
        (
            {"loss": "metric", "threshold": 1, "metric": "m:f", "per_output": {"y": 1}},
            "leave them out",
        ),
        ({"loss": "l1"}, "needs 'threshold'"),
        ({"loss": "l1", "treshold": 1}, "did you mean 'threshold'?"),
    ],
)
def test_bounds_that_mean_nothing(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError) as error:
        AccuracyBound.from_dict(options)
    assert reason in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_thresholds_as_text() -> None:
    assert parse_threshold("1e-3") == 1e-3
    assert parse_threshold(" 0 ") == 0.0
    assert parse_threshold("inf") == math.inf
    assert parse_output_bound("a=b=1e-3") == ("a=b", 1e-3)
    for text in ("", "x", "-1", "nan", "1,5"):
        with pytest.raises(SettingsError):
            parse_threshold(text)
    for text in ("", "y", "y=", "=1", "y=nan"):
        with pytest.raises(SettingsError):
            parse_output_bound(text)


@settings(deadline=None)
@given(st.text())
def test_arbitrary_text_gives_a_bound_or_an_error(text: str) -> None:
    for parse in (parse_threshold, parse_output_bound, lambda text: AccuracyBound(text, 1.0)):
        try:
            parse(text)  # type: ignore[operator]
        except RoutewrightError as error:
            message = str(error)
        else:
            message = "fine"
        assert len(message.splitlines()) == 1


@settings(deadline=None)
@given(st.floats(0, 1e299))
def test_a_suggested_threshold_lets_the_loss_pass_without_much_room(loss: float) -> None:
    suggested = suggested_threshold(loss)
    assert suggested is not None
    assert suggested >= loss
    assert suggested <= max(loss * 2.5 * (1 + 1e-9), 1e-12)


def test_suggested_thresholds_are_round() -> None:
    assert suggested_threshold(0.0) == 0.0
    assert suggested_threshold(0.00314) == 0.005
    assert suggested_threshold(0.001) == 0.001
    assert suggested_threshold(7.0) == 10.0
    assert suggested_threshold(NOT_IDENTICAL) == 1e-12
    assert suggested_threshold(math.inf) is None
    assert suggested_threshold(math.nan) is None


# The user's metric


@pytest.fixture
def metric_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[str], str]:
    """Write a module into the current directory and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = itertools.count()

    def write(body: str) -> str:
        name = f"metric_{abs(hash(request.node.nodeid))}_{next(names)}"
        (tmp_path / f"{name}.py").write_text(body)
        return name

    return write


def by_metric(target: str, reference: dict[str, Array], actual: dict[str, Array]) -> Any:
    bound = AccuracyBound(METRIC, 1.0, metric=target)
    compared = compare_outputs(reference, actual, bound)
    assert set(compared.outputs) == {METRIC}
    limits = bound.limits(dict.fromkeys(reference, "float"))
    assert limits.thresholds == {METRIC: 1.0}
    return compared.outputs[METRIC]


def test_a_metric_gets_both_and_gives_one_loss(metric_module: Callable[[str], str]) -> None:
    name = metric_module(
        "import numpy as np\n"
        "def worst(reference, actual):\n"
        "    return max(np.abs(reference[n] - actual[n]).max() for n in reference)\n"
        "class Deep:\n"
        "    inner = staticmethod(worst)\n"
    )
    reference = {"a": f32(1, 2), "b": f32(5)}
    actual = {"a": f32(1, 2.25), "b": f32(4.5)}
    assert by_metric(f"{name}:worst", reference, actual).loss == 0.5
    assert by_metric(f"{name}:Deep.inner", reference, actual).loss == 0.5
    assert by_metric(f"{name}:worst", reference, reference).loss == 0.0


@pytest.mark.parametrize(
    ("answer", "loss"),
    [
        ("0", 0.0),
        ("2.5", 2.5),
        ("__import__('numpy').float32(0.5)", 0.5),
        ("__import__('numpy').array(0.5)", 0.5),
        ("__import__('fractions').Fraction(1, 4)", 0.25),
        ("float('nan')", "returned nan"),
        ("float('inf')", "returned inf"),
        ("-0.1", "returned -0.1"),
        ("None", "returned NoneType"),
        ("True", "returned bool"),
        ("__import__('numpy').bool_(True)", "returned bool"),
        ("'0.1'", "returned str"),
        ("1j", "returned complex"),
        ("__import__('numpy').ones(1)", "returned ndarray"),
        ("10 ** 400", "returned int"),
        ("1 / 0", "raised ZeroDivisionError: division by zero"),
        ("exit(3)", "raised SystemExit: 3"),
        ("reference['y'].fill(0)", "raised ValueError"),
        ("actual['y'].fill(0)", "raised ValueError"),
    ],
)
def test_answers_of_metrics(
    answer: str, loss: float | str, metric_module: Callable[[str], str]
) -> None:
    name = metric_module(f"def f(reference, actual):\n    return {answer}\n")
    reference = {"y": f32(1, 2)}
    found = by_metric(f"{name}:f", reference, {"y": f32(1, 2)})
    if isinstance(loss, str):
        assert math.isinf(found.loss)
        assert loss in found.reason
        assert f"{name}:f" in found.reason
    else:
        assert found.loss == loss
        assert found.reason is None
    assert reference["y"].flags.writeable


def test_no_metric_lifts_the_veto_on_nan_type_or_name(metric_module: Callable[[str], str]) -> None:
    target = metric_module("def f(reference, actual):\n    return 0.0\n") + ":f"
    good = {"y": f32(1, 2)}
    for bad in (
        {"y": f32(1, math.nan)},
        {"y": f32(1, 2, math.inf)},
        {"y": np.array([1.0, 2.0])},
        {"z": f32(1, 2)},
        {},
        {"y": f32(1, 2), "z": f32(1)},
    ):
        found = by_metric(target, good, bad)
        assert math.isinf(found.loss)
        assert found.reason.startswith("output '")
    assert by_metric(target, good, {"y": f32(1, 2, 3)}).loss == 0.0
    assert by_metric(target, {"y": f32(math.nan)}, {"y": f32(1, math.nan)}).loss == 0.0
    assert by_metric(target, {"y": np.array([1])}, {"y": np.array([1, 2])}).loss == 0.0
    same = by_metric(target, {"y": f32(math.nan, 1)}, {"y": f32(math.nan, 1)})
    assert same.same_non_finite == 1


@pytest.mark.parametrize(
    ("body", "attribute", "reason"),
    [
        ("f = 3\n", "f", "it is not a function"),
        ("", "f", "has no f"),
        ("import absent_package_xyz\n", "f", "No module named 'absent_package_xyz'"),
        ("def f(:\n", "f", "SyntaxError"),
        ("raise RuntimeError('boom\\nboom')\n", "f", "RuntimeError: boom boom"),
        ("import sys\nsys.exit('bye')\n", "f", "SystemExit: bye"),
    ],
)
def test_metrics_that_cannot_be_loaded(
    body: str, attribute: str, reason: str, metric_module: Callable[[str], str]
) -> None:
    name = metric_module(body)
    with pytest.raises(SettingsError) as error:
        load_metric(f"{name}:{attribute}")
    assert reason in str(error.value)
    assert f"{name}:{attribute}" in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "m", ":f", "m:", "m.py:f", "m:f()", "a b:f", "m:f:g", "../m:f"]
)
def test_malformed_metrics(text: str) -> None:
    with pytest.raises(SettingsError):
        load_metric(text)


def test_the_current_directory_hides_nothing_later(
    metric_module: Callable[[str], str], tmp_path: Path
) -> None:
    name = metric_module("def f(reference, actual):\n    return 0.0\n")
    before = list(sys.path)
    load_metric(f"{name}:f")
    assert sys.path == [*before, str(tmp_path)]
    load_metric(f"{metric_module('def f(r, a): return 0.0')}:f")
    assert sys.path == [*before, str(tmp_path)]
