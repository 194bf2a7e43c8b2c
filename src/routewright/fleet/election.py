"""Choosing the one worker that confirms the winner, through trial numbers.

A worker stands by starting a trial of that role, its *bid*. Of the bids that run, the one with the
lowest number leads: the storage gives numbers out one by one, so all workers agree. A leader that
is gone loses its bid to the reaper, and the next one that stands takes over. The leader's last act
is to end its bid with the verdict in it, which the storage allows once and only while the bid was
not taken away: a leader that was only asleep cannot overrule its successor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from routewright.fleet.log import SharedLog
from routewright.fleet.writing import OWNER, ROLE

CONFIRMATION = "confirmation"

VERDICT = "verdict"
"""Attribute of the bid of the worker that confirmed: the result."""


class Election:
    """The election of a study, as its log shows it at the last look.

    Args:
        log: The study.
    """

    def __init__(self, log: SharedLog) -> None:
        self._log = log

    @property
    def verdict(self) -> Mapping[str, Any] | None:
        """What the worker that confirmed wrote, or None as long as none has."""
        return verdict_among(self._log.bids)

    @property
    def leader(self) -> str | None:
        """The worker that confirms, or None."""
        running = [bid for bid in self._log.bids if bid.state is TrialState.RUNNING]
        return str(running[0].user_attrs.get(OWNER)) if running else None

    def stand(self) -> FrozenTrial | None:
        """Bid, and return the bid if it leads; withdraw it otherwise."""
        bid = self._log.start({ROLE: CONFIRMATION})
        if self.verdict is None and self.leader == self._log.worker:
            return bid
        self._log.withdraw(bid, "another worker confirms")
        return None

    def close(self, bid: FrozenTrial, verdict: Mapping[str, Any]) -> bool:
        """Make ``verdict`` the study's; False if another worker has taken over."""
        return self._log.close(bid, {VERDICT: verdict})


def verdict_among(trials: list[FrozenTrial]) -> Mapping[str, Any] | None:
    """Return the verdict among a study's trials, or None."""
    for trial in trials:
        verdict = trial.user_attrs.get(VERDICT)
        if trial.state is TrialState.PRUNED and isinstance(verdict, dict):
            return verdict
    return None
