"""A table really recorded from a small model, interrupted on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

import models
from routewright.errors import StorageError
from routewright.recording.assembling import assemble
from routewright.recording.journal import Journal
from routewright.recording.recorder import RecordingRules, record
from routewright.settings import TuneSettings
from routewright.tables import Table

RULES = RecordingRules(most_engines=6, timing_s=0.05, inert_routes=3, predicted_routes=4)


@pytest.mark.slow
def test_a_recording_goes_on_where_it_was_and_becomes_a_table(tmp_path: Path) -> None:
    model = models.save(models.mlp_dynamic(), tmp_path / "mlp.onnx")
    settings = TuneSettings(
        model=str(model),
        shape=("x:4x16",),
        loss="cos",
        bound=1e-2,
        expr="-session:mem_pattern=[on|off] -session:mem_reuse=[on|off] "
        "-optimizer:GeluFusionL1=[on|off] -optimizer:EliminateDropout=[on|off]",
    )
    said: list[str] = []

    def interrupt(text: str) -> None:
        said.append(text)
        if "routes of" in text:
            raise KeyboardInterrupt

    folder = tmp_path / "recording"
    with pytest.raises(KeyboardInterrupt):
        record(settings, folder, RULES, interrupt)
    with pytest.raises(StorageError, match="not finished"):
        assemble(Journal(folder / "journal.jsonl"), name="mlp")
    before = list(Journal(folder / "journal.jsonl"))

    journal = Journal(record(settings, folder, RULES, said.append))
    assert list(journal)[: len(before)] == before
    table = assemble(journal, name="mlp", family="mlp")
    table.save(tmp_path / "mlp")
    read = Table.load(tmp_path / "mlp")
    assert set(read.live) == {"-session:mem_pattern", "-session:mem_reuse"}
    inert = {knob.name for knob in read.database} - set(read.live)
    assert inert == {"-optimizer:GeluFusionL1", "-optimizer:EliminateDropout"}
    assert len(read.entries) == len(read.data.values) == 4
    assert read.card["prediction"] == {"routes": 4, "right": 4, "wrong": []}
    assert read.card["repeatability"]["engines"] >= 1
    assert read.eligible(read.default)
    assert 0.3 < read.default.relative_latency < 3
    assert str(tmp_path) not in (tmp_path / "mlp" / "card.json").read_text()

    with pytest.raises(StorageError, match="something else"):
        record(TuneSettings(model=str(model), shape=("x:8x16",)), folder, RULES, said.append)
