"""The ``replay`` backend: a workbench that answers from a recorded table, on a simulated clock.

What a route costs and yields was measured once; replaying it takes no machine and no time. The
clock advances by the recorded seconds, so budgets, deadlines and early ends of timing mean what
they mean for real. Timing draws recorded pairs of blocks at random, so noise is the machine's own.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routewright.tables import Entry, Table, TableError
from routewright.tables.measurements import Floats
from routewright.workbench import Block, BuildReport, CheckReport, TrialFailure

BACKEND = "replay"

RESTART_S = 1.5
"""Simulated seconds that a fresh worker process takes to be ready."""

_EMPTY_STEP_S = 1e-3
"""Simulated seconds of a request whose cost was not recorded; the clock never stands still."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """An engine that stands built.

    Attributes:
        entry: What was measured of it.
        shift: How this build of it happened to fall out: log of its time over the usual.
        rng: Draws its blocks.
    """

    entry: Entry
    shift: float
    rng: np.random.Generator


class ReplayBench:
    """A :class:`routewright.workbench.Workbench` over a table.

    Two builds of one route differ persistently by where their memory came to lie. The table says
    by how much (its repeatability), so every build draws its own lasting share of that: fresh
    builds, as confirmation makes them, fall out anew.

    Draws depend on the seed, the engine, and how many builds of it there were before, and on
    nothing else: searches that are compared under one seed meet the same noise where they try the
    same engine, whatever they tried before.

    Args:
        table: What was measured.
        seed: Seed of every draw; the same requests get the same answers.
        pace: Real seconds to sleep for each simulated second; 0 for none.
        started_s: What the clock shows at first, in seconds.

    Attributes:
        table: What was measured.
    """

    def __init__(
        self, table: Table, *, seed: int, pace: float = 0.0, started_s: float = 0.0
    ) -> None:
        if not (pace >= 0 and math.isfinite(pace)):
            raise ValueError(f"pace must be 0 or more, not {pace}")
        self.table = table
        self._pace = pace
        self._clock_s = started_s
        self._seed = seed
        self._built: Counter[str] = Counter()
        self._slots: dict[str, _Slot] = {}
        self._default = table.default.fingerprint
        # The table tells the spread of a ratio of two builds; each carries half its variance.
        self._shift_sd = table.instance_sd / math.sqrt(2)

    def now_s(self) -> float:
        """Return the simulated clock."""
        return self._clock_s

    def build(self, slot: str, route: str, *, deadline_s: float) -> BuildReport:
        """Look the route up and let its recorded build time pass.

        Raises:
            TableError: The route is not in the table.
            TrialFailure: It could not be built when the table was recorded, or not in time now.
        """
        self._slots.pop(slot, None)
        entry = self.table.entry(route)
        self._pass(entry.build_s, deadline_s, "the build")
        _fail_at(entry, "build")
        rng = self._generator(entry)
        self._slots[slot] = _Slot(entry, float(rng.normal(0.0, self._shift_sd)), rng)
        return BuildReport(entry.build_s, entry.fingerprint)

    def check(self, slot: str, *, samples: Sequence[int] | None, deadline_s: float) -> CheckReport:
        """Return the recorded losses; those of single samples are known for the first only.

        Raises:
            TrialFailure: The slot is empty, or the engine failed or took too long.
        """
        entry = self._held(slot).entry
        first = samples is not None and list(samples) == [0]
        check_s = entry.first_check_s if first else entry.check_s
        self._pass(check_s, deadline_s, "the accuracy check")
        _fail_at(entry, "check")
        losses = entry.first_losses if first else entry.losses
        return CheckReport(dict(losses), dict(entry.reasons), check_s)

    def time_pair(
        self, *, runs: int, warmup_runs: int, candidate_first: bool, deadline_s: float
    ) -> Block:
        """Draw a recorded pair of blocks in which the same engine went first.

        Raises:
            TableError: The baseline slot holds another engine than the default route's.
            TrialFailure: A slot is empty, or the engine failed or took too long.
        """
        if runs < 1 or warmup_runs < 0:
            raise ValueError(f"cannot time {runs} runs after {warmup_runs} warm-up runs")
        baseline, candidate = self._held("baseline"), self._held("candidate")
        if baseline.entry.fingerprint != self._default:
            raise TableError(
                "a table holds times beside the default route only, and the baseline is "
                f"{baseline.entry.route!r}"
            )
        entry = candidate.entry
        _fail_at(entry, "timing")
        alike = np.flatnonzero(entry.candidate_first == candidate_first)
        pair = int(candidate.rng.choice(alike if len(alike) else len(entry.wall_s)))
        baseline_ms = _as_many(entry.baseline_ms[pair], runs) * math.exp(baseline.shift)
        candidate_ms = _as_many(entry.candidate_ms[pair], runs) * math.exp(candidate.shift)
        # What came with the recorded blocks besides their runs comes with these as well.
        recorded = entry.baseline_ms.shape[1]
        warm = int(self.table.card["plan"]["warmup_runs"])
        usual_s = 1e-3 * float(entry.baseline_ms[pair].mean() + entry.candidate_ms[pair].mean())
        rest_s = max(float(entry.wall_s[pair]) - usual_s * (recorded + warm), 0.0)
        wall_s = rest_s + usual_s * (runs + warmup_runs)
        self._pass(wall_s, deadline_s, "the timing")
        return Block(tuple(map(float, baseline_ms)), tuple(map(float, candidate_ms)), wall_s)

    def restore(self, *, deadline_s: float) -> None:
        """Do nothing: no engine is ever lost."""

    def save(self, slot: str, folder: Path) -> dict[str, str]:
        """Write nothing and return no files: a table holds measurements, not engines."""
        self._held(slot)
        return {}

    def drop(self, slot: str) -> None:
        """Free the slot; an empty slot is allowed."""
        self._slots.pop(slot, None)

    def restart(self) -> None:
        """Empty every slot; the fresh process takes its time."""
        self._slots.clear()
        self._pass(RESTART_S, math.inf, "the start")

    def environment(self) -> dict[str, Any]:
        """Return the environment that the table was recorded in."""
        return dict(self.table.card["environment"])

    def health(self) -> dict[str, Any]:
        """Return nothing: there is no device."""
        return {}

    def close(self) -> None:
        """Free everything."""
        self._slots.clear()

    def _generator(self, entry: Entry) -> np.random.Generator:
        """Return the source of noise of one more build of an engine."""
        engine = entry.fingerprint or ""
        self._built[engine] += 1
        digest = hashlib.sha256(f"{self._seed} {engine} {self._built[engine]}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:16], "little"))

    def _held(self, slot: str) -> _Slot:
        held = self._slots.get(slot)
        if held is None:
            raise TrialFailure("error", f"the slot {slot!r} holds no engine")
        return held

    def _pass(self, seconds: float, deadline_s: float, what: str) -> None:
        """Let time pass, at most until the deadline."""
        seconds = seconds if seconds > 0 else _EMPTY_STEP_S
        end_s = self._clock_s + seconds
        passed_s = min(end_s, max(deadline_s, self._clock_s)) - self._clock_s
        self._clock_s += passed_s
        if self._pace:
            time.sleep(passed_s * self._pace)
        if end_s > deadline_s:
            raise TrialFailure("timeout", f"{what} did not end in time")


def _as_many(block_ms: Floats, runs: int) -> npt.NDArray[np.float64]:
    """Return a block of so many runs with the recorded one's median.

    Ratios of blocks are ratios of their medians, so the drawn pair says what the recorded pair
    said, however many runs are asked for. The runs nearest the middle are kept; what is lacking is
    filled up with the median.
    """
    ordered = np.sort(block_ms.astype(np.float64))
    kept = min(runs, len(ordered))
    # As many are left out on either side, or the middle would move.
    kept -= (len(ordered) - kept) % 2
    aside = (len(ordered) - kept) // 2
    middle = np.full(runs - kept, np.median(ordered))
    return np.concatenate([ordered[aside : aside + kept], middle])


def _fail_at(entry: Entry, step: str) -> None:
    if entry.failure is not None and entry.failed_step == step:
        raise TrialFailure(*entry.failure)


def replay_pace(options: Mapping[str, str]) -> float:
    """Return the pace that the backend's options ask for.

    Raises:
        TableError: An option is unknown, or the pace is no number from 0 on.
    """
    unknown = sorted(set(options) - {"pace"})
    if unknown:
        raise TableError(f"the replay backend has no option {unknown[0]!r}; it has pace")
    try:
        pace = float(options.get("pace", 0.0))
    except ValueError:
        pace = -1.0
    if not (pace >= 0 and math.isfinite(pace)):
        raise TableError(
            f"the replay option pace is {options['pace']!r}; give the real seconds for each "
            "simulated one, 0 or more"
        )
    return pace
