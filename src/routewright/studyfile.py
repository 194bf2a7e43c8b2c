"""``study.json`` in an output folder: what a study was started with and how far it got."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from routewright.environment import environment_differences
from routewright.errors import SettingsError, StorageError
from routewright.files import explain_os_error, write_text_atomic
from routewright.settings import TuneSettings, differences
from routewright.storage import HIDDEN, redact, sqlite_url


def write_study_note(path: Path, content: Mapping[str, Any], *, flush: bool = True) -> None:
    """Write ``study.json``, atomically; see :func:`routewright.files.write_bytes_atomic`."""
    write_text_atomic(path, json.dumps(content, indent=2) + "\n", flush=flush)


def read_study_note(out: Path) -> dict[str, Any]:
    """Return what a folder's ``study.json`` says: settings, budget used, where the study lies.

    Raises:
        StorageError: There is none, or it cannot be read.
    """
    path = out / "study.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{out} holds no study: there is no {path.name} in it") from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {explain_os_error(error)}") from error
    except ValueError as error:
        raise StorageError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict) or not {"study", "settings"} <= content.keys():
        raise StorageError(f"{path} is not what a tuning wrote; start anew with another --out")
    return content


def storage_in(folder: Path, stored: object) -> str:
    """Return the URL of an output folder's study.

    Args:
        folder: The output folder. It may have been moved since; its own database goes with it.
        stored: The URL that a file in it names, for studies that lie elsewhere.
    """
    database = folder / "study.db"
    return sqlite_url(database) if database.exists() else str(stored or "")


def storable(settings: TuneSettings) -> dict[str, Any]:
    """Return the settings without secrets."""
    content = settings.to_dict()
    if settings.storage is not None:
        content["storage"] = redact(settings.storage)
    return content


def stored_settings(out: Path) -> TuneSettings:
    """Return the settings that the study in an output folder was started with.

    Raises:
        StorageError: The folder holds no study.
    """
    return TuneSettings.from_dict(read_study_note(out)["settings"])


def refuse_other_settings(out: Path, settings: TuneSettings) -> None:
    """Refuse settings that differ from those a study was started with; the budget may grow.

    Raises:
        SettingsError: Naming every difference.
    """
    note = read_study_note(out)
    if note.get("shared"):
        raise SettingsError(
            f"{out} is the folder of a worker on a shared study; go on with: routewright worker "
            f"{note['study']} --out {out} --storage ..."
        )
    found = differences(stored_settings(out), settings)
    if found:
        raise SettingsError(
            f"cannot resume {out} with other settings: {'; '.join(found)}; leave them out, or "
            "start a new study with another --out"
        )
    if settings.storage is not None and HIDDEN in settings.storage:
        raise SettingsError(
            f"the study lies in {settings.storage}, and passwords are not kept: give --storage "
            "again, with the password"
        )


def refuse_other_identity(was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with another model, other samples, or on another machine.

    Raises:
        SettingsError: Naming every difference.
    """
    found = environment_differences(was.get("environment", {}), now["environment"])
    found += [
        f"{name} was {was.get(name)!r} and is {value!r}"
        for name, value in now.items()
        if name not in ("environment", "versions") and was.get(name) != value
    ]
    if found:
        raise SettingsError(
            "cannot resume: the study was made under other circumstances, and times do not mix: "
            f"{'; '.join(found)}; start a new study with another --out"
        )
