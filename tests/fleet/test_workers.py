"""Whole workers, and many processes on one SQLite file."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import get_storage
from optuna.trial import TrialState

from routewright.cli import main
from routewright.fleet.election import verdict_among
from routewright.fleet.joining import Terms, join, members
from routewright.fleet.lease import Watch
from routewright.fleet.log import SharedLog
from routewright.fleet.spool import Spool
from routewright.knobs import KnobDatabase
from routewright.records import Outcome, Phase, TrialRecord, record_of
from routewright.routes import Route
from routewright.search.base import Proposal
from routewright.space import SearchSpace
from routewright.storage import open_storage, sqlite_url

ROOT = Path(__file__).resolve().parent.parent.parent
WORKERS = 8
TRIALS = 3
SPACE = SearchSpace.whole(
    KnobDatabase.from_json(
        json.dumps(
            {
                "tuner_version": "1",
                "tuner_options": [
                    {
                        "option": f"-k{number}",
                        "allowed_values": f"-k{number}=[on|off]",
                        "default_value": "on",
                        "help": "",
                    }
                    for number in range(WORKERS)
                ],
            }
        ),
        source="test",
    )
)


def _work(url: str, folder: str, index: int, start: Any) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    start.wait()
    storage = get_storage(open_storage(url))
    study, _ = join(
        storage,
        terms=Terms("g", 60.0, None, 60.0),
        identity={"environment": {"device": "d"}},
        notes={"settings": {"model": "m.onnx"}},
        new_environment=False,
    )
    log = SharedLog(
        study,
        {},
        storage=storage,
        spool=Spool(Path(folder) / f"{index}.jsonl"),
        worker=f"w{index}",
        watch=Watch(60.0),
        left_s=lambda: 60.0,
        tell=print,
    )
    for _ in range(TRIALS):
        route = Route.parse(f"-k{index}=off", SPACE.database)
        ticket = log.begin(Proposal(route), SPACE)
        log.commit(
            ticket,
            TrialRecord(
                ticket.number,
                str(route),
                Phase.SEARCH,
                Outcome.TIMED,
                relative_latency=0.9,
                ci95=(0.8, 1.0),
            ),
        )


def test_many_processes_make_and_share_one_sqlite_file(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "f.db")
    context = multiprocessing.get_context("fork")
    start = context.Barrier(WORKERS)
    processes = [
        context.Process(target=_work, args=(url, str(tmp_path), index, start))
        for index in range(WORKERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * WORKERS
    (member,) = members(open_storage(url), "g")
    trials = optuna.load_study(study_name=member.name, storage=url).trials
    assert [trial.number for trial in trials] == list(range(WORKERS * TRIALS))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert sorted(str(trial.user_attrs["owner"]) for trial in trials) == sorted(
        f"w{index}" for index in range(WORKERS) for _ in range(TRIALS)
    )
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.slow
def test_a_worker_works_to_the_verdict_and_who_comes_later_is_told_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table").symlink_to(ROOT / "studies" / "tables" / "ppocr-v4-det")
    (tmp_path / "det.toml").write_text(
        'model = "table"\nbackend = "replay"\noption = "pace=0.01"\nbudget = "20s"\n'
    )
    storage = ["--storage", "f.db"]
    assert main(["worker", "det.toml", *storage, "--out", "one"]) == 0
    capsys.readouterr()
    assert main(["worker", "det", *storage, "--out", "two", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "one" / "result.json").read_text())
    assert told["budget"]["used_s"] <= 20.0
    assert (tmp_path / "two" / "best.route").read_text() == (
        tmp_path / "one" / "best.route"
    ).read_text()
    (member,) = members(open_storage("f.db"), "det")
    trials = optuna.load_study(study_name=member.name, storage="sqlite:///f.db").trials
    assert all(trial.state.is_finished() for trial in trials)
    assert sum(record_of(trial) is not None for trial in trials) == told["trials"]["total"]
    verdict = verdict_among(trials)
    assert verdict is not None
    assert verdict["result"] == told
    assert main(["show", "f.db"]) == 0
    assert main(["tune", "--resume", "--out", "one"]) == 2
    assert main(["tune", "--resume", "--out", "one", "--budget", "60s"]) == 2
    assert "on a shared study" in capsys.readouterr().err
    assert main(["worker", "det.toml", "--storage", "j.log"]) == 2
    assert "half a line" in capsys.readouterr().err
