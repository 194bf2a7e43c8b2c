from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from routewright.backends.tensorrt import library
from routewright.errors import BackendError


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that looks for one module, of given source, as the only edition."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def find(source: str | None, *, oldest: tuple[int, ...] | None = None) -> Any:
        name = "routewright_made_up_library"
        sys.modules.pop(name, None)
        if source is not None:
            (tmp_path / f"{name}.py").write_text(source)
        edition = library.Edition("Made Up", (name,), "pip install made-up", oldest)
        monkeypatch.setitem(library.EDITIONS, "made-up", edition)
        library.load_library.cache_clear()
        return library.load_library("made-up")

    yield find
    library.load_library.cache_clear()


LOGGER = (
    "class ILogger:\n"
    "    class Severity:\n"
    "        INTERNAL_ERROR, ERROR, WARNING, INFO = range(4)\n"
    "__version__ = '{}'\n"
)


def test_a_library_that_is_not_installed(named: Any) -> None:
    with pytest.raises(BackendError, match="Made Up is not installed; pip install made-up"):
        named(None)


def test_a_library_whose_shared_objects_are_missing(named: Any) -> None:
    source = "raise ImportError('libx.so.1: cannot open shared object file')"
    with pytest.raises(BackendError, match=r"libx\.so\.1.*LD_LIBRARY_PATH"):
        named(source)


def test_a_library_that_lacks_a_module_of_its_own(named: Any) -> None:
    with pytest.raises(BackendError, match="is installed but absent_module is missing"):
        named("import absent_module")


@pytest.mark.parametrize("version", ["10.14.1.48", "11.0.9", "8.6"])
def test_a_library_that_is_too_old(named: Any, version: str) -> None:
    with pytest.raises(BackendError, match=r"is too old: build routes came with 11\.1"):
        named(LOGGER.format(version), oldest=(11, 1))


@pytest.mark.parametrize("version", ["11.1.0.106", "11.4", "12.0.0"])
def test_a_library_that_is_new_enough(named: Any, version: str) -> None:
    found = named(LOGGER.format(version), oldest=(11, 1))
    assert found.label == f"Made Up {version}"


def test_a_builder_that_cannot_be_made_gives_the_reason(named: Any) -> None:
    refusing = (
        LOGGER.format("11.4")
        + "def Builder(logger):\n"
        + "    logger.log(ILogger.Severity.ERROR, 'CUDA initialization failure')\n"
        + "    raise TypeError('factory function returned nullptr')\n"
    )
    with pytest.raises(BackendError, match=r"Made Up 11\.4 cannot build here"):
        named(refusing).new_builder()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"tuner_version": "2.19.45", "tuner_options": []}', "2.19.45"),
        ('{"tuner_options": []}', ""),
        ('{"tuner_version": 3}', ""),
        ("[]", ""),
        ("nonsense", ""),
        ("", ""),
    ],
)
def test_tuner_version(text: str, expected: str) -> None:
    assert library.tuner_version(text) == expected


def test_capabilities_are_asked_of_the_library_not_of_its_name() -> None:
    class Config(SimpleNamespace):
        all_build_routes = ""

        def get_timing_cache(self) -> None:
            return None

    module = SimpleNamespace(
        __version__="1",
        ILogger=type(
            "ILogger",
            (),
            {"Severity": SimpleNamespace(INTERNAL_ERROR=0, ERROR=1, WARNING=2, INFO=3)},
        ),
        BuilderFlag=SimpleNamespace(__members__={"TF32": 1}),
    )
    made = library.Library(module, "TensorRT")
    asked = made.ask_capabilities(SimpleNamespace(create_builder_config=Config))
    assert asked.build_routes == ""
    assert "lists no build routes on this platform" in asked.no_build_routes
    assert asked.times_tactics
    assert not asked.runtime_cache
    assert asked.targets == ()
    Config.all_build_routes = '{"tuner_options": [{}]}'
    asked = made.ask_capabilities(SimpleNamespace(create_builder_config=Config))
    assert asked.no_build_routes == ""
