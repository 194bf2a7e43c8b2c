"""trtexec's command line, mapped onto the settings of a tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from routewright.errors import RouteError, SettingsError
from routewright.interop import trtexec_names as names
from routewright.knobs import read_text_file
from routewright.search.registry import check_sampler
from routewright.settings import TuneSettings
from routewright.tensors import did_you_mean

DEFAULT_BACKEND = "tensorrt"

UNLIMITED_S = 30 * 86_400.0
"""Budget where trtexec would go on without end: its sweeps end by themselves."""

_SEARCHES = ("fast", "full", "mixed")
_LOSSES = {"l0": "l0", "l1": "l1", "l2": "l2", "lInf": "linf", "cos": "cos"}
_LEVELS = {
    "none": "none",
    "ampere+": "ampere_plus",
    "samecomputecapability": "same_compute_capability",
}
_TILING = ("none", "fast", "moderate", "full")
_PREVIEWS = {
    "aliasedPluginIO1003": "aliased_plugin_io_10_03",
    "runtimeActivationResize": "runtime_activation_resize_10_10",
}
_UNIT_MIB = {"B": 2.0**-20, "K": 2.0**-10, "M": 1.0, "G": 2.0**10}
_NUMBER_KNOBS = {
    "--builderOptimizationLevel": "builder_optimization_level",
    "--maxAuxStreams": "max_aux_streams",
    "--avgTiming": "avg_timing_iterations",
    "--maxTactics": "max_num_tactics",
}


class Action(StrEnum):
    """What a command line asks for."""

    TUNE = "tune"
    DRY_RUN = "dry run"
    CONTINUE = "continue"
    LIST_KNOBS = "list knobs"
    HELP = "help"


@dataclass(frozen=True)
class TrtexecRequest:
    """A command line of trtexec, understood.

    Attributes:
        action: What it asks for.
        settings: What to tune; None where that is not what is asked for.
        backend: Whose knobs.
        search: The search method.
        model: The ONNX file, or None.
        knob: The one knob to list, or None for all.
        cache: Where the tuning cache goes, or is.
        engine: Where the best engine goes.
        budget_s: A larger budget to go on with, or None.
        notes: What a user should know, one line each.
    """

    action: Action
    settings: TuneSettings | None = None
    backend: str = DEFAULT_BACKEND
    search: str = "fast"
    model: str | None = None
    knob: str | None = None
    cache: Path | None = None
    engine: Path | None = None
    budget_s: float | None = None
    notes: tuple[str, ...] = ()


def parse_trtexec(arguments: Sequence[str]) -> TrtexecRequest:
    """Read a command line of trtexec; ``--option=value`` and ``--option value`` are the same.

    Raises:
        SettingsError: An option is unknown, means nothing here, is malformed, or contradicts
            another one; the message names it.
    """
    given = _Given.read(["--help" if word == "-h" else word for word in arguments])
    if given.has("--help"):
        return TrtexecRequest(Action.HELP)
    if given.has("--helpBuildRoute"):
        return TrtexecRequest(
            Action.LIST_KNOBS,
            backend=given.text("--backend") or DEFAULT_BACKEND,
            model=given.text("--onnx"),
            knob=given.text("--helpBuildRoute") or None,
        )
    if given.has("--continue"):
        return _continued(given)
    return _tuning(given)


@dataclass
class _Given:
    """Options by name, as they were given."""

    values: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, arguments: Sequence[str]) -> _Given:
        given = cls()
        remaining = list(arguments)
        while remaining:
            word = remaining.pop(0)
            name, equals, value = word.partition("=")
            if not name.startswith("--"):
                raise SettingsError(
                    f"{word!r} is no option of trtexec: options start with two dashes; "
                    f"{did_you_mean('--' + name.lstrip('-'), names.KNOWN)}"
                )
            if name in names.REFUSED:
                raise SettingsError(f"{name} has no meaning here: {names.REFUSED[name]}")
            takes_none = name in names.FLAGS or name in names.DEFAULTS_HERE
            if not takes_none and name not in names.VALUES | names.MAYBE:
                raise SettingsError(
                    f"trtexec has no option {name}; {did_you_mean(name, names.KNOWN)}"
                )
            if takes_none and equals:
                raise SettingsError(f"{name} takes no value, given: {value!r}")
            if name in names.VALUES and not equals:
                if not remaining or remaining[0].startswith("--"):
                    raise SettingsError(f"{name} needs a value: {name}=VALUE")
                value = remaining.pop(0)
            if name in names.VALUES and not value.strip():
                raise SettingsError(f"{name} is empty; give a value or leave it out")
            if name in names.DEFAULTS_HERE:
                given.notes.append(f"{name} changes nothing: {names.DEFAULTS_HERE[name]}")
                continue
            given.values.setdefault(name, []).append(value)
            if len(given.values[name]) > 1 and name not in names.REPEATABLE:
                raise SettingsError(f"{name} is given twice; give it once")
        return given

    def has(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str | None:
        return self.values[name][0] if name in self.values else None

    def all(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def number(self, name: str, least: float) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        # Written so that a NaN is refused as well.
        if not least <= number < math.inf:
            raise SettingsError(f"{name} must be a number of at least {least:g}, not {text!r}")
        return number

    def whole(self, name: str, least: int) -> int | None:
        number = self.number(name, least)
        if number is not None and number != int(number):
            raise SettingsError(f"{name} must be a whole number, not {self.text(name)!r}")
        return None if number is None else int(number)

    def refuse_together(self, *pair: str) -> None:
        if all(self.has(name) for name in pair):
            raise SettingsError(f"{' and '.join(pair)} exclude each other; give one")

    def path(self, name: str) -> Path | None:
        text = self.text(name)
        return None if text is None else Path(text).expanduser()


def _continued(given: _Given) -> TrtexecRequest:
    if not given.has("--tuningCacheFile"):
        raise SettingsError("--continue needs --tuningCacheFile: the cache to go on with")
    allowed = {"--continue", "--tuningCacheFile", "--tuningTimeOut", "--saveEngine"}
    others = sorted(given.values.keys() - allowed)
    if others:
        raise SettingsError(
            f"--continue takes everything from the study of the cache; leave {', '.join(others)} "
            "out"
        )
    return TrtexecRequest(
        Action.CONTINUE,
        cache=given.path("--tuningCacheFile"),
        engine=given.path("--saveEngine"),
        budget_s=given.number("--tuningTimeOut", 1),
        notes=tuple(given.notes),
    )


def _tuning(given: _Given) -> TrtexecRequest:
    search = given.text("--tuningSearch") or "fast"
    if search not in _SEARCHES:
        check_sampler(search)
        given.notes.append(f"--tuningSearch={search} is Routewright's own; trtexec has none such")
    is_dry = given.has("--dryRun")
    if is_dry and search not in ("fast", "full"):
        raise SettingsError(
            f"--dryRun lists the routes of fast and full only: those of {search} depend on what "
            "was measured"
        )
    if not given.has("--onnx"):
        raise SettingsError("--onnx is missing: the model to tune")
    backend = given.text("--backend") or DEFAULT_BACKEND
    values: dict[str, Any] = {
        "model": given.text("--onnx"),
        "backend": backend,
        "sampler": search,
        "out": given.text("--out"),
        **_expression(given),
        **_accuracy(given),
        **_shapes(given),
        "option": _backend_options(given),
        "shared_device": given.has("--sharedDevice"),
        "budget_s": _budget_s(given, search),
    }
    settings = TuneSettings.from_dict(
        {name: value for name, value in values.items() if value not in (None, [])}
    )
    return TrtexecRequest(
        Action.DRY_RUN if is_dry else Action.TUNE,
        settings=settings,
        backend=backend,
        search=search,
        model=settings.model,
        cache=given.path("--tuningCacheFile"),
        engine=given.path("--saveEngine"),
        notes=tuple(given.notes),
    )


def _budget_s(given: _Given, search: str) -> float:
    limit_s = given.number("--tuningTimeOut", -(2**31))
    if limit_s is not None and limit_s > 0:
        return limit_s
    if search not in _SEARCHES:
        raise SettingsError(f"--tuningSearch={search} needs --tuningTimeOut: it has no end")
    given.notes.append("there is no --tuningTimeOut: the search goes on to its end")
    return UNLIMITED_S


def _expression(given: _Given) -> dict[str, Any]:
    """Return the settings that say which routes to try."""
    sources = ("--tuneBuildRoutes", "--tuneBuildRouteFile", "--setBuildRoute")
    for index, source in enumerate(sources):
        for other in sources[index + 1 :]:
            given.refuse_together(source, other)
    if not any(map(given.has, sources)):
        raise SettingsError(
            "there is nothing to tune: give --tuneBuildRoutes='-knob=[a|b]', "
            "--tuneBuildRouteFile or --setBuildRoute; `routewright tune` searches all knobs"
        )
    pins = _pins(given)
    file = given.text("--tuneBuildRouteFile")
    if file is not None and not pins:
        return {"expr_file": file}
    if file is not None:
        lines = read_text_file(Path(file), RouteError).splitlines()
        pins = [line for line in lines if not line.lstrip().startswith("#")] + pins
    text = given.text("--tuneBuildRoutes") or given.text("--setBuildRoute") or ""
    return {"expr": " ".join([text, *pins]).strip()}


def _pins(given: _Given) -> list[str]:
    """Return builder and run-time options as pinned knobs."""
    pins = []
    for option, knob in _NUMBER_KNOBS.items():
        number = given.whole(option, -1)
        if number is not None:
            pins.append(f"-config:{knob}={'auto' if number == -1 else number}")
    level = given.whole("--tilingOptimizationLevel", 0)
    if level is not None:
        if level >= len(_TILING):
            raise SettingsError(f"--tilingOptimizationLevel must be 0 to 3, not {level}")
        pins.append(f"-config:tiling_optimization_level={_TILING[level]}")
    if given.has("--noTF32"):
        pins.append("-config:tf32=off")
    sparsity = given.text("--sparsity")
    if sparsity is not None:
        if sparsity not in ("enable", "disable"):
            raise SettingsError(f"--sparsity must be enable or disable here, not {sparsity!r}")
        pins.append(f"-config:sparse_weights={'on' if sparsity == 'enable' else 'off'}")
    for sign, source in _signed(given, "--tacticSources"):
        pins.append(f"-config:tactic_source_{source.lower()}={sign}")
    for sign, feature in _signed(given, "--preview"):
        if feature not in _PREVIEWS:
            raise SettingsError(
                f"--preview has no feature {feature!r}; {did_you_mean(feature, _PREVIEWS)}"
            )
        pins.append(f"-config:preview_{_PREVIEWS[feature]}={sign}")
    given.refuse_together("--useCudaGraph", "--noCudaGraph")
    if given.has("--useCudaGraph") or given.has("--noCudaGraph"):
        pins.append(f"-runtime:cuda_graph={'on' if given.has('--useCudaGraph') else 'off'}")
    return pins


def _signed(given: _Given, option: str) -> list[tuple[str, str]]:
    """Return on or off and the name, for each item of ``+name,-name``."""
    found = []
    for item in (given.text(option) or "").split(","):
        name = item.strip()
        if not name:
            continue
        if name[0] not in "+-" or not name[1:]:
            raise SettingsError(f"{option}: {name!r} must start with + or -")
        found.append(("on" if name[0] == "+" else "off", name[1:]))
    return found


def _accuracy(given: _Given) -> dict[str, Any]:
    """Return the settings of samples, references and the accuracy bound."""
    groups = max(len(given.all("--refPair")), 1)
    for option in ("--loadInputs", "--loadRefOutputs"):
        if len(given.all(option)) > groups:
            raise SettingsError(f"{option} is given twice; several pairs need --refPair=N each")
    samples = [item for text in given.all("--loadInputs") for item in _files(text, "--loadInputs")]
    references = [
        item for text in given.all("--loadRefOutputs") for item in _files(text, "--loadRefOutputs")
    ]
    if references and not samples:
        raise SettingsError("--loadRefOutputs needs --loadInputs: the inputs they belong to")
    algorithm = given.text("--accuracyAlgorithm")
    if algorithm is not None and algorithm not in _LOSSES:
        raise SettingsError(
            f"--accuracyAlgorithm has no {algorithm!r}; {did_you_mean(algorithm, _LOSSES)}"
        )
    threshold = given.number("--accuracyThreshold", 0)
    if threshold is None and (references or algorithm is not None):
        option = "--accuracyAlgorithm" if algorithm is not None else "--loadRefOutputs"
        raise SettingsError(f"{option} needs --accuracyThreshold: the largest loss allowed")
    if threshold is None:
        given.notes.append(
            "there is no --accuracyThreshold: routes must stay within a cos loss of 1e-3 of the "
            "original model's outputs"
        )
    elif threshold == 0:
        given.notes.append("--accuracyThreshold=0 asks for identical outputs, unlike in trtexec")
    loss = None if threshold is None else _LOSSES[algorithm or "l0"]
    tolerances = {name: given.number(f"--{name}", 0) for name in ("atol", "rtol")}
    if loss != "l0" and any(value is not None for value in tolerances.values()):
        raise SettingsError("--atol and --rtol are tolerances of the l0 loss; leave them out")
    return {
        "samples": samples,
        "references": references,
        "loss": loss,
        "bound": threshold,
        **tolerances,
    }


def _files(text: str, option: str) -> list[str]:
    """Return each ``name:file`` of a list; a name may stand in single quotes."""
    found = []
    for item in _split(text):
        name, file = _named(item)
        if not name or not file:
            raise SettingsError(f"{option}: {item!r} is not of the form name:file")
        found.append(f"{name}:{file}")
    return found


def _shapes(given: _Given) -> dict[str, Any]:
    timed, best = given.text("--shapes"), given.text("--optShapes")
    if timed is not None and best is not None and _listed(timed) != _listed(best):
        raise SettingsError(
            "--shapes and --optShapes differ, and here the shape that is timed is the profile's "
            "optimum; give one"
        )
    return {
        "min_shape": _listed(given.text("--minShapes")),
        "shape": _listed(timed or best),
        "max_shape": _listed(given.text("--maxShapes")),
    }


def _listed(text: str | None) -> list[str]:
    """Return each ``name:dims`` of a list as this project's options take it."""
    found = []
    for item in _split(text or ""):
        name, dims = _named(item)
        if "*" in name:
            raise SettingsError(f"the shape {item!r} has a wildcard; name each input")
        found.append(f"{name}:{dims or 'scalar'}" if name else dims)
    return found


def _split(text: str) -> list[str]:
    """Split a list at commas outside single quotes; empty items are dropped."""
    items = [""]
    is_quoted = False
    for char in text:
        is_quoted ^= char == "'"
        if char == "," and not is_quoted:
            items.append("")
        else:
            items[-1] += char
    return [item.strip() for item in items if item.strip()]


def _named(item: str) -> tuple[str, str]:
    """Split ``name:value`` at the quotes around the name, or at the last colon."""
    if item.startswith("'"):
        name, _, rest = item[1:].partition("'")
        return name, rest.removeprefix(":").strip()
    name, colon, rest = item.rpartition(":")
    return (name.strip(), rest.strip()) if colon else ("", item)


def _backend_options(given: _Given) -> list[str]:
    """Return the backend's options for what concerns every build."""
    options = []
    device = given.whole("--device", 0)
    if device is not None:
        options.append(f"device={device}")
    workspace = given.text("--memPoolSize")
    if workspace is not None:
        options.append(f"workspace_mib={_workspace_mib(workspace)}")
    plugins = [*given.all("--staticPlugins"), *given.all("--plugins")]
    if plugins:
        options.append(f"plugins={','.join(plugins)}")
    level = given.text("--hardwareCompatibilityLevel")
    if level is not None:
        if level.lower() not in _LEVELS:
            raise SettingsError(
                "--hardwareCompatibilityLevel must be none, ampere+ or sameComputeCapability, not "
                f"{level!r}"
            )
        options.append(f"hardware_compatibility={_LEVELS[level.lower()]}")
    if given.has("--refit") or given.has("--stripAllWeights"):
        options.append("refit=all")
    for name, setting in (
        (("--stripWeights", "--stripAllWeights"), "strip_plan=on"),
        (("--versionCompatible", "--vc"), "version_compatible=on"),
        (("--excludeLeanRuntime",), "exclude_lean_runtime=on"),
        (("--includeDataTransfers",), "host_transfers=on"),
        (("--noBuilderCache",), "timing_cache=off"),
    ):
        if any(map(given.has, name)):
            options.append(setting)
    return options


def _workspace_mib(text: str) -> int:
    """Return MiB of ``workspace:4096``, ``workspace:4G`` or ``workspace:4GiB``."""
    pool, _, size = text.partition(":")
    if pool != "workspace" or "," in size:
        raise SettingsError(f"--memPoolSize must be workspace:SIZE here, not {text!r}")
    upper = size.strip().upper()
    number = upper.removesuffix("IB") if upper.endswith("IB") else upper
    unit = number[-1:] if number[-1:] in _UNIT_MIB else "M"
    try:
        mib = float(number.removesuffix(unit)) * _UNIT_MIB[unit]
    except ValueError:
        mib = math.nan
    if not 1 <= mib < math.inf:
        raise SettingsError(f"--memPoolSize: {size!r} is no size of at least 1 MiB")
    return int(mib)
