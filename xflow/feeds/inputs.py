"""Random inputs for a model: the shapes to run it at, and values that it accepts."""

import ast
import math
import operator
import re
import zlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto

from xflow.core.errors import ModelError, UnfeedableInput, UsageError
from xflow.core.expressions import expression
from xflow.core.limits import FED_BYTES
from xflow.feeds.input_roles import Role, indexed_dimensions, input_roles, place_name
from xflow.onnx.interface import is_dimension_name, required_inputs

SEQUENCE = 2
"""Tensors in a sequence."""
MOST_OPERATIONS = 100
"""In the name of a dimension that is an expression; a longer one is a name like others."""
AT_OTHER_SIZES = (
    "give inputs on which it runs with --inputs, or sizes at which it does with --input-shapes"
)
"""Advice for the user where a model does not run on random inputs."""
FLOAT_MASK = re.compile(r"(attention|attn|padding)_?mask")
"""Names of inputs that are masks although they are real numbers."""
UNPACKED_TYPES = "int4, uint4, float4, int2 and uint2"
Shapes = Mapping[str, Sequence[int]]
OPEN = -(2**31)
"""The size in a given shape that stays open, since another one of the shape alone is known."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of dynamic dimensions: the first one of an input, those of images, and all others.

    `given` has those of single dimensions, by their names (see `free_dimensions`).
    """

    batch: int = 1
    length: int = 16
    image: int = 224
    given: Mapping[str, int] = field(default_factory=dict)


DEFAULT, OTHER = Sizes(), Sizes(2, 24, 256)
"""The sizes by default, and others to cross-check with."""
LADDER = (
    *(DEFAULT, Sizes(1, 64, 256), Sizes(1, 256, 512), Sizes(1, 1024, 640), Sizes(1, 4096)),
    *(Sizes(1, 16384), Sizes(1, 65536), OTHER, Sizes(16, 16, 32), Sizes(64, 64, 64)),
    *(Sizes(512, 512, 128), Sizes(4096, 4096), Sizes(16384, 16384), Sizes(65536, 65536)),
    *(Sizes(1, 1, 32), Sizes(1, 2, 64), Sizes(1, 7, 96)),
)
"""Sizes to try one after the other, until the model runs at some: it may need longer signals."""
OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def load_proto(source: bytes | Path) -> ModelProto:
    """Read a model without its external data; raises `ModelError` if it is none."""
    where = str(source) if isinstance(source, Path) else ""
    try:
        if isinstance(source, Path):
            model = onnx.load(source, load_external_data=False)
        else:
            model = onnx.load_from_string(source)
    except OSError as error:
        raise ModelError(f"cannot be read ({error.strerror or error})", where) from error
    except Exception as error:  # protobuf has no common type of error
        raise ModelError("is not an ONNX model", where) from error
    if not model.HasField("graph"):
        raise ModelError("is not an ONNX model", where)
    return model


def element(item: ValueInfoProto) -> ValueInfoProto:
    """Return the input, or for a sequence or an optional value one of the tensors in it."""
    kind = item.type
    while (inside := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kind = getattr(kind, inside).elem_type
    return item if kind is item.type else ValueInfoProto(name=item.name, type=kind)


def is_sequence(item: ValueInfoProto) -> bool:
    """Tell whether an input is a list of tensors, be it optional."""
    kind = item.type
    if kind.WhichOneof("value") == "optional_type":
        kind = kind.optional_type.elem_type
    return bool(kind.WhichOneof("value") == "sequence_type")


def default_shapes(
    model: ModelProto,
    shapes: Shapes | None = None,
    variant: int = 0,
    *,
    sizes: Sizes | None = None,
    tables: Container[str] | None = None,
) -> dict[str, tuple[int, ...]]:
    """Return the shape at which every required input is fed.

    `shapes` decides where it names an input, but for sizes that are `OPEN`. Other dynamic
    dimensions: the first one is 1 (a batch), height and width of images are 224, all others 16, and
    so is the first one of a table that another input indexes; a named dimension is the same
    everywhere, and a sum such as `past + 1` follows from its parts. Variant 1 differs wherever a
    size is free: 2, 256 and 24; `sizes` gives others. `tables` are the model's
    `indexed_dimensions`, if they are known. All tensors of a sequence have one shape. Raises
    `UsageError` if `shapes` names an unknown input or contradicts the model, `UnfeedableInput` if
    an input has no rank, `ModelError` if the inputs are too large for any machine.
    """
    shapes = shapes or {}
    sizes = sizes or (DEFAULT, OTHER)[variant]
    inputs = [element(item) for item in required_inputs(model)]
    names = {item.name for item in inputs}
    for name in shapes:
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise UsageError(f"the model has no input {name!r}", do=f"its inputs are: {known}")
    tables = indexed_dimensions(model) if tables is None else tables
    bound: dict[str, int] = {}
    for item in inputs:
        if item.name in shapes:
            _bind(item, tuple(shapes[item.name]), bound)
    for item in inputs:
        for axis, dim in enumerate(_dims(item, shapes)):
            if is_dimension_name(dim.dim_param) and _parts(dim.dim_param) is None:
                bound.setdefault(dim.dim_param, _default(item, axis, sizes, tables))
    result = {}
    for item in inputs:
        given = shapes.get(item.name)
        result[item.name] = tuple(
            given[axis]
            if given is not None and given[axis] != OPEN
            else _size(dim, bound, _default(item, axis, sizes, tables), sizes)
            for axis, dim in enumerate(_dims(item, shapes))
        )
    # A header may declare any size, which is checked before memory is used.
    if 8 * sum(map(math.prod, result.values())) > FED_BYTES:
        largest = max(result, key=lambda name: math.prod(result[name]))
        said = ",".join(map(str, result[largest]))
        what = f"input {largest!r} is too large to be fed at {said}"
        raise ModelError(what, do="give smaller sizes with --input-shapes")
    return result


def free_dimensions(model: ModelProto, shapes: Shapes | None = None) -> list[str]:
    """Return the names of the dimensions of inputs whose sizes are free, in their order.

    One without a name goes by its place, as `Sizes` has it.
    """
    given = shapes or {}
    inputs = [element(item) for item in required_inputs(model)]
    fixed: dict[str, int] = {}
    for item in inputs:
        if item.name in given:
            _bind(item, tuple(given[item.name]), fixed)
    found: dict[str, None] = {}
    for item in inputs:
        known = given.get(item.name)
        for axis, dim in enumerate(_dims(item, given)):
            if known is not None and known[axis] != OPEN:
                continue
            if not is_fixed(dim) and dim.dim_param not in fixed:
                tree = _parts(dim.dim_param) if is_dimension_name(dim.dim_param) else None
                names = _names_in(tree) if tree is not None else [_key(item, axis)]
                found.update(dict.fromkeys(name for name in names if name not in fixed))
    return list(found)


def free_lengths(model: ModelProto, shapes: Shapes, tables: Container[str]) -> list[str]:
    """Those of `free_dimensions` that are neither batches nor extents of images.

    `tables` are the model's `indexed_dimensions`.
    """
    marks = Sizes(1, 2, 3)
    own: dict[str, int] = {}
    for item in map(element, required_inputs(model)):
        for axis, dim in enumerate(_dims(item, shapes)):
            if not is_fixed(dim):
                own.setdefault(_key(item, axis), _default(item, axis, marks, tables))
    free = free_dimensions(model, shapes)
    return [name for name in free if own.get(name, marks.length) == marks.length]


def _names_in(tree: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _key(item: ValueInfoProto, axis: int) -> str:
    """The name of a dimension, or its place if it has none."""
    name: str = item.type.tensor_type.shape.dim[axis].dim_param
    return name if is_dimension_name(name) else place_name(item.name, axis)


def contradicted(model: ModelProto, shapes: Shapes) -> set[str]:
    """Return the names of dimensions that have several sizes in the given shapes of inputs."""
    sizes: dict[str, set[int]] = {}
    for item in map(element, required_inputs(model)):
        given = shapes.get(item.name, ())
        for dim, size in zip(item.type.tensor_type.shape.dim, given, strict=False):
            if is_dimension_name(dim.dim_param) and size != OPEN:
                sizes.setdefault(dim.dim_param, set()).add(size)
    return {name for name, found in sizes.items() if len(found) > 1}


def random_inputs(
    model: ModelProto, seed: int, shapes: Shapes | None = None, *, positive: bool = False
) -> dict[str, Any]:
    """Return random values for every required input, the same for the same arguments.

    Indices lie inside what they index, masks are ones with a tail of zeros, real numbers are
    standard normal, or with `positive` uniform between 0 and 1.  A sequence is a list of tensors.
    Values depend on the input's name and not on the order of the inputs.  Raises what
    `default_shapes` raises, and `UnfeedableInput` for a type that cannot be fed.
    """
    return Feeder.of(model, default_shapes(model, shapes)).random(seed, positive=positive)


@dataclass(frozen=True)
class Feeder:
    """Makes values for all required inputs of a model, at one setting of their shapes."""

    inputs: Sequence[ValueInfoProto]
    shapes: Mapping[str, tuple[int, ...]]
    roles: Mapping[str, Role]

    @staticmethod
    def of(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> "Feeder":
        """A feeder for a model at the shapes of all its required inputs."""
        return Feeder(required_inputs(model), shapes, input_roles(model, shapes))

    def random(self, seed: int, *, positive: bool = False) -> dict[str, Any]:
        """Random values, see `random_inputs`."""

        def draw(item: ValueInfoProto, generator: np.random.Generator) -> np.ndarray:
            role, shape = self.role(item.name), self.shapes[item.name]
            return _values(item, shape, role, generator, positive=positive)

        return self.values(seed, draw)

    def values(
        self,
        seed: int,
        draw: Callable[[ValueInfoProto, np.random.Generator], np.ndarray],
    ) -> dict[str, Any]:
        """The results of `draw` for each tensor; in a sequence there are several."""
        values: dict[str, Any] = {}
        for item in self.inputs:
            generator = np.random.default_rng([seed, zlib.crc32(item.name.encode())])
            # A value of rank 0 would else be a numpy scalar, which the runtime does not take.
            drawn = [
                np.asarray(draw(element(item), generator))
                for _ in range(SEQUENCE if is_sequence(item) else 1)
            ]
            values[item.name] = drawn if is_sequence(item) else drawn[0]
        return values

    def role(self, name: str) -> Role:
        """The role of an input, see `input_roles`."""
        return self.roles.get(name, Role())


def _dims(item: ValueInfoProto, shapes: Shapes) -> Sequence[Any]:
    """Return the declared dimensions of a tensor input, or unknown ones of the given rank."""
    kind = item.type.WhichOneof("value")
    if kind != "tensor_type":
        said = str(kind).removesuffix("_type").replace("_", " ")
        raise UnfeedableInput(f"input {item.name!r} is a {said}, and only tensors can be fed")
    if item.type.tensor_type.HasField("shape"):
        dims: Sequence[Any] = item.type.tensor_type.shape.dim
        return dims
    if item.name in shapes:
        return [onnx.TensorShapeProto.Dimension() for _ in shapes[item.name]]
    raise UnfeedableInput(
        f"input {item.name!r} has no declared rank", do="give its shape with --input-shapes"
    )


def _bind(item: ValueInfoProto, given: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Check a given shape against the declaration, and note the sizes of named dimensions.

    One name may have several: exporters give names to sizes that differ. The first one counts for
    dimensions that no shape is given of, see `contradicted`.
    """
    dims = _dims(item, {item.name: given})
    said = ",".join(map(str, given))
    if len(dims) != len(given):
        raise UsageError(f"input {item.name!r} has {len(dims)} dimensions, not those of {said}")
    for axis, (dim, size) in enumerate(zip(dims, given, strict=True)):
        where = f"dimension {axis} of input {item.name!r}"
        if size == OPEN:
            continue
        if size < 0:
            raise UsageError(f"{where} cannot be {size}")
        if is_fixed(dim) and dim.dim_value != size:
            raise UsageError(f"{where} is {dim.dim_value} in the model, not {size}")
        if is_dimension_name(dim.dim_param):
            sizes.setdefault(dim.dim_param, size)


def _default(item: ValueInfoProto, axis: int, sizes: Sizes, tables: Container[str]) -> int:
    """Return the default size of a dynamic dimension."""
    dims = item.type.tensor_type.shape.dim
    name = _key(item, axis) if axis < len(dims) else ""
    if name in sizes.given:
        return sizes.given[name]
    if axis == 0 and name not in tables:
        return sizes.batch
    if axis in _image_axes(item):
        return sizes.image
    return sizes.length


def _image_axes(item: ValueInfoProto) -> tuple[int, ...]:
    """Return the axes of height and width if the input looks like a batch of images.

    That is: 1, 3 or 4 channels, first or last, and two dynamic sizes that need not be equal (in
    attention masks, they must).
    """
    dims = item.type.tensor_type.shape.dim
    if len(dims) != 4 or item.type.tensor_type.elem_type == TensorProto.INT64:
        return ()
    for channels, axes in ((1, (2, 3)), (3, (1, 2))):
        sizes = [dims[axis] for axis in axes]
        dynamic = not any(map(is_fixed, sizes))
        named = is_dimension_name(sizes[0].dim_param)
        free = sizes[0].dim_param != sizes[1].dim_param or not named
        if dims[channels].dim_value in {1, 3, 4} and dynamic and free:
            return axes
    return ()


def is_fixed(dim: Any) -> bool:
    """Tell whether a dimension has a size; old exporters write -1 where they know none."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def _parts(name: str) -> ast.expr | None:
    """Return a dimension's name as an expression if it is one over other names, else None."""
    if re.fullmatch(r"\w+", name):
        return None
    try:
        tree = expression(name)
    except (SyntaxError, ValueError):  # or one that is too long
        return None
    if sum(isinstance(part, ast.BinOp) for part in ast.walk(tree)) > MOST_OPERATIONS:
        return None
    return tree if isinstance(tree, ast.BinOp) and _understood(tree) else None


def _understood(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp):
        known = type(tree.op) in OPERATORS
        return known and _understood(tree.left) and _understood(tree.right)
    if isinstance(tree, ast.Constant):
        return type(tree.value) is int
    return isinstance(tree, ast.Name)


def _evaluate(tree: ast.expr, bound: dict[str, int], sizes: Sizes) -> int:
    if isinstance(tree, ast.BinOp):
        left, right = _evaluate(tree.left, bound, sizes), _evaluate(tree.right, bound, sizes)
        if isinstance(tree.op, ast.FloorDiv) and right == 0:
            return 0
        return OPERATORS[type(tree.op)](left, right)
    if isinstance(tree, ast.Constant):
        return int(str(tree.value))
    assert isinstance(tree, ast.Name)
    return bound.setdefault(tree.id, sizes.given.get(tree.id, sizes.length))


def _size(dim: Any, bound: dict[str, int], default: int, sizes: Sizes) -> int:
    """Return the size of one dimension; what has no name has the default."""
    if is_fixed(dim):
        return int(dim.dim_value)
    if not is_dimension_name(dim.dim_param):
        return default
    tree = _parts(dim.dim_param)
    if dim.dim_param not in bound and tree is not None:
        return max(0, _evaluate(tree, bound, sizes))
    return bound[dim.dim_param]


def _values(
    item: ValueInfoProto,
    shape: tuple[int, ...],
    role: Role,
    generator: np.random.Generator,
    *,
    positive: bool,
) -> np.ndarray:
    """Return random values of one ONNX element type."""
    name, kind = item.name, item.type.tensor_type.elem_type
    if kind == TensorProto.STRING:
        words = [f"w{number}" for number in generator.integers(0, 100, int(np.prod(shape)))]
        return np.array(words, dtype=object).reshape(shape)
    dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    if kind == TensorProto.BOOL:
        if role.mask or "mask" in name.lower():
            return _mask(shape, generator).astype(dtype)
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        return _integers(name, dtype, shape, role, generator)
    if dtype.kind == "c":
        real, imaginary = generator.standard_normal((2, *shape))
        return np.asarray(real + 1j * imaginary, dtype)
    if dtype.kind != "f" and kind not in SHORT_FLOATS:
        raise UnfeedableInput(f"input {name!r} is of a type that cannot be fed ({UNPACKED_TYPES})")
    if role.fixed is not None:
        return np.full(shape, role.fixed).astype(dtype)
    if FLOAT_MASK.search(name.lower()):
        return _mask(shape, generator).astype(dtype)
    draw = generator.random if positive else generator.standard_normal
    return np.asarray(draw(shape)).astype(dtype)


SHORT_FLOATS = {
    TensorProto.BFLOAT16,
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ,
    TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ,
}


def _integers(
    name: str, dtype: np.dtype, shape: tuple[int, ...], role: Role, generator: np.random.Generator
) -> np.ndarray:
    """Return random integers that the model can work with."""
    if role.length is not None:
        # The longest of a batch is often taken for the length of all of them.
        least = min(max(1, 3 * role.length // 4), role.length)
        values = generator.integers(least, role.length, shape, endpoint=True)
        values.reshape(-1)[:1] = role.length
        return values.astype(dtype)
    if role.choices:
        return generator.choice(np.array(role.choices), shape).astype(dtype)
    if role.high is not None:
        return generator.integers(role.low or 0, role.high, shape, endpoint=True).astype(dtype)
    if role.fixed == -1:  # a shape for Reshape: everything along its last axis
        values = np.ones(shape, dtype)
        if values.size:
            values.reshape(-1)[-1] = -1
        return values
    if role.fixed is not None:
        return np.full(shape, role.fixed, dtype)
    if role.mask or "mask" in name.lower():
        return _mask(shape, generator).astype(dtype)
    if dtype.itemsize == 1:  # quantised data: the whole range
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    # Perhaps an index into an unknown table; 0 and 1 are valid for nearly every one.
    return generator.integers(0, 2, shape).astype(dtype)


def _mask(shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Return ones with a tail of zeros along the last axis: at most a quarter, never all."""
    if not shape or shape[-1] < 2:
        return np.ones(shape, np.int64)
    tails = generator.integers(1, max(1, shape[-1] // 4), (*shape[:-1], 1), endpoint=True)
    return (np.arange(shape[-1]) < shape[-1] - tails).astype(np.int64)
