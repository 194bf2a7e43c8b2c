"""Everything that can be said about one tuning: the options of ``tune`` and of a study file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath
from typing import Any

from routewright.bounds import METRIC, AccuracyBound, parse_output_bound, parse_threshold
from routewright.budget import parse_duration_s
from routewright.errors import BudgetError, SettingsError
from routewright.tensors import did_you_mean
from routewright.timing import TimingLimits

DEFAULT_LOSS = "cos"
DEFAULT_BOUND = 1e-3

MODELS_PREFIX = "models:"
"""A model path that starts so lies in the folder of fetched models."""


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """What to tune, within what, and how.

    Every field is an option of ``routewright tune`` and a key of a study file. Fields that take
    several values are tuples.

    Attributes:
        model: The ONNX file; ``models:NAME.onnx`` for a fetched one.
        backend: What builds and runs engines.
        budget_s: Seconds for everything, confirmation included.
        shape: Input shapes that are timed, each ``name:1x3x320x320``.
        min_shape: Smallest shapes of the optimization profile, for backends that have one.
        opt_shape: Another name for ``shape``.
        max_shape: Largest shapes of the optimization profile.
        samples: Sample files, or ``name:file.bin``; none: samples are made up.
        references: Reference outputs; none: the original model computes them.
        num_samples: How many samples to make up.
        input_range: Ranges of made-up inputs, each ``name=low:high``.
        loss: Loss that the bound is on: l0, l1, l2, linf, cos.
        bound: Largest loss allowed.
        output_bound: Bounds of single outputs, each ``name=1e-2``.
        atol: Absolute tolerance of l0.
        rtol: Relative tolerance of l0.
        metric: The user's own loss, ``package.module:function``.
        expr: Route expression that restricts the search.
        expr_file: File with a route expression.
        sampler: Search method, by name.
        prior: What earlier studies teach: ``none``, ``auto`` for the shipped priors and the
            user's own, or the path of a prior.
        family: Family of the model, for priors; none: told by what it is like.
        learn: Add the finished study to the user's own priors.
        storage: URL of an Optuna storage; none: a file in the output folder.
        study: Name of the study; none: after the model.
        seed: Seed of every random choice.
        out: Output folder; none: a fresh one after the model.
        option: Options of the backend, each ``name=value``.
        half_width: Timing of a candidate ends when its 95% interval is within this share of it.
        max_timing_s: Timing of a candidate ends after this many seconds.
        memory_limit_gib: Memory that the worker may use; none: 80% of what is free.
        shared_device: Time even while another tuner times on this device.
    """

    model: str
    backend: str = "onnxruntime"
    budget_s: float = 120.0
    shape: tuple[str, ...] = ()
    min_shape: tuple[str, ...] = ()
    opt_shape: tuple[str, ...] = ()
    max_shape: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    num_samples: int = 2
    input_range: tuple[str, ...] = ()
    loss: str | None = None
    bound: float | None = None
    output_bound: tuple[str, ...] = ()
    atol: float | None = None
    rtol: float | None = None
    metric: str | None = None
    expr: str | None = None
    expr_file: str | None = None
    sampler: str = "auto"
    prior: str = "none"
    family: str | None = None
    learn: bool = False
    storage: str | None = None
    study: str | None = None
    seed: int = 0
    out: str | None = None
    option: tuple[str, ...] = ()
    half_width: float = 0.015
    max_timing_s: float = 6.0
    memory_limit_gib: float | None = None
    shared_device: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.budget_s < float("inf"):
            raise BudgetError(f"the budget must be a time above 0, not {self.budget_s:g} s")
        if self.num_samples < 1:
            raise SettingsError(f"num_samples must be at least 1, not {self.num_samples}")
        if self.seed < 0:
            raise SettingsError(f"seed must be 0 or above, not {self.seed}")
        if self.memory_limit_gib is not None and not self.memory_limit_gib > 0:
            raise SettingsError(f"memory_limit_gib must be above 0, not {self.memory_limit_gib}")
        if self.expr is not None and self.expr_file is not None:
            raise SettingsError("expr and expr_file exclude each other; give one")
        if self.shape and self.opt_shape:
            raise SettingsError("shape and opt_shape say the same; give one")
        if (self.loss is None) != (self.bound is None) and self.metric is None:
            given, missing = ("loss", "bound") if self.bound is None else ("bound", "loss")
            raise SettingsError(
                f"{given} is given without {missing}: a threshold means nothing without its loss; "
                "give both, or neither for cos at 1e-3"
            )
        if self.metric is not None and self.loss is not None:
            raise SettingsError("metric and loss exclude each other: a metric is your own loss")
        if self.metric is not None and self.bound is None:
            raise SettingsError("metric needs a bound: the largest loss it may return")
        if self.study is not None and not 0 < len(self.study) <= 500:
            raise SettingsError("study must have 1 to 500 characters")
        self.accuracy_bound()
        self.backend_options()
        self.timing_limits()

    def timing_limits(self) -> TimingLimits:
        """Return when timing a candidate ends.

        Raises:
            SettingsError: ``half_width`` or ``max_timing_s`` is out of its range.
        """
        try:
            return TimingLimits(target_half_width=self.half_width, max_s=self.max_timing_s)
        except SettingsError as error:
            # In the words of the settings.
            told = str(error).removeprefix("timing limits: ").removeprefix("target_")
            raise SettingsError(told.replace("max_s", "max_timing_s")) from error

    def accuracy_bound(self) -> AccuracyBound:
        """Return the accuracy bound that these settings describe.

        Raises:
            SettingsError: They describe none.
        """
        tolerances = {
            name: value
            for name, value in (("atol", self.atol), ("rtol", self.rtol))
            if value is not None
        }
        return AccuracyBound(
            METRIC if self.metric is not None else self.loss or DEFAULT_LOSS,
            DEFAULT_BOUND if self.bound is None else self.bound,
            per_output=dict(parse_output_bound(text) for text in self.output_bound),
            metric=self.metric,
            **tolerances,
        )

    def backend_options(self) -> dict[str, str]:
        """Return the backend's options by name.

        Raises:
            SettingsError: One is not ``name=value``.
        """
        options: dict[str, str] = {}
        for text in self.option:
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise SettingsError(f"{text!r} is no backend option: write name=value")
            options[name.strip()] = value.strip()
        return options

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as JSON values."""
        described: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value != item.default:
                if isinstance(value, tuple):
                    value = list(value)
                elif isinstance(value, float) and value == float("inf"):
                    value = "inf"
                described[item.name] = value
        return described

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TuneSettings:
        """Return the settings that :meth:`to_dict` described, or a study file holds.

        Raises:
            SettingsError: A key is unknown, a value has the wrong type, or ``model`` is missing.
        """
        known = {item.name: item for item in fields(cls)}
        values: dict[str, Any] = {}
        for key, value in data.items():
            if key == "budget":
                values["budget_s"] = parse_duration_s(str(value))
            elif key not in known:
                raise SettingsError(
                    f"there is no setting {key!r}; {did_you_mean(key, [*known, 'budget'])}"
                )
            else:
                values[key] = _typed(key, value, str(known[key].type))
        if "model" not in values:
            raise SettingsError("the setting 'model' is missing: the ONNX file to tune")
        return cls(**values)


_PATHS = ("model", "samples", "references", "expr_file", "out")


def read_study_file(path: Path) -> TuneSettings:
    """Read a study file (TOML); paths in it are relative to its folder and do not leave it.

    Raises:
        SettingsError: It cannot be read, is not TOML, or holds an unknown key or a wrong value.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except FileNotFoundError as error:
        raise SettingsError(f"there is no study file {path}") from error
    except OSError as error:
        raise SettingsError(f"cannot read the study file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not a TOML file: {error}") from error
    try:
        settings = TuneSettings.from_dict(data)
        _refuse_paths_outside(settings)
    except (SettingsError, BudgetError) as error:
        raise type(error)(f"{path}: {error}") from error
    return relative_to(settings, path.parent)


def _refuse_paths_outside(settings: TuneSettings) -> None:
    """Refuse a study file whose paths leave its folder: it may be somebody else's.

    Raises:
        SettingsError: Naming the path.
    """
    for name in _PATHS:
        value = getattr(settings, name)
        for text in (value,) if isinstance(value, str) else value or ():
            prefix, colon, file = text.rpartition(":")
            path = PurePath(file if colon and "/" not in prefix else text)
            if path.is_absolute() or ".." in path.parts or str(path).startswith("~"):
                raise SettingsError(
                    f"{name} is {text!r}, which leaves the folder of the study file; name what "
                    "lies in it, or say this on the command line"
                )


def relative_to(settings: TuneSettings, folder: Path) -> TuneSettings:
    """Return the settings with relative paths in them joined to ``folder``."""

    def moved(text: str) -> str:
        name, colon, file = text.rpartition(":")
        if text.startswith(MODELS_PREFIX):
            return text
        if colon and "/" not in name:
            return f"{name}:{folder / Path(file).expanduser()}"
        return str(folder / Path(text).expanduser())

    changed: dict[str, Any] = {}
    for name in _PATHS:
        value = getattr(settings, name)
        if isinstance(value, str):
            changed[name] = moved(value)
        elif value:
            changed[name] = tuple(moved(text) for text in value)
    return replace(settings, **changed)


def resolve_model(model: str) -> Path:
    """Return the path of a model; ``models:NAME.onnx`` lies in the folder of fetched models."""
    if model.startswith(MODELS_PREFIX):
        return models_folder() / model.removeprefix(MODELS_PREFIX)
    return Path(model).expanduser()


def models_folder() -> Path:
    """Return the folder that ``scripts/fetch_models`` fetches to."""
    chosen = os.environ.get("ROUTEWRIGHT_MODELS")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "routewright" / "models"


_MAY_DIFFER = frozenset(
    {"budget_s", "out", "storage", "memory_limit_gib", "shared_device", "learn"}
)
_JUDGED_BY_CONTENT = frozenset({"model", "samples", "references", "expr_file"})


def differences(was: TuneSettings, now: TuneSettings) -> list[str]:
    """Return one line for each setting that keeps a study from being resumed.

    The budget and where things lie may differ. Files may have moved; whether they are the same
    is for their content to say.
    """
    return [
        f"{item.name} was {getattr(was, item.name)!r} and is now {getattr(now, item.name)!r}"
        for item in fields(TuneSettings)
        if item.name not in _MAY_DIFFER | _JUDGED_BY_CONTENT
        and getattr(was, item.name) != getattr(now, item.name)
    ]


def _typed(key: str, value: Any, declared: str) -> Any:
    """Return ``value`` as the field takes it, or say what was expected."""
    if declared.startswith("tuple"):
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise SettingsError(f"{key} must be a text or a list of texts, not {value!r}")
        return tuple(items)
    if declared.startswith("str"):
        if not isinstance(value, str):
            raise SettingsError(f"{key} must be a text, not {value!r}")
        return value
    if declared == "bool":
        if not isinstance(value, bool):
            raise SettingsError(f"{key} must be true or false, not {value!r}")
        return value
    if declared == "int":
        if isinstance(value, bool) or not isinstance(value, int):
            raise SettingsError(f"{key} must be a whole number, not {value!r}")
        return value
    if key == "bound":
        return parse_threshold(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{key} must be a number, not {value!r}")
    return float(value)
