"""A study as one self-contained HTML file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from routewright.environment import versions
from routewright.records import Outcome, Phase, TrialRecord
from routewright.report.figures.study import Shown, study_figures
from routewright.report.page import (
    Markup,
    code,
    element,
    figure,
    folded,
    join,
    page,
    section,
    table,
    text,
)
from routewright.report.story import Status, Story, counted, model_name, number

MOST_ROWS = 100
"""Rows of a table that has one a trial or a setting; the rest are counted."""

_BADGES = {
    Status.FASTER: "good",
    Status.NO_GAIN: "plain",
    Status.RUNNING: "warn",
    Status.UNFINISHED: "warn",
    Status.IMPORTED: "plain",
    Status.COMPARED: "plain",
}


def study_html(
    story: Story, *, figures: Sequence[Shown] | None = None, paper: bool = False
) -> str:
    """Return the report of a study as one HTML file that needs no network.

    Args:
        story: What the study has to say.
        figures: Its figures, where they are drawn already.
        paper: Whether it is laid out for a sheet of paper.
    """
    parts = [
        _head(story),
        _cards(story),
        section("In short", _answers(story), _rebuild(story)),
    ]
    drawings = study_figures(story) if figures is None else figures
    if drawings:
        parts.append(
            section(
                "Figures", *(figure(shown.key, shown.figure, shown.caption) for shown in drawings)
            )
        )
    parts += [_candidates(story), _trials(story), _knobs(story), _circumstances(story)]
    title = f"{model_name(story.view)}: {story.headline}"
    # There is no version where the package runs from its sources without being installed.
    version = versions().get("routewright", "(not installed)")
    made = f"Study {story.view.name}. Written by Routewright {version}."
    return page(title, join(parts), footer=made, paper=paper)


def _head(story: Story) -> Markup:
    backend = story.view.identity.get("backend") or story.view.settings.get("backend") or ""
    over = f"{model_name(story.view)}, {backend}" if backend else model_name(story.view)
    return element(
        "header",
        join(
            [
                element("p", over, class_="over"),
                element("h1", story.headline),
                element("span", str(story.status), class_=f"badge {_BADGES[story.status]}"),
                element("p", story.reason),
            ]
        ),
    )


def _cards(story: Story) -> Markup:
    best, view = story.best, story.view
    cards = []
    if best is not None:
        interval = (
            "interval not known"
            if best.ci95 is None
            else f"95% interval {best.ci95[0]:.3f} to {best.ci95[1]:.3f}"
        )
        cards.append(("Relative latency", f"{best.relative_latency:.3f}", interval))
        if best.latency_ms is not None:
            beside = best.latency_ms / best.relative_latency if best.relative_latency else 0.0
            detail = f"the default route: {beside:.3f} ms" if best.route else "the default route"
            cards.append(("Latency", f"{best.latency_ms:.3f} ms", detail))
        if best.losses:
            name, loss = max(best.losses.items(), key=lambda item: item[1])
            bound = view.identity.get("bound") or {}
            limit = (bound.get("per_output") or {}).get(name, bound.get("threshold"))
            kind = bound.get("metric") or bound.get("loss") or "loss"
            cards.append((f"Largest loss ({kind})", number(loss), f"bound {number(limit)}"))
    timed = sum(r.outcome in (Outcome.TIMED, Outcome.SLOW) for r in view.records)
    cards.append(("Trials", f"{len(view.records):,}", f"{timed:,} timed"))
    budget = (view.result or {}).get("budget")
    if isinstance(budget, Mapping):
        limit_s = budget.get("limit_s")
        cards.append(("Time used", f"{_seconds(budget.get('used_s'))}", f"of {_seconds(limit_s)}"))
    elif view.used_s is not None:
        limit_s = view.settings.get("budget_s", 120.0)
        cards.append(("Time used", _seconds(view.used_s), f"of {_seconds(limit_s)}"))
    return element(
        "ul",
        join(
            element(
                "li",
                join(
                    [
                        element("span", name, class_="name"),
                        element("span", value, class_="value"),
                        element("span", detail, class_="detail"),
                    ]
                ),
            )
            for name, value, detail in cards
        ),
        class_="cards",
    )


def _answers(story: Story) -> Markup:
    return element(
        "dl",
        join(
            element("dt", question) + element("dd", answer) for question, answer in story.answers
        ),
        class_="answers",
    )


def _rebuild(story: Story) -> Markup:
    best = story.best
    if best is None:
        return Markup("")
    parts = [element("p", "Route", class_="label"), code(best.route or "(the default route)")]
    if story.command:
        parts += [element("p", "Command", class_="label"), code(story.command)]
    if best.files:
        parts.append(
            folded(
                "Files of the engine",
                table(
                    "",
                    ("file", "SHA-256"),
                    [(name, element("code", digest)) for name, digest in best.files.items()],
                ),
            )
        )
    return join(parts)


def _candidates(story: Story) -> Markup:
    confirmed = [r for r in story.view.records if r.phase is Phase.CONFIRMATION]
    if not confirmed:
        return Markup("")
    return section(
        "Confirmation",
        _trial_table(
            "Candidates built anew, each in a fresh process beside a fresh default engine",
            confirmed[:MOST_ROWS],
        ),
    )


def _trials(story: Story) -> Markup:
    records = story.view.records
    ranked = sorted(
        (
            r
            for r in records
            if r.outcome in (Outcome.TIMED, Outcome.SLOW) and r.phase is not Phase.CONFIRMATION
        ),
        key=lambda r: (r.relative_latency or 0.0, r.number),
    )
    outcomes = {outcome: sum(r.outcome is outcome for r in records) for outcome in Outcome}
    what = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items() if count)
    parts = [
        element("p", f"{counted(len(records), 'trial')}: {what}." if records else "None yet.")
    ]
    if ranked:
        parts.append(
            _trial_table(
                f"The {min(len(ranked), 15)} fastest of {len(ranked):,} timed trials", ranked[:15]
            )
        )
    if len(ranked) > 15:
        shown = ranked[15:MOST_ROWS]
        parts.append(
            folded(f"The next {len(shown)}", _trial_table("In order of relative latency", shown))
        )
    broken = [r for r in records if r.outcome is Outcome.INACCURATE]
    if broken:
        parts.append(
            folded(
                f"{counted(len(broken), 'trial')} broke the accuracy bound",
                _reason_table(broken, lambda r: r.reason),
            )
        )
    failed = [r for r in records if r.outcome is Outcome.FAILED and r.reused_from is None]
    if failed:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in story.failures.items())
        parts.append(
            folded(
                f"{counted(len(failed), 'trial')} failed: {kinds}",
                _reason_table(failed, lambda r: f"{r.failure}: {r.reason}"),
            )
        )
    return section("Trials", *parts)


def _reason_table(records: list[TrialRecord], told: Any) -> Markup:
    caption = "" if len(records) <= MOST_ROWS else f"The first {MOST_ROWS} of {len(records):,}"
    return table(
        caption,
        ("trial", "reason", "route"),
        [(str(r.number), told(r), _route(r.route)) for r in records[:MOST_ROWS]],
        numeric=(0,),
    )


def _trial_table(caption: str, records: list[TrialRecord]) -> Markup:
    return table(
        caption,
        ("trial", "relative latency", "95% interval", "ms", "largest loss", "route"),
        [
            (
                str(r.number),
                "" if r.relative_latency is None else f"{r.relative_latency:.3f}",
                "not known" if r.ci95 is None else f"{r.ci95[0]:.3f} to {r.ci95[1]:.3f}",
                "" if r.latency_ms is None else f"{r.latency_ms:.3f}",
                number(max(r.losses.values())) if r.losses else "",
                _route(r.route) if r.relative_latency is not None else text(r.reason),
            )
            for r in records
        ],
        numeric=(0, 1, 2, 3, 4),
    )


def _route(route: str) -> Markup:
    return element("code", _cut(route)) if route else text("(default)")


def _cut(route: str, most: int = 400) -> str:
    if len(route) <= most:
        return route
    tokens = route.split()
    kept: list[str] = []
    while tokens and sum(map(len, kept)) + len(kept) < most:
        kept.append(tokens.pop(0))
    return f"{' '.join(kept)} … and {len(tokens)} more"


def _knobs(story: Story) -> Markup:
    census, parts = story.census, []
    if story.effects:
        rows = [
            (
                element("code", e.setting),
                f"{e.ratio:.3f}",
                f"{e.ci95[0]:.3f} to {e.ci95[1]:.3f}",
                str(e.trials),
            )
            for e in sorted(story.effects, key=lambda e: (not e.clear, e.ratio, e.setting))
        ]
        parts.append(
            folded(
                f"Effects of {counted(len(rows), 'setting')}, clear ones first",
                table(
                    f"The first {MOST_ROWS} of {len(rows):,}" if len(rows) > MOST_ROWS else "",
                    ("setting", "factor", "95% interval", "timed trials"),
                    rows[:MOST_ROWS],
                    numeric=(1, 2, 3),
                ),
            )
        )
    for word, names, why in (
        ("live", census.live, "they change this model's engine"),
        ("inert", census.inert, "the engine stays the same"),
        ("not settled", census.unknown, "they were not tried alone"),
    ):
        if names:
            parts.append(
                folded(
                    f"{counted(len(names), 'knob')} {word}: {why}",
                    element("p", element("code", ", ".join(names))),
                )
            )
    return section("Knobs", *parts) if parts else Markup("")


def _circumstances(story: Story) -> Markup:
    view, result = story.view, story.view.result or {}
    environment = result.get("environment") or view.identity.get("environment") or {}
    model = result.get("model") or {}
    facts: list[tuple[str, Any]] = [
        ("model", model.get("path") or view.settings.get("model")),
        ("model SHA-256", model.get("sha256") or view.identity.get("model_sha256")),
        ("backend", view.identity.get("backend")),
        ("shapes", view.identity.get("shapes")),
        ("latency is", view.identity.get("latency")),
        ("sampler", view.settings.get("sampler")),
        ("seed", result.get("seed", view.identity.get("seed"))),
        ("study", view.name),
        ("storage", view.storage),
        ("ended because", result.get("stopped")),
    ]
    if view.imported:
        facts += [(f"imported {key}", value) for key, value in view.imported.items()]
    budget = result.get("budget") or {}
    facts += [
        (f"seconds of {name.removesuffix('_s')}", f"{value:.1f}")
        for name, value in budget.items()
        if isinstance(value, int | float) and name not in ("limit_s", "used_s")
    ]
    made_with = {**environment, **(result.get("versions") or view.identity.get("versions") or {})}
    parts = [_facts("", facts)]
    if story.notes:
        parts.append(
            element("ul", join(element("li", note) for note in story.notes), class_="notes")
        )
    if made_with:
        parts.append(
            folded(
                "Machine and versions that the result is valid for", _facts("", made_with.items())
            )
        )
    return section("Circumstances", *parts)


def _facts(caption: str, facts: Any) -> Markup:
    rows = [
        (name, value if isinstance(value, str) else json.dumps(value, default=str))
        for name, value in facts
        if value not in (None, "", {}, [])
    ]
    return table(caption, ("what", "value"), rows)


def _seconds(value: Any) -> str:
    return f"{value:,.0f} s" if isinstance(value, int | float) else "?"
