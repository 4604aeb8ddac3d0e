"""Groups of rules that say one law of several operators, axes or inputs, and their common text.

Rules may share a stanza where both sides have the same form: operators of the same arity at the
same places, which read the same inputs, but for one that is last everywhere, such as a bias or a
mask, and may be missing. Placeholders stand where they differ, see `LIMITS`, for
operators where these are of one kind. Rules are joined that differ least.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from xflow.core.expressions import expression
from xflow.core.registry import Operator
from xflow.generator.generalization.wording import kebab
from xflow.ops import operator
from xflow.ops.elementwise import Elementwise
from xflow.rewriting.cases import DEFAULT, NONE
from xflow.rewriting.rule import Rule

MOST = 3
"""Placeholders of both sides, besides those of inputs."""


@dataclass(frozen=True)
class Limits:
    """How much else the rules of a stanza may differ; a text with more is no easier to read."""

    inputs: int
    """Inputs that differ, where not all of them do, or in name."""
    lines: int
    """Lines that not all of them have alike, besides notes and inputs."""


LIMITS = (Limits(2, 4), Limits(2, 3), Limits(1, 2))
"""By how many placeholders stand for operators."""

INPUT = re.compile(r"([A-Za-z]\w*)\s*\[[^\]]*\](?::\w+)?")
"""An input with its sizes in the line ``in``; its name is the first group."""

Column = tuple[str, ...]
"""The values of a placeholder, case by case."""


POINTWISE = "pointwise"
"""The kind of elementwise operators of several numbers of inputs."""


@cache
def kind_of(names: tuple[str, ...]) -> str:
    """What operators are in common, in words; nothing where they are of no one kind.

    These are words that all have in their names, or else the class from which all are derived.
    """
    first, *others = (kebab(name).split("-") for name in dict.fromkeys(names))
    words = [word for word in first if all(word in other for other in others)]
    if words:
        return "-".join(words)
    found = [operator(name) for name in names]
    classes = (kind for kind in type(found[0]).__mro__ if all(isinstance(op, kind) for op in found))
    kinds: dict[type, str] = {Operator: "", Elementwise: POINTWISE}
    said = (kinds.get(kind, kebab(kind.__name__)) for kind in classes)
    return next(word for word in said if "-" not in word)


@dataclass(frozen=True)
class Call:
    """An operator at its place in a rule, with the attributes that are spelled."""

    op: str
    attributes: Mapping[str, str]

    @cached_property
    def text(self) -> str:
        """The operator with its attributes, as a value of a placeholder."""
        inner = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        return f"{self.op}({inner})" if inner else self.op


@dataclass(frozen=True)
class Reading:
    """A rule taken apart: its form, and what differs between rules of one form."""

    rule: Rule
    form: str
    """The two sides without names of operators and inputs, and without attributes."""
    calls: tuple[Call, ...]
    """The operators, in the order in which they are written."""
    inputs: tuple[tuple[str, str], ...]
    """The name of each input, and the input as it is declared."""

    @cached_property
    def words(self) -> frozenset[str]:
        """All names in the rule."""
        rule = self.rule
        texts = (rule.inputs, rule.lhs, rule.rhs, rule.params, *rule.where, *(rule.reverse or ()))
        return frozenset(re.findall(r"[A-Za-z]\w*", " ".join(texts)))


def read(rule: Rule) -> Reading:
    """Take a rule apart."""
    inputs = tuple((match[1], match[0]) for match in INPUT.finditer(rule.inputs))
    places = {name: f"${number}" for number, (name, _) in enumerate(inputs)}
    calls: list[Call] = []

    def form(tree: ast.AST) -> str:
        match tree:
            case ast.Call(func=ast.Name(id=op), args=args, keywords=keywords):
                attributes = {str(each.arg): ast.unparse(each.value) for each in keywords}
                calls.append(Call(op, attributes))
                return f"({', '.join(map(form, args))})"
            case ast.Tuple(elts=parts):
                return f"<{', '.join(map(form, parts))}>"
            case ast.Subscript(value=value, slice=index):
                return f"{form(value)}[{ast.unparse(index)}]"
            case ast.Name(id=name):
                return places.get(name, name)
        return ast.unparse(tree)

    sides = [form(expression(side)) for side in (rule.lhs, rule.rhs)]
    return Reading(rule, " = ".join(sides), tuple(calls), inputs)


MISSING = ("", NONE)
"""An input that a rule does not have, and others of its group do."""


def _parents(form: str) -> Iterator[tuple[int, str]]:
    """The numbers of inputs of a form that may be missing, and the form without each of them."""
    numbers = sorted(set(map(int, re.findall(r"\$(\d+)", form))))
    for number in numbers:
        if re.search(rf"\${number}\b(?!\))|(?<!, )\${number}\b", form) is None:
            less = re.sub(rf", \${number}\)", ")", form)
            yield (
                number,
                re.sub(r"\$(\d+)", lambda at: f"${int(at[1]) - (int(at[1]) > number)}", less),  # noqa: B023
            )


def _completed(forms: Mapping[str, Sequence[Reading]]) -> dict[str, list[Reading]]:
    """Rules by their forms, those of which the form lacks an input of another one among these."""
    made: dict[str, list[Reading]] = {form: list(readings) for form, readings in forms.items()}
    # Forms with fewer inputs first: what is missing twice is completed twice.
    for form in sorted(forms, key=lambda form: (len(re.findall(r"\$\d+", form)), form)):
        for number, less in _parents(form):
            made[form] += [_with_missing(each, form, number) for each in made.pop(less, ())]
    return made


def _with_missing(reading: Reading, form: str, number: int) -> Reading:
    inputs = (*reading.inputs[:number], MISSING, *reading.inputs[number:])
    return replace(reading, form=form, inputs=inputs)


def trimmed(group: Sequence[Reading]) -> list[Reading]:
    """Rules of a group without inputs that all of them lack."""
    every = list(zip(*(each.inputs for each in group), strict=True))
    kept = [number for number, column in enumerate(every) if set(column) != {MISSING}]
    return [replace(each, inputs=tuple(each.inputs[number] for number in kept)) for each in group]


@dataclass(frozen=True)
class Slots:
    """The placeholders that a group of rules needs: the values of each, and where it stands."""

    operators: Mapping[Column, tuple[int, ...]]
    """By the number of the call."""
    attributes: Mapping[Column, tuple[tuple[int, str], ...]]
    """By the number of the call, and the attribute's name."""
    inputs: Mapping[int, Column]
    """By the number of the input."""
    has_own_inputs: bool
    """Whether each case declares its inputs."""
    lines: tuple[str, ...]
    """Keys of lines that are not alike, besides notes and inputs."""
    wholes: frozenset[int] = frozenset()
    """Calls of which the placeholder stands for the operator with its attributes."""

    @property
    def cost(self) -> int:
        """How much the rules differ."""
        sides = 10 * len(self.operators) + 2 * len(self.attributes)
        return sides + 3 * len(self.inputs) + self.has_own_inputs + len(self.lines)


def slots_of(group: Sequence[Reading]) -> Slots | None:
    """What rules of one form need to share a stanza; None beyond the limits.

    One of them has all inputs.
    """
    if all(MISSING in each.inputs for each in group):
        return None
    calls = list(zip(*(each.calls for each in group), strict=True))
    varying = {i for i, column in enumerate(calls) if len({call.op for call in column}) > 1}
    found = [
        slots
        for wholes in ((), varying)
        if (slots := _slots(group, calls, varying, frozenset(wholes))) is not None
    ]
    return min(found, key=lambda slots: slots.cost, default=None)


def _slots(
    group: Sequence[Reading],
    calls: Sequence[tuple[Call, ...]],
    varying: set[int],
    wholes: frozenset[int],
) -> Slots | None:
    operators: dict[Column, tuple[int, ...]] = {}
    attributes: dict[Column, tuple[tuple[int, str], ...]] = {}
    for number, column in enumerate(calls):
        if number in varying:
            values = tuple(call.text if number in wholes else call.op for call in column)
            operators[values] = (*operators.get(values, ()), number)
        if number in wholes:
            continue
        for name in dict.fromkeys(name for call in column for name in call.attributes):
            given = tuple(call.attributes.get(name, DEFAULT) for call in column)
            if DEFAULT in given and any(name not in operator(c.op).attributes for c in column):
                return None
            if len(set(given)) > 1:
                attributes[given] = (*attributes.get(given, ()), (number, name))
    if not all(kind_of(tuple(value.partition("(")[0] for value in column)) for column in operators):
        return None
    if len(operators) >= len(LIMITS) or len(operators) + len(attributes) > MOST:
        return None
    limits = LIMITS[len(operators)]
    inputs: dict[int, Column] = {}
    named = False
    for number, declared in enumerate(zip(*(each.inputs for each in group), strict=True)):
        if len(set(declared)) > 1:
            inputs[number] = tuple(text for _, text in declared)
            named = named or len({name for name, _ in declared}) > 1
    own = len(inputs) > 1 and not named
    if not own and len(inputs) > limits.inputs:
        return None
    lines = tuple(_differing([each.rule for each in group], named))
    if len(lines) > limits.lines:
        return None
    return Slots(operators, attributes, {} if own else inputs, own, lines, wholes)


def _differing(rules: Sequence[Rule], named: bool) -> Iterator[str]:
    """Keys of lines that rules do not have alike; those that name inputs may differ so."""
    texts = [dict(rule.lines()) for rule in rules]
    for key in dict.fromkeys(itertools.chain.from_iterable(texts)):
        if key in ("in", "from", "to") or (key == "limits" and named):
            continue
        if len({text.get(key) for text in texts}) > 1:
            yield key


def group_rules(rules: Iterable[Rule]) -> list[list[Reading]]:
    """Groups of rules that share a stanza, in an order that does not depend on that of `rules`."""
    forms: dict[str, list[Reading]] = {}
    for rule in sorted(rules, key=_order):
        made = read(rule)
        forms.setdefault(made.form, []).append(made)
    completed = _completed(forms)
    return [group for form in sorted(completed) for group in _joined(completed[form])]


def _order(rule: Rule) -> tuple[object, ...]:
    """Rules with smaller numbers first, so that axes are counted up."""
    text = f"{rule.lhs} = {rule.rhs} in {rule.inputs}"
    parts = re.split(r"(\d+)", f"{text} {rule.statement}")
    return (*((part, 0) if i % 2 == 0 else ("", int(part)) for i, part in enumerate(parts)),)


def _joined(readings: Sequence[Reading]) -> Iterator[list[Reading]]:
    """Rules of one form in groups: two are joined as long as any may, the closest first."""
    groups: dict[int, list[Reading]] = {i: [each] for i, each in enumerate(readings)}
    costs = {
        pair: cost
        for pair in itertools.combinations(groups, 2)
        if (cost := _cost(groups[pair[0]], groups[pair[1]])) is not None
    }
    while costs:
        _, (one, other) = min((cost, pair) for pair, cost in costs.items())
        groups[one] = [*groups[one], *groups.pop(other)]
        costs = {pair: cost for pair, cost in costs.items() if not {one, other} & {*pair}}
        for third in groups:
            pair = (min(one, third), max(one, third))
            if third != one:
                cost = _cost(groups[pair[0]], groups[pair[1]])
                if cost is not None:
                    costs[pair] = cost
    for group in groups.values():
        yield trimmed(sorted(group, key=lambda each: _order(each.rule)))


def _cost(one: Sequence[Reading], other: Sequence[Reading]) -> int | None:
    slots = slots_of(trimmed((*one, *other)))
    return None if slots is None else slots.cost
