"""What users of shared studies see on the command line."""

from __future__ import annotations

import json
import os
import socket
import sys
import warnings
from pathlib import Path

import optuna
import pytest
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import get_storage
from optuna.storages._grpc.server import make_server

from routewright.cli import main, secrets
from routewright.cli.worker import parse_cpus
from routewright.errors import SettingsError, StorageError
from routewright.fleet.joining import Terms, join
from routewright.fleet.proxy import serve
from routewright.storage import open_storage, redact, sqlite_url


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


@pytest.mark.parametrize("address", ["grpc://host", "grpc://:13000", "grpc://host:port"])
def test_an_address_of_no_proxy_is_refused(address: str) -> None:
    with pytest.raises(StorageError, match="write grpc://host:port"):
        open_storage(address)


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routewright.grpc_storage.READY_S", 0.2)
    with pytest.raises(StorageError, match=r"nobody answers at grpc://127\.0\.0\.1:1"):
        open_storage("grpc://127.0.0.1:1")


@pytest.mark.parametrize("storage", ["f.db", "grpc://host:1", "f.log"])
def test_what_a_proxy_cannot_serve_is_refused(storage: str) -> None:
    with pytest.raises(StorageError, match="many connections at once"):
        serve(storage, host="127.0.0.1", port=1, ready=lambda: None)


def test_a_proxy_serves_a_storage_and_its_failures_have_a_reason(tmp_path: Path) -> None:
    storage = get_storage(open_storage(sqlite_url(tmp_path / "f.db")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = make_server(storage, "127.0.0.1", (port := free_port()))
    server.start()
    proxied = open_storage(f"grpc://127.0.0.1:{port}")
    study = optuna.create_study(storage=proxied, study_name="s")
    trial = study.ask()
    study.tell(trial, 1.0)
    with pytest.raises(UpdateFinishedTrialError):
        proxied.set_trial_user_attr(trial._trial_id, "late", 1)
    with pytest.raises(KeyError):
        proxied.get_study_id_from_name("t")
    assert [t.value for t in optuna.load_study(study_name="s", storage=storage).trials] == [1.0]
    server.stop(None).wait()
    with pytest.raises(StorageInternalError, match="the storage proxy says"):
        proxied.get_all_studies()


def test_an_engine_of_somebody_else_is_refused_unless_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
