"""A table's files: ``card.json`` and ``table.npz``, read with suspicion, written whole.

The card carries the SHA-256 of the numbers and of itself, so a table that was cut off, mixed up
with another or edited is refused instead of answering with something else.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from routewright.bounds import AccuracyBound
from routewright.errors import RoutewrightError
from routewright.files import explain_os_error, write_bytes_atomic, write_text_atomic
from routewright.knobs import KnobDatabase
from routewright.npz_files import DAMAGE
from routewright.tables.entries import TableError
from routewright.tables.measurements import NOTHING, Measurements
from routewright.tables.readme import data_card

TABLE_SCHEMA = 1

CARD_FILE, DATA_FILE, README_FILE = "card.json", "table.npz", "README.md"

_NEEDED = {
    "name": str,
    "backend": str,
    "model": dict,
    "shapes": dict,
    "outputs": dict,
    "bound": dict,
    "metric": str,
    "environment": dict,
    "database": dict,
    "live": list,
    "failures": list,
    "reasons": list,
    "repeatability": dict,
    "prediction": dict,
    "data": dict,
}


def is_table(folder: Path) -> bool:
    """Tell whether a folder looks like a table's."""
    return (folder / CARD_FILE).is_file()


def load_table(folder: Path) -> tuple[dict[str, Any], KnobDatabase, Measurements]:
    """Read a table's card, knobs and numbers.

    Raises:
        TableError: There is no table, it is of another schema, or it is not whole.
    """
    card = read_card(folder)
    data = _read(folder / DATA_FILE)
    if hashlib.sha256(data).hexdigest() != card["data"].get("sha256"):
        raise TableError(
            f"{folder / DATA_FILE} is not the file that {CARD_FILE} was written with: it was cut "
            "off or changed; get the table anew"
        )
    try:
        database = KnobDatabase.from_json(json.dumps(card["database"]), source=str(folder))
        AccuracyBound.from_dict(card["bound"])
        measurements = _measurements(data)
        fault = _fault(card, database, measurements)
    except (*DAMAGE, RoutewrightError, AttributeError, IndexError) as error:
        raise TableError(f"the table {folder} is damaged: {error}") from error
    if fault:
        raise TableError(f"the table {folder} is damaged: {fault}")
    return card, database, measurements


def read_card(folder: Path) -> dict[str, Any]:
    """Read a table's card alone.

    Raises:
        TableError: There is none, it is of another schema, or it was changed.
    """
    path = folder / CARD_FILE
    try:
        card = json.loads(_read(path))
    except ValueError as error:
        raise TableError(f"{path} is no JSON: {error}; get the table anew") from error
    schema = card.get("schema") if isinstance(card, dict) else None
    if schema != TABLE_SCHEMA:
        raise TableError(
            f"{path} has schema {schema!r}, and this version reads {TABLE_SCHEMA}; "
            "record the table again or use the version that wrote it"
        )
    for key, kind in _NEEDED.items():
        if not isinstance(card.get(key), kind):
            raise TableError(f"{path} lacks {key!r}: it is no table's card")
    if card.get("digest") != card_digest(card):
        raise TableError(f"{path} was changed after it was written; get the table anew")
    return dict(card)


def save_table(
    folder: Path, card: Mapping[str, Any], database: KnobDatabase, data: Measurements
) -> None:
    """Write a table; the card last, so that a folder with a card is whole.

    Raises:
        StorageError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{item.name: getattr(data, item.name) for item in fields(data)})
    content = buffer.getvalue()
    full = {
        "schema": TABLE_SCHEMA,
        **{key: value for key, value in card.items() if key not in ("schema", "digest")},
        "database": json.loads(database.to_json()),
        "data": {"file": DATA_FILE, "sha256": hashlib.sha256(content).hexdigest()},
    }
    full["digest"] = card_digest(full)
    write_bytes_atomic(folder / DATA_FILE, content)
    write_text_atomic(folder / README_FILE, data_card(full))
    write_text_atomic(
        folder / CARD_FILE,
        json.dumps(full, indent=1, allow_nan=False, ensure_ascii=False) + "\n",
    )


def card_digest(card: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a card's content, its own digest left out."""
    content = {key: value for key, value in card.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TableError(
            f"there is no {path}: name the folder of a table, such as studies/tables/NAME"
        ) from error
    except OSError as error:
        raise TableError(f"cannot read {path}: {explain_os_error(error)}") from error


def _measurements(data: bytes) -> Measurements:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return Measurements(**{item.name: archive[item.name] for item in fields(Measurements)})


def _fault(card: Mapping[str, Any], database: KnobDatabase, data: Measurements) -> str:
    """Return what does not fit together, or an empty string."""
    routes, knobs = data.values.shape
    engines, pairs, runs = data.baseline_ms.shape
    outputs, repeated = len(card["outputs"]), len(data.repeated)
    expected: dict[str, tuple[int, ...]] = {
        "engine": (routes,),
        "failure": (routes,),
        "reason": (routes,),
        "build_s": (routes,),
        "first_check_s": (routes,),
        "check_s": (routes,),
        "order": (routes,),
        "process": (routes,),
        "first_losses": (routes, outputs),
        "losses": (routes, outputs),
        "fingerprints": (engines,),
        "candidate_ms": (engines, pairs, runs),
        "wall_s": (engines, pairs),
        "candidate_first": (pairs,),
        "repeat_baseline_ms": (repeated, pairs, runs),
        "repeat_candidate_ms": (repeated, pairs, runs),
    }
    for name, shape in expected.items():
        if getattr(data, name).shape != shape:
            return f"{name} has the shape {getattr(data, name).shape} instead of {shape}"
    if knobs != len(card["live"]) or not routes or not engines:
        return "the card names other knobs than were measured"
    for column, name in enumerate(card["live"]):
        if name not in database or not _within(data.values[:, column], len(database[name].values)):
            return f"{name} has values that it does not take"
    for name, count in (
        ("engine", engines),
        ("failure", len(card["failures"])),
        ("reason", len(card["reasons"])),
    ):
        if not _within(getattr(data, name) - NOTHING, count - NOTHING):
            return f"{name} points to nothing"
    if not _within(data.repeated, engines):
        return "repeated points to nothing"
    times = (data.baseline_ms, data.candidate_ms, data.build_s)
    if any((array[np.isfinite(array)] < 0).any() for array in times):
        return "a time is negative"
    return ""


def _within(indices: np.ndarray[Any, Any], count: int) -> bool:
    return not len(indices) or bool(indices.min() >= 0 and indices.max() < count)
