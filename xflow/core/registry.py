"""Operators: one declaration each, from which everything else is derived.

A declaration holds the ONNX mapping, `shape` (over integers and symbols alike), `at` (what one
output element is), `numpy` (an independent, fast reading), cost features and examples. No other
module knows what an operator means.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xflow.core.constraint import Constraint, equal
from xflow.core.errors import ShapeError
from xflow.core.intervals import Floats, Range
from xflow.core.size import Expr, Size, product
from xflow.core.sorts import BOOL, CODE, ELEMENT, REAL, SINGLE, sort_of, suits
from xflow.core.spec import Index, Scalar

Shape: TypeAlias = tuple[Size, ...]
Array: TypeAlias = NDArray[Any]
Reader: TypeAlias = Callable[[Index], Scalar]


@dataclass(frozen=True)
class RealSymbol:
    """An unknown real attribute of a rule, such as an epsilon."""

    name: str

    def __str__(self) -> str:
        return self.name


Attribute: TypeAlias = Size | tuple[Size, ...] | Fraction | RealSymbol | str
"""The value of an attribute: an integer, integers, a rational real, a symbol for one, a word."""

Attributes: TypeAlias = Mapping[str, Attribute]


class Kind(Enum):
    """What sort of thing an attribute is; rules and matching treat kinds alike everywhere."""

    INT = "int"
    INTS = "ints"
    AXIS = "axis"
    """One axis; stored non-negative."""
    AXES = "axes"
    """Several axes; stored non-negative and ascending."""
    PERMUTATION = "permutation"
    REAL = "real"
    TEXT = "text"
    """A word that chooses a meaning, such as a mode: always literal, and equal or not."""


@dataclass(frozen=True)
class AttributeSpec:
    """Declaration of an attribute: its kind and its default.

    `default` is a value, a function of the inputs' shapes, or None: it must be given.
    A `flag` is 0 or 1 and chooses between meanings: it is a literal, never a symbol.
    """

    kind: Kind
    default: Any = None
    flag: bool = False

    def default_for(self, shapes: Sequence[Shape]) -> Attribute | None:
        """The default at these input shapes; None where there is none."""
        value: Attribute | None = self.default(shapes) if callable(self.default) else self.default
        return value


class Need:
    """Collects what an operator requires of its inputs beyond their number and rank.

    With integers a requirement is decided at once and raises ShapeError if it fails; with
    symbols it is recorded in `conditions`.
    """

    def __init__(self) -> None:
        self.conditions: list[Constraint] = []

    def __call__(self, condition: Constraint, reason: str) -> None:
        """Require `condition`; `reason` is the requirement in words."""
        if condition.decided is False:
            raise ShapeError(reason)
        if condition.decided is None and condition not in self.conditions:
            self.conditions.append(condition)


def require(holds: bool, reason: str) -> None:
    """Raise ShapeError(reason) unless `holds`: for what sizes do not decide, such as ranks."""
    if not holds:
        raise ShapeError(reason)


@dataclass(frozen=True)
class OnnxCall:
    """An ONNX node in neutral form, as `from_onnx` reads and `to_onnx` writes it.

    `attributes` are plain Python values (int, float, str, lists of them). `inputs` are positions
    of the operator's own inputs: in `from_onnx` every ONNX input has a shape in `shapes` (None
    for an omitted input) and, if it is a known constant, an array in `constants`. In `to_onnx`,
    `constants` are the parameter inputs to be added, by ONNX input position; one in float64 is
    converted to the element type of the output, others stay as they are.
    """

    op_type: str
    opset: int
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    shapes: tuple[Shape | None, ...] = ()
    constants: Mapping[int, Array] = field(default_factory=dict)
    outputs: int = 1
    types: tuple[str | None, ...] = ()
    """ONNX names of the inputs' element types; empty where nobody asked."""
    computed: Mapping[int, Shape] = field(default_factory=dict)
    """In `from_onnx`: inputs that are vectors of sizes, which depend on the model's dimensions."""
    positions: tuple[int, ...] = ()
    """In `to_onnx`: the ONNX positions of the operator's own inputs, where they are not in a row.
    Those between are omitted."""

    def own_inputs(self, own: int) -> tuple[int | None, ...]:
        """For each ONNX input the one of `own` inputs of ours that it is.

        None for a constant, and for one that may be named but is omitted.
        """
        if self.positions:
            given = self.positions[:own]
        else:
            count = max(own + len(self.constants), 0, *(k + 1 for k in self.constants))
            given = tuple(k for k in range(count) if k not in self.constants)[:own]
        count = max((k + 1 for k in (*given, *self.constants)), default=0)
        numbers = {position: number for number, position in enumerate(given)}
        return tuple(numbers.get(position) for position in range(count))


@dataclass(frozen=True)
class Example:
    """Shapes and attributes at which tests hold an operator's readings against each other."""

    shapes: tuple[tuple[int, ...], ...]
    attributes: Attributes = field(default_factory=dict)
    types: tuple[str, ...] = ()
    """Sorts of the inputs; empty: as the operator takes them, real where it takes any."""


CONTRIB = "com.microsoft"
"""The domain of ONNX Runtime's own operators. It has one version."""

ROLES = (
    *("attention", "rotation", "normalization", "activation", "softmax"),
    *("contraction", "convolution", "view"),
)
"""Roles of operators. A contraction sums products of two inputs; a view only changes the shape."""


class Operator:
    """One operator. Subclasses declare; the registry holds one instance of each.

    Inputs and outputs are tensors of reals unless `takes`, `gives` and `sorts` say otherwise.
    Everything that ONNX passes as a constant input but that determines a shape (axes, pads, split,
    shape) is an attribute here. A Boolean element is a `Scalar` made of choices between 1 and 0,
    see `xflow.core.spec.choose`. What is abstract the type checker sees to: of a class made by
    `ABCMeta`, asking whether a node has an operator takes three times as long.
    """

    name: ClassVar[str]
    """Name in rules and reports; equal to the ONNX op_type where there is one."""
    op_type: ClassVar[str] = ""
    """ONNX op_type; empty for what exists only in rules (identity matrices and the like)."""
    domain: ClassVar[str] = ""
    since: ClassVar[int] = 1
    """First opset whose meaning of op_type is the declared one (modulo from_onnx/to_onnx)."""
    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    """Least and largest number of inputs; None: any number."""
    attributes: ClassVar[Mapping[str, AttributeSpec]] = {}
    parameters: ClassVar[Mapping[str, int]] = {}
    """Attributes that ONNX passes as a constant input, with its position."""
    computed: ClassVar[Mapping[str, int]] = {}
    """Attributes that ONNX takes as an input that may be computed from shapes, with its position:
    the sizes of the output."""
    elementwise: ClassVar[bool] = False
    """Acts on elements alone, with ONNX broadcasting, whatever the shape."""
    adds_axes: ClassVar[bool] = False
    """Whether its axes are those of the output that the input does not have."""
    takes: ClassVar[tuple[str, ...]] = (ELEMENT,)
    """Element types of the inputs: ``T``, one type for all, or ``BOOL``, ``INT`` or ``CODE``. The
    last one repeats."""
    gives: ClassVar[tuple[str, ...]] = (ELEMENT,)
    """Element types of the outputs, likewise."""
    sorts: ClassVar[frozenset[str]] = frozenset({REAL})
    """What ``T`` may be: the sorts of numbers for which ONNX means what `at` and `numpy` say.
    ``INT`` needs that this is so for integers that wrap around."""
    role: ClassVar[str] = ""
    """What it is to somebody who looks at a model: one of `ROLES`, or nothing of note."""
    commutative: ClassVar[bool] = False
    """The value does not depend on the order of the inputs (only a hint, proved in tests)."""
    weights_along: ClassVar[str | None] = None
    """The attribute that names an axis along which the result consists of weights, which sum to 1,
    of which those of elements that are -inf are 0."""
    mask: ClassVar[int | None] = None
    """The input in which the runtime's kernel takes the least float for -inf, see
    `xflow.analysis.value_rewrites.least_float_masks`."""
    nan_by_place: ClassVar[bool] = False
    """Whether what the kernel makes of a NaN that it hides, see `hides`, depends on where elements
    stand: ONNX Runtime's maxima drop a NaN, or what was found before it."""
    narrow: ClassVar[bool] = False
    """Whether the runtime's kernel computes in between in the type of the tensors. What defines the
    operator it computes in FLOAT, so that in narrower types the kernel overflows before that."""
    is_spelled_out: ClassVar[bool] = False
    """Whether the runtime's kernel runs other operators, one after the other: the search brings
    none in, since those do as well and leave more to be fused."""
    steps: ClassVar[bool] = False
    """Whether it makes integers, as floats, of floats, which a rounding of its input may change."""
    as_defined: ClassVar[bool] = False
    """Whether its kernel is that of an operator in its definition, and makes of what is no number
    what that one makes of it."""
    folds: ClassVar[bool] = True
    """Whether it is computed once, when the model is written, where its inputs are constants."""
    schematic: ClassVar[bool] = False
    """Whether it stands in rules for any operator with some property, and no model has it."""
    examples: ClassVar[Sequence[Example]] = ()

    def with_computed(self, attributes: Attributes, opset: int) -> OnnxCall | None:
        """The ONNX node that takes the attribute in `computed` as an input; None if none does."""
        return OnnxCall(self.op_type, opset, self.domain)

    def stands_for(self, op: object, attributes: Attributes, dtype: str) -> bool:
        """Whether nodes of `op` with these attributes, of elements of that type, may be where a
        rule has this operator.
        """
        return op is self

    @abstractmethod
    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        """The shapes of the outputs. Raises ShapeError; reports requirements through `need`."""

    @abstractmethod
    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        """The element of output number `output` at `index`, from elements of the inputs.

        `shapes` are the inputs' shapes. Every access is in bounds for an index in bounds.
        """

    @abstractmethod
    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        """The outputs on concrete arrays; independent of `at`, and fast."""

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        """Arithmetic operations at these shapes; by default one an output element."""
        return sum((product(shape) for shape in outputs), start=0)

    def packed(
        self, shapes: Sequence[Shape], outputs: Sequence[Shape], constant: Sequence[bool]
    ) -> Size:
        """How many elements are put into another order in each run, before they are multiplied.

        `constant` says which inputs are known before.
        """
        return 0

    def tasks(self, shapes: Sequence[Shape], attributes: Attributes) -> Size | None:
        """How many parts the runtime shares out among threads; None: as many as it takes."""
        return None

    def work(
        self, shapes: Sequence[Shape], attributes: Attributes
    ) -> tuple[str, tuple[Shape, ...]]:
        """An operator and shapes of its inputs on which the runtime's kernel works as long.

        One for all forms of a kernel that take different inputs for the same: by default, that
        operator and its own inputs.
        """
        return self.name, tuple(shapes)

    def element_types(
        self, inputs: Sequence[str], attributes: Attributes, dtype: str
    ) -> tuple[str, ...]:
        """The element types of the outputs (the last one repeats) for those of the inputs.

        They are sorts or ONNX names; `dtype` is what ``T`` is where no input says it. Raises
        ShapeError where the operator does not take these types.
        """
        element = self._bind(inputs) or dtype
        if ELEMENT in (*self.takes, *self.gives) and not suits(element, self.sorts):
            raise ShapeError(f"{self.name} takes no elements of type {element}")
        return tuple(element if given == ELEMENT else given for given in self.gives)

    def _bind(self, inputs: Sequence[str]) -> str | None:
        """What ``T`` is for inputs of these types; None where no input says it."""
        element: str | None = None
        for position, dtype in enumerate(inputs):
            taken = self.taken(position)
            if taken == ELEMENT:
                if element is not None and dtype != element:
                    raise ShapeError(f"the inputs of {self.name} differ in element type")
                element = dtype
            elif sort_of(dtype) != taken:
                words = {BOOL: "Booleans", CODE: "integers of 8 bits"}.get(taken, "integers")
                raise ShapeError(f"input {position} of {self.name} must be {words}, not {dtype}")
        return element

    def taken(self, position: int) -> str:
        """The element type of an input: ``T``, ``BOOL``, ``INT`` or ``CODE``."""
        return self.takes[min(position, len(self.takes) - 1)]

    def sort(self, position: int) -> str:
        """The sort of an input in a rule that is over reals where it may be."""
        taken = self.taken(position)
        return REAL if taken == ELEMENT else taken

    def ranges(
        self, shapes: Sequence[Shape], attributes: Attributes
    ) -> Mapping[int, tuple[Size, Size]]:
        """Inputs whose elements are indices: ``(low, high)`` for ``low <= element < high``.

        The operator is not defined where one of them is not in its range.
        """
        return {}

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range | None:
        """What is known of the elements of the result beyond what the specification tells.

        `inputs` are the ranges of the inputs, `floats` the arithmetic of the result's type. None:
        nothing. Declared for operators whose kernels avoid what their definitions do on the way,
        such as the overflow of an exponential, and for results in a narrow range.
        """
        return None

    def hides(self, shapes: Sequence[Shape], attributes: Attributes) -> tuple[int, ...]:
        """The inputs of which the kernel makes numbers where the specification has none.

        Of elements that are NaN or infinite, that is, or by not reading them at all.
        """
        return ()

    def demanded(self, shapes: Sequence[Shape], attributes: Attributes) -> Sequence[Constraint]:
        """Of what `shape` requires, what ONNX Runtime demands as well before it runs the operator.

        It holds wherever a model with the operator gives anything.
        """
        return ()

    def observed(self, array: Array) -> Mapping[str, Attribute] | None:
        """Of a constant operator: what data says of its attributes; None: it cannot be this."""
        return {}

    def canonical(self, attributes: Attributes, shapes: Sequence[Shape]) -> Attributes:
        """The one way to write complete attributes that mean the same. Raises ShapeError."""
        return attributes

    def stored(self, name: str, dtype: str) -> str:
        """The element type in which ONNX stores a real attribute, for elements of type `dtype`."""
        return SINGLE if self.op_type and name not in self.parameters else dtype

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        """Attributes, and the ONNX input positions that are our inputs; None: not understood.

        The default takes attributes by name, parameters from constant inputs, and every other
        input as it comes.
        """
        found: dict[str, Attribute] = {}
        rank = len(call.shapes[0]) if call.shapes and call.shapes[0] is not None else 0
        for name, spec in self.attributes.items():
            position = self.parameters.get(name)
            if (
                position is not None
                and position < len(call.shapes)
                and call.shapes[position] is not None
            ):
                if position not in call.constants:
                    return None
                value: Any = call.constants[position].tolist()
            elif name in call.attributes:
                value = call.attributes[name]
            else:
                continue  # the default, which `graph.apply` fills in
            if spec.kind is Kind.REAL and not math.isfinite(value):
                return None
            found[name] = normalise_attribute(spec.kind, value, rank)
        known = {*self.attributes, *self.ignored}
        if any(name not in known for name in call.attributes):
            return None
        taken = set(self.parameters.values())
        positions = tuple(i for i in range(len(call.shapes)) if i not in taken)
        while positions and call.shapes[positions[-1]] is None:
            positions = positions[:-1]  # an optional input that is named but empty
        if any(call.shapes[i] is None for i in positions):
            return None
        return found, positions

    ignored: ClassVar[frozenset[str]] = frozenset()
    """ONNX attributes without influence on the meaning at inference."""

    also: ClassVar[tuple[str, ...]] = ()
    """Other ONNX operators of the domain whose nodes may be this operator."""

    def has_form(self, attributes: Attributes) -> bool:
        """Whether ONNX, or the runtime's kernel, has the operator with these attributes.

        It may all the same have none for some shapes, or in an opset, see `to_onnx`.
        """
        return True

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        """The ONNX call for concrete attributes at `opset`; None where there is none."""
        if not is_concrete(attributes):
            return None
        plain: dict[str, Any] = {}
        constants: dict[int, Array] = {}
        for name, value in attributes.items():
            if name in self.parameters:
                constants[self.parameters[name]] = np.asarray(value, dtype=np.int64)
            elif isinstance(value, tuple):
                plain[name] = [v for v in value if isinstance(v, int)]
            elif isinstance(value, Fraction):
                plain[name] = float(value)
            else:
                plain[name] = value
        return OnnxCall(self.op_type, opset, self.domain, plain, tuple(shapes), constants)

    def __repr__(self) -> str:
        return self.name


def normalise_attribute(kind: Kind, value: Any, rank: int) -> Attribute:
    """An ONNX attribute value in our form: axes non-negative, reals as exact fractions."""
    if kind is Kind.REAL:
        return Fraction(value)
    if kind is Kind.TEXT:
        return str(value)
    if kind is Kind.INT:
        return int(value)
    if kind is Kind.AXIS:
        return int(value) + rank if value < 0 else int(value)
    if kind is Kind.AXES:
        return tuple(sorted(int(v) + rank if v < 0 else int(v) for v in np.atleast_1d(value)))
    return tuple(int(v) for v in np.atleast_1d(value))


def is_concrete(attributes: Attributes) -> bool:
    """Whether no attribute holds a symbol."""
    return not any(
        isinstance(part, Expr | RealSymbol)
        for value in attributes.values()
        for part in (value if isinstance(value, tuple) else (value,))
    )


_REGISTRY: dict[str, Operator] = {}


def register(cls: type[Operator]) -> type[Operator]:
    """Class decorator: add the operator to the registry under its name."""
    assert cls.name not in _REGISTRY, cls.name
    _REGISTRY[cls.name] = cls()
    return cls


def operator(name: str) -> Operator:
    """The operator called `name`. Raises KeyError."""
    return _REGISTRY[name]


def operators() -> tuple[Operator, ...]:
    """All operators, by name."""
    return tuple(_REGISTRY[name] for name in sorted(_REGISTRY))


def by_onnx(op_type: str, domain: str, opset: int) -> tuple[Operator, ...]:
    """The operators that may read an ONNX node of this type at this opset."""
    return tuple(
        op
        for op in operators()
        if op_type in (op.op_type, *op.also) and op.domain == domain and op.since <= opset
    )


def broadcast(shapes: Sequence[Shape], need: Need) -> Shape:
    """The common shape under ONNX broadcasting; sizes that are not literally 1 must agree."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Size] = []
    for axis in range(-rank, 0):
        size: Size = 1
        for shape in shapes:
            if len(shape) < -axis or shape[axis] == 1:
                continue
            if size == 1:
                size = shape[axis]
            elif size != shape[axis]:
                need(equal(size, shape[axis]), f"sizes {size} and {shape[axis]} do not broadcast")
        result.append(size)
    return tuple(result)


def broadcast_index(shape: Shape, index: Index) -> Index:
    """The index at which an input of `shape` is read for the output's `index`."""
    aligned = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else i for size, i in zip(shape, aligned, strict=True))
