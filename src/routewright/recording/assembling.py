"""From a finished journal to the table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from routewright.errors import StorageError
from routewright.knobs import Knob, KnobDatabase
from routewright.priors.tables import features_of_card
from routewright.recording.journal import Journal
from routewright.routes import Route
from routewright.settings import TuneSettings
from routewright.space import SearchSpace
from routewright.tables import NOTHING, Measurements, Table
from routewright.tables.entries import log_ratios, true_log_ratio

Line = Mapping[str, Any]


def assemble(
    journal: Journal, *, name: str, family: str = "", source: str = "", conditions: str = ""
) -> Table:
    """Make the table of a journal.

    Args:
        journal: A recording that reached its end.
        name: Name of the table.
        family: Family of the model.
        source: Where the model comes from and under what license, a sentence or two.
        conditions: What else a reader should know of the recording.

    Raises:
        StorageError: The recording is not finished.
    """
    header = next(journal.of_kind("header"), None)
    chosen = next(journal.of_kind("crossing"), None)
    end = next(journal.of_kind("end"), None)
    if header is None or chosen is None or end is None:
        raise StorageError(
            f"the recording {journal.path} is not finished; run the same command again to go on"
        )
    whole = _database(header)
    database = _of_table(whole, chosen)
    live = tuple(knob.name for knob in database if knob.name in chosen["variable"])
    crossing = SearchSpace(whole, chosen["variable"])
    builds = {
        str(line["route"]): (order, line)
        for order, line in reversed(list(enumerate(journal.of_kind("build"))))
        if line["purpose"] == "table" and ("losses" in line or "failure" in line)
    }
    routes = [str(route) for route in crossing.enumerate()]
    missing = [route for route in routes if route not in builds]
    if missing:
        raise StorageError(f"the recording {journal.path} lacks the route {missing[0]!r}")
    timings = {
        str(line["fingerprint"]): line
        for line in reversed(list(journal.of_kind("timing")))
        if line["purpose"] == "table"
    }
    lines = [builds[route][1] for route in routes]
    outputs = list(header["outputs"])
    fingerprints = list(
        dict.fromkeys(line["fingerprint"] for line in lines if line.get("fingerprint"))
    )
    engine_of = {fingerprint: index for index, fingerprint in enumerate(fingerprints)}
    failures = list(dict.fromkeys(tuple(line["failure"]) for line in lines if "failure" in line))
    reasons = _distinct(line["reasons"] for line in lines if "reasons" in line)
    plan = next(journal.of_kind("plan"))
    shape = (plan["pairs"], plan["runs"])
    repeats = [line for line in journal.of_kind("timing") if line["purpose"] == "repeat"]
    repeats = [line for line in repeats if line["fingerprint"] in timings]
    data = Measurements(
        values=_values(routes, whole, database, live),
        engine=_ints([engine_of.get(line.get("fingerprint"), NOTHING) for line in lines]),
        failure=np.array(
            [
                failures.index(tuple(line["failure"])) if "failure" in line else NOTHING
                for line in lines
            ],
            dtype=np.int16,
        ),
        reason=np.array(
            [reasons.index(line["reasons"]) if "reasons" in line else NOTHING for line in lines],
            dtype=np.int16,
        ),
        build_s=_floats([line["build_s"] for line in lines]),
        first_check_s=_floats([line.get("check_first_s", math.nan) for line in lines]),
        check_s=_floats([line.get("check_all_s", math.nan) for line in lines]),
        first_losses=_losses(lines, "first_losses", outputs),
        losses=_losses(lines, "losses", outputs),
        fingerprints=np.array(fingerprints, dtype=np.str_),
        baseline_ms=_blocks([timings.get(f) for f in fingerprints], "baseline_ms", shape),
        candidate_ms=_blocks([timings.get(f) for f in fingerprints], "candidate_ms", shape),
        wall_s=_blocks([timings.get(f) for f in fingerprints], "wall_s", shape[:1]),
        candidate_first=np.arange(plan["pairs"]) % 2 == 1,
        repeated=_ints([engine_of[line["fingerprint"]] for line in repeats]),
        repeat_baseline_ms=_blocks(repeats, "baseline_ms", shape),
        repeat_candidate_ms=_blocks(repeats, "candidate_ms", shape),
        order=_ints(np.argsort(np.argsort([builds[route][0] for route in routes]))),
        process=_ints([line["generation"] for line in lines]),
    )
    card = {
        "name": name,
        "family": family,
        "source": source,
        "backend": header["settings"].get("backend", "onnxruntime"),
        "model": {
            "file": header["model_file"],
            "sha256": header["model_sha256"],
            "opset": header["opset"],
        },
        "shapes": header["shapes"],
        "samples": header["samples"],
        "outputs": header["outputs"],
        "bound": _bound(header["settings"]),
        "metric": header["metric"],
        "environment": header["environment"],
        "versions": header["versions"],
        "run_time_knobs": [n for n in header["run_time_knobs"] if n in database],
        "live": list(live),
        "seed": header["settings"].get("seed", 0),
        "plan": {key: plan[key] for key in ("runs", "warmup_runs", "pairs", "pair_s")},
        "recorded": {
            "begun": header["date"],
            "ended": end["date"],
            "resumed": sum(1 for _ in journal.of_kind("resumed")),
            "process": header["process"],
            "load_at_end": end["environment"].get("load_1min_now"),
            "conditions": conditions,
        },
        "failures": [list(failure) for failure in failures],
        "reasons": reasons,
        "repeatability": repeatability(data),
        "prediction": _prediction(journal, whole, crossing, builds),
    }
    features = features_of_card(card)
    if features is not None:
        card["features"] = features.to_dict()
    table = Table(card, database, live, data)
    return replace(table, card=card | {"counts": _counts(table, chosen)})


def repeatability(data: Measurements) -> dict[str, Any]:
    """Return how far engines that were measured twice agree.

    The difference of two readings has twice the variance of how two builds fall out and twice
    that of the noise of the blocks; the latter is known from the blocks, the rest is the builds'.
    """
    differences: list[float] = []
    noise: list[float] = []
    for index, engine in enumerate(data.repeated):
        first = true_log_ratio(data.baseline_ms[engine], data.candidate_ms[engine])
        again = true_log_ratio(data.repeat_baseline_ms[index], data.repeat_candidate_ms[index])
        if math.isfinite(first) and math.isfinite(again):
            differences.append(abs(again - first))
            noise.append(_noise(data.baseline_ms[engine], data.candidate_ms[engine]))
    if not differences:
        return {"engines": 0, "median": 0.0, "p95": 0.0, "noise_sd": 0.0, "instance_sd": 0.0}
    # The median of |x| of a normal x is 0.6745 of its standard deviation; outliers do not count.
    spread = median(differences) / 0.6745
    noise_sd = median(noise)
    instance = math.sqrt(max(spread**2 / 2 - noise_sd**2, 0.0))
    return {
        "engines": len(differences),
        "median": round(float(np.median(differences)), 6),
        "p95": round(float(np.quantile(differences, 0.95)), 6),
        "noise_sd": round(noise_sd, 6),
        "instance_sd": round(instance, 6),
    }


def _noise(baseline_ms: Any, candidate_ms: Any) -> float:
    """Return the standard error of the log ratio that the blocks' own spread implies."""
    ratios = log_ratios(baseline_ms, candidate_ms)
    couples = (ratios[0::2][: len(ratios) // 2] + ratios[1::2]) / 2
    spread = 1.4826 * float(np.median(np.abs(couples - np.median(couples))))
    return 1.02 * spread / math.sqrt(len(couples))


def _database(header: Line) -> KnobDatabase:
    return KnobDatabase.from_json(json.dumps(header["database"]), source="the recording")


def _of_table(whole: KnobDatabase, chosen: Line) -> KnobDatabase:
    """Return the live knobs with the values that were recorded, and the inert ones as they are."""
    knobs: list[Knob] = []
    for knob in whole:
        if knob.name in chosen["variable"]:
            values = "|".join(chosen["variable"][knob.name])
            knobs.append(Knob.of(knob.name, f"[{values}]", knob.default, knob.help))
        elif knob.name in chosen["inert"]:
            knobs.append(knob)
    return KnobDatabase(whole.tuner_version, tuple(knobs))


def _values(
    routes: Sequence[str], whole: KnobDatabase, database: KnobDatabase, live: Sequence[str]
) -> Any:
    rows = []
    for text in routes:
        values = Route.parse(text, whole).values
        rows.append(
            [
                database[name].values.index(values.get(name, database[name].default))
                for name in live
            ]
        )
    return np.array(rows, dtype=np.int16)


def _prediction(
    journal: Journal,
    whole: KnobDatabase,
    crossing: SearchSpace,
    builds: Mapping[str, tuple[int, Line]],
) -> dict[str, Any]:
    right = tried = 0
    wrong: list[str] = []
    for line in journal.of_kind("build"):
        if line["purpose"] != "predicted":
            continue
        values = Route.parse(line["route"], whole).values
        part = crossing.route(
            {name: values.get(name, whole[name].default) for name in crossing.variable}
        )
        tried += 1
        if line.get("fingerprint") == builds[str(part)][1].get("fingerprint"):
            right += 1
        else:
            wrong.append(str(line["route"]))
    return {"routes": tried, "right": right, "wrong": wrong}


def _counts(table: Table, chosen: Line) -> dict[str, Any]:
    live = {knob for knob, _ in chosen["live"]}
    best = table.best()
    return {
        "routes": len(table.data.values),
        "engines": len(table.data.fingerprints),
        "failed": int(np.count_nonzero(table.data.failure != NOTHING)),
        "eligible": sum(table.eligible(entry) for entry in table.entries),
        "inert": len(chosen["inert"]),
        "left_out": len(live - set(chosen["variable"])),
        "best": round(best.relative_latency, 4),
        "best_route": best.route,
        "default_ms": round(float(np.median(table.default.baseline_ms)), 4),
    }


def _bound(settings: Line) -> dict[str, Any]:
    return TuneSettings.from_dict(settings).accuracy_bound().to_dict()


def _losses(lines: Sequence[Line], key: str, outputs: Sequence[str]) -> Any:
    return _floats(
        [[float(line.get(key, {}).get(name, math.nan)) for name in outputs] for line in lines]
    )


def _blocks(lines: Sequence[Line | None], key: str, shape: tuple[int, ...]) -> Any:
    blocks = np.full((len(lines), *shape), np.nan, dtype=np.float32)
    for index, line in enumerate(lines):
        if line is not None:
            blocks[index] = line[key]
    return blocks


def _floats(values: Any) -> Any:
    return np.array(values, dtype=np.float32)


def _ints(values: Any) -> Any:
    return np.array(values, dtype=np.int32)


def _distinct(values: Any) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for value in values:
        if value not in found:
            found.append(dict(value))
    return found
