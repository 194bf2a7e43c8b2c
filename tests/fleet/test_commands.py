"""What users of shared studies see on the command line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from routewright.cli import secrets
from routewright.cli.worker import parse_cpus
from routewright.errors import SettingsError
from routewright.storage import redact

USABLE = sorted(os.sched_getaffinity(0))


def test_cpus_are_parsed_and_held_against_what_is_there() -> None:
    assert parse_cpus(f"{USABLE[0]}") == {USABLE[0]}
    assert parse_cpus(f"{USABLE[0]},{USABLE[-1]}") == {USABLE[0], USABLE[-1]}
    for text in ("", "a", "1-", "-1", "0;1", "100000"):
        with pytest.raises(SettingsError, match="--cpus"):
            parse_cpus(text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:p@w@host/db", "postgresql://me:***@host/db"),
        ("postgresql+psycopg://me:p%40w@host:5/db", "postgresql+psycopg://me:***@host:5/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?user=me&password=pw", "postgresql://host/db?user=me&password=***"),
        ("grpc://host:13000", "grpc://host:13000"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_a_command_with_a_password_starts_itself_anew_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ["group", "g", "--storage", "postgresql://me:pw@host/db"]
    monkeypatch.setattr(sys, "argv", ["routewright", *given])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "routewright", *given])
    started: list[list[str]] = []

    class StartedError(Exception):
        pass

    def execv(program: str, arguments: list[str]) -> None:
        started.append(arguments)
        raise StartedError

    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(StartedError):
        secrets.arguments_without_secrets()
    shown = [*given[:3], "postgresql://me:***@host/db"]
    assert started == [["python", "-m", "routewright", *shown]]
    monkeypatch.setattr(sys, "argv", ["routewright", *shown])
    assert secrets.arguments_without_secrets() == given
    assert "ROUTEWRIGHT_ARGUMENTS" not in os.environ
    assert secrets.arguments_without_secrets() is not None or redact(shown[3]) == shown[3]


def test_a_command_without_a_password_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["routewright", "group", "g", "--storage", "f.db"])
    assert secrets.arguments_without_secrets() is None


def test_an_engine_of_somebody_else_is_refused_unless_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import optuna

    from routewright.cli import main
    from routewright.fleet.joining import Terms, join
    from routewright.storage import open_storage, sqlite_url

    url = sqlite_url(tmp_path / "f.db")
    join(
        open_storage(url),
        terms=Terms("g", 60.0, None, 30.0),
        identity={"environment": {"device": "NVIDIA L4"}, "model_sha256": "a"},
        notes={"settings": {"model": "m.onnx"}},
        new_environment=False,
    )
    fetch = ["--fetch", str(tmp_path / "e"), "--artifacts", str(tmp_path)]
    assert main(["group", "g", "--storage", url, *fetch]) == 2
    assert "may run code" in capsys.readouterr().err
    assert main(["group", "g", "--storage", url, *fetch, "--trust-engines"]) == 2
    assert "no engine in an artifact store yet" in capsys.readouterr().err
    assert main(["group", "g", "--storage", url, "--json"]) == 0
    (standing,) = json.loads(capsys.readouterr().out)
    assert standing["environment"] == {"device": "NVIDIA L4"}
    assert standing["result"] is None
    assert optuna.get_all_study_names(url) == [standing["study"]]
