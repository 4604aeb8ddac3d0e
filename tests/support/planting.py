"""Tests rules in ONNX Runtime, at concrete sizes, on inputs with NaN, infinities and extremes.

Both sides of a direction are one model, run without the runtime's optimizations on many inputs:
numbers, and among them NaN, infinities, zeros of both signs, the numbers that the rule names, the
least and the largest floats, in one element alone and in many. The outputs must have the properties
that the rule claims, see `judge`.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cached_property

import numpy as np
from runtime import Runtime

from xflow.core.errors import ShapeError
from xflow.core.graph import walk
from xflow.core.node import Value
from xflow.core.registry import Array, Attribute, Operator, RealSymbol, Shape
from xflow.core.size import evaluate
from xflow.core.sorts import CODE, REAL
from xflow.core.value_conditions import Fact
from xflow.onnx.writer import UnwritableError
from xflow.rewriting.instance import Instance, leaf_name
from xflow.rewriting.rule import BITS, NUMBERS, Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.preconditions import left_conditions, size_names
from xflow.verifier.refutation.confirm import differ_exactly
from xflow.verifier.refutation.counterexample import Counterexample, sides
from xflow.verifier.refutation.refute import (
    Sampler,
    broadcast_shapes,
    concrete,
    concretize,
    element_count,
    index_ranges,
    random_elements,
    real_numbers,
    real_symbols,
    satisfying,
    whole_numbers,
)
from xflow.verifier.rounding.measure import BOUND
from xflow.verifier.rounding.rounded import FP32, run_rounded
from xflow.verifier.rounding.wide import run_wide

FLOATS = np.finfo(np.float32)
SPECIAL = (np.nan, np.inf, -np.inf)
EXTREME = (
    *(float(FLOATS.max), -float(FLOATS.max)),
    *(float(FLOATS.smallest_subnormal), -1e-40),
)
"""Numbers whose product, quotient or power overflows or underflows."""
ORDINARY = (0.0, -0.0, 1.0, -1.0, 0.7, -2.3)
MOST_ELEMENTS = 600
"""Most elements of all inputs and outputs of an instance together."""
DRAWS = 12
"""Assignments of sizes that are drawn, of which the smallest are used."""
SHARES = (0.1, 0.3, 0.6, 1.0)
"""Shares of elements that are planted in one input."""
JITTERS = 6
"""Inputs some units in the last place apart, by which a result is seen to be uncertain."""


UNEVEN = frozenset({"Celu", "Cos", "Elu", "Log", "Mish", "Selu", "Sin", "Softplus"})
"""Operators on elements of which kernels of ONNX Runtime compute the last elements of a tensor in
another way than the others, so that some differ by a unit in the last place or two: where a rule
moves elements, its sides agree to the bit but for that. `test_kernels` holds that no others do."""
ROUGH = frozenset({"InstanceNormalization"})
"""Operators whose kernel subtracts a mean last, from scaled elements: it rounds at the magnitude of
the elements, and not at that of their deviations."""
UNITS = 8.0
"""So many units in the last place they may differ by, of 1 where they are less."""


class Planted(Enum):
    """The kinds of special values among the elements of an input."""

    NUMBERS = "numbers"
    SPECIAL = "NaN and infinities"
    LIMITS = "-inf where it is a limit"
    EXTREME = "the largest and the least floats"
    ALL = "all of these"


def reads_codes(rule: Rule) -> bool:
    """Whether an input is codes of 8 bits, which have no model of their own type alone."""
    return any(value.type.dtype == CODE for each in rule.instances() for value in each.inputs)


@dataclass(frozen=True)
class Feed:
    """One input of a model."""

    planted: Planted
    inputs: Mapping[str, Array]


@dataclass(frozen=True)
class Setting:
    """A direction of a rule at concrete sizes and attributes."""

    way: Rule
    instance: Instance
    sizes: Mapping[str, int]
    reals: Mapping[str, Fraction]
    shapes: Mapping[str, Shape]
    left: tuple[Value, ...]
    right: tuple[Value, ...]

    @property
    def elements(self) -> int:
        """How many elements inputs and outputs have."""
        outputs = (value.shape for value in (*self.left, *self.right))
        return sum(map(element_count, (*self.shapes.values(), *outputs)))

    @cached_property
    def operators(self) -> tuple[frozenset[str], frozenset[str]]:
        """The operators of the left and of the right side."""
        left, right = (
            frozenset(node.op.name for node in walk(side) if isinstance(node.op, Operator))
            for side in (self.left, self.right)
        )
        return left, right

    @cached_property
    def facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """The conditions on the values of each input."""
        found: dict[str, tuple[Fact, ...]] = {}
        for fact in self.instance.facts:
            found[fact.name] = (*found.get(fact.name, ()), fact)
        return found

    def allowed(self, name: str, values: Iterable[float]) -> list[float]:
        """Those of `values` that may stand in an input."""
        return [
            value
            for value in values
            if all(fact.holds(np.asarray(value)) for fact in self.facts.get(name, ()))
        ]


def settings(
    way: Rule, rank: int, count: int, *, positive: bool = False, seed: str = ""
) -> Iterator[Setting]:
    """The direction at some of its sizes of that rank: the smallest of some draws first.

    Real attributes are of both signs unless they have to be `positive`.
    """
    instance = way.instance(rank)
    rng = random.Random(f"planting {seed} {way.lhs} {way.rhs} {rank}")
    conditions = left_conditions(instance)
    names = size_names(instance, conditions)
    sampler = Sampler(names, conditions, rng, whole_numbers(instance, conditions))
    found: dict[str, Setting] = {}
    for _ in range(3 * DRAWS):
        sizes = sampler.draw()
        if sizes is None:
            break
        made = _setting(way, instance, sizes, rng, positive)
        if made is not None:
            found.setdefault(f"{made.sizes} {made.shapes}", made)
        if len(found) == DRAWS:
            break
    yield from sorted(found.values(), key=lambda setting: setting.elements)[:count]


def _setting(
    way: Rule, instance: Instance, sizes: Mapping[str, int], rng: random.Random, positive: bool
) -> Setting | None:
    """None where the left side is not defined, or something has no elements or too many."""
    shapes: dict[str, Shape] = {
        leaf_name(value): tuple(evaluate(size, sizes) for size in value.shape)
        for value in instance.inputs
    }
    if instance.broadcast:
        shapes = broadcast_shapes(shapes, rng)
    reals = {
        name: Fraction(rng.choice((-8, -5, -1, 0, *range(1, 13))), 8)
        for name in sorted(real_symbols((*instance.lhs, *instance.rhs)))
    }
    for name in _factors(instance):
        reals[name] = reals[name] or Fraction(1, 8)
    signed = frozenset(fact.name for fact in instance.facts) | _epsilons(instance)
    for name in reals if positive else signed & reals.keys():
        reals[name] = abs(reals[name]) or Fraction(1, 8)
    try:
        left, right = (
            tuple(concretize(side, sizes, reals, shapes)) for side in (instance.lhs, instance.rhs)
        )
    except (ShapeError, ZeroDivisionError):
        return None  # that the right side can be made where the left can is asked elsewhere
    values = [*left, *right, *(node.outputs[0] for node in walk((*left, *right)))]
    counts = [element_count(v.shape) for v in values] + [*map(element_count, shapes.values())]
    pairs = zip(left, right, strict=True)
    if not min(counts) or any(a.shape != b.shape for a, b in pairs if instance.broadcast):
        return None
    made = Setting(way, instance, sizes, reals, shapes, left, right)
    return made if made.elements <= MOST_ELEMENTS else None


def _factors(instance: Instance) -> frozenset[str]:
    """The real symbols that are a factor of a Gemm: one by 0 is none that a rule is applied to."""
    return frozenset(
        attribute.name
        for node in walk((*instance.lhs, *instance.rhs))
        for attribute in node.attributes.values()
        if isinstance(node.op, Operator) and node.op.name == "Gemm"
        if isinstance(attribute, RealSymbol)
    )


def _epsilons(instance: Instance) -> frozenset[str]:
    """The real symbols that are an epsilon somewhere, of which kernels ask that it is positive."""
    return frozenset(
        attribute.name
        for node in walk((*instance.lhs, *instance.rhs))
        for key, attribute in node.attributes.items()
        if key == "epsilon" and isinstance(attribute, RealSymbol)
    )


# Inputs ------------------------------------------------------------------------------------------


def feeds(setting: Setting, places: int, mixtures: int, seed: str = "") -> list[Feed]:
    """Inputs of numbers, with each odd value alone at `places`, and with mixtures of them."""
    rng = random.Random(f"feeds {seed} {setting.way.name} {setting.sizes} {setting.shapes}")
    named = real_numbers(setting.instance) + [float(real) for real in setting.reals.values()]
    ordinary = (*ORDINARY, *sorted({*named, *(-number for number in named)}))
    reals = [leaf_name(v) for v in setting.instance.inputs if v.type.dtype == REAL]
    found = [Feed(Planted.NUMBERS, _drawn(setting, rng, digits)) for digits in (False, True)]
    kinds = ((Planted.NUMBERS, ordinary), (Planted.SPECIAL, SPECIAL), (Planted.EXTREME, EXTREME))
    for name, (planted, values) in itertools.product(reals, kinds):
        for value in setting.allowed(name, values):
            for _ in range(min(places, element_count(setting.shapes[name]))):
                inputs = _drawn(setting, rng, rng.random() < 0.5)
                inputs[name].reshape(-1)[rng.randrange(inputs[name].size)] = value
                of_limit = value == -np.inf and name in setting.instance.limits
                found.append(Feed(Planted.LIMITS if of_limit else planted, inputs))
    mixed = {
        **{planted: (reals, values) for planted, values in kinds},
        Planted.ALL: (reals, (*ordinary, *SPECIAL, *EXTREME)),
        Planted.LIMITS: (sorted(setting.instance.limits), (-np.inf,)),
    }
    for planted, (names, values) in mixed.items():
        possible = {name: setting.allowed(name, values) for name in names}
        possible = {name: values for name, values in possible.items() if values}
        for _ in range(mixtures if possible else 0):
            inputs = _drawn(setting, rng, rng.random() < 0.5)
            one = rng.choice(values) if rng.random() < 0.4 else None  # equal elements may cancel
            for name in rng.sample(sorted(possible), rng.randint(1, len(possible))):
                own = possible[name]
                _plant(inputs[name], [one] if one in own else own, rng)
            found.append(Feed(planted, inputs))
    return found


def _plant(array: Array, values: Sequence[float], rng: random.Random) -> None:
    """Put some of `values` into some elements, and at times one of them along a line."""
    flat = array.reshape(-1)
    share = rng.choice(SHARES)
    for place in range(flat.size):
        if rng.random() < share:
            flat[place] = rng.choice(values)
    if array.ndim and rng.random() < 0.3:
        axis = rng.randrange(array.ndim)
        line = [rng.randrange(n) for n in array.shape]
        index = tuple(slice(None) if k == axis else i for k, i in enumerate(line))
        array[index] = rng.choice(values)


def _drawn(setting: Setting, rng: random.Random, digits: bool) -> dict[str, Array]:
    """Numbers of magnitudes up to 2 in all elements, as the facts ask: eighths, or any digits."""
    instance = setting.instance
    ranges = index_ranges(instance, setting.sizes, setting.reals, setting.shapes)
    found: dict[str, Array] = {}
    for value in instance.inputs:
        name, shape = leaf_name(value), setting.shapes[leaf_name(value)]
        if value.type.dtype != REAL:
            found[name] = np.array(random_elements(value.type.dtype, shape, rng, ranges.get(name)))
            continue
        generator = np.random.default_rng(rng.getrandbits(32))
        extents = [evaluate(size, {}) for size in shape]
        array = generator.integers(-16, 17, extents) / 8
        if digits:
            array = array + generator.random(extents) / 16
        for fact in setting.facts.get(name, ()):
            array = satisfying(fact, array)
        found[name] = np.array(array.astype(np.float32).astype(np.float64))
    return found


# Judgement ---------------------------------------------------------------------------------------


class Wrong(Enum):
    """The ways in which the right side may be wrong."""

    NO_NUMBER = "no number where the left side is one"
    DIFFERENT = "another number"
    BITS = "not the same to the bit"
    LIMIT = "not -inf where the left side is"
    SHAPE = "another shape"
    OVERFLOW = "an intermediate result overflows or underflows"
    CANCELS = "rounded where it cancels, as the rule's line says, or as the kernel does"
    ROUNDED = "more than rounding of moderate numbers makes of it, among extreme ones"


EXCUSED = frozenset({Wrong.OVERFLOW, Wrong.ROUNDED, Wrong.CANCELS})
"""Differences that rules permit: analyses of ranges and of cancellation prevent them in models."""


@dataclass(frozen=True)
class Finding:
    """A wrong element of the right side."""

    setting: Setting
    feed: Feed
    wrong: Wrong
    output: int
    place: tuple[int, ...]
    left: float
    right: float

    def counterexample(self) -> Counterexample:
        """The same for a person to run."""

        def shown(attribute: Attribute) -> Attribute:
            return concrete(attribute, self.setting.sizes, self.setting.reals)

        where = f"output {self.output} at {list(self.place)}"
        return Counterexample(
            self.setting.instance.rank,
            {} if self.setting.instance.broadcast else dict(self.setting.sizes),
            dict(self.setting.reals),
            dict(self.feed.inputs),
            f"{where} is {self.left!r} left and {self.right!r} right: {self.wrong.value}",
            *sides(self.setting.instance, shown),
            (),
            (),
        )

    def __str__(self) -> str:
        found = self.counterexample()
        return f"{self.setting.way.name}: {found.left} -> {found.right} {found}"


@dataclass
class Tally:
    """Counts of runs, and the findings."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    excused: Counter[Wrong] = field(default_factory=Counter)
    deviations: Counter[str] = field(default_factory=Counter)
    """Findings that are none by ONNX's definition, by the kernel that deviates from it."""

    def add(self, rule: Rule, instances: int, places: int, mixtures: int) -> None:
        """Judge every direction of a rule that may be applied, at some instances of each rank."""
        if reads_codes(rule):
            self.counts["rules on codes, which `test_coded_networks` runs"] += 1
            return
        for way in (way for each in spelled_out(rule) for way in each.directions()):
            if way.numerics is not None and "FLOAT" in way.numerics.refused:
                self.counts["directions refused for their roundings"] += 1
                continue
            self.counts["directions"] += 1
            for rank in way.ranks[:1] if instances == 1 else way.ranks:
                self._add(way, rank, instances, places, mixtures)

    def _add(self, way: Rule, rank: int, instances: int, places: int, mixtures: int) -> None:
        for positive in (False, True):
            made = list(settings(way, rank, instances, positive=positive))
            try:
                for setting in made:
                    judge(setting, feeds(setting, places, mixtures), self)
            except UnwritableError:  # as of an Attention by a negative factor
                if positive:
                    raise
                continue
            self.counts["instances"] += len(made)
            self.counts["ranks without an instance"] += not made
            return

    def __str__(self) -> str:
        parts = [f"{count:,} {name}" for name, count in self.counts.items()]
        parts += [f"{count:,} times {wrong.value}" for wrong, count in self.excused.items()]
        parts += [f"{count:,} by the kernel of {name}" for name, count in self.deviations.items()]
        return "; ".join(parts)


STANDING = {1: ("Relu", "Neg"), 2: ("Sub", "Max")}
"""Operators that stand for schematic ones, by how many inputs these have."""


def spelled_out(rule: Rule) -> list[Rule]:
    """The rule, or one for each operator that its schematic ones are to stand for."""
    instance = rule.instance(rule.ranks[0])
    schematic = [node for node in walk((*instance.lhs, *instance.rhs)) if node.is_schematic]
    if not schematic:
        return [rule]
    names = {node.op.name for node in schematic if isinstance(node.op, Operator)}
    text = re.sub(rf"\b({'|'.join(names)})\(", "{op}(", str(rule))
    inputs = len(schematic[0].inputs)
    return [r for op in STANDING[inputs] for r in parse_rules(text.replace("{op}", op))]


def judge(setting: Setting, given: Sequence[Feed], tally: Tally) -> None:
    """Run both sides on all of `given`, and look at each element of the outputs.

    Each that is finite on the left side has to be the same number on the right, but for roundings.
    Where the direction says that the sides agree to the bit, all elements have to be equal, NaN and
    infinities included; or those of inputs that are numbers. And where nothing but -inf stands in
    inputs of the line ``limits``, the right side has to be -inf where the left one is.
    """
    with np.errstate(all="ignore"):
        _judge(setting, given, tally)


def _judge(setting: Setting, given: Sequence[Feed], tally: Tally) -> None:
    runtime = Runtime()
    number = len(setting.left)
    for feed in given:
        outputs = runtime((*setting.left, *setting.right), feed.inputs, FP32)
        tally.counts["inputs"] += 1
        for k in range(number):
            a, b = (np.asarray(x, np.float64) for x in (outputs[k], outputs[number + k]))
            finding = _look(setting, feed, k, a, b)
            tally.counts["elements"] += a.size
            if finding is None:
                continue
            if finding.wrong in EXCUSED:
                tally.excused[finding.wrong] += 1
            elif finding.wrong is Wrong.BITS and is_uneven(setting, a, b):
                tally.deviations["one of an uneven kernel"] += 1
            else:
                tally.findings.append(finding)


def is_uneven(setting: Setting, a: Array, b: Array) -> bool:
    """Whether outputs are the same but for the error of an uneven kernel."""
    if UNEVEN.isdisjoint(frozenset[str]().union(*setting.operators)):
        return False
    near = np.abs(a - b) <= UNITS * FP32.unit * np.maximum(np.abs(a), 1.0)
    return bool(np.all(near | (a == b) | (np.isnan(a) & np.isnan(b))))


def _look(setting: Setting, feed: Feed, output: int, a: Array, b: Array) -> Finding | None:
    """The worst finding in an output."""
    if a.shape != b.shape:
        return Finding(setting, feed, Wrong.SHAPE, output, (), np.nan, np.nan)
    finite = np.isfinite(a)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return None

    def finding(wrong: Wrong, where: Array) -> Finding:
        place = tuple(int(i) for i in np.argwhere(where)[0])
        left, right = float(a[place]), float(b[place])
        return Finding(setting, feed, wrong, output, place, left, right)

    exact = setting.instance.exact
    numbers = all(np.isfinite(array).all() for array in feed.inputs.values())
    if exact == BITS or (exact == NUMBERS and numbers):
        return finding(Wrong.BITS, ~same)
    if feed.planted is Planted.LIMITS and (np.isneginf(a) & ~np.isneginf(b)).any():
        other, _ = _run(setting, _without_infinities(feed), output)
        missed = np.isneginf(a) & ~np.isneginf(b) & np.isfinite(other)  # defined but for the limit
        if missed.any():
            return finding(Wrong.LIMIT, missed)
    lost = finite & ~np.isfinite(b)
    if lost.any():
        return finding(_why_no_number(setting, feed, output, lost), lost)
    far = finite & ~(np.abs(a - b) <= BOUND * FP32.unit * np.abs(a))
    if far.any():
        far &= ~(np.abs(a - b) <= BOUND * _scale(setting, feed, output, a))
    if far.any():
        line = setting.way.numerics
        if (line is not None and line.hazard) or not ROUGH.isdisjoint(setting.operators[1]):
            within = BOUND * FP32.unit * _magnitude(setting, feed, output)
            if not (far & ~(np.abs(a - b) <= within)).any():
                return finding(Wrong.CANCELS, far)
        return finding(_why_different(setting, feed, output, far), far)
    return None


def _magnitude(setting: Setting, feed: Feed, output: int) -> float:
    """The largest number on the way to an output of the right side."""
    values = [node.outputs[0] for node in walk([setting.right[output]])]
    arrays = [np.asarray(a, np.float64) for a in run_rounded(values, feed.inputs, FP32)]
    return max(float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in arrays)


def _why_no_number(setting: Setting, feed: Feed, output: int, lost: Array) -> Wrong:
    """Whether an element is NaN or infinite since an intermediate result overflowed."""
    if feed.planted in (Planted.EXTREME, Planted.ALL):
        a, b = _run(setting, _without_extremes(feed), output)
        if not (lost & np.isfinite(a) & ~np.isfinite(b)).any():
            return Wrong.OVERFLOW
    (right,) = run_rounded([setting.right[output]], feed.inputs, None)
    (rounded,) = run_rounded([setting.right[output]], feed.inputs, FP32)
    overflows = np.isfinite(right) & ~np.isfinite(rounded)
    return Wrong.OVERFLOW if not (lost & ~overflows).any() else Wrong.NO_NUMBER


def _why_different(setting: Setting, feed: Feed, output: int, far: Array) -> Wrong:
    """Whether an element differs since extreme numbers are rounded, or underflow."""
    if feed.planted not in (Planted.EXTREME, Planted.ALL):
        return Wrong.DIFFERENT
    values = [setting.left[output]], [setting.right[output]]
    if all(np.isfinite(array).all() for array in feed.inputs.values()):
        really = differ_exactly(*values, feed.inputs)
        if really is None:
            both = [run_wide(side, feed.inputs) for side in values]
            if both[0] and both[1]:
                a, b = both[0][0], both[1][0]
                unequal = ~(np.abs(a - b) <= 1e-9 * np.abs(a))
                really = bool((far & np.isfinite(a) & unequal).any())
        if really is not None:
            return Wrong.DIFFERENT if really else Wrong.ROUNDED
    moderate = _without_extremes(feed)
    a, b = _run(setting, moderate, output)
    scale = _scale(setting, moderate, output, a)
    still = far & np.isfinite(a) & ~(np.abs(a - b) <= BOUND * scale)
    return Wrong.DIFFERENT if still.any() else Wrong.ROUNDED


def _run(setting: Setting, feed: Feed, output: int) -> tuple[Array, Array]:
    values = (setting.left[output], setting.right[output])
    a, b = Runtime()(values, feed.inputs, FP32)
    return np.asarray(a, np.float64), np.asarray(b, np.float64)


def _without_extremes(feed: Feed) -> Feed:
    """The same with moderate numbers of the same signs in the place of extreme ones."""
    found: dict[str, Array] = {}
    for name, array in feed.inputs.items():
        found[name] = array
        if array.dtype.kind == "f":
            size = np.abs(array)
            odd = np.isfinite(array) & ((size > 1e30) | ((size < 1e-30) & (size > 0)))
            found[name] = np.where(odd, np.sign(array) * np.where(size > 1, 1.75, 0.375), array)
    return Feed(feed.planted, found)


def _without_infinities(feed: Feed) -> Feed:
    """The same with a number in the place of each infinity."""
    found = {
        name: np.where(np.isfinite(array), array, -1.5) if array.dtype.kind == "f" else array
        for name, array in feed.inputs.items()
    }
    return Feed(Planted.NUMBERS, found)


def _scale(setting: Setting, feed: Feed, output: int, found: Array) -> Array:
    """The scale of unavoidable errors of the result, see `xflow.verifier.rounding.measure`.

    It is the largest of a rounding of the result, its change where the inputs change by about a
    unit in the last place, and the error of the left side itself; the last two are 0 where they
    are not finite.
    """
    rng = np.random.default_rng(0)
    value = setting.left[output]
    (exact,) = run_rounded([value], feed.inputs, None)
    exact = np.asarray(exact, np.float64)
    squares = np.zeros(found.shape)
    for _ in range(JITTERS):
        near = {name: _jittered(array, rng) for name, array in feed.inputs.items()}
        (other,) = run_rounded([value], near, None)
        change = np.asarray(other, np.float64) - exact
        squares += np.where(np.isfinite(change), change, 0.0) ** 2
    sense = np.sqrt(squares / JITTERS)
    own = np.abs(found - exact)
    own = np.where(np.isfinite(own), own, 0.0)
    scale = np.maximum(np.maximum(sense, own), FP32.unit * np.abs(found))
    return np.maximum(scale, FP32.negligible)


def _jittered(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    changed = array * (1 + (rng.random(array.shape) * 2 - 1) * (4 * FP32.unit))
    return np.where(np.isfinite(changed), changed, array)
