"""Tables whose truth is known: made up, or a recorded one in which all engines are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from routewright.bounds import AccuracyBound
from routewright.knobs import Knob, KnobDatabase
from routewright.routes import Route
from routewright.space import SearchSpace
from routewright.tables.measurements import NOTHING, Measurements
from routewright.tables.table import Table

_OUTPUT = "y"


@dataclass(frozen=True)
class Truth:
    """What routes do in a made-up table.

    Attributes:
        knobs: Values by name of the live knobs, each default first.
        inert: How many further knobs do nothing.
        effects: What a set of values does to the log relative latency, where a route has them
            all: ``{("-a=on",): -0.1, ("-a=on", "-b=2"): 0.05}``.
        losses: What a set of values adds to the loss.
        failures: Sets of values that cannot be built.
        noise_sd: Standard deviation of a pair of blocks' log ratio.
        instance_sd: Standard deviation of the log ratio between two builds of one route.
        run_ms: Latency of the default engine, in ms.
        build_s: Seconds of a build.
        pairs: Pairs of blocks recorded for each engine.
        runs: Runs in a block.
    """

    knobs: Mapping[str, Sequence[str]]
    inert: int = 0
    effects: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    losses: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    failures: Sequence[tuple[str, ...]] = ()
    noise_sd: float = 0.02
    instance_sd: float = 0.003
    run_ms: float = 5.0
    build_s: float = 0.5
    pairs: int = 12
    runs: int = 3


def made_up_table(truth: Truth, *, name: str = "made-up", seed: int = 0) -> Table:
    """Return a table whose engines' relative latencies are exactly what ``truth`` says.

    Every route over the live knobs is an engine of its own.

    Args:
        truth: What routes do.
        name: Name of the table.
        seed: Seed of the noise in the blocks.
    """
    rng = np.random.default_rng(seed)
    live = [Knob.of(knob, f"[{'|'.join(v)}]", v[0]) for knob, v in truth.knobs.items()]
    inert = [Knob.of(f"-inert:{number}", "[on|off]", "on") for number in range(truth.inert)]
    database = KnobDatabase("made-up", (*live, *inert))
    space = SearchSpace.whole(database).restricted_to([knob.name for knob in live])
    routes = list(space.enumerate())
    engines = [route for route in routes if not _sum(truth.failures, route)]
    ratios = np.exp([_sum(truth.effects, route) for route in engines])
    shape = (len(engines), truth.pairs, truth.runs)
    baseline = truth.run_ms * np.exp(rng.normal(0, truth.noise_sd, shape))
    noise = rng.normal(0, truth.noise_sd, (len(engines), truth.pairs // 2, 1))
    # Pairs of opposite noise: the median of the pairs is the truth to the last digit.
    noise = np.concatenate([noise, -noise], axis=1)
    candidate = baseline * np.exp(noise) * ratios[:, None, None]
    losses = np.array([[_sum(truth.losses, route)] for route in routes], dtype=np.float32)
    built = np.array([route in engines for route in routes])
    count = len(routes)
    data = Measurements(
        values=_positions(routes, live),
        engine=np.where(built, np.cumsum(built) - 1, NOTHING).astype(np.int32),
        failure=np.where(built, NOTHING, 0).astype(np.int16),
        reason=np.full(count, NOTHING, dtype=np.int16),
        build_s=np.full(count, truth.build_s, dtype=np.float32),
        first_check_s=np.full(count, 0.01, dtype=np.float32),
        check_s=np.full(count, 0.02, dtype=np.float32),
        first_losses=np.where(built[:, None], losses, np.nan).astype(np.float32),
        losses=np.where(built[:, None], losses, np.nan).astype(np.float32),
        fingerprints=np.array([_fingerprint(route) for route in engines]),
        baseline_ms=baseline.astype(np.float32),
        candidate_ms=candidate.astype(np.float32),
        wall_s=((baseline + candidate).sum(axis=2) * 1.5e-3).astype(np.float32),
        candidate_first=np.arange(truth.pairs) % 2 == 1,
        repeated=np.zeros(0, dtype=np.int32),
        repeat_baseline_ms=np.zeros((0, *shape[1:]), dtype=np.float32),
        repeat_candidate_ms=np.zeros((0, *shape[1:]), dtype=np.float32),
        order=np.arange(count, dtype=np.int32),
        process=np.ones(count, dtype=np.int32),
    )
    card: dict[str, Any] = {
        "name": name,
        "family": "made-up",
        "source": "Made up; no model was run.",
        "backend": "made-up",
        "model": {"file": f"{name}.onnx", "sha256": hashlib.sha256(name.encode()).hexdigest()},
        "shapes": {"x": [1]},
        "samples": "",
        "outputs": {_OUTPUT: "float32"},
        "bound": AccuracyBound("cos", 1e-2).to_dict(),
        "metric": "made up",
        "environment": {"made_up": True, "seed": seed},
        "versions": {},
        "run_time_knobs": [],
        "live": [knob.name for knob in live],
        "seed": seed,
        "plan": {"runs": truth.runs, "warmup_runs": 1, "pairs": truth.pairs, "pair_s": 0.05},
        "failures": [["build", "unsupported", "made not to build"]],
        "reasons": [],
        "repeatability": {
            "engines": 0,
            "median": 0.0,
            "p95": 0.0,
            "noise_sd": truth.noise_sd,
            "instance_sd": truth.instance_sd,
        },
        "prediction": {"routes": 0, "right": 0, "wrong": []},
        "database": json.loads(database.to_json()),
    }
    return Table(card, database, tuple(card["live"]), data)


def equalized(table: Table) -> Table:
    """Return an A/A table: every engine as fast as the default and as accurate, but for its noise.

    Costs and the difference between builds stay as they were recorded. Each engine's times are
    scaled to the default's, and every pair of blocks is there a second time with the two engines
    exchanged: whatever is drawn, and however it is evaluated, neither engine is favored.
    """
    data = table.data
    ratios = np.array(table.true_ratios, dtype=np.float32)
    default = int(data.engine[table.row("")])
    row = table.row("")
    flat = {
        name: np.repeat(getattr(data, name)[row : row + 1], len(data.values), axis=0)
        for name in ("losses", "first_losses")
    }
    built, shape = data.engine != NOTHING, data.baseline_ms.shape
    scaled = data.candidate_ms / ratios[:, None, None]
    same = replace(
        data,
        baseline_ms=np.concatenate([data.baseline_ms, scaled], axis=1),
        candidate_ms=np.concatenate([scaled, data.baseline_ms], axis=1),
        wall_s=np.concatenate([data.wall_s, data.wall_s], axis=1),
        candidate_first=np.concatenate([data.candidate_first, data.candidate_first]),
        repeated=data.repeated[:0],
        repeat_baseline_ms=np.zeros((0, 2 * shape[1], shape[2]), dtype=np.float32),
        repeat_candidate_ms=np.zeros((0, 2 * shape[1], shape[2]), dtype=np.float32),
        failure=np.where(built, NOTHING, data.failure).astype(np.int16),
        reason=np.full(len(data.values), NOTHING, dtype=np.int16),
        **flat,
    )
    # An engine that could not be timed has no noise of its own to show.
    for engine in np.flatnonzero(~np.isfinite(ratios)):
        same.baseline_ms[engine] = same.baseline_ms[default]
        same.candidate_ms[engine] = same.candidate_ms[default]
        same.wall_s[engine] = same.wall_s[default]
    card = {key: value for key, value in table.card.items() if key not in ("data", "counts")}
    return Table(card | {"name": f"{table.name}-aa"}, table.database, table.live, same)


def _sum(parts: Any, route: Route) -> float:
    """Return the sum of the parts whose values the route has; of plain parts, their number."""
    has = {f"{knob}={value}" for knob, value in route.pairs}
    amounts = parts.items() if isinstance(parts, Mapping) else ((part, 1.0) for part in parts)
    return float(sum(amount for values, amount in amounts if set(values) <= has))


def _positions(routes: Sequence[Route], live: Sequence[Knob]) -> Any:
    rows = [
        [knob.values.index(route.values.get(knob.name, knob.default)) for knob in live]
        for route in routes
    ]
    return np.array(rows, dtype=np.int16)


def _fingerprint(route: Route) -> str:
    return hashlib.sha256(str(route).encode()).hexdigest()[:32]
