"""Studies as other tuners' caches, and the way there and back."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interop_caches import (
    ACCURACY_FAILURE,
    CRASH,
    HEADER,
    TORCH,
    fast_rows,
    header,
    imported,
    line,
    row,
    write,
)

from routewright.errors import StorageError
from routewright.interop.exporting import export_cache
from routewright.interop.formats import CacheFormat
from routewright.interop.own_study import KNOB_DEFAULTS, OURS
from routewright.interop.torch_tensorrt import TORCH_TENSORRT
from routewright.interop.trtexec import TRTEXEC
from routewright.knobs import Knob, KnobDatabase
from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route, RouteExpression
from routewright.search.base import Proposal
from routewright.space import SearchSpace
from routewright.storage import open_storage
from routewright.study import StudyLog

DATABASE = KnobDatabase(
    "2.19.45",
    (
        Knob.of("-a", "[on|off]", "on"),
        Knob.of("-b", "[0|1|2]", "1"),
        Knob.of("-long", "int", "4"),
        Knob.of("-config:tf32", "[on|off]", "on"),
    ),
)
WHOLE = SearchSpace.whole(DATABASE)


def there_and_back(
    path: Path, lines: Sequence[str], cache_format: CacheFormat = TRTEXEC
) -> list[str]:
    """Import a cache, export it, and return the lines."""
    cache = write(path / "cache.json", lines)
    _, _, study = imported(cache, cache_format)
    export_cache(study, path / "out.json", cache_format)
    return (path / "out.json").read_bytes().decode().split("\n")[:-1]


@pytest.mark.parametrize(
    "lines",
    [
        [header(), *fast_rows()],
        [header(), *fast_rows()[1:]],
        fast_rows(),
        [
            header(searching_algorithm="mixed"),
            *fast_rows(),
            row(0, "-a=on -b=0", 1.6),
            row(1, "-a=on -b=1", 2.2),
        ],
        [header(files={}, new_key={"deep": [1, None]}), *fast_rows()],
        [header(tuner_version="é中\u2028"), row(0, "-é=中", 0.1, more={"extra": {"x": 1}})],
        [header(), row(0, "-a=on -b=1", 1e-20), row(1, "-b=0", 1.7976931348623157e308)],
        [header(), row(0, "-a=on -b=1").replace('"gpu_time":1.0', '"gpu_time":NaN')],
        [header(), '{ "build_route" : "-a=on",\t"gpu_time": 1e0 }', '{"build_route":""}'],
        [json.dumps({"x": "y"}), *fast_rows()],
    ],
)
def test_a_trtexec_cache_comes_back_byte_for_byte(tmp_path: Path, lines: list[str]) -> None:
    assert there_and_back(tmp_path, lines) == lines
    assert (tmp_path / "out.json").read_bytes() == (tmp_path / "cache.json").read_bytes()


def test_a_torch_tensorrt_cache_comes_back_byte_for_byte(tmp_path: Path) -> None:
    head = {**HEADER, "partition_key": "0123"}
    lines = [line(head, **TORCH), *(line(json.loads(text), **TORCH) for text in fast_rows())]
    assert there_and_back(tmp_path, lines, TORCH_TENSORRT) == lines


def test_lines_that_were_no_rows_are_said_again(tmp_path: Path) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows(), "{broken"])
    _, _, study = imported(path)
    report = export_cache(study, tmp_path / "out.json", TRTEXEC)
    assert report.rows == 4
    assert len(report.notes) == 1
    assert report.notes[0].startswith("when imported, line 6: skipped: it is not JSON")


def test_a_file_of_another_system_comes_back_as_trtexec_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_bytes(("\ufeff" + "\r\n".join([header(), "", *fast_rows()])).encode())
    _, _, study = imported(path)
    export_cache(study, tmp_path / "out.json", TRTEXEC)
    expected = "".join(f"{text}\n" for text in [header(), *fast_rows()])
    assert (tmp_path / "out.json").read_bytes() == expected.encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
row_objects = st.fixed_dictionaries(
    {"build_route": st.text(st.characters(exclude_categories=("Cs",)), max_size=20)},
    optional={
        "iter": json_values,
        "crash": st.booleans() | json_values,
        "error_message": st.text(max_size=8) | json_values,
        "accuracy_loss": st.none() | st.dictionaries(st.text(max_size=4), st.floats()),
        "gpu_time": st.none() | st.floats(0, 10) | json_values,
        "other": json_values,
    },
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(head=st.dictionaries(st.text(max_size=6), json_values), rows=st.lists(row_objects))
def test_whatever_is_a_row_comes_back(
    tmp_path_factory: pytest.TempPathFactory, head: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    head.pop("build_route", None)
    rows = [*rows, {"build_route": "-a=1", "gpu_time": 1.0}]
    lines = [json.dumps(head), *map(json.dumps, rows)]
    path = tmp_path_factory.mktemp("rows")
    assert there_and_back(path, lines) == lines


# --- studies of our own ---------------------------------------------------------------------


def own_study(
    path: Path,
    records: Sequence[TrialRecord],
    *,
    space: SearchSpace = WHOLE,
    backend: str = "tensorrt",
    settings: dict[str, Any] | None = None,
    defaults: KnobDatabase | None = None,
) -> optuna.Study:
    """Write a study as a tuning does, and open it again."""
    storage = open_storage(f"journal:///{path / 'study.log'}")
    identity = {
        "model_sha256": "ab" * 32,
        "backend": backend,
        "latency": "device only",
        "bound": {"loss": "linf", "threshold": 0.5, "atol": 1e-5, "rtol": 1e-5},
        "environment": {"gpu": "NVIDIA H100"},
        "knobs": {"tuner_version": "2.19.45"},
    }
    log = StudyLog.create(storage, "own", identity=identity, pending=path / "pending.json")
    log.note("settings", {"model": "/data/m.onnx", "sampler": "fast", **(settings or {})})
    if defaults is not None:
        log.note(KNOB_DEFAULTS, {knob.name: knob.default for knob in defaults})
    for record in records:
        route = Route.parse(record.route, DATABASE)
        names = tuple(space.variable) if record.phase is Phase.BASELINE else route.changed
        parameters = tuple(name for name in names if name in space.variable)
        ticket = log.begin(Proposal(route, parameters=parameters, phase=record.phase), space)
        log.commit(ticket, replace(record, number=ticket.number))
    return optuna.load_study(study_name="own", storage=storage)


def record(route: str, outcome: Outcome = Outcome.TIMED, **fields: Any) -> TrialRecord:
    if outcome in (Outcome.TIMED, Outcome.SLOW):
        fields = {"latency_ms": 3.0, "losses": {"y": 0.25}, "violation": -0.5, **fields}
    return TrialRecord(0, route, fields.pop("phase", Phase.SEARCH), outcome, **fields)


def baseline(**fields: Any) -> TrialRecord:
    given = {"relative_latency": 1.0, "latency_ms": 4.0, "baseline_ms": 4.1, **fields}
    return record("", phase=Phase.BASELINE, **given)


def exported(study: optuna.Study, path: Path, **options: Any) -> tuple[dict[str, Any], list[Any]]:
    export_cache(study, path / "out.json", options.pop("cache_format", TRTEXEC), **options)
    head, *rows = map(json.loads, (path / "out.json").read_text(encoding="utf-8").splitlines())
    return head, rows


def test_rows_are_what_trtexec_would_have_written(tmp_path: Path) -> None:
    study = own_study(
        tmp_path,
        [
            baseline(),
            record("-b=0", relative_latency=0.75),
            record("-b=2", Outcome.SLOW, relative_latency=1.25),
            record("-a=off", Outcome.INACCURATE, losses={"y": 2.0}, violation=3.0, reason="no"),
            record("-a=off -b=0", Outcome.FAILED, failure="crash", reason=CRASH),
            record("-b=0", phase=Phase.CONFIRMATION, relative_latency=0.5),
        ],
    )
    _, rows = exported(study, tmp_path)
    assert rows == [
        {"iter": 0, "build_route": "-a=on -b=1", "crash": False, "error_message": "",
         "accuracy_loss": {"y": 0.25}, "gpu_time": 4.0},
        {"iter": 1, "build_route": "-a=on -b=0", "crash": False, "error_message": "",
         "accuracy_loss": {"y": 0.25}, "gpu_time": 3.0},
        {"iter": 2, "build_route": "-a=on -b=2", "crash": False, "error_message": "",
         "accuracy_loss": {"y": 0.25}, "gpu_time": 5.0},
        {"iter": 3, "build_route": "-a=off -b=1", "crash": False,
         "error_message": ACCURACY_FAILURE, "accuracy_loss": {"y": 2.0}, "gpu_time": None},
        {"iter": 4, "build_route": "-a=off -b=0", "crash": True, "error_message": CRASH,
         "accuracy_loss": None, "gpu_time": None},
        {"iter": 5, "build_route": "-a=on -b=0", "crash": False, "error_message": "",
         "accuracy_loss": {"y": 0.25}, "gpu_time": 2.0},
    ]  # fmt: skip
    assert [list(each) for each in rows] == [list(json.loads(fast_rows()[0]))] * 6
    written = (tmp_path / "out.json").read_text()
    assert ": " not in written.replace("relative latency times", "")


def test_the_header_has_trtexec_s_keys_in_order(tmp_path: Path) -> None:
    samples = {"samples": ["x:/data/x.bin"], "references": ["y:/data/y.bin"]}
    study = own_study(tmp_path, [baseline()], settings=samples)
    head, _ = exported(study, tmp_path, more={"out": "/data/out"})
    assert list(head) == [*HEADER, OURS]
    assert head["accuracy_algorithm"] == "LInf"
    assert head["accuracy_parameter"] == {"atol": 1e-5, "rtol": 1e-5, "epsilon": 0.5}
    assert list(head["accuracy_parameter"]) == list(HEADER["accuracy_parameter"])
    assert head["searching_algorithm"] == "fast"
    assert head["tuner_version"] == "2.19.45"
    assert head["tuning_expr"] == "-a=[on|off] -b=[0|1|2] -config:tf32=[on|off]"
    assert head["default_build_route"] == "-a=on -b=1"
    assert head["files"] == {
        "onnx": "/data/m.onnx",
        "inputs": {"x": "/data/x.bin"},
        "ref_outputs": {"y": "/data/y.bin"},
    }
    # With this, trtexec --continue stops instead of passing over routes it never tried.
    assert head["argv"][:3] == ["routewright", "tune", "/data/m.onnx"]
    assert head["command_line"].startswith("routewright tune /data/m.onnx --samples x:/data/x.bin")
    assert head[OURS]["study"] == "own"
    assert head[OURS]["out"] == "/data/out"
    assert "relative latency times" in head[OURS]["gpu_time"]


def test_what_was_not_measured_is_left_out_and_said(tmp_path: Path) -> None:
    timed = record("-b=0")
    study = own_study(
        tmp_path,
        [
            record("-a=off", Outcome.SCREENED, fingerprint="f"),
            baseline(),
            replace(timed, relative_latency=0.9),
            replace(timed, route="-b=2", outcome=Outcome.REUSED, reused_from=2),
            record("-a=off -b=2", Outcome.FAILED, failure="crash", reused_from=2),
            record("-a=off -b=0", Outcome.FAILED, failure="interrupted", reason="interrupted"),
        ],
    )
    report = export_cache(study, tmp_path / "out.json", TRTEXEC)
    assert report.rows == 2
    assert report.notes == (
        "1 trial left out: built for its fingerprint only",
        "2 trials left out: not measured, an earlier result stands for it",
        "1 trial left out: interrupted by the user",
    )
    _, rows = exported(study, tmp_path)
    assert [each["build_route"] for each in rows] == ["-a=on -b=1", "-a=on -b=0"]


EXPRESSION = "-b=[0|2] -long=8 -a=[on|off]"


def expression_space() -> SearchSpace:
    return SearchSpace.from_expression(RouteExpression.parse(EXPRESSION, DATABASE), DATABASE)


@pytest.mark.parametrize("source", ["attribute", "database"])
def test_an_expression_s_knobs_are_written_in_its_order(tmp_path: Path, source: str) -> None:
    """The default need not be among the listed values, and is written where it holds."""
    study = own_study(
        tmp_path,
        [baseline(), record("-b=0 -long=8", relative_latency=0.5)],
        space=expression_space(),
        settings={"expr": EXPRESSION},
        defaults=DATABASE if source == "attribute" else None,
    )
    head, rows = exported(study, tmp_path, database=None if source == "attribute" else DATABASE)
    assert head["tuning_expr"] == EXPRESSION
    assert head["default_build_route"] == "-a=on -b=1 -long=4"
    assert [each["build_route"] for each in rows] == [
        "-b=1 -long=4 -a=on",
        "-b=0 -long=8 -a=on",
    ]


def test_without_known_defaults_a_route_names_what_it_changes(tmp_path: Path) -> None:
    """What the default is cannot be told from an expression; nothing is made up."""
    study = own_study(
        tmp_path,
        [baseline(), record("-b=0 -long=8", relative_latency=0.5)],
        space=expression_space(),
        settings={"expr": EXPRESSION},
    )
    head, rows = exported(study, tmp_path)
    assert head["default_build_route"] == ""
    assert [each["build_route"] for each in rows] == ["", "-b=0 -long=8"]


def test_an_expression_file_is_written_as_one_expression(tmp_path: Path) -> None:
    (tmp_path / "expr").write_text("# knobs\n-b=[0|2]\n\n-long=8\n-a=[on|off]\n")
    study = own_study(
        tmp_path,
        [baseline()],
        space=expression_space(),
        settings={"expr_file": str(tmp_path / "expr")},
    )
    head, _ = exported(study, tmp_path)
    assert " ".join(head["tuning_expr"].split()) == EXPRESSION


def test_knobs_that_are_no_build_route_knobs_are_said(tmp_path: Path) -> None:
    study = own_study(
        tmp_path, [baseline(), record("-b=0 -config:tf32=off", relative_latency=0.5)]
    )
    report = export_cache(study, tmp_path / "out.json", TRTEXEC)
    assert "1 route set knobs that are not build-route knobs" in report.notes[0]
    _, rows = exported(study, tmp_path)
    # Nothing is dropped: trtexec refuses such a route by name, instead of building another.
    assert rows[1]["build_route"] == "-a=on -b=0 -config:tf32=off"


def test_another_backend_s_study_is_written_and_said(tmp_path: Path) -> None:
    study = own_study(tmp_path, [baseline()], backend="onnxruntime")
    report = export_cache(study, tmp_path / "out.json", TRTEXEC)
    assert report.notes == (
        "the knobs are those of the backend onnxruntime; no other tuner knows them",
    )


def test_a_loss_that_is_no_number_is_null(tmp_path: Path) -> None:
    losses = {"y": math.inf, "z": 1e-7}
    study = own_study(
        tmp_path,
        [baseline(), record("-b=0", Outcome.INACCURATE, losses=losses, violation=1e6)],
    )
    _, rows = exported(study, tmp_path)
    assert rows[1]["accuracy_loss"] == {"y": None, "z": 1e-7}


def test_a_study_without_trials_is_refused_and_leaves_a_file_alone(tmp_path: Path) -> None:
    study = own_study(tmp_path, [])
    (tmp_path / "out.json").write_text("precious")
    with pytest.raises(StorageError, match="holds no measured trial"):
        export_cache(study, tmp_path / "out.json", TRTEXEC)
    assert (tmp_path / "out.json").read_text() == "precious"


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    study = own_study(tmp_path, [baseline()])
    with pytest.raises(StorageError, match="create the folder first"):
        export_cache(study, tmp_path / "none" / "out.json", TRTEXEC)


@pytest.mark.parametrize("cache_format", [TRTEXEC, TORCH_TENSORRT])
def test_our_study_read_back_has_the_same_verdicts(
    tmp_path: Path, cache_format: CacheFormat
) -> None:
    study = own_study(
        tmp_path,
        [
            baseline(),
            record("-b=0", relative_latency=0.7317),
            record("-a=off", Outcome.INACCURATE, losses={"y": 2.0}, violation=3.0),
            record("-b=2", Outcome.FAILED, failure="oom", reason="out of memory"),
        ],
    )
    path = tmp_path / "ours.json"
    export_cache(study, path, cache_format)
    report, records, again = imported(path, cache_format)
    assert report.notes == ()
    assert [r.route for r in records] == ["", "-b=0", "-a=off", "-b=2"]
    assert [r.relative_latency for r in records] == [1.0, pytest.approx(0.7317), None, None]
    assert records[2].violation == pytest.approx(3.0)
    assert records[3].reason == "out of memory"
    export_cache(again, tmp_path / "again.json", cache_format)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_trtexec_study_is_written_for_torch_tensorrt(tmp_path: Path) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    _, _, study = imported(path, device="H100")
    head, rows = exported(study, tmp_path, cache_format=TORCH_TENSORRT)
    assert head["accuracy_algorithm"] == "cos"
    assert head["tuning_expr"] == HEADER["tuning_expr"]
    assert head["default_build_route"] == HEADER["default_build_route"]
    assert head[OURS]["imported"]["device"] == "H100"
    assert [each["build_route"] for each in rows] == [
        json.loads(text)["build_route"] for text in fast_rows()
    ]
    assert rows[2]["error_message"] == "accuracy threshold exceeded: {'y': 0.25}"
    assert rows[1]["gpu_time"] == 1.5
