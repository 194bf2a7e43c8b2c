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
from routewright.cli import started
from routewright.cli.commands import application
from routewright.cli.secrets import arguments_without_secrets
from routewright.errors import RoutewrightError

INTERRUPTED = 130

# Newer Typers carry a Click of their own, so the class is found from what Typer itself exports.
_USAGE_ERROR: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


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
        words = sys.argv[1:] if arguments is None else list(arguments)
        code = application(words[0] if words else None)(args=words, standalone_mode=False)
        sys.stdout.flush()
    except RoutewrightError as error:
        return _complain(" ".join(str(error).split()), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", INTERRUPTED)
    except _USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
            return 2
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
