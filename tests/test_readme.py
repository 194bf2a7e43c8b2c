"""The README says what the code does: its script, its samplers, its files."""

from __future__ import annotations

import re
from pathlib import Path

from routewright.backends.onnxruntime.engine import RUN_SCRIPT
from routewright.search.registry import DEFAULT_SAMPLER, SAMPLERS
from routewright.settings import TuneSettings

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_script_that_runs_an_engine_is_the_tested_one() -> None:
    assert f"```python\n{RUN_SCRIPT}```" in README


def test_every_sampler_is_described_and_the_default_is_marked() -> None:
    table = README.partition("| sampler | what it does |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z-]+)`[ ,|]", table)) >= set(SAMPLERS)
    assert f"`{DEFAULT_SAMPLER}` (default)" in table
    assert TuneSettings(model="m").sampler == DEFAULT_SAMPLER


def test_what_is_named_is_there() -> None:
    for name in re.findall(r"`((?:scripts|studies|tests|src)/[\w./*-]+)`", README):
        assert list(ROOT.glob(name.rstrip("/"))), name
    assert "@@" not in README
