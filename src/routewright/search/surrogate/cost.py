"""How many seconds a route is expected to cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from routewright.search.observations import Observation
from routewright.search.surrogate.encoding import Encoding, Floats
from routewright.search.surrogate.model import Regression, Scales

_EFFECT_SD = 0.3
_SCATTER_SD = 0.2
_MOST_ROWS = 200
_DEFAULT_S = 1.0


class Cost:
    """Expected seconds of a trial: its build, and its check and timing if it gets there.

    Attributes:
        build_s: Seconds of a typical build.
        timing_s: Mean seconds of check and timing.
    """

    def __init__(self, encoding: Encoding, observations: Sequence[Observation]) -> None:
        built = [o for o in observations if o.build_s is not None and o.build_s > 0][-_MOST_ROWS:]
        timed = [o.use_s for o in observations if o.use_s is not None and o.log_ratio is not None]
        broken = [o.use_s for o in observations if o.use_s is not None and o.log_ratio is None]
        self.timing_s = float(np.mean(timed)) if timed else _DEFAULT_S
        self._check_s = float(np.mean(broken)) if broken else 0.0
        logs = np.log(np.array([o.build_s for o in built], dtype=float))
        self._typical = float(np.median(logs)) if len(logs) else 0.0
        self.build_s = math.exp(self._typical)
        self._model = Regression(
            encoding.encode_all([o.route for o in built]),
            logs - self._typical,
            np.zeros(len(built)),
            encoding.layout,
            Scales(_EFFECT_SD, 0.0, 0.0, _SCATTER_SD, offset=_EFFECT_SD),
            np.ones(encoding.columns),
            None,
        )

    def seconds(self, rows: Floats, eligible: Floats, builds: Floats) -> Floats:
        """Return expected seconds of encoded routes.

        Args:
            rows: The routes.
            eligible: Probability that each meets the bound.
            builds: Probability that each builds.
        """
        build_s = np.exp(self._typical + self._model.mean(rows))
        use_s = eligible * self.timing_s + (1.0 - eligible) * self._check_s
        return np.asarray(build_s + builds * use_s)
