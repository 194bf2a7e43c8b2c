from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT
from routewright.priors.files import read_prior, write_prior
from routewright.priors.tables import evidence_of_table
from routewright.tables import Table

SHIPPED = ROOT / "priors"


def test_shipped_priors_are_what_the_committed_tables_say() -> None:
    shipped = {source.origin.name: source for source in read_prior(SHIPPED)}
    tables = {path.name for path in (ROOT / "studies" / "tables").iterdir()}
    assert set(shipped) <= tables
    name, kept = sorted(shipped.items())[0]
    anew = evidence_of_table(Table.load(ROOT / "studies" / "tables" / name))
    assert anew.origin == kept.origin
    pd.testing.assert_frame_equal(anew.settings, kept.settings, rtol=1e-4)


def test_the_card_names_every_file_and_its_table() -> None:
    card = (SHIPPED / "README.md").read_text(encoding="utf-8")
    for path in SHIPPED.glob("*.prior.json"):
        assert f"`{path.name}`" in card
    for source in read_prior(SHIPPED):
        assert f"`studies/tables/{source.origin.name}`" in card


@pytest.mark.slow
def test_learning_the_shipped_priors_again_changes_no_byte(tmp_path: Path) -> None:
    smallest = sorted(read_prior(SHIPPED), key=lambda source: source.trials)[:3]
    for kept in smallest:
        table = Table.load(ROOT / "studies" / "tables" / kept.origin.name)
        write_prior(tmp_path, [evidence_of_table(table)])
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (SHIPPED / path.name).read_bytes(), path.name
