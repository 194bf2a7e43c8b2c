"""``prior`` and ``tune --prior`` as users run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Run

from conftest import ROOT
from models import conv_net, mlp_static, save
from prior_studies import BASELINE, random_study, source, timed
from routewright.priors.features import features_of
from routewright.priors.files import read_prior, write_prior
from routewright.records import Phase
from routewright.search.base import history_of
from routewright.storage import open_storage
from routewright.study import load_study

pytest_plugins = ("running",)

SMALL = "-session:intra_op_num_threads=[1|2] -optimizer:MatMulAddFusion=[on|off]"
PATTERN = "-session:mem_pattern=off"

BRIEF = ("--budget", "25s", "--max-timing", "0.5s", "--half-width", "0.3", "--shared-device")
"""Times so short that a few routes are tried well before the budget ends."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a user of its own, and no shipped priors."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("ROUTEWRIGHT_PRIORS", str(tmp_path / "shipped"))
    return tmp_path / "data" / "routewright" / "priors"


def cache_of_trtexec(path: Path) -> Path:
    """Write a fast sweep: baseline, a faster route, an inaccurate one, and a crash."""
    rows = [
        ("-a=on -b=1", 2.0, 1e-5, ""),
        ("-a=on -b=0", 1.5, 1e-5, ""),
        ("-a=on -b=2", 1.0, 0.25, "child exited with status 1"),
        ("-a=off -b=1", None, None, "child killed by signal 11 (Segmentation fault)"),
    ]
    lines: list[dict[str, object]] = [
        {
            "tuner_version": "2.19.45",
            "accuracy_algorithm": "Cosine",
            "accuracy_parameter": {"epsilon": 0.001},
            "searching_algorithm": "fast",
            "default_build_route": "-a=on -b=1",
            "tuning_expr": "-a=[on|off] -b=[0|1|2]",
        }
    ]
    lines += [
        {
            "iter": index,
            "build_route": route,
            "crash": time_ms is None,
            "error_message": error,
            "accuracy_loss": None if loss is None else {"y": loss},
            "gpu_time": time_ms,
        }
        for index, (route, time_ms, loss, error) in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def synthetic_prior(path: Path, *, backend: str = "synthetic") -> Path:
    effects = {"-a=on": -0.2, "-b:one=on": 0.1}
    write_prior(
        path,
        [
            source(f"study{seed}", random_study(effects, seed=seed), backend=backend)
            for seed in (0, 1)
        ],
    )
    return path


@pytest.mark.slow
def test_a_study_teaches_the_next_one(run: Run, tmp_path: Path, own_folder: Path) -> None:
    model = save(conv_net(), tmp_path / "m.onnx")
    common = (*BRIEF, "--expr", SMALL, "--sampler", "random")
    first = run("tune", model, "--out", tmp_path / "one", "--learn", *common)
    assert first.code == 0, first.err
    assert "added to the priors in" in first.err
    (learned,) = read_prior(own_folder)
    assert learned.origin.features is not None
    assert learned.origin.backend == "onnxruntime"
    assert "-session:intra_op_num_threads" in set(learned.settings.knob)
    second = run("tune", model, "--out", tmp_path / "two", "--prior", "auto", *common)
    assert second.code == 0, second.err
    assert "prior: 1 study from" in second.err
    assert "m-one at 0.00" in second.err
    assert (tmp_path / "two" / "used.prior.json").exists()


@pytest.mark.slow
def test_routes_of_a_prior_come_first_with_any_sampler_and_are_marked(
    run: Run, tmp_path: Path
) -> None:
    proto = conv_net()
    model = save(proto, tmp_path / "m.onnx")
    records = [BASELINE, timed(1, PATTERN, -0.3), timed(2, PATTERN, -0.3)]
    prior = tmp_path / "p.prior.json"
    write_prior(
        prior,
        [
            source(
                f"s{number}",
                records,
                backend="onnxruntime",
                defaults={"-session:mem_pattern": "on"},
                features=features_of(proto, {"x": (1, 3, 16, 16)}),
            )
            for number in (1, 2)
        ],
    )
    out = tmp_path / "out"
    ran = run(
        "tune",
        model,
        *BRIEF,
        *("--out", out, "--prior", prior, "--sampler", "random"),
        *("--expr", f"{SMALL} -session:mem_pattern=[on|off]"),
    )
    assert ran.code == 0, ran.err
    assert "prior: 1 route to try first" in ran.err
    study = load_study(open_storage(str(out / "study.db"), existing=True), "m-out")
    records = list(history_of(study).records)
    assert records[1].route == PATTERN
    assert records[1].origin == "prior: what promises most together"
    searched = [r for r in records[2:] if r.phase is Phase.SEARCH and r.reused_from is None]
    assert not any(r.origin.startswith("prior") for r in searched)


def test_a_prior_that_is_not_there_is_refused_before_anything_is_written(
    run: Run, tmp_path: Path
) -> None:
    model = save(mlp_static(), tmp_path / "m.onnx")
    out = tmp_path / "out"
    ran = run("tune", model, "--prior", "nothing.json", "--out", out)
    assert ran.code == 2
    assert "there is no prior nothing.json" in ran.error
    assert not out.exists()


@pytest.mark.slow
def test_auto_without_any_prior_says_so_and_tunes(run: Run, tmp_path: Path) -> None:
    model = save(mlp_static(), tmp_path / "m.onnx")
    ran = run(
        *("tune", model, "--prior", "auto", *BRIEF, "--expr", SMALL),
        *("--out", tmp_path / "out"),
    )
    assert ran.code == 0, ran.err
    assert "prior: none, for nothing was learned yet" in ran.err


@pytest.mark.slow
def test_auto_leaves_out_what_it_cannot_read(run: Run, tmp_path: Path, own_folder: Path) -> None:
    own_folder.mkdir(parents=True)
    (own_folder / "bad.prior.json").write_text('{"schema": "routewright-prior", "version": 9}')
    model = save(mlp_static(), tmp_path / "m.onnx")
    ran = run(
        *("tune", model, "--prior", "auto", *BRIEF, "--expr", SMALL),
        *("--out", tmp_path / "out"),
    )
    assert ran.code == 0, ran.err
    assert "version 9" in ran.err


def test_a_cache_of_trtexec_is_learned_from(run: Run, tmp_path: Path) -> None:
    cache = cache_of_trtexec(tmp_path / "cache.json")
    out = tmp_path / "p.prior.json"
    ran = run("prior", "learn", cache, "--out", out, "--family", "det")
    assert ran.code == 0, ran.err
    (learned,) = read_prior(out)
    assert learned.origin.kind == "cache"
    assert learned.origin.family == "det"
    rows = learned.settings.set_index(["knob", "value"])
    assert rows.loc[("-b", "0"), "effect"] < 0
    assert rows.loc[("-a", "off"), "failures"] == 1
    assert rows.loc[("-b", "2"), "loss_log10"] == pytest.approx(-0.6, abs=0.02)


def test_learning_from_a_prior_again_changes_nothing(run: Run, tmp_path: Path) -> None:
    one = synthetic_prior(tmp_path / "one.prior.json")
    two = tmp_path / "two.prior.json"
    assert run("prior", "learn", one, "--out", two).code == 0
    assert run("prior", "learn", one, two, "--out", two).code == 0
    assert two.read_bytes() == one.read_bytes()


def test_a_prior_is_shown_explained_and_drawn(run: Run, tmp_path: Path) -> None:
    prior = synthetic_prior(tmp_path / "p.prior.json")
    shown = run("prior", "show", prior, "--figure", tmp_path / "f.html")
    assert shown.code == 0, shown.err
    assert "2 sources (synthetic)" in shown.out
    assert "-a=on" in shown.out
    assert "0.8" in shown.out
    assert "-b:one=on" in (tmp_path / "f.html").read_text()
    explained = run("prior", "show", prior, "--knob", "b:one")
    assert "where it matters" in explained.out
    assert "study0 (weight 1.00)" in explained.out
    wrong = run("prior", "show", prior, "--knob", "b:on")
    assert wrong.code == 2
    assert "did you mean" in wrong.error


def test_an_unknown_family_is_refused_with_the_known_ones(run: Run, tmp_path: Path) -> None:
    prior = tmp_path / "p.prior.json"
    write_prior(prior, [source("s", random_study({"-a=on": 0.1}), family="det")])
    ran = run("prior", "show", prior, "--family", "dot")
    assert ran.code == 2
    assert "there are: det" in ran.error


def test_a_source_is_removed_again(run: Run, tmp_path: Path) -> None:
    prior = synthetic_prior(tmp_path / "p.prior.json")
    assert run("prior", "remove", "study0", "--prior", prior).code == 0
    assert [s.origin.name for s in read_prior(prior)] == ["study1"]
    again = run("prior", "remove", "study0", "--prior", prior)
    assert again.code == 2
    assert "it has: study1" in again.error


def test_showing_an_empty_prior_says_how_to_learn(run: Run) -> None:
    ran = run("prior", "show")
    assert ran.code == 2
    assert "routewright prior learn" in ran.error


def test_what_holds_nothing_to_learn_from_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source_, message in (("nowhere", "there is no nowhere"), ("empty", "nothing to learn")):
        ran = run("prior", "learn", source_, "--out", "p.prior.json")
        assert ran.code == 2
        assert message in ran.error
    (tmp_path / "n.json").write_text(json.dumps({"schema": "other"}))
    ran = run("prior", "learn", "n.json", "--out", "p.prior.json")
    assert "schema" in ran.error


def test_checking_a_model_says_what_would_be_tried_and_why(run: Run, tmp_path: Path) -> None:
    proto = conv_net()
    model = save(proto, tmp_path / "m.onnx")
    prior = tmp_path / "p.prior.json"
    records = [BASELINE, timed(1, PATTERN, -0.3)]
    about = {"defaults": {"-session:mem_pattern": "on", "-gone": "off"}, "backend": "onnxruntime"}
    features = features_of(proto, {"x": (1, 3, 16, 16)})
    write_prior(
        prior,
        [source("near", [*records, timed(2, "-gone=on", 0.1)], features=features, **about)],
    )
    ran = run("prior", "check", model, "--prior", prior, "--why")
    assert ran.code == 0, ran.err
    assert f"would try: {PATTERN}" in ran.out
    assert "near at 0.00" in ran.out
    assert "dropped 1 knobs that are not searched here: -gone" in ran.out
    assert "near (weight" in ran.out


@pytest.mark.slow
def test_priors_are_evaluated_on_recorded_tables(run: Run, tmp_path: Path) -> None:
    tables = [str(ROOT / "studies" / "tables" / n) for n in ("ppocr-v4-det", "ppocr-v2-cls")]
    ran = run(
        *("prior", "evaluate", *tables, "--repeats", 2, "--trials", 10),
        *("--on", "ppocr-v4-det", "--only", "model out", "--out", tmp_path / "out"),
    )
    assert ran.code == 0, ran.err
    assert "| ppocr-v4-det | model out |" in ran.out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["verdicts"][0]["seeds"] == 2
    assert len((tmp_path / "out" / "arrivals.jsonl").read_text().splitlines()) == 4


def test_evaluating_needs_two_tables_and_known_conditions(run: Run) -> None:
    table = str(ROOT / "studies" / "tables" / "ppocr-v4-det")
    assert "at least two tables" in run("prior", "evaluate", table).error
    other = str(ROOT / "studies" / "tables" / "ppocr-v2-cls")
    ran = run("prior", "evaluate", table, other, "--only", "model")
    assert ran.code == 2
    assert "there is no condition 'model'" in ran.error
