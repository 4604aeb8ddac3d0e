"""Cross-check of a proof on inputs with NaN and infinities in some elements.

Both sides are run at random small sizes with NaN and infinities in a few elements, where the rule's
conditions do not forbid them:

- Wherever the left side is a finite number, the right side must be the same one. That is what a
  rule claims of inputs that are terms: whatever is no number in them, the right side is a number
  where the left side is.
- Where the rule says that its sides agree to the bit, all elements must be equal, NaN and
  infinities included. Where it says so of numbers, that is tried without planting.
- Where nothing but -inf stands in inputs that the rule names in the line ``limits``, and the left
  side is -inf though it was a number with numbers in these places, the right side must be -inf,
  too. Nothing is claimed of an infinity that a quotient by 0 makes.

Large numbers are not tried: they are numbers, for which the sides are equal, and how far products
and powers of them overflow on one side alone is a matter of rounding, which is measured elsewhere,
see `xflow.verifier.rounding`. An overflow in a term that stands in the place of an input is the
infinity that is tried here.

Operators that are defined by others are run by their definitions, since a kernel may do better than
its definition where elements are not finite: that of Softmax takes the greatest element off, that
of PRelu reads no slope that it does not need. Where one side has more operators of which it is said
that they hide something, see `xflow.verifier.proof.hidden_inputs`, both are run by their own
readings as well. Where bits are compared, elementwise operators are run by these alone, so that one
operator is not taken for the several that define it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from xflow.analysis.elements import approximates
from xflow.core.composite import Composite
from xflow.core.errors import ShapeError
from xflow.core.evaluation import run
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Array, Attribute, Attributes, Operator, Shape
from xflow.core.size import evaluate
from xflow.core.sorts import BOOL, CODE, INT, REAL
from xflow.core.value_conditions import BELOW_INFINITY, SIGNS
from xflow.rewriting.instance import Instance, leaf_name
from xflow.rewriting.rule import BITS, NUMBERS, Rule
from xflow.verifier.preconditions import left_conditions, size_names
from xflow.verifier.proof.hidden_inputs import hides
from xflow.verifier.refutation.counterexample import Counterexample, sides
from xflow.verifier.refutation.refute import (
    MAX_ELEMENTS,
    TOLERANCE,
    Sampler,
    Survived,
    broadcast_shapes,
    code_spans,
    concrete,
    concretize,
    element_count,
    index_ranges,
    random_elements,
    real_numbers,
    real_symbols,
    satisfying,
    sprinkled,
    whole_numbers,
)

SPECIAL = (np.nan, np.inf, -np.inf)
NUMBER_DRAWS = 3
"""Inputs of numbers alone, at each assignment of sizes, where bits are compared."""
SHARES = (0.0, 0.0, 0.2, 0.5)
"""Shares of elements that are planted besides one of each input."""


def search_planted(rule: Rule, *, cases: int = 16, seed: int = 0) -> Counterexample | Survived:
    """Run both sides of `rule` on planted inputs at `cases` random sizes for each rank.

    Cases of which nothing can be compared count as well: where all that may be planted makes the
    left side undefined, nothing is claimed.
    """
    done = 0
    for instance in rule.instances():
        rng = random.Random(f"planted {seed} {rule.lhs} {rule.rhs} {instance.rank}")
        conditions = left_conditions(instance)
        names = size_names(instance, conditions)
        sampler = Sampler(names, conditions, rng, whole_numbers(instance, conditions))
        compared = 0
        for _ in range(2 * cases):
            sizes = sampler.draw() if compared < cases else None
            if sizes is None:
                break
            outcome = compare_planted(instance, sizes, rng)
            if isinstance(outcome, Counterexample):
                return outcome
            compared += outcome
        done += compared
    return Survived(done)


def compare_planted(
    instance: Instance, sizes: Mapping[str, int], rng: random.Random
) -> Counterexample | int:
    """A counterexample at these sizes, or the number of cases (0 or 1) that were run."""
    reals = {
        name: Fraction(rng.choice((-8, -5, -1, *range(1, 13))), 8)
        for name in sorted(real_symbols((*instance.lhs, *instance.rhs)))
    }
    for fact in instance.facts:
        if fact.name in reals and not fact.holds(reals[fact.name]):
            reals[fact.name] = abs(reals[fact.name])
    drawn = _drawn(instance, sizes, reals, rng)
    if drawn is None:
        return 0
    unplanted = {name: array.copy() for name, array in drawn.items()}
    only_limits = _plant(instance, drawn, rng)
    outcome = compare_on_planted(instance, sizes, reals, drawn, unplanted if only_limits else None)
    for _ in range(NUMBER_DRAWS if instance.exact is not None else 0):
        numbers = _drawn(instance, sizes, reals, rng, digits=True)
        if isinstance(outcome, Counterexample) or numbers is None:
            break
        outcome = compare_on_planted(instance, sizes, reals, numbers) or outcome
    return outcome


def _drawn(
    instance: Instance,
    sizes: Mapping[str, int],
    reals: Mapping[str, Fraction],
    rng: random.Random,
    digits: bool = False,
) -> dict[str, Array] | None:
    """Numbers in all elements, with `digits` to the last place; None for inputs too large."""
    shapes: dict[str, Shape] = {
        leaf_name(value): tuple(evaluate(size, sizes) for size in value.shape)
        for value in instance.inputs
    }
    if instance.broadcast:
        shapes = broadcast_shapes(shapes, rng)
    if any(element_count(shape) > MAX_ELEMENTS for shape in shapes.values()):
        return None
    ranges = index_ranges(instance, sizes, reals, shapes) | code_spans(instance, rng)
    facts = {fact.name: fact for fact in instance.facts if fact.relation in SIGNS}
    numbers = real_numbers(instance)
    found = {}
    for value in instance.inputs:
        name = leaf_name(value)
        array = random_elements(value.type.dtype, shapes[name], rng, ranges.get(name))
        array = sprinkled(array, numbers, rng)
        if digits and value.type.dtype == REAL:  # products and sums of eighths do not round
            generator = np.random.default_rng(rng.getrandbits(32))
            array = array * (1 + generator.random(array.shape) / 8)
        # Of an array without axes numpy makes a number, in which nothing can be planted.
        if name in facts:
            array = satisfying(facts[name], array, whole=value.type.dtype == CODE)
        found[name] = np.array(array)
    return found


def plantable(instance: Instance) -> dict[str, tuple[float, ...]]:
    """The values other than numbers that elements of each input may have."""
    relations: dict[str, set[str]] = {}
    for fact in instance.facts:
        relations.setdefault(fact.name, set()).add(fact.relation)
    found: dict[str, tuple[float, ...]] = {}
    for value in instance.inputs:
        name = leaf_name(value)
        if value.type.dtype != REAL:
            continue
        asked = relations.get(name, set())
        if not asked:
            found[name] = SPECIAL
        elif asked == {BELOW_INFINITY}:
            found[name] = (-np.inf,)
    return found


def _plant(instance: Instance, inputs: dict[str, Array], rng: random.Random) -> bool:
    """Plant NaN or infinities in `inputs`; whether only -inf, in inputs of ``limits``."""
    allowed = {name: kinds for name, kinds in plantable(instance).items() if inputs[name].size}
    limits = sorted(instance.limits & allowed.keys())
    only_limits = bool(limits) and rng.random() < 0.5
    if only_limits:
        allowed = dict.fromkeys(limits, (-np.inf,))
    names = sorted(allowed)
    if not names:
        return False
    chosen = rng.sample(names, rng.choice((1, 1, min(2, len(names)), len(names))))
    for name in chosen:
        array, kinds = inputs[name], allowed[name]
        share = rng.choice(SHARES)
        flat = array.reshape(-1)
        places = {rng.randrange(flat.size), *(k for k in range(flat.size) if rng.random() < share)}
        for place in sorted(places):
            flat[place] = rng.choice(kinds)
        if rng.random() < 0.2 and array.ndim:  # a whole line, as of a mask that hides all of one
            axis = rng.randrange(array.ndim)
            line = [rng.randrange(n) for n in array.shape]
            index = tuple(slice(None) if k == axis else i for k, i in enumerate(line))
            array[index] = rng.choice(kinds)
    return only_limits


def compare_on_planted(
    instance: Instance,
    sizes: Mapping[str, int],
    reals: Mapping[str, Fraction],
    inputs: Mapping[str, Array],
    unlimited: Mapping[str, Array] | None = None,
) -> Counterexample | int:
    """A counterexample with these very elements, or how many cases (0 or 1) were run.

    `unlimited`: where `inputs` are numbers but for -inf in inputs of ``limits``, the same with
    numbers there.
    """
    values: dict[str, Array | Fraction] = {**reals, **inputs}
    if not all(fact.holds(*(values[name] for name in fact.names)) for fact in instance.facts):
        return 0
    shapes: dict[str, Shape] = {name: array.shape for name, array in inputs.items()}
    try:
        left, right = (
            concretize(side, sizes, reals, shapes) for side in (instance.lhs, instance.rhs)
        )
    except (ShapeError, ZeroDivisionError):
        return 0  # that the right side can be made wherever the left can is asked without planting
    if any(element_count(value.shape) > MAX_ELEMENTS for value in (*left, *right)):
        return 0
    evaluation = _Evaluation(inputs)
    usual = None if unlimited is None else _Evaluation(unlimited)
    at_numbers: Sequence[Array | None] = (None,) * len(left)
    try:
        with np.errstate(all="ignore"):
            before = tuple(evaluation.array(value) for value in left)
            after = tuple(evaluation.array(value) for value in right)
            if usual is not None:
                at_numbers = [usual.array(value) for value in left]
    except (IndexError, ShapeError):
        return 0

    def shown(attribute: Attribute) -> Attribute:
        return concrete(attribute, sizes, reals)

    def counterexample(
        reason: str, left_outputs: tuple[Array, ...], right_outputs: tuple[Array, ...]
    ) -> Counterexample:
        return Counterexample(
            instance.rank,
            {} if instance.broadcast else dict(sizes),
            dict(reals),
            dict(inputs),
            reason,
            *sides(instance, shown),
            left_outputs,
            right_outputs,
        )

    for number, (a, b) in enumerate(zip(before, after, strict=True)):
        if a.shape != b.shape:
            continue  # that is found without planting, too
        reason = _difference(number, _real(a), _real(b), at_numbers[number])
        if reason:
            return counterexample(reason, before, after)
    if any(map(hides, (*left, *right))):
        with np.errstate(all="ignore"):
            before, after = (tuple(run(side, inputs)) for side in (left, right))
        for number, (a, b) in enumerate(zip(before, after, strict=True)):
            reason = _difference(number, _real(a), _real(b))
            if reason and a.shape == b.shape:
                return counterexample(reason, before, after)
    numbers = all(np.isfinite(array).all() for array in inputs.values())
    if instance.exact == BITS or (instance.exact == NUMBERS and numbers):
        bitwise = _Bits(inputs)
        with np.errstate(all="ignore"):
            before = tuple(bitwise.array(value) for value in left)
            after = tuple(bitwise.array(value) for value in right)
        for number, (a, b) in enumerate(zip(before, after, strict=True)):
            reason = _difference_in_bits(number, a, b)
            if reason:
                return counterexample(reason, before, after)
    return 1


def _real(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind in "biu" else array


def _difference(number: int, a: Array, b: Array, at_numbers: Array | None = None) -> str:
    """How the right output `b` is not what the left output `a` asks for; empty where it is.

    `at_numbers`: the left output with numbers in place of -inf, where nothing else is planted.
    """
    defined = np.isfinite(a)
    magnitude = np.abs(a[defined]).max(initial=1.0)
    with np.errstate(all="ignore"):
        wrong = defined & ~(np.abs(a - b) <= TOLERANCE * magnitude)
        if at_numbers is not None:
            wrong |= np.isneginf(a) & np.isfinite(at_numbers) & ~np.isneginf(b)
    return _at(number, a, b, wrong)


def _difference_in_bits(number: int, a: Array, b: Array) -> str:
    if a.shape != b.shape:
        return ""
    same = a == b
    if a.dtype.kind == "f":
        same |= np.isnan(a) & np.isnan(b)
    reason = _at(number, a, b, ~same)
    return f"{reason}, though they are said to agree to the bit" if reason else ""


def _at(number: int, a: Array, b: Array, wrong: Array) -> str:
    if not wrong.any():
        return ""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    one, other = (repr(x[where].item()) for x in (a, b))
    return f"output {number} at {list(where)} is {one} left and {other} right"


@dataclass
class _Evaluation:
    """Values by the operators' numpy readings, of composites by what defines them."""

    inputs: Mapping[str, Array]

    def __post_init__(self) -> None:
        self._known: dict[Node, list[Array]] = {}

    def array(self, value: Value) -> Array:
        """The data of a value. Raises IndexError, ShapeError."""
        for node in walk([value], _Known(self._known)):
            if node not in self._known:
                self._known[node] = self._outputs(node)
        return self._known[value.node][value.index]

    def _outputs(self, node: Node) -> list[Array]:
        if isinstance(node.op, Leaf):
            return [self.inputs[node.op.key]]
        assert isinstance(node.op, Operator)
        return self.operator(node, [self._known[v.node][v.index] for v in node.inputs])

    def operator(self, node: Node, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of an operator on its inputs."""
        op = node.op
        if isinstance(op, Composite):
            return [self.array(value) for value in op.define(node.inputs, node.attributes)]
        return _plain(node, arrays)


class _Known:
    """The values of nodes that are known, as `walk` asks for them."""

    def __init__(self, nodes: Mapping[Node, object]):
        self._nodes = nodes

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Value) and value.node in self._nodes


def computes_exactly(op: Operator, attributes: Attributes, count: int) -> bool:
    """Whether an elementwise operator of `count` inputs computes nothing but sums and the like.

    These are the nearest floats, so that an element does not depend on its place in an array.
    """
    try:
        return not approximates(op, tuple(sorted(attributes.items())), count)
    except ShapeError:  # it takes no single numbers
        return False


class _Bits(_Evaluation):
    """The same in 32-bit floats: elementwise operators by their own readings.

    What an operator computes in 64 bits is rounded to 32, which for sums, products, quotients and
    roots is the nearest float, see S. A. Figueroa, When is double rounding innocuous?, SIGNUM 30
    (1995). In 64 bits themselves some functions of numpy are a digit off, and compute the last
    elements of an array in another way than the others: those are run element by element. There is
    one kind of zero.
    """

    def _outputs(self, node: Node) -> list[Array]:
        return [_rounded(array) for array in super()._outputs(node)]

    def operator(self, node: Node, arrays: Sequence[Array]) -> list[Array]:
        op = node.op
        assert isinstance(op, Operator)
        if not op.elementwise or not arrays:
            return super().operator(node, arrays)
        spread = np.broadcast_arrays(*arrays)
        flat = [array.reshape(-1) for array in spread]
        if not flat[0].size:
            return super().operator(node, arrays)
        if computes_exactly(op, node.attributes, len(arrays)):
            return _plain(node, arrays)
        each = [_plain(node, [a[k : k + 1] for a in flat])[0] for k in range(flat[0].size)]
        joined = np.concatenate([np.reshape(array, 1) for array in each])
        return [joined.reshape(spread[0].shape)]


def _rounded(array: Array) -> Array:
    return array.astype(np.float32).astype(np.float64) + 0.0 if array.dtype.kind == "f" else array


def _plain(node: Node, arrays: Sequence[Array]) -> list[Array]:
    """An operator's own reading."""
    op = node.op
    assert isinstance(op, Operator)
    outputs = op.numpy(arrays, node.attributes)
    if not node.inputs and node.types[0].dtype in (BOOL, INT):  # a constant of a rule
        kind = np.bool_ if node.types[0].dtype == BOOL else np.int64
        return [array.astype(kind) for array in outputs]
    return outputs
