"""Measures rounding errors of both sides of a proved rule, and refuses directions that lose digits.

A proof over the reals says nothing about rounding: ``softmax(x) = exp(x) / sum(exp(x))`` is proved,
and of no use for x = 100. So both sides are evaluated on the same inputs in each element type
(`xflow.verifier.rounding.rounded`) and compared with float64.

**Inputs** are about 1 (ordinary), and extreme: in the hundreds and around 1e4, which activations
of real networks reach; around 1e-4; of magnitudes that differ from element to element and from
input to input; large with small differences, where what is subtracted cancels. They are rounded
to the element type first: their own rounding counts as no error of either side. In fp32 a direction
is judged about 2^-40 and 2^40 as well, which is in no figure: a product of four such numbers is 0
or infinite on the way to a result that is neither.

**The scale** of an error at an output element is the error that any evaluation has: the size of
the result, and how much it changes when each input changes by about a unit in its last place (its
condition), which is the same for both sides. So ``x*(y + z) = x*y + x*z`` may be used both ways
although one of them cancels for y near -z: the result is as uncertain when y is. But not
``mean((x - mean(x))^2)`` to ``mean(x^2) - mean(x)^2``, whose error grows with the square of the
mean.

**A direction is refused** where at some element the error of the side that it leads to exceeds
`BOUND` times both that scale and the error of the side that it comes from, or where the side that
it leads to overflows and the other does not, though nothing that enters the result is near the
end of the type's range. What is refused in fp32 is refused everywhere.

It is refused for ``elements`` alone if it is about sums of products, and no error exceeds that
bound times the largest scale of the tensor: fast algorithms that add inputs before they multiply
are right beside the largest elements, and may be wrong at those that are small beside others.

**A direction cancels** if it would be refused without regard to the condition: a result that is as
uncertain as its inputs is no excuse where these are exact, as the constants of a model are and the
pixels of an image. Whether it happens depends on the constants at hand: means that are large beside
deviations lose digits, others do not. So it is asked where such a direction is applied. It has
**offsets** if it would be refused likewise where one input is small beside others that cancel.

**Decisions** that depend on rounded results, by comparing them or by rounding them to integers,
must not change: rules on such operators are refused, unless they are exact.

**The reference** for a direction is the float64 value of the side that it comes from. That side's
error in float64 is as a rule that in fp32 times 2^-29, which is nothing beside it. Where both are
the same (``1 - sigmoid(x)`` is 0 for large x), the other side seems wrong; so before a direction is
refused for an error, the reference is computed anew with 320 bits (`xflow.verifier.rounding.wide`).

The figures are the same on every machine: no runtime takes part, inputs are exact, figures are
powers of two, and their boundaries lie where no exact result falls.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

import numpy as np

from xflow.core.errors import ShapeError
from xflow.core.evaluation import read
from xflow.core.graph import walk
from xflow.core.node import Leaf, Value
from xflow.core.registry import Array, Operator, Shape
from xflow.core.size import evaluate, symbol
from xflow.core.sorts import REAL
from xflow.core.value_conditions import Fact
from xflow.ops.constants import Constant
from xflow.ops.shape import Movement
from xflow.rewriting.cancellation import ROLES
from xflow.rewriting.instance import Instance
from xflow.rewriting.numerics import ELEMENTS, EXACT, UNMEASURED, Figures, Numerics, Refusal
from xflow.rewriting.rule import BITS, Rule
from xflow.verifier.preconditions import left_conditions, size_names
from xflow.verifier.proof.exact import decides_by_rounded
from xflow.verifier.refutation.refute import Sampler, concretize, element_count, real_symbols
from xflow.verifier.rounding.magnitudes import (
    FAR,
    KINDS,
    Draw,
    draw_inputs,
    jitter,
    ones,
    opposed,
    satisfying,
)
from xflow.verifier.rounding.rounded import (
    FP32,
    PRECISIONS,
    Precision,
    run_accumulating,
    run_rounded,
)
from xflow.verifier.rounding.wide import run_wide

BOUND = 2.0**6
"""A direction may lose this factor, six bits, against the side that it comes from."""

LINEAR = frozenset({"Add", "Sub", "Mul", "Neg", "Sum", "ReduceSum"})
"""Operators that fast algorithms for products consist of, besides products and movements."""

ERROR = "error"
"""The reason of a direction whose errors are too large, however they are measured."""

HEADROOM = 16.0
"""An overflow counts where what enters the result is this factor below the type's largest number:
nearer to it, each order of summation overflows somewhere. Where elements are added up, that is
asked of all outputs of a case at once."""

DIGITS_LEFT = 0.25
"""Elements that change by more than this part of themselves when the inputs change by a unit in
the last place say nothing: they have no digits in this element type."""

SAMPLES = 8
"""Evaluations of one case, at inputs some units in the last place apart: an error that is 0 by
chance at one of them is not so at all of them, and no difference stays the same in all. With four,
one draw in five of large numbers that are close called ``x*y - x*z`` worse than ``x*(y - z)``."""

DRAWS = 8
"""Of so many draws of sizes the largest is measured."""
SMALL = 2_000
"""Elements of all inputs together."""
MOST_SIGNS = 8
"""Ways to give the inputs of a rule signs that are tried."""
LANES = 96
"""Elements of each input of a rule on inputs of any shape."""

Evaluate: TypeAlias = Callable[
    [Sequence[Value], Mapping[str, Array], Precision | None], list[Array]
]


def measure(
    rule: Rule, precisions: Sequence[Precision] = PRECISIONS, evaluate: Evaluate = run_rounded
) -> Numerics:
    """The errors of both sides of `rule` at its first rank, and the directions it is not for.

    Where nothing could be measured, every direction is refused. The line in a rule comes from
    `run_rounded`; another way to evaluate in a precision (none: in float64) is for comparison.
    """
    instance = rule.instance(rule.ranks[0])
    if rule.exact == BITS and instance.is_schematic:
        return Numerics((), note=EXACT)  # whatever the operators stand for
    if not any(value.type.dtype == REAL for value in (*instance.inputs, *instance.lhs)):
        return Numerics((), note=EXACT)
    back = rule.reversed().instance(rule.ranks[0]) if rule.reverse is not None else None
    directions = ("forward",) if back is None else ("forward", "reverse")
    case = find_case(instance, back, f"{rule.lhs} {rule.rhs}")
    if case is None:
        return Numerics((), tuple(Refusal(d, UNMEASURED) for d in directions), UNMEASURED)
    figures: list[Figures] = []
    refusals: list[Refusal] = []
    cancels: tuple[str, ...] = ()
    offsets: tuple[str, ...] = ()
    if rule.exact is None and any(map(_decides, (*instance.lhs, *instance.rhs))):
        refusals += [Refusal(direction, "discrete") for direction in directions]
    for precision in precisions:
        tally = _Tally(precision, evaluate)
        for extreme, inputs in case.inputs(precision):
            tally.add(case, inputs, extreme)
        if precision is FP32:
            for inputs in case.far(precision):
                tally.add(case, inputs, None)
            plain = ((case, inputs) for _, inputs in case.inputs(precision))
            for sharp, inputs in itertools.chain(plain, case.opposed(instance, precision)):
                tally.add_cancellation(sharp, inputs)
            cancels = tally.cancelling(directions)
            for sharp, inputs in case.opposed(instance, precision, beside=True):
                tally.add_cancellation(sharp, inputs)
            offsets = tuple(d for d in tally.cancelling(directions) if d not in cancels)
        figures.append(tally.figures())
        for direction in directions:
            reason = tally.reasons.get(direction)
            if reason and not any(_covers(known, direction, reason) for known in refusals):
                here = "" if precision is FP32 else precision.name
                refusals.append(Refusal(direction, reason, here))
    return Numerics(
        tuple(figures),
        tuple(sorted(refusals, key=lambda item: item.direction)),
        cancels=cancels,
        offsets=offsets,
    )


def _covers(known: Refusal, direction: str, reason: str) -> bool:
    """Whether a refusal in all element types says as much as another one of a single type."""
    return (known.direction, known.type) == (direction, "") and (
        known.reason != ELEMENTS or reason == ELEMENTS
    )


def _decides(value: Value) -> bool:
    """Whether a comparison or an integer in a side depends on rounded results."""
    index = tuple(symbol(f"_i{axis}") for axis in range(len(value.shape)))
    return decides_by_rounded(read(value, index))


@dataclass(frozen=True)
class Case:
    """Both sides of a rule at concrete sizes, over the same leaves."""

    left: tuple[Value, ...]
    right: tuple[Value, ...]
    leaves: tuple[Value, ...]
    facts: tuple[Fact, ...]
    apart: bool
    """Each output element depends on one element of each input."""
    seed: str
    sizes: Mapping[str, int]

    @cached_property
    def adds_products(self) -> bool:
        """Whether it is about convolutions or products of matrices, and about sums alone."""
        ops = [node.op for node in walk((*self.left, *self.right)) if isinstance(node.op, Operator)]
        sums = any(op.role in ROLES for op in ops)
        return sums and all(
            op.role in ROLES or op.name in LINEAR or isinstance(op, Movement | Constant)
            for op in ops
        )

    def inputs(self, precision: Precision) -> Iterator[tuple[bool, list[dict[str, Array]]]]:
        """For each sort of magnitudes whether it is extreme, and `SAMPLES` neighbouring inputs."""
        for number, (extreme, draw) in enumerate(KINDS):
            seed = random.Random(f"{self.seed} {precision.name} {number}").getrandbits(64)
            yield extreme, self.samples(draw, np.random.default_rng(seed), precision)

    def far(self, precision: Precision) -> Iterator[list[dict[str, Array]]]:
        """Inputs that are all far from 1."""
        for number, draw in enumerate(FAR):
            seed = random.Random(f"{self.seed} far {number}").getrandbits(64)
            yield self.samples(draw, np.random.default_rng(seed), precision)

    def samples(
        self, draw: Draw, rng: np.random.Generator, precision: Precision
    ) -> list[dict[str, Array]]:
        """`SAMPLES` neighbouring inputs."""
        base = draw_inputs(self.leaves, draw, rng, precision)
        for fact in self.facts:
            if fact.name in base:
                base[fact.name] = satisfying(fact, base[fact.name])
        jittered = (
            {key: jitter(array, rng, precision) for key, array in base.items()}
            for _ in range(SAMPLES - 1)
        )
        return [base, *jittered]

    def opposed(
        self, instance: Instance, precision: Precision, *, beside: bool = False
    ) -> Iterator[tuple[Case, list[dict[str, Array]]]]:
        """The case with inputs, and real attributes, that are large and nearly cancel.

        In the ways of `_ways`: with inputs that are small `beside` them, or with none.
        """
        names = sorted(real_symbols((*instance.lhs, *instance.rhs)))
        large = Fraction(2) ** (precision.digits // 2 - 1)
        for real in (None, large, -large) if names else (None,):
            case: Case | None = self
            if real is not None:
                rng = random.Random(self.seed)
                reals = dict.fromkeys(names, real)
                case = _concrete(instance, self.sizes, self.facts, rng, self.seed, given=reals)
            for number, signs in enumerate(_ways(len(self.leaves), beside=beside)):
                if case is not None:
                    seed = random.Random(f"{self.seed} {number}").getrandbits(64)
                    yield case, case.samples(opposed(signs), np.random.default_rng(seed), precision)

    def run(
        self, feeds: Mapping[str, Array], precision: Precision | None, evaluate: Evaluate
    ) -> list[list[Array]]:
        """The outputs left and right, side by side."""
        with np.errstate(all="ignore"):
            outputs = evaluate((*self.left, *self.right), feeds, precision)
        count = len(self.left)
        return [outputs[:count], outputs[count:]]


def _ways(count: int, *, beside: bool) -> Iterator[tuple[int, ...]]:
    """Ways to give so many inputs signs, up to `MOST_SIGNS`; 0 for those that are small.

    `beside` the large ones one input is small, or all but two are: in an attention whose scores are
    large as well, one weight is 1 and nothing is added up.
    """
    if not beside:
        yield from itertools.islice(itertools.product((1, -1), repeat=count), MOST_SIGNS)
        return
    every = itertools.product((1, -1, 0), repeat=count) if count > 2 else iter(())
    one_small = (signs for signs in every if signs.count(0) == 1 and signs[0] != -1)
    yield from itertools.islice(one_small, MOST_SIGNS)
    if count > 3:
        for pair in itertools.combinations(range(count), 2):
            for sign in (1, -1):
                signs = dict(zip(pair, (1, sign), strict=True))
                yield tuple(signs.get(number, 0) for number in range(count))


def find_case(instance: Instance, back: Instance | None, seed: str) -> Case | None:
    """Concrete sizes at which both directions are defined; of several draws the largest.

    None where none was found; then without the conditions of the way back.
    """
    for other in (back, None) if back else (None,):
        rng = random.Random(f"numerics {seed}")
        conditions = left_conditions(instance) + (left_conditions(other) if other else [])
        facts = tuple(dict.fromkeys(instance.facts + (other.facts if other else ())))
        names = size_names(instance, conditions)
        sampler = _Extents(names, list(dict.fromkeys(conditions)), rng)
        best: Case | None = None
        worth: tuple[bool, int, int] | None = None
        found = 0
        for _ in range(6 * DRAWS):
            sizes = sampler.draw()
            if sizes is None:
                break
            case = _concrete(instance, sizes, facts, rng, seed)
            value = _worth(case) if case else None
            if value is None:
                continue
            if worth is None or value > worth:
                best, worth = case, value
            found += 1
            if found == (DRAWS if names else 1):
                break
        if best:
            return best
    return None


def _concrete(
    instance: Instance,
    sizes: Mapping[str, int],
    facts: tuple[Fact, ...],
    rng: random.Random,
    seed: str,
    *,
    given: Mapping[str, Fraction] | None = None,
) -> Case | None:
    """The case at some sizes; real attributes are drawn unless they are `given`."""
    shapes: dict[str, Shape] = {
        _key(value): (LANES,)
        if instance.broadcast
        else tuple(evaluate(size, sizes) for size in value.shape)
        for value in instance.inputs
    }
    names = sorted(real_symbols((*instance.lhs, *instance.rhs)))
    reals = dict(given or {name: Fraction(rng.randint(1, 12), 8) for name in names})
    try:
        left = concretize(instance.lhs, sizes, reals, shapes)
        right = concretize(instance.rhs, sizes, reals, shapes)
        found = {_key(v): v for v in concretize(instance.inputs, sizes, reals, shapes)}
    except (ShapeError, ZeroDivisionError):
        return None
    leaves = tuple(found.values())
    case = Case(tuple(left), tuple(right), leaves, facts, instance.broadcast, seed, sizes)
    elements = [element_count(value.shape) for value in case.leaves]
    outputs = [element_count(value.shape) for value in (*left, *right)]
    if sum(elements) > SMALL or max(outputs) > SMALL or not min(outputs):
        return None
    if [v.shape for v in left] != [v.shape for v in right]:
        return None
    return case


class _Extents(Sampler):
    """Sizes with room for sums: over an axis of extent 1 nothing cancels."""

    def _value(self, name: str) -> int:
        value = self._rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 6))
        return max(value, self._lows.get(name, value))


def _worth(case: Case) -> tuple[bool, int, int] | None:
    """Whether outputs are more than border, the axes that are no formality, the elements.

    None where the outputs are not defined, such as for indices that lie outside.
    """
    try:
        left, _ = case.run(ones(case.leaves), None, run_rounded)
    except (IndexError, ValueError):
        return None
    shapes = [value.shape for value in (*case.leaves, *case.left)]
    return (
        all(np.count_nonzero(array) > array.size / 4 for array in left),
        sum(evaluate(size, {}) > 1 for shape in shapes for size in shape),
        sum(map(element_count, shapes)),
    )


def _key(value: Value) -> str:
    assert isinstance(value.node.op, Leaf)
    return value.node.op.key


@dataclass
class _Tally:
    """The worst errors over all cases in one element type."""

    precision: Precision
    evaluate: Evaluate
    errors: dict[tuple[bool, int], float] = field(default_factory=dict)
    """By whether the magnitudes are extreme, and the side."""
    cancels: dict[str, bool] = field(default_factory=dict)
    """Whether a direction loses digits that the other side keeps."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why not to use a direction; empty if there is no reason."""

    def cancelling(self, directions: Iterable[str]) -> tuple[str, ...]:
        """Those of the directions that lose digits, in the order of their names."""
        return tuple(sorted(d for d in directions if self.cancels.get(d)))

    def add(self, case: Case, samples: Sequence[Mapping[str, Array]], extreme: bool | None) -> None:
        """Take one set of neighbouring inputs into account; with None, in no figure."""
        with np.errstate(all="ignore"):
            for output, sides in self._sides(case, samples, self.evaluate):
                if extreme is not None:
                    self._record(sides, extreme)
                self._judge(case, samples, output, sides)

    def add_cancellation(self, case: Case, samples: Sequence[Mapping[str, Array]]) -> None:
        """Take one set of neighbouring inputs into account for what cancels alone."""
        if self.cancels.get("forward") and self.cancels.get("reverse"):
            return  # no more can be found
        with np.errstate(all="ignore"):
            for _, sides in self._sides(case, samples, run_accumulating):
                for direction, pair in (("forward", sides), ("reverse", sides[::-1])):
                    if not self.cancels.get(direction):
                        self.cancels[direction] = self._cancels(*pair)

    def _sides(
        self, case: Case, samples: Sequence[Mapping[str, Array]], evaluate: Evaluate
    ) -> Iterator[tuple[int, list[_Side]]]:
        """Both sides of each output, by its number."""
        exact = [case.run(feeds, None, evaluate) for feeds in samples]
        rounded = [case.run(feeds, self.precision, evaluate) for feeds in samples]
        for output in range(len(case.left)):
            yield (
                output,
                [
                    _Side(
                        *(
                            np.stack([run[side][output] for run in runs])
                            for runs in (exact, rounded)
                        )
                    )
                    for side in (0, 1)
                ],
            )

    def _judge(
        self,
        case: Case,
        samples: Sequence[Mapping[str, Array]],
        output: int,
        sides: Sequence[_Side],
    ) -> None:
        for direction, values in (("forward", case.left), ("reverse", case.right)):
            source, target = sides if direction == "forward" else reversed(sides)
            if self.reasons.get(direction, "") not in ("", ELEMENTS):
                continue
            reason = self._loss(source, target, case)
            if reason in (ERROR, ELEMENTS):
                wide = [run_wide([values[output]], feeds) for feeds in samples]
                if all(wide):
                    source = replace(source, exact=np.stack([w[0] for w in wide if w]))
                    reason = self._loss(source, target, case)
            self.reasons[direction] = reason or self.reasons.get(direction, "")

    def _loss(self, source: _Side, target: _Side, case: Case) -> str:
        """Why not to replace `source` by `target`; empty if there is no reason."""
        unit = self.precision.unit
        sense = source.sensitivity()
        size = np.abs(source.exact).max(axis=0)
        judged = np.isfinite(source.exact).all(axis=0) & np.isfinite(source.rounded).all(axis=0)
        inside = judged & (size + sense / (2 * unit) <= self.precision.largest / HEADROOM)
        judged &= ~(sense > DIGITS_LEFT * size)
        finite = np.isfinite(target.rounded).all(axis=0)
        if (judged & inside & ~finite).any() and (case.apart or inside.all()):
            return "overflow"
        scale = np.maximum(sense, unit * size)
        scale = np.maximum(scale, _rms(source.rounded - source.exact))
        scale = np.maximum(scale, self.precision.negligible)
        errors = _rms(target.rounded - source.exact)
        worse = errors > BOUND * scale
        if not (judged & finite & worse).any():
            return ""
        if not case.adds_products:
            return ERROR
        norm = float(scale[judged & finite].max())
        return ERROR if (errors > BOUND * norm)[judged & finite].any() else ELEMENTS

    def _cancels(self, source: _Side, target: _Side) -> bool:
        """Whether `target` loses digits that `source` keeps, at inputs that are taken as exact."""
        numbers = np.isfinite(source.exact) & np.isfinite(source.rounded)
        numbers &= np.isfinite(target.rounded)
        judged = numbers.all(axis=0)
        if not judged.any():
            return False
        exact, before, after = (
            a[:, judged] for a in (source.exact, source.rounded, target.rounded)
        )
        # Of all elements together: at a single one, either side may be right by chance.
        scale = max(
            self.precision.unit * float(_rms(exact).max()),
            float(_rms(before - exact).max()),
            self.precision.negligible,
        )
        return float(_rms(after - exact).max()) > BOUND * scale

    def _record(self, sides: Sequence[_Side], extreme: bool) -> None:
        """Each side's error against the nearer of the two float64 values."""
        unit = self.precision.unit
        for side, own in enumerate(sides):
            worst = self.errors.setdefault((extreme, side), 0.0)
            for other in sides:
                sense = other.sensitivity() / (2 * unit)
                size = np.abs(other.exact).max(axis=0) + sense
                known = np.isfinite(sides[0].exact) & np.isfinite(sides[1].exact)
                known = known.all(axis=0) & np.isfinite(sense)
                known &= size <= self.precision.largest / HEADROOM
                difference = np.abs(own.rounded - other.exact)
                difference = np.where(difference <= self.precision.negligible, 0, difference)
                ratio = (difference / np.where(size > 0, size, 1)).max(axis=0)
                ratio = np.where(np.isfinite(ratio), ratio, np.inf)
                other.ratio = np.where(known, ratio, np.nan)
            nearer = np.fmin(sides[0].ratio, sides[1].ratio)
            nearer = nearer[~np.isnan(nearer)]
            self.errors[extreme, side] = max(worst, nearer.max(initial=0.0))

    def figures(self) -> Figures:
        """The errors in words."""
        keys = ((False, 0), (False, 1), (True, 0), (True, 1))
        return Figures(self.precision.name, *(_power(self.errors.get(key, 0.0)) for key in keys))


@dataclass
class _Side:
    """One output of one side at all samples: in float64, and rounded."""

    exact: Array
    rounded: Array
    ratio: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.exact = self.exact.astype(np.float64)  # Booleans and integers as numbers
        self.rounded = self.rounded.astype(np.float64)

    def sensitivity(self) -> Array:
        """How far the other samples lie from the first, in float64."""
        change = _rms(self.exact[1:] - self.exact[0])
        return np.where(np.isfinite(change), change, 0.0)


def _rms(samples: Array) -> Array:
    mean: Array = np.sqrt(np.mean(samples * samples, axis=0))
    return mean


def _power(error: float) -> str:
    """The least power of two that is not below `error`, up to a quarter of a power."""
    if error == 0 or math.isinf(error):
        return "inf" if error else "0"
    return f"2^{math.ceil(math.log2(error) - 0.25)}"
