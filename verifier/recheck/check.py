"""Checks one rule against its certificate."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xflow.core.assignments import Assignments
from xflow.core.constraint import Constraint, at_least, equal, in_range
from xflow.core.errors import ShapeError, XflowError
from xflow.core.evaluation import read
from xflow.core.graph import requirements, with_sizes
from xflow.core.node import Value
from xflow.core.registry import Operator
from xflow.core.size import Expr, Size, free_symbols, symbol
from xflow.core.spec import Index, Scalar, fresh_names
from xflow.core.value_conditions import SIGNS
from xflow.rewriting.instance import Instance
from xflow.rewriting.rule import BITS, Rule
from xflow.verifier.recheck.claims import unshown_types, wraps_around
from xflow.verifier.recheck.defined import loses_partial, read_whole
from xflow.verifier.recheck.digits import are_all_remainders, covers, without_quotients
from xflow.verifier.recheck.elements import Elements, elements_of
from xflow.verifier.recheck.evaluate import DifferError, compare_at_random
from xflow.verifier.recheck.exact_sums import ExactSums
from xflow.verifier.recheck.expand import Expansion
from xflow.verifier.recheck.fixed import fixed_sizes
from xflow.verifier.recheck.floats import OtherBits, find_difference, rounded
from xflow.verifier.recheck.forms import Unreplayable, canonical
from xflow.verifier.recheck.hidden import Shown, Sides, what_shows
from xflow.verifier.recheck.integers import Ranges
from xflow.verifier.recheck.output import Output, changes_in, entry, read_index
from xflow.verifier.recheck.ranges import granted, out_of_range
from xflow.verifier.recheck.reading import read_condition
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.steps import CodeRanges, ranges_of_codes
from xflow.verifier.recheck.tidy import Tidying
from xflow.verifier.recheck.verdicts import (
    BitsError,
    Confirmed,
    DocumentError,
    NotConfirmed,
    RecheckVerdict,
    Wrong,
)
from xflow.verifier.recheck.witness import present_values

CASES = 10
"""Assignments of sizes at which both sides are evaluated, for each rank."""
LEAST_CASES = 2
"""How many of them there must be, and not all without elements."""
FURTHER_CASES = 2
"""The same for each rank that a rule holds at because it does at a lower one."""


def recheck_rule(rule: Rule, certificate: object, cases: int = CASES) -> RecheckVerdict:
    """Check a certificate of `rule`, in every direction that the rule claims.

    Whatever happens, only a replay from end to end is `Confirmed`.
    """
    questions = points = 0
    data = certificate
    for direction in rule.directions():
        if direction is not rule and direction.name.endswith(".reverse"):
            data = data.get("reverse") if isinstance(data, dict) else None
        found = _recheck_direction(direction, data, cases)
        if not isinstance(found, Confirmed):
            return found
        questions, points = questions + found.questions, points + found.points
    return Confirmed(questions, points)


def _recheck_direction(rule: Rule, data: object, cases: int) -> RecheckVerdict:
    try:
        return _Direction(rule, data, cases).check()
    except DifferError as error:
        return Wrong(str(error), error.difference)
    except (BitsError, DocumentError) as error:
        return Wrong(str(error))
    except Unreplayable as error:
        return NotConfirmed(str(error))
    except XflowError:
        raise
    except Exception as error:  # no exception counts as a confirmation
        return NotConfirmed(f"{type(error).__name__}: {error}")


def statement_of(rule: Rule) -> dict[str, object]:
    """The statement that a certificate of the rule must name."""
    return {
        "in": rule.inputs,
        "param": rule.params,
        "rank": " ".join(map(str, rule.ranks)),
        "from": rule.lhs,
        "to": rule.rhs,
        "where": ", ".join(rule.where),
        **({} if rule.exact is None else {"exact": rule.exact}),
        **({"limits": " ".join(rule.limits)} if rule.limits else {}),
    }


def _says_enough(key: str, found: object, wanted: object) -> bool:
    """Whether a certificate states what it must, or a stronger claim on bits and limits."""
    if key == "exact":
        return found in (BITS, wanted)
    if key == "limits":
        return set(str(wanted).split()) <= set(str(found).split())
    return _plain(found) == _plain(wanted)


def _plain(text: object) -> str:
    """A text of a rule as a rule file has it: expressions may be printed in several ways."""
    try:
        return ast.unparse(ast.parse(f"[{text}]", mode="eval"))
    except SyntaxError:
        return str(text)


@dataclass
class _Direction:
    """A rule to be used from left to right, and its certificate."""

    rule: Rule
    data: object
    cases: int

    def check(self) -> RecheckVerdict:
        data = self.data
        if not isinstance(data, dict):
            raise DocumentError("there is no certificate")
        for key, text in statement_of(self.rule).items():
            if key == "limits" and data.get("exact") == BITS:
                continue  # where the sides agree to the bit, they do so at -inf
            if key not in data:
                raise DocumentError("the certificate does not say which rule it is of")
            if not _says_enough(key, data[key], text):
                raise DocumentError(f"the certificate is of another rule: its {key!r} differs")
        ranks = data.get("ranks")
        if not isinstance(ranks, list) or [entry(r, "rank") for r in ranks] != [*self.rule.ranks]:
            raise DocumentError("the certificate does not have one part for each rank")
        total = Confirmed()
        instances = list(self.rule.instances())
        if any(map(wraps_around, instances)):
            raise Unreplayable("integers are computed with, which wrap around")
        unshown = unshown_types(self.rule, instances)
        if unshown is not None:
            raise Unreplayable(unshown)
        # What a rule says of higher ranks is shown anew at each, without help of a certificate.
        further = list(self.rule.usable_instances())[len(instances) :]
        for instance, part in zip(instances + further, ranks + [None] * len(further), strict=True):
            with fresh_names():
                cases = self.cases if part is not None else FURTHER_CASES
                hints = () if part is not None else changes_in(ranks)
                plain = ExactSums(instance).instance()
                questions, points = _Rank(plain, part, cases, hints).check()
            total = Confirmed(total.questions + questions, total.points + points)
        return total


def assumptions(instance: Instance) -> list[Constraint]:
    """The left side's assumptions: sizes of 0 or more, its operators' requirements, `where`."""
    sizes = [
        at_least(size, 0)
        for value in instance.inputs
        for size in value.shape
        if isinstance(size, Expr)
    ]
    return list(dict.fromkeys([*sizes, *requirements(instance.lhs), *instance.where]))


def _readings(value: Value, index: Index) -> tuple[Scalar, Scalar]:
    """An element, and it with all that must be defined; bound variables are named in order."""
    with fresh_names():
        element = read(value, index)
    with fresh_names():
        return element, read_whole(value, index)


def _computed(value: Value, index: Index) -> Iterator[Scalar]:
    """An element, and those that elementwise operators of one input compute it from, one by one.

    Where there is one input, there is no result without it; a choice does without one of its two.
    Bound variables are named in order, so that a maximum in one is the same in another.
    """
    yield _readings(value, index)[0]
    operator, sources = value.node.op, value.node.inputs
    if isinstance(operator, Operator) and operator.elementwise and len(sources) == 1:
        yield from _computed(sources[0], index)


def _at(condition: Constraint, sizes: Mapping[str, Size]) -> Constraint:
    """The condition at fixed sizes; as it is where it then divides by 0."""
    try:
        return condition.substitute(sizes)
    except ZeroDivisionError:
        return condition


def _follow(
    conditions: Iterable[Constraint], assumed: Sequence[Constraint], ranges: Sequence[Constraint]
) -> bool:
    """Whether `conditions` hold wherever the index is in its ranges."""
    questions = Questions([*assumed, *ranges])
    return all(map(questions.implied, conditions))


@dataclass
class _Rank:
    """A rule at one rank."""

    instance: Instance
    data: object
    cases: int
    hints: Sequence[Mapping[str, Size]] = ()
    asked: int = 0
    points: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    codes: CodeRanges = field(default_factory=dict)
    satisfying: Assignments = field(default_factory=Assignments)
    """What satisfied conditions so far."""
    _differences: dict[object, OtherBits | None] = field(default_factory=dict)
    _shown: dict[Sides, list[Shown]] = field(default_factory=dict)

    @cached_property
    def _sums(self) -> ExactSums:
        return ExactSums(self.instance)

    def check(self) -> tuple[int, int]:
        """How many questions and points it took.

        Raises DifferError, DocumentError, Unreplayable.
        """
        instance = self.instance
        where = f"at rank {instance.rank}"
        assumed = assumptions(instance)
        self.facts = {f.name: f.relation for f in instance.facts if f.relation in SIGNS}
        self.codes = ranges_of_codes(instance)
        if any(c.decided is False for c in assumed):
            raise Unreplayable(f"{where}, the left side is never defined")
        self._compare_texts("assume", assumed)
        needed = requirements(instance.rhs)
        self._compare_texts("require", needed)
        questions = Questions(assumed)
        if questions.contradictory(()):
            raise Unreplayable(f"{where}, the conditions contradict each other")
        fixed = fixed_sizes(instance.where, assumed, questions)
        for condition in dict.fromkeys([*needed, *self._equal_shapes()]):
            if not questions.implied(condition) and not questions.implied(_at(condition, fixed)):
                raise Unreplayable(f"{where}, it is not shown that {condition}, as the right needs")
        self._check_indices(questions)
        self.asked += questions.asked
        outputs = entry(self.data, "outputs")
        if self.data is None:
            outputs = [None] * len(instance.lhs)
        if not isinstance(outputs, list) or len(outputs) != len(instance.lhs):
            raise DocumentError(f"{where}, the certificate does not have one part for each output")
        # A step that does not follow is reported only if no falsehood is found: that says more.
        least = 0 if self.data is None else min(self.cases, LEAST_CASES)
        self.points += compare_at_random(instance, assumed, self.cases, least, self.satisfying)
        self._check_outputs(outputs, assumed, fixed)
        if loses_partial(instance.lhs):
            words = "the left side compares or hides what is not defined everywhere"
            raise Unreplayable(f"{where}, {words}")
        self._check_exact(assumed)
        return self.asked, self.points

    def _questions(self, assumed: Iterable[Constraint]) -> Questions:
        """Questions under assumptions, with what is known of elements of inputs."""
        return Questions(assumed, ranges=self.ranges, codes=self.codes, satisfying=self.satisfying)

    def _check_outputs(
        self,
        outputs: Sequence[object],
        assumed: Sequence[Constraint],
        fixed: Mapping[str, Size],
    ) -> None:
        """Each output with the sizes that are fixed put in; as it is written where that fails.

        A record may have been made either way.
        """
        ways = list(self._readings_at((fixed, {}) if fixed else ({},)))
        unbounded = [
            self._check_any_elements([(lhs[k], rhs[k]) for lhs, rhs in ways], output, assumed)
            for k, output in enumerate(outputs)
        ]
        failure: Unreplayable | None = None
        for lhs, rhs in ways:
            try:
                for left, right, output, names in zip(lhs, rhs, outputs, unbounded, strict=True):
                    self._check_output(left, right, output, assumed, names)
                return
            except Unreplayable as error:
                failure = failure or error
        raise failure or Unreplayable("the sizes that the conditions fix do not fit")

    def _readings_at(self, ways: Iterable[Mapping[str, Size]]) -> Iterator[list[tuple[Value, ...]]]:
        """Both sides with sizes put in; as they are where that fails."""
        for sizes in ways:
            with contextlib.suppress(ShapeError, ZeroDivisionError):
                yield [with_sizes(side, sizes) for side in (self.instance.lhs, self.instance.rhs)]

    def _check_any_elements(
        self, ways: Iterable[tuple[Value, Value]], data: object, assumed: Sequence[Constraint]
    ) -> frozenset[str]:
        """`_check_elements` of one of several ways to write the two sides of an output."""
        failure: Unreplayable | None = None
        for left, right in ways:
            try:
                return self._check_elements(left, right, data, assumed)
            except Unreplayable as error:
                failure = failure or error
        raise failure or Unreplayable("the sizes that the conditions fix do not fit")

    def _check_exact(self, assumed: Sequence[Constraint]) -> None:
        """Whether the sides agree to the bit as far as the rule says."""
        if self.instance.exact is None:
            return
        if self.instance.exact != BITS and (value := rounded(self.instance)) is not None:
            raise Unreplayable(f"{value} may round: for numbers, too, the sides may differ")
        for left, right in zip(self.instance.lhs, self.instance.rhs, strict=True):
            difference = None
            if left != right:
                difference = self._difference(left, right, assumed, self.instance.exact == BITS)
            if difference is None:
                continue
            if difference.is_certain:
                raise BitsError(f"the sides do not agree to the bit: {difference.words}")
            words = difference.words
            raise Unreplayable(f"the sides are not shown to agree to the bit: {words}")

    def _difference(
        self, left: Value, right: Value, assumed: Sequence[Constraint], special: bool = True
    ) -> OtherBits | None:
        if self.instance.is_discrete or self._sums.are_all:
            return None  # integers are not rounded, so that equal ones have equal bits
        key = left, right, special
        if key not in self._differences:
            sides = left, right
            # What holds at a rank of the certificate does at a higher one, slice by slice.
            runs = {} if self.data is not None else {"cases": FURTHER_CASES, "least": 0}
            self._differences[key] = find_difference(self.instance, sides, assumed, special, **runs)
        return self._differences[key]

    def _what_shows(self, left: Value, right: Value, assumed: Sequence[Constraint]) -> list[Shown]:
        key = left, right
        if key not in self._shown:
            self._shown[key] = what_shows(self.instance, left, right, assumed)
        return self._shown[key]

    def _check_indices(self, questions: Questions) -> None:
        """Whether the right side looks up at places that exist, if the left side does."""
        self.ranges = granted(self.instance.lhs, questions)
        knowing = self._questions(questions.assumed)
        expansion = Expansion(knowing.contradictory, Tidying(knowing).tidy, codes=self.codes)
        unsafe = out_of_range(self.instance.lhs, self.instance.rhs, expansion, knowing)
        self.asked += knowing.asked
        if unsafe is not None:
            raise Unreplayable(f"at rank {self.instance.rank}, {unsafe}")

    def _compare_texts(self, key: str, conditions: Sequence[Constraint]) -> None:
        if self.data is not None and entry(self.data, key) != [str(c) for c in conditions]:
            raise DocumentError(
                f"at rank {self.instance.rank}, the certificate does not {key} what the rule does"
            )

    def _equal_shapes(self) -> Iterator[Constraint]:
        if self.instance.broadcast:
            return  # elementwise throughout: where it is applied, the shapes agree
        for left, right in zip(self.instance.lhs, self.instance.rhs, strict=True):
            if len(left.shape) != len(right.shape):
                raise Unreplayable("the ranks of the two sides differ")
            for a, b in zip(left.shape, right.shape, strict=True):
                yield equal(a, b)

    def _check_output(
        self,
        left: Value,
        right: Value,
        data: object,
        assumed: Sequence[Constraint],
        unbounded: frozenset[str],
    ) -> None:
        if left == right:
            return
        plain = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
        if _readings(left, plain) == _readings(right, plain):
            return  # the same number, defined in the same places
        if isinstance(entry(data, "same expression"), str):
            data = None  # then nothing was recorded
        if isinstance(cases := entry(data, "cases"), list):
            self._check_cases(left, right, cases, assumed, unbounded)
            return
        ranges = [c for i, n in zip(plain, left.shape, strict=True) for c in in_range(i, n)]
        ranges = [c for c in ranges if c.decided is None]
        index, conditions = (plain, ranges) if data is None else read_index(data)
        if index != plain:
            if len(index) != len(plain):
                raise DocumentError("the certificate does not have one index for each axis")
            if not covers(index, conditions, plain, Questions([*assumed, *ranges])):
                raise Unreplayable("the digits are not shown to reach each output index")
        elif not _follow(set(conditions) - set(map(canonical, ranges)), assumed, ranges):
            raise Unreplayable("the certificate is not shown to cover each output index")
        questions = self._questions([*assumed, *conditions])
        witness = entry(data, "witness")
        if witness is not None:
            element, *parts = (without_quotients(e, questions) for e in _computed(left, index))
            named = present_values(element, parts)
            questions = self._questions([*assumed, *conditions, *named])
            if not isinstance(witness, list) or not all(
                questions.implied(read_condition(text)) for text in witness
            ):
                raise Unreplayable("it is not shown that the values that are named are there")
        self._replay((left, right), index, data, questions, unbounded, in_digits=index != plain)

    def _replay(
        self,
        sides: tuple[Value, Value],
        index: Index,
        data: object,
        questions: Questions,
        unbounded: frozenset[str],
        *,
        in_digits: bool,
    ) -> None:
        """What a certificate records of an output at an index."""
        facts, hints = self.facts, self.hints
        try:
            output = Output(sides, index, data, questions, facts, hints=hints, unbounded=unbounded)
            output.check(in_digits)
        finally:
            self.asked += questions.asked

    def _check_cases(
        self,
        left: Value,
        right: Value,
        cases: Sequence[object],
        assumed: Sequence[Constraint],
        unbounded: frozenset[str],
    ) -> None:
        """An output at indices that are told apart by their remainders."""
        for (index, conditions), data in zip(self._cases(left, cases, assumed), cases, strict=True):
            questions = self._questions([*assumed, *conditions])
            self._replay((left, right), index, data, questions, unbounded, in_digits=True)

    def _cases(
        self, left: Value, cases: Sequence[object], assumed: Sequence[Constraint]
    ) -> list[tuple[Index, list[Constraint]]]:
        """The indices of cases, with their conditions, once it is shown that they are all."""
        plain = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
        read = list(map(read_index, cases))
        if any(len(index) != len(plain) for index, _ in read):
            raise DocumentError("the certificate does not have one index for each axis")
        sizes = (size for value in self.instance.inputs for size in (*value.shape, *plain))
        taken = frozenset[str]().union(*(c.symbols for c in assumed), *map(free_symbols, sizes))
        if not are_all_remainders([index for index, _ in read], plain, taken):
            raise Unreplayable("the cases are not shown to reach each output index")
        for index, conditions in read:
            ranges = [c for i, n in zip(index, left.shape, strict=True) for c in in_range(i, n)]
            if not _follow(conditions, assumed, ranges):
                raise Unreplayable("a case is not shown to cover each of its output indices")
        return read

    def _check_elements(
        self, left: Value, right: Value, data: object, assumed: Sequence[Constraint]
    ) -> frozenset[str]:
        """Whether all elements that matter are numbers; the inputs of which some may be -inf.

        Sides that agree to the bit do so whatever the elements are: where the rule says that they
        do, or where an output of several may, that is enough.
        """
        if left == right:
            return frozenset()
        reasons: list[str] = []
        for cases in self._indices(left, data, assumed):
            found = [self._elements((left, right), *case, assumed) for case in cases]
            failed = [each for each in found if isinstance(each, str)]
            if not failed:
                return frozenset[str]().union(*(e for e in found if not isinstance(e, str)))
            reasons.append(failed[0])
            if self.instance.exact == BITS:
                break
        if self.instance.exact != BITS and len(self.instance.lhs) == 1:
            raise Unreplayable(reasons[0])
        difference = self._difference(left, right, assumed)
        if difference is None:
            return frozenset()
        if self.instance.exact == BITS and difference.is_certain:
            raise BitsError(f"the sides do not agree to the bit: {difference.words}")
        raise Unreplayable(
            f"{reasons[0]}, and the sides are not shown to agree to the bit: {difference.words}"
        )

    def _elements(
        self,
        sides: tuple[Value, Value],
        index: Index,
        conditions: Sequence[Constraint],
        resolved: bool,
        assumed: Sequence[Constraint],
    ) -> frozenset[str] | str:
        """`_check_elements` at one index; or why it is not shown that those are numbers."""
        reasons = []
        for shown in self._what_shows(*sides, assumed):
            found = self._elements_as(shown, index, conditions, resolved, assumed)
            if not isinstance(found, str):
                return found
            reasons.append(found)
        return reasons[-1]

    def _elements_as(
        self,
        shown: Shown,
        index: Index,
        conditions: Sequence[Constraint],
        resolved: bool,
        assumed: Sequence[Constraint],
    ) -> frozenset[str] | str:
        questions = self._questions([*assumed, *conditions])
        try:
            facts = self.instance.facts
            found = elements_of(shown, index, questions, facts, in_digits=resolved)
            reason = found.unshown() or self._without_limit(found)
        except Unreplayable as error:
            return str(error)
        finally:
            self.asked += questions.asked
        return reason or found.unbounded(self.instance.limits)

    def _indices(
        self, left: Value, data: object, assumed: Sequence[Constraint]
    ) -> Iterator[list[tuple[Index, list[Constraint], bool]]]:
        """Ways to write the output's index: in one or several cases, each with its conditions.

        The last is whether quotients are to be resolved that what is known there determines: of
        the index as it is, or in the digits or cases that the certificate names.
        """
        plain = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
        ranges = [c for i, n in zip(plain, left.shape, strict=True) for c in in_range(i, n)]
        ranges = [c for c in ranges if c.decided is None]
        yield [(plain, ranges, False)]
        yield [(plain, ranges, True)]
        if isinstance(cases := entry(data, "cases"), list):
            yield [(*case, True) for case in self._cases(left, cases, assumed)]
        elif isinstance(entry(data, "where"), list):
            index, conditions = read_index(data)
            if len(index) != len(plain) or index == plain:
                return
            questions = Questions([*assumed, *ranges])
            if covers(index, conditions, plain, questions):
                yield [(index, conditions, True)]

    def _without_limit(self, found: Elements) -> str | None:
        names = sorted(self.instance.limits & found.unsteady)
        return f"the sides need not go to a limit as {names[0]} goes to -inf" if names else None
