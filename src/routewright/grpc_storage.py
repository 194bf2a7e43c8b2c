"""Optuna's gRPC storage proxy as a client: every call has a deadline, every failure a reason.

Optuna's own client waits for ever where the network swallows its packets, and raises the errors
of gRPC, which the rest of the code would have to import gRPC for.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import BaseStorage, GrpcStorageProxy

from routewright.errors import StorageError

READY_S = 10.0
"""Seconds to wait for the proxy when a storage is opened."""

_CALL_S = 60.0
"""Most seconds that one call may take."""


def open_proxy(url: str) -> BaseStorage:
    """Open ``grpc://host:port``, the address of a storage proxy.

    Raises:
        StorageError: The address is none, gRPC is not installed, or nobody answers there.
    """
    host, _, port = url.removeprefix("grpc://").strip("/").rpartition(":")
    if not host or not port.isdigit():
        raise StorageError(f"{url} is no address of a storage proxy: write grpc://host:port")
    try:
        import grpc
    except ImportError as error:
        raise StorageError(
            f"cannot open {url}: the Python package 'grpcio' is missing; install "
            "routewright[distributed]"
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        storage = _client(grpc.RpcError)(host=host, port=int(port))
    try:
        storage.wait_server_ready(timeout=READY_S)
    except ConnectionError as error:
        storage.close()
        raise StorageError(
            f"nobody answers at {url}; start the proxy with `routewright proxy`, and mind that it "
            "listens on the loopback interface unless told otherwise"
        ) from error
    return storage


def _client(failure: type[Exception]) -> type[GrpcStorageProxy]:
    """Return the client class; ``failure`` is the class of gRPC's errors."""
    methods = {
        name: _telling(getattr(GrpcStorageProxy, name), failure)
        for name in BaseStorage.__abstractmethods__
    }
    return type("ProxyStorage", (_Bounded,), methods)


def _telling(call: Callable[..., Any], failure: type[Exception]) -> Callable[..., Any]:
    @functools.wraps(call)
    def told(*arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except failure as error:
            details = getattr(error, "details", lambda: "")() or type(error).__name__
            raise StorageInternalError(f"the storage proxy says: {details}") from None

    return told


class _Bounded(GrpcStorageProxy):
    """A client whose calls end."""

    def _setup(self) -> None:
        super()._setup()
        bounded: Any = _BoundedStub(self._stub)
        self._stub = self._cache.grpc_client = bounded


class _BoundedStub:
    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        return functools.partial(getattr(self._stub, name), timeout=_CALL_S)
