"""Where priors lie: those that ship with Routewright, and the user's own folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from routewright.errors import RoutewrightError
from routewright.priors.evidence import Evidence
from routewright.priors.files import SUFFIX, merged, read_prior, write_prior

NONE = "none"
AUTO = "auto"

SHIPPED_VARIABLE = "ROUTEWRIGHT_PRIORS"
"""Environment variable that names another folder of shipped priors."""


@dataclass(frozen=True)
class Loaded:
    """The sources of a prior.

    Attributes:
        sources: What they say.
        places: Where they were read from.
        notes: What could not be read, one line each.
    """

    sources: Sequence[Evidence]
    places: Sequence[Path]
    notes: Sequence[str] = ()


def user_folder() -> Path:
    """Return the user's own folder of priors; it need not exist."""
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "routewright" / "priors"


def shipped_folder() -> Path:
    """Return the folder of the priors that ship with Routewright; it need not exist."""
    chosen = os.environ.get(SHIPPED_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file():
        return checkout / "priors"
    return Path(sys.prefix) / "share" / "routewright" / "priors"


def load(what: str) -> Loaded:
    """Return the sources of a prior.

    Args:
        what: ``"auto"`` for the shipped priors and the user's own, or the path of a file or
            folder. Of one source in both, the user's own counts.

    Raises:
        PriorError: A path was given, and there is no prior that can be read.
    """
    if what != AUTO:
        path = Path(what).expanduser()
        return Loaded(read_prior(path), [path])
    sources: list[Evidence] = []
    places: list[Path] = []
    notes: list[str] = []
    for folder in (shipped_folder(), user_folder()):
        for file in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []:
            try:
                sources += read_prior(file)
            except RoutewrightError as error:
                # One unreadable file must not keep anyone from tuning.
                notes.append(f"left out of the prior: {error}")
                continue
            if folder not in places:
                places.append(folder)
    return Loaded(merged(sources), places, notes)


def remember(evidence: Evidence, *, family: str = "") -> Path:
    """Add a source to the user's own folder and return that folder.

    Raises:
        RoutewrightError: The folder cannot be written.
    """
    if family:
        evidence = replace(evidence, origin=replace(evidence.origin, family=family))
    folder = user_folder()
    write_prior(folder, [evidence])
    return folder
