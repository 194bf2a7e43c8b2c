"""When the command started."""

from __future__ import annotations

from contextvars import ContextVar

AT_S: ContextVar[float | None] = ContextVar("started_at_s", default=None)
"""Reading of the monotonic clock at which the process started; None where it runs more than us."""
