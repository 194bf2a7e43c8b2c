"""Search methods, one file each, found by name in :mod:`routewright.search.registry`."""
