"""What is compared: which samplers, on which works, how often, how far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from routewright.errors import SettingsError

PLAN_SCHEMA_VERSION = 1

DEFAULT_HALF_WIDTH = 0.015
DEFAULT_MAX_TIMING_S = 6.0

_MOST_REPEATS = 10_000


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """One run of a comparison.

    Attributes:
        work: Name of the work.
        sampler: Name of the search method.
        seed: Seed of the sampler and of the noise that it meets.
    """

    work: str
    sampler: str
    seed: int

    @property
    def name(self) -> str:
        """The run's name, as studies and messages tell it."""
        return f"{self.work}/{self.sampler}/seed-{self.seed}"


@dataclass(frozen=True, slots=True)
class Extent:
    """How far each run goes; both limits together mean the one that is met first.

    Attributes:
        trials: Trials after the baseline, or None.
        budget_s: Seconds on the work's own clock, baseline included, or None.
        until: A run also ends once its incumbent is within this share of the best route, or None.
            That spares the time in which nothing more is learned about how soon it got there, and
            gives up what the rest of the run would have shown.
    """

    trials: int | None = None
    budget_s: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        if self.trials is None and self.budget_s is None:
            raise SettingsError("say how far each run goes: --trials 150 or --budget 30m")
        if self.trials is not None and self.trials < 1:
            raise SettingsError(f"trials must be at least 1, not {self.trials}")
        if self.until is not None and not 0 <= self.until < 1:
            raise SettingsError(f"until must be a share from 0 to 1, not {self.until}")

    def __str__(self) -> str:
        told = []
        if self.trials is not None:
            told.append(f"{self.trials} trials")
        if self.budget_s is not None:
            told.append(f"{self.budget_s:g} s")
        if self.until is not None:
            told.append(f"until within {self.until:.1%} of the best route")
        return " or ".join(told)


@dataclass(frozen=True, slots=True)
class Plan:
    """A comparison of search methods.

    Attributes:
        samplers: Their names; the first is held against each of the others.
        works: Names of what they work on.
        repeats: Runs of each sampler on each work, with a seed each.
        extent: How far each run goes.
        seed: The first seed.
        half_width: As in :class:`routewright.settings.TuneSettings`.
        max_timing_s: The same.
        shuffle_knobs: Whether each seed has the knobs in an order of its own, the same for every
            sampler. A sweep that meets a helpful knob early is lucky with the order.
    """

    samplers: tuple[str, ...]
    works: tuple[str, ...]
    repeats: int
    extent: Extent
    seed: int = 0
    half_width: float = DEFAULT_HALF_WIDTH
    max_timing_s: float = DEFAULT_MAX_TIMING_S
    shuffle_knobs: bool = False

    def __post_init__(self) -> None:
        _check_names("sampler", self.samplers)
        _check_names("work", self.works)
        if not 1 <= self.repeats <= _MOST_REPEATS:
            raise SettingsError(f"repeats must be from 1 to {_MOST_REPEATS}, not {self.repeats}")
        if self.seed < 0:
            raise SettingsError(f"seed must be 0 or above, not {self.seed}")

    @property
    def seeds(self) -> range:
        """The seed of each repeat, the same for every sampler and work."""
        return range(self.seed, self.seed + self.repeats)

    def runs(self) -> Iterator[RunKey]:
        """Yield every run; all samplers have had a seed before the next seed begins.

        So a comparison that is stopped half-way has about as many runs of each.
        """
        for seed in self.seeds:
            for work in self.works:
                for sampler in self.samplers:
                    yield RunKey(work, sampler, seed)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {"schema_version": PLAN_SCHEMA_VERSION, **asdict(self)} | {
            "samplers": list(self.samplers),
            "works": list(self.works),
        }


def refuse_other_plan(stored: Mapping[str, Any], plan: Plan) -> None:
    """Check that a comparison goes on as it was begun; more runs are welcome.

    Runs do not depend on each other, so samplers, works and repeats may be added.

    Raises:
        SettingsError: Something else differs; the message names it.
    """
    if stored.get("schema_version") != PLAN_SCHEMA_VERSION:
        raise SettingsError(
            f"the comparison was begun by another version (schema "
            f"{stored.get('schema_version')!r}, this one reads {PLAN_SCHEMA_VERSION}); choose "
            "another --out"
        )
    differing = [
        f"{name} was {stored.get(name)!r} and is now {value!r}"
        for name, value in plan.to_dict().items()
        if not _agree(name, stored.get(name), value)
    ]
    if differing:
        raise SettingsError(
            f"the comparison was begun with other settings: {'; '.join(differing)}; give the "
            "same ones, or choose another --out"
        )


def _agree(name: str, was: Any, now: Any) -> bool:
    if name in ("samplers", "works") and isinstance(was, list):
        return set(was) <= set(now)
    return name == "repeats" or bool(was == now)


def _check_names(what: str, names: Sequence[str]) -> None:
    if not names:
        raise SettingsError(f"name at least one {what}")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SettingsError(f"{what} {', '.join(twice)} is named twice; name each once")
