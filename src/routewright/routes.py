"""Routes and route expressions, written as trtexec writes them.

A route is tokens ``-knob=value`` separated by white space. A route expression is a set of routes:
``-knob=value`` pins a knob and ``-knob=[a|b|c]`` varies it. Both are checked against a knob
database, and every refusal quotes the token at fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from routewright.errors import KnobError, RouteError
from routewright.knobs import Knob, KnobDatabase, KnobKind, quoted, read_text_file
from routewright.notation import is_spellable

_LISTING = "`routewright knobs` lists all knobs"
_CAMEL_CASE = re.compile(r"[a-z0-9]+[A-Z]\w*")
_TRTEXEC_WORDS = frozenset(
    {"best", "bf16", "fp16", "fp8", "int4", "int8", "onnx", "separate", "shapes", "verbose"}
)


@dataclass(frozen=True, slots=True)
class Route:
    """One value for each knob of a database; knobs at their default are left out.

    Two routes are equal exactly if they give every knob the same value. Made by :meth:`parse` or
    :meth:`of`; ``Route()`` is the default route.

    Attributes:
        pairs: Name and value of every knob that is not at its default, in the database's order.
    """

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str, database: KnobDatabase) -> Route:
        """Read a route; an empty text is the default route.

        Every token pins a knob, with the leading dash and the spelling that the database has. A
        knob may be named once only, even with the same value again. An empty value (``-knob=``)
        is taken only where it is one of the knob's values or its default.

        Raises:
            RouteError: A token is malformed, repeats a knob, or names a knob or value that the
                database does not have.
        """
        chosen: dict[str, str] = {}
        tokens: dict[str, str] = {}
        for token in text.split():
            knob, value = _split_token(token, database)
            if "[" in value or "]" in value:
                raise RouteError(
                    f"{quoted(token)} is no route: a route gives each knob one value;"
                    " lists belong in a route expression"
                )
            _refuse_repeat(token, knob, tokens)
            chosen[knob.name] = _pinned_value(token, knob, value)
        return cls._of_canonical(chosen, database)

    @classmethod
    def of(cls, values: Mapping[str, str], database: KnobDatabase) -> Route:
        """Make a route from values by knob name; knobs not named are at their default.

        Raises:
            RouteError: A knob or value is not in the database.
        """
        return cls._of_canonical(_checked_values(values, database), database)

    @classmethod
    def _of_canonical(cls, values: Mapping[str, str], database: KnobDatabase) -> Route:
        return cls(
            tuple(
                (knob.name, values[knob.name])
                for knob in database
                if values.get(knob.name, knob.default) != knob.default
            )
        )

    @property
    def values(self) -> Mapping[str, str]:
        """Value by name of every knob that is not at its default."""
        return MappingProxyType(dict(self.pairs))

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the knobs that are not at their default."""
        return tuple(name for name, _ in self.pairs)

    def with_(self, values: Mapping[str, str], database: KnobDatabase) -> Route:
        """Return this route with ``values`` set; a knob set to its default is left out.

        Raises:
            RouteError: A knob or value is not in the database.
        """
        chosen = _checked_values(self.values, database) | _checked_values(values, database)
        return self._of_canonical(chosen, database)

    def full_text(self, database: KnobDatabase) -> str:
        """Return every knob with its value, as trtexec writes its ``default_build_route``.

        A knob whose default cannot be written in a route (because it holds white space, say) is
        left out while it is at that default.
        """
        values = self.values
        return " ".join(
            f"{knob.name}={values.get(knob.name, knob.default)}"
            for knob in database
            if is_spellable(values.get(knob.name, knob.default))
        )

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.pairs)


DEFAULT_ROUTE = Route()
"""All knobs at their defaults."""


@dataclass(frozen=True, slots=True)
class RouteExpression:
    """A set of routes: some knobs pinned, some varied, the others at their defaults.

    Made by :meth:`parse` or :meth:`from_file`.

    A varied knob takes the listed values only. Its default need not be among them: the default
    route is measured in every study, also where the expression does not hold it.

    Attributes:
        tokens: Name and what it is set to, in the order written: a text where the knob is pinned,
            a tuple of the listed values where it is varied.
    """

    tokens: tuple[tuple[str, str | tuple[str, ...]], ...]

    @classmethod
    def parse(cls, text: str, database: KnobDatabase) -> RouteExpression:
        """Read a route expression.

        Tokens are separated by any white space, line breaks included. White space within brackets
        is allowed and trimmed. As in trtexec, empty alternatives are dropped (``[on||off]``), but
        where an empty text is one of the knob's values it is meant: ``[|prefer_tf32]``. Unlike in
        trtexec, an open-ended integer knob can be varied over a list: ``-knob=[1|2|4]``.

        Raises:
            RouteError: There is no token; or a token is malformed, repeats a knob, lists a value
                twice, lists nothing, goes on without end, varies a knob that takes any text, or
                names a knob or value that the database does not have.
        """
        reader = _ExpressionReader(database)
        for token in _split_expression(text):
            reader.add(token)
        return cls(reader.finished("the route expression"))

    @classmethod
    def from_file(cls, path: Path, database: KnobDatabase) -> RouteExpression:
        """Read a route expression from a file with one token on each line.

        Blank lines and lines that start with ``#`` are passed over. Several tokens on one line
        are read as well, but a list must end on the line where it begins.

        Raises:
            RouteError: The file cannot be read, or as in :meth:`parse`; the message names the
                line.
        """
        text = read_text_file(path, RouteError)
        reader = _ExpressionReader(database)
        for number, line in enumerate(text.splitlines(), start=1):
            if line.lstrip().startswith("#"):
                continue
            try:
                for token in _split_expression(line):
                    reader.add(token)
            except RouteError as error:
                raise RouteError(f"{path}, line {number}: {error}") from None
        return cls(reader.finished(str(path)))

    @property
    def pinned(self) -> Mapping[str, str]:
        """Value by name of every pinned knob, in the order written."""
        return MappingProxyType({name: to for name, to in self.tokens if isinstance(to, str)})

    @property
    def variable(self) -> Mapping[str, tuple[str, ...]]:
        """Listed values by name of every varied knob, both in the order written."""
        return MappingProxyType({name: to for name, to in self.tokens if not isinstance(to, str)})

    def __str__(self) -> str:
        return " ".join(
            f"{name}={to}" if isinstance(to, str) else f"{name}=[{'|'.join(to)}]"
            for name, to in self.tokens
        )


class _ExpressionReader:
    """Collects the tokens of one expression."""

    def __init__(self, database: KnobDatabase) -> None:
        self._database = database
        self._first: dict[str, str] = {}
        self._read: list[tuple[str, str | tuple[str, ...]]] = []

    def add(self, token: str) -> None:
        knob, value = _split_token(token, self._database)
        _refuse_repeat(token, knob, self._first)
        if "[" in value or "]" in value:
            self._read.append((knob.name, _listed_values(token, knob, value)))
        else:
            self._read.append((knob.name, _pinned_value(token, knob, value)))

    def finished(self, source: str) -> tuple[tuple[str, str | tuple[str, ...]], ...]:
        if not self._read:
            raise RouteError(
                f"{source} is empty; write tokens such as -knob=value or -knob=[a|b], {_LISTING}"
            )
        return tuple(self._read)


def _split_expression(text: str) -> list[str]:
    """Split at white space outside brackets."""
    tokens: list[str] = []
    start: int | None = None
    is_inside = False
    for index, char in enumerate(text):
        if char.isspace() and not is_inside:
            if start is not None:
                tokens.append(text[start:index])
            start = None
            continue
        if start is None:
            start = index
        is_inside = (is_inside or char == "[") and char != "]"
    if start is not None:
        tokens.append(text[start:].rstrip())
    return tokens


def _split_token(token: str, database: KnobDatabase) -> tuple[Knob, str]:
    """Return the knob that ``token`` names and the text after ``=``.

    Raises:
        RouteError: There is no such knob, or no ``=``.
    """
    name, equals, value = token.partition("=")
    knob = database.get(name)
    if knob is None or knob.name != name:
        raise _unknown_knob(token, name, database)
    if not equals:
        raise RouteError(
            f"{quoted(token)} has no value; write {name}=VALUE without spaces,"
            f" where VALUE is {knob.describe_values()}"
        )
    return knob, value


def _unknown_knob(token: str, name: str, database: KnobDatabase) -> RouteError:
    bare = name.lstrip("-")
    meant = database.get(f"-{bare}") if bare else None
    if meant is not None and not name.startswith("-"):
        return RouteError(f"{quoted(token)} has no leading dash; write {quoted(f'-{token}')}")
    if meant is not None:
        return RouteError(f"{quoted(token)}: there is no knob {name}; did you mean {meant.name}?")
    near = database.close_to(name) if bare else ()
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    if name.startswith("-") and _is_like_trtexec_option(name):
        return RouteError(
            f"{quoted(token)} looks like an option of trtexec, not a build-route knob;"
            f" {hint}{_LISTING}"
        )
    if not name.startswith("-"):
        return RouteError(f"{quoted(token)} is not of the form -knob=value; {hint}{_LISTING}")
    return RouteError(f"{quoted(token)}: there is no knob {quoted(name)}; {hint}{_LISTING}")


def _is_like_trtexec_option(name: str) -> bool:
    bare = name.lstrip("-")
    return name.startswith("--") or bare in _TRTEXEC_WORDS or bool(_CAMEL_CASE.fullmatch(bare))


def _refuse_repeat(token: str, knob: Knob, seen: dict[str, str]) -> None:
    """Note that ``token`` names ``knob``; raise a RouteError where an earlier token did."""
    earlier = seen.get(knob.name)
    seen[knob.name] = token
    if earlier is None:
        return
    if earlier == token:
        raise RouteError(f"{quoted(token)} is given twice; name each knob once")
    raise RouteError(
        f"{quoted(token)} names {knob.name} again after {quoted(earlier)}; name each knob once"
    )


def _pinned_value(token: str, knob: Knob, value: str) -> str:
    canonical = knob.canonical(value)
    if canonical is None and not value:
        raise RouteError(
            f"{quoted(token)} has no value; {knob.name} takes {knob.describe_values()}"
        )
    if canonical is None:
        raise _not_allowed(token, knob, value)
    return canonical


def _listed_values(token: str, knob: Knob, value: str) -> tuple[str, ...]:
    before, opening, rest = value.partition("[")
    if not opening:
        raise RouteError(f"{quoted(token)} has a ']' without a '['")
    if before:
        raise RouteError(f"{quoted(token)} has {quoted(before)} before its '['; remove it")
    body, closing, after = rest.partition("]")
    if not closing:
        raise RouteError(f"{quoted(token)} has no ']' that ends its list")
    if "[" in body:
        raise RouteError(f"{quoted(token)} has a '[' within its list; write one list only")
    if after:
        raise RouteError(f"{quoted(token)} has {quoted(after)} after its ']'; remove it")
    if ".." in body or "…" in body:
        raise RouteError(
            f"{quoted(token)} is a list without end; spell its values out:"
            f" {knob.name} takes {knob.describe_values()}"
        )
    if knob.kind is KnobKind.UNSEARCHABLE:
        raise RouteError(
            f"{quoted(token)}: {knob.name} takes any text and cannot be varied;"
            f" pin it: {knob.name}=VALUE"
        )
    return _alternatives(token, knob, body)


def _alternatives(token: str, knob: Knob, body: str) -> tuple[str, ...]:
    listed: dict[str, None] = {}
    parts = [part.strip() for part in body.split("|")]
    if parts != [""] and knob.canonical("") is None:
        parts = [part for part in parts if part]
    if not any(parts):
        raise RouteError(
            f"{quoted(token)} lists no value; {knob.name} takes {knob.describe_values()}"
        )
    for part in parts:
        canonical = knob.canonical(part)
        if canonical is None or not is_spellable(canonical):
            raise _not_allowed(token, knob, part)
        if canonical in listed:
            raise RouteError(f"{quoted(token)} lists {quoted(part)} twice; list each value once")
        listed[canonical] = None
    return tuple(listed)


def _not_allowed(token: str, knob: Knob, value: str) -> RouteError:
    hint = "; separate alternatives by '|'" if "," in value and "[" in token else ""
    return RouteError(
        f"{quoted(token)}: {quoted(value)} is not allowed for {knob.name},"
        f" which takes {knob.describe_values()}{hint}"
    )


def find_knob(name: str, database: KnobDatabase) -> Knob:
    """Return the knob ``name``; its leading dash may be left out.

    Raises:
        RouteError: There is no such knob.
    """
    try:
        return database[name]
    except KnobError as error:
        raise RouteError(str(error)) from None


def checked_value(knob: Knob, value: str) -> str:
    """Return ``value`` as routes spell it.

    Raises:
        RouteError: The knob does not allow it, or it is not text.
    """
    # Booleans and numbers compare equal to each other, so knob values are always text.
    if not isinstance(value, str):
        raise RouteError(f"the value {value!r} of {knob.name} is not text; write it as one")
    canonical = knob.canonical(value)
    if canonical is None:
        raise _not_allowed(f"{knob.name}={value}", knob, value)
    return canonical


def _checked_values(values: Mapping[str, str], database: KnobDatabase) -> dict[str, str]:
    """Return ``values`` under the database's names, as routes spell them.

    Raises:
        RouteError: A knob or value is not in the database, or one knob is named in two ways.
    """
    checked: dict[str, str] = {}
    for name, value in values.items():
        knob = find_knob(name, database)
        if knob.name in checked:
            raise RouteError(f"{knob.name} is given twice; name each knob once")
        checked[knob.name] = checked_value(knob, value)
    return checked
