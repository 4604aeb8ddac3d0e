"""Certificates: records of proofs, which an independent program can check.

The prover searches; its findings (which terms cancel, which change of variables takes one to
another, which value a maximum is reached at) go to a `Recorder`, and from there into a record of
plain lists, dictionaries and texts, the same bytes for the same rule. `xflow.verifier.recheck`
reads it. A normal form is a list of terms:

    {"times": "1/2", "sum": "_k0 _k1", "where": "_k0 >= 0, n >= _k0 + 1", "of": ["x[_k0]", ...]}

with empty parts left out. A factor is an element of an input, one of
``{"size": ...}``, ``{"function": ..., "args": [...]}``, ``{"inverse of": ...}`` and ``{"maximum":
[{"over": ..., "where": ..., "value": ...}]}``, or a pair of one of these and its exponent. A
condition that compares real numbers speaks of the sign of a normal form, ``sign(...)``; a table
by the key "signs" says which form that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from xflow.core.constraint import Constraint
from xflow.core.size import Size, opaque_integers
from xflow.core.spec import Element
from xflow.rewriting.rule import Rule
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Group,
    Maximum,
    Normal,
    Option,
    SizeAtom,
    Term,
)

Record: TypeAlias = dict[str, object]
Change: TypeAlias = Mapping[str, Size]
Mark: TypeAlias = tuple[int, int]


@dataclass
class Recorder:
    """Records the steps of a search for a proof that were successful."""

    groups: list[tuple[tuple[Term, Change], ...]] = field(default_factory=list)
    """Terms that cancel: each with the change of its bound variables to those of the first."""
    witnesses: list[Change] = field(default_factory=list)
    """Where a maximum takes a value of another: its variables, by those of the other."""

    def mark(self) -> Mark:
        """The present state, for `rewind`."""
        return len(self.groups), len(self.witnesses)

    def rewind(self, mark: Mark) -> None:
        """Forget what was recorded since `mark`, when the search backtracks."""
        groups, witnesses = mark
        del self.groups[groups:]
        del self.witnesses[witnesses:]

    def group(self, first: Term, others: Iterable[tuple[Term, Change]]) -> None:
        """Note that these terms cancel; a term that cancels by itself needs no note."""
        members = ((first, {}), *others)
        if len(members) > 1:
            self.groups.append(members)

    def witness(self, change: Change) -> None:
        """Note where a maximum takes a value of another."""
        if change:
            self.witnesses.append(dict(change))

    def _conditions(self, start: Mark) -> Iterator[Constraint]:
        """The conditions of the terms in the groups since `start`, as they are and changed."""
        for group in self.groups[start[0] :]:
            for part, change in group:
                yield from _conditions([part])
                yield from (guard.substitute(change) for guard in part.guards)

    def record(self, start: Mark, middle: Mark, left: Normal, right: Normal) -> Record:
        """The record of one output, for the certificate.

        From `start` to `middle` it is about the right side being defined, after that about the
        equation of normal forms ``left == right``.
        """
        named = {_identity(t): f"left {n}" for n, t in enumerate(left.terms)}
        for n, t in enumerate(right.terms):
            negated = Term(-t.coefficient, t.variables, t.guards, t.powers)
            named.setdefault(_identity(negated), f"right {n}")

        def member(part: Term, change: Change) -> object:
            name: object = named.get(_identity(part)) or term_record(part)
            return [name, _change_record(change)] if change else name

        def steps(first: Mark, last: Mark) -> Record:
            made: Record = {}
            groups = self.groups[first[0] : last[0]]
            witnesses = self.witnesses[first[1] : last[1]]
            if groups:
                made["groups"] = _unique([member(*m) for m in group] for group in groups)
            if witnesses:
                made["witnesses"] = _unique(map(_change_record, witnesses))
            return made

        result: Record = {"left": normal_record(left), "right": normal_record(right)}
        signs = signs_record([*self._conditions(start), *_conditions((*left.terms, *right.terms))])
        if signs:
            result["signs"] = signs
        defined = steps(start, middle)
        if defined:
            result["defined"] = defined
        return {**result, **steps(middle, self.mark())}


def signs_record(conditions: Iterable[Constraint]) -> Record:
    """The normal forms that the comparisons in `conditions` compare with 0, by their texts."""
    found: Record = {}
    for condition in conditions:
        for atom in opaque_integers(condition.difference):
            normal = getattr(atom, "normal", None)
            if isinstance(normal, Normal) and str(atom) not in found:
                found[str(atom)] = normal_record(normal)
                found |= signs_record(_conditions(normal.terms))
    return found


def _conditions(terms: Iterable[Term]) -> Iterator[Constraint]:
    """All conditions in terms, also those inside of factors."""
    for part in terms:
        yield from part.guards
        for base, _ in part.powers:
            match base:
                case Function(_, args):
                    for arg in args:
                        yield from _conditions(arg.terms)
                case Group(body):
                    yield from _conditions(body.terms)
                case Maximum(options):
                    for option in options:
                        yield from option.guards
                        yield from _conditions(option.body.terms)


def _identity(part: Term) -> tuple[Fraction, str]:
    return part.coefficient, part.key


def _unique(items: Iterable[object]) -> list[object]:
    seen: dict[str, object] = {}
    for item in items:
        seen.setdefault(repr(item), item)
    return list(seen.values())


def statement(rule: Rule) -> Record:
    """The part of a rule's text that its certificate is about: no name, no measurements."""
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


def obligation_record(obligation: Mapping[str, object], context: Sequence[Constraint]) -> Record:
    """An obligation, with only those of its assumptions that are not in `context`."""
    known = set(map(str, context))
    result: Record = {}
    for key, value in obligation.items():
        if key == "assume" and isinstance(value, list):
            rest = [text for text in value if text not in known]
            if rest:
                result[key] = ", ".join(rest)
        elif key == "sum is zero" and isinstance(value, list):
            result[key] = [[weight, ", ".join(guards)] for weight, guards in value]
        else:
            result[key] = value
    return result


def _change_record(change: Change) -> Record:
    return {name: str(value) for name, value in change.items()}


def normal_record(normal: Normal) -> list[object]:
    """A normal form."""
    return [term_record(part) for part in normal.terms]


def term_record(part: Term) -> Record:
    """A term."""
    result: Record = {}
    if part.coefficient != 1:
        result["times"] = str(part.coefficient)
    if part.variables:
        result["sum"] = " ".join(part.variables)
    if part.guards:
        result["where"] = ", ".join(map(str, part.guards))
    if part.powers:
        result["of"] = [
            _base_record(base) if exponent == 1 else [_base_record(base), exponent]
            for base, exponent in part.powers
        ]
    return result


def _base_record(base: Base) -> object:
    match base:
        case Element(tensor, index):
            return f"{tensor}[{', '.join(map(str, index))}]"
        case SizeAtom(size):
            return {"size": str(size)}
        case Function(name, args):
            return {"function": name, "args": [normal_record(arg) for arg in args]}
        case Group(body):
            return {"inverse of": normal_record(body)}
        case Maximum(options):
            return {"maximum": [_option_record(option) for option in options]}
    # a new kind of factor: the checker will say that it has no replay
    return {"unknown": type(base).__name__}


def _option_record(option: Option) -> Record:
    result: Record = {}
    if option.variables:
        result["over"] = " ".join(option.variables)
    if option.guards:
        result["where"] = ", ".join(map(str, option.guards))
    result["value"] = normal_record(option.body)
    return result


def count_obligations(certificate: object) -> int:
    """How many questions to the solver a proof relies on, in both directions."""
    if isinstance(certificate, Mapping):
        return sum(
            len(value) if key == "obligations" and isinstance(value, list) else inner
            for key, value in certificate.items()
            for inner in [count_obligations(value)]
        )
    return sum(map(count_obligations, certificate)) if isinstance(certificate, list) else 0
