"""Progress on a console: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from routewright.budget import Budget
from routewright.progress import Progress
from routewright.records import Outcome, Phase, TrialRecord
from routewright.settings import TuneSettings

_ROUTE_CHARACTERS = 100


@contextmanager
def console_progress(console: Console, settings: TuneSettings) -> Iterator[Progress]:
    """Give a progress that writes to ``console`` (standard error)."""
    bound = settings.accuracy_bound()
    heading = (
        f"tuning {settings.model} with {settings.backend}: {bound.loss} at most "
        f"{bound.threshold:g}, budget {settings.budget_s:g} s, seed {settings.seed}"
    )
    if not console.is_terminal:
        yield _Lines(console, heading, None)
        return
    with Live(Text(""), console=console, refresh_per_second=4, transient=True) as live:
        yield _Lines(console, heading, live)


class _Lines(Progress):
    def __init__(self, console: Console, heading: str, live: Live | None) -> None:
        self._console = console
        # Printed with the first line that follows: bad input gets one line, what is wrong.
        self._heading = heading
        self._live = live
        self._screened = 0
        self._best = "none yet"

    def note(self, text: str) -> None:
        self._print(f"note: {text}")

    def phase(self, name: str, detail: str = "") -> None:
        self._flush_screened()
        self._print(f"{name}: {detail}" if detail else name)

    def trial_started(self, number: int, route: str, origin: str, budget: Budget) -> None:
        if self._live is not None:
            self._live.update(
                Text(
                    f"{budget.used_s:.0f} s used, {max(budget.remaining_s, 0):.0f} s left | "
                    f"trial {number}: {origin or 'search'} | best so far: {self._best}"
                )
            )

    def trial_finished(
        self, record: TrialRecord, best: TrialRecord | None, budget: Budget
    ) -> None:
        if best is not None and best.relative_latency is not None:
            self._best = f"{best.relative_latency:.3f}"
        quiet = record.phase is Phase.SCREENING or record.outcome is Outcome.REUSED
        if quiet and record.time_s is None and record.outcome is not Outcome.FAILED:
            self._screened += 1
            return
        self._flush_screened()
        self._print(
            f"[{budget.used_s:5.0f}/{budget.limit_s:.0f} s] trial {record.number} "
            f"{_told(record)} | best {self._best} | {_shortened(record.route)}"
        )

    def _flush_screened(self) -> None:
        if self._screened:
            self._print(f"  {self._screened} routes settled by their engine's fingerprint alone")
            self._screened = 0

    def _print(self, line: str) -> None:
        if self._heading:
            self._console.print(Text(self._heading), soft_wrap=True)
            self._heading = ""
        self._console.print(Text(line), soft_wrap=True)


def _told(record: TrialRecord) -> str:
    if record.relative_latency is not None and record.ci95 is not None:
        low, high = record.ci95
        told = f"{record.relative_latency:.3f} ({low:.3f} to {high:.3f})"
        if record.outcome is Outcome.SLOW:
            told += ", slower"
        return f"{record.phase} {told}" if record.phase is not Phase.SEARCH else told
    return f"{record.outcome}: {record.reason}"


def _shortened(route: str) -> str:
    if not route:
        return "(default route)"
    if len(route) <= _ROUTE_CHARACTERS:
        return route
    return route[: _ROUTE_CHARACTERS - 3] + "..."
