"""Where a study's measurements come from: a model that runs here, or a recorded table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Protocol

from routewright.budget import Budget
from routewright.errors import SettingsError
from routewright.outfolder import OutFolder
from routewright.preparation import Prepared, Subject, prepare_inputs, search_space
from routewright.progress import Progress
from routewright.replay import BACKEND, ReplayBench, replay_pace
from routewright.search.hints import SearchHints
from routewright.settings import TuneSettings
from routewright.tables import Table
from routewright.tables.files import is_table, read_card

_FIXED_BY_TABLE = (
    "shape",
    "opt_shape",
    "min_shape",
    "max_shape",
    "samples",
    "references",
    "input_range",
    "output_bound",
    "atol",
    "rtol",
    "metric",
)


class Source(Protocol):
    """A model or a table, opened."""

    @property
    def subject(self) -> Subject:
        """What is tuned."""

    def now_s(self) -> float:
        """Return the clock that budgets are kept on, in seconds."""

    def prepare(
        self, settings: TuneSettings, out: OutFolder, budget: Budget, progress: Progress
    ) -> Prepared:
        """Get everything ready for the baseline.

        Raises:
            RoutewrightError: Something the user can mend.
        """


class TableSource:
    """A table to replay.

    Args:
        table: The table.
        path: Its folder, or the name it goes by.
        seed: Seed of the replay.
        pace: Real seconds to sleep for each simulated second.
    """

    def __init__(self, table: Table, path: Path, *, seed: int, pace: float = 0.0) -> None:
        self._table = table
        self._path = path
        self._bench = ReplayBench(table, seed=seed, pace=pace)

    @property
    def subject(self) -> Subject:
        """The table's model, as it was recorded."""
        card = self._table.card
        return Subject(
            path=self._path,
            sha256=str(card["model"]["sha256"]),
            shapes={name: tuple(shape) for name, shape in card["shapes"].items()},
            samples=str(card.get("samples", "")),
            size_bytes=0,
            table=self._table.digest,
        )

    def now_s(self) -> float:
        """Return the simulated clock."""
        return self._bench.now_s()

    def prepare(
        self, settings: TuneSettings, out: OutFolder, budget: Budget, progress: Progress
    ) -> Prepared:
        """Make the workbench and the space; nothing is built."""
        table = self._table
        space = search_space(settings, table.database)
        note = (
            f"replayed from the table {table.name}: times are those recorded there, seconds are "
            "simulated, and no engine is saved"
        )
        return Prepared(
            subject=self.subject,
            limits=table.limits(settings.accuracy_bound()),
            worker=self._bench,
            database=table.database,
            space=space,
            environment=self._bench.environment(),
            metric=str(table.card["metric"]),
            hints=SearchHints(
                fingerprints=True,
                surely_live=frozenset(table.card.get("run_time_knobs", ()))
                & space.variable.keys(),
            ),
            notes=(note, *space.notes),
        )


def resolved(settings: TuneSettings) -> TuneSettings:
    """Return the settings with what the table fixes filled in; others are returned as they are.

    Raises:
        SettingsError: They say what only a table can say, or otherwise than it does, or name a
            table without replaying it.
        TableError: There is no such table.
    """
    folder = Path(settings.model)
    if settings.backend != BACKEND:
        if is_table(folder):
            raise SettingsError(
                f"{folder} is a recorded table and no model; replay it with --backend {BACKEND}"
            )
        return settings
    replay_pace(settings.backend_options())
    defaults = {item.name: item.default for item in fields(TuneSettings)}
    for name in _FIXED_BY_TABLE:
        if getattr(settings, name) != defaults[name]:
            raise SettingsError(
                f"{name} does not go with the backend {BACKEND}: the table holds what was "
                "recorded; leave it out"
            )
    bound: Mapping[str, object] = read_card(folder)["bound"]
    loss = str(bound["loss"])
    if settings.loss is None:
        return replace(settings, loss=loss, bound=float(str(bound["threshold"])))
    if settings.loss.lower() != loss:
        raise SettingsError(
            f"the table {folder} holds {loss} losses and no {settings.loss}; give "
            f"--loss {loss}, with any --bound, or neither"
        )
    return settings


def open_source(settings: TuneSettings) -> Source:
    """Open what ``settings`` tune.

    Raises:
        RoutewrightError: Something the user can mend.
    """
    if settings.backend != BACKEND:
        return prepare_inputs(settings)
    folder = Path(settings.model)
    return TableSource(
        Table.load(folder),
        folder,
        seed=settings.seed,
        pace=replay_pace(settings.backend_options()),
    )
