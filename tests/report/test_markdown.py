"""Markdown for pull requests and for the dashboard's note."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from routewright.report.markdown import escape, fenced, study_markdown, study_note
from routewright.report.source import StudyView
from routewright.report.story import tell

from studies import finished_view  # isort: skip


def test_a_pull_request_gets_the_answers_and_the_command() -> None:
    told = study_markdown(tell(finished_view()))
    assert "## m.onnx: 1.11 times as fast as the default route" in told
    assert "| How sure? |" in told
    assert "```\nroutewright tune m.onnx --expr -a=on\n```" in told
    assert "| cpu | a processor |" in told


def test_the_note_names_model_environment_bound_budget_route_and_command() -> None:
    told = study_note(tell(finished_view()))
    for wanted in ("m.onnx", "a processor", "cos at most 0.01", "100 s of 120 s", "-a=on"):
        assert wanted in told
    assert "Measure it again" in told


def test_the_note_of_a_study_without_a_trial_is_whole() -> None:
    assert "none yet" in study_note(tell(StudyView("empty")))


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1))
def test_a_cell_shows_any_text_literally(content: str) -> None:
    wanted = " ".join(content.split())
    parsed = (
        MarkdownIt("commonmark").enable("table").parse(f"| a |\n| --- |\n| {escape(content)} |")
    )
    cells = [token for token in parsed if token.type == "inline"]
    assert len(cells) == 2
    assert "".join(child.content for child in cells[1].children or ()) == wanted


@given(st.text(alphabet="`a \n", min_size=1))
def test_nothing_ends_a_code_block_early(content: str) -> None:
    parsed = MarkdownIt("commonmark").parse("\n".join(fenced(content)))
    assert [token.type for token in parsed] == ["fence"]
