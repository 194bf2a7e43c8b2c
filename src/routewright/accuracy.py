"""How far an engine's outputs may be from the reference, and whether they are.

The rules, in one place:

* Outputs must have the reference's names, shapes (nothing is broadcast) and element types.
* Floating-point and complex outputs have the loss that the bound names. Elements that are the
  same NaN or infinity in both are left out and counted. Any other NaN or infinity makes the loss
  infinite.
* Integer, boolean and string outputs have the share of unequal elements as their loss, whatever
  loss is named. It is held against the bound's threshold where that is a share or a ratio as well
  (l0, cos), and must be 0 where the threshold is in the output's own units (l1, l2, linf). A
  bound for that very output goes before this.
* A loss is 0 only where the outputs are bit for bit identical, so that is what a threshold of 0
  asks for. Outputs that differ have at least :data:`routewright.bounds.NOT_IDENTICAL`, just above
  0, also where the formula gives 0 (within l0's tolerance, say).
* An infinite threshold allows every finite loss. An infinite loss is never allowed.
* The user's metric replaces all losses by one, over all outputs. Names, element types, NaN and
  infinity are checked as above; shapes are the metric's affair, and so is what 0 means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from routewright.bounds import (
    METRIC,
    NOT_IDENTICAL,
    VIOLATION_CAP,
    AccuracyBound,
    Limits,
    Verdict,
    parse_output_bound,
    parse_threshold,
    suggested_threshold,
)
from routewright.losses import (
    LOSSES,
    Loss,
    NonFinite,
    Tolerance,
    identical,
    non_finite,
    unequal_share,
)
from routewright.metrics import call_metric, load_metric
from routewright.tensors import (
    EXACT_DTYPES,
    NUMPY_DTYPES,
    Array,
    describe_shape,
    is_wider_float,
    onnx_dtype,
)

__all__ = [
    "LOSSES",
    "METRIC",
    "NOT_IDENTICAL",
    "VIOLATION_CAP",
    "AccuracyBound",
    "Comparison",
    "Limits",
    "OutputComparison",
    "Verdict",
    "all_losses",
    "compare_outputs",
    "load_metric",
    "parse_output_bound",
    "parse_threshold",
    "suggested_threshold",
    "worst_of",
]


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """One output against its reference.

    Attributes:
        loss: 0 where identical; infinity where not comparable.
        reason: Why it is not comparable, None where it is.
        same_non_finite: How many elements are the same NaN or infinity in both.
    """

    loss: float
    reason: str | None = None
    same_non_finite: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """All outputs of one sample, or the worst of several, against their references.

    Attributes:
        outputs: By output name; by ``"metric"`` where the user's metric decides.
    """

    outputs: Mapping[str, OutputComparison]

    @property
    def losses(self) -> dict[str, float]:
        """Loss by output name."""
        return {name: output.loss for name, output in self.outputs.items()}

    @property
    def reasons(self) -> dict[str, str]:
        """Why an output is not comparable, by output name, for those that are not."""
        return {
            name: output.reason
            for name, output in self.outputs.items()
            if output.reason is not None
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of the losses, one line each."""
        notes = []
        for name, output in self.outputs.items():
            if output.same_non_finite:
                where = "outputs" if name == METRIC else f"output {name!r}"
                notes.append(
                    f"{where}: {output.same_non_finite} elements are the same NaN or infinity as "
                    "in the reference and were left out"
                )
        return tuple(notes)


def compare_outputs(
    reference: Mapping[str, Array],
    actual: Mapping[str, Array],
    bound: AccuracyBound,
    *,
    dtypes: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare one sample's outputs by the rules at the head of this module.

    Args:
        reference: Reference outputs by name.
        actual: The engine's outputs by name.
        bound: Which loss, with which tolerances. Its thresholds play no part here.
        dtypes: Declared ONNX element type by output name. With it, an output must be of its
            declared type and the reference may be of a wider floating-point type; without it,
            both must be of one type.

    Raises:
        SettingsError: The user's metric cannot be loaded.
    """
    if bound.metric is not None:
        return _compare_by_metric(reference, actual, bound.metric, dtypes or {})
    loss = LOSSES[bound.loss]
    outputs = {
        name: _compare(reference.get(name), actual.get(name), loss, bound.tolerance, declared)
        for name, declared in _declared(reference, actual, dtypes)
    }
    return Comparison(outputs)


def worst_of(comparisons: Iterable[Comparison]) -> Comparison:
    """Return the worst comparison of each output; the counts are added up."""
    worst: dict[str, OutputComparison] = {}
    for comparison in comparisons:
        for name, output in comparison.outputs.items():
            known = worst.get(name, output)
            shown = known if known.loss >= output.loss else output
            same = output.same_non_finite + (known.same_non_finite if name in worst else 0)
            worst[name] = OutputComparison(shown.loss, shown.reason, same)
    return Comparison(worst)


def all_losses(
    reference: Mapping[str, Array],
    actual: Mapping[str, Array],
    *,
    tolerance: Tolerance | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> dict[str, dict[str, float]]:
    """Return every loss of every output, by output and loss name; infinite if not comparable."""
    tolerance = tolerance or Tolerance()
    return {
        name: {
            loss_name: _compare(
                reference.get(name), actual.get(name), loss, tolerance, declared
            ).loss
            for loss_name, loss in LOSSES.items()
        }
        for name, declared in _declared(reference, actual, dtypes)
    }


def _declared(
    reference: Mapping[str, Array],
    actual: Mapping[str, Array],
    dtypes: Mapping[str, str] | None,
) -> list[tuple[str, str | None]]:
    dtypes = dtypes or {}
    return [(name, dtypes.get(name)) for name in sorted({*reference, *actual})]


def _compare(
    reference: Array | None,
    actual: Array | None,
    loss: Loss,
    tolerance: Tolerance,
    declared: str | None,
) -> OutputComparison:
    reason = _type_mismatch(reference, actual, declared)
    if reason is not None or reference is None or actual is None:
        return OutputComparison(math.inf, reason)
    if reference.shape != actual.shape:
        return OutputComparison(
            math.inf,
            f"its shape is {describe_shape(actual.shape)}, the reference's is "
            f"{describe_shape(reference.shape)}",
        )
    if onnx_dtype(reference.dtype) in EXACT_DTYPES:
        try:
            return OutputComparison(unequal_share(reference, actual))
        except ValueError as error:
            return OutputComparison(math.inf, f"it is not a string tensor: {error}")
    found = non_finite(reference, actual)
    reason = _non_finite_reason(found, reference.size)
    if reason is not None:
        return OutputComparison(math.inf, reason, found.same)
    if identical(reference, actual):
        return OutputComparison(0.0, None, found.same)
    value = loss(reference, actual, tolerance)
    return OutputComparison(max(value, NOT_IDENTICAL), None, found.same)


def _type_mismatch(
    reference: Array | None, actual: Array | None, declared: str | None
) -> str | None:
    """Return why the two cannot be compared: one is missing, or their types do not fit."""
    if actual is None:
        return "the engine did not return it"
    if reference is None:
        return "the reference does not have it"
    given, expected = onnx_dtype(actual.dtype), onnx_dtype(reference.dtype)
    if declared in NUMPY_DTYPES and given == declared and is_wider_float(expected, given):
        return None
    wanted = declared if declared in NUMPY_DTYPES else expected
    if given != wanted:
        return f"its element type is {given} where {wanted} is expected"
    if given != expected:
        return f"its element type is {given}, the reference's is {expected}"
    if given not in NUMPY_DTYPES:
        return f"its element type {given} cannot be compared"
    return None


def _non_finite_reason(found: NonFinite, size: int) -> str | None:
    """Return where and how often NaN and infinity differ; None where they do not."""
    if found.first is None:
        return None
    where = f"first at index {list(found.first)}"
    if found.only_actual:
        return (
            f"{found.only_actual} of {size} elements are NaN or infinite where the reference is "
            f"not so, {where}"
        )
    return (
        f"{found.only_reference} of {size} elements are finite where the reference is NaN or "
        f"infinite, {where}"
    )


def _compare_by_metric(
    reference: Mapping[str, Array],
    actual: Mapping[str, Array],
    metric: str,
    dtypes: Mapping[str, str],
) -> Comparison:
    same_non_finite = 0
    for name, declared in _declared(reference, actual, dtypes):
        expected, given = reference.get(name), actual.get(name)
        reason = _type_mismatch(expected, given, declared)
        if reason is None and expected is not None and given is not None:
            reason, same = _metric_gate(expected, given)
            same_non_finite += same
        if reason is not None:
            return Comparison({METRIC: OutputComparison(math.inf, f"output {name!r}: {reason}")})
    loss, reason = call_metric(metric, reference, actual)
    return Comparison({METRIC: OutputComparison(loss, reason, same_non_finite)})


def _metric_gate(reference: Array, actual: Array) -> tuple[str | None, int]:
    """Return the veto on NaN and infinity that no metric can lift, and how many are shared."""
    if onnx_dtype(reference.dtype) in EXACT_DTYPES:
        return None, 0
    if reference.shape == actual.shape:
        found = non_finite(reference, actual)
        return _non_finite_reason(found, reference.size), found.same
    # Places cannot be compared here: what the reference has none of may not occur at all.
    clean = non_finite(reference, reference).same == 0
    bad = non_finite(actual, actual).same
    if clean and bad:
        return f"{bad} elements are NaN or infinite and none of the reference's are", 0
    return None, 0
