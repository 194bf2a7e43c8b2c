"""``routewright trtexec``: a tuning, asked for in trtexec's words."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from routewright.budget import Budget
from routewright.cli import started
from routewright.cli.database import knob_database
from routewright.cli.export_study import study_in
from routewright.cli.live import console_progress
from routewright.errors import SettingsError, StorageError
from routewright.files import explain_os_error, replace_atomic
from routewright.interop.cache_file import read_cache
from routewright.interop.exporting import export_cache
from routewright.interop.own_study import OURS
from routewright.interop.trtexec import TRTEXEC
from routewright.interop.trtexec_options import Action, TrtexecRequest, parse_trtexec
from routewright.knobs import KnobDatabase
from routewright.outfolder import fresh_folder
from routewright.progress import Forwarding, Progress
from routewright.records import TrialRecord
from routewright.report.publishing import Publisher
from routewright.report.source import view_of_result
from routewright.report.story import tell
from routewright.report.terminal import show_answers
from routewright.result import TuneResult
from routewright.routes import Route, RouteExpression
from routewright.search.sweep import fast_routes
from routewright.settings import TuneSettings, resolve_model
from routewright.space import SearchSpace
from routewright.studyfile import stored_settings
from routewright.tuning import run

CONTEXT = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""How the command is registered: every word is read here, not by the command-line library."""

INTERRUPTED = 130

_HELP = """\
Usage: routewright trtexec --onnx=MODEL --tuneBuildRoutes=EXPR [OPTIONS]

A tuning, asked for in trtexec's words: --option=value or --option value.

  --onnx=FILE                       model
  --tuneBuildRoutes=EXPR            route expression, '-knob=[a|b] -other=c'
  --tuneBuildRouteFile=FILE         the same from a file
  --setBuildRoute=ROUTE             measure one route against the default route
  --tuningSearch=fast|full|mixed    search (default: fast); or a sampler of Routewright
  --tuningTimeOut=SECONDS           budget for everything (default: to the search's end)
  --tuningCacheFile=FILE            write the trials as trtexec does
  --continue                        go on with the study of --tuningCacheFile
  --saveEngine=FILE                 write the best engine
  --loadInputs=NAME:FILE,...        inputs, raw bytes; --refPair=N groups several pairs
  --loadRefOutputs=NAME:FILE,...    reference outputs (default: the original model's)
  --accuracyAlgorithm=l0|l1|l2|lInf|cos   loss (default: l0)
  --accuracyThreshold=X             largest loss; --atol=X, --rtol=X for l0
  --shapes=NAME:1x3x224x224,...     shapes to time; --minShapes, --optShapes, --maxShapes
  --dryRun                          list the routes of fast or full
  --helpBuildRoute[=KNOB]           print the knobs as JSON
  --backend=NAME                    what builds and runs engines (default: tensorrt)
  --out=FOLDER                      output folder (default: under routewright-out/)
  --sharedDevice                    time even while another tuner times here

Builder and run-time options become pinned knobs or settings of every build:
  --builderOptimizationLevel --tilingOptimizationLevel --maxAuxStreams --avgTiming --maxTactics
  --noTF32 --sparsity --tacticSources --preview --useCudaGraph --noCudaGraph --memPoolSize
  --hardwareCompatibilityLevel --versionCompatible --excludeLeanRuntime --refit --stripWeights
  --stripAllWeights --staticPlugins --device --noBuilderCache --includeDataTransfers
"""


def trtexec(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="OPTIONS", help="Options of trtexec.")
    ] = None,
) -> int:
    """Tune with trtexec's options (--tuneBuildRoutes, --saveEngine ...)."""
    started_s = started.AT_S.get()
    words = arguments or ["--help"]
    request = parse_trtexec(words)
    if request.action is Action.HELP:
        typer.echo(_HELP, nl=False)
        return 0
    for note in request.notes:
        typer.echo(f"note: {note}", err=True)
    if request.action is Action.LIST_KNOBS:
        return _list_knobs(request)
    if request.action is Action.DRY_RUN:
        return _list_routes(request)
    return _tune(request, words, started_s)


def _list_knobs(request: TrtexecRequest) -> int:
    database = knob_database(request.backend, model=request.model, database=None)
    if request.knob is not None:
        database = KnobDatabase(database.tuner_version, (database[request.knob],))
    typer.echo(database.to_json())
    return 0


def _list_routes(request: TrtexecRequest) -> int:
    settings = _settings(request)
    database = knob_database(
        request.backend, model=settings.model, database=None, shape=settings.shape
    )
    if settings.expr_file is not None:
        expression = RouteExpression.from_file(Path(settings.expr_file), database)
    else:
        expression = RouteExpression.parse(settings.expr or "", database)
    space = SearchSpace.from_expression(expression, database)
    routes: Iterable[Route] = space.enumerate()
    count = space.size
    if request.search == "fast":
        routes, count = fast_routes(space), sum(1 for _ in fast_routes(space))
    typer.echo(f"{count} build routes would be tried", err=True)
    for index, route in enumerate(routes):
        values = route.values
        told = (
            f"{name}={values.get(name, database[name].default)}" for name, _ in expression.tokens
        )
        typer.echo(f"[{index}]:{' '.join(told)}")
    return 0


def _tune(request: TrtexecRequest, words: Sequence[str], started_s: float | None) -> int:
    is_resumed = request.action is Action.CONTINUE
    command = ["routewright", "trtexec", *words]
    if is_resumed:
        settings, command = _resumed(request)
    else:
        settings = _settings(request)
    _check_targets(request, settings)
    if settings.out is None:
        stem = resolve_model(settings.model).stem
        settings = replace(settings, out=str(fresh_folder(stem, Path("routewright-out"))))
    out = Path(str(settings.out)).absolute()
    console = Console(stderr=True, highlight=False)

    def write_cache() -> None:
        if request.cache is not None:
            study = study_in(str(out), settings.storage)
            export_cache(study, request.cache, TRTEXEC, command=command, more={"out": str(out)})

    with console_progress(console, settings) as progress:
        result = run(
            settings,
            resume=is_resumed,
            progress=_WithCache(Publisher(progress), write_cache),
            started_s=started_s,
        )
    write_cache()
    if request.engine is not None:
        _save_engine(out / "engine", request.engine)
    return _told(result, request)


class _WithCache(Forwarding):
    """Writes the cache once there is a trial, so that --continue finds its study at any time."""

    def __init__(self, inner: Progress, write: Callable[[], None]) -> None:
        super().__init__(inner)
        self._write = write
        self._is_written = False

    def trial_finished(
        self, record: TrialRecord, best: TrialRecord | None, budget: Budget
    ) -> None:
        super().trial_finished(record, best, budget)
        if not self._is_written:
            self._is_written = True
            try:
                self._write()
            except StorageError as error:
                # The study has every trial; the cache is written again at the end.
                self._inner.note(str(error))


def _settings(request: TrtexecRequest) -> TuneSettings:
    if request.settings is None:
        raise ValueError(f"a request to {request.action} has no settings")
    return request.settings


def _resumed(request: TrtexecRequest) -> tuple[TuneSettings, list[str]]:
    """Return the settings of the cache's study, and the command that began it."""
    assert request.cache is not None
    header = read_cache(request.cache).header
    ours = header.get(OURS)
    out = ours.get("out") if isinstance(ours, dict) else None
    if not isinstance(out, str):
        raise SettingsError(
            f"{request.cache} is not of a tuning by `routewright trtexec`, so there is no study "
            "to go on with; start anew without --continue, or read it with `routewright import "
            "trtexec`"
        )
    changed: dict[str, Any] = {"out": out}
    if request.budget_s is not None:
        changed["budget_s"] = request.budget_s
    command = header.get("argv")
    words = [str(word) for word in command] if isinstance(command, list) else []
    return replace(stored_settings(Path(out)), **changed), words


def _check_targets(request: TrtexecRequest, settings: TuneSettings) -> None:
    """Refuse before the tuning what could not be written after it."""
    for option, path in (
        ("--tuningCacheFile", request.cache),
        ("--saveEngine", request.engine),
    ):
        if path is None:
            continue
        if not path.absolute().parent.is_dir():
            raise SettingsError(
                f"{option} names {path}, and there is no folder {path.parent}; create it first"
            )
        if path.is_dir():
            raise SettingsError(f"{option} names {path}, which is a folder; name a file")
    is_folder = settings.backend == "onnxruntime"
    if request.engine is not None and is_folder and request.engine.exists():
        raise SettingsError(
            f"--saveEngine names {request.engine}, which exists, and an engine of onnxruntime is "
            "a folder of files; name one that does not exist"
        )


def _save_engine(engine: Path, target: Path) -> None:
    """Copy the best engine: its plan where it has one, else the folder with all its files."""
    part = target.with_name(f".{target.name}.part")
    try:
        plan = _plan_in(engine)
        if plan is not None:
            shutil.copyfile(plan, part)
        else:
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(engine, part)
    except OSError as error:
        part.unlink(missing_ok=True) if part.is_file() else shutil.rmtree(part, ignore_errors=True)
        raise StorageError(
            f"cannot write {target}: {explain_os_error(error)}; the engine is in {engine}"
        ) from error
    replace_atomic(part, target)


def _plan_in(engine: Path) -> Path | None:
    manifest = engine / "manifest.json"
    if not manifest.exists():
        return None
    plan = json.loads(manifest.read_text(encoding="utf-8")).get("plan") or {}
    return engine / Path(str(plan.get("file", ""))).name if plan.get("file") else None


def _told(result: TuneResult, request: TrtexecRequest) -> int:
    screen = Console(highlight=False, file=sys.stdout)
    show_answers(screen, tell(view_of_result(result)))
    written = [result.out, *(str(path) for path in (request.cache, request.engine) if path)]
    screen.print(f"written to {', '.join(written)}", soft_wrap=True, markup=False)
    return INTERRUPTED if result.interrupted else 0
