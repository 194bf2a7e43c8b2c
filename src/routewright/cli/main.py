"""Entry point: finds the command, turns what a user can mend into one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import optuna
import typer

from routewright.budget import process_started_s
from routewright.cli import (
    compare,
    dashboard,
    export_study,
    group,
    import_study,
    knobs,
    prior,
    proxy,
    report,
    routes,
    show,
    started,
    trtexec,
    tune,
    worker,
)
from routewright.cli.secrets import arguments_without_secrets
from routewright.errors import RoutewrightError

INTERRUPTED = 130

# Newer Typers carry a Click of their own, so the class is found from what Typer itself exports.
_USAGE_ERROR: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)

app = typer.Typer(
    name="routewright",
    help="Find the fastest build route of an inference engine that still meets an accuracy "
    "bound, inside a wall-clock budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("tune")(tune.tune)
app.command("knobs")(knobs.knobs)
app.command("routes")(routes.routes)
app.command("show")(show.show)
app.command("report")(report.report)
app.command("dashboard")(dashboard.dashboard)
app.command("worker")(worker.worker)
app.command("group")(group.group)
app.command("proxy")(proxy.proxy)
app.command("compare")(compare.compare_samplers)
app.add_typer(prior.app, name="prior")
app.add_typer(import_study.app, name="import")
app.add_typer(export_study.app, name="export")
app.command("trtexec", context_settings=trtexec.CONTEXT, add_help_option=False)(trtexec.trtexec)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: done, gain or not. 2: something the user can mend, said in one line. 3: not even the
    default route meets the bound. 130: interrupted.
    """
    # Optuna logs every study it makes; what a user should know is said by the commands.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # A job manager's request to end is a user's Ctrl-C: end cleanly, keep what was measured.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(args=arguments, standalone_mode=False)
        sys.stdout.flush()
    except RoutewrightError as error:
        return _complain(" ".join(str(error).split()), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", INTERRUPTED)
    except _USAGE_ERROR as error:
        return _complain(" ".join(error.format_message().split()).rstrip("."), 2)
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        # The reader of our output went away, for example ``| head``; at exit, Python would
        # complain about what it still has to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def console() -> None:
    """Run the command line of this process and end it with the exit code."""
    # A budget covers the whole command, the interpreter's own start included.
    started.AT_S.set(process_started_s())
    sys.exit(main(arguments_without_secrets()))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _complain(message: str, code: int) -> int:
    print(f"error: {message}" if code != INTERRUPTED else message, file=sys.stderr)
    return code
