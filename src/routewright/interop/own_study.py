"""One of our studies, as another tuner would tell it: its knobs, its settings, its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial

from routewright.interop.formats import CacheFormat, StudyFacts
from routewright.interop.importing import IMPORTED
from routewright.interop.route_text import expression_settings, full_route, route_settings
from routewright.knobs import KnobDatabase
from routewright.losses import DEFAULT_TOLERANCE
from routewright.records import Outcome, Phase, TrialRecord, record_of
from routewright.settings import TuneSettings
from routewright.study import MARK

OURS = "routewright"
"""Header key of what only this project writes: where the study is, and what its times are."""

KNOB_DEFAULTS = "knob_defaults"
"""Study attribute with the default of every knob of the backend, where the study has it."""

_PREFIXES = ("-config:", "-runtime:", "-model:")


class OwnStudy:
    """A study as a cache.

    Args:
        name: Name of the study.
        attributes: The study's attributes.
        trials: All its trials.
        database: The knobs, for their defaults.
    """

    def __init__(
        self,
        name: str,
        attributes: Mapping[str, Any],
        trials: Sequence[FrozenTrial],
        database: KnobDatabase | None = None,
    ) -> None:
        self._name = name
        self._identity = _mapping(attributes.get(MARK))
        self._settings = _mapping(attributes.get("settings"))
        self._mark = _mapping(self._identity.get(IMPORTED))
        self._foreign_header = _mapping(_mapping(attributes.get(IMPORTED)).get("header"))
        told = [(t, record) for t in trials if (record := record_of(t)) is not None]
        self.records = [record for _, record in told]
        self.records.sort(key=lambda record: record.phase is not Phase.BASELINE)
        is_whole = not (self._settings.get("expr") or self._settings.get("expr_file"))
        baseline = next((t for t, record in told if record.phase is Phase.BASELINE), None)
        searched = baseline if is_whole and not self._mark else None
        self._expression = self._expression_text(searched)
        self._defaults = self._known_defaults(attributes, searched, database)
        listed = [knob for knob, _ in expression_settings(self._expression)]
        self._knobs = [knob for knob in listed if not self._is_foreign(knob)]
        self._base_ms = next(
            (r.latency_ms for r in self.records if r.phase is Phase.BASELINE), None
        )

    @property
    def source(self) -> str:
        """Name of the format that the study was imported from; empty for a measured one."""
        return str(self._mark.get("source", ""))

    def header(
        self, cache_format: CacheFormat, command: Sequence[str], more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the header as the tuner writes it, with :data:`OURS` at its end."""
        bound = _mapping(self._identity.get("bound"))
        knobs = _mapping(self._identity.get("knobs"))
        files = _mapping(self._foreign_header.get("files"))
        sampler = self._settings.get("sampler", "auto")
        facts = StudyFacts(
            tuner_version=str(knobs.get("tuner_version", "unknown")),
            loss=str(bound.get("loss", "")),
            threshold=float(bound.get("threshold", "inf")),
            atol=float(bound.get("atol", DEFAULT_TOLERANCE)),
            rtol=float(bound.get("rtol", DEFAULT_TOLERANCE)),
            search=str(self._foreign_header.get("searching_algorithm") or sampler),
            command=list(command) or tune_command(self._settings),
            default_route=" ".join(
                f"{knob}={value}"
                for knob, value in self._defaults.items()
                if not self._is_foreign(knob)
            ),
            expression=self._expression,
            onnx=str(self._settings.get("model") or files.get("onnx") or ""),
            inputs=_named_files(self._settings.get("samples")),
            references=_named_files(self._settings.get("references")),
            more={OURS: {**self._origin(), **more}},
        )
        return cache_format.header(facts)

    def rows(self, cache_format: CacheFormat) -> Iterator[dict[str, Any]]:
        """Yield a row for every trial that was measured, the baseline first."""
        measured = [record for record in self.records if not _left_out(record)]
        for iteration, record in enumerate(measured):
            is_crash = record.outcome is Outcome.FAILED
            is_inaccurate = record.outcome is Outcome.INACCURATE
            error = record.reason if is_crash else ""
            if is_inaccurate:
                error = cache_format.inaccurate(record.losses)
            yield {
                "iter": iteration,
                "build_route": self._route(record.route),
                "crash": is_crash,
                "error_message": error,
                "accuracy_loss": None if is_crash else dict(record.losses) or None,
                "gpu_time": None if is_crash else self._time_ms(record),
            }

    def notes(self) -> Iterator[str]:
        """Yield what was left out and what a reader should know, one line each."""
        reasons = Counter(filter(None, map(_left_out, self.records)))
        for reason, count in reasons.items():
            yield f"{count} trial{'s' * (count > 1)} left out: {reason}"
        if not self._is_tensorrt:
            backend = self._identity.get("backend", "unknown")
            yield f"the knobs are those of the backend {backend}; no other tuner knows them"
            return
        foreign = sum(
            any(map(self._is_foreign, route_settings(record.route)))
            for record in self.records
            if not _left_out(record)
        )
        if foreign:
            yield (
                f"{foreign} route{'s' * (foreign > 1)} set knobs that are not build-route knobs "
                f"({'NAME, '.join(_PREFIXES)}NAME); TensorRT refuses these in a build route"
            )

    @property
    def _is_tensorrt(self) -> bool:
        return str(self._identity.get("backend", "")).startswith("tensorrt")

    def _is_foreign(self, knob: str) -> bool:
        """Whether a knob is one that TensorRT does not take in a build route."""
        return self._is_tensorrt and knob.startswith(_PREFIXES)

    def _origin(self) -> dict[str, Any]:
        origin: dict[str, Any] = {"study": self._name}
        for key in ("backend", "latency", "model_sha256", "environment", IMPORTED):
            if self._identity.get(key):
                origin[key] = self._identity[key]
        if not self._mark:
            origin["gpu_time"] = "relative latency times the baseline's median latency, in ms"
        return origin

    def _time_ms(self, record: TrialRecord) -> float | None:
        if self._mark or record.relative_latency is None or self._base_ms is None:
            return record.latency_ms
        return record.relative_latency * self._base_ms

    def _route(self, route: str) -> str:
        """Return a route with every searched knob, where the defaults are known for sure."""
        settings = route_settings(route)
        if not all(knob in settings or knob in self._defaults for knob in self._knobs):
            return route
        return full_route(settings, self._knobs, self._defaults)

    def _expression_text(self, searched: FrozenTrial | None) -> str:
        if self._mark:
            return str(self._foreign_header.get("tuning_expr") or "")
        if self._settings.get("expr"):
            return str(self._settings["expr"])
        if self._settings.get("expr_file"):
            return _expression_in(Path(str(self._settings["expr_file"])))
        if searched is None:
            return ""
        tokens = []
        for knob, distribution in searched.distributions.items():
            if isinstance(distribution, CategoricalDistribution):
                tokens.append(f"{knob}=[{'|'.join(map(str, distribution.choices))}]")
            elif isinstance(distribution, IntDistribution):
                tokens.append(f"{knob}=[{distribution.low}~{distribution.high}]")
        return " ".join(tokens)

    def _known_defaults(
        self,
        attributes: Mapping[str, Any],
        searched: FrozenTrial | None,
        database: KnobDatabase | None,
    ) -> dict[str, str]:
        if database is not None:
            return {knob.name: knob.default for knob in database}
        if self._mark:
            return route_settings(str(self._foreign_header.get("default_build_route") or ""))
        stored = attributes.get(KNOB_DEFAULTS)
        if isinstance(stored, Mapping):
            return {str(knob): str(value) for knob, value in stored.items()}
        # A search of the whole space lists every knob's default, and the baseline has them.
        # Where the user gave an expression, it may leave a default out.
        return {} if searched is None else {k: str(v) for k, v in searched.params.items()}


def tune_command(settings: Mapping[str, Any]) -> list[str]:
    """Return the ``routewright tune`` command of a study's stored settings."""
    words = ["routewright", "tune"]
    if settings.get("model"):
        words.append(str(settings["model"]))
    for item in fields(TuneSettings):
        value = settings.get(item.name)
        if item.name in ("model", "storage") or value is None or value is False:
            continue
        option = "--" + item.name.removesuffix("_s").replace("_", "-")
        for one in value if isinstance(value, list) else [value]:
            words += [option] if one is True else [option, str(one)]
    return words


def _left_out(record: TrialRecord) -> str:
    """Return why a trial is no row, or an empty string."""
    if record.outcome is Outcome.SCREENED:
        return "built for its fingerprint only" if record.latency_ms is None else ""
    if record.outcome is Outcome.REUSED or record.reused_from is not None:
        return "not measured, an earlier result stands for it"
    if record.failure == "interrupted":
        return "interrupted by the user"
    return ""


def _named_files(sources: Any) -> dict[str, str]:
    """Return file by tensor of the sources that are given as ``name:file``."""
    named: dict[str, str] = {}
    for source in sources if isinstance(sources, list) else []:
        name, colon, file = str(source).rpartition(":")
        if colon and "/" not in name:
            named[name] = file
    return named


def _expression_in(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return ""
    return " ".join(line.strip() for line in lines if not line.lstrip().startswith("#")).strip()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
