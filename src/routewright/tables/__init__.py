"""Tables: everything that was measured of a space of routes on a real model, once.

:class:`Table` answers what a route was measured to be; :mod:`routewright.replay` replays it as a
workbench. A table is a folder of ``card.json``, ``table.npz`` and ``README.md``.
"""

from routewright.tables.entries import Entry, TableError
from routewright.tables.measurements import NOTHING, Measurements
from routewright.tables.table import Table

__all__ = ["NOTHING", "Entry", "Measurements", "Table", "TableError"]
