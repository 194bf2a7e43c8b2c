"""Evidence as files: strict JSON, one object for each source, alone or several in one file.

A *prior* is a file or a folder of files. A folder holds one file for each source, so that a
source is removed by removing its file. Nothing in a file is ever run or unpickled.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from routewright.errors import RoutewrightError
from routewright.files import explain_os_error, write_text_atomic
from routewright.priors.evidence import (
    PAIR_COLUMNS,
    SETTING_COLUMNS,
    Evidence,
    Origin,
    pairs_frame,
    settings_frame,
)
from routewright.priors.features import ModelFeatures

SCHEMA = "routewright-prior"
VERSION = 1
SUFFIX = ".prior.json"
"""Files of a folder that end so are read as priors."""

_MOST_BYTES = 64 * 2**20
_TEXT_COLUMNS = frozenset({"knob", "value", "role", "first", "second"})


class PriorError(RoutewrightError):
    """A prior cannot be read, written or used."""


def read_prior(path: Path) -> list[Evidence]:
    """Return the sources of a prior file or folder, sorted by their keys.

    Raises:
        PriorError: There is none, or a file is not a prior of this version.
    """
    if path.is_dir():
        files = sorted(path.glob(f"*{SUFFIX}"))
        if not files:
            raise PriorError(f"{path} holds no prior: no file in it ends in {SUFFIX}")
        return merged([source for file in files for source in _read_file(file)])
    return merged(_read_file(path))


def merged(sources: Iterable[Evidence]) -> list[Evidence]:
    """Return each source once, the last of those with the same key, in a fixed order."""
    by_key = {source.key: source for source in sources}
    return [by_key[key] for key in sorted(by_key)]


def write_prior(path: Path, sources: Sequence[Evidence]) -> None:
    """Write sources into one file, or one file each where ``path`` is a folder.

    Raises:
        PriorError: The folder cannot be made.
        StorageError: The file cannot be written.
    """
    if path.suffix != ".json":
        _make_folder(path)
        for source in sources:
            write_text_atomic(path / file_name(source), _text([source]))
        return
    _make_folder(path.parent)
    write_text_atomic(path, _text(merged(sources)))


def file_name(source: Evidence) -> str:
    """Return the name of a source's own file."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", source.origin.name)[:60].strip("-.") or "study"
    return f"{stem}-{source.key}{SUFFIX}"


def remove_sources(path: Path, names: Sequence[str]) -> list[Evidence]:
    """Take sources out of a prior, by name or key, and return what was taken out.

    Raises:
        PriorError: A name fits no source, or nothing would be left in a file.
    """
    sources = read_prior(path)
    removed = [s for s in sources if s.origin.name in names or s.key in names]
    known = {s.origin.name for s in removed} | {s.key for s in removed}
    for name in names:
        if name not in known:
            there = ", ".join(sorted(s.origin.name for s in sources))
            raise PriorError(f"{path} has no source {name!r}; it has: {there}")
    kept = [s for s in sources if s not in removed]
    if path.is_dir():
        _remove_from_folder(path, {source.key for source in removed})
    elif kept:
        write_prior(path, kept)
    else:
        raise PriorError(f"nothing would be left in {path}; remove the file instead")
    return removed


def _remove_from_folder(path: Path, keys: set[str]) -> None:
    for file in sorted(path.glob(f"*{SUFFIX}")):
        inside = _read_file(file)
        kept = [source for source in inside if source.key not in keys]
        if not kept:
            file.unlink()
        elif len(kept) < len(inside):
            write_text_atomic(file, _text(kept))


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PriorError(f"cannot make the folder {path}: {explain_os_error(error)}") from error


def _text(sources: Sequence[Evidence]) -> str:
    content = {
        "schema": SCHEMA,
        "version": VERSION,
        "sources": [_to_json(source) for source in sources],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _to_json(source: Evidence) -> dict[str, Any]:
    origin = source.origin
    return {
        "name": origin.name,
        "kind": origin.kind,
        "backend": origin.backend,
        "tuner_version": origin.tuner_version,
        "model": origin.model,
        "model_sha256": origin.model_sha256,
        "family": origin.family,
        "features": None if origin.features is None else origin.features.to_dict(),
        "environment": dict(sorted(origin.environment.items())),
        "loss": origin.loss,
        "threshold": origin.threshold if math.isfinite(origin.threshold) else "inf",
        "baseline_ms": origin.baseline_ms,
        "trials": source.trials,
        "defaults": dict(origin.defaults),
        "settings": _rows(source.settings.to_dict("records")),
        "pairs": _rows(source.pairs.to_dict("records")),
    }


def _rows(rows: Iterable[Mapping[Any, Any]]) -> list[dict[str, Any]]:
    """Return rows without what is not known."""
    return [
        {
            str(name): value if isinstance(value, str) else float(value)
            for name, value in row.items()
            if isinstance(value, str) or math.isfinite(value)
        }
        for row in rows
    ]


def _read_file(path: Path) -> list[Evidence]:
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise PriorError(f"{path} is larger than {_MOST_BYTES // 2**20} MiB: not a prior")
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError as error:
        raise PriorError(
            f"there is no prior {path}; learn one with `routewright prior learn`"
        ) from error
    except OSError as error:
        raise PriorError(f"cannot read {path}: {explain_os_error(error)}") from error
    except (ValueError, RecursionError) as error:
        raise PriorError(f"{path} is not a prior: it is not strict JSON ({error})") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise PriorError(f"{path} is not a prior: its schema is not {SCHEMA}")
    if content.get("version") != VERSION:
        raise PriorError(
            f"{path} is a prior of version {content.get('version')!r}, and this Routewright reads "
            f"version {VERSION}; learn it anew from its sources"
        )
    try:
        return [_from_json(source) for source in content["sources"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PriorError(f"{path} is damaged: {error!r}; learn it anew") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _from_json(content: Mapping[str, Any]) -> Evidence:
    features = content["features"]
    origin = Origin(
        name=_string(content["name"]),
        kind=_string(content["kind"]),
        backend=_string(content["backend"]),
        tuner_version=_string(content["tuner_version"]),
        model=_string(content["model"]),
        model_sha256=None if content["model_sha256"] is None else _string(content["model_sha256"]),
        family=_string(content["family"]),
        features=None if features is None else ModelFeatures.from_dict(features),
        environment=dict(content["environment"]),
        loss=_string(content["loss"]),
        threshold=float(content["threshold"]),
        baseline_ms=None if content["baseline_ms"] is None else float(content["baseline_ms"]),
        defaults={_string(k): _string(v) for k, v in content["defaults"].items()},
    )
    return Evidence(
        origin,
        settings_frame(_read_rows(content["settings"], SETTING_COLUMNS)),
        pairs_frame(_read_rows(content["pairs"], PAIR_COLUMNS)),
        int(content["trials"]),
    )


def _read_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    return [{name: _cell(row, name) for name in columns} for row in rows]


def _cell(row: Mapping[str, Any], name: str) -> Any:
    if name in _TEXT_COLUMNS:
        return _string(row[name])
    value = row.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{name} is {value!r}, not a number")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value
