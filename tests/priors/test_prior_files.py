from __future__ import annotations

import json
import pickle
from pathlib import Path

import pandas as pd
import pytest

from prior_studies import features, random_study, source
from routewright.priors.evidence import Evidence
from routewright.priors.files import (
    PriorError,
    file_name,
    merged,
    read_prior,
    remove_sources,
    write_prior,
)

EFFECTS = {"-a=on": -0.2, "-b=on": 0.1}
PAIRS = {("-a=on", "-b=on"): 0.2}


def sources() -> list[Evidence]:
    return [
        source(
            name,
            random_study(
                {"-a=on": -0.2, "-b=on": 0.1}, seed=seed, pairs={("-a=on", "-b=on"): 0.2}
            ),
            features=features(),
            environment={"cpu": "x", "default_threads": 2},
            family="conv",
        )
        for seed, name in enumerate(("one", "two", "odd name/ü"))
    ]


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "p.prior.json"
    write_prior(path, sources())
    back = read_prior(path)
    assert [s.origin for s in back] == [s.origin for s in merged(sources())]
    for one, other in zip(back, merged(sources()), strict=True):
        pd.testing.assert_frame_equal(one.settings, other.settings)
        pd.testing.assert_frame_equal(one.pairs, other.pairs)
        assert one.trials == other.trials


def test_learning_anew_and_in_another_order_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    write_prior(one, sources())
    write_prior(other, list(reversed(sources())))
    assert one.read_bytes() == other.read_bytes()
    write_prior(other, read_prior(other))
    assert one.read_bytes() == other.read_bytes()


def test_a_folder_holds_one_file_for_each_source(tmp_path: Path) -> None:
    folder = tmp_path / "priors"
    write_prior(folder, sources())
    assert sorted(f.name for f in folder.iterdir()) == sorted(file_name(s) for s in sources())
    assert {s.key for s in read_prior(folder)} == {s.key for s in sources()}


def test_a_source_that_comes_again_replaces_what_was_learned(tmp_path: Path) -> None:
    later = source("one", random_study({"-a=on": -0.2}, count=10))
    both = merged([*sources(), later])
    assert len(both) == 3
    assert next(s for s in both if s.origin.name == "one").trials == later.trials


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_removing_a_source_leaves_the_others_as_they_were(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("priors" if kind == "folder" else "p.prior.json")
    without = tmp_path / ("without" if kind == "folder" else "w.prior.json")
    write_prior(path, sources())
    write_prior(without, sources()[1:])
    (gone,) = remove_sources(path, ["one"])
    assert gone.origin.name == "one"
    read, wanted = read_prior(path), read_prior(without)
    assert [s.key for s in read] == [s.key for s in wanted]
    for one, other in zip(read, wanted, strict=True):
        pd.testing.assert_frame_equal(one.settings, other.settings)


def test_a_source_that_is_not_there_cannot_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "p.prior.json"
    write_prior(path, sources())
    with pytest.raises(PriorError, match="'three'; it has: odd name/ü, one, two"):
        remove_sources(path, ["three"])


def test_a_missing_prior_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PriorError, match="there is no prior"):
        read_prior(tmp_path / "p.json")
    with pytest.raises(PriorError, match="holds no prior"):
        read_prior(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "strict JSON"),
        (pickle.dumps({"schema": "routewright-prior"}), "strict JSON"),
        (b"[1]", "schema"),
        (b'{"schema": "other"}', "schema"),
        (b'{"schema": "routewright-prior", "version": 99, "sources": []}', "version 99"),
        (b'{"schema": "routewright-prior", "version": 1}', "damaged"),
        (b'{"schema": "routewright-prior", "version": 1, "sources": [{}]}', "damaged"),
        (b'{"schema": "routewright-prior", "version": NaN}', "NaN is no number"),
        (b"[" * 100_000, "strict JSON"),
    ],
)
def test_what_is_no_prior_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "p.prior.json"
    path.write_bytes(content)
    with pytest.raises(PriorError, match=message):
        read_prior(path)


@pytest.mark.parametrize("damage", [{"effect": "fast"}, {"knob": 3}, {"live": True}])
def test_a_damaged_row_is_refused(tmp_path: Path, damage: dict[str, object]) -> None:
    path = tmp_path / "p.prior.json"
    write_prior(path, sources()[:1])
    content = json.loads(path.read_text())
    content["sources"][0]["settings"][0] |= damage
    path.write_text(json.dumps(content))
    with pytest.raises(PriorError, match="damaged"):
        read_prior(path)
