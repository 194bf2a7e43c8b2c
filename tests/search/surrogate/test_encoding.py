"""Routes as vectors and as codes."""

from __future__ import annotations

import numpy as np
import pytest

from routewright.knobs import Knob, KnobDatabase
from routewright.routes import Route, RouteExpression
from routewright.search.surrogate.encoding import Encoding, Options, distinct, rows_as_keys
from routewright.space import SearchSpace

DATABASE = KnobDatabase(
    "test",
    (
        Knob.of("-p", "[on|off]", "off"),
        Knob.of("-p:a", "[x|y|z]", "y"),
        Knob.of("-p:a:b", "[0|1|2]", "1"),
        Knob.of("-t", "[1|2|3|4|5|6|7|8]", "4"),
        Knob.of("-w", "[0-100000]", "512"),
        Knob.of("-s", "[on|off]", "on"),
    ),
)
WHOLE = SearchSpace.whole(DATABASE)
EXPRESSION = RouteExpression.parse("-p=[on|off] -p:a=[x|z] -t=[1|2] -s=off", DATABASE)
UNLISTED = SearchSpace.from_expression(EXPRESSION, DATABASE)


@pytest.mark.parametrize("space", [WHOLE, UNLISTED])
def test_codes_give_the_route_back_and_the_same_vector(space: SearchSpace) -> None:
    encoding = Encoding(space)
    rng = np.random.default_rng(0)
    for _ in range(50):
        route = space.random_route(rng)
        wide = {name: {route.values.get(name, "512")} for name in space.variable if name == "-w"}
        options = Options(encoding, wide)
        codes = options.codes_of(route)
        assert codes is not None
        assert options.route_of(codes) == route
        np.testing.assert_allclose(
            options.encode(codes[None, :]), encoding.encode_all([route]), atol=1e-12
        )


@pytest.mark.parametrize("space", [WHOLE, UNLISTED])
def test_settled_codes_are_those_of_routes_in_the_space(space: SearchSpace) -> None:
    options = Options(Encoding(space))
    for codes in options.random(200, np.random.default_rng(1)):
        route = options.route_of(codes)
        assert space.contains(route)
        again = options.codes_of(route)
        assert again is not None
        assert again.tobytes() == codes.tobytes()


def test_the_start_is_all_zero() -> None:
    encoding = Encoding(WHOLE)
    assert not encoding.encode_all([Route()]).any()


def test_unordered_values_have_a_column_each() -> None:
    encoding = Encoding(WHOLE)
    columns = {encoding.column_of("-p:a", value) for value in ("x", "z")}
    assert None not in columns
    assert len(columns) == 2
    assert encoding.column_of("-p:a", "y") is None
    assert encoding.column_of("-t", "1") is None
    assert encoding.column_of("-no", "1") is None


def test_neighbouring_ordered_values_resemble_each_other() -> None:
    encoding = Encoding(WHOLE)
    index = encoding.position["-t"]
    rows = {value: encoding.part(index, value) for value in "1234567"}

    def alike(a: str, b: str) -> float:
        return float(rows[a] @ rows[b] / np.linalg.norm(rows[a]) / np.linalg.norm(rows[b]))

    assert alike("6", "7") > alike("5", "7") > alike("1", "7")


def test_a_wide_range_takes_few_columns_and_options() -> None:
    encoding = Encoding(WHOLE)
    options = Options(encoding)
    assert encoding.columns < 20
    assert options.codes_of(Route.parse("-w=77777", DATABASE)) is None
    more = Options(encoding, {"-w": {"77777"}})
    assert more.codes_of(Route.parse("-w=77777", DATABASE)) is not None


def test_neighbours_differ_in_one_knob_and_what_is_nested_below_it() -> None:
    options = Options(Encoding(WHOLE))
    route = Route.parse("-p=on -p:a=x -p:a:b=0", DATABASE)
    codes = options.codes_of(route)
    assert codes is not None
    near = [options.route_of(row) for row in options.neighbours(codes)]
    assert Route() in near
    assert route not in near
    assert all(WHOLE.contains(each) for each in near)


def test_distinct_keeps_the_first_of_each_new_row() -> None:
    rows = np.array([[1, 2], [3, 4], [1, 2], [5, 6]], dtype=np.int32)
    seen = set(rows_as_keys(rows[3:]))
    assert distinct(rows, seen).tolist() == [[1, 2], [3, 4]]
