"""What a study has to say, in plain words: every report tells this, each in its own form.

Five questions are answered, in this order: how much faster, how sure, at what accuracy, which
knobs did it, how to rebuild it.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from routewright.compare.studies import COMPARED
from routewright.interop.own_study import tune_command
from routewright.records import Outcome, Phase, TrialRecord
from routewright.report.effects import Effect, knob_effects
from routewright.report.source import StudyView
from routewright.result import KnobCensus

CLEAR_EFFECTS = 5


class Status(StrEnum):
    """Where a study stands."""

    FASTER = "faster"
    NO_GAIN = "no gain"
    RUNNING = "running"
    UNFINISHED = "unfinished"
    IMPORTED = "imported"
    COMPARED = "compared"


@dataclass(frozen=True)
class Best:
    """The route that a study speaks for.

    Attributes:
        route: The route; empty for the default route.
        relative_latency: Its time over the default's.
        ci95: 95% interval, or None where it is not known.
        latency_ms: Median latency, or None.
        losses: Worst loss by output.
        confirmed: Whether fresh builds confirmed it; otherwise it is the best of noisy readings.
        number: The fastest trial of this route, or None.
        fingerprint: The engine's fingerprint, or None.
        files: SHA-256 of the engine's files by name.
    """

    route: str
    relative_latency: float
    ci95: tuple[float, float] | None
    latency_ms: float | None
    losses: Mapping[str, float]
    confirmed: bool
    number: int | None = None
    fingerprint: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Story:
    """What a study has to say.

    Attributes:
        view: The study.
        status: Where it stands.
        headline: The answer in one line.
        reason: Why, in one line; may be empty.
        best: The route it speaks for; None before anything eligible was measured.
        answers: Question and answer, both plain text.
        effects: What the settings do to the latency, the fastest first.
        census: Live, inert and unknown knobs.
        failures: How many trials failed, by kind.
        notes: What a reader should know.
        command: The command that measures the best route again, or empty.
    """

    view: StudyView
    status: Status
    headline: str
    reason: str
    best: Best | None
    answers: tuple[tuple[str, str], ...]
    effects: tuple[Effect, ...]
    census: KnobCensus
    failures: Mapping[str, int]
    notes: tuple[str, ...]
    command: str


def tell(view: StudyView, *, with_effects: bool = True) -> Story:
    """Return what a study has to say; works for running, broken, imported and empty ones.

    Args:
        view: The study.
        with_effects: Whether the settings' effects are worked out, which takes a while where
            there are thousands of trials.
    """
    status = _status(view)
    best = _best(view)
    effects = tuple(knob_effects(view.records)) if with_effects else ()
    census = view.census()
    command = _command(view, best)
    failures = Counter(
        r.failure or "error"
        for r in view.records
        if r.outcome is Outcome.FAILED and r.reused_from is None
    )
    return Story(
        view=view,
        status=status,
        headline=_headline(status, best),
        reason=_reason(view, status),
        best=best,
        answers=(
            ("How much faster?", _how_much(view, best)),
            ("How sure?", _how_sure(view, status, best)),
            ("At what accuracy?", accuracy(view, best)),
            ("Which knobs did it?", _which_knobs(best, effects, census)),
            ("How to rebuild it?", _how_to_rebuild(view, best, command)),
        ),
        effects=effects,
        census=census,
        failures=dict(failures.most_common()),
        notes=tuple(str(note) for note in (view.result or {}).get("notes", ())),
        command=command,
    )


def bound_text(identity: Mapping[str, Any]) -> str:
    """Return the accuracy bound in words."""
    bound = identity.get("bound")
    if not isinstance(bound, Mapping) or not bound.get("loss"):
        return "not known"
    name = bound.get("metric") or bound["loss"]
    text = f"{name} at most {number(bound.get('threshold'))}"
    per_output = bound.get("per_output") or {}
    if per_output:
        text += "; " + ", ".join(f"{o} at most {number(v)}" for o, v in per_output.items())
    return text


def number(value: Any) -> str:
    """Return a number as people write it; anything else as its text."""
    try:
        return f"{float(value):.3g}"
    except (TypeError, ValueError):
        return str(value)


def ratio_text(ratio: float, ci95: Sequence[float] | None) -> str:
    """Return a relative latency with its interval."""
    if ci95 is None:
        return f"{ratio:.3f} (interval not known)"
    return f"{ratio:.3f} (95% interval {ci95[0]:.3f} to {ci95[1]:.3f})"


def model_name(view: StudyView) -> str:
    """Return the model's file name, or the study's name where it is not known."""
    path = (view.result or {}).get("model", {}).get("path") or view.settings.get("model")
    if not path and view.imported:
        path = view.imported.get("model")
    return str(path).rpartition("/")[2] if path else view.name


def accuracy(view: StudyView, best: Best | None) -> str:
    """Return what was lost, held against the bound."""
    text = f"Bound: {bound_text(view.identity or view.result or {})}."
    if best is None or not best.losses:
        return text
    worst = sorted(best.losses.items(), key=lambda item: (-_as_float(item[1]), item[0]))
    told = ", ".join(f"{name} {number(loss)}" for name, loss in worst[:3])
    more = f" and {len(worst) - 3} more outputs" if len(worst) > 3 else ""
    broken = sum(r.outcome is Outcome.INACCURATE for r in view.records)
    refused = f" {counted(broken, 'trial')} broke the bound and could not win." if broken else ""
    return f"{text} Largest loss over all samples: {told}{more}.{refused}"


def counted(count: int, word: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.inf


def _status(view: StudyView) -> Status:
    if view.imported is not None:
        return Status.IMPORTED
    if COMPARED in view.identity:
        return Status.COMPARED
    if view.result is not None:
        return Status(str(view.result.get("verdict", Status.NO_GAIN)))
    running = view.in_use if view.in_use is not None else bool(view.running)
    return Status.RUNNING if running else Status.UNFINISHED


def _best(view: StudyView) -> Best | None:
    if view.result is not None:
        told = view.result["best"]
        low, high = told["ci95"]
        return Best(
            route=str(told["route"]),
            relative_latency=float(told["relative_latency"]),
            ci95=(float(low), float(high)),
            latency_ms=float(told["latency_ms"]),
            losses={str(k): _as_float(v) for k, v in told["losses"].items()},
            confirmed=True,
            number=_fastest(view, str(told["route"])),
            fingerprint=told.get("fingerprint"),
            files=told.get("files") or {},
        )
    eligible = [r for r in view.records if r.eligible and r.outcome is not Outcome.REUSED]
    confirmed = [r for r in eligible if r.phase is Phase.CONFIRMATION]
    found = min(
        (r for r in eligible if r.phase is not Phase.CONFIRMATION), key=_latency, default=None
    )
    if found is None:
        return None
    again = [r for r in confirmed if r.route == found.route]
    record = again[-1] if again else found
    return Best(
        route=record.route,
        relative_latency=_latency(record),
        ci95=record.ci95,
        latency_ms=record.latency_ms,
        losses=record.losses,
        confirmed=False,
        number=record.number,
        fingerprint=record.fingerprint,
    )


def _fastest(view: StudyView, route: str) -> int | None:
    timed = [r for r in view.records if r.route == route and r.relative_latency is not None]
    return min(timed, key=_latency).number if timed else None


def _latency(record: TrialRecord) -> float:
    return math.inf if record.relative_latency is None else record.relative_latency


def _headline(status: Status, best: Best | None) -> str:
    if best is None:
        return (
            "Nothing eligible was measured yet"
            if status is Status.RUNNING
            else "Nothing eligible was measured"
        )
    speed = 1 / best.relative_latency if best.relative_latency > 0 else math.inf
    if status is Status.FASTER:
        return f"{speed:.2f} times as fast as the default route"
    if status is Status.NO_GAIN:
        return "No gain beyond doubt: keep the default route"
    if not best.route:
        return "Nothing faster than the default route so far"
    if status is Status.IMPORTED:
        return f"{speed:.2f} times as fast as the default route, as the other tuner measured"
    return f"{speed:.2f} times as fast as the default route so far, not confirmed"


def _reason(view: StudyView, status: Status) -> str:
    if view.result is not None:
        return str(view.result.get("reason", ""))
    if status is Status.RUNNING:
        return "The study is running; this is what it knows so far."
    if status is Status.IMPORTED:
        return "Times come from another tuner's cache; none was measured by Routewright."
    if status is Status.COMPARED:
        return "A run of a comparison of search methods; what it found is not confirmed."
    way_out = f"go on with: routewright tune --resume --out {shlex.quote(str(view.folder))}"
    return "The study ended without a result: it was killed or interrupted" + (
        f"; {way_out}" if view.folder is not None else "."
    )


def _how_much(view: StudyView, best: Best | None) -> str:
    baseline = view.baseline
    base_ms = None if baseline is None else baseline.latency_ms
    if best is None:
        return "Not known: no eligible route was timed."
    told = f"Latency is {ratio_text(best.relative_latency, best.ci95)} of the default route's"
    if not best.route:
        told = "Not at all: the default route is the fastest that is beyond doubt"
    if best.latency_ms is not None and base_ms is not None:
        beside = _beside(view, best)
        if not best.route:
            told += f", {base_ms:.3f} ms"
        elif beside is not None:
            told += f": {best.latency_ms:.3f} ms, the default {beside:.3f} ms beside it"
    what = view.identity.get("latency")
    harness = (
        f" One call of the engine is timed, {what}; what an application adds is not in it."
        if what
        else ""
    )
    return f"{told}.{harness}"


def _beside(view: StudyView, best: Best) -> float | None:
    """Return the default's milliseconds that go with the best's: times drift, ratios do not."""
    if best.latency_ms is None:
        return None
    return best.latency_ms / best.relative_latency if best.relative_latency > 0 else None


def _how_sure(view: StudyView, status: Status, best: Best | None) -> str:
    timed = sum(r.outcome in (Outcome.TIMED, Outcome.SLOW) for r in view.records)
    basis = f"{counted(len(view.records), 'trial')}, {timed:,} timed in turns with the default"
    if status is Status.IMPORTED:
        return f"Not known: {counted(len(view.records), 'row')} without intervals."
    if best is None:
        return f"There is nothing to be sure of yet; {basis}."
    rounds = [r for r in view.records if r.phase is Phase.CONFIRMATION and r.route == best.route]
    if status is Status.FASTER:
        return (
            f"The whole 95% interval lies below 1, over {counted(len(rounds), 'round')} of fresh "
            f"builds and corrected for picking the best; {basis}."
        )
    if status is Status.NO_GAIN:
        return f"No candidate's 95% interval lay below 1 when built and timed anew; {basis}."
    return (
        f"Not yet: the best of several noisy readings looks better than it is; only fresh builds "
        f"confirm it. {basis}."
    )


def _which_knobs(best: Best | None, effects: Sequence[Effect], census: KnobCensus) -> str:
    parts = []
    by_setting = {effect.setting: effect for effect in effects}
    tokens = [] if best is None else best.route.split()
    if tokens:
        told = []
        for token in tokens[:CLEAR_EFFECTS]:
            effect = by_setting.get(token)
            told.append(
                token
                if effect is None
                else f"{token} (factor {effect.ratio:.3f}, {effect.ci95[0]:.3f} to "
                f"{effect.ci95[1]:.3f})"
            )
        more = f" and {len(tokens) - CLEAR_EFFECTS} more" if len(tokens) > CLEAR_EFFECTS else ""
        parts.append(f"The route changes {', '.join(told)}{more}.")
    else:
        parts.append("None: the default route stands.")
    parts.append(
        f"Of {counted(census.searchable, 'knob')}, {len(census.live)} change this model's engine, "
        f"{len(census.inert)} do not, {len(census.unknown)} were not settled."
    )
    return " ".join(parts)


def _how_to_rebuild(view: StudyView, best: Best | None, command: str) -> str:
    if best is None:
        return "There is nothing to rebuild yet."
    parts = []
    if best.files:
        parts.append(
            "The engine that was measured is in the folder engine of the results "
            f"({counted(len(best.files), 'file')}); it need not be rebuilt."
        )
    if command:
        parts.append("The command below builds, checks and times this route again.")
    elif view.imported is not None:
        parts.append("The route below goes into the compiler as it is.")
    return " ".join(parts) or "The route below goes into the compiler as it is."


def _command(view: StudyView, best: Best | None) -> str:
    if view.result is not None:
        return str(view.result["best"]["command"])
    if best is None or view.imported is not None or not view.settings.get("model"):
        return ""
    left_out = {"expr", "expr_file", "sampler", "out", "study", "storage", "resume"}
    settings = {k: v for k, v in view.settings.items() if k not in left_out}
    words = tune_command(settings)
    return shlex.join([*words, "--expr", best.route] if best.route else words)
