"""What a worker is to work on: from a study file, or from a group that others began.

Settings in a storage were written by somebody else. They may name a model, which is compared by
its digest, but neither code nor other files of this machine.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from optuna.storages import BaseStorage

from routewright.errors import SettingsError, StorageError
from routewright.fleet.identity import is_group_name
from routewright.fleet.joining import Member, members
from routewright.settings import TuneSettings, differences, read_study_file
from routewright.sources import resolved

_LOADS_CODE = frozenset({"plugins"})
"""Options of backends that name native code to load."""


def assignment(
    target: str,
    storage: BaseStorage,
    *,
    model: str | None,
    metric: str | None,
) -> tuple[TuneSettings, str, list[Member]]:
    """Return what to tune and how, the group's name, and the studies that it has already.

    Args:
        target: A study file, or the name of a group in the storage.
        storage: The storage.
        model: The model's file on this machine, where it lies elsewhere than the settings say.
        metric: The user's own loss, which has to be named here to be run.

    Raises:
        SettingsError: The study file is wrong or says something else than the group's, or the
            settings name code or files that this worker's user did not name.
        StorageError: There is no such group, or the storage cannot be read.
    """
    if target.endswith(".toml"):
        settings = read_study_file(Path(target))
        settings = resolved(replace(settings, model=model or settings.model))
        group = settings.study or Path(target).stem
        _check_group(group)
        known = members(storage, group)
        if known:
            _refuse_other_settings(target, settings, TuneSettings.from_dict(known[0].settings))
    else:
        group = target
        _check_group(group)
        known = members(storage, group)
        if not known:
            raise StorageError(
                f"the storage holds no group {group!r}; the first worker begins one from a study "
                "file: routewright worker STUDY.toml"
            )
        settings = TuneSettings.from_dict(known[0].settings)
        _refuse_foreign_code(settings, group)
    if model is not None:
        settings = replace(settings, model=model)
    if settings.metric != metric:
        named = settings.metric or metric
        raise SettingsError(
            f"the study's metric is code to be run here: name it with --metric {named} if you "
            "trust it"
            if settings.metric
            else f"the study has no metric {named}: leave --metric out"
        )
    return replace(settings, study=group), group, known


def _check_group(group: str) -> None:
    if not is_group_name(group):
        raise SettingsError(
            f"{group!r} is no name for a group: it must have 1 to 400 characters and no '@'"
        )


def _refuse_other_settings(file: str, settings: TuneSettings, others: TuneSettings) -> None:
    found = differences(replace(others, study=settings.study), settings)
    if found:
        raise SettingsError(
            f"{file} differs from what the group was begun with: {'; '.join(found)}; use the same "
            "study file everywhere, or another name (study)"
        )


def _refuse_foreign_code(settings: TuneSettings, group: str) -> None:
    named = [
        *settings.samples,
        *settings.references,
        *filter(None, [settings.expr_file]),
        *(f"option {name}" for name in settings.backend_options().keys() & _LOADS_CODE),
        *([f"sampler {settings.sampler}"] if ":" in settings.sampler else []),
    ]
    if named:
        raise SettingsError(
            f"the group {group!r} uses files or code that whoever began it named "
            f"({', '.join(named)}): join with the study file instead of the group's name"
        )
