"""The common text of rules that share a stanza: placeholders, their values, and what is printed."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xflow.core.errors import RuleFileError
from xflow.core.expressions import expression
from xflow.generator.database.grouping import MISSING, Column, Reading, Slots, slots_of
from xflow.ops import operator
from xflow.rewriting.abbreviations import abbreviated
from xflow.rewriting.cases import NAME, Case, written
from xflow.rewriting.rule import KEYS, Rule
from xflow.rewriting.text import parse_rules


@dataclass(frozen=True)
class Placeholder:
    """A name in a template, and its values."""

    name: str
    kind: str
    """``op``, ``in``, or the name of an attribute."""
    column: Column
    op: str = ""
    """An operator that has the attribute."""


@dataclass(frozen=True)
class Template:
    """The common text of a group of rules, and where they differ."""

    rules: tuple[Rule, ...]
    lhs: str
    rhs: str
    inputs: str
    """Empty where each case declares its inputs."""
    placeholders: tuple[Placeholder, ...] = ()
    names: tuple[Mapping[str, str], ...] = ()
    """For each rule, the placeholder of each input that has one."""

    @property
    def operators(self) -> Mapping[str, Column]:
        """The operators for which placeholders stand, without attributes."""
        return {
            each.name: tuple(value.partition("(")[0] for value in each.column)
            for each in self.placeholders
            if each.kind == "op"
        }


def alone(rule: Rule) -> Template:
    """The text of a single rule."""
    return Template((rule,), rule.lhs, rule.rhs, rule.inputs)


def template_of(group: Sequence[Reading]) -> Template:
    """The common text of a group that `group_rules` found."""
    if len(group) == 1:
        return alone(group[0].rule)
    slots = slots_of(group)
    assert slots is not None
    filler = _Filler(group, slots)
    first = filler.first.rule
    declared = " ".join(
        filler.inputs.get(number, text) for number, (_, text) in enumerate(filler.first.inputs)
    )
    names = (
        {
            each.inputs[number][0]: name
            for number, name in filler.inputs.items()
            if each.inputs[number] != MISSING
        }
        for each in group
    )
    return Template(
        tuple(each.rule for each in group),
        filler.side(first.lhs),
        filler.side(first.rhs),
        "" if slots.has_own_inputs else declared,
        tuple(filler.placeholders),
        tuple(names),
    )


@dataclass
class _Filler:
    """Puts placeholders into the sides of a group's first rule that has all inputs.

    First into the left one.
    """

    group: Sequence[Reading]
    slots: Slots
    placeholders: list[Placeholder] = field(default_factory=list)
    calls: dict[int, str] = field(default_factory=dict)
    """The placeholder of each operator that has one, by the number of the call."""
    attributes: dict[tuple[int, str], str] = field(default_factory=dict)
    inputs: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        group, slots = self.group, self.slots
        self.first = next(each for each in group if MISSING not in each.inputs)
        self._words = {word for each in group for word in each.words} | {NAME}
        for column, numbers in slots.operators.items():
            self.calls.update(dict.fromkeys(numbers, self._add("OP", "op", column)))
        for column, places in slots.attributes.items():
            number, attribute = places[0]
            op = self.first.calls[number].op
            name = self._add(attribute.upper(), attribute, column, op)
            self.attributes.update(dict.fromkeys(places, name))
        for number, column in slots.inputs.items():
            names = {each.inputs[number][0] for each in group} - {MISSING[0]}
            common = next(iter(names)).upper()
            common = common if len(names) == 1 and common not in self._words else "INPUT"
            self.inputs[number] = self._add(common, "in", column)
        self._renamed = {self.first.inputs[number][0]: name for number, name in self.inputs.items()}
        self._count = itertools.count()

    def _add(self, preferred: str, kind: str, column: Column, op: str = "") -> str:
        taken = self._words | {each.name for each in self.placeholders}
        numbered = (f"{preferred}{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([preferred], numbered) if name not in taken)
        self.placeholders.append(Placeholder(name, kind, column, op))
        return name

    def side(self, text: str) -> str:
        """A side with placeholders; calls are counted as `read` does."""
        tree = self._filled(expression(text))
        if isinstance(tree, ast.Tuple):
            return ", ".join(map(ast.unparse, tree.elts))
        return ast.unparse(tree)

    def _filled(self, tree: ast.expr) -> ast.expr:
        match tree:
            case ast.Call(func=ast.Name(id=op), args=args):
                number = next(self._count)
                spelled: dict[str, str] = {}
                if number not in self.slots.wholes:
                    spelled |= self.first.calls[number].attributes
                spelled |= {name: at for (i, name), at in self.attributes.items() if i == number}
                order = [*operator(op).attributes]
                keywords = [
                    ast.keyword(name, expression(spelled[name]))
                    for name in sorted(spelled, key=order.index)
                ]
                func = ast.Name(self.calls.get(number, op))
                return ast.Call(func, [self._filled(each) for each in args], keywords)
            case ast.Tuple(elts=parts):
                return ast.Tuple([self._filled(each) for each in parts])
            case ast.Subscript(value=value, slice=index):
                return ast.Subscript(self._filled(value), index)
            case ast.Name(id=name):
                return ast.Name(self._renamed.get(name, name))
        return tree


def stanza_text(name: str, template: Template, labels: Sequence[str], rules: Sequence[Rule]) -> str:
    """The rules of a template as one stanza, each named ``NAME-LABEL``.

    `rules` are those of the template with their names and notes. A single one has no label. Rules
    that would not read back as they are, since words of theirs are placeholders, stand alone.
    """
    apart = "\n".join(map(str, rules))
    if len(rules) == 1:
        return apart
    texts = [
        _lines(rule, label, names)
        for rule, label, names in zip(rules, labels, template.names, strict=True)
    ]
    sides = {"in": template.inputs, "from": template.lhs, "to": template.rhs}
    shared: dict[str, str] = {}
    for key in KEYS:
        if sides.get(key):
            shared[key] = sides[key]
        elif key in texts[0] and all(text.get(key) == texts[0][key] for text in texts):
            shared[key] = texts[0][key]
    cases = []
    for number, (rule, label) in enumerate(zip(rules, labels, strict=True)):
        values = {each.name: each.column[number] for each in template.placeholders}
        own = {**dict(rule.lines()), **rule.notes}
        cases.append(Case(label, values, {key: own[key] for key in own if key not in shared}))
    if "from" in shared and "to" in shared:
        shared = abbreviated(shared)
    text = written(name, shared, cases)
    try:
        read_back = parse_rules(text, checked=False)
    except RuleFileError:
        return apart
    return text if list(map(str, read_back)) == list(map(str, rules)) else apart


def _lines(rule: Rule, label: str, names: Mapping[str, str]) -> dict[str, str]:
    """The lines of a rule with placeholders in place of its inputs' and of its case's name."""
    lines = dict(rule.lines())
    for key in ("where", "reverse", "limits"):
        if names and key in lines:
            pattern = rf"\b({'|'.join(names)})\b"
            lines[key] = re.sub(pattern, lambda match: names[match[1]], lines[key])
    stem = rule.name.removesuffix(label)
    certificate, shared = f"{rule.name}.json", f"{stem}{NAME}.json"
    notes = {key: text.replace(certificate, shared) for key, text in rule.notes.items()}
    return {**lines, **notes}
