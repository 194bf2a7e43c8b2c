"""``routewright compare`` as a user runs it, on a recorded table."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from running import Run

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

    # What was said before need not be said again.
    ran = run("compare", "--resume", "--out", "out", "--repeats", 2)
    assert ran.code == 0, ran.err
    assert json.loads((out / "summary.json").read_text())["runs"] == 4
    assert (out / "runs" / "ppocr-v2-cls" / "fast" / "4.json.gz").read_bytes() == first
