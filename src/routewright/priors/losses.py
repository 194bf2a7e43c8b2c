"""How much of the loss each setting brings about, as far as the trials tell.

Losses of independent causes add up, roughly. So each setting gets a part of its own, such that the
parts of a trial's settings add up to the trial's loss.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from routewright.records import TrialRecord

NO_LOSS = 1e-12
"""A loss below this is none, for any use that is made of its logarithm."""

_EVENLY = 0.02
_ALONE_SE = 0.1
_BESIDE_SE = 0.3
_LARGEST_SE = 1.0


@dataclass(frozen=True, slots=True)
class LossLevel:
    """The loss that one setting brings about.

    Attributes:
        log10: Its base-10 logarithm.
        se: Standard error of that.
        trials: How many checked trials had the setting.
    """

    log10: float
    se: float
    trials: int


def loss_levels(records: Sequence[TrialRecord]) -> dict[str, LossLevel]:
    """Return the loss of each setting that was checked, the worst output's."""
    checked: dict[tuple[str, ...], list[float]] = {}
    counts: dict[str, int] = {}
    # What the default route loses already is no setting's doing.
    floor = next((max(r.losses.values()) for r in records if not r.route and r.losses), 0.0)
    for record in records:
        loss = max(record.losses.values(), default=math.nan)
        settings = tuple(record.route.split())
        if record.reused_from is not None or not settings or not math.isfinite(loss):
            continue
        checked.setdefault(settings, []).append(max(loss - floor, 0.0))
        for setting in settings:
            counts[setting] = counts.get(setting, 0) + 1
    if not checked:
        return {}
    parts = _shared_out({settings: float(np.median(own)) for settings, own in checked.items()})
    lossy = {setting for setting, part in parts.items() if part > NO_LOSS}
    return {
        setting: LossLevel(
            math.log10(max(part, NO_LOSS)),
            min(_ALONE_SE + _BESIDE_SE * _fewest_beside(setting, checked, lossy), _LARGEST_SE),
            counts[setting],
        )
        for setting, part in sorted(parts.items())
    }


def _shared_out(losses: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    """Return each setting's part, such that parts add up to the losses as well as they can.

    Non-negative least squares of relative errors, for losses span powers of ten. What only ever
    came together is shared out evenly.
    """
    routes = sorted(losses)
    names = sorted({setting for settings in routes for setting in settings})
    column = {name: index for index, name in enumerate(names)}
    rows = np.zeros((len(routes), len(names)))
    for row, settings in zip(rows, routes, strict=True):
        row[[column[setting] for setting in settings]] = 1.0
    values = np.array([max(losses[settings], NO_LOSS) for settings in routes])
    most = np.array([values[rows[:, index] > 0].min() for index in range(len(names))])
    # In units of the most that each setting can lose, every part is from 0 to about 1.
    scaled = rows * most / values[:, None]
    padded = np.vstack([scaled, _EVENLY * np.eye(len(names))])
    wanted = np.concatenate([np.ones(len(routes)), np.zeros(len(names))])
    # Most of a second of importing that only evidence needs.
    from scipy.optimize import nnls

    parts, _ = nnls(padded, wanted)
    return {
        name: float(part * limit) for name, part, limit in zip(names, parts, most, strict=True)
    }


def _fewest_beside(
    setting: str, checked: Iterable[tuple[str, ...]], lossy: Collection[str]
) -> int:
    """Return beside how few other settings that lose something it was checked."""
    return min(
        sum(other in lossy for other in settings if other != setting)
        for settings in checked
        if setting in settings
    )
