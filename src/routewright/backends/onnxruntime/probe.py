"""Ask the installed ONNX Runtime which optimizers and configuration keys it knows.

Run as a script in a process of its own: what a session registers is only told by its log, and the
log goes to the process's standard error, which this script therefore takes for itself. It imports
nothing of Routewright. Standard input carries a request as JSON, standard output the answer::

    {"model": base64 of a tiny ONNX model,
     "rule_candidates": [names], "config_keys": [keys],
     "option_values": {option: [enumeration members]}}
    {"version": str, "transformers": [[name, level]], "rules": [[name, level]],
     "config_keys": [keys], "option_values": {option: [members]},
     "rules_complete": bool, "scanned_binary": bool, "not_switchable": [names]}

How a name is proved:

* A graph transformer logs itself when it is applied. It counts if it does so by default and no
  longer does when its name is disabled.
* A rewrite rule logs nothing. But a level's rule-based transformer is registered only if at least
  one of its rules is left. So with every other candidate disabled, it is registered exactly if the
  one candidate left is a rule of that level.
* The candidates are complete exactly if disabling all of them makes the rule-based transformers
  vanish. If not, every capitalized name in the shared library becomes a candidate, tested in
  halving groups.
* A configuration key counts if the shared library holds it.
* A member of an enumeration counts if a session can be made with it; some exist but are refused.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from typing import IO, Any

_APPLIED = re.compile(r"GraphTransformer (\S+) modified: \d")
_LEVEL = re.compile(r"for level (\d) (?:for up to|started)|for level (\d)\b")
_RULES = re.compile(r"^Level(\d)_RuleBasedTransformer$")
_IDENTIFIER = re.compile(rb"[A-Za-z0-9_]{4,100}(?=\0)")
_CLASS_NAMES = re.compile(rb"N11onnxruntime((?:\d+[A-Za-z]\w*)+)")
_NAME_LENGTHS = range(5, 61)


class Prober:
    """Creates sessions of one tiny model and reads their logs from ``log``."""

    def __init__(self, model: bytes, log: IO[bytes]) -> None:
        import onnxruntime

        self._library = onnxruntime
        self._model = model
        self._log = log
        self.sessions = 0

    def applied(self, disabled: Iterable[str] = ()) -> dict[str, int]:
        """Return the transformers that a session applies, in order, with their level."""
        self.sessions += 1
        self._log.seek(0)
        self._log.truncate()
        options = self._library.SessionOptions()
        options.log_severity_level = 0
        options.intra_op_num_threads = 1
        self._library.InferenceSession(
            self._model,
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=list(disabled),
        )
        self._log.seek(0)
        found: dict[str, int] = {}
        level = 0
        for line in self._log.read().decode("utf-8", "replace").splitlines():
            entered = _LEVEL.search(line)
            if entered:
                level = int(entered[1] or entered[2])
            applied = _APPLIED.search(line)
            if applied:
                found.setdefault(applied[1], level)
        return found

    def rule_levels(self, disabled: Iterable[str]) -> set[int]:
        """Return the levels whose rule-based transformer is registered."""
        return {int(match[1]) for name in self.applied(disabled) if (match := _RULES.match(name))}

    def rules(self, *groups: Iterable[str]) -> dict[str, int]:
        """Return which candidates are rewrite rules, with their first level.

        Right only if the candidates hold every rule; see :meth:`leftover`.

        Args:
            groups: The candidates; best first is a large group that holds few rules.
        """
        everything = set().union(*groups)
        found: dict[str, int] = {}

        def search(group: list[str]) -> None:
            levels = self.rule_levels(everything - set(group)) if group else set()
            if not levels:
                return
            if len(group) == 1:
                found[group[0]] = min(levels)
                return
            middle = len(group) // 2
            search(group[:middle])
            search(group[middle:])

        for group in groups:
            search(sorted(group))
            # What turned out to be no rule need not be disabled any more.
            everything -= set(group) - set(found)
        return found

    def takes(self, option: str, member: str) -> bool:
        """Tell whether a session can be made with ``option`` set to an enumeration's member."""
        options = self._library.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            setattr(options, option, getattr(type(getattr(options, option)), member))
            self._library.InferenceSession(
                self._model, options, providers=["CPUExecutionProvider"]
            )
        except Exception:  # noqa: BLE001 - the binding's exceptions share no other base
            return False
        return True

    def leftover(self, candidates: Iterable[str]) -> set[int]:
        """Return the levels that have a rule which is not among ``candidates``."""
        return self.rule_levels(candidates)


def names_in_library(path: str) -> set[str]:
    """Return every capitalized name in the shared library: its strings and its class names.

    A linker shares the tails of strings, so every capitalized tail counts as a name.
    """
    names: set[str] = set()
    with (
        open(path, "rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        for found in _IDENTIFIER.findall(data):
            word = found.decode("ascii")
            names.update(
                word[match.start() :]
                for match in re.finditer("[A-Z]", word)
                if len(word) - match.start() in _NAME_LENGTHS
            )
        for match in _CLASS_NAMES.finditer(data):
            rest = match[1].decode("ascii")
            while length := re.match(r"\d+", rest):
                end = length.end() + int(length[0])
                names.add(rest[length.end() : end])
                rest = rest[end:]
    return names


def keys_in_library(path: str, keys: Iterable[str]) -> list[str]:
    """Return the configuration keys that the shared library holds, in the given order."""
    with (
        open(path, "rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return [key for key in keys if data.find(key.encode("ascii") + b"\0") >= 0]


def probe(request: dict[str, Any], log: IO[bytes]) -> dict[str, Any]:
    """Answer one request; see the module's text."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as binding

    prober = Prober(base64.b64decode(request["model"]), log)
    by_default = prober.applied()
    transformers = {name: level for name, level in by_default.items() if not _RULES.match(name)}
    stubborn = [name for name in prober.applied(transformers) if name in transformers]
    hints = set(request["rule_candidates"])
    scanned = bool(prober.leftover(hints))
    others = names_in_library(binding.__file__) - hints if scanned else set()
    rules = prober.rules(others, hints)
    return {
        "version": onnxruntime.__version__,
        "transformers": [
            [name, level] for name, level in transformers.items() if name not in stubborn
        ],
        "rules": sorted(([name, level] for name, level in rules.items()), key=lambda r: r[::-1]),
        "config_keys": keys_in_library(binding.__file__, request["config_keys"]),
        "option_values": {
            option: [member for member in members if prober.takes(option, member)]
            for option, members in request["option_values"].items()
        },
        "scanned_binary": scanned,
        "not_switchable": sorted(stubborn),
        "rules_complete": not prober.leftover(rules),
        "sessions": prober.sessions,
    }


def main() -> None:
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    with tempfile.NamedTemporaryFile() as log:
        # The library writes its log to file descriptor 2; append mode so that truncating works.
        own_stderr = os.dup(2)
        os.dup2(os.open(log.name, os.O_WRONLY | os.O_APPEND), 2)
        try:
            answer = probe(request, log)
        finally:
            os.dup2(own_stderr, 2)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
