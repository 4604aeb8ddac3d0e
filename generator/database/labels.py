"""Names of rules and of stanzas: what tells them from others of the same operators, in short words.

A name begins with the operators of both sides. What follows is taken from a rule's own text: an
attribute (``first-axis``, ``perm-0-2-1``), an operator, the sizes of an input (``m-1-1-s-l``) or a
line of its stanza. The shortest combination is taken that no other rule of these operators has, and
a number only where there is none.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from xflow.core.expressions import expression
from xflow.generator.database.grouping import INPUT, kind_of, read
from xflow.generator.database.templates import Placeholder, Template
from xflow.generator.generalization.wording import kebab, stem_of
from xflow.ops import operator, operators
from xflow.rewriting.cases import DEFAULT, NONE
from xflow.rewriting.rule import Rule

LONGEST = 85
"""Most characters of a name, if any combination is that short: lines with names fit on a page."""
PARTS = 3
"""Most parts that are combined, but for all together."""
SOME = 12
"""Combinations that are tried before those behind fewer operators."""
STRANGE = 12
"""As many characters longer may a label be if it tells an attribute or an operator, and not a line;
half as many if it would tell the sizes of an input."""

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_SIGNS = {"//": " by ", "*": " times ", "+": " plus ", "-": " minus "}

Parts = Mapping[str, str]
"""What may go into a name, by where it comes from."""


# Values


def attribute_words(op: str, name: str, value: str) -> str:
    """An attribute and its value in words."""
    spec = operator(op).attributes.get(name)
    if value == DEFAULT:
        if spec is None or not isinstance(spec.default, int | str):
            return f"default-{_slug(name)}"
        value = repr(spec.default)
    tree = expression(value)
    match tree:
        case ast.List(elts=[only]) if name in ("axes", "axis"):
            return f"{_place(ast.unparse(only))}-axis"
        case ast.List(elts=items):
            return "-".join((_slug(name), *(_place_in(name, ast.unparse(item)) for item in items)))
        case ast.Constant(value=str(text)):
            return _slug(text) or f"no-{_slug(name)}"
    if name == "axis":
        return f"{_place(value)}-axis"
    if name in _flags() and value in ("0", "1"):
        return _slug(name) if value == "1" else f"no-{_slug(name)}"
    return f"{_slug(name)}-{_slug(value)}"


@cache
def _flags() -> frozenset[str]:
    """Names of attributes that are 0 or 1."""
    found = ((name, spec) for op in operators() for name, spec in op.attributes.items())
    return frozenset(name for name, spec in found if spec.flag)


def _place(text: str) -> str:
    """An axis in words: ``first``, ``last``."""
    if re.fullmatch(r"\d", text) and int(text) < len(_ORDINALS):
        return _ORDINALS[int(text)]
    if text == "-1":
        return "last"
    if re.fullmatch(r"-\d", text) and int(text[1:]) <= len(_ORDINALS):
        return f"{_ORDINALS[int(text[1:]) - 1]}-last"
    return _slug(text)


def _place_in(name: str, text: str) -> str:
    """An item of a list: axes are counted from 0, or from the last one."""
    return _place(text) if name in ("axes", "perm") and text.startswith("-") else _slug(text)


def _input_words(text: str) -> str:
    """An input with its sizes: ``m-1-s`` for ``m[1, S]``."""
    name, _, rest = text.partition("[")
    sizes = rest.partition("]")[0].strip()
    if sizes == "...":
        return _slug(name)
    words = [_slug(item) for item in sizes.split(",")] if sizes else ["scalar"]
    return "-".join((_slug(name), *words))


def _slug(text: str) -> str:
    """A text in small letters, digits and hyphens."""
    text = re.sub(r"^\*", "", text.strip())
    text = re.sub(r"^-(?=\w)", "minus ", text)
    text = re.sub(r"//|[*+-]", lambda match: _SIGNS[match[0]], text)
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


# Cases


def case_labels(template: Template) -> list[str]:
    """A label for each rule of a template that has several."""
    parts = [_case_parts(template, number) for number in range(len(template.rules))]
    keys = [key for key in parts[0] if len({each[key] for each in parts}) > 1]
    costs = {each.name: STRANGE // 2 if each.kind == "in" else 0 for each in template.placeholders}
    for count in range(1, len(keys) + 1):
        found: list[tuple[int, list[str]]] = []
        for chosen in itertools.combinations(keys, count):
            labels = ["-".join(filter(None, (each[key] for key in chosen))) for each in parts]
            if len(set(labels)) == len(labels) and all(labels):
                cost = sum(costs.get(key.partition(" ")[0], STRANGE) for key in chosen)
                found.append((max(map(len, labels)) + cost, labels))
        if found:
            return min(found, key=lambda each: each[0])[1]
    return _numbered(["-".join(filter(None, each.values())) or "case" for each in parts])


def _numbered(labels: Sequence[str]) -> list[str]:
    made: list[str] = []
    for label in labels:
        numbered = (f"{label}-{number}" for number in itertools.count(2))
        made.append(next(name for name in itertools.chain([label], numbered) if name not in made))
    return made


def _case_parts(template: Template, number: int) -> dict[str, str]:
    rule = template.rules[number]
    parts: dict[str, str] = {}
    for each in template.placeholders:
        parts |= _value_parts(each, number)
    if not template.inputs:
        declared = read(rule).inputs
        parts |= {f"in {place}": _input_words(text) for place, (_, text) in enumerate(declared)}
    return parts | _line_parts(rule)


def _value_parts(placeholder: Placeholder, number: int) -> Parts:
    """The value of a placeholder in a case: of an operator, each attribute is a part."""
    name, value = placeholder.name, placeholder.column[number]
    if placeholder.kind == "in":
        words = f"no-{name.lower()}" if value == NONE else _input_words(value)
        return {name: words}
    if placeholder.kind != "op":
        return {name: attribute_words(placeholder.op, placeholder.kind, value)}
    parts = {name: kebab(value.partition("(")[0])}
    given = _attributes(value)
    every = dict.fromkeys(key for each in placeholder.column for key in _attributes(each))
    op = value.partition("(")[0]
    for key in every:
        parts[f"{name} {key}"] = attribute_words(op, key, given[key]) if key in given else ""
    return parts


@cache
def _attributes(value: str) -> Mapping[str, str]:
    """The attributes that come with an operator, the value of a placeholder."""
    tree = expression(value)
    keywords = tree.keywords if isinstance(tree, ast.Call) else []
    return {str(each.arg): ast.unparse(each.value) for each in keywords}


def _line_parts(rule: Rule) -> dict[str, str]:
    """Lines of a rule in words, the shortest ones first."""
    ranks = "-".join(map(str, rule.ranks))
    params = [each.partition(":")[0] for each in rule.params.split()]
    return {
        "exact": rule.exact or "rounded",
        "types": _slug(rule.types or "reals"),
        "rank": f"rank-{rule.ranks[0]}-up" if rule.any_rank else f"rank-{ranks}",
        "param": "-".join(("given", *map(_slug, params))) if params else "",
        "where": "-".join(("where", *map(_slug, rule.where))) if rule.where else "",
    }


# Stanzas


def stanza_names(templates: Sequence[Template], family: str) -> list[Iterator[str]]:
    """For each template of one family, the names that it may have, the best one first.

    The shortest template of some operators is named by these alone; the others by what tells them
    from all that have the same ones.
    """
    stems = [
        stem_of(
            each.lhs,
            each.rhs,
            {name: kind_of(tuple(column)) for name, column in each.operators.items()},
        )
        for each in templates
    ]
    alike: dict[str, list[int]] = {}
    for number, stem in enumerate(stems):
        alike.setdefault(stem, []).append(number)
    made: dict[int, Iterator[str]] = {}
    for stem, numbers in alike.items():
        numbers.sort(key=lambda number: _size(templates[number]))
        parts = [_stanza_parts(templates[number]) for number in numbers]
        for place, number in enumerate(numbers):
            others = [each for at, each in enumerate(parts) if at != place]
            bare = [stem] if place == 0 else []
            made[number] = _candidates(stem, bare, parts[place], others, family)
    return [made[number] for number in range(len(templates))]


def _size(template: Template) -> tuple[int, str, str]:
    text = f"{template.lhs} = {template.rhs}"
    return len(text), text, template.inputs or template.rules[0].inputs


def _candidates(
    stem: str, bare: Sequence[str], parts: Parts, others: Sequence[Parts], family: str
) -> Iterator[str]:
    yield from bare
    told = list(itertools.islice(_telling(parts, others), SOME))
    for shorter in (stem, _shortened(stem, 2), _shortened(stem, 1)):
        yield from (f"{shorter}-{label}" for label in told)
    best = f"{stem}-{told[0]}" if told else stem
    yield f"{best}-{family}"
    for number in itertools.count(2):
        yield f"{best}-{number}"


def _shortened(stem: str, count: int) -> str:
    """So many words of each side of a name."""
    sides = (side.split("-")[:count] for side in stem.split("-to-"))
    return "-to-".join("-".join(side) for side in sides)


def _telling(parts: Parts, others: Sequence[Parts]) -> Iterator[str]:
    """Combinations of parts that no other has, those of few and short words first."""
    keys = [key for key, text in parts.items() if text]
    for count in range(1, min(PARTS, len(keys)) + 1):
        found = [
            "-".join(parts[key] for key in chosen)
            for chosen in itertools.combinations(keys, count)
            if not any(all(other.get(key) == parts[key] for key in chosen) for other in others)
        ]
        yield from sorted(set(found), key=lambda label: (len(label), label))


def _stanza_parts(template: Template) -> dict[str, str]:
    """What may go into the name of a stanza: what all its rules have in common."""
    parts: dict[str, str] = {}
    placeholders = {each.name for each in template.placeholders}
    stands_for = template.operators
    for mark, side in (("", template.lhs), ("to ", template.rhs)):
        tree = expression(side)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for place, call in enumerate(calls):
            op = ast.unparse(call.func)
            op = stands_for[op][0] if op in stands_for else op
            for each in call.keywords:
                value = ast.unparse(each.value)
                if value not in placeholders:
                    key = f"{mark}{place} {each.arg}"
                    parts[key] = attribute_words(op, str(each.arg), value)
        parts[f"{mark}leaves"] = f"{_slug(mark)}-{_leaves(tree)}".strip("-")
    for match in INPUT.finditer(template.inputs):
        parts[f"in {match[1]}"] = _input_words(match[0])
    shared = [_line_parts(rule) for rule in template.rules]
    parts |= {key: text for key, text in shared[0].items() if all(s[key] == text for s in shared)}
    varying = [_slug(each.kind) for each in template.placeholders if each.op]
    if varying:
        parts["varying"] = "-".join(("any", *varying))
    parts["structure"] = _structure(template.lhs)
    parts["to structure"] = f"to-{_structure(template.rhs)}"
    return parts


def _leaves(tree: ast.AST) -> str:
    """The inputs and numbers that a side reads, from left to right."""
    match tree:
        case ast.Call(args=args):
            return "-".join(filter(None, map(_leaves, args)))
        case ast.Tuple(elts=parts):
            return "-and-".join(filter(None, map(_leaves, parts)))
        case ast.Subscript(value=value):
            return _leaves(value)
    return _slug(ast.unparse(tree))


def _structure(side: str) -> str:
    """A side without attributes, as words."""
    return "-".join(re.findall(r"[a-z0-9]+", kebab(re.sub(r", \w+=[^,()]*", "", side))))
