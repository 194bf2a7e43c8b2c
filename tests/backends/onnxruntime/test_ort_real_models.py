"""The backend on models that were exported from real training frameworks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ort_support import Bench, cosine_loss

from routewright.backends.onnxruntime.settings import OPTIMIZER_PREFIX
from routewright.backends.onnxruntime.transformers import installed_catalog

MODELS: dict[str, tuple[str, tuple[int, ...]]] = {
    "ppocr-v2-cls": ("x", (1, 3, 48, 192)),
    "ppocr-v4-det": ("x", (1, 3, 160, 160)),
    "ppocr-v5-rec": ("x", (1, 3, 48, 96)),
    "magika-v3": ("bytes", (1, 2048)),
}


def bench_of(name: str, model_path: Callable[[str], Path], folder: Path) -> Bench:
    entry, _ = MODELS[name]
    return Bench(model_path(name), folder, samples=[{entry: sample(name)}])


def sample(name: str) -> np.ndarray[Any, Any]:
    entry, shape = MODELS[name]
    if entry == "bytes":
        return np.random.default_rng(0).integers(0, 256, shape).astype(np.int32)
    # Dark strokes on paper, in rows: what these models look for.
    image = np.full(shape, 1, np.float32)
    for top in range(8, shape[2] - 16, 32):
        image[:, :, top : top + 16, 16:-16] = -1
        image[:, :, top : top + 16, 16:-16:5] = 1
    return image


@pytest.mark.parametrize("name", MODELS)
def test_engines_agree_with_the_reference_and_int8_is_told_apart(
    name: str, model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    bench = bench_of(name, model_path, tmp_path)
    inputs = {MODELS[name][0]: sample(name)}
    reference = bench.backend.reference_engine().run(inputs)
    engine = bench.build()
    assert engine.fingerprint == bench.build().fingerprint
    assert cosine_loss(reference, engine.run(inputs)) < 1e-5
    quantized = bench.build(bench.int8())
    assert quantized.fingerprint != engine.fingerprint
    count = quantized.notes[0].split()[1]
    assert quantized.notes[0] == f"int8: {count} nodes quantized, {count} integer kernels run"
    partial = bench.build(bench.int8(bench.blocks[-1]))
    assert cosine_loss(reference, partial.run(inputs)) > cosine_loss(reference, engine.run(inputs))


@pytest.mark.parametrize(
    ("name", "live"),
    [
        ("ppocr-v4-det", {"ConvBNFusion", "NchwcTransformer"}),
        ("magika-v3", {"MatMulAddFusion", "NchwcTransformer"}),
    ],
)
def test_few_optimizers_are_live_and_all_others_together_are_inert(
    name: str, live: set[str], model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    known = [optimizer for optimizer, _ in installed_catalog().optimizers]
    if not live <= set(known):
        pytest.skip("this CPU or version lacks an optimizer")
    bench = bench_of(name, model_path, tmp_path)
    default = bench.build().fingerprint
    for optimizer in live:
        assert bench.build(f"{OPTIMIZER_PREFIX}{optimizer}=off").fingerprint != default
    others = " ".join(f"{OPTIMIZER_PREFIX}{name}=off" for name in known if name not in live)
    assert bench.build(others).fingerprint == default
