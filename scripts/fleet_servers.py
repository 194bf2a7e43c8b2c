"""A PostgreSQL server, a storage proxy and a TCP forwarder, for tests that need real ones."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil


class ServerError(Exception):
    """A server did not start."""


class MissingServerError(ServerError):
    """A server is not installed here."""


START_S = 180.0
"""Seconds in which a server must be up, also on a machine that is busy."""


def postgres_binaries() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None where it is not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return folders[-1].parent if folders else None


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(is_so: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait for ``is_so``; raise :class:`ServerError` if it does not come true in time."""
    end_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > end_s:
            raise ServerError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.05)


class Postgres:
    """A PostgreSQL server of our own: data folder, port and password are its own.

    PostgreSQL refuses to run as root, so as root it runs as ``postgres`` or ``nobody``.

    Args:
        folder: Where its data go; must exist.
        max_connections: Connections that it takes.
    """

    user = "routewright"

    def __init__(self, folder: Path, *, max_connections: int = 300) -> None:
        binaries = postgres_binaries()
        if binaries is None:
            raise ServerError("PostgreSQL is not installed; on Debian: apt-get install postgresql")
        self._binaries = binaries
        self._data = folder / "pgdata"
        self._log = folder / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._max_connections = max_connections
        self._account: pwd.struct_passwd | None = None
        self.port = free_port()
        self.password = f"secret-{secrets.token_hex(8)}"
        self._prepare()

    @property
    def url(self) -> str:
        """The storage URL, with the password."""
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def url_without_password(self) -> str:
        """The storage URL for who has the password in ``PGPASSWORD`` or ``~/.pgpass``."""
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/postgres"

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        command = [
            str(self._binaries / "postgres"),
            *("-D", str(self._data), "-p", str(self.port)),
            *("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="),
            *("-c", f"max_connections={self._max_connections}"),
        ]
        with self._log.open("ab") as log:
            self._process = self._popen(command, log)
        wait_until(self.is_up, START_S, "PostgreSQL does not answer")
        return self

    def is_up(self) -> bool:
        """Whether the server answers."""
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the server, of sessions that ended as well."""
        return 0.0 if self._process is None else _cpu_s(self._process.pid)

    def stop(self) -> None:
        """Stop the server at once: sessions are cut, what is committed stays."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=60)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _prepare(self) -> None:
        if os.geteuid() == 0:
            names = ("postgres", "nobody")
            self._account = next(a for a in map(_account, names) if a is not None)
        self._data.mkdir()
        password = self._data.parent / "password"
        password.write_text(self.password)
        if self._account is not None:
            # Every folder above must let that account through.
            for path in (self._data, password):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
            for folder in self._data.parents:
                with contextlib.suppress(PermissionError):
                    folder.chmod(folder.stat().st_mode | 0o011)
        made = self._popen(
            [
                str(self._binaries / "initdb"),
                *("-D", str(self._data), "-U", self.user, "-E", "UTF8", "--locale=C"),
                *("--auth=scram-sha-256", f"--pwfile={password}"),
            ],
            subprocess.PIPE,
        )
        output, _ = made.communicate(timeout=START_S)
        password.unlink()
        if made.returncode != 0:
            raise ServerError(f"initdb failed: {output.decode(errors='replace')}")

    def _popen(self, command: list[str], output: object) -> subprocess.Popen[bytes]:
        account = self._account
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,  # type: ignore[call-overload]
            stderr=subprocess.STDOUT,
            cwd="/",
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children, dead ones included."""
    total_s, process = 0.0, psutil.Process(pid)
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total_s += sum(one.cpu_times()[:4])
    return float(total_s)


def _account(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


class Proxy:
    """``routewright proxy`` as a process of its own.

    Args:
        storage: The storage URL that it serves.
        log: Where its output goes.
    """

    def __init__(self, storage: str, log: Path) -> None:
        self.port = free_port()
        self._storage = storage
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it and wait until it serves."""
        with self._log.open("ab") as log:
            before = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "routewright", "proxy", "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "ROUTEWRIGHT_STORAGE": self._storage},
            )

        def serves() -> bool:
            if self._process is not None and self._process.poll() is not None:
                raise ServerError(f"the proxy ended: {self._log.read_text(errors='replace')}")
            return b"serving at" in self._log.read_bytes()[before:]

        wait_until(serves, START_S, "the proxy does not serve")
        return self

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the proxy."""
        return 0.0 if self._process is None else _cpu_s(self._process.pid)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.kill()


class Forwarder:
    """Passes TCP connections on, until it is told to cut them.

    Args:
        port: The port of the loopback interface that connections are passed on to.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: set[socket.socket] = set()
        self._is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Cut every connection and refuse new ones; return how many were cut."""
        self._is_cut = True
        cut = list(self._open)
        for end in cut:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        return len(cut) // 2

    def mend(self) -> None:
        """Let connections through again."""
        self._is_cut = False

    def close(self) -> None:
        """End it."""
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._is_cut:
                    raise OSError
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            self._open.discard(end)
            with contextlib.suppress(OSError):
                end.close()
