"""Files that belong to a study, where Optuna's dashboard finds them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import optuna
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.artifacts.exceptions import ArtifactNotFound
from optuna.trial import Trial

ARTIFACTS_ATTRIBUTE = "artifacts"
"""Study attribute that says in which folder the study's artifacts lie."""

FOLDER = "artifacts"
"""Name of that folder inside an output folder."""

_PREFIX = "artifacts:"

_TEXT = {".route": "text/plain", ".log": "text/plain", ".md": "text/markdown"}


class LinkingStore(FileSystemArtifactStore):
    """An artifact store in a folder that shares the disk space of files on its file system.

    Engines can be as large as their models; a hard link costs neither space nor time. The files
    of an output folder are never written in place, so a link stays what was stored.

    Args:
        folder: The folder; made when it is first written to.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Store what ``content_body`` reads, replacing what is there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self._get_filepath(artifact_id)
        target.unlink(missing_ok=True)
        name = getattr(content_body, "name", None)
        if isinstance(name, str):
            try:
                os.link(os.path.realpath(name), target)
            except OSError:
                # Another file system, or one without links.
                pass
            else:
                return
        super().write(artifact_id, content_body)


class FoldersStore:
    """Reads artifacts from several folders; for a storage with studies of several outputs.

    Args:
        folders: Where to look, in this order; what is uploaded goes into the first.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._stores = [LinkingStore(folder) for folder in folders]

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open an artifact.

        Raises:
            ArtifactNotFound: No folder has it.
        """
        for store in self._stores:
            try:
                return store.open_reader(artifact_id)
            except (ArtifactNotFound, NotADirectoryError):
                continue
        raise ArtifactNotFound("not found")

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Store an artifact that a user adds in the dashboard."""
        self._stores[0].write(artifact_id, content_body)

    def remove(self, artifact_id: str) -> None:
        """Remove an artifact.

        Raises:
            ArtifactNotFound: No folder has it.
        """
        for store in self._stores:
            try:
                store.remove(artifact_id)
            except (ArtifactNotFound, NotADirectoryError):
                continue
            return
        raise ArtifactNotFound("not found")


def attach(store: LinkingStore, study: optuna.Study, path: Path, name: str = "") -> None:
    """Make a file an artifact of a study; one of the same name is replaced.

    Args:
        store: Where its content goes.
        study: The study.
        path: The file.
        name: What it is called in the dashboard; by default its name.
    """
    name = name or path.name
    known = _known(study).get(name)
    if known is not None:
        with path.open("rb") as stream:
            store.write(known, stream)
        return
    with tempfile.TemporaryDirectory(prefix="routewright-") as folder:
        # Optuna takes the name from the path.
        named = Path(folder, name)
        named.symlink_to(path.absolute())
        upload_artifact(
            artifact_store=store,
            file_path=str(named),
            study_or_trial=study,
            mimetype=_TEXT.get(path.suffix),
        )


def attach_text(store: LinkingStore, trial: Trial, text: str, name: str) -> None:
    """Make a text an artifact of a trial that is not finished yet."""
    with tempfile.TemporaryDirectory(prefix="routewright-") as folder:
        named = Path(folder, name)
        named.write_text(text, encoding="utf-8", errors="backslashreplace")
        upload_artifact(
            artifact_store=store,
            file_path=str(named),
            study_or_trial=trial,
            mimetype=_TEXT.get(named.suffix),
        )


def _known(study: optuna.Study) -> dict[str, str]:
    """Return the identifiers of a study's artifacts by their names."""
    known = {}
    for key, value in study._storage.get_study_system_attrs(study._study_id).items():
        meta = json.loads(value) if key.startswith(_PREFIX) else None
        if isinstance(meta, dict):
            known[str(meta.get("filename"))] = str(meta.get("artifact_id"))
    return known
