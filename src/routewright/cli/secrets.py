"""Keeping passwords on the command line out of what other users of the machine can see."""

from __future__ import annotations

import json
import os
import sys

from routewright.storage import redact

_VARIABLE = "ROUTEWRIGHT_ARGUMENTS"


def arguments_without_secrets() -> list[str] | None:
    """Return the command's arguments where they hold a password, else None.

    The list of processes shows everybody a command's arguments. So a command that was given a
    password starts itself anew with ``***`` in its place, and the arguments in an environment
    variable, which only this user can read and which is removed at once. For the moment before
    that the password was to be seen: ``~/.pgpass`` or ``ROUTEWRIGHT_STORAGE`` are better places.
    """
    kept = os.environ.pop(_VARIABLE, None)
    if kept is not None:
        return [str(argument) for argument in json.loads(kept)]
    shown = [redact(argument) for argument in sys.argv[1:]]
    if shown == sys.argv[1:] or len(sys.orig_argv) < len(sys.argv):
        return None
    before = sys.orig_argv[: len(sys.orig_argv) - len(shown)]
    os.environ[_VARIABLE] = json.dumps(sys.argv[1:])
    os.execv(sys.executable, [*before, *shown])
    raise AssertionError("unreachable: another program runs now")
