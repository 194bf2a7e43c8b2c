"""Sample sets: the inputs that engines are checked and timed with, and their reference outputs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from routewright.errors import SampleError
from routewright.npz_files import FileContent, Tensors, write_npz
from routewright.sample_files import read_file, read_raw
from routewright.synthetic import InputRange, generate_inputs, parse_input_range
from routewright.tensors import (
    NUMPY_DTYPES,
    Array,
    Shape,
    TensorSpec,
    as_strings,
    describe_shape,
    did_you_mean,
    is_wider_float,
    number_range,
    onnx_dtype,
    printable,
    raw_bytes,
)

__all__ = ["InputRange", "SampleSet", "Source", "parse_input_range"]

Source = str | os.PathLike[str]
"""A sample file or folder; a string may also be ``name:file.bin``."""


@dataclass(frozen=True)
class SampleSet:
    """Inputs by name for each sample, and the outputs that a perfect engine gives for them.

    Strings are object arrays of ``str``; every other element type is as
    :data:`routewright.tensors.NUMPY_DTYPES` says.

    Attributes:
        inputs: One mapping per sample, at least one; an empty mapping for a model without inputs.
        references: Reference outputs, one mapping per sample, or None while there are none.
        synthetic: Whether the inputs were made up.
        notes: What a reader should know about the inputs, one line each.
    """

    inputs: tuple[Tensors, ...]
    references: tuple[Tensors, ...] | None = None
    synthetic: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.inputs:
            raise SampleError("the sample set is empty; give at least one sample")
        if self.references is not None and len(self.references) != len(self.inputs):
            raise SampleError(
                f"there are {len(self.inputs)} samples but {len(self.references)} sets of "
                "reference outputs; give one for each"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    @classmethod
    def generate(
        cls,
        inputs: Sequence[TensorSpec],
        shapes: Mapping[str, Shape],
        *,
        count: int = 1,
        seed: int = 0,
        ranges: Mapping[str, InputRange] | None = None,
    ) -> SampleSet:
        """Make up ``count`` samples; see :func:`routewright.synthetic.generate_inputs`.

        Raises:
            SampleError: An input cannot be made up, or a range does not fit it.
        """
        samples, notes = generate_inputs(
            inputs, shapes, count=count, seed=seed, ranges=ranges or {}
        )
        return cls(samples, synthetic=bool(inputs), notes=notes)

    @classmethod
    def load(
        cls,
        sources: Source | Sequence[Source],
        *,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec] = (),
        shapes: Mapping[str, Shape] | None = None,
        references: Source | Sequence[Source] = (),
    ) -> SampleSet:
        """Load samples and check them against the model.

        A source is an ``.npz`` file (layout: :mod:`routewright.npz_files`), a JSON file or
        folder of ``polygraphy run --save-inputs``, or ``name:file.bin`` with the raw bytes of one
        input. Several sources are several samples, except that raw files of different inputs
        make up one sample; the second file of an input starts the second sample.

        Args:
            sources: Where the inputs are, and references marked as such.
            inputs: The model's inputs.
            outputs: The model's outputs; none: references are not checked.
            shapes: Shapes of inputs that the model leaves open, for raw files.
            references: Where the reference outputs are, in the same forms; they take the place
                of those in ``sources``.

        Raises:
            SampleError: A file cannot be read, or does not fit the model.
        """
        read = _read(_as_list(sources), inputs, _raw_shapes(inputs, inputs, shapes), "--samples")
        references = _as_list(references)
        if references:
            shapes_by_output = _raw_shapes(outputs, inputs, shapes)
            given = _read(references, outputs, shapes_by_output, "--references")
            expected = given.references or given.plain
        else:
            expected = read.references
        samples = read.plain
        if not samples and not inputs:
            samples = [{}] * max(1, len(expected))
        if not samples:
            raise SampleError(
                f"there are no inputs in {', '.join(str(source) for source in _as_list(sources))}"
            )
        loaded = cls(
            tuple(samples), tuple(expected) if expected else None, read.synthetic, read.notes
        )
        return loaded.check_against(inputs, outputs)

    def save(self, path: Source) -> None:
        """Write everything to one ``.npz`` file, atomically; :meth:`load` gives it back.

        Raises:
            StorageError: The folder is missing, not writable or full.
        """
        write_npz(
            Path(path), self.inputs, self.references, synthetic=self.synthetic, notes=self.notes
        )

    def with_references(self, references: Iterable[Mapping[str, Array]]) -> SampleSet:
        """Return the same samples with these reference outputs.

        Raises:
            SampleError: There is not one for each sample.
        """
        return replace(self, references=tuple(dict(outputs) for outputs in references))

    def check_against(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec] = ()
    ) -> SampleSet:
        """Return this set with every tensor in the model's element type and C order.

        Names must be exactly the model's. The element type must be the declared one, except
        that int64 is narrowed to int32 where every value fits, bytes of a type that the file
        format does not know (``V2`` for bfloat16) are taken for it, and a reference output may be
        of a wider floating-point type. Inputs must have the declared rank and fixed sizes, and
        one size per symbol. Shapes of references are left to the comparison, as exporters often
        declare output shapes wrongly.

        Args:
            inputs: The model's inputs.
            outputs: The model's outputs; none: references are not checked.

        Raises:
            SampleError: Something does not fit: what, expected against given.
        """
        checked = tuple(
            _checked(tensors, inputs, f"sample {index}: input", shapes_too=True, outputs=outputs)
            for index, tensors in enumerate(self.inputs)
        )
        references = self.references
        if references is not None and outputs:
            references = tuple(
                _checked(tensors, outputs, f"sample {index}: reference output", shapes_too=False)
                for index, tensors in enumerate(references)
            )
        notes = tuple(dict.fromkeys((*self.notes, *_nothing_finite(checked))))
        return replace(self, inputs=checked, references=references, notes=notes)

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The shapes of the first sample's inputs."""
        return {name: array.shape for name, array in self.inputs[0].items()}

    @cached_property
    def inputs_digest(self) -> str:
        """SHA-256 over the inputs: names, element types, shapes and values, in order."""
        return _digest(self.inputs)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over inputs and references; where they came from plays no part."""
        references = "none" if self.references is None else _digest(self.references)
        return hashlib.sha256(f"{self.inputs_digest} {references}".encode()).hexdigest()


def _as_list(sources: Source | Sequence[Source]) -> list[Source]:
    return [sources] if isinstance(sources, str | os.PathLike) else list(sources)


def _raw_shapes(
    specs: Sequence[TensorSpec],
    inputs: Sequence[TensorSpec],
    shapes: Mapping[str, Shape] | None,
) -> dict[str, tuple[int | None, ...] | None]:
    """Return what is known of each tensor's shape once the inputs have ``shapes``."""
    shapes = shapes or {}
    symbols: dict[str, int] = {}
    for spec in inputs:
        for declared, size in zip(spec.shape or (), shapes.get(spec.name, ()), strict=False):
            if isinstance(declared, str):
                symbols[declared] = size
    known: dict[str, tuple[int | None, ...] | None] = {}
    for spec in specs:
        if spec.name in shapes and specs is inputs:
            known[spec.name] = shapes[spec.name]
        elif spec.shape is None:
            known[spec.name] = None
        else:
            known[spec.name] = tuple(
                symbols.get(dim) if isinstance(dim, str) else dim for dim in spec.shape
            )
    return known


def _read(
    sources: Sequence[Source],
    specs: Sequence[TensorSpec],
    shapes: Mapping[str, tuple[int | None, ...] | None],
    option: str,
) -> FileContent:
    names = {spec.name: spec for spec in specs}
    plain: list[Tensors] = []
    references: list[Tensors] = []
    raw: dict[str, list[Array]] = {}
    synthetic = False
    notes: list[str] = []
    for source in sources:
        found = _raw_source(source, names)
        if found is not None:
            name, file = found
            if name not in names:
                what = "input" if option == "--samples" else "output"
                raise SampleError(
                    f"{option} {source}: the model has no {what} {name!r}; "
                    f"{did_you_mean(name, names)}"
                )
            array = read_raw(Path(file), names[name], shapes[name], option=option)
            raw.setdefault(name, []).append(array)
            continue
        content = read_file(Path(source), names)
        plain += content.plain
        references += content.references
        synthetic |= content.synthetic
        notes += content.notes
    counts = {name: len(arrays) for name, arrays in raw.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} {count}" for name, count in sorted(counts.items()))
        raise SampleError(
            f"every sample needs one raw file for each tensor, but their numbers differ: {listed}"
        )
    for index in range(max(counts.values(), default=0)):
        plain.append({name: arrays[index] for name, arrays in raw.items()})
    return FileContent(plain, references, synthetic, tuple(dict.fromkeys(notes)))


def _raw_source(source: Source, names: Mapping[str, TensorSpec]) -> tuple[str, str] | None:
    """Return name and file of ``name:file``, or None for anything else."""
    if not isinstance(source, str) or ":" not in source or os.path.exists(source):
        return None
    fitting = [name for name in names if source.startswith(f"{name}:")]
    # Names and paths may both hold colons; an existing file decides, then the longest name.
    fitting.sort(key=lambda name: (os.path.isfile(source[len(name) + 1 :]), len(name)))
    if fitting:
        return fitting[-1], source[len(fitting[-1]) + 1 :]
    name, _, file = source.rpartition(":")
    return name, file


def _checked(
    tensors: Mapping[str, Array],
    specs: Sequence[TensorSpec],
    what: str,
    *,
    shapes_too: bool,
    outputs: Sequence[TensorSpec] = (),
) -> Tensors:
    names = [spec.name for spec in specs]
    unknown = sorted(set(tensors) - set(names))
    if unknown and unknown[0] in {spec.name for spec in outputs}:
        raise SampleError(
            f"{what} {unknown[0]!r} is an output of the model; name the array "
            f"{printable('reference/' + unknown[0])} or give it with --references"
        )
    if unknown:
        raise SampleError(
            f"{what} {unknown[0]!r} is not in the model; {did_you_mean(unknown[0], names)}"
        )
    missing = [name for name in names if name not in tensors]
    if missing:
        given = ", ".join(map(repr, sorted(tensors))) or "nothing"
        raise SampleError(f"{what} {missing[0]!r} is missing; given: {given}")
    symbols: dict[str, tuple[int, str]] = {}
    fitted: Tensors = {}
    for spec in specs:
        label = f"{what} {spec.name!r}"
        array = _fit_dtype(tensors[spec.name], spec, label, wider=not shapes_too)
        if shapes_too:
            _check_shape(array, spec, label, symbols)
        fitted[spec.name] = np.asarray(array, order="C")
    return fitted


def _nothing_finite(samples: Sequence[Tensors]) -> Iterator[str]:
    """Say which inputs are NaN or infinite throughout: any engine agrees on what follows."""
    for index, tensors in enumerate(samples):
        for name, array in tensors.items():
            if array.size and array.dtype.kind == "f" and not np.isfinite(array).any():
                yield (
                    f"sample {index}: input {name!r} holds no finite number; "
                    "what engines make of it says nothing about accuracy"
                )


def _fit_dtype(array: Array, spec: TensorSpec, label: str, *, wider: bool) -> Array:
    given = onnx_dtype(array.dtype)
    declared = spec.dtype
    if declared.startswith("optional(") and declared.count("(") == 1:
        declared = declared.removeprefix("optional(").removesuffix(")")
    if given == "string":
        try:
            array = as_strings(array)
        except ValueError as error:
            raise SampleError(f"{label} is not a string tensor: {error}") from error
    if declared == "undefined" and given in NUMPY_DTYPES:
        return array
    wanted = NUMPY_DTYPES.get(declared)
    if wanted is None:
        raise SampleError(
            f"{label} is of type {spec.dtype}, which sample sets cannot hold; tune a model that "
            "takes tensors"
        )
    if given == declared:
        return array.astype(wanted, copy=False)
    if array.dtype.type is np.void and not array.dtype.names and _is_extension(wanted):
        if array.dtype.itemsize == wanted.itemsize:
            return array.view(wanted)
    elif (given, declared) == ("int64", "int32"):
        low, high = number_range("int32")
        if array.size == 0 or (array.min() >= low and array.max() <= high):
            return array.astype(wanted)
        raise SampleError(
            f"{label} must be int32 and is int64 with values beyond int32, {array.min()} to "
            f"{array.max()}"
        )
    elif wider and is_wider_float(given, declared):
        return array
    raise SampleError(
        f"{label} must be {_numpy_name(declared)} and is {_numpy_name(given)}; convert it before "
        "saving"
    )


def _numpy_name(dtype: str) -> str:
    return "string" if dtype == "string" else str(NUMPY_DTYPES.get(dtype, dtype))


def _is_extension(dtype: np.dtype[np.generic]) -> bool:
    return dtype.isbuiltin == 2


def _check_shape(
    array: Array, spec: TensorSpec, label: str, symbols: dict[str, tuple[int, str]]
) -> None:
    if spec.shape is None:
        return
    given = describe_shape(array.shape)
    declared = describe_shape(spec.shape)
    if array.ndim != len(spec.shape):
        raise SampleError(
            f"{label} must have {len(spec.shape)} axes, {declared}, and has {array.ndim}, {given}"
        )
    for axis, (wanted, size) in enumerate(zip(spec.shape, array.shape, strict=True)):
        if isinstance(wanted, int) and wanted != size:
            raise SampleError(f"{label} must have shape {declared} and has {given}")
        if isinstance(wanted, str):
            known, source = symbols.setdefault(wanted, (size, f"{label} axis {axis}"))
            if known != size:
                raise SampleError(
                    f"{label} axis {axis} and {source} share the size {wanted!r} but have {size} "
                    f"and {known}"
                )


def _digest(samples: Sequence[Mapping[str, Array]]) -> str:
    digest = hashlib.sha256(f"{len(samples)} samples\n".encode())
    for sample in samples:
        digest.update(f"{len(sample)} tensors\n".encode())
        for name in sorted(sample):
            array = sample[name]
            encoded = name.encode()
            digest.update(f"{len(encoded)} ".encode() + encoded)
            digest.update(f" {onnx_dtype(array.dtype)} {list(array.shape)}\n".encode())
            if onnx_dtype(array.dtype) != "string":
                digest.update(raw_bytes(array.astype(array.dtype.newbyteorder("="), copy=False)))
                continue
            for item in as_strings(array).reshape(-1).tolist():
                text = item.encode("utf-8", "surrogatepass")
                digest.update(f"{len(text)} ".encode() + text)
    return digest.hexdigest()
