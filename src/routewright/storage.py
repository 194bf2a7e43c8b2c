"""Opening Optuna storages, with errors that name the storage, the reason and the way out."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
from optuna.exceptions import OptunaError, StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from routewright.errors import StorageError
from routewright.files import explain_os_error
from routewright.grpc_storage import open_proxy

SQLITE_BUSY_S = 5
"""Seconds that SQLite waits for a lock, for example while a dashboard reads."""

_CONNECT_S = 5

STORAGE_FAULTS = (StorageInternalError, sqlalchemy.exc.SQLAlchemyError, OSError)
"""What a storage raises when it cannot be reached, is locked or is full."""

_SQLITE_ENDINGS = (".db", ".sqlite", ".sqlite3")
_JOURNAL_ENDINGS = (".log", ".journal", ".jsonl")

HIDDEN = "***"
"""Stands for a password in what is shown or stored."""


def sqlite_url(path: Path) -> str:
    """Return the storage URL of a SQLite file."""
    return f"sqlite:///{path.absolute()}"


def redact(url: str) -> str:
    """Return ``url`` without its password, for anything that is shown or stored."""
    # Up to the last @: a password that should have been escaped may hold one.
    url = re.sub(r"(://[^:/@\s]*):\S*@", rf"\1:{HIDDEN}@", url)
    return re.sub(r"([?&]password=)[^&\s]*", rf"\1{HIDDEN}", url)


def is_storage(text: str) -> bool:
    """Whether ``text`` names a storage and not an output folder."""
    endings = (*_SQLITE_ENDINGS, *_JOURNAL_ENDINGS)
    return "://" in text or (text.endswith(endings) and not Path(text).is_dir())


def storage_url(text: str) -> str:
    """Return the URL of a storage, with the absolute path where it is a file.

    Args:
        text: ``sqlite:///FILE``, ``postgresql://...``, ``mysql://...``, ``grpc://HOST:PORT`` (a
            storage proxy), ``journal:///FILE`` (an Optuna journal file), or a path that ends in
            ``.db`` or ``.log``.

    Raises:
        StorageError: It names no storage.
    """
    scheme, given, file = text.partition("://")
    if not given and text.endswith(_SQLITE_ENDINGS):
        scheme, file = "sqlite", text
    elif not given and text.endswith(_JOURNAL_ENDINGS):
        scheme, file = "journal", text
    elif not given:
        raise StorageError(
            f"{text!r} is no storage: give a URL such as sqlite:///study.db or "
            "postgresql://user@host/name, or a path that ends in .db or .log"
        )
    elif scheme in ("sqlite", "journal"):
        file = file.removeprefix("/")
    else:
        return text
    if file in ("", ":memory:"):
        raise StorageError(f"{text!r} is in memory and would lose every trial; name a file")
    return f"{scheme}:///{Path(file).absolute()}"


def open_storage(text: str, *, existing: bool = False, flush: bool = True) -> BaseStorage:
    """Open a storage.

    Args:
        text: See :func:`storage_url`.
        existing: Whether it must be a storage already; nothing is then made or changed.
        flush: Whether a SQLite file waits for the disk at every commit. Without, a commit
            survives the end of this process and not that of the machine.

    Raises:
        StorageError: It cannot be reached or is not Optuna's.
    """
    url = storage_url(text)
    scheme, _, file = url.partition(":///")
    if existing and scheme in ("sqlite", "journal") and not Path(file).exists():
        raise StorageError(f"there is no file {file}")
    if scheme == "journal":
        return _open_journal(Path(file))
    if url.startswith("grpc://"):
        return open_proxy(url)
    if scheme == "sqlite":
        _check_sqlite(Path(file))
    url = _with_driver(url)
    try:
        if existing and not _has_studies(url):
            raise StorageError(f"{redact(url)} holds no Optuna studies")
        with _one_at_a_time(Path(file) if scheme == "sqlite" and not existing else None):
            storage = RDBStorage(url, engine_kwargs=_engine_kwargs(url))
    except ImportError as error:
        # Optuna words a missing driver anew and drops its name.
        cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        raise StorageError(
            f"cannot open {redact(url)}: its database driver, the Python package "
            f"{cause.name!r}, is missing; install it, or leave --storage out for a file in the "
            "output folder"
        ) from error
    except (OptunaError, sqlalchemy.exc.SQLAlchemyError, ValueError) as error:
        raise StorageError(
            f"cannot open the storage {redact(url)}: {fault_line(error)}; check that it runs and "
            "may be written, or leave --storage out for a file in the output folder"
        ) from error
    except RuntimeError as error:
        # Optuna's word for a schema of another version; its message names the command to run.
        raise StorageError(f"cannot use the storage {redact(url)}: {fault_line(error)}") from error
    if scheme == "sqlite" and not existing:
        _let_readers_in(storage)
    if scheme == "sqlite" and not flush:
        _leave_flushing(storage)
    return storage


def close_storage(storage: BaseStorage) -> None:
    """Let go of a storage; a SQLite file is whole then, and can be copied or read by itself."""
    if not isinstance(storage, RDBStorage):
        return
    storage.remove_session()
    if storage.engine.dialect.name == "sqlite":
        # A reader that is just there keeps it as it is, which is as good.
        with contextlib.suppress(sqlalchemy.exc.SQLAlchemyError), storage.engine.connect() as link:
            link.exec_driver_sql("PRAGMA busy_timeout=500")
            link.exec_driver_sql("PRAGMA journal_mode=DELETE")
    storage.engine.dispose()


def fault_line(error: BaseException) -> str:
    """Return the first line of what a storage said, without passwords and SQL."""
    origin = getattr(error, "orig", None) or error.__cause__ or error
    origin = getattr(origin, "orig", None) or origin
    lines = [line for line in redact(str(origin)).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(origin).__name__


def _with_driver(url: str) -> str:
    """Name the driver that is installed, where SQLAlchemy's default for PostgreSQL is not."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("postgres", "postgresql") or importlib.util.find_spec("psycopg2"):
        return url
    return f"postgresql+psycopg://{rest}"


@contextlib.contextmanager
def _one_at_a_time(database: Path | None) -> Iterator[None]:
    """Let one process at a time make the tables of a SQLite file; the others would fail."""
    if database is None:
        yield
        return
    folder = os.open(database.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _has_studies(url: str) -> bool:
    # Optuna would put its tables into any database it opens.
    engine = sqlalchemy.create_engine(url, **_engine_kwargs(url))
    try:
        return sqlalchemy.inspect(engine).has_table("studies")
    finally:
        engine.dispose()


def _engine_kwargs(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": SQLITE_BUSY_S}}
    kwargs: dict[str, Any] = {"pool_pre_ping": True}
    if sqlalchemy.make_url(url).get_driver_name() in ("psycopg", "psycopg2", "pymysql", "mysqldb"):
        kwargs["connect_args"] = {"connect_timeout": _CONNECT_S}
    return kwargs


def _check_sqlite(path: Path) -> None:
    head = _head(path)
    if head and head != b"SQLite format 3\x00":
        raise StorageError(f"{path} is no SQLite file; name another file or remove it")


def _head(path: Path) -> bytes:
    """Return the first bytes of a storage's file, none where it does not exist yet.

    Raises:
        StorageError: It cannot be such a file.
    """
    try:
        if path.is_dir():
            raise StorageError(f"cannot open {path}: it is a folder; name a file in it")
        if not path.parent.is_dir():
            raise StorageError(
                f"cannot open {path}: there is no folder {path.parent}; create it first"
            )
        if not path.exists():
            return b""
        with path.open("rb") as stream:
            return stream.read(16)
    except OSError as error:
        raise StorageError(f"cannot open {path}: {explain_os_error(error)}") from error


def _let_readers_in(storage: RDBStorage) -> None:
    # Write-ahead logging lets a dashboard read while trials are written. Where the file system
    # does not support it, SQLite keeps its own mode and the busy time-out has to do.
    with contextlib.suppress(sqlalchemy.exc.SQLAlchemyError), storage.engine.connect() as link:
        link.exec_driver_sql("PRAGMA journal_mode=WAL")


def _leave_flushing(storage: RDBStorage) -> None:
    """Let SQLite leave it to the system when commits reach the disk."""

    @sqlalchemy.event.listens_for(storage.engine, "connect")
    def leave(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    # Connections that are open already would go on as they are.
    storage.engine.dispose()


def _open_journal(path: Path) -> BaseStorage:
    if _head(path):
        _check_journal(path)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except OSError as error:
        raise StorageError(f"cannot open the journal {path}: {fault_line(error)}") from error


def _check_journal(path: Path) -> None:
    """Refuse a journal with a broken line: Optuna stops there, or glues its next entry to it."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                raise StorageError(
                    f"the last line of {path} is cut off (a writer was killed): keep a copy, "
                    f"remove line {number} and go on; that one entry is lost"
                )
            if not _is_entry(line):
                raise StorageError(
                    f"line {number} of {path} is no entry of an Optuna journal; name another "
                    "file, or keep a copy, remove the line and go on"
                )


def _is_entry(line: bytes) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and "op_code" in entry
