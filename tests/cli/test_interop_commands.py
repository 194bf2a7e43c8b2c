"""``import``, ``export`` and ``trtexec`` as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer

from models import conv_net, save
from routewright.cli import export_study, import_study, trtexec
from routewright.errors import RoutewrightError
from routewright.interop.own_study import OURS

HEADER = {
    "tuner_version": "2.19.45",
    "accuracy_algorithm": "L0",
    "accuracy_parameter": {"atol": 1e-05, "rtol": 1e-05, "epsilon": 0.1},
    "searching_algorithm": "fast",
    "default_build_route": "-a=on -b=1",
    "tuning_expr": "-a=[on|off]",
    "argv": ["trtexec"],
}
ROWS = [
    {"iter": 0, "build_route": "-a=on", "crash": False, "error_message": "",
     "accuracy_loss": {"y": 0.0}, "gpu_time": 2.0},
    {"iter": 1, "build_route": "-a=off", "crash": False, "error_message": "",
     "accuracy_loss": {"y": 0.0}, "gpu_time": 1.0},
]  # fmt: skip
KNOBS = "-session:mem_pattern=[on|off]"
BACKEND = ["--backend=onnxruntime", "--sharedDevice"]

MAIN = "import sys; from routewright.cli import main; sys.exit(main(sys.argv[1:]))"


def registered() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.add_typer(import_study.app, name="import")
    app.add_typer(export_study.app, name="export")
    app.command("trtexec", context_settings=trtexec.CONTEXT, add_help_option=False)(
        trtexec.trtexec
    )
    return app


APP = registered()


def run(*words: object) -> int:
    """Run a command in this process; what the user can mend is raised."""
    code = APP(args=[str(word) for word in words], standalone_mode=False)
    return code if isinstance(code, int) else 0


def cache_in(folder: Path) -> Path:
    path = folder / "cache.json"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in (HEADER, *ROWS)))
    return path


@pytest.mark.parametrize("tool", ["trtexec", "torch-tensorrt"])
def test_there_and_back(tmp_path: Path, tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    cache, storage = cache_in(tmp_path), tmp_path / "study.log"
    words = ["import", tool, cache, "--storage", storage, "--study", "theirs", "--device", "H100"]
    assert run(*words) == 0
    assert "2 rows of" in capsys.readouterr().out
    assert run("export", tool, "theirs", tmp_path / "out.json", "--storage", storage) == 0
    assert (tmp_path / "out.json").read_bytes() == cache.read_bytes()
    # A storage with one study of ours need not be told which.
    assert run("export", tool, storage, tmp_path / "again.json") == 0
    assert (tmp_path / "again.json").read_bytes() == cache.read_bytes()


def test_import_tells_what_it_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = cache_in(tmp_path)
    cache.write_text(cache.read_text() + '{"iter": 2, "build_ro')
    assert run("import", "trtexec", cache, "--storage", tmp_path / "study.log") == 0
    captured = capsys.readouterr()
    assert "2 rows of" in captured.out
    assert "2 timed" in captured.out
    assert "note: line 4: skipped: the last line is cut off" in captured.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["export", "trtexec", "none", "out.json"], "there is no folder none"),
        (["export", "trtexec", "none.db", "out.json"], "there is no file"),
        (["export", "trtexec", "s", "o.json", "--storage", "sqlite:///no.db"], "there is no file"),
        (["export", "trtexec", "folder", "out.json"], "holds no study"),
        (["export", "command", "none"], "there is no result none"),
        (["export", "command", "folder"], "there is no result folder/result.json"),
        (["import", "trtexec", "none.json", "--storage", "a.log"], "cannot read the tuning cache"),
        (["import", "trtexec", "c.json", "--storage", "nowhere"], "'nowhere' is no storage"),
        (["trtexec", "--nothing"], "trtexec has no option --nothing"),
    ],
)
def test_what_is_not_there_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RoutewrightError, match=told) as caught:
        run(*words)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_program_prints_one_line_and_no_traceback(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", MAIN, "trtexec", "--onnx=m.onnx", "--fp16"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: --fp16 has no meaning here: since TensorRT 11")
    assert ran.stderr.count("\n") == 1
    assert ran.stdout == ""


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_names_the_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("trtexec", *words) == 0
    shown = capsys.readouterr().out
    for option in ("--tuneBuildRoutes", "--tuningTimeOut", "--saveEngine", "--loadRefOutputs"):
        assert option in shown


def test_export_command_reads_a_result_or_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {
        "schema_version": 1,
        "model": {"path": "m.onnx"},
        "backend": "tensorrt",
        "best": {"route": "-a=off", "relative_latency": 0.5, "ci95": [0.4, 0.6], "command": ""},
    }
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert run("export", "command", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "trtexec --onnx=m.onnx --setBuildRoute=-a=off" in printed
    assert run("export", "command", tmp_path / "result.json") == 0
    assert capsys.readouterr().out == printed
    for wrong in ({}, {"best": None}, {"backend": "tensorrt", "best": {"route": ""}}):
        (tmp_path / "result.json").write_text(json.dumps({"schema_version": 1, **wrong}))
        with pytest.raises(RoutewrightError, match="is not what a tuning wrote"):
            run("export", "command", tmp_path)


def test_the_knobs_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save(conv_net(), tmp_path / "m.onnx")
    words = ["trtexec", f"--onnx={model}", "--backend=onnxruntime"]
    assert run(*words, "--helpBuildRoute=session:mem_pattern") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["option"] for entry in listed["tuner_options"]] == ["-session:mem_pattern"]


def test_a_dry_run_lists_routes_as_trtexec_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save(conv_net(), tmp_path / "m.onnx")
    expression = "-optimizer=[all|layout|basic] -session:mem_pattern=[on|off]"
    words = ["trtexec", f"--onnx={model}", *BACKEND, "--dryRun"]
    assert run(*words, "--tuneBuildRoutes", expression) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "[0]:-optimizer=all -session:mem_pattern=on",
        "[1]:-optimizer=all -session:mem_pattern=off",
        "[2]:-optimizer=layout -session:mem_pattern=on",
        "[3]:-optimizer=basic -session:mem_pattern=on",
    ]
    assert "4 build routes would be tried" in captured.err
    assert run(*words, "--tuneBuildRoutes", expression, "--tuningSearch=full") == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


@pytest.mark.parametrize("option", ["--tuningCacheFile", "--saveEngine"])
def test_what_cannot_be_written_is_refused_before_the_tuning(tmp_path: Path, option: str) -> None:
    model = save(conv_net(), tmp_path / "m.onnx")
    words = ["trtexec", f"--onnx={model}", f"--tuneBuildRoutes={KNOBS}", *BACKEND]
    for path, told in ((tmp_path / "none" / "f", "there is no folder"), (tmp_path, "a folder")):
        with pytest.raises(RoutewrightError, match=f"{option} names .*{told}"):
            run(*words, f"{option}={path}", f"--out={tmp_path / 'out'}")
    assert not (tmp_path / "out").exists()


def test_going_on_needs_a_cache_of_ours(tmp_path: Path) -> None:
    with pytest.raises(RoutewrightError, match="is not of a tuning by `routewright trtexec`"):
        run("trtexec", "--continue", f"--tuningCacheFile={cache_in(tmp_path)}")


def shell(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=folder,
    )


@pytest.mark.slow
def test_a_real_tuning_in_trtexec_s_words(tmp_path: Path) -> None:
    """Real worker, raw inputs and references, cache, engine, and what is printed about it."""
    model = save(conv_net(), tmp_path / "m.onnx")
    image = np.random.default_rng(0).random((1, 3, 16, 16), dtype=np.float32)
    image.tofile(tmp_path / "x.bin")
    import onnxruntime

    (expected,) = onnxruntime.InferenceSession(str(model)).run(None, {"x": image})
    expected.tofile(tmp_path / "y.bin")
    ran = shell(
        tmp_path, "trtexec", "--onnx=m.onnx", f"--tuneBuildRoutes={KNOBS}", *BACKEND,
        "--tuningTimeOut", 15, "--tuningCacheFile=cache.json", "--saveEngine=engine",
        "--loadInputs=x:x.bin", "--loadRefOutputs=y:y.bin", "--shapes=x:1x3x16x16",
        "--accuracyAlgorithm=lInf", "--accuracyThreshold=1e-3", "--out=out",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "verdict: " in ran.stdout
    head, *rows = map(json.loads, (tmp_path / "cache.json").read_text().splitlines())
    assert head["accuracy_algorithm"] == "LInf"
    assert head["files"]["inputs"] == {"x": str(tmp_path / "x.bin")}
    assert head["argv"][:3] == ["routewright", "trtexec", "--onnx=m.onnx"]
    assert shlex.split(head["command_line"]) == head["argv"]
    assert head[OURS]["out"] == str(tmp_path / "out")
    assert [row["iter"] for row in rows] == list(range(len(rows)))
    assert all(0 <= row["accuracy_loss"]["y"] <= 1e-3 for row in rows if not row["crash"])
    assert rows[0]["gpu_time"] > 0
    assert sorted(path.name for path in (tmp_path / "engine").iterdir()) == sorted(
        path.name for path in (tmp_path / "out" / "engine").iterdir()
    )
    np.savez(tmp_path / "inputs.npz", x=image)
    printed = shell(tmp_path, "export", "command", "out").stdout
    loaded = subprocess.run(
        ["bash", "-c", printed],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert loaded.returncode == 0, loaded.stderr
    numbers = [float(text) for text in re.findall(r"-?\d\.\d+(?:e[+-]?\d+)?", loaded.stdout)]
    np.testing.assert_allclose(numbers[:10], expected.ravel(), atol=1e-3)


@pytest.mark.slow
def test_a_killed_tuning_goes_on_from_its_cache(tmp_path: Path) -> None:
    save(conv_net(), tmp_path / "m.onnx")
    words = [
        "trtexec", "--onnx=m.onnx", "--tuningSearch=full", *BACKEND, "--tuningTimeOut=40",
        f"--tuneBuildRoutes={KNOBS}",
        "--tuningCacheFile=cache.json", "--out=out",
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(4000):
            if (tmp_path / "cache.json").exists() or process.poll() is not None:
                break
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    first = (tmp_path / "cache.json").read_text().splitlines()
    assert len(first) == 2
    ran = shell(tmp_path, "trtexec", "--continue", "--tuningCacheFile=cache.json")
    assert ran.returncode == 0, ran.stderr
    head, *rows = (tmp_path / "cache.json").read_text().splitlines()
    assert rows[0] == first[1]
    assert len(rows) > 1
    assert json.loads(head)["argv"] == json.loads(first[0])["argv"]
    assert (tmp_path / "out" / "result.json").exists()
