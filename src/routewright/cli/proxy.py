"""``routewright proxy``: serve a storage to many workers."""

from __future__ import annotations

from typing import Annotated

import typer

from routewright.cli.worker import STORAGE_VARIABLE
from routewright.fleet.proxy import serve


def proxy(
    storage: Annotated[
        str,
        typer.Option(envvar=STORAGE_VARIABLE, help="The database: postgresql://USER@HOST/NAME."),
    ],
    host: Annotated[
        str,
        typer.Option(
            help="Interface to listen on. Whoever reaches it may read and write every study: "
            "there is no password and no encryption."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 13000,
) -> int:
    """Serve a database to workers, which then need neither its password nor its driver.

    It is Optuna's gRPC storage proxy. It runs until it is interrupted.
    """

    def ready() -> None:
        typer.echo(f"serving at grpc://{host}:{port}")

    serve(storage, host=host, port=port, ready=ready)
    return 0
