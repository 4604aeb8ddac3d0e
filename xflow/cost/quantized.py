"""What ONNX Runtime fuses around the codes of quantized numbers, by their types.

An operator between DequantizeLinear and QuantizeLinear is computed on codes where the runtime has a
kernel for that: on x86, products on codes without a sign alone, others where all have one type.
QuantizeLinear and DequantizeLinear with a sign that have one reader each it turns into those
without, so that a value that is read twice keeps operators beside it from being fused. Of weights
with a sign it has faster kernels, but on processors without VNNI these cut sums of two products off
at 16 bits, so that they are not counted on there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from xflow.core.graph import Graph
from xflow.core.node import Node, Opaque, Value
from xflow.core.registry import Operator
from xflow.core.sorts import CODES
from xflow.cost.fusion import operator_name

FROM_CODES, TO_CODES = "DequantizeLinear", "QuantizeLinear"
SIGNED, UNSIGNED = CODES
WEIGHTS = "constants with a sign"


@dataclass(frozen=True)
class Units:
    """The operators of a graph that are computed on codes, and what is not computed for that."""

    fused: frozenset[Node] = frozenset()
    absorbed: frozenset[Node] = frozenset()
    """Conversions from codes and to codes that nothing else reads."""
    signed: frozenset[Node] = frozenset()
    """Those of the operators that compute with codes, or with weights, that have a sign."""
    cut_off: int = 0
    """The number of products on codes whose sums may be cut off, which count as not fused."""


NONE = Units()


class Codes:
    """Finds such operators: `products` and `others` are those of which the runtime has kernels.

    `cuts_off` says whether its kernels for codes without a sign and weights with one cut sums off.
    """

    def __init__(
        self, products: Collection[str], others: Collection[str], cuts_off: bool = True
    ) -> None:
        self._products = products
        self._others = others
        self._cuts_off = cuts_off

    def units(self, graph: Graph, results: Collection[Value] = ()) -> Units:
        """The operators of a graph that are computed on codes; `results` are read elsewhere."""
        ends = [node for node in graph.nodes if node.is_operator(TO_CODES)]
        if not ends:
            return NONE
        readers = graph.users
        outputs = frozenset(graph.outputs)
        kept = {*outputs, *results}
        fused: set[Node] = set()
        absorbed: set[Node] = set()
        signed: set[Node] = set()
        cut_off = 0
        for end in ends:
            result = end.inputs[0]
            if result in kept or len(readers[result]) > 1:
                continue
            types = self._types(result.node, end, readers, outputs)
            mixed = types == {UNSIGNED, WEIGHTS}
            if mixed and self._cuts_off:
                cut_off += 1
                continue
            alike = len(types) == 1 and not self._is_product(result.node)
            if mixed or alike or types == {UNSIGNED}:
                fused.add(result.node)
                absorbed.add(end)
                if types != {UNSIGNED}:
                    signed.add(result.node)
        for node in graph.nodes:
            if node.is_operator(FROM_CODES) and node.outputs[0] not in kept:
                read = readers.get(node.outputs[0], ())
                if read and all(reader in fused for reader in read):
                    absorbed.add(node)
        return Units(frozenset(fused), frozenset(absorbed), frozenset(signed), cut_off)

    def ties(self, graph: Graph) -> list[frozenset[Node]]:
        """Sets of nodes that are computed as one, or are once codes have other types.

        An operator with the conversions beside it, and a conversion to codes with a sign with those
        that read it.
        """
        found: list[frozenset[Node]] = []
        for end in graph.nodes:
            if not end.is_operator(TO_CODES):
                continue
            node = end.inputs[0].node
            read = self._read(node)
            if read:
                found.append(frozenset({node, end, *(value.node for value in read)}))
            codes = end.outputs[0]
            if codes.type.dtype == SIGNED:
                found.append(frozenset({end, *graph.users.get(codes, ())}))
        return found

    def _read(self, node: Node) -> Sequence[Value]:
        """What an operator computes with, if that is all converted from codes; else nothing."""
        if not isinstance(node.op, Operator) or node.constant:
            return ()
        if self._is_product(node):
            read: Sequence[Value] = node.inputs[:2]
        elif node.op.name in self._others:
            read = [value for value in node.inputs if not value.is_constant]
        else:
            return ()
        return read if all(map(_is_converted, read)) else ()

    def _is_product(self, node: Node) -> bool:
        return operator_name(node) in self._products

    def _types(
        self,
        node: Node,
        end: Node,
        readers: Mapping[Value, Sequence[Node]],
        outputs: Collection[Value],
    ) -> frozenset[str]:
        """The types of the codes that an operator computes with, and that `end` makes of them.

        Constants with a sign stand for themselves beside others. Nothing for what computes with
        anything else.
        """
        read = self._read(node)
        if not read:
            return frozenset()
        codes = [value.node.inputs[0] for value in read if value.node.is_operator(FROM_CODES)]
        types = {served(code, readers, outputs) for code in codes if not _is_known(code)}
        if len(codes) < len(read):
            types.add(WEIGHTS)  # in a form that is not described
        signed = WEIGHTS if self._is_product(node) else SIGNED
        types |= {signed if c.type.dtype == SIGNED else UNSIGNED for c in codes if _is_known(c)}
        return frozenset(types | {served(end.outputs[0], readers, outputs)})


def served(
    codes: Value, readers: Mapping[Value, Sequence[Node]], outputs: Collection[Value]
) -> str:
    """The type of codes as the runtime serves them; without a sign where others give or read them.

    What is outside of a part of a graph is not known, and may be what it should be; but what is
    read inside and is an output of it, too, is read twice.
    """
    if codes.type.dtype != SIGNED or _is_known(codes):
        return codes.type.dtype
    read = readers.get(codes, ())
    if codes.is_leaf or not read:
        return UNSIGNED
    once = len(read) == 1 and codes not in outputs and read[0].is_operator(FROM_CODES)
    if not once:
        return SIGNED
    number = read[0].outputs[0]
    alone = len(readers.get(number, ())) + (number in outputs) <= 1
    return UNSIGNED if alone else SIGNED


def _is_known(codes: Value) -> bool:
    """Whether codes are constants, or made of constants, which the runtime computes once."""
    node = codes.node
    return codes.is_constant or (node.is_operator(TO_CODES) and node.inputs[0].is_constant)


def _is_converted(value: Value) -> bool:
    """Whether a value is converted from codes, if only in a form that is not described."""
    node, op = value.node, value.node.op
    return node.is_operator(FROM_CODES) or (isinstance(op, Opaque) and op.op_type == FROM_CODES)
