"""From a study to another tuner's cache.

A study that was imported from such a cache gives back its header and rows as they were written.
Any other study is written as the tuner would have written it, one row for each trial that was
measured, the baseline first:

- Timed trials, those of the confirmation among them, have their time. Candidates are timed in
  turns with the baseline, minutes apart from each other, so the time written is the relative
  latency times the baseline's: comparing two rows then compares what was measured.
- A trial that broke the accuracy bound has its losses, and no time as it was not timed.
- A trial that failed is a crash with its reason.
- Left out, as the tuner measures every row: trials that were built for their fingerprint only,
  and trials that an earlier result stands for. Trials that the user interrupted say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from routewright.errors import StorageError
from routewright.interop.cache_file import write_cache
from routewright.interop.formats import CacheFormat
from routewright.interop.importing import IMPORTED, ROW
from routewright.interop.own_study import OwnStudy
from routewright.knobs import KnobDatabase
from routewright.storage import STORAGE_FAULTS, fault_line


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export did.

    Attributes:
        rows: How many rows were written.
        notes: What was left out, and what a reader should know, one line each.
    """

    rows: int
    notes: tuple[str, ...]


def export_cache(
    study: optuna.Study,
    path: Path,
    cache_format: CacheFormat,
    *,
    database: KnobDatabase | None = None,
    command: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> ExportReport:
    """Write a study as a tuning cache, atomically.

    Args:
        study: One of our studies, measured or imported.
        path: Where the cache goes.
        cache_format: Whose cache to write.
        database: The knobs, for their defaults; without them a row may name only what it changes.
        command: The command that made the study; from its settings if empty.
        more: More to keep in the header, under :data:`routewright.interop.own_study.OURS`.

    Raises:
        StorageError: The study cannot be read or holds nothing to write, or the file cannot be
            written.
    """
    try:
        trials = study.get_trials(deepcopy=False)
        attributes = study.user_attrs
    except STORAGE_FAULTS as error:
        raise StorageError(
            f"cannot read the study {study.study_name!r}: {fault_line(error)}"
        ) from error
    own = OwnStudy(study.study_name, attributes, trials, database)
    if own.source == cache_format.name and all(ROW in trial.user_attrs for trial in trials):
        header = attributes[IMPORTED]["header_line"]
        rows = [str(trial.user_attrs[ROW]) for trial in trials]
        notes = tuple(f"when imported, {note}" for note in attributes[IMPORTED]["skipped"])
    else:
        header = cache_format.line(own.header(cache_format, command, more or {}))
        rows = [cache_format.line(row) for row in own.rows(cache_format)]
        notes = tuple(own.notes())
    if not rows:
        raise StorageError(
            f"the study {study.study_name!r} holds no measured trial, so there is nothing to write"
        )
    write_cache(path, rows if header is None else [header, *rows])
    return ExportReport(len(rows), notes)
