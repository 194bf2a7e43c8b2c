"""What a tuning tells while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from routewright.budget import Budget
from routewright.outfolder import OutFolder
from routewright.records import TrialRecord
from routewright.result import TuneResult
from routewright.study import StudyLog


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

    def study_opened(self, log: StudyLog, out: OutFolder) -> None:
        """Hear that the study exists, before its first trial is committed."""

    def result_written(self, result: TuneResult, budget: Budget) -> None:
        """Hear that the result is on disk; the study is still open."""

    def finished(self, lines: Sequence[str]) -> None:
        """Hear the result, ready to print."""


class Forwarding(Progress):
    """Passes everything on; the base of what listens in.

    Args:
        inner: What it is passed on to.
    """

    def __init__(self, inner: Progress) -> None:
        self._inner = inner

    def note(self, text: str) -> None:
        """Pass it on."""
        self._inner.note(text)

    def phase(self, name: str, detail: str = "") -> None:
        """Pass it on."""
        self._inner.phase(name, detail)

    def trial_started(self, number: int, route: str, origin: str, budget: Budget) -> None:
        """Pass it on."""
        self._inner.trial_started(number, route, origin, budget)

    def trial_finished(
        self, record: TrialRecord, best: TrialRecord | None, budget: Budget
    ) -> None:
        """Pass it on."""
        self._inner.trial_finished(record, best, budget)

    def study_opened(self, log: StudyLog, out: OutFolder) -> None:
        """Pass it on."""
        self._inner.study_opened(log, out)

    def result_written(self, result: TuneResult, budget: Budget) -> None:
        """Pass it on."""
        self._inner.result_written(result, budget)

    def finished(self, lines: Sequence[str]) -> None:
        """Pass it on."""
        self._inner.finished(lines)
