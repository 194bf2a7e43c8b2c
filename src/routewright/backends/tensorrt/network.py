"""From an ONNX file to the library's network, with every parser error reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routewright.backends.tensorrt.library import Capabilities, Library
from routewright.backends.tensorrt.log import one_line
from routewright.backends.tensorrt.profiles import NetworkInput, Profile
from routewright.errors import BackendError

_SHOWN_ERRORS = 12


@dataclass(slots=True)
class ParsedNetwork:
    """A network with what it needs to stay alive.

    Attributes:
        builder: The builder that it belongs to.
        network: The library's network.
        parser: The parser, which owns the weights.
        inputs: The network's inputs.
        output_names: The network's outputs.
    """

    builder: Any
    network: Any
    parser: Any
    inputs: tuple[NetworkInput, ...]
    output_names: tuple[str, ...]


def parse_network(library: Library, capabilities: Capabilities, path: Path) -> ParsedNetwork:
    """Parse the ONNX file at ``path``; weights in files beside it are found there.

    Raises:
        BackendError: The library does not take this model; the message names every node that it
            refuses, with its operator.
    """
    builder = library.new_builder()
    network = builder.create_network(_network_flags(library, capabilities))
    parser = library.module.OnnxParser(network, library.logger)
    parsed = parser.parse_from_file(str(path))
    if not parsed or parser.num_errors:
        raise BackendError(_parser_message(library, path, parser))
    return ParsedNetwork(
        builder=builder,
        network=network,
        parser=parser,
        inputs=tuple(_input(network.get_input(i)) for i in range(network.num_inputs)),
        output_names=tuple(network.get_output(i).name for i in range(network.num_outputs)),
    )


def load_plugins(library: Library, paths: Sequence[Path]) -> None:
    """Load plugin libraries, so that the parser finds what they register.

    Raises:
        BackendError: One of them cannot be loaded.
    """
    initialize = getattr(library.module, "init_libnvinfer_plugins", None)
    if initialize is not None:
        initialize(library.logger, "")
    for path in paths:
        mark = library.log.mark()
        handle = library.module.get_plugin_registry().load_library(str(path))
        if handle is None:
            said = "; ".join(library.log.errors(mark)) or "the library gave no reason"
            raise BackendError(f"cannot load the plugin library {path}: {said}")


def add_profiles(
    library: Library, parsed: ParsedNetwork, config: Any, profiles: Sequence[Profile]
) -> None:
    """Give ``config`` the optimization profiles.

    Raises:
        BackendError: The library refuses one, although it was checked before.
    """
    decides = {item.name for item in parsed.inputs if item.decides_shapes}
    for profile in profiles:
        built = parsed.builder.create_optimization_profile()
        mark = library.log.mark()
        for name, (low, usual, high) in profile.items():
            setter = built.set_shape_input if name in decides else built.set_shape
            try:
                setter(name, low, usual, high)
            except (ValueError, RuntimeError) as error:
                raise BackendError(f"the profile of input {name!r} is refused: {error}") from error
        if config.add_optimization_profile(built) < 0:
            said = "; ".join(library.log.errors(mark)) or "the library gave no reason"
            raise BackendError(f"the optimization profile is refused: {said}")


def _network_flags(library: Library, capabilities: Capabilities) -> int:
    # Precision is a property of the ONNX file; newer libraries know no other way.
    if not capabilities.weakly_typed:
        return 0
    return 1 << int(library.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED)


def _input(tensor: Any) -> NetworkInput:
    return NetworkInput(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tuple(tensor.shape),
        decides_shapes=bool(tensor.is_shape_tensor),
    )


def _parser_message(library: Library, path: Path, parser: Any) -> str:
    found = [_one_error(parser.get_error(index)) for index in range(parser.num_errors)]
    shown = "; ".join(found[:_SHOWN_ERRORS]) or "the parser gave no reason"
    more = f"; and {len(found) - _SHOWN_ERRORS} more" if len(found) > _SHOWN_ERRORS else ""
    return (
        f"{library.label} cannot take {path.name}: {shown}{more}; replace what is named, load its "
        "plugin with the option plugins, or use another backend"
    )


def _one_error(error: Any) -> str:
    text = one_line(error.desc()).removeprefix("Assertion failed: ")
    if text in ("", "false"):
        text = error.code().name.lower().replace("_", " ")
    if error.node() < 0:
        # The importer names the input where the source file would stand.
        where = f"input {error.file()!r}: " if error.func() == "importInput" else ""
        return f"{where}{text}"
    return f"node {error.node()} {error.node_name()!r} ({error.node_operator()}): {text}"
