"""``routewright dashboard``: Optuna's dashboard on studies, with their artifacts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from routewright.errors import StorageError
from routewright.report.source import storage_of_folder
from routewright.storage import (
    HIDDEN,
    is_storage,
    open_storage,
    redact,
    sqlite_url,
    storage_url,
)

_DEFAULT_PARENT = Path("routewright-out")


def dashboard(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR|STORAGE",
            help="Output folder, or storage URL; by default the newest folder in routewright-out.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. The dashboard has no authentication: who reaches it can "
            "read, change and delete the studies."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Port; by default the first free one from 8080 on.")
    ] = None,
    artifacts: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of artifacts, where a study's own was moved; may be repeated."),
    ] = None,
) -> int:
    """Show studies in Optuna's dashboard until Ctrl-C; they may still be running."""
    # Only here: other commands need no web server.
    from routewright.report.dashboard import Dashboard, is_loopback

    url, folder = find_storage(source)
    storage = open_storage(url, existing=True)
    with Dashboard(
        storage, folder=folder, artifacts=tuple(artifacts or ()), host=host, port=port
    ) as server:
        if not is_loopback(host):
            print(
                f"warning: {host} can be reached from other machines, and the dashboard has no "
                "authentication: who reaches it can read, change and delete the studies",
                file=sys.stderr,
            )
        print(f"{server.address} shows {redact(url)}; Ctrl-C ends it", flush=True)
        try:
            server.serve()
        except KeyboardInterrupt:
            print("ended", file=sys.stderr)
    return 0


def find_storage(source: str | None) -> tuple[str, Path | None]:
    """Return the storage's URL and the output folder that it was found in, if any."""
    if source is None:
        folder = _newest(_DEFAULT_PARENT)
    elif is_storage(source):
        return source, _beside(source)
    elif os.path.isdir(source):
        folder = Path(source)
    else:
        raise StorageError(f"there is no folder {source}; name an output folder or a storage URL")
    url = _url_in(folder)
    if HIDDEN in url:
        raise StorageError(
            f"the study lies in {url}, and passwords are not kept: name that storage, with its "
            "password, instead of the folder"
        )
    return url, folder


def _beside(source: str) -> Path | None:
    """Return the folder of a storage that is a file: a tuning's artifacts lie beside it."""
    scheme, _, file = storage_url(source).partition(":///")
    return Path(file).parent if scheme in ("sqlite", "journal") else None


def _url_in(folder: Path) -> str:
    databases = sorted(folder.glob("*.db"))
    if len(databases) == 1:
        return sqlite_url(databases[0])
    place = storage_of_folder(folder)
    if place is None:
        raise StorageError(
            f"{folder} has no trial yet: the default route was not measured to the end"
        )
    return place[0]


def _newest(parent: Path) -> Path:
    folders = [path for path in parent.glob("*") if (path / "study.json").exists()]
    if not folders:
        raise StorageError(
            f"there is no study in {parent.absolute()}; name an output folder or a storage URL"
        )
    return max(folders, key=lambda path: (path / "study.json").stat().st_mtime)
