"""``routewright prior learn`` and ``remove``: sources in, sources out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from routewright.cli.prior_sources import FORMATS, evidence_in
from routewright.interop.trtexec import TRTEXEC
from routewright.priors.evidence import Evidence
from routewright.priors.files import merged, read_prior, remove_sources, write_prior
from routewright.priors.store import user_folder

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Output folders, Optuna storages, recorded tables, tuning caches, or priors.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option(
        help="File (NAME.prior.json) or folder to add to. Default: your own folder, which "
        "`tune --prior auto` reads."
    ),
]


def learn(
    sources: Sources,
    out: Out = None,
    family: Annotated[
        str, typer.Option(help="Name of the models' family. Default: told by what they are like.")
    ] = "",
    study: Annotated[
        list[str] | None, typer.Option(help="Study to take from a storage. Default: all.")
    ] = None,
    cache_format: Annotated[
        str, typer.Option("--format", help=f"Format of caches: {', '.join(FORMATS)}.")
    ] = TRTEXEC.name,
) -> int:
    """Learn from finished studies; a source that was learned from before is learned anew."""
    target = user_folder() if out is None else Path(out).expanduser()
    found = [
        evidence
        for source in sources
        for evidence in evidence_in(
            source, studies=study or (), family=family, cache_format=cache_format
        )
    ]
    before = read_prior(target) if target.suffix == ".json" and target.exists() else []
    write_prior(target, merged([*before, *found]))
    for evidence in found:
        typer.echo(f"learned from {_described(evidence)}")
    typer.echo(f"written to {target}")
    return 0


def remove(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Names or keys.")],
    prior: Annotated[str | None, typer.Option(help="The prior. Default: your own folder.")] = None,
) -> int:
    """Take sources out of a prior again; what the others say stays as it was."""
    target = user_folder() if prior is None else Path(prior).expanduser()
    for evidence in remove_sources(target, sources):
        typer.echo(f"removed {evidence.origin.name} ({evidence.key})")
    return 0


def _described(evidence: Evidence) -> str:
    settings = evidence.settings
    timed = int((settings["timed"] > 0).sum())
    clear = int((settings["effect"].abs() > 1.96 * settings["effect_se"]).sum())
    live = settings.loc[settings["live"] == 1, "knob"].nunique()
    inert = settings.loc[settings["live"] == 0, "knob"].nunique()
    return (
        f"{evidence.origin.name}: {evidence.trials} trials, {timed} settings timed of which "
        f"{clear} with a clear effect, {live} knobs live and {inert} inert, "
        f"{len(evidence.pairs)} interactions"
    )
