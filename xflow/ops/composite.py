"""Composite operators: declared by a definition over simpler operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xflow.ops.registry import Attributes, Need, Operator, Reader, Shape
from xflow.ops.spec import Index, Scalar

if TYPE_CHECKING:  # graph imports this package, so its functions are imported where they are used
    from xflow.graph import Value


class Composite(Operator):
    """An operator that is a graph over simpler ones; shape and specification follow from it.

    Both sides of `definition` make the definitional rule, which holds by declaration.
    """

    @abstractmethod
    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        """The outputs, computed by simpler operators."""

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        """Require what the operator needs beyond what its definition does."""

    def definition(
        self, shapes: Sequence[Shape], attributes: Attributes
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Leaves of these shapes, and the outputs that the definition computes from them."""
        from xflow.graph import TensorType, leaf  # noqa: PLC0415 - see above

        leaves = tuple(
            leaf(f"{self.name}.{position}", TensorType("REAL", tuple(shape)))
            for position, shape in enumerate(shapes)
        )
        return leaves, self.define(leaves, attributes)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        from xflow.graph import requirements  # noqa: PLC0415 - see above

        self.check(shapes, attributes, need)
        _, outputs = self.definition(shapes, attributes)
        for condition in requirements(outputs):
            need(condition, f"{self.name} needs {condition}")
        return [value.shape for value in outputs]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        leaves, outputs = self.definition(shapes, attributes)
        readers = dict(zip(leaves, inputs, strict=True))

        def reader(value: Value) -> Reader:
            if value in readers:
                return readers[value]
            node = value.node
            assert isinstance(node.op, Operator)
            op, sources = node.op, [reader(source) for source in node.inputs]
            below = [source.shape for source in node.inputs]
            return lambda i: op.at(sources, below, node.attributes, value.index, i)

        return reader(outputs[output])(index)
