"""``routewright import``: other tuners' caches as studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from routewright.interop.formats import CacheFormat
from routewright.interop.importing import import_cache
from routewright.interop.torch_tensorrt import TORCH_TENSORRT
from routewright.interop.trtexec import TRTEXEC

app = typer.Typer(
    help="Read another tuner's cache into a study, to look at and to learn from. Its numbers are "
    "never mixed with measured ones.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Cache = Annotated[str, typer.Argument(metavar="CACHE", help="The tuning cache (JSON lines).")]
Storage = Annotated[str, typer.Option(help="Optuna storage URL that the study goes to.")]
Study = Annotated[str | None, typer.Option(help="Name of the study. Default: after the cache.")]
Model = Annotated[str | None, typer.Option(help="The ONNX file that was tuned, for its digest.")]
Device = Annotated[
    str | None, typer.Option(help="What it was tuned on; the cache does not say it.")
]


@app.command("trtexec")
def import_trtexec(
    cache: Cache,
    storage: Storage,
    study: Study = None,
    model: Model = None,
    device: Device = None,
) -> int:
    """Read a cache of trtexec (--tuningCacheFile)."""
    return _import(TRTEXEC, cache, storage, study, model, device)


@app.command("torch-tensorrt")
def import_torch_tensorrt(
    cache: Cache,
    storage: Storage,
    study: Study = None,
    model: Model = None,
    device: Device = None,
) -> int:
    """Read a cache of Torch-TensorRT (tuning_cache_file), one file for each partition."""
    return _import(TORCH_TENSORRT, cache, storage, study, model, device)


def _import(
    cache_format: CacheFormat,
    cache: str,
    storage: str,
    study: str | None,
    model: str | None,
    device: str | None,
) -> int:
    report = import_cache(
        Path(cache),
        storage,
        cache_format,
        study=study,
        model=None if model is None else Path(model),
        device=device,
    )
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(report.outcomes.items()))
    typer.echo(f"{report.rows} rows of {cache} are now the study {report.study!r}: {told}")
    for note in report.notes:
        typer.echo(f"note: {note}", err=True)
    return 0
