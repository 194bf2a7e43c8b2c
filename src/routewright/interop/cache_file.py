"""Tuning caches as files: JSON lines, a header first, then one line for each route tried.

Reading is tolerant: a line that cannot be used is skipped and reported with its number, a value
of a wrong type is left out and reported, and only a file of which nothing can be used is an
error. Every row keeps its line as it was written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from routewright.errors import RoutewrightError
from routewright.files import write_text_atomic

MOST_LINE_BYTES = 16 * 2**20
"""A line longer than this is no row of a tuning cache."""

_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MOST_NUMBERS = 5


class CacheFileError(RoutewrightError):
    """A tuning cache cannot be read or written, or nothing in it can be used."""


@dataclass(frozen=True, slots=True)
class CacheRow:
    """One route as another tuner tried it.

    Attributes:
        line: Number of its line in the file, from 1.
        text: The line as it was written, without its end.
        iteration: The other tuner's number; in a mixed run it starts again in the second phase.
        route: The route as it was written.
        crashed: Whether its build or run crashed.
        error: What the other tuner said about it; empty where all went well.
        losses: Loss by output; one that is no number is infinite. Empty where none was written.
        gpu_time_ms: Time of one inference, or None where there is none that can be believed.
    """

    line: int
    text: str
    iteration: int | None
    route: str
    crashed: bool
    error: str
    losses: Mapping[str, float]
    gpu_time_ms: float | None


@dataclass(frozen=True)
class CacheFile:
    """A tuning cache.

    Attributes:
        path: Where it was read from.
        header_text: The header's line as it was written; None where there is none.
        header: What it says.
        rows: What was tried, in the file's order.
        notes: What was skipped or mended, one line each.
    """

    path: Path
    header_text: str | None
    header: Mapping[str, Any]
    rows: tuple[CacheRow, ...]
    notes: tuple[str, ...] = ()


def read_cache(path: Path) -> CacheFile:
    """Read a tuning cache of trtexec or of Torch-TensorRT.

    A byte order mark, the line ends of other systems and empty lines are passed over.

    Raises:
        CacheFileError: The file cannot be read, or no row in it can be used.
    """
    reader = _Reader()
    try:
        with path.open("rb") as stream:
            for number, data, is_whole in _lines(stream):
                reader.add(number, data, is_whole)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CacheFileError(f"cannot read the tuning cache {str(path)!r}: {reason}") from error
    reader.finish()
    if not reader.rows:
        raise CacheFileError(f"{path} {reader.why_nothing()}")
    return CacheFile(
        path, reader.header_text, reader.header, tuple(reader.rows), tuple(reader.notes.lines())
    )


def write_cache(path: Path, lines: Iterable[str]) -> None:
    """Write the lines of a tuning cache, atomically.

    Raises:
        StorageError: The folder is missing, not writable, or full.
    """
    write_text_atomic(path, "".join(f"{line}\n" for line in lines))


class Notes:
    """Remarks about lines of a file; the same remark about many lines is made once."""

    def __init__(self) -> None:
        self._lines: dict[str, list[int]] = {}

    def add(self, line: int, remark: str) -> None:
        """Note a remark about a line."""
        self._lines.setdefault(remark, []).append(line)

    def lines(self) -> Iterator[str]:
        """Yield every remark with the numbers of its lines."""
        for remark, numbers in self._lines.items():
            told = ", ".join(map(str, numbers[:_MOST_NUMBERS]))
            more = len(numbers) - _MOST_NUMBERS
            if more > 0:
                told += f" and {more} more"
            yield f"line{'s' * (len(numbers) > 1)} {told}: {remark}"


@dataclass
class _Reader:
    header_text: str | None = None
    header: Mapping[str, Any] = field(default_factory=dict)
    rows: list[CacheRow] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    _is_first: bool = True
    _is_compressed: bool = False
    _held_back: tuple[int, str, bool] | None = None

    def add(self, number: int, data: bytes | None, is_whole: bool) -> None:
        """Take one line that is not empty; ``data`` is None where it is too long."""
        if self._held_back is not None:
            # Whether a broken line is the last one only shows when the next one comes.
            self._note_broken(is_last=False)
        is_first, self._is_first = self._is_first, False
        if data is None:
            limit = MOST_LINE_BYTES // 2**20
            self.notes.add(number, f"skipped: longer than {limit} MiB, which no row is")
            return
        self._is_compressed |= is_first and data.startswith(_GZIP)
        try:
            text = data.decode("utf-8")
            parsed = _parse(text)
        except ValueError as error:
            self._held_back = (number, _reason(error), is_whole)
            return
        if is_first and "build_route" not in parsed:
            self.header_text, self.header = text, parsed
        else:
            if is_first:
                self.notes.add(number, "a row, although the first line should be the header")
            row = _row(parsed, number, text, self.notes)
            if row is not None:
                self.rows.append(row)

    def finish(self) -> None:
        """Take the end of the file."""
        if self._held_back is not None:
            self._note_broken(is_last=True)

    def why_nothing(self) -> str:
        """Return why the file gave no row."""
        if self._is_first:
            return "is empty: it holds neither a header nor a row"
        if self._is_compressed:
            return "is compressed; unpack it first (gunzip)"
        if self.header_text is not None and not any(self.notes.lines()):
            return "holds a header but no row yet: there is nothing to import"
        reason = next(self.notes.lines(), "it holds nothing that is a row")
        return f"is no tuning cache with a row that can be used ({reason})"

    def _note_broken(self, *, is_last: bool) -> None:
        assert self._held_back is not None
        number, reason, is_whole = self._held_back
        self._held_back = None
        if self.header_text is None and not self.rows:
            remark = f"skipped: {reason}; if it was the header, its settings are lost"
        elif is_last and not is_whole:
            remark = "skipped: the last line is cut off, as its writer was killed"
        else:
            remark = f"skipped: {reason}"
        self.notes.add(number, remark)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None, bool]]:
    """Yield the number, the content and whether a line end follows, of each line with content."""
    number = 0
    while piece := stream.readline(MOST_LINE_BYTES + 1):
        number += 1
        is_whole = piece.endswith(b"\n")
        if not is_whole and len(piece) > MOST_LINE_BYTES:
            while (piece := stream.readline(MOST_LINE_BYTES)) and not piece.endswith(b"\n"):
                continue
            yield number, None, True
            continue
        if number == 1:
            piece = piece.removeprefix(_BYTE_ORDER_MARK)
        data = piece.rstrip(b"\r\n")
        if data.strip():
            yield number, data, is_whole


def _parse(text: str) -> dict[str, Any]:
    """Return the object in a line.

    Raises:
        ValueError: There is none.
    """
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg} at column {error.colno})") from None
    except (RecursionError, ValueError):
        raise ValueError("it is no row: nested too deep, or with a number too long") from None
    if not isinstance(parsed, dict):
        raise ValueError("it is no JSON object")
    return parsed


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return str(error)


def _row(values: dict[str, Any], line: int, text: str, notes: Notes) -> CacheRow | None:
    """Return the row in a line's object; None where it names no route."""
    route = values.get("build_route")
    if not isinstance(route, str):
        notes.add(line, "skipped: it names no build_route")
        return None
    gpu_time_ms = _time_ms(values.get("gpu_time"), line, notes)
    crashed = values.get("crash")
    if not isinstance(crashed, bool):
        crashed = gpu_time_ms is None
        read_as = "crashed" if crashed else "not crashed"
        notes.add(line, f"crash is neither true nor false; read as {read_as} by its gpu_time")
    iteration = values.get("iter")
    if isinstance(iteration, bool) or not isinstance(iteration, int):
        iteration = None
    error = values.get("error_message")
    if not isinstance(error, str):
        if error is not None:
            notes.add(line, "error_message is no text; left out")
        error = ""
    return CacheRow(
        line=line,
        text=text,
        iteration=iteration,
        route=_printable(route),
        crashed=crashed,
        error=_printable(error),
        losses=_losses(values.get("accuracy_loss"), line, notes),
        gpu_time_ms=gpu_time_ms,
    )


def _time_ms(value: Any, line: int, notes: Notes) -> float | None:
    if value is None:
        return None
    number = _number(value)
    if number is None:
        notes.add(line, "gpu_time is no number; read as not timed")
        return None
    if not 0 < number < math.inf:
        # A time of 0 is what trtexec writes where none was measured.
        notes.add(line, f"gpu_time is {number:g}, which is no time; read as not timed")
        return None
    return number


def _losses(value: Any, line: int, notes: Notes) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        notes.add(line, "accuracy_loss is no object of outputs; left out")
        return {}
    losses: dict[str, float] = {}
    for name, loss in value.items():
        # JSON has no infinity and no NaN, so they are written as null.
        number = math.inf if loss is None else _number(loss)
        if number is None:
            notes.add(line, "a loss is no number; left out")
            continue
        losses[_printable(name)] = math.inf if math.isnan(number) else number
    return losses


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _printable(text: str) -> str:
    """Replace halves of characters, which JSON can escape but no file or terminal can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
