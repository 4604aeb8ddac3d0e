"""Checks a certificate's record of one output: its normal forms and their equality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from xflow.core.constraint import Constraint
from xflow.core.evaluation import read
from xflow.core.node import Value
from xflow.core.size import Size
from xflow.verifier.recheck.comparisons import Known
from xflow.verifier.recheck.defined import Definedness, known_of, needs, read_whole
from xflow.verifier.recheck.digits import without_quotients
from xflow.verifier.recheck.expand import Expansion
from xflow.verifier.recheck.finite import is_finite
from xflow.verifier.recheck.forms import Sum, Term, Unreplayable, with_coefficient
from xflow.verifier.recheck.groups import Change, Group, gathered
from xflow.verifier.recheck.laws import with_one_logarithm
from xflow.verifier.recheck.reading import Reader, read_condition, read_map, read_size
from xflow.verifier.recheck.reals import equal_over_reals
from xflow.verifier.recheck.replay import Replay
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.tidy import Tidying
from xflow.verifier.recheck.verdicts import DocumentError


def entry(data: object, key: str) -> Any:
    """The value of a record under `key`; None where it is no record or has none."""
    return data.get(key) if isinstance(data, dict) else None


def read_index(data: object) -> tuple[tuple[Size, ...], list[Constraint]]:
    """The index that an output is read at, and its conditions.

    Raises DocumentError, Unreplayable.
    """
    index, where = entry(data, "index"), entry(data, "where")
    if not isinstance(index, list) or not isinstance(where, list):
        raise DocumentError("the certificate does not say which index an output is read at")
    return tuple(map(read_size, index)), [read_condition(text) for text in where]


def changes_in(data: object) -> list[Change]:
    """The changes of variables that the groups of a record name, at any depth."""
    found: list[Change] = []
    if isinstance(data, dict):
        for group in data.get("groups", ()):
            found += [read_map(m[1]) for m in group if isinstance(m, list) and len(m) == 2]
        data = list(data.values())
    if isinstance(data, list):
        for part in data:
            found += changes_in(part)
    return found


class Output:
    """One output of both sides, at a symbolic index."""

    def __init__(
        self,
        sides: tuple[Value, Value],
        index: tuple[Size, ...],
        data: object,
        questions: Questions,
        facts: Mapping[str, str],
        *,
        hints: Sequence[Change] = (),
        unbounded: frozenset[str] = frozenset(),
    ):
        self._hints = hints
        self._unbounded = unbounded
        left, right = sides
        self._data = data
        self._questions = questions
        self._facts = facts
        self._tidying = Tidying(questions)
        # The trivial replay: neither groups nor witnesses, no denominators.
        self._plain = Replay(questions, self._tidying, facts=facts)
        signs = Known(lambda a, b: self._plain.equal(a, b, ()))
        self._expansion = Expansion(
            questions.contradictory, self._tidying.tidy, signs.sign, questions.codes, facts
        )
        self._reader = Reader(entry(data, "signs"), signs.sign)
        self._scalars = read(left, index), read(right, index)
        self._whole = read_whole(left, index), read_whole(right, index)

    def check(self, in_digits: bool) -> None:
        """Raises DocumentError, Unreplayable."""
        if in_digits:
            a, b = (without_quotients(s, self._questions) for s in self._scalars)
            c, d = (without_quotients(s, self._questions) for s in self._whole)
            self._scalars, self._whole = (a, b), (c, d)
        self._check_defined()
        expanded = [self._expansion.sum_of(s, ()) for s in self._scalars]
        specified = [t for total in expanded for t in total.terms]
        if self._data is None:
            left, right = expanded
        else:
            left, right = self._normal("left", expanded[0]), self._normal("right", expanded[1])
        replay = Replay(
            self._questions,
            self._tidying,
            groups=self._groups(self._data),
            hints=self._hints,
            witnesses=self._witnesses(self._data),
            specified=specified,
            facts=self._facts,
            given=self._given,
        )
        self._check_obligations(replay.groups)
        if not replay.equal(left, right, (), defined=True) and not self._equal_reals():
            raise Unreplayable(f"the normal forms are not shown equal: {replay.failure}")
        refused = replay.refused()
        if refused is not None:
            raise Unreplayable(f"a recorded step is not shown to follow: {refused}")

    def _equal_reals(self) -> bool:
        """Whether the equation is one of real numbers that the solver shows as it stands."""
        try:
            return equal_over_reals(*self._scalars)
        except Unreplayable:  # not an equation of real numbers
            return False

    def _check_defined(self) -> None:
        given = [n for n in needs(self._whole[0], self._expansion) if not n.is_masked]
        steps = entry(self._data, "defined")
        replay = Replay(
            self._questions,
            self._tidying,
            groups=self._groups(steps),
            witnesses=self._witnesses(steps),
            facts=self._facts,
        )
        self._given = self._plain.given = replay.given = known_of(given)
        known = Definedness(replay, given, self._facts, self._unbounded)
        for need in needs(self._whole[1], self._expansion):
            unmet = known.unmet(need)
            if unmet is not None:
                raise Unreplayable(f"the right side may be undefined: {unmet}")

    def _normal(self, side: str, expanded: Sum) -> Sum:
        """A recorded normal form, once it is shown to be that side's specification."""
        recorded = self._reader.sum(entry(self._data, side))
        if not is_finite(recorded, self._questions):
            raise Unreplayable(f"the normal form of the {side} side may have a sum without end")
        if not self._plain.equal(expanded, recorded, ()) and not self._plain.equal(
            with_one_logarithm(expanded), recorded, ()
        ):
            raise Unreplayable(
                f"the {side} side is not shown to have its normal form: {self._plain.failure}"
            )
        return recorded

    def _groups(self, steps: object) -> list[Group]:
        sides = {
            f"{side} {number}": with_coefficient(part, part.coefficient * sign)
            for side, sign in (("left", 1), ("right", -1))
            for number, part in enumerate(map(self._reader.term, entry(self._data, side) or ()))
        }

        def member(item: object) -> tuple[Term, Change]:
            part, change = item if isinstance(item, list) and len(item) == 2 else (item, {})
            if isinstance(part, str) and part not in sides:
                raise DocumentError(f"a group speaks of {part}, which is no term")
            found = sides[part] if isinstance(part, str) else self._reader.term(part)
            return found, read_map(change)

        groups = entry(steps, "groups") or []
        made = [Group(tuple(map(member, group))) for group in groups if group]
        for group in made:
            # Terms of the two normal forms, and those nested in their factors.
            if not is_finite(Sum(tuple(t for t, _ in group.members)), self._questions):
                raise Unreplayable("a group may have a sum without end")
        return made

    def _witnesses(self, steps: object) -> list[Change]:
        return [read_map(item) for item in entry(steps, "witnesses") or []]

    def _check_obligations(self, groups: Sequence[Group]) -> None:
        listed = set()
        for obligation in entry(self._data, "obligations") or []:
            match obligation:
                case {"sum is zero": list(pieces)}:
                    path = self._reader.conditions(obligation.get("assume", ""))
                    weighted = [(Fraction(w), self._reader.conditions(text)) for w, text in pieces]
                    if not self._questions.vanishes(weighted, path):
                        raise Unreplayable(f"an obligation is not shown: {pieces}")
                    listed.add(_weights_key(weighted))
                case {"real arithmetic": str()}:
                    pass  # it is asked anew where it is needed
                case _:
                    raise Unreplayable(
                        f"an obligation of kind {'/'.join(obligation)} has no replay"
                    )
        for group in groups:
            weighted = group.weighted()
            if len(weighted) > 1 and _weights_key(weighted) not in listed:
                first, _ = group.members[0]
                raise Unreplayable(f"there is no obligation for the group of {first}")


def _weights_key(weighted: Sequence[tuple[Fraction, Sequence[Constraint]]]) -> str:
    """A text that is equal for weights that are multiples of each other."""
    pieces = gathered([(weight, tuple(guards)) for weight, guards in weighted])
    unit = pieces[0][0] if pieces else Fraction(1)
    return "; ".join(
        f"{weight / unit} [{', '.join(map(str, guards))}]" for weight, guards in pieces
    )
