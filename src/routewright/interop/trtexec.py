"""trtexec's tuning cache (``--tuningCacheFile``)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from routewright.interop.formats import CacheFormat, StudyFacts


def _header(facts: StudyFacts) -> dict[str, Any]:
    files: dict[str, Any] = {}
    if facts.onnx:
        files["onnx"] = facts.onnx
    if facts.inputs:
        files["inputs"] = dict(facts.inputs)
    if facts.references:
        files["ref_outputs"] = dict(facts.references)
    return {
        "tuner_version": facts.tuner_version,
        "accuracy_algorithm": TRTEXEC.loss_names.get(facts.loss, facts.loss),
        "accuracy_parameter": {
            "atol": facts.atol,
            "rtol": facts.rtol,
            "epsilon": facts.threshold,
        },
        "searching_algorithm": facts.search,
        "command_line": shlex.join(facts.command),
        "default_build_route": facts.default_route,
        "tuning_expr": facts.expression,
        "files": files,
        # trtexec --continue replays this and counts rows to see where to go on. With this
        # command it stops at once, instead of passing over routes that were never tried.
        "argv": list(facts.command),
        **facts.more,
    }


def _inaccurate(losses: Mapping[str, float]) -> str:
    return "child exited with status 1"


TRTEXEC = CacheFormat(
    name="trtexec",
    title="trtexec",
    latency="mean GPU time of trtexec",
    loss_names={"l0": "L0", "l1": "L1", "l2": "L2", "linf": "LInf", "cos": "Cosine"},
    separators=(",", ":"),
    ascii_only=False,
    zero_is_a_bound=False,
    header=_header,
    inaccurate=_inaccurate,
)
"""The cache of ``trtexec --tuneBuildRoutes``."""
