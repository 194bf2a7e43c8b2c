"""The ``.npz`` form of samples, read and written. Nothing is unpickled.

Layout, one array per member:

* ``NAME``: an input; several samples as ``sample0/NAME``, ``sample1/NAME``, ...
* ``reference/NAME``: a reference output; ``sample0/reference/NAME`` with several samples.

A file of reference outputs alone may also hold them as ``NAME`` or ``sampleN/NAME``. Strings are
``U`` arrays. Files that Routewright writes hold one member more, ``__routewright__``: JSON text
with the element types that the format does not know and with what each member is.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import struct
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from routewright.errors import SampleError, StorageError
from routewright.files import explain_os_error, replace_atomic
from routewright.tensors import NUMPY_DTYPES, Array, as_strings, onnx_dtype

Tensors = dict[str, Array]

_METADATA = "__routewright__"
_NPZ_SCHEMA_VERSION = 1
_MOST_SAMPLES = 10**6
_SAMPLE_PREFIX = re.compile(r"sample([0-9]{1,9})/(.*)", re.DOTALL)
_REFERENCE_PREFIX = "reference/"
NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK"
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    SyntaxError,
    ValueError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    MemoryError,
    OverflowError,
    TypeError,
    KeyError,
)
"""What reading zip and npy raises on damaged or hostile files."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """What a sample file holds.

    Attributes:
        plain: Tensors of each sample that stand under their bare names.
        references: Reference outputs of each sample that are marked as such; empty if none.
        synthetic: Whether the file says that its inputs were made up.
        notes: What the file says about its inputs, one line each.
    """

    plain: list[Tensors]
    references: list[Tensors]
    synthetic: bool = False
    notes: tuple[str, ...] = ()


def write_npz(
    path: Path,
    inputs: Sequence[Mapping[str, Array]],
    references: Sequence[Mapping[str, Array]] | None,
    *,
    synthetic: bool,
    notes: Sequence[str],
) -> None:
    """Write samples so that :func:`read_npz` gives them back, every element type included.

    Equal samples give equal bytes. Nothing is left behind where writing fails.

    Raises:
        SampleError: An object array holds something other than strings.
        StorageError: The folder is missing, not writable or full.
    """
    members: list[list[object]] = []
    dtypes: dict[str, str] = {}
    ended: list[str] = []
    used = {_METADATA}
    with _atomic_stream(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for role, samples in (("input", inputs), ("reference", references or ())):
            for index, sample in enumerate(samples):
                for name, array in sample.items():
                    key = _member_key(name, role, index if len(inputs) > 1 else None, used)
                    members.append([key, index, role, name])
                    stored = array
                    if array.dtype.kind in "USTO":
                        stored = _stored_strings(name, array, key, ended)
                    elif array.dtype.isbuiltin == 2:
                        # The format would forget which of the extension types it is.
                        dtypes[key] = onnx_dtype(array.dtype)
                        stored = array.view(f"u{array.dtype.itemsize}")
                    _write_member(archive, key, stored)
        metadata = {
            "schema_version": _NPZ_SCHEMA_VERSION,
            "samples": len(inputs),
            "references": references is not None,
            "synthetic": synthetic,
            "notes": list(notes),
            "members": members,
            "dtypes": dtypes,
            "ended_strings": ended,
        }
        _write_member(archive, _METADATA, np.array(json.dumps(metadata)))


def _member_key(name: str, role: str, index: int | None, used: set[str]) -> str:
    key = name.replace("\0", "")
    if role == "reference":
        key = _REFERENCE_PREFIX + key
    if index is not None:
        key = f"sample{index}/{key}"
    # Names that clash are told apart by the metadata.
    while key in used:
        key += "~"
    used.add(key)
    return key


def _stored_strings(name: str, array: Array, key: str, ended: list[str]) -> Array:
    try:
        strings = as_strings(array)
    except ValueError as error:
        raise SampleError(f"the string tensor {name!r} cannot be saved: {error}") from error
    if any(item.endswith("\0") for item in strings.reshape(-1).tolist()):
        # NumPy drops NULs at the end of text; an end mark keeps them.
        ended.append(key)
        strings = strings + "."
    return strings.astype("U")


def _write_member(archive: zipfile.ZipFile, key: str, array: Array) -> None:
    # A fixed date, so that equal samples give equal files.
    info = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
    with archive.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)


@contextmanager
def _atomic_stream(path: Path) -> Iterator[IO[bytes]]:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        replace_atomic(temporary, path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {explain_os_error(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_npz(path: Path, known: Collection[str]) -> FileContent:
    """Read the samples of an ``.npz`` file.

    Args:
        path: The file.
        known: Tensor names that are taken whole even where they look like a prefix.

    Raises:
        SampleError: It cannot be read, or is not laid out as the head of this module says.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {
                info.filename.removesuffix(".npy"): _read_member(archive, info, path)
                for info in archive.infolist()
            }
    except OSError as error:
        raise SampleError(f"cannot read {path}: {error.strerror or error}") from error
    except DAMAGE as error:
        raise SampleError(f"{path} is not a valid .npz file: {one_line(error)}") from error
    metadata = arrays.pop(_METADATA, None)
    if metadata is not None:
        return _own_npz(path, arrays, metadata)
    return _foreign_npz(path, arrays, known)


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Array:
    if not info.filename.endswith(".npy"):
        raise SampleError(f"{path} holds {info.filename!r}, which is not an array")
    with archive.open(info) as member:
        return read_npy(member, f"{path}: {info.filename.removesuffix('.npy')!r}")


def read_npy(stream: IO[bytes], where: str) -> Array:
    """Read one array in NumPy's ``.npy`` format.

    Raises:
        SampleError: It could only be unpickled. What is damaged raises one of :data:`DAMAGE`.
    """
    try:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise SampleError(
            f"{where} holds Python objects, which can only be unpickled, and unpickling runs "
            "code; save it as numbers, or strings as a NumPy 'U' array"
        ) from error
    return array


def _own_npz(path: Path, arrays: Tensors, encoded: Array) -> FileContent:
    damaged = f"{path} holds a damaged {_METADATA!r} member"
    try:
        metadata: dict[str, Any] = json.loads(str(encoded[()]))
        version = metadata["schema_version"]
        if version != _NPZ_SCHEMA_VERSION:
            raise SampleError(
                f"{path} has sample format {version!r}, this version reads "
                f"{_NPZ_SCHEMA_VERSION}; update Routewright"
            )
        if not 0 <= metadata["samples"] <= _MOST_SAMPLES:
            raise ValueError(f"{metadata['samples']} samples")
        samples: dict[str, list[Tensors]] = {
            role: [{} for _ in range(metadata["samples"])] for role in ("input", "reference")
        }
        for key, index, role, name in metadata["members"]:
            array = arrays[key]
            if key in metadata["dtypes"]:
                array = array.view(NUMPY_DTYPES[metadata["dtypes"][key]])
            elif array.dtype.kind == "U":
                array = as_strings(array)
                if key in metadata["ended_strings"]:
                    array = _without_end_mark(array)
            samples[role][index][name] = array
        return FileContent(
            samples["input"],
            samples["reference"] if metadata["references"] else [],
            bool(metadata["synthetic"]),
            tuple(map(str, metadata["notes"])),
        )
    except (*DAMAGE, IndexError) as error:
        raise SampleError(f"{damaged}: {one_line(error)}") from error


def _without_end_mark(strings: Array) -> Array:
    bare = np.empty_like(strings)
    bare.reshape(-1)[:] = [item[:-1] for item in strings.reshape(-1).tolist()]
    return bare


def _foreign_npz(path: Path, arrays: Tensors, known: Collection[str]) -> FileContent:
    plain: dict[int | None, Tensors] = {}
    references: dict[int | None, Tensors] = {}
    for key, array in arrays.items():
        index: int | None = None
        name = key
        found = _SAMPLE_PREFIX.fullmatch(key)
        if found is not None and key not in known:
            index, name = int(found[1]), found[2]
        group = plain
        if name.startswith(_REFERENCE_PREFIX) and name not in known:
            group, name = references, name.removeprefix(_REFERENCE_PREFIX)
        group.setdefault(index, {})[name] = array
    for group in (plain, references):
        if None in group and len(group) > 1:
            bare = sorted(group[None])[0]
            raise SampleError(
                f"{path} holds {bare!r} as well as arrays under sampleN/; put all of them under "
                "sampleN/ or none"
            )
    if plain and references and set(plain) != set(references):
        raise SampleError(
            f"{path} holds inputs of {_indices(plain)} but references of "
            f"{_indices(references)}; every sample needs both"
        )
    return FileContent(_in_order(plain), _in_order(references))


def _in_order(group: dict[int | None, Tensors]) -> list[Tensors]:
    return [group[index] for index in sorted(group, key=lambda index: index or 0)]


def _indices(group: Mapping[int | None, Tensors]) -> str:
    if None in group:
        return "one sample"
    return "samples " + ", ".join(
        str(index) for index in sorted(i for i in group if i is not None)
    )


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` on one line."""
    return " ".join(str(error).split()) or type(error).__name__
