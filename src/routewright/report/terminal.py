"""A study on one screen of a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from routewright.records import Outcome, Phase, TrialRecord
from routewright.report.effects import knob_effects

_MOST_TRIALS = 15
_MOST_EFFECTS = 12


def show_result(console: Console, result: Mapping[str, Any]) -> None:
    """Print a result as its ``result.json`` holds it."""
    best, baseline = result["best"], result["baseline"]
    low, high = best["ci95"]
    console.print(Text(f"verdict: {result['verdict']}", style="bold"))
    console.print(Text(result["reason"]))
    console.print(Text(f"baseline: {baseline['latency_ms']:.3f} ms ({result['metric']})"))
    if best["route"]:
        console.print(
            Text(
                f"best: {best['latency_ms']:.3f} ms, {best['relative_latency']:.3f} of the "
                f"default's time (95% interval {low:.3f} to {high:.3f})"
            )
        )
    console.print(Text(f"route: {best['route'] or '(the default route)'}"), soft_wrap=True)
    bound = result["bound"]
    losses = ", ".join(f"{name} {loss:.3g}" for name, loss in list(best["losses"].items())[:5])
    console.print(
        Text(f"accuracy: {bound['loss']} at most {bound['threshold']}; measured: {losses}")
    )
    budget, trials = result["budget"], result["trials"]
    console.print(
        Text(
            f"budget: {budget['used_s']:.0f} of {budget['limit_s']:g} s; "
            + ", ".join(f"{count} {name}" for name, count in trials.items() if count)
        )
    )
    knobs = result["knobs"]
    console.print(
        Text(
            f"knobs: {knobs['searchable']} searched, {knobs['live']} live, {knobs['inert']} "
            f"inert, {knobs['unknown']} unknown"
        )
    )
    console.print(Text(f"again: {best['command']}"), soft_wrap=True)
    for note in result["notes"]:
        console.print(Text(f"note: {note}"))


def show_trials(console: Console, records: Sequence[TrialRecord]) -> None:
    """Print the timed trials, fastest first, and how many others there are."""
    timed = sorted(
        (r for r in records if r.outcome in (Outcome.TIMED, Outcome.SLOW)),
        key=lambda r: (r.relative_latency or 0.0, r.number),
    )
    table = Table(title=f"{min(len(timed), _MOST_TRIALS)} of {len(timed)} timed trials")
    for heading, justify in (("trial", "right"), ("phase", "left"), ("relative", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("95% interval")
    table.add_column("ms", justify="right")
    table.add_column("route", overflow="fold")
    for record in timed[:_MOST_TRIALS]:
        table.add_row(
            str(record.number),
            str(record.phase) if record.phase is not Phase.SEARCH else "",
            f"{record.relative_latency:.3f}",
            "unknown" if record.ci95 is None else f"{record.ci95[0]:.3f} to {record.ci95[1]:.3f}",
            f"{record.latency_ms:.3f}",
            Text(record.route or "(default)"),
        )
    console.print(table)
    failed = [r for r in records if r.outcome is Outcome.FAILED and r.reused_from is None]
    for record in failed[:3]:
        console.print(Text(f"trial {record.number} failed ({record.failure}): {record.reason}"))
    if len(failed) > 3:
        console.print(Text(f"... and {len(failed) - 3} more failed"))


def show_effects(console: Console, records: Sequence[TrialRecord]) -> None:
    """Print what each knob setting does to the latency, clear effects first."""
    effects = knob_effects(records)
    if not effects:
        return
    ranked = sorted(effects, key=lambda e: (not e.clear, e.ratio))
    table = Table(title=f"{min(len(ranked), _MOST_EFFECTS)} of {len(ranked)} knob settings timed")
    table.add_column("setting")
    table.add_column("factor", justify="right")
    table.add_column("95% interval")
    table.add_column("trials", justify="right")
    for effect in ranked[:_MOST_EFFECTS]:
        table.add_row(
            Text(effect.setting, style="bold" if effect.clear else ""),
            f"{effect.ratio:.3f}",
            f"{effect.ci95[0]:.3f} to {effect.ci95[1]:.3f}",
            str(effect.trials),
        )
    console.print(table)
