"""The HTML report: whole, escaped, self-contained, small."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from routewright.report.html import study_html
from routewright.report.page import element, page, text
from routewright.report.source import StudyView
from routewright.report.story import tell

from studies import IDENTITY, finished_view, record, result, wide_records  # isort: skip

HOSTILE = "\"><script>alert(1)</script><img/src=x/onerror=alert(1)>&amp;'${x}</script>"


class Tags(HTMLParser):
    """Collects elements with their attributes, and links to the outside."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def hostile_view(name: str) -> StudyView:
    told = result(f"-{name}=on")
    told["model"] = {"path": f"/models/{name}", "sha256": name}
    told["reason"] = told["stopped"] = name
    told["notes"] = [name]
    told["best"] |= {"losses": {name: 1e-4}, "command": name, "files": {name: name}}
    told["environment"] = {name: name}
    base = finished_view(result=told, name=name, storage=name, searched=(f"-{name}",))
    records = tuple(
        replace(r, reason=name, losses={name: 1e-4} if r.losses else {}, notes=(name,))
        for r in base.records
    )
    records += (record(8, f"-{name}=on"),)
    return replace(base, records=records, identity={**IDENTITY, "backend": name})


def test_hostile_names_become_text_and_nothing_else() -> None:
    harmless = Tags(study_html(tell(hostile_view("harmless"))))
    hostile = Tags(study_html(tell(hostile_view(HOSTILE))))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in harmless.tags]
    for (_, there), (_, here) in zip(hostile.tags, harmless.tags, strict=True):
        assert there.keys() == here.keys()


def test_the_page_loads_nothing() -> None:
    tags = Tags(study_html(tell(finished_view()))).tags
    policy = next(a["content"] for t, a in tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    loaded = [a for t, a in tags if t in ("script", "img", "iframe", "object") and a.get("src")]
    assert loaded == []
    assert [a["href"] for t, a in tags if t == "link"] == ["data:,"]


def test_the_page_can_be_read_aloud() -> None:
    tags = Tags(study_html(tell(finished_view()))).tags
    assert ("html", {"lang": "en"}) in tags
    assert [tag for tag, _ in tags].count("h1") == 1
    plots = [a for _, a in tags if a.get("class") == "plot"]
    assert len(plots) == 4
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    assert all(a.get("scope") == "col" for t, a in tags if t == "th")


def test_five_thousand_trials_over_209_knobs_stay_small() -> None:
    records = tuple(wide_records(5000, 209))
    searched = tuple(f"-knob{index}" for index in range(209))
    view = finished_view(records=records, searched=searched, result=None)
    assert len(study_html(tell(view))) < 15e6


def test_the_library_is_there_once_and_only_with_figures() -> None:
    drawn = study_html(tell(finished_view()))
    assert drawn.count("plotly.js v") == 1
    assert "plotly.js v" not in study_html(tell(StudyView("empty")))


@settings(max_examples=200)
@given(st.text())
def test_any_text_comes_back_as_it_was(content: str) -> None:
    class Texts(HTMLParser):
        found = ""

        def handle_data(self, data: str) -> None:
            self.found += data

    parser = Texts()
    parser.feed(element("p", content, title=content).html)
    parser.close()
    # A lone surrogate is no text that a file can hold; it is shown as an escape.
    assert parser.found == content.encode("utf-8", "backslashreplace").decode()


def test_a_page_is_utf8_whatever_it_holds() -> None:
    content = page("\udcff", text("\udcff"), footer="\udcff")
    assert content.encode("utf-8")
