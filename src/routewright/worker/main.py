"""Entry point of a worker: ``python -m routewright.worker.main OWNER_PID REQUESTS ANSWERS``.

Started by :class:`routewright.worker.process.WorkerProcess` only; the last two arguments are file
descriptors of pipes that it inherits.
"""

from __future__ import annotations

import os
import sys

from routewright.worker.supervisor import supervise


def main() -> None:
    """Split into supervisor and worker, and serve until the parent closes or goes."""
    owner_pid, requests, answers = (int(text) for text in sys.argv[1:4])
    supervise(owner_pid, (requests, answers))
    # Not before: the supervisor stays small and without threads, and numerical libraries start
    # theirs when they are imported.
    from routewright.worker.service import serve

    serve(requests, answers)
    sys.stdout.flush()
    sys.stderr.flush()
    # Some compilers crash while the interpreter takes them down; everything is closed already.
    os._exit(0)


if __name__ == "__main__":
    main()
