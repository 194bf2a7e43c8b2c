"""A study on one screen of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from routewright.records import Outcome, Phase, TrialRecord
from routewright.report.effects import Effect
from routewright.report.story import Status, Story

_MOST_TRIALS = 8
_MOST_EFFECTS = 8


def show_story(console: Console, story: Story) -> None:
    """Print what a study has to say, its fastest trials and its clearest effects."""
    show_answers(console, story)
    if not story.view.records:
        console.print(Text("no trial yet: the default route was not measured to the end"))
    else:
        show_trials(console, story.view.records)
        show_effects(console, story.effects)


def show_answers(console: Console, story: Story) -> None:
    """Print the answers: how much faster, how sure, at what accuracy, which knobs, rebuilding."""
    view = story.view
    told = {
        Status.RUNNING: "no result yet: the study is running",
        Status.UNFINISHED: "no result yet: the study was interrupted or killed",
        Status.IMPORTED: "imported",
        Status.COMPARED: "a run of a comparison",
    }.get(story.status, str(story.status))
    console.print(Text(f"verdict: {told}", style="bold"))
    console.print(Text(f"{story.headline}. {story.reason}"), soft_wrap=True)
    for question, answer in story.answers[:4]:
        console.print(Text.assemble((f"{question} ", "bold"), answer), soft_wrap=True)
    if story.best is not None:
        route = story.best.route or "(the default route)"
        console.print(Text(f"route: {route}"), soft_wrap=True)
    if story.command:
        console.print(Text(f"again: {story.command}"), soft_wrap=True)
    budget = (view.result or {}).get("budget")
    if budget:
        told = f"budget: {budget['used_s']:.0f} of {budget['limit_s']:g} s"
        # Results of before this was counted do not have it.
        if budget.get("saved_s", 0.0) >= 1:
            told += f"; giving slow candidates up early saved about {budget['saved_s']:.0f} s"
        console.print(Text(told))
    for kind, count in story.failures.items():
        console.print(Text(f"failed: {count} ({kind})"))
    for note in story.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)


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


def show_effects(console: Console, effects: Sequence[Effect]) -> None:
    """Print what each knob setting does to the latency, clear effects first."""
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
