"""Search methods by name.

A name is one of :data:`SAMPLERS` or the user's own class as ``package.module:Class``: a
:class:`routewright.search.base.RouteSampler`, called with ``(space, seed=...)``, or any Optuna
sampler, called with ``(seed=...)``.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from routewright.errors import SettingsError
from routewright.search.auto import AutoSearch
from routewright.search.base import RouteSampler
from routewright.search.hints import NO_HINTS, SearchHints
from routewright.search.optuna_adapter import Form, OptunaRouteSampler
from routewright.search.staged import StagedSearch
from routewright.search.surrogate.sampler import SurrogateSearch
from routewright.search.sweep import FastSweep, FullSweep, MixedSweep, TrtexecMixedSweep
from routewright.space import SearchSpace

DEFAULT_SAMPLER = "auto"
"""The search method of ``tune``."""

Factory = Callable[[SearchSpace, int, SearchHints], RouteSampler]
"""Makes a search method from the space, the seed and the hints."""


@dataclass(frozen=True, slots=True)
class SamplerEntry:
    """A search method of the registry.

    Attributes:
        name: The name users give.
        summary: What it does, one line.
        make: Makes it.
        needs: Packages that it imports beyond Routewright's own requirements.
    """

    name: str
    summary: str
    make: Factory
    needs: tuple[str, ...] = ()

    def missing(self) -> tuple[str, ...]:
        """Return the needed packages that are not installed."""
        return tuple(each for each in self.needs if importlib.util.find_spec(each) is None)


def make_tpe(space: SearchSpace, seed: int, hints: SearchHints = NO_HINTS) -> RouteSampler:
    """Return Optuna's TPE as a search method."""
    return OptunaRouteSampler(
        space,
        seed=seed,
        make_sampler=lambda seed: TPESampler(seed=seed),
        form=Form.PRUNED,
        takes_categories=True,
        name="tpe",
    )


def _gp(space: SearchSpace, seed: int, hints: SearchHints) -> RouteSampler:
    return OptunaRouteSampler(
        space,
        seed=seed,
        make_sampler=lambda seed: GPSampler(seed=seed, warn_independent_sampling=False),
        form=Form.COMPLETE,
        takes_categories=True,
        name="gp",
    )


def _random(space: SearchSpace, seed: int, hints: SearchHints) -> RouteSampler:
    return OptunaRouteSampler(
        space,
        seed=seed,
        make_sampler=lambda seed: RandomSampler(seed=seed),
        form=Form.NOTHING,
        takes_categories=True,
        name="random",
    )


def make_surrogate(space: SearchSpace, seed: int, hints: SearchHints = NO_HINTS) -> RouteSampler:
    """Return the surrogate search."""
    return SurrogateSearch(space, seed=seed, hints=hints)


SAMPLERS: Mapping[str, SamplerEntry] = {
    entry.name: entry
    for entry in (
        SamplerEntry(
            "auto",
            "screening for live knobs and, in turns with it, a surrogate search over them",
            lambda space, seed, hints: AutoSearch(space, seed=seed, hints=hints),
        ),
        SamplerEntry(
            "staged",
            "screening, single changes of live knobs, what helped together, then Optuna's TPE",
            lambda space, seed, hints: StagedSearch(space, seed=seed, inner=make_tpe, hints=hints),
        ),
        SamplerEntry(
            "surrogate",
            "models latency, accuracy, failures and cost; most expected improvement per second",
            make_surrogate,
        ),
        SamplerEntry(
            "fast",
            "sweep: one knob changed at a time, as trtexec's fast",
            lambda space, seed, hints: FastSweep(space, seed=seed),
        ),
        SamplerEntry(
            "full",
            "sweep: every route, as trtexec's full",
            lambda space, seed, hints: FullSweep(space, seed=seed),
        ),
        SamplerEntry(
            "mixed",
            "sweep: fast, then full over the knobs that helped significantly",
            lambda space, seed, hints: MixedSweep(space, seed=seed),
        ),
        SamplerEntry(
            "mixed-trtexec",
            "sweep: mixed by trtexec's own rules, weak spots included",
            lambda space, seed, hints: TrtexecMixedSweep(space, seed=seed),
        ),
        SamplerEntry("random", "routes drawn at random", _random),
        SamplerEntry("tpe", "Optuna's tree-structured Parzen estimator", make_tpe),
        SamplerEntry("gp", "Optuna's Gaussian process", _gp, needs=("torch",)),
    )
}
"""The search methods by name, in the order in which to list them."""


def check_sampler(name: str) -> None:
    """Check that a search method exists and what it needs is installed.

    Raises:
        SettingsError: It does not, or something is missing.
    """
    if ":" in name:
        _own_class(name)
    else:
        _entry(name)


def make_sampler(
    name: str,
    space: SearchSpace,
    *,
    seed: int,
    hints: SearchHints = NO_HINTS,
    options: Mapping[str, Any] | None = None,
) -> RouteSampler:
    """Return a search method.

    Args:
        name: A name of :data:`SAMPLERS`, or ``package.module:Class``.
        space: The routes to choose from.
        seed: Seed of every random choice.
        hints: What is known of the knobs beforehand.
        options: Keyword arguments of the user's own class.

    Raises:
        SettingsError: There is no such method, it needs a package that is not installed, or it
            does not take the options.
    """
    if ":" in name:
        return _own_sampler(name, space, seed, dict(options or {}))
    entry = _entry(name)
    if options:
        raise SettingsError(
            f"the sampler {name!r} takes no options, given: {', '.join(sorted(options))}; "
            "leave them out"
        )
    return entry.make(space, seed, hints)


def _entry(name: str) -> SamplerEntry:
    entry = SAMPLERS.get(name)
    if entry is None:
        near = difflib.get_close_matches(name.lower(), SAMPLERS, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise SettingsError(
            f"there is no sampler {name!r}; {hint}there are {', '.join(SAMPLERS)}, "
            "or your own as package.module:Class"
        )
    missing = entry.missing()
    if missing:
        raise SettingsError(
            f"the sampler {name!r} needs {', '.join(missing)}, which is not installed; "
            f"run: pip install {' '.join(missing)}, or choose another sampler"
        )
    return entry


def _own_class(name: str) -> type[RouteSampler] | type[BaseSampler]:
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise SettingsError(f"{name!r} names no class; write package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"cannot import {module_name!r} for the sampler {name!r}: {error}; "
            "is it installed, or in a folder on PYTHONPATH?"
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        near = difflib.get_close_matches(class_name, dir(module), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise SettingsError(f"{module_name} has no class {class_name!r}{hint}")
    if not (isinstance(found, type) and issubclass(found, BaseSampler)):
        raise SettingsError(
            f"{name} is no sampler; it must be a class that derives from "
            "routewright.search.base.RouteSampler or optuna.samplers.BaseSampler"
        )
    return found


def _own_sampler(
    name: str, space: SearchSpace, seed: int, options: dict[str, Any]
) -> RouteSampler:
    found = _own_class(name)
    if issubclass(found, RouteSampler):
        try:
            return found(space, seed=seed, **options)
        except TypeError as error:
            raise SettingsError(f"cannot make the sampler {name}: {error}") from error

    def make(seed: int) -> BaseSampler:
        return found(seed=seed, **options)  # type: ignore[call-arg]

    try:
        make(seed)
    except (TypeError, ValueError, ImportError) as error:
        raise SettingsError(f"cannot make the sampler {name}: {error}") from error
    return OptunaRouteSampler(space, seed=seed, make_sampler=make, name=name.rpartition(":")[2])
