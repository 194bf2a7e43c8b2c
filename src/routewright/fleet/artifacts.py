"""Engines in an artifact store: whole or not at all, and checked when they are read.

Every file of an engine is an artifact of Optuna's. The list of them, with their SHA-256, is part
of the verdict, which is written after the last file: whoever sees the list can read all of it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from optuna.artifacts import Boto3ArtifactStore, FileSystemArtifactStore, upload_artifact
from optuna.artifacts.exceptions import ArtifactNotFound
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from routewright.errors import StorageError
from routewright.files import explain_os_error, file_sha256

Store = FileSystemArtifactStore | Boto3ArtifactStore


def open_store(place: str) -> Store:
    """Open an artifact store.

    Args:
        place: A folder, or ``s3://BUCKET``; endpoint and credentials of S3 come from where boto3
            looks for them (environment, ``~/.aws``).

    Raises:
        StorageError: It cannot be used.
    """
    if not place.startswith("s3://"):
        folder = Path(place).expanduser().absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot use {folder}: {explain_os_error(error)}") from error
        return FileSystemArtifactStore(folder)
    parts = urlsplit(place)
    if not parts.netloc or parts.path.strip("/") or parts.username:
        raise StorageError(f"{place} is no artifact store: write s3://BUCKET, without a path")
    try:
        return Boto3ArtifactStore(parts.netloc)
    except ImportError as error:
        raise StorageError(
            f"cannot open {place}: the Python package 'boto3' is missing; install routewright[s3]"
        ) from error


def upload_engine(
    store: Store, folder: Path, trial: FrozenTrial, storage: BaseStorage
) -> dict[str, dict[str, str]]:
    """Upload every file of an engine; return artifact and SHA-256 by the file's name.

    Raises:
        StorageError: The store cannot be written.
    """
    listed: dict[str, dict[str, str]] = {}
    try:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                artifact = upload_artifact(
                    artifact_store=store,
                    file_path=str(path),
                    study_or_trial=trial,
                    storage=storage,
                )
                name = path.relative_to(folder).as_posix()
                listed[name] = {"artifact": artifact, "sha256": file_sha256(path)}
    except Exception as error:
        if not _is_of_the_store(error):
            raise
        raise StorageError(f"cannot write the engine to the artifact store: {error}") from error
    return listed


def fetch_engine(store: Store, listed: Mapping[str, Any], target: Path) -> None:
    """Download an engine into ``target``, which must not exist, and check every digest.

    Raises:
        StorageError: A file is missing or damaged, or its name leaves the folder; nothing is
            left behind.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        raise StorageError(f"{target} is there already; choose another folder")
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, entry in listed.items():
            path = part / inside(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with store.open_reader(str(entry["artifact"])) as source, path.open("xb") as stream:
                shutil.copyfileobj(source, stream)
            if file_sha256(path) != entry["sha256"]:
                raise StorageError(
                    f"the engine's file {name!r} in the artifact store is damaged: its SHA-256 "
                    "is not what was uploaded; build the route again"
                )
        # mkdtemp lets nobody else in; the user's mask decides.
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o777 & ~mask)
        part.rename(target)
    except Exception as error:
        if not _is_of_the_store(error):
            raise
        raise StorageError(f"cannot fetch the engine: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def inside(name: str) -> PurePosixPath:
    """Return ``name`` as a relative path that stays in its folder.

    Raises:
        StorageError: It does not.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\\" in name or "\0" in name:
        raise StorageError(f"the file name {name!r} leaves its folder; the engine is refused")
    return path


def _is_of_the_store(error: Exception) -> bool:
    names = {base.__name__ for base in type(error).__mro__}
    return isinstance(error, OSError | ArtifactNotFound) or bool(
        names & {"ClientError", "BotoCoreError", "Boto3Error"}
    )
