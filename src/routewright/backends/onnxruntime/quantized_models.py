"""Int8 versions of one model: prepared and calibrated once, then written per route."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import onnx

from routewright.backends.base import Arrays, BuildFailed, RunFailed
from routewright.backends.onnxruntime.blocks import Block, find_blocks
from routewright.backends.onnxruntime.calibration import CalibrationError, activation_ranges
from routewright.backends.onnxruntime.preparation import (
    CannotPrepareError,
    PreparedModel,
    prepare,
)
from routewright.backends.onnxruntime.quantization import (
    QuantizationSettings,
    Ranges,
    activations_of,
    quantize,
)
from routewright.errors import RoutewrightError
from routewright.model import OnnxModel


class QuantizedModels:
    """Writes the int8 models that routes ask for.

    Args:
        source: The original model.
        folder: Takes intermediate files.
        samples: Returns the samples to calibrate with; called at most once, when first needed.
        threads: Threads that calibration runs with.
    """

    def __init__(
        self,
        source: OnnxModel,
        folder: Path,
        samples: Callable[[], Sequence[Arrays]],
        *,
        threads: int,
    ) -> None:
        self._source = source
        self._folder = folder
        self._samples = samples
        self._threads = threads

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks that can be quantized; empty where none can, see :attr:`reason`."""
        prepared = self._prepared
        return find_blocks(prepared) if isinstance(prepared, PreparedModel) else ()

    @property
    def reason(self) -> str | None:
        """Why there are no blocks, in one line; None if there are some."""
        if self.blocks:
            return None
        if isinstance(self._prepared, str):
            return f"no -quantize knobs: {self._prepared}"
        return (
            "no -quantize knobs: outside branches and loops, the model has no convolution, "
            "matrix product or LSTM with 32-bit float constants for weights"
        )

    def write(self, blocks: Sequence[Block], settings: QuantizationSettings, path: Path) -> int:
        """Write the model with ``blocks`` in int8 and return how many nodes are quantized.

        Raises:
            BuildFailed: It cannot be calibrated or written.
        """
        prepared = self._prepared
        if not isinstance(prepared, PreparedModel):
            raise BuildFailed("unsupported", prepared)
        ranges: Ranges | str = {}
        if not all(settings.is_dynamic(block.kind) for block in blocks):
            ranges = self._ranges
        if isinstance(ranges, str):
            raise BuildFailed("unsupported", f"cannot quantize: {ranges}")
        nodes = {index for block in blocks for index in block.nodes}
        quantized = quantize(prepared, nodes, ranges, settings)
        onnx.save(quantized.model, path)
        return quantized.nodes

    @cached_property
    def _prepared(self) -> PreparedModel | str:
        try:
            return prepare(self._source, self._folder)
        except CannotPrepareError as error:
            return str(error)

    @cached_property
    def _ranges(self) -> Ranges | str:
        """Ranges of all that any route may need, so that one calibration does; or why not."""
        if isinstance(self._prepared, str):
            return self._prepared
        nodes = [index for block in self.blocks for index in block.nodes]
        try:
            return activation_ranges(
                self._prepared.model,
                activations_of(self._prepared, nodes),
                self._samples(),
                self._folder,
                threads=self._threads,
            )
        except (CalibrationError, RoutewrightError, RunFailed) as error:
            return str(error)
