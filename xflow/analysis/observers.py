"""Observers of a value: operators whose result shows that it was NaN, infinite, or rounded.

A rewrite keeps numbers. Where the original is no number, the new value may be one, or another
infinity; and where it is a number, it may differ by roundings. Both are harmless unless an operator
that reads it enlarges the difference: it may give a number for an infinity or a NaN; a comparison,
or a rounding to integers, may be decided otherwise by a rounding error; and a quotient by a small
number makes a large error of a small one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from enum import IntFlag
from functools import lru_cache
from typing import NamedTuple

from xflow.analysis.elements import element_of, names_of, orders
from xflow.analysis.opaque import (
    ACCUMULATING,
    BY_GIVEN_SCALE,
    MOVES,
    QUANTIZERS,
    QUANTIZING,
    decides_by,
    is_steady,
)
from xflow.analysis.ranges import sums
from xflow.core.errors import ShapeError
from xflow.core.graph import Graph, walk
from xflow.core.node import Leaf, Node, Opaque, Value, hidden_positions
from xflow.core.registry import Operator
from xflow.core.sorts import CODES, FLOATS
from xflow.core.spec import (
    ARBITRARY,
    LOSING,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
)


class Observed(IntFlag):
    """The kinds of operators that depend on a value and are sensitive to it."""

    NOWHERE = 0
    LOST = 1
    """Some operator may give a number for NaN or an infinity."""
    DISCRETE = 2
    """Something compares it, or makes integers of it, with nothing but elementwise operators and
    movements between."""
    RELATIVE = 4
    """Something divides by it, or takes its root or logarithm, or divides it by a value that may be
    small where it is, so that its error counts relative to itself, however small it is."""
    HIDDEN = 8
    """Some operator may give a number for NaN."""
    CODED = 16
    """Something makes codes of it, as of a quantized network, with no product with weights between.
    One code more or less is seen in the results: what lies between is to be the same to the bit,
    sums of a pool or of a softmax included."""
    MERGED = 32
    """Something is added to it, or a constant scales it, with nothing but elementwise operators and
    movements between, and no bit of the result may change. If it is a product of floats, the
    runtime folds these constants into its weights and its bias, and starts its sums with what is
    added: sums of integers are no integers then, and round. Or codes are made of it by a scale that
    is given: the runtime makes codes of the weights, too, by a scale of its own."""
    QUANTIZED = 64
    """Codes are made of it by a scale that is given, or of what is computed of it, at whatever
    distance. If it is a real that was made of codes, the runtime computes what lies between on
    codes as far as it can, and makes codes of weights that are floats for that."""


TO_THE_BIT = Observed.DISCRETE | Observed.CODED
"""Where no bit of a value may change."""
EVERYWHERE = ~Observed.NOWHERE
_SETS = tuple(map(Observed, range(int(EVERYWHERE) + 1)))
"""All sets of kinds, by their numbers. Whole graphs are read in numbers, with which an operation
takes a tenth of the time that it takes with flags."""
_LOST, _DISCRETE, _RELATIVE = map(int, (Observed.LOST, Observed.DISCRETE, Observed.RELATIVE))
_HIDDEN, _CODED, _MERGED = map(int, (Observed.HIDDEN, Observed.CODED, Observed.MERGED))
_QUANTIZED = int(Observed.QUANTIZED)
_PARTS_MERGED = int(TO_THE_BIT | Observed.MERGED)
"""Where the runtime may merge what is done to a value into it."""


class Way(NamedTuple):
    """How an operator reads an input."""

    lost: bool = False
    """Whether it may give a number where an element is none."""
    decides: bool = False
    """Whether it compares it, or makes integers of it."""
    divides: bool = False
    """Whether it divides by it, or takes its root or logarithm."""
    divided: bool = False
    """Whether it divides it."""
    multiplied: bool = False
    """Whether it multiplies it by other inputs."""
    inverts: bool = False
    """Whether the result is large where elements are small."""
    passes: bool = False
    """Whether the result may be large where elements are."""
    keeps: bool = False
    """Whether small elements stay small, with the same relative error."""
    hides: bool = False
    """Whether it may give a number where an element is NaN."""
    added: bool = False
    """Whether it adds it to anything."""

    def __or__(self, other: Way) -> Way:
        return Way(*(one or another for one, another in zip(self, other, strict=True)))


UNKNOWN = Way(
    lost=True,
    decides=True,
    divides=True,
    divided=True,
    multiplied=True,
    inverts=True,
    passes=True,
    hides=True,
    added=True,
)
_ways: dict[object, Mapping[str, Way]] = {}
NARROW = frozenset(
    (
        *(*CODES, "INT4", "UINT4", "INT2", "UINT2"),
        *("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1"),
    )
)
"""The types of codes. Those of 16 bits are as fine as roundings of half precision."""
STEPWISE = frozenset({"Ceil", "Floor", "Round"})
"""Operators that round to integers, of which codes may be made."""
MOST_BEHIND = 256
"""Values before a factor that are searched for a divisor; behind more, there may be one."""
MAX_KEPT = 20_000
"""Most operators for which the ways that they read their inputs are cached."""
NODES_KEPT = 4096
"""The same of nodes, which are asked for again and again for a short time."""


def loses(node: Node, position: int) -> bool:
    """Whether an operator may give a number where an element of an input is none."""
    if isinstance(node.op, Opaque):
        return node.op.op_type not in MOVES
    return _way(node, position).lost


def hides(node: Node, position: int) -> bool:
    """Whether an operator may give a number where an element of an input is NaN."""
    if isinstance(node.op, Opaque):
        return node.op.op_type not in MOVES
    return _way(node, position).hides


def decides(node: Node, position: int) -> bool:
    """Whether an operator compares an input, or makes integers of it."""
    if isinstance(node.op, Opaque):
        named = node.op.op_type not in MOVES
        whole = any(kind.dtype not in FLOATS for kind in node.types)
        return named and (whole or decides_by(node.op.op_type, position))
    return _way(node, position).decides


def divides(node: Node, position: int) -> bool:
    """Whether the error of an input counts relative to its elements, however small these are.

    It does for a divisor. It does for a dividend, since the divisor may be small where it is: both
    may be made of one value, even outside of the graph at hand. Nor matters how the quotient is
    spelled: a factor may be an inverse.
    """
    if isinstance(node.op, Opaque):
        return not is_steady(node.op.op_type)
    if _contracts(node):
        return False
    way = _way(node, position)
    if way.divides or not (way.divided or way.multiplied):
        return way.divides
    own = node.inputs[position]
    return any(
        (way.divided and _way(node, other).divides and not value.is_constant)
        or (way.multiplied and _way(node, other).multiplied and _may_be_inverse(value))
        for other, value in enumerate(node.inputs)
        if value is not own
    )


def _may_be_inverse(value: Value) -> bool:
    """Whether a value may be large where something that it is computed from is small.

    Nothing is known of what is computed outside of the graph, or by an operator that is opaque.
    """
    seen: set[Value] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if value in seen or value.is_constant or value.type.dtype not in FLOATS:
            continue
        if len(seen) == MOST_BEHIND:
            return True
        seen.add(value)
        node = value.node
        if isinstance(node.op, Opaque):
            if not is_steady(node.op.op_type):
                return True
        elif value.is_leaf:
            return True
        if _contracts(node):
            continue
        for position, source in enumerate(node.inputs):
            way = Way(passes=True) if isinstance(node.op, Opaque) else _way(node, position)
            if way.inverts and not source.is_constant:
                return True
            if way.passes:
                waiting.append(source)
    return False


def _keeps(node: Node, position: int) -> bool:
    if _contracts(node):
        return False
    if isinstance(node.op, Opaque):
        return is_steady(node.op.op_type)
    return isinstance(node.op, Operator) and _way(node, position).keeps


@lru_cache(maxsize=NODES_KEPT)
def _accumulates(node: Node) -> bool:
    """Whether an operator sums over a range, in an order of the kernel's own."""
    if isinstance(node.op, Opaque):
        return node.op.op_type in ACCUMULATING
    return sums(node)


def sums_floats(node: Node) -> bool:
    """Whether an operator sums over a range of floats, in an order of the kernel's own."""
    return node.types[0].dtype in FLOATS and not node.constant and _accumulates(node)


def _contracts(node: Node) -> bool:
    """Whether what an operator sums is multiplied with weights: it is small in few of the sums.

    Elements of one input, as reductions and normalizations sum them, may all be small together.
    """
    reduces = isinstance(node.op, Operator) and (
        node.op.role == "normalization" or node.op.name.startswith("Reduce")
    )
    return _accumulates(node) and not reduces


def _codes(node: Node) -> bool:
    """Whether an operator rounds floats to codes, or to integers, or may do so within."""
    if isinstance(node.op, Leaf):
        return False
    name = node.op.op_type
    if isinstance(node.op, Opaque) and (not name or name in QUANTIZING):
        return True
    types = {kind.dtype for kind in node.types}
    whole = name == "Cast" and not types <= set(FLOATS)
    return whole or name in STEPWISE or not NARROW.isdisjoint(types)


def _weighs(node: Node) -> bool:
    """Whether an operator sums products with weights, in an order of the kernel's own."""
    factors = [value.is_constant for value in node.inputs if value.type.dtype in FLOATS][:2]
    return _contracts(node) and any(factors) and not all(factors)


def _merged(node: Node, position: int, behind: int) -> bool:
    """Whether the runtime may merge what is done to an input here, or behind, into the input."""
    if _quantizes(node, position):
        return True
    if not behind & _PARTS_MERGED or _accumulates(node) or decides(node, position):
        return False
    if isinstance(node.op, Opaque):
        return node.op.op_type not in MOVES or bool(behind & _MERGED)
    way = _way(node, position)
    if way.added or not way.multiplied:
        return way.added or bool(behind & _MERGED)
    own = node.inputs[position]
    return not any(  # a factor that is computed is not folded, nor is what stands behind it
        _way(node, other).multiplied and not value.is_constant
        for other, value in enumerate(node.inputs)
        if value != own
    )


def _quantizes(node: Node, position: int) -> bool:
    """Whether an operator makes codes of an input by a scale that is given."""
    return position == 0 and not isinstance(node.op, Leaf) and node.op.op_type in BY_GIVEN_SCALE


def around_body(op_types: Iterable[str]) -> Observed:
    """How the outputs of a graph inside an operator are observed in a model of such operators."""
    makes_codes = not {*QUANTIZERS, *QUANTIZING, *STEPWISE}.isdisjoint(op_types)
    return EVERYWHERE if makes_codes else EVERYWHERE & ~(Observed.CODED | Observed.QUANTIZED)


def observes(node: Node, what: Observed) -> bool:
    """Whether an operator compares an input of floats or makes integers of it, or divides by it."""
    asked = divides if what == Observed.RELATIVE else decides
    return any(
        value.type.dtype in FLOATS and not value.is_constant and asked(node, position)
        for position, value in enumerate(node.inputs)
    )


def contexts(graph: Graph, outputs: Sequence[Observed]) -> dict[Value, Observed]:
    """How each float value of `graph` is observed, given how its `outputs` are outside.

    Of constants it is only whether they are `Observed.QUANTIZED`.
    """
    found: dict[Value, int] = {}
    for value, outside in zip(graph.outputs, outputs, strict=True):
        found[value] = found.get(value, 0) | int(outside)
    for node in reversed(graph.nodes):
        behind = 0
        for value in node.outputs:
            behind |= found.get(value, 0)
        for position, value in enumerate(node.inputs):
            if value.type.dtype in FLOATS:
                read = _quantized_by if value.is_constant else _read_by
                found[value] = found.get(value, 0) | read(node, position, behind)
    return {value: _SETS[kinds] for value, kinds in found.items()}


def deciding_constants(graph: Graph, outside: Observed) -> frozenset[Value]:
    """The constants that a graph reads where no bit may change; for `outside` see `contexts`.

    Also those that they are computed from, as what is too large is computed by the runtime.
    """
    known = contexts(graph, (outside,) * len(graph.outputs))
    given = [v for v in graph.outputs if v.is_constant and outside & TO_THE_BIT]
    read = (
        value
        for node in graph.nodes
        if not node.constant or isinstance(node.op, Opaque)  # these are left to the runtime
        for position, value in enumerate(node.inputs)
        if value.is_constant
        and value.type.dtype in FLOATS
        and read_by(node, position, known) & TO_THE_BIT
    )
    below = walk(list(dict.fromkeys((*given, *read))))
    return frozenset(value for node in below if node.constant for value in node.outputs)


def read_by(node: Node, position: int, known: Mapping[Value, Observed]) -> Observed:
    """How an operator observes an input, if `known` is how its results are observed."""
    behind = 0
    for value in node.outputs:
        behind |= int(known.get(value, 0))
    return _SETS[_read_by(node, position, behind)]


def _read_by(node: Node, position: int, behind: int) -> int:
    """How an operator observes an input, where its results are observed as `behind` says.

    Both are numbers of `_SETS`.
    """
    own = _LOST if loses(node, position) else behind & _LOST
    own |= _HIDDEN if hides(node, position) else behind & _HIDDEN
    decided = decides(node, position)
    if decided or (behind & _DISCRETE and not _accumulates(node)):
        own |= _DISCRETE
    if (decided and _codes(node)) or (behind & _CODED and not _weighs(node)):
        own |= _CODED
    if _merged(node, position, behind):
        own |= _MERGED
    own |= _quantized_by(node, position, behind)
    if divides(node, position) or (behind & _RELATIVE and _keeps(node, position)):
        own |= _RELATIVE
    return own


def _quantized_by(node: Node, position: int, behind: int) -> int:
    return _QUANTIZED if _quantizes(node, position) else behind & _QUANTIZED


def sensitive_outside(
    graph: Graph,
    value: Value,
    inside: Container[Node],
    known: Mapping[Value, Observed],
    whole: Observed,
) -> Observed:
    """How a value is observed other than through the nodes `inside`.

    `known` is how each value of the graph is observed, `whole` how its outputs are.
    """
    found = whole if value in graph.outputs else Observed.NOWHERE
    for user in graph.users.get(value, ()):
        if user not in inside:
            for position, source in enumerate(user.inputs):
                if source == value:
                    found |= read_by(user, position, known)
    return found


def _way(node: Node, position: int) -> Way:
    return _ways_of(node)[position]


@lru_cache(maxsize=NODES_KEPT)
def _ways_of(node: Node) -> tuple[Way, ...]:
    """The ways in which an operator reads each input; several are asked for of the same node."""
    if not isinstance(node.op, Operator):
        return (UNKNOWN,) * len(node.inputs)
    names = names_of(node.inputs)
    key = node.kind, tuple(v.type for v in node.inputs), tuple(names)
    found = _ways.get(key)
    if found is None:
        if len(_ways) >= MAX_KEPT:
            _ways.clear()
        found = _ways[key] = _read_ways(node)
    return tuple(found.get(name, Way()) for name in names)


def _read_ways(node: Node) -> dict[str, Way]:
    found: dict[str, Way] = {}
    for output in node.outputs:
        try:
            scalar = element_of(output)
        except ShapeError:
            return dict.fromkeys(names_of(node.inputs), UNKNOWN)
        for name, way in _reads(scalar, Way(passes=True, keeps=True)):
            found[name] = found.get(name, Way()) | way
    assert isinstance(node.op, Operator)
    names = names_of(node.inputs)
    for position in hidden_positions(node):
        found[names[position]] = found.get(names[position], Way()) | Way(lost=True, hides=True)
    return found


def _reads(e: Scalar, way: Way) -> Iterable[tuple[str, Way]]:
    match e:
        case Element(tensor, _):
            yield tensor, way
        case Plus(args):
            for arg in args:
                yield from _reads(arg, way._replace(added=True))
        case Times(args):
            divisors = [arg for arg in args if isinstance(arg, Call) and arg.function in DIVIDING]
            for arg in args:
                beside = any(arg is not divisor for divisor in divisors)
                yield from _reads(arg, way | Way(divided=beside, multiplied=True))
        case SumOver(_, _, body) | ProductOver(_, _, body):
            yield from _reads(body, way)
        case MaxOver(_, extent, body):
            yield from _reads(body, way | Way(lost=extent != 1, hides=extent != 1))
        case If(conditions, then, other):
            compared = list(orders(conditions))
            for order in compared:
                for side in (order.left, order.right):
                    yield from _reads(side, Way(lost=True, decides=True, hides=True))
            for branch in (then, other):
                yield from _reads(branch, way | Way(lost=bool(compared), hides=bool(compared)))
        case Call(function, args):
            inside = way | Way(
                lost=function in LOSING,
                decides=function in STEPS,
                divides=function in DIVIDING,
                hides=function in HIDING,
            )
            inside = inside._replace(
                inverts=way.passes and function in INVERTING and not _is_positive(args[0]),
                passes=way.passes and function in PASSING,
                keeps=way.keeps and function in KEEPING,
            )
            for arg in args:
                yield from _reads(arg, inside)


STEPS = frozenset({"sign", "floor", "round"})
"""Functions whose values are integers."""
HIDING = ARBITRARY | {"max", "min", "power", "nearest", *STEPS}
"""Functions that may give a number where an argument is NaN."""
DIVIDING = frozenset({"reciprocal", "sqrt", "log", "power"})
"""Functions that are steep where their argument is small."""
INVERTING = frozenset({"reciprocal", "log", "power"})
"""Functions that are large where their argument is small."""
PASSING = frozenset({"abs", "max", "min", "exp", "sqrt", "power", "floor", "round", "nearest"})
"""Functions that may be large where their argument is."""
KEEPING = frozenset({"abs", "max", "min", "tanh", "erf", "sin"})
"""Functions whose values are small where their argument is, with the same error."""


def _is_positive(e: Scalar) -> bool:
    """Whether a number is known not to be near 0, as 1 and an exponential."""
    match e:
        case Literal(value):
            return value > 0
        case Call("exp", _):
            return True
        case SumOver(_, _, body):
            return _is_positive(body)
        case Plus(args):
            return all(map(_is_positive, args))
    return False
