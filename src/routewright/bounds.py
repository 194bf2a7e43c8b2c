"""The accuracy bound that a user sets, and losses judged by it.

The rules that losses follow are at the head of :mod:`routewright.accuracy`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from routewright.errors import SettingsError
from routewright.losses import DEFAULT_TOLERANCE, LOSSES, Tolerance
from routewright.tensors import EXACT_DTYPES, did_you_mean

METRIC = "metric"
"""The loss name, and the output name in reports, where the user's metric decides."""

NOT_IDENTICAL = sys.float_info.min
"""The least loss of outputs that are not identical, whatever their loss formula gives."""

VIOLATION_CAP = 1e6
"""The violation of whatever cannot be compared, and the largest there is."""

_LEAST_SUGGESTED = 1e-12
_SHARE_LIKE = {"l0", "cos"}


@dataclass(frozen=True, slots=True)
class AccuracyBound:
    """The largest loss allowed.

    Attributes:
        loss: Name in :data:`LOSSES`, in any case, or ``"metric"``.
        threshold: Largest loss allowed; 0 asks for identical outputs, infinity for finite ones.
        per_output: Thresholds that differ, by output name.
        atol: Absolute tolerance of l0.
        rtol: Relative tolerance of l0.
        metric: The user's function as ``package.module:function``; goes with ``"metric"``.

    Raises:
        SettingsError: The loss is unknown, a number is NaN or negative, or options contradict
            each other.
    """

    loss: str
    threshold: float
    per_output: Mapping[str, float] = field(default_factory=dict)
    atol: float = DEFAULT_TOLERANCE
    rtol: float = DEFAULT_TOLERANCE
    metric: str | None = None

    def __post_init__(self) -> None:
        loss = str(self.loss).lower()
        if loss != METRIC and loss not in LOSSES:
            raise SettingsError(
                f"there is no loss {self.loss!r}; {did_you_mean(loss, [*LOSSES, METRIC])}"
            )
        if (loss == METRIC) != (self.metric is not None):
            raise SettingsError(
                f"the loss {METRIC!r} and a metric package.module:function go together; "
                f"given: loss {self.loss!r}, metric {self.metric!r}"
            )
        if self.metric is not None and not all(self.metric.partition(":")):
            raise SettingsError(
                f"{self.metric!r} is not a metric; write package.module:function, for example "
                "my_metrics:top1_loss"
            )
        if self.metric is not None and self.per_output:
            raise SettingsError(
                "a metric gives one loss over all outputs, so bounds for single outputs do not "
                "go with it; leave them out"
            )
        object.__setattr__(self, "loss", loss)
        object.__setattr__(self, "threshold", _checked_threshold(self.threshold, "the bound"))
        per_output = {
            name: _checked_threshold(value, f"the bound of output {name!r}")
            for name, value in self.per_output.items()
        }
        object.__setattr__(self, "per_output", dict(sorted(per_output.items())))
        for name in ("atol", "rtol"):
            value = _checked_threshold(getattr(self, name), name)
            if math.isinf(value):
                raise SettingsError(f"{name} must be a finite number, not {value}")
            object.__setattr__(self, name, value)

    @property
    def tolerance(self) -> Tolerance:
        """What l0 calls equal."""
        return Tolerance(self.atol, self.rtol)

    def limits(self, dtypes: Mapping[str, str]) -> Limits:
        """Return the threshold of every output; this is what losses are judged by.

        Args:
            dtypes: ONNX element type by output name, for all outputs; best that of the reference
                outputs, as a model need not declare any.

        Raises:
            SettingsError: There is a bound for an output that does not exist.
        """
        if self.metric is not None:
            return Limits(METRIC, {METRIC: self.threshold})
        for name in self.per_output:
            if name not in dtypes:
                raise SettingsError(
                    f"there is a bound for the output {name!r}, which the model does not have; "
                    f"{did_you_mean(name, dtypes)}"
                )
        return Limits(
            self.loss,
            {
                name: self.per_output.get(name, self._default_threshold(dtypes[name]))
                for name in dtypes
            },
        )

    def _default_threshold(self, dtype: str) -> float:
        if dtype in EXACT_DTYPES and self.loss not in _SHARE_LIKE and self.threshold < math.inf:
            return 0.0
        return self.threshold

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that any JSON reader takes; infinity is ``"inf"``."""
        return {
            "loss": self.loss,
            "threshold": _json_number(self.threshold),
            "per_output": {name: _json_number(value) for name, value in self.per_output.items()},
            "atol": self.atol,
            "rtol": self.rtol,
            "metric": self.metric,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AccuracyBound:
        """Return the bound that :meth:`to_dict` described.

        Raises:
            SettingsError: The data describes no bound.
        """
        known = [entry.name for entry in fields(cls)]
        for key in data:
            if key not in known:
                raise SettingsError(
                    f"an accuracy bound has no {key!r}; {did_you_mean(str(key), known)}"
                )
        for key in ("loss", "threshold"):
            if key not in data:
                raise SettingsError(f"an accuracy bound needs {key!r}")
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether losses are within their limits.

    Attributes:
        eligible: Whether every output is within its limit.
        violation: See :meth:`Limits.violation`.
        worst: The output that is worst off against its limit; None where there are no outputs.
        broken: One line for each output beyond its limit, worst first.
    """

    eligible: bool
    violation: float
    worst: str | None
    broken: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest loss allowed for each output.

    Attributes:
        loss: What the losses are called.
        thresholds: By output name.
    """

    loss: str
    thresholds: Mapping[str, float]

    def violation(self, losses: Mapping[str, float]) -> float:
        """Return by how much the worst output exceeds its limit; at most 0 where all are within.

        It is (loss - threshold) / threshold, or the loss itself at a threshold of 0; always
        finite, from -1 to :data:`VIOLATION_CAP`, which is also what a missing or unexpected
        output, a loss that is not finite, and no outputs at all get.
        """
        amounts = [self._amount(name, losses) for name in self._names(losses)]
        return max(amounts, default=VIOLATION_CAP)

    def judge(
        self, losses: Mapping[str, float], reasons: Mapping[str, str] | None = None
    ) -> Verdict:
        """Return whether ``losses`` are within the limits.

        Args:
            losses: Worst loss over all samples, by output name.
            reasons: Why a loss is infinite, by output name.
        """
        reasons = reasons or {}
        amounts = {name: self._amount(name, losses) for name in self._names(losses)}
        ranked = sorted(amounts, key=lambda name: (-amounts[name], name))
        broken = tuple(
            self._explain(name, losses, reasons.get(name))
            for name in ranked
            if not amounts[name] <= 0
        )
        if not ranked:
            broken = ("no outputs were compared",)
        return Verdict(
            eligible=not broken,
            violation=self.violation(losses),
            worst=ranked[0] if ranked else None,
            broken=broken,
        )

    def _names(self, losses: Mapping[str, float]) -> list[str]:
        return sorted({*self.thresholds, *losses})

    def _amount(self, name: str, losses: Mapping[str, float]) -> float:
        loss = losses.get(name, math.inf)
        # Written so that a NaN, which no comparison holds for, is refused as well.
        if name not in self.thresholds or not 0 <= loss < math.inf:
            return VIOLATION_CAP
        threshold = self.thresholds[name]
        if math.isinf(threshold):
            return -1.0
        amount = loss if threshold == 0 else (loss - threshold) / threshold
        return min(amount, VIOLATION_CAP)

    def _explain(self, name: str, losses: Mapping[str, float], reason: str | None) -> str:
        if name not in self.thresholds:
            return f"output {name!r} is not in the model"
        if name not in losses:
            return f"output {name!r} is missing"
        if losses[name] == NOT_IDENTICAL and reason is None:
            reason = "the outputs are not identical"
        told = f": {reason}" if reason else ""
        where = "" if self.loss == METRIC else f"output {name!r}: "
        return f"{where}{self.loss} {losses[name]:.3g} is above {self.thresholds[name]:.3g}{told}"


def suggested_threshold(loss: float) -> float | None:
    """Return a round threshold (1, 2 or 5 times a power of ten) that lets ``loss`` pass.

    None where no finite threshold would.
    """
    if not math.isfinite(loss) or loss > 1e300:
        return None
    if loss == 0:
        return 0.0
    loss = max(loss, _LEAST_SUGGESTED)
    exponent = math.floor(math.log10(loss))
    candidates = (float(f"{digit}e{exponent + step}") for step in (0, 1) for digit in (1, 2, 5))
    return next(candidate for candidate in candidates if candidate >= loss)


def parse_threshold(text: str) -> float:
    """Return the threshold that ``text`` gives, for example ``1e-3``, ``0`` or ``inf``.

    Raises:
        SettingsError: It is not a number from 0 on.
    """
    return _checked_threshold(text, "the bound")


def parse_output_bound(text: str) -> tuple[str, float]:
    """Return output name and threshold of ``name=1e-3``, split at the last equals sign.

    Raises:
        SettingsError: It is malformed or the threshold is not a number from 0 on.
    """
    name, equals, threshold = text.strip().rpartition("=")
    if not equals or not name:
        raise SettingsError(f"{text!r} is not an output's bound; write for example name=1e-3")
    return name, parse_threshold(threshold)


def _checked_threshold(value: float | str, what: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    # Written so that a NaN is refused as well.
    if not number >= 0:
        raise SettingsError(
            f"{what} is {value!r}; it must be a number from 0 on, for example 1e-3, 0 or inf"
        )
    return number


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"
