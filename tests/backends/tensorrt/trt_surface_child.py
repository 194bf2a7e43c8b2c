"""Child process: print the API of a binding module as JSON.

``{"version", "classes": {name: {"values": [...], "members": {name: {"kind", "settable", "doc"}}}},
"functions": [...]}``
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any


def members(cls: type) -> dict[str, Any]:
    """Return the public members of a class."""
    found: dict[str, Any] = {}
    values = getattr(cls, "__members__", {})
    for name in dir(cls):
        if name in values or (name.startswith("_") and name != "__init__"):
            continue
        member = inspect.getattr_static(cls, name)
        if isinstance(member, property):
            found[name] = {"kind": "property", "settable": member.fset is not None, "doc": ""}
        elif callable(getattr(cls, name)):
            doc = getattr(cls, name).__doc__ or ""
            found[name] = {"kind": "method", "settable": False, "doc": doc}
        else:
            found[name] = {"kind": "value", "settable": False, "doc": ""}
    return found


def main() -> None:
    """Print the API of the module named by the first argument."""
    module = importlib.import_module(sys.argv[1])
    classes = {
        name: {
            "values": list(getattr(cls, "__members__", {})),
            "members": members(cls),
            "doc": cls.__doc__ or "",
        }
        for name, cls in vars(module).items()
        if inspect.isclass(cls)
    }
    # TensorRT-RTX re-exports its bindings, so the names come from dir().
    for name in dir(module):
        cls = getattr(module, name)
        if inspect.isclass(cls) and name not in classes:
            classes[name] = {
                "values": list(getattr(cls, "__members__", {})),
                "members": members(cls),
                "doc": cls.__doc__ or "",
            }
    functions = [
        name
        for name in dir(module)
        if not name.startswith("_")
        and callable(getattr(module, name))
        and not inspect.isclass(getattr(module, name))
    ]
    try:
        module.Builder(module.Logger())
        builder = "made"
    except TypeError as error:
        builder = str(error)
    print(
        json.dumps(
            {
                "version": module.__version__,
                "classes": classes,
                "functions": functions,
                "builder": builder,
            }
        )
    )


if __name__ == "__main__":
    main()
