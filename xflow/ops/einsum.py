"""Einstein summation, as a composition of products and sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_letters, ascii_lowercase
from typing import TypeAlias

import numpy as np

from xflow.core.arguments import declare
from xflow.core.composite import Composite
from xflow.core.constraint import equal
from xflow.core.errors import ShapeError
from xflow.core.graph import walk
from xflow.core.node import Value, apply
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Operator,
    Shape,
    register,
    require,
)
from xflow.core.size import Size, product

ELLIPSIS = "..."
Labels: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Equation:
    """The labels of each operand's axes and of the output's; `ELLIPSIS` may be one of them."""

    operands: tuple[Labels, ...]
    output: Labels

    @classmethod
    def parse(cls, text: str) -> Equation:
        """Read an equation as ONNX writes it. Raises ShapeError, also for diagonals."""
        left, arrow, right = text.replace(" ", "").partition("->")
        operands = tuple(_labels(term, text) for term in left.split(","))
        named = [label for term in operands for label in term]
        if arrow:
            output = _labels(right, text)
            require(set(output) <= set(named), f"{text!r} has labels that no operand has")
        else:
            once = sorted(x for x in set(named) if x != ELLIPSIS and named.count(x) == 1)
            # ONNX Runtime and numpy order small and capital letters differently.
            same = all(x.islower() for x in once) or all(x.isupper() for x in once)
            require(same, f"the order of the output of {text!r} is not clear")
            output = ((ELLIPSIS,) if ELLIPSIS in named else ()) + tuple(once)
        require((ELLIPSIS in named) == (ELLIPSIS in output), f"{text!r} drops its ellipsis")
        return cls(operands, output)

    def renamed(self) -> Equation:
        """The same with the labels a, b, c, ... in order of occurrence. Raises ShapeError."""
        met = dict.fromkeys(label for term in self.operands for label in term)
        names = {label: label for label in met if label == ELLIPSIS}
        plain = [label for label in met if label != ELLIPSIS]
        require(len(plain) <= len(ascii_letters), f"an Einsum over {len(plain)} labels")
        letters = ascii_lowercase + ascii_letters[len(ascii_lowercase) :]
        names.update(zip(plain, letters, strict=False))
        operands = tuple(tuple(names[x] for x in term) for term in self.operands)
        return Equation(operands, tuple(names[x] for x in self.output))

    def at_ranks(self, ranks: Sequence[int]) -> Equation:
        """The same without an ellipsis: a label for each axis. Raises ShapeError."""
        require(len(ranks) == len(self.operands), f"{self} does not take {len(ranks)} operands")
        columns = list(zip(self.operands, ranks, strict=True))
        spans = {rank - len(term) + 1 for term, rank in columns if ELLIPSIS in term}
        plain = all(len(term) == rank for term, rank in columns if ELLIPSIS not in term)
        fits = plain and len(spans) <= 1 and min(spans, default=0) >= 0
        require(fits, f"{self} does not take operands of rank {', '.join(map(str, ranks))}")
        axes = tuple(f"{ELLIPSIS}{k}" for k in range(max(spans, default=0)))

        def spelled(term: Labels) -> Labels:
            return tuple(x for label in term for x in (axes if label == ELLIPSIS else (label,)))

        return Equation(tuple(map(spelled, self.operands)), spelled(self.output))

    def __str__(self) -> str:
        return f"{','.join(map(''.join, self.operands))}->{''.join(self.output)}"


def _labels(term: str, text: str) -> Labels:
    before, dots, after = term.partition(ELLIPSIS)
    labels = (*before, *((ELLIPSIS,) if dots else ()), *after)
    letters = [label for label in labels if label != ELLIPSIS]
    require(all(x in ascii_letters for x in letters), f"{text!r} is no equation of an Einsum")
    require(len(set(labels)) == len(labels), f"{text!r} takes a diagonal")
    return labels


@dataclass(frozen=True)
class Labelled:
    """A value whose axes have labels."""

    value: Value
    labels: Labels

    def sizes(self, labels: Iterable[str]) -> tuple[Size, ...]:
        """The extents of the axes with these labels."""
        return tuple(self.value.shape[self.labels.index(label)] for label in labels)

    def ordered(self, labels: Iterable[str]) -> Labelled:
        """With axes in this order, which names all of them."""
        order = tuple(labels)
        perm = tuple(map(self.labels.index, order))
        if perm == tuple(range(len(perm))):
            return self
        return Labelled(_apply("Transpose", (self.value,), perm=perm), order)

    def summed(self, kept: Iterable[str]) -> Labelled:
        """Summed over all axes with other labels than these."""
        left = tuple(label for label in self.labels if label in set(kept))
        if left == self.labels:
            return self
        axes = tuple(k for k, label in enumerate(self.labels) if label not in left)
        return Labelled(_apply("ReduceSum", (self.value,), axes=axes, keepdims=0), left)

    def merged(self, labels: Sequence[str], name: str) -> Labelled:
        """With the axes `labels`, which follow each other, as one axis `name`."""
        first = self.labels.index(labels[0])
        behind = first + len(labels)
        extents = self.value.shape
        shape = (*extents[:first], product(extents[first:behind]), *extents[behind:])
        value = _apply("Reshape", (self.value,), shape=shape)
        return Labelled(value, (*self.labels[:first], name, *self.labels[behind:]))

    def spread(self, labels: Sequence[str]) -> Value:
        """Aligned with `labels`, in which its own are in order: an axis of extent 1 for others."""
        axes = tuple(k for k, label in enumerate(labels) if label not in self.labels)
        return _apply("Unsqueeze", (self.value,), axes=axes) if axes else self.value

    def aligned(self, labels: Sequence[str]) -> Value:
        """The same, but for the first of `labels` as far as broadcasting supplies the axes."""
        first = next((k for k, x in enumerate(labels) if x in self.labels), len(labels))
        return self.spread(labels[first:])


def _apply(name: str, inputs: Sequence[Value], **attributes: int | tuple[Size, ...]) -> Value:
    return apply(name, inputs, attributes)[0]


def contract(a: Labelled, b: Labelled, kept: Iterable[str]) -> Labelled:
    """The product of both, summed over the labels that are not `kept`."""
    wanted = set(kept)
    a = a.summed(wanted | set(b.labels))
    b = b.summed(wanted | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in wanted]
    inner = [label for label in shared if label not in wanted]
    if inner:
        return _product(a, b, batch, inner)
    left = [label for label in a.labels if label not in shared]
    right = [label for label in b.labels if label not in shared]
    labels = (*batch, *left, *right)
    a, b = a.ordered((*batch, *left)), b.ordered((*batch, *right))
    return Labelled(_apply("Mul", (a.aligned(labels), b.aligned(labels))), labels)


def _product(a: Labelled, b: Labelled, batch: list[str], summed: list[str]) -> Labelled:
    """`contract` as a matrix product; all rows but one are batch axes, columns are merged."""
    left = [label for label in a.labels if label not in b.labels]
    right = [label for label in b.labels if label not in a.labels]
    if len(right) > 1 >= len(left):
        a, b, left, right = b, a, right, left
    a, b = a.ordered((*batch, *left, *summed)), b.ordered((*batch, *summed, *right))
    inner = summed[0]
    if len(summed) > 1:
        inner = "inner"
        a, b = a.merged(summed, inner), b.merged(summed, inner)
    extents = b.sizes(right)
    if len(right) > 1:
        b = b.merged(right, "columns")
    rows, columns = left or ["row"], b.labels[len(batch) + 1 :] or ("column",)
    x = a.spread((*batch, *rows, inner))
    # Without batch axes, those of the left operand need no counterpart.
    y = b.spread((*batch, *(rows[:-1] if batch else ()), inner, *columns))
    value = _apply("MatMul", (x, y))
    first = len(batch) + len(rows)
    single = (*(() if left else (first - 1,)), *(() if right else (first,)))
    if single:
        value = _apply("Squeeze", (value,), axes=single)
    if len(right) > 1:
        value = _apply("Reshape", (value,), shape=(*value.shape[:-1], *extents))
    return Labelled(value, (*batch, *left, *right))


@register
class Einsum(Composite):
    """The sum over all labels that the output lacks of the product of the operands.

    ``equation`` names the axes of each operand and of the output, as in ``bij,bjk->bik``; it is
    kept with labels in order of occurrence and an explicit output. Axes with one label have one
    extent, those under an ellipsis too. No label occurs twice in an operand. The definition goes
    from left to right: products of matrices where something is summed, of elements elsewhere.
    """

    name = op_type = "Einsum"
    role = "contraction"
    is_spelled_out = True
    since = 12
    arity = (1, None)
    attributes = declare(equation=AttributeSpec(Kind.TEXT))
    examples = (
        Example(((2, 3), (3, 4)), {"equation": "ij,jk->ik"}),
        Example(((2, 3), (4, 3)), {"equation": "ij,kj->ik"}),
        Example(((2, 3, 2), (2, 2, 4)), {"equation": "bij,bjk->bik"}),
        Example(((2, 3, 2), (2, 2, 4)), {"equation": "bij,bjk->bki"}),
        Example(((2, 2, 3), (2, 4, 3)), {"equation": "bqd,bkd->bqk"}),
        Example(((2, 3, 4), (2, 2, 4)), {"equation": "bts,bcs->bct"}),
        Example(((2, 2, 3), (2, 2, 4)), {"equation": "bct,bcs->bts"}),
        Example(((2, 2, 3), (2, 2, 4)), {"equation": "bct,bcs->bst"}),
        Example(((2, 2, 3), (2, 4, 2)), {"equation": "bct,bsc->bts"}),
        Example(((2, 2, 3), (2, 4, 2)), {"equation": "bct,bsc->bst"}),
        Example(((2, 3, 2), (2, 4)), {"equation": "bij,jk->bik"}),
        Example(((2, 3, 2), (4, 2)), {"equation": "bij,kj->bik"}),
        Example(((1, 3, 2, 2), (1, 2, 2, 2)), {"equation": "bqhd,bkhd->bhqk"}),
        Example(((2, 3, 2, 2), (2, 4, 2, 2)), {"equation": "bqhd,bkhd->bhqk"}),
        Example(((2, 4, 2, 2), (2, 3, 2, 2)), {"equation": "bkhd,bqhd->bhqk"}),
        Example(((2, 3, 2, 2), (2, 3, 4, 2)), {"equation": "bhqd,bhkd->bhqk"}),
        Example(((2, 2, 3, 4), (2, 4, 2, 2)), {"equation": "bhqk,bkhd->bqhd"}),
        Example(((2, 2, 3, 4), (2, 2, 4, 2)), {"equation": "bhqk,bhkd->bqhd"}),
        Example(((2, 2, 3, 4), (2, 2, 4, 2)), {"equation": "bhqk,bhkd->bhqd"}),
        Example(((2, 2, 2, 3, 2), (2, 2, 2, 4, 2)), {"equation": "bwhqd,bwhkd->bwhqk"}),
        Example(((2, 2, 2, 3, 4), (2, 2, 2, 4, 2)), {"equation": "bwhqk,bwhkd->bwhqd"}),
        Example(((2, 3, 2, 2), (3, 4, 2)), {"equation": "byxc,ykc->byxk"}),
        Example(((2, 3, 2, 2), (2, 4, 2)), {"equation": "byxc,xkc->byxk"}),
        Example(((3, 2, 2, 2), (4, 2, 2, 2)), {"equation": "qbhd,kbhd->bhqk"}),
        Example(((2, 2, 3, 4), (4, 2, 2, 2)), {"equation": "bhqk,kbhd->qbhd"}),
        Example(((2, 3, 2, 2), (4, 2, 2)), {"equation": "bqhd,khd->bhqk"}),
        Example(((2, 3, 2, 4), (4, 2)), {"equation": "bcij,jk->bcik"}),
        Example(((2, 3, 2, 4), (2, 3)), {"equation": "bcij,ik->bckj"}),
        Example(((2, 3, 2, 2), (2, 2, 4)), {"equation": "abcd,cde->abe"}),
        Example(((2, 3), (3, 2, 2)), {"equation": "ab,bcd->acd"}),
        Example(((2, 3, 2), (2, 2, 3)), {"equation": "abc,cde->abde"}),
        Example(((2, 3, 2), (3, 2, 2)), {"equation": "xij,ikj->xk"}),
        Example(((2,), (3,)), {"equation": "i,j->ij"}),
        Example(((3,), (3,)), {"equation": "i,i->"}),
        Example(((2, 3), (2, 3)), {"equation": "ij,ij->i"}),
        Example(((2, 3), (3, 2)), {"equation": "ij,ji->ij"}),
        Example(((2, 3), (4,)), {"equation": "ij,k->k"}),
        Example(((2, 3), (3, 2), (2, 2)), {"equation": "ij,jk,kl->il"}),
        Example(((2, 3), (2,), (3,)), {"equation": "ij,i,j->"}),
        Example(((2, 3, 2),), {"equation": "ijk->kij"}),
        Example(((2, 3, 2),), {"equation": "ijk->j"}),
        Example(((2, 3),), {"equation": "ij->ij"}),
        Example(((2, 3, 2, 2), (2, 3, 2, 1)), {"equation": "...ij,...jk->...ik"}),
        Example(((2, 3), (3,)), {"equation": "...i,i->..."}),
        Example(((2, 2), (2,)), {"equation": "...i,..."}),
    )

    def canonical(self, attributes: Attributes, shapes: Sequence[Shape]) -> Attributes:
        equation = _equation(attributes)
        equation.at_ranks([len(shape) for shape in shapes])
        return {**attributes, "equation": str(equation.renamed())}

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        spelled = _equation(attributes).at_ranks([len(shape) for shape in shapes])
        known: dict[str, Size] = {}
        for shape, labels in zip(shapes, spelled.operands, strict=True):
            for n, label in zip(shape, labels, strict=True):
                m = known.setdefault(label, n)
                need(equal(m, n), f"the label {label} stands for {m} and {n}")

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        spelled = _equation(attributes).at_ranks([len(value.shape) for value in inputs])
        terms = list(map(Labelled, inputs, spelled.operands))
        result = terms[0]
        for position, term in enumerate(terms[1:], 1):
            later = {label for other in terms[position + 1 :] for label in other.labels}
            result = contract(result, term, {*spelled.output, *later})
        return (result.summed(spelled.output).ordered(spelled.output).value,)

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        read = super().from_onnx(call)
        shapes = [shape for shape in call.shapes if shape is not None]
        if read is None or len(shapes) < len(call.shapes) or "equation" not in read[0]:
            return None
        try:
            self.check(shapes, read[0], Need())
        except ShapeError:  # a diagonal, or an extent of 1 that is broadcast
            return None
        return read

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        # In pairs: else it takes as many steps as the product of all extents.
        return [np.array(np.einsum(str(attributes["equation"]), *arrays, optimize=True))]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        total: Size = 0
        for node in walk(self.definition(shapes, attributes)[1]):
            if isinstance(node.op, Operator):
                below = [value.shape for value in node.inputs]
                above = [kind.shape for kind in node.types]
                total = total + node.op.flops(below, node.attributes, above)
        return total


def _equation(attributes: Attributes) -> Equation:
    text = attributes["equation"]
    require(isinstance(text, str), f"{text} is no equation of an Einsum")
    return Equation.parse(str(text))
