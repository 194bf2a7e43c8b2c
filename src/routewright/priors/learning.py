"""What all sources together say about a study that is about to begin.

For each value of each knob: how it moves log relative latency where it matters, how likely it is
to matter, to fail and to cost accuracy. Sources are pooled with partial pooling
(:mod:`.pooling`): a source counts by its own standard error, widened by how unlike its model and
its environment are, and sources scatter among each other by what they show to. Where there is
little evidence, the belief stays near zero and wide.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from routewright.knobs import Knob
from routewright.priors.evidence import Evidence
from routewright.priors.losses import NO_LOSS
from routewright.priors.pooling import Pooled, pool_normal, pool_rate
from routewright.priors.roles import Role, roles_of
from routewright.priors.target import Choice, Source, Target, choose_sources

EFFECT_SD = 0.3
"""How large common effects are expected to be, on the log scale."""

BETWEEN_SD = 0.03
"""Scale of what effects are expected to scatter between studies, on the log scale."""

LOSS_SD = 2.0
LOSS_BETWEEN_SD = 0.5
"""The same two scales for losses, in powers of ten."""

_UNLIKE_SD = 0.1
"""What a distance of 1 adds to an effect's standard error, beside the effect's own size."""

_ELSEWHERE = 0.5
"""What a distance of environments counts against the same distance of models."""

_UNLIKE_LOSS_SD = 2.0
_POSITION_REACH = 0.2
_POSITION_SD = 0.1
_BASE_COUNT = 0.15
"""How many studies' worth the general rate of a role is."""

_ROLE_COUNT = 1.0
_COMMON_RATE = 0.15
_COMMON_COUNT = 20.0
"""What is expected of knobs of which no source tells, and how many knobs' worth that is."""

LEAST_TOLD = 0.2
"""What sources must count together for their word on whether a knob is live."""

_CLEAR_Z = 2.5
_MOST_BUILDS = 5.0
_FEWEST_PAIR_SOURCES = 2


@dataclass(frozen=True, slots=True)
class Share:
    """What one source gave to a belief.

    Attributes:
        source: Its name.
        effect: The effect that it saw, or None where it timed none.
        effect_se: Its standard error there.
        live: Whether the setting mattered there: 1, 0, or None if not known.
        weight: What the source's counts count.
    """

    source: str
    effect: float | None
    effect_se: float | None
    live: float | None
    weight: float


@dataclass(frozen=True)
class Belief:
    """What is believed of one knob value.

    Attributes:
        knob: The knob.
        value: The value.
        effect: Effect on log relative latency where the setting matters; None if no source timed
            it.
        live: Probability that the setting alone changes the engine.
        told: What the sources that tell of that count together.
        timed: What the sources that timed it count together.
        matters: Probability that it changes the engine beside other settings.
        fails: Probability that a build fails because of it.
        loss: Base-10 logarithm of the loss that it brings about; None where no source measured
            that loss.
        shares: What each source gave.
    """

    knob: str
    value: str
    effect: Pooled | None
    live: float
    told: float
    timed: float
    matters: float
    fails: float
    loss: Pooled | None
    shares: Sequence[Share]

    @property
    def setting(self) -> str:
        """The knob and its value, as a route spells it."""
        return f"{self.knob}={self.value}"

    @property
    def expected(self) -> float:
        """Expected change of log relative latency, the chance that it does nothing included."""
        return 0.0 if self.effect is None else self.matters * self.effect.mean

    @property
    def sd(self) -> float:
        """Standard deviation of that change."""
        if self.effect is None:
            return 0.0
        second = self.matters * (self.effect.sd**2 + self.effect.mean**2)
        return math.sqrt(max(second - self.expected**2, 0.0))


@dataclass(frozen=True)
class Beliefs:
    """What is believed of a target.

    Attributes:
        target: The target.
        choice: Which sources were used.
        settings: Beliefs by knob and value.
        pairs: Interactions that repeat, by pair of settings.
        unknown_knobs: Knobs of used sources that the target does not have, with how many sources
            tell of each.
    """

    target: Target
    choice: Choice
    settings: Mapping[tuple[str, str], Belief]
    pairs: Mapping[tuple[str, str], Pooled]
    unknown_knobs: Mapping[str, int]

    def live_probability(self) -> dict[str, float]:
        """Return how likely each knob is to be live: any of its values.

        A knob is left out of which no source near enough tells.
        """
        found: dict[str, float] = {}
        for belief in self.settings.values():
            if belief.told < LEAST_TOLD:
                continue
            found[belief.knob] = max(found.get(belief.knob, 0.0), belief.live)
        return found


@dataclass(frozen=True, slots=True)
class _Seen:
    """A setting as one source saw it, from a target."""

    source: Source
    effect: float | None
    effect_variance: float
    elsewhere: float
    live: float | None
    matters: float | None
    builds: float
    failures: float
    loss: float | None
    loss_variance: float
    weight: float


def form_beliefs(
    sources: Sequence[Evidence], target: Target, *, choice: Choice | None = None
) -> Beliefs:
    """Return what ``sources`` say about ``target``.

    Args:
        sources: The sources.
        target: What is about to be tuned.
        choice: Which of them to use, and how near they are; None: found out.
    """
    choice = choice or choose_sources(sources, target)
    knobs = [knob for knob in target.database if knob.searchable or knob.values]
    roles = roles_of(knob.name for knob in target.database)
    index = [_index(source) for source in choice.used]
    rates = _role_rates(choice.used)
    beliefs: dict[tuple[str, str], Belief] = {}
    for knob in knobs:
        for value in _values_told(knob, roles[knob.name], index):
            seen = list(_seen(knob, value, roles[knob.name], choice.used, index, target))
            if seen:
                rate = rates.get(roles[knob.name].name, rates[""])
                beliefs[knob.name, value] = _belief(knob.name, value, seen, rate)
    return Beliefs(
        target,
        choice,
        beliefs,
        _pairs(choice.used, target),
        _unknown_knobs(choice.used, target, {role.name for role in roles.values()}),
    )


_Index = Mapping[tuple[str, str], Sequence[Mapping[str, float]]]


def _index(source: Source) -> _Index:
    """Return a source's rows by role and value."""
    rows: dict[tuple[str, str], list[Mapping[str, float]]] = defaultdict(list)
    for row in source.evidence.settings.to_dict("records"):
        rows[str(row["role"]), str(row["value"])].append(row)
    return rows


def _values_told(knob: Knob, role: Role, index: Sequence[_Index]) -> list[str]:
    """Return the values of a knob that some source tells of, in the knob's order."""
    told = {value for rows in index for name, value in rows if name == role.name}
    everything = "*" in told
    listed = [v for v in knob.values if v != knob.default and (v in told or everything)]
    others = sorted(told - set(knob.values) - {"*"})
    return listed + [v for v in others if knob.allows(v) and v != knob.default]


def _role_rates(sources: Sequence[Source]) -> dict[str, float]:
    """Return how often settings of each role are live in any source; ``""`` is over all."""
    live: dict[str, list[float]] = defaultdict(list)
    for source in sources:
        rows = source.evidence.settings
        for role, group in rows[rows["live"].notna()].groupby("role", sort=True)["live"]:
            live[str(role)].append(float(group.mean()))
    everything = [rate for rates in live.values() for rate in rates]
    overall, _ = pool_rate(
        [sum(everything)],
        [len(everything)],
        base_rate=_COMMON_RATE,
        base_count=_COMMON_COUNT,
    )
    rates = {
        role: pool_rate([sum(r)], [len(r)], base_rate=overall, base_count=_ROLE_COUNT)[0]
        for role, r in live.items()
    }
    return {"": overall, **rates}


def _seen(
    knob: Knob,
    value: str,
    role: Role,
    sources: Sequence[Source],
    index: Sequence[_Index],
    target: Target,
) -> Iterator[_Seen]:
    """Yield what each source saw of a setting; knobs of one role count by their positions."""
    for source, rows in zip(sources, index, strict=True):
        same = [*rows.get((role.name, value), ()), *rows.get((role.name, "*"), ())]
        defaults = source.evidence.origin.defaults
        same = [r for r in same if defaults.get(str(r["knob"]), knob.default) == knob.default]
        if same:
            yield _combined(source, same, role, target)


def _combined(
    source: Source, rows: Sequence[Mapping[str, float]], role: Role, target: Target
) -> _Seen:
    near = [
        math.exp(-((abs(row["position"] - role.position) / _POSITION_REACH) ** 2)) for row in rows
    ]
    effects: list[tuple[float, float]] = []
    losses: list[tuple[float, float]] = []
    live: list[tuple[float, float]] = []
    matters: list[tuple[float, float]] = []
    builds = failures = 0.0
    for row, share in zip(rows, near, strict=True):
        gap = abs(row["position"] - role.position)
        clear = False
        if not math.isnan(row["effect"]):
            variance = row["effect_se"] ** 2 + (_POSITION_SD * gap) ** 2
            effects.append((row["effect"], variance))
            clear = abs(row["effect"]) > _CLEAR_Z * row["effect_se"]
        if not math.isnan(row["live"]):
            live.append((row["live"], share))
        if clear or not math.isnan(row["live"]):
            matters.append((1.0 if clear else row["live"], share))
        kept = min(1.0, _MOST_BUILDS / max(row["builds"], 1.0)) * share
        builds += kept * row["builds"]
        failures += kept * row["failures"]
        if not math.isnan(row["loss_log10"]):
            losses.append((row["loss_log10"], row["loss_se"] ** 2 + gap**2))
    effect, variance = _weighted(effects)
    loss, loss_variance = _weighted(losses)
    elsewhere = 0.0
    if effect is not None:
        off = _UNLIKE_SD**2 + effect**2
        elsewhere = (_ELSEWHERE * source.environment_distance) ** 2 * off
        variance += source.model_distance**2 * off + elsewhere
    if source.evidence.origin.loss != target.loss:
        loss = None
    return _Seen(
        source=source,
        effect=effect,
        effect_variance=variance,
        elsewhere=elsewhere,
        live=_average(live),
        matters=_average(matters),
        builds=builds,
        failures=failures,
        loss=loss,
        loss_variance=loss_variance + source.model_distance**2 * _UNLIKE_LOSS_SD**2,
        weight=source.weight * max(near),
    )


def _weighted(values: Sequence[tuple[float, float]]) -> tuple[float | None, float]:
    """Return the mean weighted by precision, and its variance: knobs of one role scatter."""
    if not values:
        return None, math.inf
    total = sum(1.0 / variance for _, variance in values)
    mean = sum(value / variance for value, variance in values) / total
    spread = sum((value - mean) ** 2 / variance for value, variance in values) / total
    return mean, 1.0 / total + spread / len(values)


def _average(values: Sequence[tuple[float, float]]) -> float | None:
    total = sum(share for _, share in values)
    return sum(value * share for value, share in values) / total if total > 0 else None


def _belief(knob: str, value: str, seen: Sequence[_Seen], rate: float) -> Belief:
    timed = [s for s in seen if s.effect is not None]
    effect = None
    if timed:
        effect = pool_normal(
            [s.effect or 0.0 for s in timed],
            [s.effect_variance for s in timed],
            mean_sd=EFFECT_SD,
            between_sd=BETWEEN_SD,
        )
        effect = replace(effect, sd=math.hypot(effect.sd, _shared_sd(timed)))
    measured = [s for s in seen if s.loss is not None]
    loss = None
    if measured:
        loss = pool_normal(
            [s.loss or 0.0 for s in measured],
            [s.loss_variance for s in measured],
            mean_sd=LOSS_SD,
            between_sd=LOSS_BETWEEN_SD,
            center=math.log10(NO_LOSS) / 4,
        )
    fails, _ = pool_rate(
        [s.failures * s.weight for s in seen],
        [s.builds * s.weight for s in seen],
        base_rate=0.02,
        base_count=1.0,
    )
    return Belief(
        knob=knob,
        value=value,
        effect=effect,
        live=_rate([(s.live, s.weight) for s in seen], rate),
        told=sum(s.weight for s in seen if s.live is not None),
        timed=sum(s.weight for s in timed),
        matters=_rate([(s.matters, s.weight) for s in seen], rate),
        fails=fails,
        loss=loss,
        shares=[
            Share(
                s.source.evidence.origin.name,
                s.effect,
                None if s.effect is None else math.sqrt(s.effect_variance),
                s.matters,
                s.weight,
            )
            for s in seen
        ],
    )


def _shared_sd(seen: Sequence[_Seen]) -> float:
    """Return how far off all sources may be together, since they come from elsewhere.

    Sources of one environment err alike there, so that many of them do not average it out.
    """
    precision = sum(1.0 / s.effect_variance for s in seen)
    return math.sqrt(sum(s.elsewhere / s.effect_variance for s in seen) / precision)


def _rate(told: Sequence[tuple[float | None, float]], rate: float) -> float:
    known = [(live, weight) for live, weight in told if live is not None]
    mean, _ = pool_rate(
        [live * weight for live, weight in known],
        [weight for _, weight in known],
        base_rate=rate,
        base_count=_BASE_COUNT,
    )
    return mean


def _pairs(sources: Sequence[Source], target: Target) -> dict[tuple[str, str], Pooled]:
    """Return the interactions that at least two sources found, with one sign."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for source in sources:
        apart = source.model_distance**2 + (_ELSEWHERE * source.environment_distance) ** 2
        for row in source.evidence.pairs.itertuples(index=False):
            knobs = [str(s).partition("=")[0] for s in (row.first, row.second)]
            if all(knob in target.database for knob in knobs):
                effect, se = float(row.effect), float(row.effect_se)
                variance = se**2 + apart * (_UNLIKE_SD**2 + effect**2)
                found[str(row.first), str(row.second)].append((effect, variance))
    kept: dict[tuple[str, str], Pooled] = {}
    for pair, effects in sorted(found.items()):
        signs = {effect > 0 for effect, _ in effects}
        if len(effects) >= _FEWEST_PAIR_SOURCES and len(signs) == 1:
            kept[pair] = pool_normal(
                [effect for effect, _ in effects],
                [variance for _, variance in effects],
                mean_sd=EFFECT_SD / 2,
                between_sd=BETWEEN_SD,
            )
    return kept


def _unknown_knobs(sources: Sequence[Source], target: Target, roles: set[str]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for source in sources:
        rows = source.evidence.settings
        unknown = rows[~rows["role"].isin(roles)]
        for knob in sorted(set(unknown["knob"])):
            if knob not in target.database:
                counts[knob] += 1
    return dict(counts)
