"""Reads the JSON files of ``polygraphy run --save-inputs`` and ``--save-outputs``.

Inputs are a list of ``{name: array}``, one for each iteration; outputs are the results of one
runner. An array is an object with the base64 text of an ``.npy`` file (very old ones: ``.npz``).
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from routewright.errors import SampleError
from routewright.npz_files import DAMAGE, ZIP_MAGIC, Tensors, one_line, read_npy
from routewright.tensors import Array


def read_polygraphy(path: Path) -> list[Tensors]:
    """Return the tensors of every iteration in a file.

    Raises:
        SampleError: It cannot be read, is not Polygraphy's, or holds what could only be unpickled.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SampleError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise SampleError(f"{path} is not valid JSON: {one_line(error)}") from error
    if _is_of_class(content, "RunResults"):
        samples = _run_results(content, path)
    else:
        samples = content if isinstance(content, list) else [content]
    decoded = []
    for index, sample in enumerate(samples):
        if not isinstance(sample, dict):
            raise SampleError(
                f"{path}: iteration {index} is not an object of arrays by tensor name, as "
                "Polygraphy writes it"
            )
        decoded.append(
            {name: _array(value, f"{path}: {name!r}") for name, value in sample.items()}
        )
    return decoded


def _is_of_class(value: object, name: str) -> bool:
    return isinstance(value, dict) and (
        value.get("polygraphy_class") == name or f"__polygraphy_encoded_{name}" in value
    )


def _run_results(content: Mapping[str, Any], path: Path) -> list[Any]:
    runs = content.get("lst")
    well_formed = isinstance(runs, list) and all(
        isinstance(run, list) and len(run) == 2 and isinstance(run[1], list) for run in runs
    )
    if not (isinstance(runs, list) and well_formed):
        raise SampleError(f"{path} is marked as Polygraphy run results but is not laid out so")
    if len(runs) != 1:
        names = ", ".join(repr(run[0]) for run in runs)
        raise SampleError(
            f"{path} holds the outputs of {len(runs)} runners ({names}); save those of one"
        )
    return [run.get("outputs") if isinstance(run, dict) else run for run in runs[0][1]]


def _array(value: object, where: str) -> Array:
    # Arrays can be wrapped, for example in a LazyArray, whose values are the array.
    for _ in range(4):
        if not isinstance(value, dict):
            break
        if _is_of_class(value, "Tensor") or "tensor" in value:
            raise SampleError(
                f"{where} is a PyTorch tensor, which can only be unpickled, and unpickling runs "
                "code; save it as a NumPy array"
            )
        payload = value.get("array", value.get("values"))
        if isinstance(payload, str):
            return _decode_array(payload, where)
        value = payload
    raise SampleError(f"{where} is not an array as Polygraphy writes it")


def _decode_array(payload: str, where: str) -> Array:
    try:
        try:
            data = base64.b64decode(payload, validate=True)
        except (binascii.Error, ValueError):
            # How the oldest versions wrote it.
            data = payload.encode("latin-1")
        if not data.startswith(ZIP_MAGIC):
            return read_npy(io.BytesIO(data), where)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return read_npy(io.BytesIO(archive.read(archive.infolist()[0])), where)
    except (*DAMAGE, OSError, IndexError) as error:
        raise SampleError(f"{where} is not a valid array: {one_line(error)}") from error
