"""``routewright compare`` as a user runs it, on a recorded table."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from running import Run

from models import mlp_static, save

pytest_plugins = ("running",)

TABLES = Path(__file__).resolve().parent.parent.parent / "studies" / "tables"
TABLE = TABLES / "ppocr-v2-cls"


def refused(run: Run, *arguments: object) -> str:
    ran = run("compare", *arguments)
    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert ran.err == f"{ran.error}\n"
    return ran.error


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--trials", 3), "--table"),
        (("--table", "none", "--trials", 3), "none"),
        (("--table", TABLE), "--trials"),
        (("--table", TABLE, "--trials", 0), "at least 1"),
        (("--table", TABLE, "--budget", "x"), "no duration"),
        (("--table", TABLE, "--trials", 3, "--samplers", "autoo"), "did you mean auto"),
        (("--table", TABLE, "--trials", 3, "--samplers", "fast,fast"), "named twice"),
        (("--table", TABLE, "--table", TABLE, "--trials", 3), "two tables are named"),
        (("--table", TABLE, "--trials", 3, "--repeats", 0), "repeats"),
        (("--table", TABLE, "--trials", 3, "--jobs", 0), "jobs"),
        (("--table", TABLE, "--trials", 3, "--seed", -1), "seed"),
        (("--table", TABLE, "--trials", 3, "--until", "x"), "--until is 'x'"),
        (("--table", TABLE, "--trials", 3, "--until", "150%"), "until must be"),
        (("--resume",), "nothing to resume"),
        (("--table", TABLE, "--trials", 3, "--storage", "nowhere"), "no storage"),
    ],
    ids=str,
)
def test_options_that_are_wrong(
    run: Run, tmp_path: Path, options: tuple[object, ...], told: str
) -> None:
    assert told in refused(run, *options, "--out", "out")
    assert not (tmp_path / "out").exists()


def test_the_output_folder_has_to_be_named(run: Run) -> None:
    assert "--out" in refused(run, "--table", TABLE, "--trials", 3)


def test_a_comparison_from_start_to_more_repeats(run: Run, tmp_path: Path) -> None:
    ran = run(
        *("compare", "--samplers", "fast,random", "--table", TABLE),
        *("--repeats", 1, "--trials", 6, "--out", "out", "--seed", 4),
    )
    assert ran.code == 0, ran.err
    assert "ppocr-v2-cls" in ran.out
    out = tmp_path / "out"
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert len(rows) == 2 * 7
    assert {row["seed"] for row in rows} == {"4"}
    assert {path.suffix for path in (out / "figures").iterdir()} == {".html", ".png"}
    first = (out / "runs" / "ppocr-v2-cls" / "fast" / "4.json.gz").read_bytes()

    assert "--resume" in refused(run, "--table", TABLE, "--trials", 6, "--out", "out")
    other = ("--samplers", "fast", "--resume", "--out", "out")
    assert "samplers was" in refused(run, *other)

    # What was said before need not be said again, and more may be said.
    more = ("--repeats", 2, "--samplers", "mixed,fast,random")
    ran = run("compare", "--resume", "--out", "out", *more)
    assert ran.code == 0, ran.err
    assert json.loads((out / "summary.json").read_text())["runs"] == 6
    assert (out / "runs" / "ppocr-v2-cls" / "fast" / "4.json.gz").read_bytes() == first


@pytest.mark.slow
def test_a_comparison_on_a_real_model(run: Run, tmp_path: Path) -> None:
    save(mlp_static(), tmp_path / "m.onnx")
    (tmp_path / "study.toml").write_text(
        'model = "m.onnx"\nloss = "cos"\nbound = 1e-2\nshared_device = true\n'
    )
    ran = run(
        *("compare", "--samplers", "fast,random", "--live", "study.toml"),
        *("--repeats", 1, "--budget", "15s", "--out", "out"),
    )
    assert ran.code == 0, ran.err
    out = tmp_path / "out"
    results = list(csv.DictReader((out / "summary.csv").open()))
    assert [row["sampler"] for row in results] == ["fast", "random"]
    for row in results:
        low, middle, high = (
            float(row[name]) for name in ("ci95_low", "relative_latency", "ci95_high")
        )
        assert low <= middle <= high
    trials = list(csv.DictReader((out / "results.csv").open()))
    assert {row["sampler"] for row in trials} == {"fast", "random"}
    assert {row["regret"] for row in trials} == {""}

    # One that was cut off begins anew; the other one stays.
    kept = (out / "runs" / "m" / "fast" / "seed-0" / "result.json").stat().st_mtime_ns
    (out / "runs" / "m" / "random" / "seed-0" / "result.json").unlink()
    ran = run("compare", "--resume", "--out", "out")
    assert ran.code == 0, ran.err
    assert (out / "runs" / "m" / "fast" / "seed-0" / "result.json").stat().st_mtime_ns == kept
    assert len(json.loads((out / "summary.json").read_text())["results"]) == 2


def test_what_goes_with_a_real_model_only_and_the_other_way_round(
    run: Run, tmp_path: Path
) -> None:
    save(mlp_static(), tmp_path / "m.onnx")
    live = ("--live", "m.onnx", "--out", "out")
    assert "without --table" in refused(run, *live, "--trials", 3)
    assert "--trials 150 or --budget 30m" in refused(run, *live)
    assert "--shape goes with --live" in refused(
        run, "--table", TABLE, "--trials", 3, "--shape", "x:1", "--out", "out"
    )
    assert "none.onnx" in refused(run, "--live", "none.onnx", "--budget", "5s", "--out", "out")
    assert not (tmp_path / "out").exists()
