"""Routes of six switches as a search saw them, for tests of what it concludes."""

from __future__ import annotations

from routewright.knobs import Knob, KnobDatabase
from routewright.records import WORST_VIOLATION
from routewright.routes import Route
from routewright.search.observations import Observation
from routewright.search.surrogate.encoding import Encoding
from routewright.space import SearchSpace

DATABASE = KnobDatabase("test", tuple(Knob.of(f"-k{i}", "[on|off]", "on") for i in range(6)))
ENCODING = Encoding(SearchSpace.whole(DATABASE))


def seen(text: str, violation: float = -0.9, *, failed: bool = False) -> Observation:
    return Observation(
        text=text,
        route=Route.parse(text, DATABASE),
        log_ratio=None if failed or violation > 0 else 0.0,
        sd=0.01,
        violation=WORST_VIOLATION if failed else violation,
        is_checked=not failed,
        failed=failed,
        fingerprint=None,
        is_measured=True,
        is_slow=False,
        build_s=None if failed else 1.0,
        use_s=1.0,
    )
