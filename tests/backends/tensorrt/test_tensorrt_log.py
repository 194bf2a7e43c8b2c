from __future__ import annotations

import pytest

from routewright.backends.tensorrt.log import (
    Message,
    MessageLog,
    failure_kind,
    skipped_tactics,
    tidy,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "IBuilder::buildSerializedNetwork: Error Code 4: API Usage Error (Network has dynamic "
            "or shape inputs, but no optimization profile has been defined. In validate at "
            "/_src/optimizer/api/network.cpp:4023)",
            "Network has dynamic or shape inputs, but no optimization profile has been defined.",
        ),
        (
            "[checkMacros.cpp::f::250] Error Code 1: Cuda Runtime (out of memory)",
            "out of memory",
        ),
        ("Error Code 7: BuildCanceled (Build canceled by user)", "Build canceled by user"),
        ("something else", "something else"),
        ("", ""),
    ],
)
def test_messages_are_tidied(text: str, expected: str) -> None:
    assert tidy(text) == expected


def test_a_mark_separates_one_build_from_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    log = MessageLog()
    log.add("warning", "of the first")
    mark = log.mark()
    log.add("warning", "of the\nsecond")
    log.add("warning", "of the second")
    log.add("error", "[x.cpp::catchCudaError::1] Error Code 1: Cuda Runtime (cudaError 35)")
    log.add("info", "chatter")
    assert log.warnings(mark) == ("of the second",)
    assert log.errors(mark) == ()
    assert "of the second" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "memory_short", "kind"),
    [
        ("Error Code 7: BuildCanceled (Build canceled by user)", False, "cancelled"),
        ("Cuda Runtime (out of memory)", False, "oom"),
        ("Requested amount of GPU memory: OutOfMemory", False, "oom"),
        ("Could not find any implementation for node conv1", False, "unsupported"),
        ("Could not find any implementation for node conv1", True, "oom"),
        ("Error Code 4: API Usage Error (nonsense)", False, "unsupported"),
        ("Cannot compile operation 'x' for Turing", False, "unsupported"),
        ("something broke", False, "error"),
    ],
)
def test_failures_are_sorted(text: str, memory_short: bool, kind: str) -> None:
    assert failure_kind([Message("error", text)], memory_short=memory_short) == kind


def test_skipped_tactics_make_a_missing_implementation_a_lack_of_memory() -> None:
    messages = [
        Message("warning", "Skipping tactic 3 due to insufficient memory on requested size"),
        Message("error", "Could not find any implementation for node conv1"),
    ]
    assert skipped_tactics(messages) == 1
    assert failure_kind(messages, memory_short=False) == "oom"


def test_what_was_only_warned_of_is_no_failure() -> None:
    messages = [Message("warning", "out of memory, trying another"), Message("error", "broke")]
    assert failure_kind(messages, memory_short=False) == "error"
