"""The dashboard and the report as people see them: a real study in a real browser."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from routewright import TuneResult, tune
from routewright.report.dashboard import Dashboard
from routewright.report.html import study_html
from routewright.report.source import read_study
from routewright.report.story import tell
from routewright.storage import open_storage, sqlite_url

from browser import DRAWN, as_url, console_errors, eventually  # isort: skip
from studies import finished_view, study_in  # isort: skip

pytest_plugins = ("browser",)
pytestmark = pytest.mark.slow

FIGURES = (
    "Speed against loss",
    "Best so far",
    "Effect of each knob setting",
    "Timing blocks of the best route",
)


@pytest.fixture(scope="module")
def tuned(
    model_path: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> TuneResult:
    """Tune a real model over a few routes, one of which breaks the bound."""
    return tune(
        model_path("magika-v3"),
        shape={"bytes": (1, 2048)},
        loss="cos",
        bound=1e-5,
        expr="-quantize:conv1=[off|int8] -optimizer=[all|disable] -session:spinning=[on|off]",
        budget="60s",
        max_timing_s=1.0,
        shared_device=True,
        out=tmp_path_factory.mktemp("tuned") / "out",
    )


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the dashboard of an output folder; give its address."""
    storage = open_storage(sqlite_url(folder / "study.db"), existing=True)
    with Dashboard(storage, folder=folder, port=0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server.address
        finally:
            server.stop()
            thread.join()


@pytest.fixture(scope="module")
def address(tuned: TuneResult) -> Iterator[str]:
    with serving(Path(tuned.out)) as found:
        yield found


def root(address: str) -> str:
    return address.removesuffix("dashboard/")


def study_at(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{root(address)}api/studies/1") as told:
        study: dict[str, Any] = json.load(told)
    return study


def text_of(browser: webdriver.Chrome) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def drawn(browser: webdriver.Chrome) -> dict[str, int]:
    return {plot["title"]: plot["marks"] for plot in browser.execute_script(DRAWN)}


def all_are_drawn(browser: webdriver.Chrome) -> bool:
    marks = drawn(browser)
    return all(marks.get(title, 0) > 0 for title in FIGURES)


def test_the_study_list_names_the_study(
    browser: webdriver.Chrome, address: str, tuned: TuneResult
) -> None:
    browser.get(address)
    eventually(lambda: tuned.study["name"] in text_of(browser), what="the study's name")
    assert console_errors(browser) == []


def test_the_study_page_draws_our_figures(browser: webdriver.Chrome, address: str) -> None:
    browser.get(f"{address}studies/1")
    eventually(lambda: all_are_drawn(browser), what=f"figures {FIGURES}")
    assert console_errors(browser) == []


def test_the_best_trial_is_what_the_result_stands_on(address: str, tuned: TuneResult) -> None:
    study = study_at(address)
    (best,) = study["best_trials"]
    attributes = {item["key"]: item["value"] for item in best["user_attrs"]}
    assert attributes["route"] == tuned.best.route
    assert study["objective_names"] == ["relative latency"]
    broken = [t for t in study["trials"] if any(c > 0 for c in t["constraints"])]
    assert broken
    assert all(t["state"] == "Pruned" for t in broken)


def test_the_trial_table_marks_what_broke_the_bound(
    browser: webdriver.Chrome, address: str
) -> None:
    browser.get(f"{address}studies/1/smartSelection")
    eventually(lambda: "no: breaks the bound" in text_of(browser), what="a mark")
    assert "relative_latency" in text_of(browser)


def test_the_note_tells_the_result(
    browser: webdriver.Chrome, address: str, tuned: TuneResult
) -> None:
    browser.get(f"{address}studies/1/note")
    command = " ".join(tuned.best.command.split())
    eventually(lambda: command in " ".join(text_of(browser).split()), what="the command")
    for wanted in ("magika-v3.onnx", "cos at most 1e-05", "Best route"):
        assert wanted in text_of(browser)


def test_artifacts_come_down_as_they_are(
    browser: webdriver.Chrome, address: str, tuned: TuneResult
) -> None:
    browser.get(f"{address}studies/1")
    script = (
        "return Array.from(document.querySelectorAll('a[download]'))"
        ".map(a => [a.getAttribute('download'), a.href])"
    )
    out = Path(tuned.out)
    files = {
        "engine-model.onnx": out / "engine" / "model.onnx",
        "result.json": out / "result.json",
        "best.route": out / "best.route",
    }

    def links() -> dict[str, str]:
        found = dict(browser.execute_script(script))
        return found if files.keys() <= found.keys() else {}

    hrefs = eventually(links, what="links to artifacts")
    for name, path in files.items():
        with urllib.request.urlopen(hrefs[name]) as answer:
            assert answer.read() == path.read_bytes()
    # The dashboard gives a page no link to download it by.
    (page,) = (a for a in study_at(address)["artifacts"] if a["filename"] == "report.html")
    with urllib.request.urlopen(f"{root(address)}artifacts/1/{page['artifact_id']}") as answer:
        assert answer.read() == (out / "report.html").read_bytes()


def test_a_study_that_is_still_running_has_note_and_figures(
    browser: webdriver.Chrome, tuned: TuneResult, tmp_path: Path
) -> None:
    # Killed before anything was published: only the trials are there.
    source = read_study(tuned.out)
    study_in(tmp_path / "out", records=source.records)
    with serving(tmp_path / "out") as address:
        browser.get(f"{address}studies/1")
        eventually(
            lambda: drawn(browser).get("Best so far", 0) > 0, what="the figure of the best so far"
        )
        browser.get(f"{address}studies/1/note")
        eventually(lambda: "ended without a result" in text_of(browser), what="the note")


@pytest.mark.parametrize("width", [1400, 420])
def test_the_report_opens_from_disk_without_network(
    browser: webdriver.Chrome, tuned: TuneResult, tmp_path: Path, width: int
) -> None:
    shutil.copy(Path(tuned.out, "report.html"), tmp_path / "report.html")
    browser.set_network_conditions(offline=True, latency=0, throughput=0)
    try:
        browser.set_window_size(width, 1600)
        browser.get(as_url(tmp_path / "report.html"))
        eventually(lambda: all_are_drawn(browser), what=f"figures {FIGURES}")
        assert console_errors(browser) == []
        loaded = browser.execute_script(
            "return performance.getEntriesByType('resource').map(e => e.name)"
        )
        assert [name for name in loaded if not name.startswith(("data:", "blob:"))] == []
        wider = browser.execute_script(
            "return document.documentElement.scrollWidth - window.innerWidth"
        )
        assert wider <= 0
        for question in ("How much faster?", "How sure?", "How to rebuild it?"):
            assert question in text_of(browser)
    finally:
        browser.delete_network_conditions()
        browser.set_window_size(1400, 1600)


def test_hostile_names_run_no_script(browser: webdriver.Chrome, tmp_path: Path) -> None:
    hostile = "</script><script>window.hit=1</script><img/src=x/onerror=window.hit=1>"
    view = finished_view(name=hostile)
    told = dict(view.result or {}, reason=hostile, notes=[hostile])
    told["best"] = {**told["best"], "route": f"-{hostile}=on", "losses": {hostile: 1e-4}}
    page = study_html(tell(finished_view(name=hostile, result=told)))
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    browser.get(as_url(tmp_path / "report.html"))
    eventually(lambda: len(drawn(browser)) == 4, what="four figures")
    assert browser.execute_script("return window.hit") is None
    assert hostile in text_of(browser)
    assert console_errors(browser) == []
