"""Serving a storage to many workers through Optuna's gRPC proxy."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from optuna.exceptions import ExperimentalWarning
from optuna.storages import get_storage, run_grpc_proxy_server

from routewright.errors import StorageError
from routewright.grpc_storage import open_proxy
from routewright.storage import close_storage, open_storage, storage_url

_THREADS = 12
"""Calls served at a time; the connections that SQLAlchemy keeps to a database are 15."""


def serve(storage: str, *, host: str, port: int, ready: Callable[[], None]) -> None:
    """Serve ``storage`` until interrupted.

    Args:
        storage: URL of a relational storage that takes several connections.
        host: Interface to listen on.
        port: Port to listen on.
        ready: Called once when workers can connect.

    Raises:
        StorageError: The storage cannot be opened or be served, or the port is taken.
    """
    url = storage_url(storage)
    if url.startswith(("sqlite", "journal", "grpc")):
        raise StorageError(
            "the proxy serves a database that takes many connections at once, which a file or "
            "another proxy is not: give postgresql://USER@HOST/NAME"
        )
    opened = open_storage(url)
    threading.Thread(target=_tell_when_ready, args=(host, port, ready), daemon=True).start()
    try:
        with ThreadPoolExecutor(_THREADS) as threads, warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            run_grpc_proxy_server(get_storage(opened), host=host, port=port, thread_pool=threads)
    except RuntimeError as error:
        raise StorageError(
            f"cannot listen on {host}:{port}: {error}; is it in use? give another --port"
        ) from error
    finally:
        close_storage(opened)


def _tell_when_ready(host: str, port: int, ready: Callable[[], None]) -> None:
    try:
        open_proxy(f"grpc://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}")
    except StorageError:
        # Who cannot listen says so itself.
        return
    ready()
