"""What the library says: its logger's messages, kept, tidied and sorted into kinds of failure."""

from __future__ import annotations

import re
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_KEPT_MESSAGES = 2000

# Follow-ups of an error that was logged just before, or chatter about the logger itself.
_NOISE = re.compile(
    r"catchCudaError|Thread context has not been set|ScopedCudaStream"
    r"|^ModelImporter\.cpp:\d+: --- (Begin|End) node"
)
_WRAPPED = re.compile(
    r"^(?:\[[^\]]*\] )?(?:I\w+::\w+: )?Error Code \d+: (?P<kind>[^(]+?) ?\((?P<text>.*)\)\s*$",
    re.DOTALL,
)
_SOURCE_PLACE = re.compile(r"\s+In \w+ at \S+:\d+")

_OUT_OF_MEMORY = re.compile(
    r"out of memory|outofmemory|cudaErrorMemoryAllocation|insufficient (device )?memory"
    r"|memory is insufficient|failed_allocation|cuda_error_out_of_memory",
    re.IGNORECASE,
)
_NO_IMPLEMENTATION = re.compile(r"could not find any implementation", re.IGNORECASE)
_CANCELLED = re.compile(r"BuildCanceled|canceled by user|cancelled by user", re.IGNORECASE)
_SKIPPED_TACTIC = re.compile(
    r"skipping tactic|insufficient to use tactic|tactic device request"
    r"|requested but not available",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    r"unsupported|not supported|cannot compile operation|API Usage Error", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the library.

    Attributes:
        level: ``"error"``, ``"warning"`` or ``"info"``.
        text: The message, one line.
    """

    level: str
    text: str


class MessageLog:
    """Collects the messages of one library logger; safe to call from any thread.

    The library holds the logger object for as long as anything it made lives, so a log is made
    once per backend and outlives its engines.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: deque[tuple[int, Message]] = deque(maxlen=_KEPT_MESSAGES)
        self._count = 0

    def add(self, level: str, text: str) -> None:
        """Keep a message; errors and warnings also go to standard error, for the trial's log."""
        message = Message(level, one_line(text))
        with self._lock:
            self._count += 1
            self._messages.append((self._count, message))
        if level != "info" and not _NOISE.search(message.text):
            print(f"[{level}] {message.text}", file=sys.stderr)

    def mark(self) -> int:
        """Return a mark; :meth:`since` gives what came after it."""
        with self._lock:
            return self._count

    def since(self, mark: int, level: str | None = None) -> tuple[Message, ...]:
        """Return the messages after ``mark``, follow-ups left out, each once."""
        with self._lock:
            recent = [message for number, message in self._messages if number > mark]
        kept = (m for m in recent if level in (None, m.level) and not _NOISE.search(m.text))
        return tuple(dict.fromkeys(kept))

    def warnings(self, mark: int) -> tuple[str, ...]:
        """Return the tidied warnings after ``mark``, each once."""
        return tuple(dict.fromkeys(tidy(m.text) for m in self.since(mark, "warning")))

    def errors(self, mark: int) -> tuple[str, ...]:
        """Return the tidied errors after ``mark``, each once."""
        return tuple(dict.fromkeys(tidy(m.text) for m in self.since(mark, "error")))


def make_logger(module: Any, log: MessageLog) -> Any:
    """Return a logger object of the library ``module`` that writes to ``log``."""
    severity = module.ILogger.Severity
    levels = {
        severity.INTERNAL_ERROR: "error",
        severity.ERROR: "error",
        severity.WARNING: "warning",
        severity.INFO: "info",
    }
    base: Any = module.ILogger

    class LibraryLogger(base):  # type: ignore[misc]
        def __init__(self) -> None:
            base.__init__(self)

        def log(self, level: Any, text: str) -> None:
            name = levels.get(level)
            if name is not None:
                log.add(name, text)

    return LibraryLogger()


def one_line(text: str) -> str:
    """Return ``text`` with every run of white space as one blank."""
    return " ".join(text.split())


def tidy(text: str) -> str:
    """Return a library message without its source places and error numbers.

    >>> tidy("IBuilder::build: Error Code 4: API Usage Error (No profile. In f at /s/n.cpp:4)")
    'No profile.'
    """
    wrapped = _WRAPPED.match(text)
    if wrapped:
        text = wrapped["text"]
    return _SOURCE_PLACE.sub("", text).strip()


def failure_kind(errors: Sequence[Message], *, memory_short: bool) -> str:
    """Sort a failed build by what the library said.

    Args:
        errors: Messages since the build began, warnings included.
        memory_short: Whether little device memory was free when it failed; decides what "could
            not find any implementation" means, which says nothing of memory.

    Returns:
        ``"cancelled"``, ``"oom"``, ``"unsupported"`` or ``"error"``.
    """
    said = [m.text for m in errors if m.level == "error"]
    if any(_CANCELLED.search(text) for text in said):
        return "cancelled"
    if any(_OUT_OF_MEMORY.search(text) for text in said):
        return "oom"
    if any(_NO_IMPLEMENTATION.search(text) for text in said):
        return "oom" if memory_short or skipped_tactics(errors) else "unsupported"
    if any(_UNSUPPORTED.search(text) for text in said):
        return "unsupported"
    return "error"


def skipped_tactics(messages: Sequence[Message]) -> int:
    """Return how many messages say that a tactic was skipped for lack of memory."""
    return sum(1 for m in messages if _SKIPPED_TACTIC.search(m.text))
