"""The proof of one instance of a rule: its requirements, its definedness, and its equations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from xflow.core.constraint import Constraint, equal, in_range
from xflow.core.errors import ShapeError
from xflow.core.evaluation import read
from xflow.core.graph import requirements, with_sizes
from xflow.core.node import Value
from xflow.core.size import Size, divide, floor_divide, substitute, symbol
from xflow.core.sorts import REAL
from xflow.core.spec import Index, Scalar, all_comparisons, fresh_names
from xflow.core.value_conditions import BELOW_INFINITY, FINITE, Fact, relations
from xflow.rewriting.instance import Instance, leaf_name
from xflow.rewriting.rule import BITS, NUMBERS
from xflow.verifier.algebra.arithmetic import Arithmetic, Effort
from xflow.verifier.algebra.comparisons import has_step, with_choices, with_signs
from xflow.verifier.algebra.maxima import has_maximum
from xflow.verifier.algebra.normal import has_few
from xflow.verifier.algebra.radix import (
    MAX_SPLITS,
    Radix,
    has_literal_quotient,
    has_quotient,
    literal_radices,
)
from xflow.verifier.algebra.terms import TooLargeError
from xflow.verifier.certificate import obligation_record
from xflow.verifier.matching.abstraction import equal_abstractly
from xflow.verifier.matching.match import Equality
from xflow.verifier.matching.reals import equal_reals
from xflow.verifier.matching.witness import witness_conditions
from xflow.verifier.preconditions import left_conditions
from xflow.verifier.proof.code_types import code_ranges
from xflow.verifier.proof.defined import (
    Domain,
    demands,
    folded,
    loses_undefined,
    read_unfolded,
)
from xflow.verifier.proof.exact import read_operations, roundings, same_bits, weakest
from xflow.verifier.proof.exact_sums import is_exact
from xflow.verifier.proof.fixed_sizes import fixed_sizes
from xflow.verifier.proof.hidden_inputs import (
    Known,
    UnlikeError,
    bounded_inputs,
    compared_by_place,
    hidden_inputs,
    hides,
    read_kernels,
)
from xflow.verifier.proof.index_bounds import out_of_range, take_for_granted
from xflow.verifier.proof.reads import jumps, lacking, reads


@dataclass
class Attempt:
    """The result of an attempt at a proof: the reason why it failed, or a certificate."""

    failure: str | None
    """None where it succeeded; any text, also an empty one, is a failure."""
    missing: list[Constraint] = field(default_factory=list)
    facts: tuple[str, ...] = ()
    """Conditions on values of inputs under which everything would be defined."""
    needs: tuple[str, ...] = ()
    """Conditions that what the right side reads has to be numbers, see
    `xflow.verifier.proof.reads`."""
    exact: str | None = BITS
    """How the sides agree beyond what they are as real numbers, see
    `xflow.verifier.proof.exact`."""
    jumps: frozenset[str] = frozenset()
    """The inputs of which no element may be -inf: the sides are not continuous there."""
    certificate: list[dict[str, object]] = field(default_factory=list)


class InstanceProof:
    """The proof of one instance; `thorough`: by every reading of the sides that there is."""

    def __init__(self, instance: Instance, thorough: bool = True):
        self.instance = instance
        self.thorough = thorough
        self.conditions = left_conditions(instance)
        self.arithmetic = Arithmetic()
        self.equality = Equality(self.arithmetic)
        self.equality.normalizer.facts = relations(instance.facts)
        self.equality.normalizer.ranges = code_ranges((*instance.lhs, *instance.rhs))
        self.exact: list[str | None] = []
        """How the outputs that were proved agree."""
        self.jumps: set[str] = set()
        self._in_digits: dict[tuple[Value, Value], _Reading | None] = {}
        self._read_kernels: dict[tuple[Value, Index, Known], Scalar] = {}

    def attempt(self) -> Attempt:
        """Prove it. To be called once: what is known of its integers is forgotten then."""
        with self.arithmetic:
            return self._attempt()

    def _attempt(self) -> Attempt:
        instance, conditions = self.instance, self.conditions
        if any(c.decided is False for c in conditions):
            return Attempt("vacuous: the left side is never defined")
        if loses_undefined(instance.lhs):
            return Attempt("the left side compares or hides what is not defined everywhere")
        with self.arithmetic.assuming(conditions):
            if self.arithmetic.contradictory(()):
                return Attempt("vacuous: the conditions contradict each other")
            missing = list(self._missing_requirements())
            if missing:
                words = ", ".join(map(str, missing))
                return Attempt(f"the right side needs {words}", missing)
            fixed = fixed_sizes(instance.where, conditions)
            made = self._prove_outputs(fixed)
            if isinstance(made, Attempt) and fixed and not made.needs:
                # Written out, an index may have other digits.
                made = self._prove_outputs({})
            if isinstance(made, Attempt):
                return made
            granted, outputs = made
            exact = weakest(self.exact)
            if self.arithmetic.contradictory((), Effort.LEMMAS):
                # Either they hold nowhere, which only products show, or this is a bug.
                words = "the conditions and the facts that the proof used contradict each other"
                return Attempt(f"vacuous: {words}")
        record: dict[str, object] = {
            "rank": instance.rank,
            "assume": [str(c) for c in conditions],
            **({"indices": granted} if granted else {}),
            "require": [str(c) for c in requirements(instance.rhs)],
            "outputs": outputs,
        }
        return Attempt(None, exact=exact, jumps=frozenset(self.jumps), certificate=[record])

    def _prove_outputs(
        self, sizes: Mapping[str, Size]
    ) -> tuple[list[str], list[dict[str, object]]] | Attempt:
        """The ranges of indices that are assumed, and a record of each output.

        Both sides are read with `sizes` for some symbols.
        """
        try:
            lhs, rhs = (with_sizes(s, sizes) for s in (self.instance.lhs, self.instance.rhs))
        except (ShapeError, ZeroDivisionError) as error:
            return Attempt(f"{type(error).__name__}: {error}")
        self.exact.clear()
        self.jumps.clear()
        granted = take_for_granted(lhs, self.arithmetic)
        unsafe = out_of_range(lhs, rhs, self.arithmetic, self.equality.comparisons)
        if unsafe is not None:
            return Attempt(unsafe)
        outputs: list[dict[str, object]] = []
        for left, right in zip(lhs, rhs, strict=True):
            outcome = self._prove_output(left, right)
            if isinstance(outcome, Attempt):
                return outcome
            outputs.append(outcome)
        return granted, outputs

    def _missing_requirements(self) -> Iterator[Constraint]:
        """The right side's requirements, equal shapes included, that do not follow."""
        needed = list(requirements(self.instance.rhs))
        if not self.instance.broadcast:
            for left, right in zip(self.instance.lhs, self.instance.rhs, strict=True):
                if len(left.shape) != len(right.shape):
                    raise ShapeError(f"ranks differ: {left.type} and {right.type}")
                needed += [equal(a, b) for a, b in zip(left.shape, right.shape, strict=True)]
        for condition in dict.fromkeys(needed):
            if condition.decided is False:
                raise ShapeError(f"the right side needs {condition}")
            if not self.arithmetic.implied(condition, effort=Effort.NONLINEAR):
                yield condition

    def _prove_output(self, left: Value, right: Value) -> dict[str, object] | Attempt:
        index = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
        same: dict[str, object] = {
            "index": [str(i) for i in index],
            "same expression": str(left),
        }
        if left == right:
            return same
        needs, exact, discontinuous = self._beyond_numbers(left, right)
        if needs:
            return Attempt(f"it is not known whether {' and '.join(needs)}", needs=needs)
        self.exact.append(exact)
        self.jumps |= discontinuous
        if _readings_of(left, index) == _readings_of(right, index):
            return same
        outcome: dict[str, object] | Attempt = Attempt("no reading of the index applies")
        for reading in self._readings(left, right):
            outcome = self._compare_by(left, right, reading)
            if not isinstance(outcome, Attempt):
                return outcome
        return (self._in_cases(left, right) if self.thorough else None) or outcome

    def _in_cases(self, left: Value, right: Value) -> dict[str, object] | None:
        """A record of the proofs for each remainder of the index by itself; None without them.

        What enlarges an image, or interleaves several, computes neighbours in different ways.
        """
        records = []
        for case in self._cases(left, right):
            outcome = self._compare_by(left, right, case)
            if isinstance(outcome, Attempt):
                return None
            records.append(outcome)
        return {"cases": records} if records else None

    def _cases(self, left: Value, right: Value) -> Iterator[_Reading]:
        """An index ``m*q + r`` for each r, where the sides divide it by a literal number m.

        Together they cover each index once.
        """
        plain = self._plain(left)
        names = [f"_i{axis}" for axis in range(len(plain.index))]
        radices = literal_radices([read(side, plain.index) for side in (left, right)], names)
        if all(radix == 1 for radix in radices):
            return
        for remainders in product(*map(range, radices)):
            index = tuple(
                symbol(name) if radix == 1 else radix * symbol(f"{name}q") + rest
                for name, radix, rest in zip(names, radices, remainders, strict=True)
            )
            ranges = [c for i, n in zip(index, left.shape, strict=True) for c in in_range(i, n)]
            kept = tuple(c for c in dict.fromkeys(ranges) if c.decided is None)
            yield _Reading(index, kept, None, unrolls=True)

    def _beyond_numbers(
        self, left: Value, right: Value
    ) -> tuple[tuple[str, ...], str | None, frozenset[str]]:
        """The inputs that must be numbers for the right side to be one wherever the left side is.

        Also how the sides agree in floating-point arithmetic, and the inputs of which no element
        may be -inf. Sides that agree to the bit need nothing.
        """
        # Lemmas that the arithmetic learns from these questions would change the later proof.
        apart = InstanceProof(self.instance)
        apart.equality.remembers = True
        apart.arithmetic.satisfying = self.arithmetic.satisfying
        with apart.arithmetic, apart.arithmetic.assuming(apart.conditions):
            take_for_granted(self.instance.lhs, apart.arithmetic)
            return apart._least_needs(left, right)

    def _least_needs(
        self, left: Value, right: Value
    ) -> tuple[tuple[str, ...], str | None, frozenset[str]]:
        """`_beyond_numbers`, by arithmetic that nothing else uses."""
        if self.instance.is_discrete:  # what is equal as integers is, however they wrap around
            return (), BITS, frozenset()
        if is_exact(self.instance):
            return (), BITS, frozenset()
        names = frozenset(leaf_name(v) for v in self.instance.inputs if v.type.dtype == REAL)
        least: _Lacks | None = None
        exact: str | None = None
        elements = self._elements()
        alike = self._hides_alike(left, right, elements)
        if not alike:
            needs = self._for_alike(left, right, elements)
            if needs:
                return tuple(map(str, needs)), None, frozenset()
        for reading in self._plain_readings(left, right):
            with self.arithmetic.assuming(reading.conditions), all_comparisons():
                enough = least is not None and not least.facts
                try:
                    found = self._lacks(left, right, reading, elements, alike=alike, enough=enough)
                except (TooLargeError, ZeroDivisionError):  # another may get through
                    continue
            if found.exact == BITS:
                return (), BITS, frozenset()
            if least is None or len(found.facts) < len(least.facts):
                least = found
            exact = exact or found.exact
        if least is None:
            unknown = sorted(names - elements.numbers)
            least = _Lacks(tuple(Fact(name, FINITE) for name in unknown), None, names)
        # Codes and indices are numbers, whatever is read of them.
        others = {leaf_name(v) for v in self.instance.inputs if v.type.dtype != REAL}
        return tuple(str(f) for f in least.facts if f.name not in others), exact, least.jumps

    def _for_alike(self, left: Value, right: Value, elements: Known) -> list[Fact]:
        """Conditions under which `_hides_alike`; none where they are not found.

        A mask may be -inf where the rest is numbers, and so may what a maximum reads.
        """
        sides = (left, right)
        rest = self._discontinuous(left, right) & (hidden_inputs(left) - elements.numbers)
        below = compared_by_place(sides) - rest - elements.numbers - elements.below_infinity
        for lower in dict.fromkeys((frozenset[str](), below)):
            known = Known(elements.numbers | rest, elements.below_infinity | lower)
            if known != elements and self._hides_alike(left, right, known):
                needs = [Fact(name, FINITE) for name in rest]
                return sorted([*needs, *(Fact(n, BELOW_INFINITY) for n in lower)], key=str)
        return []

    def _discontinuous(self, left: Value, right: Value) -> frozenset[str]:
        """See `jumps`; none where they are not found."""
        reading = self._plain(left)
        with self.arithmetic.assuming(reading.conditions), all_comparisons():
            try:
                sides = (read_unfolded(side, reading.index) for side in (left, right))
                return jumps(*(tuple(reads(side, self.equality)) for side in sides))
            except (TooLargeError, ZeroDivisionError):
                return frozenset()

    def _lacks(
        self,
        left: Value,
        right: Value,
        reading: _Reading,
        elements: Known,
        *,
        alike: bool,
        enough: bool,
    ) -> _Lacks:
        """`_beyond_numbers` by one reading of the index.

        Where another one has shown that nothing is lacking (`enough`), how the sides agree alone.
        """
        index, simpler = reading.index, reading.simpler
        operations = [simpler(read_operations(side, index)) for side in (left, right)]
        if same_bits(operations[0], operations[1], self.arithmetic):
            return _Lacks((), BITS, frozenset())
        plain = [simpler(read_unfolded(side, index)) for side in (left, right)]
        exact = None if any(map(roundings, plain)) else NUMBERS
        if enough:
            return _Lacks((), exact, frozenset())
        whole = plain
        if alike:
            whole = [simpler(self._kernels(side, index, elements)) for side in (left, right)]
        before, after = (tuple(reads(side, self.equality)) for side in whole)
        bounded = frozenset[str]()
        if not alike:
            hidden = hidden_inputs(left)
            before = tuple(
                replace(each, lost=True, summand=each.summand and each.names <= elements.numbers)
                if each.names & hidden
                else each
                for each in before
            )
            bounded = bounded_inputs((left, right)) - elements.numbers
        facts = lacking(before, after, self.equality, self.instance.facts)
        return _Lacks(facts, exact, jumps(before, after) | bounded)

    def _elements(self) -> Known:
        """What the conditions of the rule tell of the elements of its inputs."""
        below = {f.name for f in self.instance.facts if f.relation == BELOW_INFINITY}
        numbers = {f.name for f in self.instance.facts if f.relation != BELOW_INFINITY}
        return Known(frozenset(numbers), frozenset(below))

    def _hides_alike(self, left: Value, right: Value, elements: Known) -> bool:
        """Whether both sides are equal, whatever their kernels make of what is no number."""
        if not hides(left) and not hides(right):
            return True
        for reading in self._plain_readings(left, right):
            with self.arithmetic.assuming(reading.conditions), all_comparisons():
                try:
                    sides = (
                        reading.simpler(folded(self._kernels(v, reading.index, elements)))
                        for v in (left, right)
                    )
                    signed = (with_signs(side, self.equality.comparisons) for side in sides)
                    first, second = map(self.equality.normalizer.remembered, signed)
                    if self.equality.equal(first, second):
                        return True
                except UnlikeError:
                    return False
                except (TooLargeError, ZeroDivisionError):  # another may get through
                    continue
        return False

    def _kernels(self, side: Value, index: Index, elements: Known) -> Scalar:
        """`read_kernels`, once for each side: the names of bound variables are the same then."""
        key = side, index, elements
        if key not in self._read_kernels:
            self._read_kernels[key] = read_kernels(side, index, elements)
        return self._read_kernels[key]

    def _plain_readings(self, left: Value, right: Value) -> Iterator[_Reading]:
        """The readings that cost little: by the index itself, and in digits."""
        plain = self._plain(left)
        yield plain
        if (left, right) not in self._in_digits:
            self._in_digits[left, right] = self._quotients_in_digits(left, right, plain)
        digits = self._in_digits[left, right]
        if digits is not None:
            yield digits

    def _quotients_in_digits(self, left: Value, right: Value, plain: _Reading) -> _Reading | None:
        """`_digits`; None where no side has a quotient, or one is by 0."""
        sides = (read(left, plain.index), read(right, plain.index))
        if not any(map(has_quotient, sides)):
            return None
        try:
            return self._digits(left, right, plain)
        except (TooLargeError, ZeroDivisionError):
            return None

    def _plain(self, left: Value) -> _Reading:
        index = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
        ranges = [c for i, n in zip(index, left.shape, strict=True) for c in in_range(i, n)]
        return _Reading(index, tuple(c for c in ranges if c.decided is None), None)

    def _readings(self, left: Value, right: Value) -> Iterator[_Reading]:
        """Ways to write the output's index that together with their conditions cover it."""
        plain = digits = self._plain(left)
        sides = (read(left, plain.index), read(right, plain.index))
        for digits in self._plain_readings(left, right):
            yield digits
        if not self.thorough:
            return
        yield replace(digits, merges=True)
        units: dict[str, Size] = {f"_i{axis}": 0 for axis, n in enumerate(left.shape) if n == 1}
        if units:  # an index with a single value is written as it, which makes more elements equal
            yield replace(
                digits,
                index=tuple(substitute(i, units) for i in digits.index),
                conditions=tuple(
                    c for c in (d.substitute(units) for d in digits.conditions) if c.decided is None
                ),
            )
        if any(map(has_few, sides)) or any(map(has_literal_quotient, sides)):
            yield replace(digits, unrolls=True)
        if any(map(has_maximum, sides)):
            named = witness_conditions(digits.simpler(read(left, digits.index)))
            if named:
                yield replace(digits, conditions=(*digits.conditions, *named), named=named)
            yield replace(digits, tropical=True)
            if any(map(has_few, sides)):
                yield replace(digits, tropical=True, unrolls=True)
        if any(map(has_step, sides)):
            yield replace(digits, strict=True)
            yield replace(digits, strict=False)

    def _digits(self, left: Value, right: Value, reading: _Reading) -> _Reading:
        """The index in digits: ``i = m*q + r`` with ``0 <= r < m`` covers every i for m >= 1."""
        radix = Radix(self.arithmetic)
        extents = {f"_i{axis}": n for axis, n in enumerate(left.shape)}
        index, conditions = reading.index, reading.conditions
        for _ in range(MAX_SPLITS):
            with self.arithmetic.assuming(conditions):
                sides = [radix.rewrite(read(value, index)) for value in (left, right)]
                split = radix.output_split(sides, tuple(extents), ())
            if split is None:
                break
            extent = extents.pop(split.variable)
            high, rest = divide(extent, split.radix)
            if rest != 0:
                high = floor_divide(extent + split.radix - 1, split.radix)
            extents |= {split.low: split.radix, split.high: high}
            values = {split.variable: split.value}
            index = tuple(substitute(i, values) for i in index)
            conditions = (
                *(c.substitute(values) for c in conditions),
                *in_range(symbol(split.low), split.radix),
                *in_range(symbol(split.high), high),
            )
        kept = tuple(c for c in dict.fromkeys(conditions) if c.decided is None)
        return _Reading(index, kept, radix)

    def _compare_by(
        self, left: Value, right: Value, reading: _Reading
    ) -> dict[str, object] | Attempt:
        """`_compare` with what the reading assumes and asks of the normal forms."""
        extra = self.equality.normalizer.set(
            merges=reading.merges, unrolls=reading.unrolls, tropical=reading.tropical
        )
        with self.arithmetic.assuming(reading.conditions), extra:
            try:
                return self._compare(left, right, reading)
            except (TooLargeError, ZeroDivisionError) as error:  # another may get through
                return Attempt(f"{type(error).__name__}: {error}")

    def _compare(self, left: Value, right: Value, reading: _Reading) -> dict[str, object] | Attempt:
        before, mark = len(self.arithmetic.obligations), self.equality.recorder.mark()
        index, simpler = reading.index, reading.simpler
        a, b, *unfolded = (
            simpler(scalar)
            for scalar in (
                read(left, index),
                read(right, index),
                read_unfolded(left, index),
                read_unfolded(right, index),
            )
        )
        unmet = self._undefined(*unfolded)
        if unmet is not None:
            return unmet
        normalizer, shown = self.equality.normalizer, self.equality.recorder.mark()
        normals = (
            normalizer.normal(with_signs(a, self.equality.comparisons)),
            normalizer.normal(with_signs(b, self.equality.comparisons)),
        )
        facts = self.equality.normalizer.facts
        if (
            not self.equality.equal(*normals)
            and not equal_reals(a, b, self.arithmetic)
            and not (reading.tropical and equal_abstractly(*normals, self.equality, facts))
        ):
            words = " versus ".join(_shorten(normal.key) for normal in normals)
            return Attempt(f"the normal forms differ: {words}")
        return {
            "index": [str(i) for i in index],
            "where": [str(c) for c in reading.conditions if c not in reading.named],
            **({"witness": [str(c) for c in reading.named]} if reading.named else {}),
            **self.equality.recorder.record(mark, shown, *normals),
            "obligations": [
                obligation_record(o, (*self.conditions, *reading.conditions))
                for o in self.arithmetic.obligations[before:]
            ],
        }

    def _undefined(self, left: Scalar, right: Scalar) -> Attempt | None:
        """Why the right side may be undefined where the left side is not; None where it cannot.

        Where that takes an exponential for positive whose argument may be -inf, it may not.
        """
        given = [d for d in demands(left, self.equality) if not d.hidden]
        wanted = list(demands(right, self.equality))
        names = frozenset(leaf_name(v) for v in self.instance.inputs) - self.jumps
        finite = {f.name for f in self.instance.facts if f.relation != BELOW_INFINITY}
        unbounded = names - finite
        if Domain(given, self.equality, unbounded).unmet(wanted) is None:
            return None
        unmet = Domain(given, self.equality).unmet(wanted)
        if unmet is not None:
            words = f"{unmet.function} of {unmet.argument.key} may be undefined"
            return Attempt(words, facts=unmet.facts)
        # Often a single input is the cause: a shift, say, of an operand with elements of its own.
        alone = (
            {name}
            for name in sorted(unbounded)
            if Domain(given, self.equality, unbounded - {name}).unmet(wanted) is None
        )
        blamed = next(alone, set(unbounded))
        self.jumps |= blamed
        asked = sorted(f.name for f in self.instance.facts if f.name in blamed)
        if asked:
            needs = tuple(str(Fact(name, FINITE)) for name in asked)
            return Attempt(f"it is not known whether {' and '.join(needs)}", needs=needs)
        return None


@dataclass(frozen=True)
class _Lacks:
    """What a reading of both sides shows beyond their equality as real numbers."""

    facts: tuple[Fact, ...]
    """Conditions on the values of inputs."""
    exact: str | None
    jumps: frozenset[str]


@dataclass(frozen=True)
class _Reading:
    """A way to write an output's index: by symbols that satisfy `conditions`.

    `radix` simplifies what is read there; None leaves it as it is. Those that are not told of
    below are those of `Normalizer.set`.
    """

    index: Index
    conditions: tuple[Constraint, ...]
    radix: Radix | None
    merges: bool = False
    unrolls: bool = False
    tropical: bool = False
    named: tuple[Constraint, ...] = ()
    """Those of the conditions that speak of values that a maximum on the left ranges over."""
    strict: bool | None = None
    """Makes maxima choices on comparisons, see `with_choices`; None leaves them as they are."""

    def simpler(self, scalar: Scalar) -> Scalar:
        """`scalar` with what the radix can do."""
        if self.strict is not None:
            scalar = with_choices(scalar, strict=self.strict)
        return scalar if self.radix is None else self.radix.rewrite(scalar)


def _readings_of(value: Value, index: Index) -> tuple[Scalar, Scalar]:
    """A value's element with names of bound variables that depend on its structure alone."""
    with fresh_names():
        return read(value, index), read_unfolded(value, index)


def _shorten(text: str, length: int = 300) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
