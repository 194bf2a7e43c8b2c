"""Sample files of every kind: ``.npz``, Polygraphy's JSON, raw bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from routewright.errors import SampleError
from routewright.npz_files import NPY_MAGIC, ZIP_MAGIC, FileContent, read_npz
from routewright.polygraphy_files import read_polygraphy
from routewright.tensors import NUMPY_DTYPES, Array, TensorSpec, describe_shape


def read_file(path: Path, known: Collection[str]) -> FileContent:
    """Read an ``.npz`` file, a Polygraphy JSON file, or a folder of Polygraphy JSON files.

    Args:
        path: The file or folder; what it is follows from its content.
        known: Tensor names that are taken whole even where they look like a prefix.

    Raises:
        SampleError: It cannot be read, or is none of these.
    """
    try:
        if not path.exists():
            raise SampleError(
                f"the sample file {path} does not exist; give an .npz file, Polygraphy JSON or "
                "name:file.bin"
            )
        if path.is_dir():
            parts = sorted(path.glob("*.json"))
            if not parts:
                raise SampleError(f"the folder {path} holds no .json files")
            return FileContent([sample for part in parts for sample in read_polygraphy(part)], [])
        with path.open("rb") as stream:
            start = stream.read(len(NPY_MAGIC))
    except OSError as error:
        raise SampleError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SampleError(f"cannot read {str(path)!r}: {error}") from error
    if start.startswith(ZIP_MAGIC):
        return read_npz(path, known)
    if start.lstrip().startswith((b"[", b"{")):
        return FileContent(read_polygraphy(path), [])
    if start == NPY_MAGIC:
        raise SampleError(
            f"{path} is one array without a name; save it with numpy.savez(file, NAME=array)"
        )
    raise SampleError(
        f"{path} is neither an .npz file nor Polygraphy JSON; a raw file is given as name:{path}"
    )


def read_raw(
    path: Path, spec: TensorSpec, shape: Sequence[int | None] | None, *, option: str
) -> Array:
    """Read the C-order bytes of one tensor, as ``numpy.tofile`` and trtexec write them.

    Args:
        path: The file.
        spec: What the tensor is.
        shape: Its shape, or None where even the rank is not known; one axis may be None and then
            follows from the size of the file.
        option: The option that the user gave, for messages.

    Raises:
        SampleError: The file cannot be read, or its size does not fit.
    """
    dtype = NUMPY_DTYPES.get(spec.dtype)
    if dtype is None or dtype.hasobject:
        raise SampleError(
            f"{path}: {spec.name!r} is of type {spec.dtype}, which a raw file cannot hold; use "
            "an .npz file"
        )
    try:
        if not path.is_file():
            reason = "is not a file" if path.exists() else "does not exist"
            raise SampleError(f"{path} {reason}; a raw sample is given as name:file.bin")
        data = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise SampleError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SampleError(f"cannot read {str(path)!r}: {error}") from error
    dims = _complete_shape(shape, data.size // dtype.itemsize)
    if dims is None:
        raise SampleError(
            f"{path}: the shape {describe_shape(shape)} of {spec.name!r} is not known, "
            f"which a raw file needs; give the data as .npz with {option}"
        )
    expected = math.prod(dims) * dtype.itemsize
    if data.size != expected:
        raise SampleError(
            f"{path}: {spec.name!r} of type {dtype} and shape {describe_shape(dims)} takes "
            f"{expected} bytes, the file has {data.size}"
        )
    array: Array = data != 0 if spec.dtype == "bool" else data.view(dtype)
    return array.reshape(dims)


def _complete_shape(shape: Sequence[int | None] | None, elements: int) -> tuple[int, ...] | None:
    if shape is None:
        return None
    known = math.prod(dim for dim in shape if dim is not None)
    unknown = sum(dim is None for dim in shape)
    if unknown > 1 or (unknown and not known):
        return None
    return tuple(elements // known if dim is None else dim for dim in shape)
