"""A study as Markdown: for pull requests, and for the note that Optuna's dashboard shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from routewright.environment import identifying
from routewright.records import Outcome, Phase
from routewright.report.story import Status, Story, accuracy, bound_text, model_name, number

_MOST_ROWS = 5


def study_markdown(story: Story) -> str:
    """Return what a pull request needs: the answers, the best routes, how to rebuild."""
    view, best = story.view, story.best
    lines = [f"## {escape(model_name(view))}: {escape(story.headline)}", ""]
    if story.reason:
        lines += [escape(story.reason), ""]
    lines += [*markdown_table(("question", "answer"), story.answers), ""]
    if best is not None:
        lines += ["Route:", "", *fenced(best.route or "(the default route)"), ""]
    if story.command:
        lines += ["Measure it again:", "", *fenced(story.command), ""]
    rows = _fastest(story)
    if rows:
        headings = ("trial", "relative latency", "95% interval", "largest loss", "route")
        lines += ["<details><summary>Fastest trials</summary>", ""]
        lines += [*markdown_table(headings, rows), "", "</details>", ""]
    environment = (view.result or {}).get("environment") or view.identity.get("environment") or {}
    facts = [
        (name, value) for name, value in identifying(environment).items() if value is not None
    ]
    if facts:
        lines += ["<details><summary>Valid for this machine and these versions</summary>", ""]
        lines += [*markdown_table(("what", "value"), facts), "", "</details>", ""]
    lines += [f"- {escape(note)}" for note in story.notes]
    return "\n".join(lines).rstrip() + "\n"


def study_note(story: Story, *, updated: str = "") -> str:
    """Return the note that the dashboard shows at the study.

    Args:
        story: What the study has to say so far.
        updated: When it was written, in words; empty: not said.
    """
    view, best = story.view, story.best
    settings = view.settings
    lines = [f"# {escape(story.headline)}", ""]
    status = {
        Status.FASTER: "confirmed faster than the default route",
        Status.NO_GAIN: "finished: no gain beyond doubt",
        Status.RUNNING: "running",
        Status.UNFINISHED: "ended without a result",
        Status.IMPORTED: "imported from another tuner",
        Status.COMPARED: "a run of a comparison",
    }[story.status]
    environment = view.identity.get("environment") or {}
    where = [f"{name} {value}" for name, value in environment.items() if name in _WHERE and value]
    budget = (view.result or {}).get("budget", {})
    used_s = budget.get("used_s", view.used_s)
    limit_s = budget.get("limit_s", settings.get("budget_s"))
    facts: list[tuple[str, Any]] = [
        ("status", f"{status}{f' ({updated})' if updated else ''}"),
        ("model", model_name(view)),
        ("environment", "; ".join([str(view.identity.get("backend", "")), *where])),
        ("bound", bound_text(view.identity)),
        ("budget", f"{_seconds(used_s)} of {_seconds(limit_s)} used"),
        ("trials", _counts(story)),
    ]
    if best is not None:
        interval = "" if best.ci95 is None else f" ({best.ci95[0]:.3f} to {best.ci95[1]:.3f})"
        sure = "" if best.confirmed else ", not confirmed"
        facts.append(("relative latency", f"{best.relative_latency:.3f}{interval}{sure}"))
        facts.append(("accuracy", accuracy(view, best)))
    lines += [*markdown_table(("what", "value"), facts), ""]
    if best is not None:
        lines += ["Best route:", "", *fenced(best.route or "(the default route)"), ""]
    if story.command:
        lines += ["Measure it again:", "", *fenced(story.command), ""]
    lines += [f"- {escape(note)}" for note in story.notes]
    return "\n".join(lines).rstrip() + "\n"


_WHERE = ("device", "cpu", "cores", "driver", "onnxruntime", "tensorrt", "tensorrt_rtx", "machine")


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a table; every cell is escaped."""
    lines = [f"| {' | '.join(map(escape, headings))} |", f"|{' --- |' * len(headings)}"]
    return lines + [f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows]


def escape(content: object) -> str:
    """Return plain text on one line as Markdown that shows it literally."""
    text = " ".join(str(content).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Underscores and stars inside names, brackets of lists, and what would be a table's border.
    return re.sub(r"([\\`*_\[\]|#~!$])", r"\\\1", text)


def fenced(content: str) -> list[str]:
    """Return the lines of a code block that nothing in ``content`` can end."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *content.splitlines(), fence]


def _fastest(story: Story) -> list[tuple[str, ...]]:
    timed = [
        r
        for r in story.view.records
        if r.outcome is Outcome.TIMED and r.relative_latency is not None and r.route
    ]
    timed.sort(key=lambda r: (r.phase is not Phase.CONFIRMATION, r.relative_latency or 0.0))
    return [
        (
            f"{r.number}{' (confirmation)' if r.phase is Phase.CONFIRMATION else ''}",
            f"{r.relative_latency:.3f}",
            "not known" if r.ci95 is None else f"{r.ci95[0]:.3f} to {r.ci95[1]:.3f}",
            number(max(r.losses.values())) if r.losses else "",
            r.route if len(r.route) <= 200 else f"{r.route[:200]} …",
        )
        for r in timed[:_MOST_ROWS]
    ]


def _counts(story: Story) -> str:
    outcomes = [r.outcome for r in story.view.records]
    told = [f"{outcomes.count(o):,} {o}" for o in Outcome if o in outcomes]
    return f"{len(outcomes):,}: {', '.join(told)}" if told else "none yet"


def _seconds(value: Any) -> str:
    return f"{value:,.0f} s" if isinstance(value, int | float) else "unknown"
