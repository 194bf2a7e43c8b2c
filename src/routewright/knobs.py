"""Knobs, and the database of knobs that a compiler lists as JSON.

The reader is tolerant: an entry that cannot be used is skipped and reported, one that lacks
something is mended and reported, and only a file that lists no knob at all is an error.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from routewright.errors import KnobError, RoutewrightError
from routewright.notation import (
    MAX_LISTED,
    OFF_VALUES,
    KnobKind,
    Notation,
    classify,
    integer_of,
    is_off,
    is_spellable,
    quoted,
)

__all__ = [
    "MAX_LISTED",
    "OFF_VALUES",
    "Knob",
    "KnobDatabase",
    "KnobKind",
    "is_off",
    "quoted",
    "read_text_file",
]

_MAX_NAME = 512
_MAX_DESCRIBED = 24
_MAX_FILE_BYTES = 64 * 2**20
# Storages keep parameter values as doubles, which hold integers exactly up to here.
_MAX_SEARCHED_INTEGER = 2**53


@dataclass(frozen=True, slots=True)
class Knob:
    """One option of the compiler. Made by :meth:`of`.

    Attributes:
        name: Name as the compiler spells it, leading dash kept: ``-kgen:tiling``.
        kind: What kind of values it takes.
        values: Every value of a closed list or of a range of at most :data:`MAX_LISTED` integers,
            as the compiler spells them and in its order, the default among them. A default that
            the compiler does not list comes last. Empty for other kinds.
        low: Smallest integer of a range or open-ended knob; None where unknown.
        high: Largest integer of a range or open-ended knob; None where unknown.
        default: Value where a route does not name the knob. Empty where the compiler does not say
            it: then leaving the knob out is a value of its own.
        help: What the compiler says about it; may be empty.
        notation: The values as the compiler wrote them, the text after ``=``.
        special: Words that an open-ended knob takes besides integers.
    """

    name: str
    kind: KnobKind
    values: tuple[str, ...]
    low: int | None
    high: int | None
    default: str
    help: str
    notation: str
    special: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, notation: str, default: str, help_text: str = "") -> Knob:
        """Make a knob from its value notation.

        Args:
            name: Name with the leading dash.
            notation: The values, for example ``"[on|off]"`` or ``"[0-4]"``.
            default: Value where a route does not name the knob.
            help_text: What it does.

        Raises:
            KnobError: The name cannot be written in a route.
        """
        reason = _fault_in_name(name)
        if reason:
            raise KnobError(f"{quoted(name)} is no name for a knob: {reason}")
        return _knob(name, notation, default, help_text, classify(notation, default))

    @property
    def searchable(self) -> bool:
        """Whether a search can choose among its values without being given a list."""
        if self.kind is KnobKind.CLOSED:
            return len(self.values) > 1
        if self.kind is not KnobKind.RANGE or self.low is None or self.high is None:
            return False
        if max(abs(self.low), abs(self.high)) > _MAX_SEARCHED_INTEGER:
            return False
        return self.high > self.low or len(self.values) > 1

    @property
    def ordered(self) -> bool:
        """Whether all values are integers."""
        if self.kind is KnobKind.CLOSED or self.values:
            return all(integer_of(value) is not None for value in self.values)
        return self.kind in (KnobKind.RANGE, KnobKind.OPEN) and not self.special

    def allows(self, value: str) -> bool:
        """Tell whether the knob can be set to ``value``; the default always is allowed."""
        return self.canonical(value) is not None

    def canonical(self, value: str) -> str | None:
        """Return ``value`` as routes spell it, or None where it is not allowed.

        Only integers of ranges and open-ended knobs have more than one spelling: ``08`` is ``8``.
        """
        if value == self.default or value in self.values or value in self.special:
            return value
        if self.kind is KnobKind.UNSEARCHABLE:
            return value if value and is_spellable(value) else None
        number = integer_of(value)
        if self.kind is KnobKind.CLOSED or number is None:
            return None
        if not -(2**63) <= number < 2**63:
            return None
        if self.low is not None and number < self.low:
            return None
        if self.high is not None and number > self.high:
            return None
        return str(number)

    def describe_values(self) -> str:
        """Return what is allowed as words for a message, such as ``on, off``."""
        if self.kind is KnobKind.CLOSED:
            shown = [value or "(empty)" for value in self.values[:_MAX_DESCRIBED]]
            return ", ".join(shown if len(self.values) == len(shown) else [*shown, "..."])
        if self.kind is KnobKind.UNSEARCHABLE:
            return f"text without white space and brackets, as in {self.notation or 'VALUE'}"
        text = "an integer"
        if self.low is not None and self.high is not None:
            text = f"an integer from {self.low} to {self.high}"
        elif self.low is not None:
            text = f"an integer of at least {self.low}"
        elif self.high is not None:
            text = f"an integer of at most {self.high}"
        named = dict.fromkeys((*self.special, self.default))
        words = [word for word in named if word and integer_of(word) is None]
        return " or ".join([text, *words])


@dataclass(frozen=True)
class KnobDatabase:
    """The knobs of one version of a compiler.

    Attributes:
        tuner_version: Version as the compiler states it; ``"unknown"`` where it does not.
        knobs: All knobs in the compiler's order.
        skipped: What was skipped or mended while reading, one line each.
    """

    tuner_version: str
    knobs: tuple[Knob, ...]
    skipped: tuple[str, ...] = field(default=(), compare=False)
    _by_name: dict[str, Knob] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {knob.name: knob for knob in self.knobs}
        if len(by_name) != len(self.knobs):
            raise ValueError("a knob database names a knob twice")
        object.__setattr__(self, "_by_name", by_name)

    @classmethod
    def from_json(cls, text: str, *, source: str) -> KnobDatabase:
        """Read what ``IBuilderConfig::getAllBuildRoutes`` returns.

        Args:
            text: The JSON text.
            source: Where it comes from, for messages.

        Raises:
            KnobError: The text lists no knob: it is empty, not JSON, or of another shape.
        """
        text = text.removeprefix("\ufeff")
        if not text.strip():
            raise _no_knobs(source)
        try:
            root = json.loads(text)
        except json.JSONDecodeError as error:
            raise KnobError(
                f"{source} is not JSON (line {error.lineno}, column {error.colno}: {error.msg});"
                " give what all_build_routes returns"
            ) from None
        except (RecursionError, ValueError) as error:
            reason = (
                "nested too deep" if isinstance(error, RecursionError) else "a number too long"
            )
            raise KnobError(
                f"{source} is not a knob database ({reason}); give what all_build_routes returns"
            ) from None
        options = root.get("tuner_options") if isinstance(root, dict) else None
        if not isinstance(options, list):
            raise KnobError(
                f"{source} is not a knob database: it has no list named tuner_options;"
                " give what all_build_routes returns"
            )
        if not options:
            raise _no_knobs(source)
        return _read_options(options, root.get("tuner_version"), source)

    @classmethod
    def from_file(cls, path: Path) -> KnobDatabase:
        """Read a file; see :meth:`from_json`.

        Raises:
            KnobError: The file cannot be read or lists no knob.
        """
        return cls.from_json(read_text_file(path, KnobError), source=str(path))

    def to_json(self) -> str:
        """Return the database in the schema that :meth:`from_json` reads."""
        options = [
            {
                "option": knob.name,
                "allowed_values": f"{knob.name}={knob.notation}",
                "default_value": knob.default,
                "help": knob.help,
            }
            for knob in self.knobs
        ]
        root = {"tuner_version": self.tuner_version, "tuner_options": options}
        return json.dumps(root, indent=1)

    def __getitem__(self, name: str) -> Knob:
        """Return the knob ``name``; its leading dash may be left out.

        Raises:
            KnobError: There is no such knob.
        """
        knob = self.get(name)
        if knob is None:
            near = self.close_to(name)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise KnobError(
                f"there is no knob {quoted(name)}; {hint}`routewright knobs` lists all of them"
            )
        return knob

    def get(self, name: str) -> Knob | None:
        """Return the knob ``name``, or None; its leading dash may be left out."""
        return self._by_name.get(name) or self._by_name.get(f"-{name}")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[Knob]:
        return iter(self.knobs)

    def __len__(self) -> int:
        return len(self.knobs)

    def close_to(self, name: str) -> tuple[str, ...]:
        """Return up to three names that are spelled much like ``name``, the closest first."""
        dashed = f"-{name[:_MAX_NAME].lstrip('-')}"
        lowered = {known.lower(): known for known in reversed(self._by_name)}
        near = difflib.get_close_matches(dashed.lower(), lowered, n=3, cutoff=0.7)
        return tuple(lowered[match] for match in near)

    def parent(self, name: str) -> Knob | None:
        """Return the nearest knob that ``name`` is nested under, or None.

        Names nest by colons: ``-a:b:c`` is under ``-a:b`` where that is a knob, else under ``-a``.
        """
        stem = name
        while ":" in stem:
            stem = stem.rpartition(":")[0]
            knob = self.get(stem)
            if knob is not None:
                return knob
        return None

    def merged(self, other: KnobDatabase) -> KnobDatabase:
        """Return the knobs of both, those of ``other`` last.

        A knob that both have is kept as it is here, and reported.
        """
        added = tuple(knob for knob in other if knob.name not in self._by_name)
        repeated = tuple(
            f"{knob.name} is in both databases; the first was kept"
            for knob in other
            if knob.name in self._by_name
        )
        versions = dict.fromkeys((self.tuner_version, other.tuner_version))
        return KnobDatabase(
            tuner_version="+".join(version for version in versions if version),
            knobs=self.knobs + added,
            skipped=self.skipped + other.skipped + repeated,
        )


def read_text_file(path: Path, error_type: type[RoutewrightError]) -> str:
    """Return the text of a small UTF-8 file, without a byte order mark.

    Raises:
        RoutewrightError: As ``error_type``; the file cannot be read, is too large or is no text.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise error_type(f"cannot read {quoted(str(path))}: {reason}") from None
    if len(data) > _MAX_FILE_BYTES:
        limit_mib = _MAX_FILE_BYTES // 2**20
        raise error_type(f"{path} is larger than {limit_mib} MiB; is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise error_type(
            f"{path} is not UTF-8 text (byte {error.start}); is it the right file?"
        ) from None


def _no_knobs(source: str) -> KnobError:
    return KnobError(
        f"{source} lists no build-route knobs: the library is older than TensorRT 11.1,"
        " or runs on Windows, or is TensorRT-RTX, none of which have them"
    )


def _fault_in_name(name: str) -> str:
    """Return what makes ``name`` unfit for a route, or an empty string."""
    if not name.strip("-"):
        return "it is empty"
    if not name.startswith("-"):
        return "it has no leading dash"
    if len(name) > _MAX_NAME:
        return f"it is longer than {_MAX_NAME} characters"
    if not is_spellable(name) or any(char in "=|" for char in name):
        return "a route cannot hold it"
    return ""


def _knob(name: str, notation: str, default: str, help_text: str, meaning: Notation) -> Knob:
    values = meaning.values
    if meaning.kind in (KnobKind.RANGE, KnobKind.OPEN):
        number = integer_of(default)
        default = default if number is None else str(number)
    if values and default not in values:
        values = (*values, default)
    return Knob(
        name=name,
        kind=meaning.kind,
        values=values,
        low=meaning.low,
        high=meaning.high,
        default=default,
        help=help_text,
        notation=notation,
        special=meaning.special,
    )


def _read_options(options: list[Any], version: Any, source: str) -> KnobDatabase:
    knobs: dict[str, Knob] = {}
    notes: list[str] = []
    if version is None:
        version = "unknown"
    elif not isinstance(version, str):
        notes.append(f"tuner_version is {_json_kind(version)}, not text; read as unknown")
        version = "unknown"
    for index, entry in enumerate(options):
        where = f"entry {index + 1}"
        if not isinstance(entry, dict):
            notes.append(f"{where} skipped: it is {_json_kind(entry)}, not an object")
            continue
        option = entry.get("option")
        if not isinstance(option, str):
            what = "it has no option" if option is None else f"its option is {_json_kind(option)}"
            notes.append(f"{where} skipped: {what}")
            continue
        name = option.strip()
        if name and not name.startswith("-"):
            name = f"-{name}"
        reason = _fault_in_name(name)
        if reason:
            notes.append(f"{where} skipped: option {quoted(option)}: {reason}")
            continue
        if name in knobs:
            notes.append(f"{where} skipped: {name} is listed before; the first was kept")
            continue
        knobs[name], faults = _read_entry(name, entry)
        if name != option:
            faults.insert(0, f"option {quoted(option)} read as {name}")
        notes.extend(f"{name}: {fault}" for fault in faults)
    if not knobs:
        raise KnobError(
            f"{source} is not a knob database: none of its {len(options)} entries can be used"
            f" ({notes[-1]})"
        )
    return KnobDatabase(_encodable(version), tuple(knobs.values()), tuple(notes))


def _read_entry(name: str, entry: dict[str, Any]) -> tuple[Knob, list[str]]:
    """Return the knob of a JSON object and what had to be mended."""
    faults: list[str] = []
    default = _read_default(entry.get("default_value"), faults)
    notation = _read_notation(name, entry.get("allowed_values"), faults)
    help_text = entry.get("help", "")
    if not isinstance(help_text, str):
        faults.append(f"help is {_json_kind(help_text)}, not text; left empty")
        help_text = ""
    help_text = _encodable(help_text)
    meaning = classify(notation, default)
    faults.extend(meaning.notes)
    knob = _knob(name, notation, default, help_text, meaning)
    if meaning.values and knob.default not in meaning.values:
        shown = quoted(default) if default else "(empty)"
        faults.append(f"the default {shown} is not among the listed values; it was added")
    return knob, faults


def _read_default(value: Any, faults: list[str]) -> str:
    if isinstance(value, str):
        return _encodable(value).strip()
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        text = str(value)
    else:
        what = "missing" if value is None else f"{_json_kind(value)}, not text"
        faults.append(f"default_value is {what}; only leaving the knob out gives its default")
        return ""
    faults.append(f"default_value is {_json_kind(value)}, not text; read as {quoted(text)}")
    return text


def _read_notation(name: str, value: Any, faults: list[str]) -> str:
    if not isinstance(value, str):
        what = "missing" if value is None else f"{_json_kind(value)}, not text"
        faults.append(f"allowed_values is {what}; the knob cannot be searched")
        return ""
    text = _encodable(value).strip()
    before, equals, after = text.partition("=")
    if text[:1] in ("[", "{") or not equals:
        notation = text.removeprefix(name).strip()
        faults.append(f"allowed_values {quoted(text)} has no '='; read as {quoted(notation)}")
        return notation
    if before.strip() != name:
        faults.append(f"allowed_values names {quoted(before.strip())} instead")
    notation = after.strip()
    if not notation:
        faults.append("allowed_values lists nothing; the knob cannot be searched")
    return notation


def _encodable(text: str) -> str:
    """Replace halves of characters, which JSON can escape but no file or terminal can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _json_kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"
