from __future__ import annotations

import pytest

from prior_studies import TRANSFORMER, database, features, random_study, singles, source
from routewright.priors.learning import form_beliefs
from routewright.priors.target import Target

KNOBS = ("-a", "-b", "-c", "-x")
EFFECTS = {"-a=on": -0.2, "-b=on": 0.1, "-c=on": 0.0}


def target(**about: object) -> Target:
    facts = {
        "backend": "synthetic",
        "database": database(*KNOBS),
        "features": features(),
        "loss": "cos",
        "limit": 0.01,
    }
    return Target(**(facts | about))  # type: ignore[arg-type]


def conv_sources(count: int = 3, **about: object) -> list:  # type: ignore[type-arg]
    return [
        source(
            f"conv{seed}",
            random_study(EFFECTS, seed=seed),
            knobs=KNOBS,
            inert=["-x"],
            features=features(flops=10**8 + seed * 10**7),
            **about,
        )
        for seed in range(count)
    ]


def test_what_related_studies_agree_on_is_believed() -> None:
    beliefs = form_beliefs(conv_sources(), target())
    a = beliefs.settings["-a", "on"]
    assert a.effect is not None
    assert a.effect.mean == pytest.approx(-0.2, abs=0.03)
    assert a.effect.mean + 1.96 * a.effect.sd < 0
    assert a.live > 0.8
    assert beliefs.settings["-x", "on"].live < 0.1
    assert [share.source for share in a.shares] == ["conv0", "conv1", "conv2"]


def test_thin_evidence_is_shrunk_to_zero() -> None:
    vague = [source("s", singles({"-a=on": -0.3}, sd=0.4), features=features())]
    effect = form_beliefs(vague, target()).settings["-a", "on"].effect
    assert effect is not None
    assert -0.15 < effect.mean < 0
    assert effect.sd > 0.15


def test_unlike_models_teach_less_and_far_ones_nothing() -> None:
    near = form_beliefs(conv_sources(), target()).settings["-a", "on"]
    unlike = features(ops={"Conv": 10, "Relu": 20, "MatMul": 8}, depth=60, flops=3 * 10**9)
    middle = form_beliefs(conv_sources(), target(features=unlike)).settings["-a", "on"]
    assert near.effect is not None
    assert middle.effect is not None
    assert middle.effect.sd > near.effect.sd
    assert middle.live < near.live
    far = form_beliefs(conv_sources(), target(features=TRANSFORMER))
    assert not far.choice.used
    assert "too unlike" in far.choice.dropped["conv0"]


def test_a_family_that_the_user_names_goes_before_likeness() -> None:
    sources = conv_sources(2, family="mine")
    named = form_beliefs(sources, target(features=TRANSFORMER, family="mine"))
    assert len(named.choice.used) == 2
    other = form_beliefs(sources, target(family="yours"))
    assert all(s.weight < 0.3 for s in other.choice.used)


def test_another_environment_widens_and_does_not_discard() -> None:
    here = {"cpu": "A", "default_threads": 2}
    near = form_beliefs(conv_sources(environment=here), target(environment=here))
    far = form_beliefs(
        conv_sources(environment={"cpu": "B", "default_threads": 16}), target(environment=here)
    )
    one, other = near.settings["-a", "on"].effect, far.settings["-a", "on"].effect
    assert one is not None
    assert other is not None
    assert other.sd > 1.3 * one.sd
    assert other.mean < -0.1
    assert far.choice.used[0].remarks[0] == "cpu B instead of A"


def test_the_same_model_is_nearest_of_all() -> None:
    sources = [*conv_sources(), source("mine", singles({"-a=on": 0.05}), model_sha256="7" * 64)]
    beliefs = form_beliefs(sources, target(model_sha256="7" * 64, features=None))
    assert beliefs.choice.used[0].evidence.origin.name == "mine"
    assert beliefs.choice.used[0].model_distance == 0


def test_other_backends_and_unknown_knobs_are_dropped_and_counted() -> None:
    sources = [*conv_sources(1), source("gpu", singles({"-a=on": 0.1}), backend="other")]
    beliefs = form_beliefs(sources, target(database=database("-a")))
    assert beliefs.choice.dropped == {"gpu": "its backend is other"}
    assert beliefs.unknown_knobs == {"-b": 1, "-c": 1, "-x": 1}
    assert {knob for knob, _ in beliefs.settings} == {"-a"}


def test_a_knob_whose_default_changed_is_not_mixed_up() -> None:
    changed = source("s", singles({"-a=on": -0.2}), defaults={"-a": "auto"}, features=features())
    assert form_beliefs([changed], target()).settings == {}


def test_numbered_parts_transfer_by_position() -> None:
    four = {f"-part{n}=on": -0.1 * n for n in (1, 2, 3, 4)}
    sources = [
        source(f"s{seed}", random_study(four, seed=seed), features=features()) for seed in (0, 1)
    ]
    beliefs = form_beliefs(sources, target(database=database("-part1", "-part2")))
    first, last = beliefs.settings["-part1", "on"], beliefs.settings["-part2", "on"]
    assert first.effect is not None
    assert last.effect is not None
    assert last.effect.mean < first.effect.mean < 0
    # -part2 is the second half here; the number of the same name was the second quarter there.
    assert last.effect.mean == pytest.approx(-0.35, abs=0.07)
    assert beliefs.unknown_knobs == {}


def test_an_interaction_is_kept_if_it_repeats() -> None:
    pairs = {("-a=on", "-b=on"): -0.2}

    def with_pair(seed: int) -> object:
        records = random_study(EFFECTS, seed=seed, count=120, pairs=pairs)
        return source(f"s{seed}", records, features=features())

    once = [with_pair(0), *conv_sources(1)]
    assert form_beliefs(once, target()).pairs == {}  # type: ignore[arg-type]
    twice = form_beliefs([with_pair(0), with_pair(1)], target()).pairs  # type: ignore[list-item]
    assert twice["-a=on", "-b=on"].mean == pytest.approx(-0.18, abs=0.05)


def test_losses_of_another_kind_are_not_mixed() -> None:
    sources = [source("s", singles({"-a=on": -0.1}, loss=1e-3), features=features(), loss="linf")]
    assert form_beliefs(sources, target()).settings["-a", "on"].loss is None
    assert form_beliefs(sources, target(loss="linf")).settings["-a", "on"].loss is not None


def test_learning_does_not_depend_on_the_order_of_sources() -> None:
    one = form_beliefs(conv_sources(), target())
    other = form_beliefs(list(reversed(conv_sources())), target())
    assert one.settings == other.settings
