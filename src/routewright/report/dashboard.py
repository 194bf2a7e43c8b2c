"""Optuna's dashboard on studies of ours: what it is given, and the server it runs in."""

from __future__ import annotations

import errno
import socket
import warnings
from collections.abc import Mapping
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from optuna.storages import BaseStorage
from optuna_dashboard import wsgi

from routewright.errors import SettingsError
from routewright.report.artifacts import ARTIFACTS_ATTRIBUTE, FOLDER, FoldersStore
from routewright.report.dashboard_storage import DashboardStorage
from routewright.report.source import checked_result
from routewright.result import read_result
from routewright.study import MARK

DEFAULT_PORT = 8080
_PORTS_TRIED = 50


class Dashboard:
    """The dashboard's server; use it as a context manager around :meth:`serve`.

    Args:
        storage: The studies.
        folder: The output folder that was named, for its artifacts; None for a storage.
        artifacts: Folders of further artifacts.
        host: Address to listen on.
        port: Port to listen on; None takes the first free one from :data:`DEFAULT_PORT` on.

    Raises:
        SettingsError: The address cannot be used.
    """

    def __init__(
        self,
        storage: BaseStorage,
        *,
        folder: Path | None = None,
        artifacts: tuple[Path, ...] = (),
        host: str = "127.0.0.1",
        port: int | None = None,
    ) -> None:
        folders = [*artifacts, *([folder / FOLDER] if folder is not None else [])]
        folders += _named_folders(storage)
        store = FoldersStore(dict.fromkeys(folders)) if folders else None
        application = wsgi(DashboardStorage(storage, _results_of(folder)), artifact_store=store)
        self._server = _listening(application, host, port)

    @property
    def address(self) -> str:
        """The address for a browser."""
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/dashboard/"

    def serve(self) -> None:
        """Answer requests until :meth:`stop` or Ctrl-C."""
        # Parameter importances warn once for every knob; the dashboard shows what they are.
        warnings.filterwarnings("ignore", category=UserWarning, message="Some regimes for")
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End :meth:`serve`, called from another thread."""
        self._server.shutdown()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.server_close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host in ("localhost", "::1") or host.startswith("127.")


class _Server(ThreadingMixIn, WSGIServer):
    # A browser keeps its connections open; they must not keep the server from ending.
    daemon_threads = True
    block_on_close = False


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    """Answers without a line for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _listening(application: Any, host: str, port: int | None) -> WSGIServer:
    kind = _Server6 if ":" in host else _Server
    ports = [port] if port is not None else range(DEFAULT_PORT, DEFAULT_PORT + _PORTS_TRIED)
    for candidate in ports:
        try:
            return make_server(host, candidate, application, kind, _Quiet)
        except OverflowError as error:
            raise SettingsError(
                f"there is no port {candidate}; give one from 0 to 65535"
            ) from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            raise SettingsError(
                f"cannot listen on {host} port {candidate}: {error.strerror or error}; "
                "leave --port out to take a free one"
            ) from error
    raise SettingsError(
        f"every port from {DEFAULT_PORT} to {DEFAULT_PORT + _PORTS_TRIED - 1} is in use; name "
        "another with --port"
    )


def _results_of(folder: Path | None) -> dict[str, Mapping[str, Any]]:
    """Return an output folder's result by its study's name, for storages that lack it."""
    path = None if folder is None else folder / "result.json"
    if path is None or not path.exists():
        return {}
    result = checked_result(read_result(path), str(path))
    return {str(result["study"]["name"]): result}


def _named_folders(storage: BaseStorage) -> list[Path]:
    """Return the artifact folders that studies of ours name."""
    named = (
        study.user_attrs.get(ARTIFACTS_ATTRIBUTE)
        for study in storage.get_all_studies()
        if MARK in study.user_attrs
    )
    return [Path(text) for text in named if isinstance(text, str) and text]
