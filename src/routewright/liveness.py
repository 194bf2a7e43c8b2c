"""Finding the live knobs of a model by builds alone, without a study."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from routewright.bounds import Limits
from routewright.knobs import KnobDatabase
from routewright.records import Outcome, Phase, TrialRecord
from routewright.search.base import History, Proposal
from routewright.search.screening import screen
from routewright.space import SearchSpace
from routewright.timing import TimingLimits
from routewright.trial import KnownResults, TrialRules, run_trial
from routewright.workbench import Workbench


@dataclass(frozen=True, slots=True)
class LiveKnobs:
    """Which knobs change the engine.

    Attributes:
        live: Knobs of which some value changes it.
        inert: Knobs of which no value does.
        unknown: Knobs that cannot be told.
        builds: Builds that it took to find out.
    """

    live: tuple[str, ...]
    inert: tuple[str, ...]
    unknown: tuple[str, ...]
    builds: int


def find_live_knobs(bench: Workbench, database: KnobDatabase) -> LiveKnobs:
    """Build groups of changed knobs until every searchable knob is sorted.

    Raises:
        TrialFailure: Not even the default route can be built.
    """
    space = SearchSpace.whole(database)
    report = bench.build("candidate", "", deadline_s=math.inf)
    baseline = TrialRecord(
        0,
        "",
        Phase.BASELINE,
        Outcome.SCREENED,
        build_s=report.build_s,
        fingerprint=report.fingerprint,
    )
    records = [baseline]
    rules = TrialRules(limits=Limits("cos", {}), timing=TimingLimits())
    while True:
        found = screen(space, History(records=records))
        if found.next is None:
            return LiveKnobs(found.live, found.inert, found.unknown, found.builds_used)
        proposal: Proposal = replace(found.next, time_it=False)
        records.append(
            run_trial(
                bench,
                len(records),
                proposal,
                rules=rules,
                known=KnownResults(),
                deadline_s=math.inf,
                baseline=baseline,
            )
        )
