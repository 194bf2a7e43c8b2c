"""Engines in an artifact store: whole, or refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import optuna
import pytest
from optuna.storages import InMemoryStorage

from routewright.errors import StorageError
from routewright.fleet.artifacts import fetch_engine, inside, open_store, upload_engine


@pytest.fixture
def uploaded(tmp_path: Path) -> dict[str, dict[str, str]]:
    engine = tmp_path / "engine"
    (engine / "parts").mkdir(parents=True)
    (engine / "model.onnx").write_bytes(b"model")
    (engine / "parts" / "weights.bin").write_bytes(b"\0" * 1000)
    storage = InMemoryStorage()
    study = optuna.create_study(storage=storage)
    study.ask()
    store = open_store(str(tmp_path / "store"))
    return upload_engine(store, engine, study.trials[0], storage)


def test_an_engine_comes_back_as_it_was(
    tmp_path: Path, uploaded: dict[str, dict[str, str]]
) -> None:
    assert set(uploaded) == {"model.onnx", "parts/weights.bin"}
    mask = os.umask(0o027)
    try:
        fetch_engine(open_store(str(tmp_path / "store")), uploaded, tmp_path / "copy")
    finally:
        os.umask(mask)
    assert (tmp_path / "copy" / "model.onnx").read_bytes() == b"model"
    assert (tmp_path / "copy" / "parts" / "weights.bin").read_bytes() == b"\0" * 1000
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "copy" / "model.onnx").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_damaged_engine_is_refused_and_nothing_of_it_is_left(
    tmp_path: Path, uploaded: dict[str, dict[str, str]], damage: str
) -> None:
    file = tmp_path / "store" / uploaded["parts/weights.bin"]["artifact"]
    file.unlink() if damage == "removed" else file.write_bytes(b"\1" * 1000)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(StorageError, match="damaged" if damage == "changed" else "cannot fetch"):
        fetch_engine(open_store(str(tmp_path / "store")), uploaded, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\\..\\x", "."])
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(StorageError, match="leaves its folder"):
        inside(name)


def test_a_store_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("s3://", "s3://bucket/path", str(tmp_path / "file" / "store")):
        with pytest.raises(StorageError):
            open_store(place)


class Bucket(BaseHTTPRequestHandler):
    """As much of S3 as objects need: PUT keeps the body, GET gives it back."""

    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            size, _, rest = body.partition(b"\r\n")
            body = rest[: int(size.partition(b";")[0], 16)]
        self.objects[self.path.partition("?")[0]] = body
        self._answer(200)

    def do_GET(self) -> None:
        body = self.objects.get(self.path.partition("?")[0])
        if body is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._answer(200, body)

    def log_message(self, *arguments: object) -> None:
        pass

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    pytest.importorskip("boto3")
    objects: dict[str, bytes] = {}
    handler = type("OneBucket", (Bucket,), {"objects": objects})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
    for name, value in (
        ("ACCESS_KEY_ID", "test"),
        ("SECRET_ACCESS_KEY", "test"),
        ("DEFAULT_REGION", "us-east-1"),
        ("EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    yield objects
    server.shutdown()
    server.server_close()


def test_an_engine_goes_through_a_bucket(tmp_path: Path, bucket: dict[str, bytes]) -> None:
    engine = tmp_path / "engine"
    engine.mkdir()
    (engine / "engine.plan").write_bytes(b"plan" * 1000)
    storage = InMemoryStorage()
    study = optuna.create_study(storage=storage)
    study.ask()
    store = open_store("s3://engines")
    listed = upload_engine(store, engine, study.trials[0], storage)
    assert list(bucket.values()) == [b"plan" * 1000]
    fetch_engine(open_store("s3://engines"), listed, tmp_path / "copy")
    assert (tmp_path / "copy" / "engine.plan").read_bytes() == b"plan" * 1000
    bucket.clear()
    with pytest.raises(StorageError, match="cannot fetch"):
        fetch_engine(open_store("s3://engines"), listed, tmp_path / "another")
