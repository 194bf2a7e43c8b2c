"""Recording a table on a real model: scan, cross, measure once, see how far it repeats."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from routewright.environment import identifying, versions
from routewright.errors import BackendError, SettingsError, StorageError
from routewright.preparation import compute_references, make_worker, prepare_inputs, search_space
from routewright.recording.crossing import choose_crossing, inert_in_crossing, scan
from routewright.recording.journal import JOURNAL_SCHEMA, Journal
from routewright.recording.measuring import (
    STEP_LIMIT_S,
    BlockPlan,
    Measuring,
    build_defaults,
    plan_timing,
)
from routewright.settings import TuneSettings
from routewright.space import SearchSpace
from routewright.workbench import TrialFailure
from routewright.worker.client import Worker

_REPEATED_SHARE = 0.1
_REMARK_EVERY = 50

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RecordingRules:
    """How much is recorded.

    Attributes:
        most_engines: Most distinct engines, about.
        timing_s: Seconds that the timing of an engine should take.
        inert_routes: Routes in a row that must show no effect of the knobs thought inert.
        predicted_routes: Random routes over the whole space that are built at the end.
    """

    most_engines: int = 900
    timing_s: float = 0.6
    inert_routes: int = 150
    predicted_routes: int = 200


def record(settings: TuneSettings, folder: Path, rules: RecordingRules, say: Say) -> Path:
    """Measure everything that a table holds; return the journal.

    Args:
        settings: Model, shapes, bound, backend and seed.
        folder: Where the journal is kept; what is there already is not measured again.
        rules: How much is recorded.
        say: Told what goes on.

    Raises:
        RoutewrightError: Something the user can mend.
    """
    inputs = prepare_inputs(settings)
    limits = settings.accuracy_bound().limits(
        {output.name: output.dtype for output in inputs.model.outputs}
    )
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    for part in (folder, work, folder / "logs"):
        part.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "journal.jsonl")
    with make_worker(settings, inputs, work=work, logs=folder / "logs") as worker:
        try:
            info = worker.backend_info()
            if not info.fingerprints:
                raise BackendError(
                    f"the backend {settings.backend} cannot tell engines apart, so a table of it "
                    "would have to measure every single route; record with another backend"
                )
            database = worker.knob_database()
            notes = compute_references(worker, limits, deadline_s=worker.now_s() + STEP_LIMIT_S)
            build_defaults(worker)
            space = search_space(settings, database)
            if space.pinned.pairs:
                raise SettingsError(
                    f"{space.pinned} is pinned away from the default, and a table needs the "
                    "default route in it; give an expression that only varies knobs"
                )
            header = {
                "kind": "header",
                "schema": JOURNAL_SCHEMA,
                "settings": settings.to_dict(),
                "rules": {name: getattr(rules, name) for name in rules.__slots__},
                "model_file": inputs.model.path.name,
                "model_sha256": inputs.model.sha256,
                "opset": inputs.model.opset,
                "shapes": {name: list(shape) for name, shape in inputs.shapes.items()},
                "samples": inputs.samples.digest,
                "outputs": {output.name: output.dtype for output in inputs.model.outputs},
                "metric": info.metric,
                "run_time_knobs": sorted(info.run_time_knobs),
                "environment": worker.environment(),
                "versions": versions(),
                "database": json.loads(database.to_json()),
                "notes": list(notes),
                "process": _process(),
            }
            plan = _begin(journal, header, worker, rules)
        except TrialFailure as failure:
            raise BackendError(
                f"the backend {settings.backend} cannot run this model: {failure.message}"
            ) from failure
        say(f"{plan.pairs} pairs of blocks of {plan.runs} runs, {plan.pair_s * 1e3:.0f} ms a pair")
        measuring = Measuring(worker, journal, limits, plan)
        _measure_all(measuring, space, settings.seed, rules, say)
        journal.append({"kind": "end", "environment": worker.environment(), "date": _date()})
    shutil.rmtree(work, ignore_errors=True)
    return journal.path


def _begin(
    journal: Journal, header: dict[str, Any], worker: Worker, rules: RecordingRules
) -> BlockPlan:
    """Write the header, or check that the journal's is of the same work; return the plan."""
    before = next(journal.of_kind("header"), None)
    if before is not None:
        # As JSON has it: tuples are lists there.
        now = json.loads(json.dumps(header))
        for key in ("schema", "model_sha256", "shapes", "samples", "settings", "database"):
            if before[key] != now[key]:
                raise StorageError(
                    f"{journal.path} is the recording of something else ({key} differs); give "
                    "another folder or move it away"
                )
        was, is_now = identifying(before["environment"]), identifying(now["environment"])
        if was != is_now:
            raise StorageError(
                f"{journal.path} was begun in another environment, and times of two do not mix; "
                "give another folder"
            )
        kept = next(journal.of_kind("plan"))
        journal.append({"kind": "resumed", "date": _date(), "process": _process()})
        return BlockPlan(kept["runs"], kept["warmup_runs"], kept["pairs"], kept["pair_s"])
    plan = plan_timing(worker, target_s=rules.timing_s)
    journal.append(
        header | {"date": _date()},
        {"kind": "plan"} | {name: getattr(plan, name) for name in plan.__slots__},
    )
    return plan


def _measure_all(
    measuring: Measuring, space: SearchSpace, seed: int, rules: RecordingRules, say: Say
) -> None:
    crossing, inert = _crossing(measuring, space, seed, rules, say)
    say(f"{crossing.size} routes of {len(crossing.variable)} live knobs, {len(inert)} inert ones")
    _measure_crossing(measuring, crossing, seed, say)
    _repeat(measuring, crossing, seed, say)
    _predict(measuring, crossing, space, inert, seed, rules, say)


def _crossing(
    measuring: Measuring, space: SearchSpace, seed: int, rules: RecordingRules, say: Say
) -> tuple[SearchSpace, list[str]]:
    """Return the routes to record and the knobs that change none of their engines."""
    chosen = next(measuring.journal.of_kind("crossing"), None)
    if chosen is not None:
        return SearchSpace(space.database, chosen["variable"], space.pinned), chosen["inert"]
    found = scan(measuring, space, seed=seed, say=say)
    crossing = choose_crossing(
        measuring, space, found, most=rules.most_engines, seed=seed, say=say
    )
    live = {change.knob for change in found.live}
    inert = inert_in_crossing(
        measuring,
        space,
        crossing,
        [name for name in space.variable if name not in live],
        routes=rules.inert_routes,
        seed=seed,
        say=say,
    )
    measuring.journal.append(
        {
            "kind": "crossing",
            "variable": {name: list(values) for name, values in crossing.variable.items()},
            "inert": inert,
            "live": [[change.knob, change.value] for change in found.live],
            "scores": [
                [change.knob, change.value, score] for change, score in found.scores.items()
            ],
            "contexts": found.contexts,
        }
    )
    return crossing, inert


def _measure_crossing(measuring: Measuring, crossing: SearchSpace, seed: int, say: Say) -> None:
    routes = [str(route) for route in crossing.enumerate()]
    # In random order, so that no knob is confounded with the machine's drift.
    order = np.random.default_rng([seed, 4]).permutation(len(routes))
    for number, index in enumerate(order, 1):
        measuring.route(routes[index], timing="table")
        if number % _REMARK_EVERY == 0 or number == len(routes):
            engines = len(measuring.fully_timed)
            say(f"{number} of {len(routes)} routes, {engines} engines timed")


def _repeat(measuring: Measuring, crossing: SearchSpace, seed: int, say: Say) -> None:
    """Measure a random tenth of the engines again, each with a fresh build."""
    route_of: dict[str, str] = {}
    for route in map(str, crossing.enumerate()):
        built = measuring.built[route]
        if built.fingerprint in measuring.fully_timed:
            route_of.setdefault(str(built.fingerprint), route)
    rng = np.random.default_rng([seed, 5])
    count = max(1, round(_REPEATED_SHARE * len(route_of)))
    chosen = rng.choice(len(route_of), size=count, replace=False)
    routes = list(route_of.values())
    done = {
        line["route"] for line in measuring.journal.of_kind("build") if line["purpose"] == "repeat"
    }
    # A fresh process, so that the default engine is another build as well.
    measuring.worker.restart()
    build_defaults(measuring.worker)
    for number, index in enumerate(chosen, 1):
        if routes[index] not in done:
            measuring.fresh(routes[index], purpose="repeat", timing="table")
        if number % _REMARK_EVERY == 0 or number == count:
            say(f"{number} of {count} engines measured again")


def _predict(
    measuring: Measuring,
    crossing: SearchSpace,
    space: SearchSpace,
    inert: list[str],
    seed: int,
    rules: RecordingRules,
    say: Say,
) -> None:
    """Build random routes over the whole space of the table, inert knobs included."""
    whole = SearchSpace(
        space.database,
        {
            name: crossing.variable.get(name, space.variable[name])
            for name in space.variable
            if name in crossing.variable or name in inert
        },
        space.pinned,
    )
    rng = np.random.default_rng([seed, 6])
    done = sum(line["purpose"] == "predicted" for line in measuring.journal.of_kind("build"))
    right = 0
    for number in range(rules.predicted_routes):
        route = whole.random_route(rng)
        if number < done:
            continue
        (line,) = measuring.fresh(str(route), purpose="predicted", checked=False)
        expected = measuring.built[_live_part(route, crossing)]
        right += line.get("fingerprint") == expected.fingerprint
    say(f"{right} of {rules.predicted_routes - done} random routes gave the engine predicted")


def _live_part(route: Any, crossing: SearchSpace) -> str:
    params = {
        name: route.values.get(name, crossing.database[name].default) for name in crossing.variable
    }
    return str(crossing.route(params))


def _process() -> dict[str, Any]:
    """Return how the recording process runs: cores, priority, load."""
    return {
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "scheduler": os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None,
        "nice": os.nice(0),
        "load_1min": os.getloadavg()[0],
    }


def _date() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
