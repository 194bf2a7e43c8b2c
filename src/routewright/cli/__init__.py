"""The command line: one small file for each command, and what they share."""

from routewright.cli.main import console, main

__all__ = ["console", "main"]
