"""Child process: lose the device by letting an engine read from an address that is not mapped."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import trt_models

from routewright.backends import load_backend
from routewright.backends.base import Job, RunFailed
from routewright.routes import Route

UNMAPPED = 0x100000000


def failure(engine: Any, inputs: Any) -> tuple[str, str]:
    """Run and return the failure's kind and message."""
    try:
        engine.run(inputs)
    except RunFailed as error:
        return error.kind, str(error)
    return "", "it ran"


def main() -> None:
    """Print the failure of the run that loses the device, and that of the next one."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    kind: Any = load_backend(name)
    model = trt_models.mlp(folder / "m.onnx")
    backend = kind(Job(model, folder, {"x": (2, 16)}, options={"cache_folder": str(folder)}))
    engine = backend.build(Route(), folder)
    inputs = {"x": np.zeros((2, 16), np.float32)}
    real = engine._context.set_tensor_address
    engine._bindings._set_address = lambda tensor, address: real(
        tensor, UNMAPPED if tensor == "y" else address
    )
    first, message = failure(engine, inputs)
    engine._bindings._set_address = real
    second, _ = failure(engine, inputs)
    print(json.dumps({"kind": first, "message": message, "next": second}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
