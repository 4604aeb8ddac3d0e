"""The proof of one instance of a rule: what it needs, where it is defined, that its sides agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from xflow.constraint import Constraint, equal, in_range
from xflow.errors import ShapeError
from xflow.graph import Value, read, requirements, with_sizes
from xflow.ops.spec import Index, Scalar, fresh_names
from xflow.rule import Instance
from xflow.size import Size, divide, floor_divide, substitute, symbol
from xflow.verifier.algebra.arithmetic import Arithmetic, Effort
from xflow.verifier.algebra.comparisons import has_order, with_choices, with_signs
from xflow.verifier.algebra.maxima import has_maximum
from xflow.verifier.algebra.normal import has_few
from xflow.verifier.algebra.radix import MAX_SPLITS, Radix, has_quotient
from xflow.verifier.algebra.terms import TooLargeError
from xflow.verifier.certificate import obligation_record
from xflow.verifier.defined import Domain, compares_undefined, demands, read_unfolded
from xflow.verifier.fixed import fixed_sizes
from xflow.verifier.lookups import out_of_range, take_for_granted
from xflow.verifier.matching.abstraction import equal_abstractly
from xflow.verifier.matching.match import Equality
from xflow.verifier.matching.reals import equal_reals
from xflow.verifier.matching.witness import witness_conditions
from xflow.verifier.refutation.refute import left_conditions


@dataclass
class Attempt:
    """What an attempt at a proof gave: the reason for which it failed, or a certificate."""

    failure: str | None
    """None where it succeeded; any text, also an empty one, is a failure."""
    missing: list[Constraint] = field(default_factory=list)
    facts: tuple[str, ...] = ()
    """Conditions on values that what is not defined asks for."""
    certificate: list[dict[str, object]] = field(default_factory=list)


class InstanceProof:
    """The proof of one instance; `thorough`: by every reading of the sides that there is."""

    def __init__(self, instance: Instance, thorough: bool = True):
        self.instance = instance
        self.thorough = thorough
        self.conditions = left_conditions(instance)
        self.arithmetic = Arithmetic()
        self.equality = Equality(self.arithmetic)
        self.equality.normalizer.facts = {fact.name: fact.relation for fact in instance.facts}

    def attempt(self) -> Attempt:
        instance, conditions = self.instance, self.conditions
        if any(c.decided is False for c in conditions):
            return Attempt("vacuous: the left side is never defined")
        if compares_undefined(instance.lhs):
            return Attempt("the left side compares what is not defined everywhere")
        with self.arithmetic.assuming(conditions):
            if self.arithmetic.contradictory(()):
                return Attempt("vacuous: the conditions contradict each other")
            missing = list(self._missing_requirements())
            if missing:
                words = ", ".join(map(str, missing))
                return Attempt(f"the right side needs {words}", missing)
            fixed = fixed_sizes(instance.where, conditions)
            made = self._prove_outputs(fixed)
            if isinstance(made, Attempt) and fixed:  # written out, an index may have other digits
                made = self._prove_outputs({})
            if isinstance(made, Attempt):
                return made
            granted, outputs = made
            if self.arithmetic.contradictory((), Effort.LEMMAS):
                # Either they hold nowhere, which took products to see, or the fault is ours.
                words = "the conditions and the facts that the proof used contradict each other"
                return Attempt(f"vacuous: {words}")
        record: dict[str, object] = {
            "rank": instance.rank,
            "assume": [str(c) for c in conditions],
            **({"indices": granted} if granted else {}),
            "require": [str(c) for c in requirements(instance.rhs)],
            "outputs": outputs,
        }
        return Attempt(None, certificate=[record])

    def _prove_outputs(
        self, sizes: Mapping[str, Size]
    ) -> tuple[list[str], list[dict[str, object]]] | Attempt:
        """What is taken for granted of indices, and a record of each output.

        Both sides are read with `sizes` for some symbols.
        """
        try:
            lhs, rhs = (with_sizes(s, sizes) for s in (self.instance.lhs, self.instance.rhs))
        except (ShapeError, ZeroDivisionError) as error:
            return Attempt(f"{type(error).__name__}: {error}")
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
        """What the right side needs and the left does not give; equal shapes among it."""
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
        if left == right or _readings_of(left, index) == _readings_of(right, index):
            return {"index": [str(i) for i in index], "same expression": str(left)}
        outcome: dict[str, object] | Attempt = Attempt("no reading of the index applies")
        for reading in self._readings(left, right):
            extra = self.equality.normalizer.set(
                merges=reading.merges, unrolls=reading.unrolls, tropical=reading.tropical
            )
            with self.arithmetic.assuming(reading.conditions), extra:
                try:
                    outcome = self._compare(left, right, reading)
                except (TooLargeError, ZeroDivisionError) as error:  # another may get through
                    outcome = Attempt(f"{type(error).__name__}: {error}")
            if not isinstance(outcome, Attempt):
                return outcome
        return outcome

    def _readings(self, left: Value, right: Value) -> Iterator[_Reading]:
        """Ways to write the output's index that together with their conditions cover it."""
        index = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
        ranges = [c for i, n in zip(index, left.shape, strict=True) for c in in_range(i, n)]
        plain = _Reading(index, tuple(c for c in ranges if c.decided is None), None)
        yield plain
        sides = (read(left, index), read(right, index))
        digits = plain
        if any(map(has_quotient, sides)):
            digits = self._digits(left, right, plain)
            yield digits
        if not self.thorough:
            return
        yield replace(digits, merges=True)
        units: dict[str, Size] = {f"_i{axis}": 0 for axis, n in enumerate(left.shape) if n == 1}
        if units:  # where there is one value of an index, elements are more alike if it is written
            yield replace(
                digits,
                index=tuple(substitute(i, units) for i in digits.index),
                conditions=tuple(
                    c for c in (d.substitute(units) for d in digits.conditions) if c.decided is None
                ),
            )
        if any(map(has_few, sides)):
            yield replace(digits, unrolls=True)
        if any(map(has_maximum, sides)):
            named = witness_conditions(digits.simpler(read(left, digits.index)))
            if named:
                yield replace(digits, conditions=(*digits.conditions, *named), named=named)
            yield replace(digits, tropical=True)
            if any(map(has_few, sides)):
                yield replace(digits, tropical=True, unrolls=True)
            if any(map(has_order, sides)):
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
        open_ = (d for d in demands(unfolded[0], self.equality) if not d.hidden)
        given = Domain(open_, self.equality)
        unmet = given.unmet(demands(unfolded[1], self.equality))
        if unmet is not None:
            words = f"{unmet.function} of {unmet.argument.key} may be undefined"
            return Attempt(words, facts=unmet.facts)
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
