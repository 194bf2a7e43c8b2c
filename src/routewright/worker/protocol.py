"""What a worker and its parent say to each other: JSON lines, and plain data both ways.

A request is ``{"id", "method", "params", "remaining_s"}``. Its answer is ``{"id"}`` and one of

* ``"ok"``: the result,
* ``"failure"``: ``{"kind", "message", "transient", "retire"}``, the trial failed; with ``retire``
  the worker ends after the answer,
* ``"user_error"``: ``{"error", "message"}``, something the user can mend, by class name.

Numbers keep infinity and NaN (Python's extension of JSON). Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from routewright import errors
from routewright.backends.base import Job
from routewright.tensors import TensorSpec

_MESSAGE_CHARACTERS = 600


class ProtocolError(Exception):
    """What came over the pipe is not a message."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return ``message`` as one line.

    Raises:
        TypeError: It holds something that JSON has no form for.
    """
    return json.dumps(message, default=_plain).encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the message in ``line``.

    Raises:
        ProtocolError: It is cut off or garbled.
    """
    try:
        message = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {shorten(line)}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"not an object: {shorten(line)}")
    return message


def shorten(data: bytes) -> str:
    """Return the start of ``data`` for a message."""
    return repr(data[:80].decode("utf-8", "replace")) + ("..." if len(data) > 80 else "")


def one_line(text: str) -> str:
    """Return ``text`` on one line of bearable length, of characters that any storage takes."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) > _MESSAGE_CHARACTERS:
        line = line[: _MESSAGE_CHARACTERS - 3] + "..."
    return line


def job_to_json(job: Job) -> dict[str, Any]:
    """Return ``job`` as JSON values; paths become absolute."""
    return {
        "model": str(job.model.absolute()),
        "work_folder": str(job.work_folder.absolute()),
        "shapes": {name: list(shape) for name, shape in job.shapes.items()},
        "profiles": [
            {name: [list(shape) for shape in shapes] for name, shapes in profile.items()}
            for profile in job.profiles
        ],
        "calibration": None if job.calibration is None else str(job.calibration.absolute()),
        "options": dict(job.options),
        "seed": job.seed,
    }


def job_from_json(data: Mapping[str, Any]) -> Job:
    """Return the job that :func:`job_to_json` wrote."""
    calibration = data["calibration"]
    return Job(
        model=Path(data["model"]),
        work_folder=Path(data["work_folder"]),
        shapes={name: tuple(shape) for name, shape in data["shapes"].items()},
        profiles=tuple(
            {
                name: (tuple(least), tuple(usual), tuple(most))
                for name, (least, usual, most) in profile.items()
            }
            for profile in data["profiles"]
        ),
        calibration=None if calibration is None else Path(calibration),
        options=data["options"],
        seed=data["seed"],
    )


def spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    """Return ``spec`` as JSON values."""
    shape = None if spec.shape is None else list(spec.shape)
    return {"name": spec.name, "dtype": spec.dtype, "shape": shape}


def spec_from_json(data: Mapping[str, Any]) -> TensorSpec:
    """Return the specification that :func:`spec_to_json` wrote."""
    shape = data["shape"]
    return TensorSpec(data["name"], data["dtype"], None if shape is None else tuple(shape))


def user_error_to_json(error: errors.RoutewrightError) -> dict[str, str]:
    """Return ``error`` by the name of its class, or of its nearest base in our own errors."""
    name = next(base.__name__ for base in type(error).__mro__ if _known(base))
    return {"error": name, "message": one_line(str(error))}


def user_error_from_json(data: Mapping[str, Any]) -> errors.RoutewrightError:
    """Return the error that :func:`user_error_to_json` wrote.

    Raises:
        ProtocolError: It is none.
    """
    kind = getattr(errors, str(data.get("error")), None)
    if not _known(kind):
        raise ProtocolError(f"no such error: {data!r}")
    return kind(str(data.get("message")))


def _known(kind: Any) -> TypeGuard[type[errors.RoutewrightError]]:
    return (
        isinstance(kind, type)
        and issubclass(kind, errors.RoutewrightError)
        and kind.__module__ == errors.__name__
    )


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
