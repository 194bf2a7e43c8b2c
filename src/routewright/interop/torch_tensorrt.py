"""Torch-TensorRT's tuning cache, one file for each part of a model that TensorRT takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routewright.interop.formats import CacheFormat, StudyFacts


def _header(facts: StudyFacts) -> dict[str, Any]:
    return {
        "tuner_version": facts.tuner_version,
        "accuracy_algorithm": TORCH_TENSORRT.loss_names.get(facts.loss, facts.loss),
        "accuracy_parameter": {
            "atol": facts.atol,
            "rtol": facts.rtol,
            "epsilon": facts.threshold,
        },
        "searching_algorithm": facts.search,
        "tuning_expr": facts.expression,
        "default_build_route": facts.default_route,
        **facts.more,
    }


def _inaccurate(losses: Mapping[str, float]) -> str:
    return f"accuracy threshold exceeded: {dict(losses)}"


TORCH_TENSORRT = CacheFormat(
    name="torch-tensorrt",
    title="Torch-TensorRT",
    latency="median GPU time of Torch-TensorRT",
    loss_names={"l0": "l0", "l1": "l1", "l2": "l2", "linf": "linf", "cos": "cos"},
    separators=(", ", ": "),
    ascii_only=True,
    zero_is_a_bound=True,
    header=_header,
    inaccurate=_inaccurate,
)
"""The cache of a Torch-TensorRT tuning."""
