"""Checks which sums of products of codes neither round nor wrap around, from specifications.

A condition ``exact_sums(w)`` bounds sums over all axes of w but the first. So a sum is exact whose
terms are products of ``w[o, i, j]``, each element taken once at most, and ``x[...] - z[]`` or
``x[...]``, where x and z are codes of one type: the places i and j are the variables of the sum,
and o is none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from xflow.core.evaluation import read
from xflow.core.graph import rebuild, walk
from xflow.core.node import Node, Value, apply
from xflow.core.registry import Operator
from xflow.core.size import free_symbols, symbol
from xflow.core.sorts import BOOL, CODE, INT
from xflow.core.spec import Element, If, Literal, Plus, Scalar, SumOver, Times
from xflow.core.value_conditions import EXACT_SUMS
from xflow.rewriting.instance import Instance
from xflow.verifier.recheck.comparisons import orders


class ExactSums:
    """The values of an instance that are exact integers of less than 25 bits."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._bounded = {f.names for f in instance.facts if f.relation == EXACT_SUMS}
        self._codes = {str(v) for v in instance.inputs if v.type.dtype == CODE}
        self._nodes = list(walk((*instance.lhs, *instance.rhs)))
        self._zeros = set(self._zero_points())
        self._known: dict[Value, bool] = {}

    def includes(self, value: Value) -> bool:
        """Whether a value is exact."""
        if value not in self._known:
            self._known[value] = value.type.dtype != BOOL and self._is_exact(value)
        return self._known[value]

    @property
    def are_all(self) -> bool:
        """Whether everything that both sides compute is exact."""
        return all(self.includes(value) for node in self._nodes for value in node.outputs)

    @property
    def wraps(self) -> bool:
        """Whether integers are computed that may wrap around."""
        return any(
            value.type.dtype == INT and not self.includes(value)
            for node in self._nodes
            if node.inputs
            for value in node.outputs
        )

    def instance(self) -> Instance:
        """The instance with exact sums in the place of the floats nearest to them."""
        plain = {
            node.outputs[0]: apply("AsReal", node.inputs)[0]
            for node in self._nodes
            if _is_nearest(node) and self.includes(node.inputs[0])
        }
        lhs, rhs = (rebuild(side, plain) for side in (self._instance.lhs, self._instance.rhs))
        return replace(self._instance, lhs=lhs, rhs=rhs) if plain else self._instance

    def _zero_points(self) -> Iterator[tuple[str, str]]:
        """Images and zero points that are codes of one type, since an operator takes both."""
        for node in self._nodes:
            if isinstance(node.op, Operator) and node.op.name == "ConvInteger":
                image, _, *zeros = node.inputs
                if zeros and image.is_leaf and zeros[0].is_leaf:
                    yield str(image), str(zeros[0])

    def _is_exact(self, value: Value) -> bool:
        node = value.node
        if _is_nearest(node):
            return self.includes(node.inputs[0])
        if value.type.dtype == INT or any(v.type.dtype == INT for v in node.inputs):
            # What integers of 32 bits hold, which is not what the specification says.
            inside = [v for v in node.inputs if v.type.dtype == INT]
            if not all(map(self.includes, inside)):
                return False
        index = tuple(symbol(f"_i{axis}") for axis in range(len(value.shape)))
        return self._is_sum(read(value, index), frozenset())

    def _is_sum(self, scalar: Scalar, bound: frozenset[str]) -> bool:
        """Whether it is a code, a difference of codes, or a sum of products; `bound` are the
        variables of the sums around it."""
        match scalar:
            case SumOver(name, _, body):
                return self._is_sum(body, bound | {name})
            case If() if _inside(scalar) is not scalar:
                return self._is_sum(_inside(scalar), bound)
            case Times(factors) if len(factors) == 2:
                one, other = factors
                return self._is_product(one, other, bound) or self._is_product(other, one, bound)
        return not bound and self._difference(scalar) is not None

    def _is_product(self, weight: Scalar, factor: Scalar, bound: frozenset[str]) -> bool:
        """Whether a product has a weight that is taken once, and a code less its zero point."""
        weights, image = self._difference(weight), self._difference(_inside(factor))
        if weights is None or image is None:
            return False
        (element, *less), (code, *zero) = weights, image
        if (element.tensor, *less) not in self._bounded or not element.index:
            return False
        if zero and (code.tensor, *zero) not in self._zeros:
            return False
        free, *places = element.index
        variables = [name for name in bound if symbol(name) in places]
        is_once = len(variables) == len(bound) == len(places)
        return is_once and not free_symbols(free) & bound

    def _difference(self, scalar: Scalar) -> tuple[Element, *tuple[str, ...]] | None:
        """A code, and the name of what is taken from it, if anything is."""
        match scalar:
            case Element(name, _) if name in self._codes:
                return (scalar,)
            case Plus((Element(name, _) as code, Times((Literal(sign), Element(less, ()))))) if (
                sign == -1 and {name, less} <= self._codes
            ):
                return code, less
        return None


def _inside(scalar: Scalar) -> Scalar:
    """What a choice by places alone is where it is not 0, as it is at the border of an image."""
    match scalar:
        case If(conditions, then, Literal(value)) if not value and not any(orders(conditions)):
            return then
    return scalar


def _is_nearest(node: Node) -> bool:
    return isinstance(node.op, Operator) and node.op.name == "NearestFloat"
