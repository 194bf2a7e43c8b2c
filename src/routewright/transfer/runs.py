"""Searches of recorded tables, each with a prior or with none."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from routewright.compare.measures import Row, rows_of
from routewright.compare.plan import Extent, RunKey
from routewright.compare.run import carry_out
from routewright.compare.tablework import TableWork, open_table
from routewright.environment import identifying
from routewright.priors.evidence import Evidence
from routewright.priors.learning import form_beliefs
from routewright.priors.tables import evidence_of_table, features_of_card
from routewright.priors.target import Target
from routewright.priors.warm_sampler import WarmSampler
from routewright.priors.warmstart import WarmStart
from routewright.records import TrialRecord
from routewright.search.base import RouteSampler
from routewright.search.registry import make_sampler
from routewright.searching import best_of
from routewright.timing import TimingLimits
from routewright.transfer.conditions import Condition, sources_for

TARGET = 0.02
"""A search has arrived when its incumbent is truly this close to the best."""

FIRST_TRIALS = 5
"""After so many trials the incumbents are compared, too."""


@dataclass(frozen=True, slots=True)
class Search:
    """One search to carry out.

    Attributes:
        table: Folder of the table.
        condition: Which prior it starts from.
        seed: Seed of the search and of the noise that it meets.
        trials: Trials after the baseline, at most.
        sampler: Name of the search method.
    """

    table: str
    condition: Condition
    seed: int
    trials: int
    sampler: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a search went.

    Attributes:
        table: Name of the table.
        family: Family of its model.
        condition: Which prior it started from.
        seed: Its seed.
        builds: Builds until it arrived, or until it ended.
        seconds: Simulated seconds until then, the baseline's included.
        arrived: Whether it did.
        after_first: True relative latency of the incumbent after the first trials.
        suggested: Routes that the prior suggested.
        tried: Routes of the prior that were tried before it was done or given up.
        sources: Sources that were near enough to be used.
        setup: Tells apart searches that cannot be put together; see :func:`setup_of`.
    """

    table: str
    family: str
    condition: str
    seed: int
    builds: int
    seconds: float
    arrived: bool
    after_first: float
    suggested: int
    tried: int
    sources: int
    setup: str = ""

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Arrival | None:
        """Read a line back; None where it is none of ours, or of another version."""
        try:
            content = json.loads(line)
            return cls(**content)
        except (TypeError, ValueError):
            return None


def setup_of(search: Search, tables: Sequence[str]) -> str:
    """Return a short hash of what a search depends on beside its seed: tables and extent.

    A cold start depends on its own table alone, so it stays what it was when others join.
    """
    needed = [search.table] if search.condition is Condition.COLD else [search.table, *tables]
    digests = [_work(folder).table.digest for folder in needed]
    text = json.dumps([digests[0], sorted(digests), search.sampler, search.trials])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def carry_out_searches(
    searches: Sequence[Search],
    tables: Sequence[Path],
    *,
    jobs: int = 1,
    on_arrival: Callable[[Arrival], None] = lambda arrival: None,
) -> list[Arrival]:
    """Carry out searches and return how each went, in their order.

    Args:
        searches: The searches.
        tables: Folders of all tables, which priors are learned from.
        jobs: Processes.
        on_arrival: Hears of each search that has ended.
    """
    folders = tuple(str(path) for path in tables)
    found: list[Arrival] = []
    if jobs == 1:
        for search in searches:
            found.append(carry_out_search(search, folders))
            on_arrival(found[-1])
        return found
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for arrival in pool.map(carry_out_search, searches, [folders] * len(searches)):
            found.append(arrival)
            on_arrival(arrival)
    return found


def carry_out_search(search: Search, tables: tuple[str, ...]) -> Arrival:
    """Carry out one search."""
    work = _work(search.table)
    warm = _warm_start(search.table, search.condition, tables)
    hints = work.hints if warm is None else warm.hints(work.hints, work.space)
    inner = make_sampler(search.sampler, work.space, seed=search.seed, hints=hints)
    sampler: RouteSampler = inner if warm is None else WarmSampler(warm, inner)
    run = carry_out(
        work,
        RunKey(work.name, search.sampler, search.seed),
        Extent(trials=search.trials),
        TimingLimits(),
        sampler=sampler,
        is_done=lambda records: _is_done(work, records),
    )
    rows = rows_of(run, work.truth, work.best)
    arrival = _arrival(search, work, warm, rows, run.records)
    return replace(arrival, setup=setup_of(search, tables))


@cache
def _work(folder: str) -> TableWork:
    return open_table(Path(folder))


@cache
def _evidence(folder: str) -> Evidence:
    return evidence_of_table(_work(folder).table)


@cache
def _warm_start(folder: str, condition: Condition, tables: tuple[str, ...]) -> WarmStart | None:
    everything = [_evidence(each) for each in tables]
    sources, family = sources_for(condition, _evidence(folder), everything)
    if not sources:
        return None
    work = _work(folder)
    card = work.table.card
    target = Target(
        backend=str(card["backend"]),
        database=work.table.database,
        features=features_of_card(card),
        model_sha256=str(card["model"]["sha256"]),
        family=family,
        environment=identifying(card["environment"]),
        loss=work.limits.loss,
        limit=min(work.limits.thresholds.values(), default=math.inf),
    )
    return WarmStart.of(form_beliefs(sources, target), work.space)


def _is_done(work: TableWork, records: Sequence[TrialRecord]) -> bool:
    """Tell whether nothing that is asked for can change any more."""
    if len(records) <= FIRST_TRIALS:
        return False
    best = best_of(records)
    return best is not None and work.truth(best.route) <= work.best * (1.0 + TARGET)


def _arrival(
    search: Search,
    work: TableWork,
    warm: WarmStart | None,
    rows: Sequence[Row],
    records: Sequence[TrialRecord],
) -> Arrival:
    within = next((row for row in rows if row.regret <= TARGET + 1e-12), None)
    last = within or rows[-1]
    routes = {str(s.route) for s in warm.suggestions} if warm is not None else set()
    return Arrival(
        table=work.name,
        family=work.table.family,
        condition=str(search.condition),
        seed=search.seed,
        builds=last.builds,
        seconds=round(last.seconds, 3),
        arrived=within is not None,
        after_first=rows[min(FIRST_TRIALS, len(rows) - 1)].incumbent_true,
        suggested=len(routes),
        tried=sum(r.origin.startswith("prior") and r.route in routes for r in records),
        sources=0 if warm is None else len(warm.beliefs.choice.used),
    )
