"""What several test files share."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A job started in the background inherits an ignored Ctrl-C, and so would the programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)


def load_script(name: str) -> ModuleType:
    """Import ``scripts/NAME``, which has no suffix that Python would look for."""
    loader = SourceFileLoader(f"routewright_script_{name}", str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up there.
    sys.modules[loader.name] = module
    # Bytecode would be written into scripts/ otherwise.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """Return where a fetched real model lies, by its name in ``scripts/fetch_models``."""
    script = load_script("fetch_models")
    by_name = {model.name: model for model in script.MODELS}

    def find(name: str) -> Path:
        path: Path = script.model_path(by_name[name], script.cache_folder())
        if not path.is_file():
            pytest.fail(f"{path} is missing; run: make models", pytrace=False)
        return path

    return find


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a CUDA device where there is none."""
    if not any(item.get_closest_marker("gpu") for item in items) or _has_cuda_device():
        return
    skip = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


def _has_cuda_device() -> bool:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout
