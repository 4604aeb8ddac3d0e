"""Counterexamples: a case in which the two sides of a rule differ, for a person to run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from xflow.core.evaluation import run
from xflow.core.graph import walk
from xflow.core.node import Leaf, Value, format_attribute, format_value
from xflow.core.registry import Array, Attribute, Operator
from xflow.core.sorts import BOOL, CODE, INT, REAL
from xflow.rewriting.declarations import SUFFIXES
from xflow.rewriting.instance import Instance
from xflow.rewriting.rule import Rule


@dataclass(frozen=True)
class Counterexample:
    """Sizes, attributes, inputs and both outputs of a case in which the sides of a rule differ.

    `left` and `right` are the sides with numbers for all symbols. `right_outputs` is None where
    the right side is not defined; `reason` then says what it lacks.
    """

    rank: int
    sizes: Mapping[str, int]
    reals: Mapping[str, Fraction]
    inputs: Mapping[str, Array]
    reason: str
    left: str
    right: str
    left_outputs: tuple[Array, ...]
    right_outputs: tuple[Array, ...] | None

    @property
    def is_of_nothing(self) -> bool:
        """Whether an input has no elements: such sides may agree everywhere else."""
        return any(array.size == 0 for array in self.inputs.values())

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {value}" for name, value in sorted(self.sizes.items()))
        parts = [f"with {sizes}", self.reason] if sizes else [self.reason]
        parts += [f"{name} = {value}" for name, value in sorted(self.reals.items())]
        for name, array in self.inputs.items():
            shown = np.array2string(array, separator=", ", threshold=64, max_line_width=100)
            parts.append(f"{name} = {' '.join(shown.split())}")
        return "; ".join(parts)

    @property
    def numbers(self) -> dict[str, int | Fraction]:
        """The value of every symbol, sizes first."""
        return {**dict(sorted(self.sizes.items())), **dict(sorted(self.reals.items()))}

    def to_json(self) -> dict[str, object]:
        """The case as JSON has it; elements that are no numbers become their names."""
        right = self.right_outputs
        return {
            "rank": self.rank,
            "sizes": dict(sorted(self.sizes.items())),
            "reals": {name: str(value) for name, value in sorted(self.reals.items())},
            "reason": self.reason,
            "left": self.left,
            "right": self.right,
            "inputs": {name: _plain(array) for name, array in self.inputs.items()},
            "left_outputs": [_plain(array) for array in self.left_outputs],
            "right_outputs": None if right is None else [_plain(array) for array in right],
        }

    def snippet(self) -> str:
        """A piece of Python that computes both sides by the operators' numpy readings."""
        lines = [
            "import numpy as np",
            "from numpy import inf, nan",
            "from xflow.verifier.refutation.counterexample import evaluate",
            "",
        ]
        lines += [f"{name} = {_source(array)}" for name, array in self.inputs.items()]
        feeds = "".join(f", {name}={name}" for name in self.inputs)
        lines.append(f'print("left ", evaluate("{self.left}"{feeds}))')
        if self.right_outputs is None:
            lines.append(f"# not defined: {self.reason}")
        lines.append(f'print("right", evaluate("{self.right}"{feeds}))')
        return "\n".join(lines) + "\n"


def _plain(array: Array) -> Any:
    """Nested lists; NaN and the infinities, which JSON lacks, as texts."""
    if array.ndim:
        return [_plain(part) for part in array]
    item = array.item()
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


def _source(array: Array) -> str:
    """A Python expression for an array."""
    if array.size == 0:
        return f"np.zeros({list(array.shape)}, {str(array.dtype)!r})"
    values = np.array2string(array, separator=", ", threshold=10**6, max_line_width=10**6)
    return f"np.array({' '.join(values.split())}, {str(array.dtype)!r})"


def sort_of_array(array: Array) -> str:
    """The sort of an input whose elements were drawn: codes are held in 16 bits."""
    if array.dtype == np.int16:
        return CODE
    return {"b": BOOL, "i": INT}.get(array.dtype.kind, REAL)


def read_expression(expression: str, inputs: Mapping[str, Array]) -> tuple[Value, ...]:
    """The values of an expression without symbols, as rules write it, on inputs of these shapes.

    Raises RuleFileError and ShapeError.
    """
    declared = " ".join(
        f"{name}[{', '.join(map(str, array.shape))}]{SUFFIXES[sort_of_array(array)]}"
        for name, array in inputs.items()
    )
    return Rule("expression", declared, expression, expression).instance(0).lhs


def evaluate(expression: str, /, **inputs: Array) -> list[Array]:
    """The outputs of an expression as rules write it, without symbols, on these inputs.

    Raises RuleFileError and ShapeError.
    """
    with np.errstate(all="ignore"):
        return run(read_expression(expression, inputs), inputs)


def sides(instance: Instance, concrete: Callable[[Attribute], Attribute]) -> tuple[str, str]:
    """Both sides as rules write them, with every attribute made `concrete`."""
    left, right = (
        ", ".join(_expression(value, concrete) for value in side)
        for side in (instance.lhs, instance.rhs)
    )
    return left, right


def _expression(value: Value, concrete: Callable[[Attribute], Attribute]) -> str:
    """Unlike `format_value` it makes no operator, since one may not be defined there."""
    node = value.node
    if isinstance(node.op, Leaf):
        return node.op.key
    assert isinstance(node.op, Operator)
    args = [_expression(source, concrete) for source in node.inputs]
    shapes = [source.shape for source in node.inputs]
    for key, attribute in node.attributes.items():
        if attribute != node.op.attributes[key].default_for(shapes):
            args.append(f"{key}={format_attribute(concrete(attribute))}")
    suffix = f"[{value.index}]" if len(node.types) > 1 else ""
    return f"{node.op.name}({', '.join(args)}){suffix}"


def undefined_place(values: Sequence[Value], feeds: Mapping[str, Array]) -> str:
    """The first expression under `values` that is not finite although its inputs all are.

    Empty where there is none.
    """
    known = [value for node in walk(values) for value in node.outputs]
    with np.errstate(all="ignore"):
        finite = {
            value: bool(np.isfinite(array).all())
            for value, array in zip(known, run(known, feeds), strict=True)
        }
    for value in known:
        if not finite[value] and all(finite[source] for source in value.node.inputs):
            return format_value(value)
    return ""
