"""A comparison's summary as Markdown: what a reader, a note in a dashboard or a README takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from routewright.compare.sees import sees
from routewright.compare.statistics import Interval, Quantile, Ranking
from routewright.compare.summary import MAIN_TARGET, TARGETS, Lead, Standing, Summary
from routewright.records import Outcome

RULES = (
    "Every sampler gets the same works, seeds, baseline and trial rules: the cheapest veto first, "
    "timing that ends early for what is clearly no contender, the result of a known fingerprint "
    "or route reused. A build counts as one whatever came of it: a screening build, a failed one, "
    "one whose fingerprint turned out to be known; only a route tried before costs none. What a "
    "run would report is its fastest eligible trial as measured; its regret is how much slower "
    "than the fastest eligible route of the table that route truly is. Builds to a target: by "
    "then half of the runs would have reported a route within it; `> N` where fewer did."
)


def markdown(summary: Summary) -> str:
    """Return the whole summary."""
    plan = summary.plan
    planned = plan.repeats * len(plan.samplers) * len(plan.works)
    lines = [
        "# Comparison of search methods",
        "",
        f"{summary.runs} of {planned} runs: {len(plan.samplers)} samplers on {len(plan.works)} "
        f"{'work' if len(plan.works) == 1 else 'works'}, {plan.repeats} seeds from {plan.seed} "
        f"on, {plan.extent} each.",
        "",
        RULES,
        "",
        *_until(summary),
        *_order(summary),
        "## Mean ranks",
        "",
        *ranking_table(summary),
    ]
    if summary.leads:
        lines += ["", f"## Builds of `{plan.samplers[0]}` against the others", ""]
        lines += lead_table(summary)
    for work in plan.works:
        standings = summary.of(work)
        if standings:
            lines += ["", f"## {work}", ""]
            best = f"{summary.best[work]:.4f}"
            lines += [f"The fastest eligible route takes {best} of the default's time.", ""]
            lines += work_table(standings)
    lines += ["", "## What each sampler sees of trials that were not timed to the end", ""]
    lines += [f"* `{sampler}`: {sees(sampler)}" for sampler in plan.samplers]
    return "\n".join(lines) + "\n"


def ranking_table(summary: Summary) -> list[str]:
    """Return the lines of the table of mean ranks, with what they mean."""
    if not summary.by_regret.mean_ranks:
        return ["No seed was run with every sampler yet."]
    rows = [
        [
            f"`{sampler}`",
            _with_interval(summary.by_builds.mean_ranks[sampler]),
            _with_interval(interval),
        ]
        for sampler, interval in summary.by_regret.mean_ranks.items()
    ]
    table = table_lines(
        ["sampler", f"by builds to within {MAIN_TARGET:.0%}", "by regret at the end"], rows
    )
    return [
        *table,
        "",
        f"1 is best; 95% bootstrap intervals over seeds. By builds: {_tests(summary.by_builds)}. "
        f"By regret: {_tests(summary.by_regret)}. The intervals and tests speak of these works "
        "only.",
    ]


def work_table(standings: Sequence[Standing]) -> list[str]:
    """Return the lines of one work's table."""
    heads = [
        "sampler",
        "regret at the end (quartiles)",
        "best tried",
        *(f"builds to {target:.0%}" for target in TARGETS),
        f"seconds to {MAIN_TARGET:.0%}",
        "builds, trials",
        "infeasible",
        "failed",
        "screened",
        "reused",
        "ms a proposal",
    ]
    rows = [
        [
            f"`{standing.sampler}`",
            f"{_percent(standing.regret[1])} ({_percent(standing.regret[0])} to "
            f"{_percent(standing.regret[2])})",
            _percent(standing.tried_regret[1]),
            *(_counted(standing, target) for target in TARGETS),
            str(standing.seconds_to[MAIN_TARGET]),
            f"{standing.builds:.0f}, {standing.trials:.0f}",
            *(
                f"{standing.shares[outcome]:.0%}"
                for outcome in (
                    Outcome.INACCURATE,
                    Outcome.FAILED,
                    Outcome.SCREENED,
                    Outcome.REUSED,
                )
            ),
            f"{standing.proposal_ms:.1f}",
        ]
        for standing in standings
    ]
    return table_lines(heads, rows)


def lead_table(summary: Summary, target: float = MAIN_TARGET) -> list[str]:
    """Return the lines of the table that holds the first sampler against the others."""
    first, *others = summary.plan.samplers
    leads = {(lead.work, lead.other): lead for lead in summary.leads if lead.target == target}
    rows = []
    for work in summary.plan.works:
        here = [leads.get((work, other)) for other in others]
        known = next((lead for lead in here if lead is not None), None)
        if known is not None:
            rows.append([work, str(known.ours), *(_lead(lead) for lead in here)])
    heads = ["work", f"`{first}`", *(f"`{other}`" for other in others)]
    return [
        *table_lines(heads, rows),
        "",
        f"Median builds to within {target:.0%} of the fastest eligible route; in brackets the "
        f"first column over this one, with a 95% bootstrap interval over seeds.",
    ]


def _lead(lead: Lead | None) -> str:
    if lead is None:
        return ""
    return f"{lead.theirs} ({_ratio(lead)})"


def _ratio(lead: Lead) -> str:
    ours, theirs, ratio = lead.ours, lead.theirs, lead.ratio
    if ratio is None:
        return "no ratio"
    if theirs.is_bound:
        return f"below {ours.value / theirs.value:.2f}" if theirs.value else "no ratio"
    if ours.is_bound:
        return f"above {ours.value / theirs.value:.2f}"
    return f"{ratio.estimate:.2f}, {ratio_text(ratio.low)} to {ratio_text(ratio.high)}"


def _counted(standing: Standing, target: float) -> str:
    told: Quantile = standing.builds_to[target]
    share = standing.share_within[target]
    return f"{told} ({share:.0%} of runs)" if told.is_bound else str(told)


def _until(summary: Summary) -> list[str]:
    until = summary.plan.extent.until
    if until is None:
        return []
    return [
        f"A run ended once it was within {until:.1%} of the best route, so its regret at the end "
        "tells no more than whether it got there.",
        "",
    ]


def _order(summary: Summary) -> list[str]:
    if not summary.plan.shuffle_knobs:
        return []
    return ["Each seed had the knobs in an order of its own, the same for every sampler.", ""]


def _with_interval(interval: Interval) -> str:
    return f"{interval.estimate:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _tests(ranking: Ranking) -> str:
    told = [f"{ranking.blocks} pairs of work and seed"]
    if ranking.friedman_p is not None:
        p = "p < 0.0001" if ranking.friedman_p < 1e-4 else f"p = {ranking.friedman_p:.4f}"
        told.append(f"Friedman {p}")
    if ranking.critical_difference is not None:
        told.append(f"Nemenyi's critical difference {ranking.critical_difference:.2f}")
    return ", ".join(told)


def _percent(share: float) -> str:
    return f"{share:.1%}"


def ratio_text(value: float) -> str:
    """Return a ratio, or an end of its interval that may be open."""
    return f"{value:.2f}" if math.isfinite(value) else "any"


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose cells need no escaping."""
    return [
        f"| {' | '.join(heads)} |",
        f"|{' --- |' * len(heads)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
