"""Decides which equations are idle: they save nothing, are not plain, and do not help a search."""

from __future__ import annotations

from collections.abc import Collection

from xflow.core.composite import Composite
from xflow.core.fold import moves
from xflow.core.graph import walk
from xflow.core.node import Leaf, Value
from xflow.core.registry import Operator
from xflow.generator.generalization.propose import Proposal
from xflow.generator.minimize import is_linear, is_permutation, repeats_itself
from xflow.generator.vocabulary import Vocabulary


def is_idle(proposal: Proposal, vocabulary: Vocabulary) -> bool:
    """Whether an equation saves nothing and is not plain either.

    An equation between sides of equal cost only helps the search to reach other forms. Of these,
    the ones are kept that read each activation once and do more than exchange inputs, and those
    between two single operators. A single operator, on views of weights too, may replace a term
    that repeats itself, as a rotation of heads does; so may a composite between movements.
    """
    source, target = proposal.source, proposal.target
    free = {item.name for item in vocabulary.inputs if item.sort in vocabulary.free}
    if is_trivial(target):
        return True
    if is_one_operator(target) and (is_one_operator(source) or is_linear(target, free)):
        return False
    if repeats_itself(source) or repeats_itself(target):
        by_one = is_one_operator(target, free) or _is_moved_composite(target)
        return proposal.saves_nothing or not (by_one and is_linear(target))
    return proposal.saves_nothing and not (
        is_linear(source, free) and is_linear(target, free) and not is_permutation(source, target)
    )


def may_matter(proposal: Proposal) -> bool:
    """Whether a derivation may need an idle equation.

    A side that repeats a term is an instance of an equation between different inputs, or of no
    practical use.
    """
    sides = (proposal.source, proposal.target)
    return not any(
        repeats_itself(side) or any(is_trivial(node.outputs[0]) for node in walk([side]))
        for side in sides
    )


def is_one_operator(value: Value, free: Collection[str] = ()) -> bool:
    """Whether a term is one operator on inputs and constants, and on views of the inputs `free`."""
    return not value.is_leaf and all(
        source.is_leaf or not source.node.inputs or _is_view(source, free)
        for source in value.node.inputs
    )


def _is_moved_composite(value: Value) -> bool:
    """Whether a term is one composite, and otherwise moves elements alone."""
    nodes = [node for node in walk([value]) if isinstance(node.op, Operator) and node.inputs]
    computing = [node for node in nodes if not moves(node)]
    return len(computing) == 1 and isinstance(computing[0].op, Composite)


def _is_view(value: Value, free: Collection[str]) -> bool:
    op = value.node.op
    return (
        isinstance(op, Operator)
        and op.role == "view"
        and all(isinstance(v.node.op, Leaf) and v.node.op.key in free for v in value.node.inputs)
    )


def is_trivial(value: Value) -> bool:
    """Whether a term is ``t - t`` or ``t / t``, which models do not compute."""
    node = value.node
    return (
        isinstance(node.op, Operator)
        and len(node.inputs) == 2
        and node.inputs[0] == node.inputs[1]
        and node.op.elementwise
        and not node.op.commutative
    )
