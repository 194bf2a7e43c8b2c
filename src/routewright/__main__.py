"""``python -m routewright``."""

from routewright.cli import console

console()
