"""What a tuning tells while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from routewright.budget import Budget
from routewright.records import TrialRecord


class Progress:
    """Hears of everything and says nothing; a front end overrides what it wants to show."""

    def note(self, text: str) -> None:
        """Hear one line that a user should know."""

    def phase(self, name: str, detail: str = "") -> None:
        """Hear that a part of the work begins."""

    def trial_started(self, number: int, route: str, origin: str, budget: Budget) -> None:
        """Hear that a route is being tried."""

    def trial_finished(
        self, record: TrialRecord, best: TrialRecord | None, budget: Budget
    ) -> None:
        """Hear how a trial ended, and which is the best so far."""

    def finished(self, lines: Sequence[str]) -> None:
        """Hear the result, ready to print."""
