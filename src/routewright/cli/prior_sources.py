"""What a user names as a source of a prior: a folder, a storage, a cache."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from routewright.errors import SettingsError
from routewright.interop.formats import CacheFormat
from routewright.interop.importing import import_cache
from routewright.interop.torch_tensorrt import TORCH_TENSORRT
from routewright.interop.trtexec import TRTEXEC
from routewright.priors.evidence import Evidence
from routewright.priors.files import PriorError, read_prior
from routewright.priors.sources import (
    evidence_of_folder,
    evidence_of_storage,
    is_output_folder,
)
from routewright.priors.tables import evidence_of_table, is_table
from routewright.tables import Table

FORMATS = {each.name: each for each in (TRTEXEC, TORCH_TENSORRT)}
"""Formats of other tuners' caches by name."""

_STORAGES = (".db", ".sqlite", ".sqlite3", ".log", ".journal")


def evidence_in(
    source: str, *, studies: Sequence[str], family: str, cache_format: str
) -> list[Evidence]:
    """Return what a source says.

    Args:
        source: An output folder, an Optuna storage, a recorded table, a prior, or another tuner's
            cache.
        studies: Names of the studies to take from a storage; none: all.
        family: Family of the models; empty: what the source says.
        cache_format: Format of a cache.

    Raises:
        RoutewrightError: It is none of these, or cannot be read.
    """
    path = Path(source).expanduser()
    if "://" in source:
        return evidence_of_storage(source, studies=studies, family=family)
    if path.is_dir():
        if is_table(path):
            return [evidence_of_table(Table.load(path), family=family)]
        if is_output_folder(path):
            return [evidence_of_folder(path, family=family)]
        if any(path.glob("*.prior.json")):
            return read_prior(path)
        raise PriorError(
            f"{path} holds nothing to learn from: it is no output folder of a tuning, no recorded "
            "table and no folder of priors"
        )
    if not path.exists():
        raise PriorError(
            f"there is no {source}; name an output folder, a storage, a cache or a prior"
        )
    if source.endswith(".prior.json") or _is_prior(path):
        return read_prior(path)
    if path.suffix in _STORAGES:
        return evidence_of_storage(source, studies=studies, family=family)
    return _of_cache(path, _format(cache_format), family)


def _format(name: str) -> CacheFormat:
    if name not in FORMATS:
        raise SettingsError(f"there is no cache format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


def _is_prior(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "schema" in content


def _of_cache(path: Path, cache_format: CacheFormat, family: str) -> list[Evidence]:
    with tempfile.TemporaryDirectory(prefix="routewright-") as folder:
        url = f"journal:///{Path(folder) / 'cache.log'}"
        report = import_cache(path, url, cache_format)
        return evidence_of_storage(url, studies=[report.study], family=family)
