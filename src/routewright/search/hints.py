"""What a search method may be told beforehand; nothing here is ever taken for a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EffectBelief:
    """What is believed of the effect of one knob value before anything was measured.

    Attributes:
        mean: Expected change of log relative latency against the knob's default; below 0 is
            faster.
        sd: Standard deviation of that belief, above 0.
    """

    mean: float
    sd: float


@dataclass(frozen=True)
class SearchHints:
    """Beliefs and facts that shape a search.

    Attributes:
        fingerprints: Whether the backend's engines carry fingerprints; without them there is no
            screening.
        surely_live: Knobs that change every engine (run-time settings such as thread counts), so
            that no build is spent on finding that out.
        live_probability: Probability that a knob is live, by name, from 0 to 1. Knobs not named
            share one rate, which screening learns as it goes.
        effects: Beliefs about effects, by knob name and value.
    """

    fingerprints: bool = True
    surely_live: frozenset[str] = frozenset()
    live_probability: Mapping[str, float] = field(default_factory=dict)
    effects: Mapping[tuple[str, str], EffectBelief] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, probability in self.live_probability.items():
            if not 0.0 <= probability <= 1.0:
                raise ValueError(f"live_probability of {name} is {probability}, not from 0 to 1")
        for (name, value), belief in self.effects.items():
            if not belief.sd > 0.0:
                raise ValueError(f"the belief in {name}={value} has sd {belief.sd}, not above 0")


NO_HINTS = SearchHints()
"""Nothing is known beforehand."""
