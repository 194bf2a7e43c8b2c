"""Studies whose effects are known, for tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from routewright.knobs import Knob, KnobDatabase
from routewright.priors.evidence import Evidence, Origin, evidence_of
from routewright.priors.features import ModelFeatures
from routewright.records import Outcome, Phase, TrialRecord

BASELINE = TrialRecord(
    0,
    "",
    Phase.BASELINE,
    Outcome.TIMED,
    fingerprint="base",
    build_s=1.0,
    latency_ms=10.0,
    relative_latency=1.0,
    losses={"y": 0.0},
    violation=-1.0,
)


def database(*names: str, values: Sequence[str] = ("off", "on")) -> KnobDatabase:
    listed = f"[{'|'.join(values)}]"
    return KnobDatabase("synthetic-1", tuple(Knob.of(n, listed, values[0]) for n in names))


def timed(
    number: int,
    route: str,
    log_ratio: float,
    *,
    sd: float = 0.01,
    loss: float = 0.0,
    bound: float = math.inf,
    fingerprint: str | None = None,
) -> TrialRecord:
    inaccurate = loss > bound
    return TrialRecord(
        number,
        route,
        Phase.SEARCH,
        Outcome.INACCURATE if inaccurate else Outcome.TIMED,
        fingerprint=fingerprint or f"engine of {route}",
        build_s=1.0,
        latency_ms=None if inaccurate else 10.0 * math.exp(log_ratio),
        relative_latency=None if inaccurate else math.exp(log_ratio),
        ci95=None
        if inaccurate
        else (math.exp(log_ratio - 1.96 * sd), math.exp(log_ratio + 1.96 * sd)),
        losses={"y": loss},
        violation=loss - bound if math.isfinite(bound) else -1.0,
    )


def random_study(
    effects: Mapping[str, float],
    *,
    count: int = 60,
    sd: float = 0.01,
    seed: int = 0,
    pairs: Mapping[tuple[str, str], float] | None = None,
    losses: Mapping[str, float] | None = None,
    rate: float = 0.3,
) -> list[TrialRecord]:
    """Return a study of random routes; effects are by setting, ``-a=on``."""
    rng = np.random.default_rng(seed)
    names = sorted(effects)
    records = [BASELINE]
    for number in range(1, count + 1):
        chosen = [name for name in names if rng.random() < rate]
        if not chosen:
            continue
        value = sum(effects[name] for name in chosen)
        value += sum(v for pair, v in (pairs or {}).items() if set(pair) <= set(chosen))
        loss = sum((losses or {}).get(name, 0.0) for name in chosen)
        noisy = value + float(rng.normal(0.0, sd))
        records.append(timed(number, " ".join(chosen), noisy, sd=sd, loss=loss))
    return records


def singles(effects: Mapping[str, float], **how: Any) -> list[TrialRecord]:
    """Return a study that tried each setting alone."""
    return [
        BASELINE,
        *(timed(i, name, value, **how) for i, (name, value) in enumerate(effects.items(), 1)),
    ]


def source(
    name: str,
    records: Sequence[TrialRecord],
    *,
    knobs: Sequence[str] = (),
    inert: Sequence[str] = (),
    **about: Any,
) -> Evidence:
    told = {token.partition("=")[0] for r in records for token in r.route.split()}
    defaults = dict.fromkeys([*knobs, *sorted(told - set(knobs))], "off")
    facts = {"backend": "synthetic", "loss": "cos", "threshold": 0.01, "defaults": defaults}
    return evidence_of(
        Origin(name=name, kind="study", **(facts | about)), records, inert_knobs=inert
    )


def features(**changed: Any) -> ModelFeatures:
    """Return features of a small convolutional classifier."""
    facts: dict[str, Any] = {
        "ops": {"Conv": 20, "Relu": 20, "Gemm": 1},
        "flops": 10**8,
        "flops_share": {"conv": 0.9, "matmul": 0.1},
        "weights": {"float": 10**6},
        "activations": {"float": 10**6},
        "depth": 21,
        "width": 64.0,
        "inputs": ((1, 3, 64, 64),),
        "outputs": ((1, 10),),
        "quantized": 0.0,
        "resolved": 1.0,
    }
    return ModelFeatures(**(facts | changed))


TRANSFORMER = features(
    ops={"MatMul": 40, "LayerNormalization": 12, "Softmax": 6, "Gelu": 6},
    flops=10**10,
    flops_share={"matmul": 0.8, "attention": 0.2},
    depth=48,
    width=512.0,
    inputs=((1, 128),),
    outputs=((1, 128, 512),),
)
