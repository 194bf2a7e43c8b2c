"""Which commands there are and where each is; a command is imported when it is asked for.

A budget covers the whole command, so that none waits for the libraries of the others.
"""

from __future__ import annotations

import importlib

import typer

COMMANDS = {
    "tune": "tune:tune",
    "knobs": "knobs:knobs",
    "routes": "routes:routes",
    "show": "show:show",
    "report": "report:report",
    "dashboard": "dashboard:dashboard",
    "worker": "worker:worker",
    "group": "group:group",
    "proxy": "proxy:proxy",
    "compare": "compare:compare_samplers",
    "prior": "prior:app",
    "import": "import_study:app",
    "export": "export_study:app",
    "trtexec": "trtexec:trtexec",
}
"""Name of each command to its module here and what it is in there."""


def application(first: str | None) -> typer.Typer:
    """Return the command line: with one command where ``first`` names it, else with all."""
    app = typer.Typer(
        name="routewright",
        help="Find the fastest build route of an inference engine that still meets an accuracy "
        "bound, inside a wall-clock budget.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    # With a callback, a lone command still has to be named.
    app.callback()(lambda: None)
    for name in [first] if first in COMMANDS else COMMANDS:
        module_name, _, attribute = COMMANDS[name].partition(":")
        module = importlib.import_module(f"routewright.cli.{module_name}")
        command = getattr(module, attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        elif hasattr(module, "CONTEXT"):
            app.command(name, context_settings=module.CONTEXT, add_help_option=False)(command)
        else:
            app.command(name)(command)
    return app
