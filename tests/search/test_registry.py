"""Finding a search method by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from routewright.errors import SettingsError
from routewright.search.registry import SAMPLERS, SamplerEntry, check_sampler, make_sampler
from routewright.search.simulation import random_problem

SPACE = random_problem(0, knobs=6, live=2).space

OWN = """
from optuna.samplers import BaseSampler, RandomSampler
from routewright.search.base import Proposal, RouteSampler

class Mine(RouteSampler):
    name = "mine"
    def __init__(self, space, *, seed, first=0):
        super().__init__(space, seed=seed)
        self.first = first
    def propose(self, history):
        return Proposal(self.space.route_at(self.first), origin="mine")

class Theirs(RandomSampler):
    pass

class NotOne:
    pass
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_sampler_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_the_methods_of_the_issue_are_there() -> None:
    wanted = {"fast", "full", "mixed", "mixed-trtexec", "random", "tpe", "gp", "auto"}
    assert wanted <= set(SAMPLERS)
    assert all(entry.summary and entry.name == name for name, entry in SAMPLERS.items())


@pytest.mark.parametrize(
    ("wrong", "near"), [("surogate", "auto"), ("TPE", "tpe"), ("ful", "full")]
)
def test_an_unknown_name_gets_close_matches(wrong: str, near: str) -> None:
    with pytest.raises(SettingsError, match=near):
        check_sampler(wrong)


def test_a_missing_package_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    needy = SamplerEntry("needy", "needs much", SAMPLERS["tpe"].make, needs=("no_such_package",))
    monkeypatch.setattr("routewright.search.registry.SAMPLERS", {**SAMPLERS, "needy": needy})
    with pytest.raises(SettingsError, match=r"needs no_such_package.*pip install"):
        make_sampler("needy", SPACE, seed=0)


def test_own_route_sampler_with_options(own_module: str) -> None:
    sampler = make_sampler(f"{own_module}:Mine", SPACE, seed=0, options={"first": 3})
    assert sampler.name == "mine"
    with pytest.raises(SettingsError, match="cannot make"):
        make_sampler(f"{own_module}:Mine", SPACE, seed=0, options={"last": 3})


def test_own_optuna_sampler_is_adapted(own_module: str) -> None:
    sampler = make_sampler(f"{own_module}:Theirs", SPACE, seed=0)
    assert sampler.name == "Theirs"


def test_a_sampler_of_optuna_by_its_path() -> None:
    assert make_sampler("optuna.samplers:NSGAIISampler", SPACE, seed=0).name == "NSGAIISampler"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.such.module:Class", "cannot import"),
        ("optuna.samplers:TPESamplr", "TPESampler"),
        ("optuna.samplers:GridSampler", "cannot make"),
        (":Class", "package.module:Class"),
        ("module:", "package.module:Class"),
    ],
)
def test_what_is_no_class_is_refused(name: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        make_sampler(name, SPACE, seed=0)


def test_a_class_that_is_no_sampler_is_refused(own_module: str) -> None:
    with pytest.raises(SettingsError, match="is no sampler"):
        check_sampler(f"{own_module}:NotOne")


def test_options_go_to_own_classes_only() -> None:
    with pytest.raises(SettingsError, match="takes no options"):
        make_sampler("tpe", SPACE, seed=0, options={"gamma": 1})
