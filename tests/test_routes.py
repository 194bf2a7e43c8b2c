from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routewright.errors import RouteError
from routewright.knobs import Knob, KnobDatabase
from routewright.routes import DEFAULT_ROUTE, Route, RouteExpression, checked_value, find_knob

# Other work on the machine must not fail a test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

DATABASE = KnobDatabase(
    "1.0",
    (
        Knob.of("-a", "[on|off]", "on"),
        Knob.of("-b", "[0|1|2|3]", "1"),
        Knob.of("-b:deep", "[0-4]", "2"),
        Knob.of("-tactics", "int32_t", "8"),
        Knob.of("-auto", "[auto|1|2|...]", "auto"),
        Knob.of("-tf", "{,prefer_tf32,prefer_f32}", "prefer_f32"),
        Knob.of("-ops", "op_list", ""),
        Knob.of("-unlisted", "[x|y]", "z"),
        Knob.of("-odd", "[on|off]", "two words"),
    ),
)


def check_one_line(error: Exception) -> None:
    """Hold what every message to the user promises."""
    assert str(error)
    assert "\n" not in str(error)


def route_fault(text: str) -> str:
    with pytest.raises(RouteError) as caught:
        Route.parse(text, DATABASE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def expression_fault(text: str) -> str:
    with pytest.raises(RouteError) as caught:
        RouteExpression.parse(text, DATABASE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_route_is_canonical() -> None:
    route = Route.parse(" -b=3\t-a=off\n", DATABASE)
    assert str(route) == "-a=off -b=3"
    assert route.pairs == (("-a", "off"), ("-b", "3"))
    assert route.values == {"-a": "off", "-b": "3"}
    assert route.changed == ("-a", "-b")
    assert route == Route.parse("-a=off -b=3 -tactics=8", DATABASE)
    assert hash(route) == hash(Route.of({"b": "3", "-a": "off"}, DATABASE))
    assert Route.parse("-tactics=+008", DATABASE) == DEFAULT_ROUTE


def test_the_default_route_is_empty() -> None:
    for text in ("", " \n", "-a=on", "-a=on -b=1 -b:deep=2 -unlisted=z -ops="):
        assert Route.parse(text, DATABASE) == Route()
    assert str(Route()) == ""
    assert Route().changed == ()


def test_full_text_names_every_knob_that_can_be_named() -> None:
    text = Route.parse("-b=0 -tf=", DATABASE).full_text(DATABASE)
    assert text == "-a=on -b=0 -b:deep=2 -tactics=8 -auto=auto -tf= -ops= -unlisted=z"
    assert Route.parse(text, DATABASE) == Route.parse("-b=0 -tf=", DATABASE)
    assert "-odd=off" in Route.of({"-odd": "off"}, DATABASE).full_text(DATABASE)


def test_with_sets_and_resets() -> None:
    route = Route.parse("-a=off -b=3", DATABASE)
    assert str(route.with_({"-tactics": "2", "b": "1"}, DATABASE)) == "-a=off -tactics=2"
    assert route.with_({}, DATABASE) == route
    with pytest.raises(RouteError, match="'9' is not allowed for -b"):
        route.with_({"-b": "9"}, DATABASE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-a=on -c=1", ["'-c=1'", "no knob '-c'", "routewright knobs"]),
        ("-B=2", ["'-B=2'", "did you mean -b"]),
        ("-tatics=3", ["'-tatics=3'", "did you mean -tactics?"]),
        ("a=off", ["'a=off' has no leading dash", "'-a=off'"]),
        ("-a", ["'-a' has no value", "-a=VALUE", "on, off"]),
        ("-a = on", ["'-a' has no value", "without spaces"]),
        ("-a=", ["'-a=' has no value", "on, off"]),
        ("-tactics=", ["'-tactics=' has no value", "an integer from"]),
        ("-a=maybe", ["'-a=maybe'", "'maybe' is not allowed for -a", "on, off"]),
        ("-a=ON", ["'ON' is not allowed"]),
        ("-b:deep=5", ["'-b:deep=5'", "an integer from 0 to 4"]),
        ("-tactics=many", ["'many' is not allowed for -tactics"]),
        ("-tactics=1.5", ["'1.5' is not allowed"]),
        ("-tactics=99999999999", ["'99999999999' is not allowed"]),
        ("-a=on -a=on", ["'-a=on' is given twice"]),
        ("-a=on -a=off", ["'-a=off' names -a again after '-a=on'"]),
        ("-a=[on|off]", ["'-a=[on|off]' is no route", "route expression"]),
        ("-a=on]", ["'-a=on]' is no route"]),
        ("-ops=a\x00", ["is not allowed for -ops"]),
        ("--fp16", ["'--fp16' looks like an option of trtexec", "routewright knobs"]),
        ("-fp16", ["'-fp16' looks like an option of trtexec"]),
        ("-builderOptimizationLevel=3", ["option of trtexec", "not a build-route knob"]),
        ("--saveEngine=x", ["option of trtexec"]),
        ("--a=on", ["'--a=on'", "did you mean -a?"]),
        ("=on", ["'=on' is not of the form -knob=value"]),
        ("-=on", ["no knob '-'"]),
        ("what", ["'what' is not of the form -knob=value"]),
        ("-\ud800=1", [r"'-\ud800=1'"]),
    ],
)
def test_route_refusals_name_the_token(text: str, said: list[str]) -> None:
    message = route_fault(text)
    assert [part for part in said if part not in message] == []


def test_a_message_stays_short() -> None:
    assert len(route_fault("-" + "x" * 100_000)) < 600
    assert len(route_fault("-a=" + "x" * 100_000)) < 600


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"-c": "1"}, "no knob '-c'"),
        ({"-a": True}, "True of -a is not text"),
        ({"-b": 1}, "1 of -b is not text"),
        ({"-a": "on", "a": "on"}, "-a is given twice"),
        ({"-a": "perhaps"}, "'perhaps' is not allowed for -a"),
    ],
)
def test_routes_from_values_are_checked(values: Any, said: str) -> None:
    with pytest.raises(RouteError, match=said):
        Route.of(values, DATABASE)


def test_helpers_of_higher_layers() -> None:
    assert find_knob("b:deep", DATABASE).name == "-b:deep"
    assert checked_value(DATABASE["-b:deep"], "03") == "3"
    with pytest.raises(RouteError, match="did you mean -auto"):
        find_knob("-outo", DATABASE)


def test_an_expression_pins_and_varies() -> None:
    expression = RouteExpression.parse(
        "-b=[ 0 |\t2 ]\n-a=off  -tactics=[1|2|4] -b:deep=3", DATABASE
    )
    assert expression.variable == {"-b": ("0", "2"), "-tactics": ("1", "2", "4")}
    assert expression.pinned == {"-a": "off", "-b:deep": "3"}
    assert str(expression) == "-b=[0|2] -a=off -tactics=[1|2|4] -b:deep=3"
    assert list(expression.variable) == ["-b", "-tactics"]
    assert RouteExpression.parse(str(expression), DATABASE) == expression


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("-a=[on]", "-a=[on]"),
        ("-a=[on||off|]", "-a=[on|off]"),
        ("-a=on", "-a=on"),
        ("-tf=", "-tf="),
        ("-tf=[|prefer_tf32]", "-tf=[|prefer_tf32]"),
        ("-tf=[ prefer_tf32 | ]", "-tf=[prefer_tf32|]"),
        ("-ops=", "-ops="),
        ("-ops=x,y|z", "-ops=x,y|z"),
        ("-auto=[auto|+4|08]", "-auto=[auto|4|8]"),
        ("-unlisted=[x|z]", "-unlisted=[x|z]"),
        ("-b=[3|0]", "-b=[3|0]"),
        ("-b:deep=[1|4]", "-b:deep=[1|4]"),
        ("-tactics=[5]", "-tactics=[5]"),
    ],
)
def test_expressions_print_as_they_parse(text: str, printed: str) -> None:
    expression = RouteExpression.parse(text, DATABASE)
    assert str(expression) == printed
    assert RouteExpression.parse(printed, DATABASE) == expression


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["is empty"]),
        (" \n\t", ["is empty"]),
        ("-c=[1|2]", ["'-c=[1|2]'", "no knob '-c'"]),
        ("-a=[]", ["'-a=[]' lists no value", "on, off"]),
        ("-a=[ | ]", ["'-a=[ | ]' lists no value"]),
        ("-tf=[]", ["'-tf=[]' lists no value"]),
        ("-tf=[|]", ["'-tf=[|]' lists no value"]),
        ("-tf=[|prefer_tf32|]", ["lists '' twice"]),
        ("-a=[on|on]", ["'-a=[on|on]' lists 'on' twice"]),
        ("-tactics=[1|01]", ["'-tactics=[1|01]' lists '01' twice"]),
        ("-a=[on|maybe]", ["'-a=[on|maybe]'", "'maybe' is not allowed for -a", "on, off"]),
        ("-a=[on,off]", ["'on,off' is not allowed", "separate alternatives by '|'"]),
        ("-b=[0-3]", ["'0-3' is not allowed for -b"]),
        ("-a=x[on]", ["'-a=x[on]' has 'x' before its '['"]),
        ("-a=[on]y", ["'-a=[on]y' has 'y' after its ']'"]),
        ("-a=[on][off]", ["'-a=[on][off]' has '[off]' after its ']'"]),
        ("-a=[[on]]", ["'-a=[[on]]' has a '[' within its list"]),
        ("-a=on]", ["'-a=on]' has a ']' without a '['"]),
        ("-a=[on|off -b=2", ["'-a=[on|off -b=2' has no ']'"]),
        ("-a=[", ["'-a=[' has no ']'"]),
        ("-a= [on|off]", ["'-a=' has no value"]),
        ("-a =[on|off]", ["'-a' has no value"]),
        ("-a", ["'-a' has no value"]),
        ("-b=[0|1|...]", ["'-b=[0|1|...]' is a list without end"]),
        ("-tactics=[1|..]", ["is a list without end", "-tactics takes an integer"]),
        ("-ops=[x|y]", ["'-ops=[x|y]'", "cannot be varied"]),
        ("-tactics=int32_t", ["'int32_t' is not allowed for -tactics"]),
        ("-a=on -a=off", ["'-a=off' names -a again after '-a=on'"]),
        ("-a=[on|off] -a=[on|off]", ["'-a=[on|off]' is given twice"]),
        ("a=[on|off]", ["'a=[on|off]' has no leading dash"]),
        ("# a comment", ["'#' is not of the form -knob=value"]),
        ("--fp16 -a=on", ["'--fp16' looks like an option of trtexec"]),
        ("-odd=[on|two words]", ["'two words' is not allowed for -odd"]),
    ],
)
def test_expression_refusals_name_the_token(text: str, said: list[str]) -> None:
    message = expression_fault(text)
    assert [part for part in said if part not in message] == []


def test_an_expression_file(tmp_path: Path) -> None:
    path = tmp_path / "expression"
    path.write_bytes(b"\xef\xbb\xbf# why\r\n\r\n-a=[on|off]\r\n   # more\n-b=2 -tactics=3\n")
    expression = RouteExpression.from_file(path, DATABASE)
    assert str(expression) == "-a=[on|off] -b=2 -tactics=3"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"# nothing\n\n", "is empty"),
        (b"-a=on\n\n-c=1\n", "line 3: '-c=1'"),
        (b"-a=on\n-a=off\n", "line 2: '-a=off' names -a again"),
        (b"-a=[on|\noff]\n", "line 1: '-a=[on|' has no ']'"),
        (b"-a=on # why\n", "line 1: '#' is not of the form"),
        (b"\xff\xfe-", "is not UTF-8 text"),
    ],
)
def test_expression_file_refusals_name_the_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "expression"
    path.write_bytes(content)
    with pytest.raises(RouteError) as caught:
        RouteExpression.from_file(path, DATABASE)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_expression_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, Path("a\0b")):
        with pytest.raises(RouteError, match="cannot read"):
            RouteExpression.from_file(path, DATABASE)


names = st.sampled_from([knob.name for knob in DATABASE] + ["-c", "a", "--fp16", "-", ""])
words = st.sampled_from(
    ["on", "off", "0", "1", "2", "+3", "08", "z", "auto", "", "prefer_tf32", "two words", "..."]
)
tokens = st.one_of(
    st.builds("{}={}".format, names, words),
    st.builds(
        lambda name, listed: f"{name}=[{'|'.join(listed)}]", names, st.lists(words, max_size=4)
    ),
    names,
    st.text(st.sampled_from("-ab=[]| .,\n\tontf0"), max_size=8),
)
near_texts = st.lists(tokens, max_size=4).map(" ".join)


@given(st.text() | near_texts)
@UNTIMED
def test_any_text_is_a_route_or_a_clear_error(text: str) -> None:
    try:
        route = Route.parse(text, DATABASE)
    except RouteError as error:
        check_one_line(error)
        return
    printed = str(route)
    again = Route.parse(printed, DATABASE)
    assert again == route
    assert str(again) == printed
    assert Route.parse(route.full_text(DATABASE), DATABASE) == route
    assert Route.of(route.values, DATABASE) == route
    expression = RouteExpression.parse(text, DATABASE) if text.split() else None
    if expression is not None:
        assert Route.of(expression.pinned, DATABASE) == route


@given(st.text() | near_texts)
@UNTIMED
def test_any_text_is_an_expression_or_a_clear_error(text: str) -> None:
    try:
        expression = RouteExpression.parse(text, DATABASE)
    except RouteError as error:
        check_one_line(error)
        return
    printed = str(expression)
    again = RouteExpression.parse(printed, DATABASE)
    assert again == expression
    assert str(again) == printed
    assert set(expression.pinned) | set(expression.variable) <= {knob.name for knob in DATABASE}
    assert all(expression.variable.values())


@given(st.lists(tokens, max_size=4))
@UNTIMED
def test_a_file_reads_like_its_lines_inline(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("expression") / "file"
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        from_file = RouteExpression.from_file(path, DATABASE)
    except RouteError as error:
        check_one_line(error)
        return
    assert RouteExpression.parse(" ".join(lines), DATABASE) == from_file


@st.composite
def routes(draw: st.DrawFn) -> Route:
    """Draw a route of the test's database."""
    chosen = {}
    for knob in DATABASE:
        if draw(st.booleans()):
            numbers = st.integers(1, 4).map(str)
            listed = st.sampled_from(knob.values) if knob.values else numbers
            chosen[knob.name] = draw(listed)
    return Route.of(chosen, DATABASE)


@given(routes(), routes())
@UNTIMED
def test_routes_are_equal_exactly_if_they_print_alike(one: Route, two: Route) -> None:
    assert (one == two) == (str(one) == str(two))
    assert Route.parse(str(one), DATABASE) == one
    merged = one.with_(two.values, DATABASE)
    assert merged.values == {**one.values, **two.values}
    if one == two:
        assert hash(one) == hash(two)
