from __future__ import annotations

import math

import pytest

from conftest import ROOT
from models import conv_net
from routewright.priors.features import features_of
from routewright.priors.tables import evidence_of_table, features_of_card
from routewright.tables import Table

TABLES = ROOT / "studies" / "tables"


@pytest.fixture(scope="module")
def table() -> Table:
    return Table.load(TABLES / "ppocr-v4-det")


def test_a_table_tells_what_is_live_and_what_every_setting_does(table: Table) -> None:
    evidence = evidence_of_table(table)
    rows = evidence.settings
    assert evidence.origin.kind == "table"
    assert evidence.origin.backend == "onnxruntime"
    inert = set(rows[rows.live == 0].knob)
    assert set(rows[rows.live == 1].knob) <= set(table.live)
    assert {k.name for k in table.database if k.searchable} - set(table.live) <= inert
    for entry in table.entries:
        if len(entry.route.split()) == 1 and entry.timed:
            knob, _, value = entry.route.partition("=")
            (row,) = rows[(rows.knob == knob) & (rows.value == value)].itertuples()
            assert row.effect == pytest.approx(math.log(entry.relative_latency), abs=0.15)


def test_learning_from_a_table_twice_gives_the_same(table: Table) -> None:
    one, other = evidence_of_table(table), evidence_of_table(table)
    assert one.key == other.key
    assert one.settings.equals(other.settings)


def test_a_family_can_be_named(table: Table) -> None:
    assert evidence_of_table(table).origin.family == table.family
    assert evidence_of_table(table, family="mine").origin.family == "mine"


def test_features_come_from_the_card_where_it_has_them(table: Table) -> None:
    known = features_of(conv_net(), {"x": (1, 3, 16, 16)})
    assert features_of_card({**table.card, "features": known.to_dict()}) == known
    strange = {**table.card, "features": None, "model": {"file": "no.onnx", "sha256": "0"}}
    assert features_of_card(strange) is None
