"""Finding a TensorRT library and asking it what it can do.

Nothing here follows from the library's name: whether it lists build routes, times tactics,
compiles kernels at run time or targets a compute capability is read off the module and a real
builder configuration.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import warnings
from dataclasses import dataclass
from typing import Any

from routewright.backends.tensorrt import cuda
from routewright.backends.tensorrt.log import MessageLog, make_logger, tidy
from routewright.errors import BackendError

FIRST_VERSION_WITH_BUILD_ROUTES = (11, 1)


@dataclass(frozen=True, slots=True)
class Edition:
    """How one of the libraries is found.

    Attributes:
        title: What people call it.
        modules: Python modules to try, in this order.
        install: What installs it.
        oldest: The oldest version that is accepted, or None for any.
    """

    title: str
    modules: tuple[str, ...]
    install: str
    oldest: tuple[int, ...] | None


EDITIONS = {
    "tensorrt": Edition(
        title="TensorRT",
        modules=("tensorrt", "tensorrt_bindings"),
        install="pip install 'routewright[tensorrt]', or the tensorrt package of NVIDIA",
        oldest=FIRST_VERSION_WITH_BUILD_ROUTES,
    ),
    "tensorrt-rtx": Edition(
        title="TensorRT-RTX",
        modules=("tensorrt_rtx",),
        install="pip install 'routewright[tensorrt-rtx]'",
        oldest=None,
    ),
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a library can do here, as it answered.

    Attributes:
        build_routes: The knob database as JSON; empty where it lists none.
        no_build_routes: Why it lists none, one line; empty where it does.
        times_tactics: Whether it times tactics while it builds, so that a timing cache matters.
        runtime_cache: Whether it compiles kernels at run time and can keep them in a cache.
        targets: Names of the compute capabilities that a build can be made for; empty where the
            library builds for the present device only.
        weakly_typed: Whether its networks are weakly typed unless told otherwise.
        own_cuda_graph: Whether its run time records CUDA graphs itself.
    """

    build_routes: str
    no_build_routes: str
    times_tactics: bool
    runtime_cache: bool
    targets: tuple[str, ...]
    weakly_typed: bool
    own_cuda_graph: bool


class Library:
    """A loaded library with its logger.

    Args:
        module: The Python module, for example ``tensorrt`` or ``tensorrt_rtx``.
        title: What people call it.

    Attributes:
        module: The Python module.
        title: What people call it.
        version: Its version, for example ``"11.1.0.106"``.
        log: What it says.
        logger: The logger object that its classes take.
    """

    def __init__(self, module: Any, title: str) -> None:
        self.module = module
        self.title = title
        self.version = str(module.__version__)
        self.log = MessageLog()
        self.logger = make_logger(module, self.log)

    @property
    def label(self) -> str:
        """Title and version."""
        return f"{self.title} {self.version}"

    def new_builder(self) -> Any:
        """Return a builder.

        Raises:
            BackendError: The library cannot make one here: no device, or a driver too old.
        """
        mark = self.log.mark()
        try:
            builder = self.module.Builder(self.logger)
        except TypeError as error:
            # pybind11's word for "the C++ factory returned a null pointer".
            said = "; ".join(self.log.errors(mark)) or str(error)
            problem = cuda.device_problem() or f"the library said: {said}"
            raise BackendError(f"{self.label} cannot build here: {problem}") from error
        return builder

    def ask_capabilities(self, builder: Any) -> Capabilities:
        """Ask the library what it can do, on a configuration made by ``builder``."""
        config = builder.create_builder_config()
        routes = getattr(config, "all_build_routes", None) or ""
        runtime_config = getattr(self.module, "IRuntimeConfig", None)
        targets = getattr(self.module, "ComputeCapability", None)
        flags = self.module.BuilderFlag.__members__
        return Capabilities(
            build_routes=routes,
            no_build_routes="" if routes else self._why_no_build_routes(config),
            times_tactics=not _timing_cache_is_idle(config),
            runtime_cache=hasattr(runtime_config, "create_runtime_cache"),
            targets=tuple(name for name in targets.__members__ if name != "NONE")
            if targets is not None
            else (),
            weakly_typed="FP16" in flags,
            own_cuda_graph=hasattr(runtime_config, "cuda_graph_strategy"),
        )

    def _why_no_build_routes(self, config: Any) -> str:
        if not hasattr(config, "all_build_routes"):
            first = ".".join(map(str, FIRST_VERSION_WITH_BUILD_ROUTES))
            return f"{self.label} has no build routes: TensorRT {first} or later on Linux has"
        return f"{self.label} lists no build routes on this platform: TensorRT on Linux does"


@functools.cache
def load_library(name: str) -> Library:
    """Load the library called ``name`` in :data:`EDITIONS`, once per process.

    The library keeps the first logger that it is given for what belongs to no builder.

    Raises:
        BackendError: It is not installed, its shared libraries are missing, or it is too old.
    """
    edition = EDITIONS[name]
    module = _import_first(edition)
    library = Library(module, edition.title)
    if edition.oldest is not None and version_numbers(library.version) < edition.oldest:
        oldest = ".".join(map(str, edition.oldest))
        raise BackendError(
            f"{library.label} is too old: build routes came with {oldest}; {edition.install}"
        )
    return library


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: ``"11.1.0.106"`` is ``(11, 1, 0, 106)``."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def tuner_version(build_routes: str) -> str:
    """Return the ``tuner_version`` that a knob database names, or an empty string."""
    try:
        parsed = json.loads(build_routes) if build_routes else {}
    except ValueError:
        return ""
    found = parsed.get("tuner_version") if isinstance(parsed, dict) else None
    return found if isinstance(found, str) else ""


def _import_first(edition: Edition) -> Any:
    for name in edition.modules:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in edition.modules:
                raise BackendError(
                    f"{edition.title} is installed but {error.name} is missing; {edition.install}"
                ) from error
        except (ImportError, OSError) as error:
            raise BackendError(
                f"{edition.title} cannot be loaded: {tidy(str(error))}; put the folder with its "
                f"libraries on LD_LIBRARY_PATH, or {edition.install}"
            ) from error
    raise BackendError(f"{edition.title} is not installed; {edition.install}")


def _timing_cache_is_idle(config: Any) -> bool:
    # The library says it itself, in a deprecation warning: "timing cache operations are no-ops".
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config.get_timing_cache()
    return any("no-op" in str(warning.message) for warning in caught)
