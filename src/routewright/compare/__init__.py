"""Search methods against each other on the same work, with the same seeds and rules.

:mod:`~routewright.compare.plan` says what is compared, :mod:`~routewright.compare.run` carries out
one run, :mod:`~routewright.compare.runner` all of them, :mod:`~routewright.compare.measures` holds
each run against the work's truth, and :mod:`~routewright.compare.summary` puts them side by side.
"""
