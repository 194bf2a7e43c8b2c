"""The child process that builds, checks and times, and its owner's side of it.

Start at :class:`routewright.worker.client.Worker`. Nothing is imported here: the child's
supervisor must start with next to nothing loaded.
"""
