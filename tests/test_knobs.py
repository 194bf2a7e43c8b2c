from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routewright.errors import KnobError
from routewright.knobs import MAX_LISTED, Knob, KnobDatabase, KnobKind
from routewright.notation import is_spellable

# Other work on the machine must not fail a test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SAMPLE = {
    "tuner_version": "2.19.15",
    "tuner_options": [
        {
            "option": "-conv_use_long_w",
            "allowed_values": "-conv_use_long_w=[on|off]",
            "default_value": "on",
            "help": "Convert Conv [N, C, X, 1] to [N, C, 1, X] in CASK params for perf.",
        },
        {
            "option": "-kgen:codegen:cuda_tile",
            "allowed_values": "-kgen:codegen:cuda_tile=[0|1|2|3]",
            "default_value": "1",
            "help": "0: disable, 1: where profitable, 2: supported kdags, 3: force all.",
        },
        {
            "option": "-cask_fusion:num_tactics",
            "allowed_values": "-cask_fusion:num_tactics=int",
            "default_value": "8",
            "help": "",
        },
    ],
}


def read(*options: Any, **root: Any) -> KnobDatabase:
    return KnobDatabase.from_json(json.dumps({"tuner_options": options} | root), source="here")


def entry(option: Any = "-a", notation: str = "[on|off]", default: Any = "on") -> dict[str, Any]:
    return {
        "option": option,
        "allowed_values": f"{option}={notation}",
        "default_value": default,
        "help": "What it does.",
    }


def check_one_line(error: Exception) -> None:
    """Hold what every message to the user promises."""
    assert str(error)
    assert "\n" not in str(error)


def fault_of(text: str) -> str:
    with pytest.raises(KnobError) as caught:
        KnobDatabase.from_json(text, source="knobs.json")
    message = str(caught.value)
    assert "knobs.json" in message
    assert "\n" not in message
    return message


def test_the_documented_file() -> None:
    database = KnobDatabase.from_json(json.dumps(SAMPLE), source="sample")
    assert database.tuner_version == "2.19.15"
    assert [knob.name for knob in database] == [
        "-conv_use_long_w",
        "-kgen:codegen:cuda_tile",
        "-cask_fusion:num_tactics",
    ]
    assert database.skipped == ()
    assert len(database) == 3
    tile = database["-kgen:codegen:cuda_tile"]
    assert tile == Knob(
        name="-kgen:codegen:cuda_tile",
        kind=KnobKind.CLOSED,
        values=("0", "1", "2", "3"),
        low=None,
        high=None,
        default="1",
        help="0: disable, 1: where profitable, 2: supported kdags, 3: force all.",
        notation="[0|1|2|3]",
    )
    assert database["cask_fusion:num_tactics"].kind is KnobKind.OPEN
    assert json.loads(database.to_json()) == SAMPLE


@pytest.mark.parametrize("text", ["", " \n", "\ufeff", '{"tuner_options": []}'])
def test_no_knobs_says_why(text: str) -> None:
    message = fault_of(text)
    for reason in ("lists no build-route knobs", "11.1", "Windows", "TensorRT-RTX"):
        assert reason in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "not JSON (line 1, column 1"),
        ('{"tuner_options": [', "not JSON"),
        ("[]", "no list named tuner_options"),
        ("null", "no list named tuner_options"),
        ("3", "no list named tuner_options"),
        ("{}", "no list named tuner_options"),
        ('{"tuner_options": null}', "no list named tuner_options"),
        ('{"tuner_options": {"option": "-a"}}', "no list named tuner_options"),
        ('{"tuner_options": "-a"}', "no list named tuner_options"),
        ('{"tuner_options": [1, null]}', "none of its 2 entries can be used"),
        ("[" * 200_000, "nested too deep"),
        ('{"tuner_options": [' + "9" * 5000 + "]}", "a number too long"),
    ],
)
def test_another_file_is_one_clear_error(text: str, said: str) -> None:
    assert said in fault_of(text)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    text = json.dumps(SAMPLE)
    assert len(KnobDatabase.from_json("\ufeff" + text, source="x")) == 3
    path = tmp_path / "knobs.json"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert len(KnobDatabase.from_file(path)) == 3


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    empty = tmp_path / "empty"
    empty.touch()
    for path in (tmp_path / "missing", tmp_path, binary, empty, Path("a\0b"), Path("/dev/zero")):
        with pytest.raises(KnobError) as caught:
            KnobDatabase.from_file(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (7, "entry 2 skipped: it is a number, not an object"),
        (None, "entry 2 skipped: it is null, not an object"),
        ([], "entry 2 skipped: it is a list, not an object"),
        ({}, "entry 2 skipped: it has no option"),
        ({"option": True}, "entry 2 skipped: its option is true"),
        ({"option": ["-b"]}, "entry 2 skipped: its option is a list"),
        (entry(""), "entry 2 skipped: option '': it is empty"),
        (entry("--"), "entry 2 skipped: option '--': it is empty"),
        (entry("-b c"), "entry 2 skipped: option '-b c': a route cannot hold it"),
        (entry("-b=[on|off]"), "a route cannot hold it"),
        (entry("-b\ud800"), r"option '-b\ud800'"),
        (entry("-" + "b" * 600), "longer than 512"),
        (entry("-a", "[0|1]", "0"), "entry 2 skipped: -a is listed before; the first was kept"),
    ],
)
def test_a_broken_entry_is_skipped_and_reported(broken: Any, said: str) -> None:
    database = read(entry("-a"), broken, entry("-z"))
    assert [knob.name for knob in database] == ["-a", "-z"]
    assert database["-a"].values == ("on", "off")
    (note,) = database.skipped
    assert said in note
    assert "\n" not in note


@pytest.mark.parametrize(
    ("changes", "said", "expected"),
    [
        ({"default_value": None}, "default_value is missing", (("on", "off", ""), "")),
        ({"default_value": []}, "default_value is a list", (("on", "off", ""), "")),
        ({"default_value": float("nan")}, "default_value is a number", (("on", "off", ""), "")),
        ({"default_value": ""}, "the default (empty) is not among", (("on", "off", ""), "")),
        ({"default_value": "auto"}, "the default 'auto' is not", (("on", "off", "auto"), "auto")),
        ({"default_value": 1}, "read as '1'", (("on", "off", "1"), "1")),
        ({"default_value": True}, "read as 'true'", (("on", "off", "true"), "true")),
        ({"default_value": " off "}, None, (("on", "off"), "off")),
        ({"help": 3}, "help is a number", (("on", "off"), "on")),
        ({"allowed_values": None}, "allowed_values is missing", ((), "on")),
        ({"allowed_values": ["on"]}, "allowed_values is a list", ((), "on")),
        ({"allowed_values": "-a="}, "allowed_values lists nothing", ((), "on")),
        ({"allowed_values": "-a"}, "has no '='; read as ''", ((), "on")),
        ({"allowed_values": "-a [on|off]"}, "read as '[on|off]'", (("on", "off"), "on")),
        ({"allowed_values": "[on|off]"}, "read as '[on|off]'", (("on", "off"), "on")),
        ({"allowed_values": "{on,a=b}"}, "read as '{on,a=b}'", (("on", "a=b"), "on")),
        ({"allowed_values": "-b=[on|off]"}, "names '-b' instead", (("on", "off"), "on")),
        ({"allowed_values": " -a = [on|off] "}, None, (("on", "off"), "on")),
        ({"allowed_values": "-a=[on|on|off]"}, "more than once", (("on", "off"), "on")),
        ({"option": "a"}, "option 'a' read as -a", (("on", "off"), "on")),
        ({"option": " -a "}, "option ' -a ' read as -a", (("on", "off"), "on")),
    ],
)
def test_a_lacking_entry_is_mended_and_reported(
    changes: dict[str, Any], said: str | None, expected: tuple[tuple[str, ...], str]
) -> None:
    database = read(entry("-a") | changes)
    assert (database["-a"].values, database["-a"].default) == expected
    assert all("\n" not in note for note in database.skipped)
    if said is None:
        assert database.skipped == ()
    else:
        assert any(said in note for note in database.skipped)


def test_missing_fields() -> None:
    database = read({"option": "-a"})
    assert database["-a"].kind is KnobKind.UNSEARCHABLE
    assert database["-a"].help == ""
    assert len(database.skipped) == 2
    assert database.tuner_version == "unknown"


@pytest.mark.parametrize("version", [3, None, [], True])
def test_a_version_that_is_not_text(version: Any) -> None:
    assert read(entry(), tuner_version=version).tuner_version == "unknown"


def test_halves_of_characters_do_not_reach_files() -> None:
    database = read(entry() | {"help": "\ud800", "default_value": "\udfff"})
    for text in (database["-a"].help, database["-a"].default, *database.skipped):
        text.encode()


@pytest.mark.parametrize(
    ("notation", "default", "searchable", "ordered"),
    [
        ("[on|off]", "on", True, False),
        ("[0|1|-1]", "0", True, True),
        ("[0|1]", "auto", True, False),
        ("[0]", "0", False, True),
        ("[0]", "1", True, True),
        ("bool", "0", True, True),
        ("[0-4]", "2", True, True),
        ("[0-4]", "auto", True, False),
        ("[3-3]", "3", False, True),
        ("[0~100000]", "5", True, True),
        ("[0 ~ 18014398509481984]", "5", False, True),
        ("[2~]", "2", False, True),
        ("[0 ~ n]", "0", False, True),
        ("int32_t", "8", False, True),
        ("[auto|int]", "auto", False, False),
        ("op_list", "", False, False),
        ("{,a}", "", True, False),
    ],
)
def test_searchable_and_ordered(
    notation: str, default: str, searchable: bool, ordered: bool
) -> None:
    knob = Knob.of("-k", notation, default)
    assert (knob.searchable, knob.ordered) == (searchable, ordered)


@pytest.mark.parametrize(
    ("notation", "default", "allowed", "refused"),
    [
        ("[on|off]", "on", ["on", "off"], ["", "ON", "o", "on|off", "1"]),
        ("[on|off]", "auto", ["on", "off", "auto"], ["a"]),
        ("[0|1|2]", "0", ["0", "1", "2"], ["3", "00", "1.0", "True"]),
        ("{,a}", "a", ["", "a"], ["b"]),
        ("[-1~3]", "0", ["-1", "3", "+2", "03"], ["-2", "4", "", "x", "1.0", "1 "]),
        ("[0~1000]", "off", ["0", "1000", "off"], ["1001", "-1", "on"]),
        ("[2~]", "0", ["2", "99999", "0"], ["1", str(2**63)]),
        ("[~5]", "0", ["-9", "5"], ["6", str(-(2**63) - 1)]),
        ("[auto|1|2|...]", "auto", ["auto", "1", "77"], ["0", "on"]),
        ("int32_t", "0", ["-5", str(2**31 - 1)], [str(2**31), "9" * 5000, "0x1", "1_0", "٣"]),
        ("uint8", "", ["0", "255", ""], ["256", "-1"]),
        ("op_list", "x", ["x", "a,b", "a=b", "a|b"], ["", "a b", "[a]", "a\x00", "\ud800"]),
        ("op_list", "", ["", "x"], [" "]),
    ],
)
def test_allowed_values(
    notation: str, default: str, allowed: list[str], refused: list[str]
) -> None:
    knob = Knob.of("-k", notation, default)
    assert [value for value in allowed if not knob.allows(value)] == []
    assert [value for value in refused if knob.allows(value)] == []


def test_integers_have_one_spelling() -> None:
    assert Knob.of("-k", "[0-4]", "02").default == "2"
    assert Knob.of("-k", "[0-4]", "2").canonical("+03") == "3"
    assert Knob.of("-k", "int", "007").default == "7"
    assert Knob.of("-k", "[00|01]", "00").canonical("0") is None


@pytest.mark.parametrize("name", ["", "-", "k", "-k=1", "-k v", "-k[", "-k|", "-\n", "-\x00"])
def test_a_knob_needs_a_name_that_a_route_can_hold(name: str) -> None:
    with pytest.raises(KnobError):
        Knob.of(name, "[on|off]", "on")


@pytest.mark.parametrize(
    ("notation", "default", "words"),
    [
        ("{,a}", "a", "(empty), a"),
        ("[0~100]", "auto", "an integer from 0 to 100 or auto"),
        ("[2~]", "0", "an integer of at least 2"),
        ("[~5]", "0", "an integer of at most 5"),
        ("[auto|int]", "auto", "an integer or auto"),
        ("[path]", "", "text without white space and brackets, as in [path]"),
        (f"[{'|'.join(map(str, range(500)))}]", "0", "22, 23, ..."),
    ],
)
def test_allowed_values_in_words(notation: str, default: str, words: str) -> None:
    assert Knob.of("-k", notation, default).describe_values().endswith(words)


def test_look_up() -> None:
    database = read(entry("-conv_lowering"), entry("-kgen:tiling"), entry("--odd"))
    assert database["conv_lowering"] is database["-conv_lowering"]
    assert "kgen:tiling" in database
    assert "-kgen" not in database
    assert 3 not in database
    assert database["--odd"].name == "--odd"
    assert database.get("nothing") is None
    with pytest.raises(KnobError, match=r"'-conv_lowring'; did you mean -conv_lowering\?") as one:
        database["-conv_lowring"]
    assert "routewright knobs" in str(one.value)
    with pytest.raises(KnobError, match="did you mean -kgen:tiling"):
        database["KGEN:Tiling"]
    with pytest.raises(KnobError) as two:
        database["\n" * 10_000]
    assert "\n" not in str(two.value)
    assert len(str(two.value)) < 500


def test_parents_skip_levels_that_are_no_knobs() -> None:
    database = read(entry("-a"), entry("-a:b:c"), entry("-a:b:c:d"), entry("-x:y"))
    above = {knob.name: database.parent(knob.name) for knob in database}
    names = {name: None if knob is None else knob.name for name, knob in above.items()}
    assert names == {"-a": None, "-a:b:c": "-a", "-a:b:c:d": "-a:b:c", "-x:y": None}
    assert database.parent("a:b:c") == database["-a"]


def test_merged_keeps_the_first_and_reports() -> None:
    first = read(entry("-a"), entry("-b"), 1, tuner_version="1")
    second = read(entry("-b", "[0|1]", "0"), entry("-c"), 2, tuner_version="2")
    both = first.merged(second)
    assert [knob.name for knob in both] == ["-a", "-b", "-c"]
    assert both["-b"].values == ("on", "off")
    assert both.tuner_version == "1+2"
    assert len(both.skipped) == 3
    assert first.merged(first).tuner_version == "1"


def test_a_database_names_each_knob_once() -> None:
    knob = Knob.of("-a", "[on|off]", "on")
    with pytest.raises(ValueError, match="twice"):
        KnobDatabase("1", (knob, knob))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
notations = st.sampled_from(
    ["[on|off]", "[0-4]", "[0~500]", "int", "[1|2|...]", "op_list", "{,a}", "[x", "bool", "[0|0]"]
)
near_entries = st.fixed_dictionaries(
    {},
    optional={
        "option": st.sampled_from(["-a", "-b", "-a:c", "d", ""]) | json_values,
        "allowed_values": notations.map("-a={}".format) | notations | json_values,
        "default_value": st.sampled_from(["on", "0", "", "3", "x y"]) | json_values,
        "help": json_values,
        "more": json_values,
    },
)
near_databases = st.fixed_dictionaries(
    {"tuner_options": st.lists(near_entries | json_values, max_size=6)},
    optional={"tuner_version": json_values},
)


@given(json_values | near_databases)
@UNTIMED
def test_any_json_gives_a_database_or_an_error(value: Any) -> None:
    try:
        database = KnobDatabase.from_json(json.dumps(value), source="fuzz")
    except KnobError as error:
        check_one_line(error)
        return
    assert len(database) > 0
    assert all("\n" not in note for note in database.skipped)
    for knob in database:
        assert knob.allows(knob.default)
        assert knob.name.startswith("-")
        assert is_spellable(knob.name)
        assert len(knob.values) <= MAX_LISTED + 1 or knob.kind is KnobKind.CLOSED
        if knob.values:
            assert knob.default in knob.values
        assert knob.describe_values()
    assert KnobDatabase.from_json(database.to_json(), source="again") == database


@given(st.text())
@UNTIMED
def test_any_text_gives_a_database_or_an_error(text: str) -> None:
    with pytest.raises(KnobError):
        KnobDatabase.from_json(text, source="fuzz")


@given(near_databases)
@UNTIMED
def test_reading_twice_gives_the_same(value: Any) -> None:
    text = json.dumps(value)
    try:
        first = KnobDatabase.from_json(text, source="fuzz")
    except KnobError:
        return
    second = KnobDatabase.from_json(text, source="fuzz")
    assert first == second
    assert hash(first) == hash(second)
    assert first.skipped == second.skipped
