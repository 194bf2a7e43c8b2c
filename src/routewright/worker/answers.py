"""Answers of a worker, checked and turned into what the trial gets.

A backend may be anybody's, and a compiler may have damaged the memory it shares with the worker:
nothing is taken over unchecked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from routewright.tensors import TensorSpec
from routewright.workbench import Block, BuildReport, CheckReport, TrialFailure
from routewright.worker.protocol import ProtocolError, spec_from_json


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What a backend says about itself.

    Attributes:
        name: The name users give.
        metric: What one latency covers.
        fingerprints: Whether its engines carry a fingerprint.
        run_time_knobs: Knobs that say how an engine is run, and so are live for every model.
    """

    name: str
    metric: str
    fingerprints: bool
    run_time_knobs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReportedFailure:
    """A failure that the worker reported itself.

    Attributes:
        failure: What to raise.
        retire: Whether the worker ends.
    """

    failure: TrialFailure
    retire: bool


def read_nothing(answer: Any) -> None:
    """Check that nothing was answered."""
    _expect(answer is None, "null", answer)


def read_text(answer: Any) -> str:
    """Return a text."""
    _expect(isinstance(answer, str), "a text", answer)
    return str(answer)


def read_mapping(answer: Any) -> dict[str, Any]:
    """Return an object of any JSON values."""
    _expect(isinstance(answer, dict), "an object", answer)
    return dict(answer)


def read_info(answer: Any) -> BackendInfo:
    """Return what the backend is."""
    data = read_mapping(answer)
    flag = data.get("fingerprints")
    _expect(isinstance(flag, bool), "true or false", flag)
    return BackendInfo(
        read_text(data.get("name")),
        read_text(data.get("metric")),
        bool(flag),
        frozenset(read_text(name) for name in _list(data.get("run_time_knobs", []))),
    )


def read_specs(answer: Any) -> tuple[TensorSpec, ...]:
    """Return the inputs of a model."""
    try:
        return tuple(spec_from_json(item) for item in _list(answer))
    except (KeyError, TypeError) as error:
        raise ProtocolError(f"no tensor specification: {error!r}") from error


def read_build(answer: Any) -> BuildReport:
    """Return what a build yielded."""
    data = read_mapping(answer)
    fingerprint = data.get("fingerprint")
    return BuildReport(
        build_s=_seconds(data.get("build_s")),
        fingerprint=None if fingerprint is None else read_text(fingerprint),
        notes=tuple(read_text(note) for note in _list(data.get("notes"))),
    )


def read_losses(answer: Any) -> dict[str, float]:
    """Return losses by output name; a loss that is not a number is an infinite one."""
    losses = {name: _number(loss) for name, loss in read_mapping(answer).items()}
    _expect(bool(losses), "a loss for every output", answer)
    return {name: math.inf if math.isnan(loss) else loss for name, loss in losses.items()}


def read_check(answer: Any, check_s: float) -> CheckReport:
    """Return how outputs compare.

    Args:
        answer: The answer.
        check_s: Seconds that it took.
    """
    data = read_mapping(answer)
    reasons = {name: read_text(text) for name, text in read_mapping(data.get("reasons")).items()}
    return CheckReport(losses=read_losses(data.get("losses")), reasons=reasons, check_s=check_s)


def read_block(answer: Any, runs: int, wall_s: float) -> Block:
    """Return one pair of timing blocks.

    Args:
        answer: The answer.
        runs: Runs of each engine that were asked for.
        wall_s: Seconds that it took.
    """
    data = read_mapping(answer)
    baseline_ms, candidate_ms = (
        tuple(_latency(latency) for latency in _list(data.get(slot)))
        for slot in ("baseline", "candidate")
    )
    _expect(len(baseline_ms) == len(candidate_ms) == runs, f"{runs} latencies each", answer)
    return Block(baseline_ms, candidate_ms, wall_s)


def read_digests(answer: Any) -> dict[str, str]:
    """Return SHA-256 digests by file name."""
    digests = {name: read_text(digest) for name, digest in read_mapping(answer).items()}
    _expect(bool(digests), "at least one file", answer)
    return digests


def read_failure(answer: Any) -> ReportedFailure:
    """Return a failure that the worker reported."""
    data = read_mapping(answer)
    transient, retire = data.get("transient"), data.get("retire")
    _expect(isinstance(transient, bool) and isinstance(retire, bool), "true or false", data)
    failure = TrialFailure(
        read_text(data.get("kind")), read_text(data.get("message")), transient=bool(transient)
    )
    return ReportedFailure(failure, bool(retire))


def _list(answer: Any) -> list[Any]:
    _expect(isinstance(answer, list), "a list", answer)
    return list(answer)


def _number(answer: Any) -> float:
    is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
    _expect(is_number, "a number", answer)
    return float(answer)


def _seconds(answer: Any) -> float:
    number = _number(answer)
    _expect(math.isfinite(number) and number >= 0, "seconds", answer)
    return number


def _latency(answer: Any) -> float:
    number = _number(answer)
    _expect(math.isfinite(number) and number > 0, "a latency in ms", answer)
    return number


def _expect(condition: bool, wanted: str, answer: Any) -> None:
    if not condition:
        raise ProtocolError(f"{answer!r:.100} where {wanted} belongs")
