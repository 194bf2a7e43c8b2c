"""``routewright routes``: list routes without building anything."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from routewright.cli.database import knob_database
from routewright.errors import SettingsError
from routewright.routes import Route, RouteExpression
from routewright.space import SearchSpace


def routes(
    expr: Annotated[
        str | None, typer.Option(help="Route expression, e.g. '-a=[on|off] -b=2'. Default: all.")
    ] = None,
    expr_file: Annotated[str | None, typer.Option(help="File with a route expression.")] = None,
    search: Annotated[
        str, typer.Option(help="fast: one knob changed at a time; full: every combination.")
    ] = "fast",
    limit: Annotated[int, typer.Option(min=0, help="Most routes to list; 0: all.")] = 0,
    model: Annotated[str | None, typer.Option(help="List the knobs as for this model.")] = None,
    database: Annotated[
        str | None, typer.Option(help="Knob database (JSON) instead of the backend's.")
    ] = None,
    backend: Annotated[str, typer.Option(help="Whose knobs.")] = "onnxruntime",
    shape: Annotated[list[str] | None, typer.Option(help="Input shape of --model.")] = None,
) -> int:
    """List the routes that a search would build, one a line, without building any."""
    knobs = knob_database(backend, model=model, database=database, shape=tuple(shape or ()))
    if expr is not None and expr_file is not None:
        raise SettingsError("--expr and --expr-file exclude each other; give one")
    if expr is not None:
        space = SearchSpace.from_expression(RouteExpression.parse(expr, knobs), knobs)
    elif expr_file is not None:
        from pathlib import Path

        space = SearchSpace.from_expression(
            RouteExpression.from_file(Path(expr_file), knobs), knobs
        )
    else:
        space = SearchSpace.whole(knobs)
    if search == "full":
        listed, total = space.enumerate(), space.size
    elif search == "fast":
        first = space.route({})
        changes = space.one_knob_changes(reverse_knobs=True)
        listed = itertools.chain([first], changes)
        total = 1 + sum(1 for _ in space.one_knob_changes(reverse_knobs=True))
    else:
        raise SettingsError(f"there is no search {search!r} to list; known: fast, full")
    shown = 0
    for route in itertools.islice(listed, limit or None):
        typer.echo(_line(route))
        shown += 1
    typer.echo(f"{shown} of {total} routes", err=True)
    for note in space.notes:
        typer.echo(f"note: {note}", err=True)
    return 0


def _line(route: Route) -> str:
    return str(route) or "(default route)"
