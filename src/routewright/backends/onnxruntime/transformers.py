"""Which graph transformers, rewrite rules and configuration keys the installed version knows.

An unknown optimizer name or configuration key is accepted by ONNX Runtime without a word, so none
is believed: :mod:`.probe` proves each in a process of its own. The answer is kept in the user's
cache folder, one file per library build and CPU (a CPU without a feature does not register the
transformers that need it).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routewright.backends.onnxruntime.hardware import cpu_model
from routewright.backends.onnxruntime.library import library_file, load_library, one_line
from routewright.errors import BackendError, StorageError
from routewright.files import write_text_atomic

RULE_HINTS = (
    "CastChainElimination",
    "CastElimination",
    "ClipQuantRewrite",
    "ConvAddFusion",
    "ConvBNFusion",
    "ConvMulFusion",
    "DivMulFusion",
    "EliminateDropout",
    "EliminateIdentity",
    "EliminateSlice",
    "ExpandElimination",
    "FuseReluClip",
    "GemmSumFusion",
    "GemmTransposeFusion",
    "LabelEncoderFusion",
    "MatMul_BatchNormalization_Fusion",
    "NoopElimination",
    "NotWhereFusion",
    "Pad_Fusion",
    "PreShapeNodeElimination",
    "ReluQuantRewrite",
    "UnsqueezeElimination",
)
"""Rewrite rules to try first; each is proved, and a missing one is found in the library."""

CONFIG_KEYS = (
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
    "mlas.nchwc_pointwise_conv_max_input_channel_batch",
    "optimization.enable_cast_chain_elimination",
    "optimization.enable_gelu_approximation",
    "session.disable_prepacking",
    "session.disable_quant_qdq",
    "session.dynamic_block_base",
    "session.enable_quant_qdq_cleanup",
    "session.force_spinning_stop",
    "session.graph_optimizations_loop_level",
    "session.inter_op.allow_spinning",
    "session.intra_op.allow_spinning",
    "session.intra_op.spin_backoff_max",
    "session.intra_op.spin_duration_us",
    "session.qdq_matmulnbits_accuracy_level",
    "session.qdqisint8allowed",
    "session.use_device_allocator_for_initializers",
    "session.x64quantprecision",
)
"""Every configuration key that this backend may ever set.

Left out on purpose: ``session.set_denormal_as_zero`` takes effect on the calling thread only for
the first session of a process, so it can neither be measured beside a baseline nor be undone.
"""

OPTION_VALUES: Mapping[str, tuple[str, ...]] = {
    "execution_mode": ("ORT_SEQUENTIAL", "ORT_PARALLEL"),
    "execution_order": ("DEFAULT", "PRIORITY_BASED", "MEMORY_EFFICIENT"),
    "graph_optimization_level": (
        "ORT_DISABLE_ALL",
        "ORT_ENABLE_BASIC",
        "ORT_ENABLE_EXTENDED",
        "ORT_ENABLE_LAYOUT",
        "ORT_ENABLE_ALL",
    ),
}
"""Enumeration members that this backend may ever set, by session option."""

_CACHE_FORMAT = 2
_PROBE_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Catalog:
    """What the installed version knows.

    Attributes:
        version: Version of the library.
        transformers: Graph transformers that can be switched off, with their level, in the order
            in which they are applied.
        rules: Rewrite rules that can be switched off, with their level, by name.
        config_keys: The members of :data:`CONFIG_KEYS` that the library holds.
        option_values: The members of :data:`OPTION_VALUES` that a session can be made with.
        rules_complete: Whether it is proved that there is no further rewrite rule.
    """

    version: str
    transformers: tuple[tuple[str, int], ...]
    rules: tuple[tuple[str, int], ...]
    config_keys: frozenset[str]
    option_values: Mapping[str, tuple[str, ...]]
    rules_complete: bool

    @property
    def optimizers(self) -> tuple[tuple[str, int], ...]:
        """Every optimizer with its level: by level, rules first (they are applied first)."""
        both = [(level, 0, i, name) for i, (name, level) in enumerate(self.rules)]
        both += [(level, 1, i, name) for i, (name, level) in enumerate(self.transformers)]
        return tuple((name, level) for level, _, _, name in sorted(both))


def installed_catalog(cache: Path | None = None) -> Catalog:
    """Return the catalog of the installed version, from the cache where it is known already.

    Args:
        cache: Folder to keep it in; the user's cache folder by default. A cache that cannot be
            read or written costs half a second, nothing else.

    Raises:
        BackendError: ONNX Runtime is missing or cannot be probed.
    """
    library = load_library()
    path = (cache or default_cache_folder()) / f"{_cache_key(library)}.json"
    cached = _read_cached(path)
    if cached is not None:
        return cached
    answer = _probe()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, json.dumps({"format": _CACHE_FORMAT, **answer}, indent=1) + "\n")
    except (OSError, StorageError):
        # A read-only home only means that the next process asks again.
        pass
    return _catalog(answer)


def default_cache_folder() -> Path:
    """Return the folder under the user's cache in which catalogs are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The standard says that a relative path there is to be ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "routewright" / "onnxruntime"


def _cache_key(library: Any) -> str:
    stat = library_file(library).stat()
    build = getattr(library, "get_build_info", lambda: "")()
    told = [
        library.__version__, build, stat.st_size, stat.st_mtime_ns, cpu_model(),
        platform.machine(), RULE_HINTS, CONFIG_KEYS, OPTION_VALUES,
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(told).encode("utf-8")).hexdigest()[:16]
    return f"catalog-{library.__version__}-{digest}"


def _read_cached(path: Path) -> Catalog | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _catalog(document) if document["format"] == _CACHE_FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _catalog(answer: Mapping[str, Any]) -> Catalog:
    return Catalog(
        version=str(answer["version"]),
        transformers=tuple((str(name), int(level)) for name, level in answer["transformers"]),
        rules=tuple((str(name), int(level)) for name, level in answer["rules"]),
        config_keys=frozenset(str(key) for key in answer["config_keys"]),
        option_values={
            str(option): tuple(str(member) for member in members)
            for option, members in answer["option_values"].items()
        },
        rules_complete=bool(answer["rules_complete"]),
    )


def _probe() -> dict[str, Any]:
    request = {
        "model": base64.b64encode(_tiny_model()).decode("ascii"),
        "rule_candidates": RULE_HINTS,
        "config_keys": CONFIG_KEYS,
        "option_values": OPTION_VALUES,
    }
    script = Path(__file__).with_name("probe.py")
    try:
        # -P: the script's own folder must not shadow any library. The path is handed on because
        # this process may have been given one that its environment does not tell.
        finished = subprocess.run(
            [sys.executable, "-P", str(script)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired as error:
        raise BackendError(
            f"onnxruntime did not list its optimizers within {_PROBE_LIMIT_S:.0f} s; "
            "try again on a less busy machine"
        ) from error
    if finished.returncode != 0:
        last = (finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"])[-1]
        raise BackendError(
            f"onnxruntime could not list its optimizers: {one_line(last)}; reinstall onnxruntime"
        )
    answer: dict[str, Any] = json.loads(finished.stdout)
    return answer


def _tiny_model() -> bytes:
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "probe",
        [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content
