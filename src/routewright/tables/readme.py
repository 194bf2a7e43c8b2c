"""A table's data card in prose, made from ``card.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def data_card(card: Mapping[str, Any]) -> str:
    """Return the text of a table's ``README.md``."""
    model, recorded = card["model"], card.get("recorded", {})
    counts, repeated = card.get("counts", {}), card["repeatability"]
    predicted = card["prediction"]
    shapes = ", ".join(
        f"{name}:{'x'.join(map(str, shape))}" for name, shape in card["shapes"].items()
    )
    live = ", ".join(f"`{name}` ({_values(card, name)})" for name in card["live"])
    lines = [
        f"# Table {card['name']}",
        "",
        "Written by `scripts/record_table`; do not edit. Replay it with",
        f"`routewright tune studies/tables/{card['name']} --backend replay --budget 30m`.",
        "",
        "## What was measured",
        "",
        f"Model `{model['file']}` (SHA-256 `{model['sha256']}`), family "
        f"{card.get('family') or 'not given'}, at {shapes}. "
        f"{card.get('source') or 'Source and license were not given.'}",
        "",
        f"Backend {card['backend']}; latency: {card['metric']}; accuracy: "
        f"{card['bound']['loss']} at most {card['bound']['threshold']} against the model with "
        "every optimization off, on made-up inputs.",
        "",
        f"Every combination of {len(card['live'])} live knobs, {counts.get('routes', 0)} routes, "
        f"which gave {counts.get('engines', 0)} distinct engines; "
        f"{counts.get('failed', 0)} routes could not be built or run. "
        f"{counts.get('eligible', 0)} engines meet the bound. Crossed were: {live}.",
        "",
        f"{counts.get('inert', 0)} further knobs changed no engine of these and stay in the "
        f"space; {counts.get('left_out', 0)} that do were left out and are at their default.",
        "",
        f"The fastest eligible engine takes {counts.get('best', 1.0):.3f} of the default's time "
        f"({counts.get('default_ms', 0.0):.3f} ms): `{counts.get('best_route', '')}`.",
        "",
        "## How",
        "",
        "Routes in random order. Every route was built, and its outputs checked; each distinct "
        f"engine was timed once, in {card['plan']['pairs']} pairs of blocks of "
        f"{card['plan']['runs']} runs that alternate with the default engine in the same process. "
        "The numbers are the single runs.",
        "",
        *_list(_environment(card)),
        "",
        *([f"{recorded['conditions']}", ""] if recorded.get("conditions") else []),
        "## How far to trust it",
        "",
        f"{repeated['engines']} engines, drawn at random, were built and timed again at the end. "
        f"Their log relative latency differed by {repeated['median']:.2%} in the median, and by "
        f"at most {repeated['p95']:.2%} in 95% of them. From this, two builds of one route differ "
        f"by {repeated['instance_sd']:.2%} (standard deviation); replay draws it for every build.",
        "",
        f"Of {predicted['routes']} random routes over the whole space, inert knobs included, "
        f"that were really built, {predicted['right']} gave the engine that the table predicts.",
        "",
        "The relative latencies hold for this machine, these versions and this shape, and for no "
        "other. Where two engines differ by less than what repeats, their order is a guess.",
        "",
    ]
    return "\n".join(lines)


def _values(card: Mapping[str, Any], name: str) -> str:
    for option in card["database"]["tuner_options"]:
        if option["option"] == name:
            return str(option["allowed_values"]).partition("=")[2].strip("[]").replace("|", ", ")
    return ""


def _environment(card: Mapping[str, Any]) -> list[str]:
    told = {**card["environment"], **card.get("versions", {})}
    return [f"{key}: {value}" for key, value in told.items() if not key.endswith("_now")]


def _list(lines: list[str]) -> list[str]:
    return [f"* {line}" for line in lines]
