"""What a prior says on the whole, with no model in mind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from routewright.knobs import Knob, KnobDatabase
from routewright.priors.evidence import Evidence
from routewright.priors.files import PriorError
from routewright.priors.learning import Beliefs, form_beliefs
from routewright.priors.target import Choice, Source, Target


def overview(sources: Sequence[Evidence], *, backend: str = "") -> Beliefs:
    """Return what sources say together, each as near as the next.

    Args:
        sources: The sources.
        backend: Whose knobs; empty: of the backend that most sources have.

    Raises:
        PriorError: No source is of that backend.
    """
    counts = Counter(source.origin.backend for source in sources)
    if backend and backend not in counts:
        raise PriorError(f"no source is of the backend {backend}; there are {', '.join(counts)}")
    chosen = backend or max(sorted(counts), key=lambda name: counts[name])
    kept = [source for source in sources if source.origin.backend == chosen]
    loss = Counter(source.origin.loss for source in kept).most_common(1)[0][0]
    target = Target(backend=chosen, database=_database(kept), loss=loss)
    dropped = {
        source.origin.name: f"its backend is {source.origin.backend}"
        for source in sources
        if source.origin.backend != chosen
    }
    used = [Source(source, 0.0, 0.0, 1.0, ()) for source in kept]
    return form_beliefs(kept, target, choice=Choice(used, dropped))


def _database(sources: Sequence[Evidence]) -> KnobDatabase:
    """Return the knobs that the sources tell of, with the values that were tried."""
    values: dict[str, dict[str, None]] = {}
    defaults: dict[str, str] = {}
    for source in sources:
        defaults = {**dict(source.origin.defaults), **defaults}
        for row in source.settings.itertuples(index=False):
            told = values.setdefault(str(row.knob), {})
            if row.value != "*":
                told[str(row.value)] = None
    knobs = []
    for name, told in values.items():
        default = defaults.get(name, "")
        listed = list(dict.fromkeys([default, *told] if default else told))
        if listed:
            knobs.append(Knob.of(name, f"[{'|'.join(listed)}]", default))
    return KnobDatabase("any", tuple(knobs))
