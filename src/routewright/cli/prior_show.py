"""``routewright prior show``: what a prior says, setting by setting."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from routewright.errors import SettingsError
from routewright.priors.evidence import Evidence
from routewright.priors.explanation import describe_belief, describe_source, factor_interval
from routewright.priors.families import families_of
from routewright.priors.files import PriorError
from routewright.priors.learning import Belief, Beliefs
from routewright.priors.overview import overview
from routewright.priors.store import AUTO, load
from routewright.report.figures.image import write_html, write_png
from routewright.report.figures.prior import prior_figure
from routewright.tensors import did_you_mean


def show(
    prior: Annotated[
        str,
        typer.Argument(help="File or folder; auto: what `tune --prior auto` chooses from."),
    ] = AUTO,
    family: Annotated[
        str, typer.Option(help="Only sources of this family. Default: all together.")
    ] = "",
    backend: Annotated[
        str, typer.Option(help="Only sources of this backend. Default: the most frequent one.")
    ] = "",
    knob: Annotated[
        str, typer.Option(help="Explain one knob: where each number comes from.")
    ] = "",
    figure: Annotated[
        str, typer.Option(help="Also draw the effects into this .html or .png file.")
    ] = "",
    top: Annotated[int, typer.Option(help="How many settings to list.", min=1)] = 25,
) -> int:
    """Print what a prior says: each setting's effect with 95% interval, and its sources."""
    loaded = load(prior)
    if not loaded.sources:
        raise PriorError(
            "there is nothing in the prior yet; learn from a study with `routewright prior learn`"
        )
    families = families_of(loaded.sources)
    sources = [s for s in loaded.sources if not family or families.get(s.origin.name) == family]
    if not sources:
        known = sorted(set(families.values()))
        raise SettingsError(
            f"no source is of the family {family!r}{did_you_mean(family, known)}; there are: "
            f"{', '.join(known) or 'none'}"
        )
    beliefs = overview(sources, backend=backend)
    console = Console(highlight=False)
    _print_sources(console, beliefs, families)
    if knob:
        _explain(console, beliefs, knob)
    else:
        _print_effects(console, beliefs, top)
    if figure:
        drawn = prior_figure(beliefs, top=top)
        path = Path(figure)
        if path.suffix.lower() == ".png":
            write_png(drawn, path)
        else:
            write_html(drawn, path)
        console.print(f"drawn into {figure}", markup=False)
    return 0


def _print_sources(console: Console, beliefs: Beliefs, families: dict[str, str]) -> None:
    by_family: dict[str, list[Evidence]] = {}
    for source in beliefs.choice.used:
        name = families.get(source.evidence.origin.name, "unknown")
        by_family.setdefault(name, []).append(source.evidence)
    count = len(beliefs.choice.used)
    console.print(
        Text(f"{count} {'source' if count == 1 else 'sources'} ({beliefs.target.backend}):")
    )
    for name, sources in sorted(by_family.items()):
        told = ", ".join(f"{s.origin.name} ({s.trials} trials, key {s.key})" for s in sources)
        console.print(Text(f"  {name}: {told}"), soft_wrap=True)


def _print_effects(console: Console, beliefs: Beliefs, top: int) -> None:
    timed = [b for b in beliefs.settings.values() if b.effect is not None]
    ranked = sorted(timed, key=_clearest_first)
    table = Table(title=f"{min(len(ranked), top)} of {len(ranked)} settings timed")
    table.add_column("setting", overflow="fold", min_width=30)
    for heading in ("factor", "95% interval", "live", "loss", "fails", "sources"):
        table.add_column(heading, justify="right")
    for belief in ranked[:top]:
        low, middle, high = factor_interval(belief)
        clear = high < 1 or low > 1
        table.add_row(
            Text(belief.setting, style="bold" if clear else ""),
            f"{middle:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{belief.live:.2f}",
            "" if belief.loss is None else f"{10**belief.loss.mean:.0e}",
            f"{belief.fails:.2f}",
            str(belief.effect.studies if belief.effect else 0),
        )
    console.print(table)
    for (first, second), pooled in beliefs.pairs.items():
        console.print(
            Text(
                f"together, {first} and {second} differ from the sum of both by "
                f"{pooled.mean:+.3f} ± {1.96 * pooled.sd:.3f} in log latency"
            )
        )


def _clearest_first(belief: Belief) -> tuple[bool, float]:
    low, middle, high = factor_interval(belief)
    return (low <= 1 <= high, -abs(middle - 1.0))


def _explain(console: Console, beliefs: Beliefs, knob: str) -> None:
    names = sorted({b.knob for b in beliefs.settings.values()})
    wanted = knob if knob in names else f"-{knob}"
    if wanted not in names:
        raise SettingsError(f"the prior knows no knob {knob!r}{did_you_mean(wanted, names)}")
    for belief in beliefs.settings.values():
        if belief.knob == wanted:
            for line in describe_belief(belief):
                console.print(Text(line), soft_wrap=True)
    for source in beliefs.choice.used:
        console.print(Text(describe_source(source)), soft_wrap=True)
