"""Waiting for a storage that is away for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from routewright.errors import StorageError
from routewright.storage import STORAGE_FAULTS, fault_line

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_TOLD_FROM_S = 1.0

T = TypeVar("T")


def patiently(
    action: Callable[[], T],
    what: str,
    *,
    is_over: Callable[[], bool],
    tell: Callable[[str], None],
) -> T:
    """Return what ``action`` returns, trying again in growing pauses while the storage is away.

    Args:
        action: Uses the storage; a second attempt must change nothing that the first one did.
        what: What it does, for messages.
        is_over: Whether to give up.
        tell: Hears that it takes longer.

    Raises:
        StorageError: The storage is away, and it is over.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return action()
        except STORAGE_FAULTS as error:
            if is_over():
                raise StorageError(f"cannot {what}: {fault_line(error)}") from error
            if pause_s > _TOLD_FROM_S:
                tell(f"waiting for the storage: {fault_line(error)}")
        # Workers that lost the storage together should not all come back at once.
        time.sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
