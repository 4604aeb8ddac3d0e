"""Stanzas of several cases: rules that differ in few places, of which the rest is said once.

The lines of such a stanza have placeholders, names in capital letters, where its rules differ, and
each line ``case`` names one of them and gives its values, and the lines that are its own::

    rule concat-concat-to-concat
      from     Concat(Concat(x, y, axis=AXIS), z, axis=AXIS)
      to       Concat(x, y, z, axis=AXIS)
      case first-axis  AXIS = 0; in x[n, *S] y[m, *S] z[k, *S]
      case last-axis   AXIS = -1; in x[*B, n] y[*B, m] z[*B, k]

A value is a text that takes the placeholder's place, with some shorthands. The word ``default``
leaves an attribute out, and ``none`` an input, such as a bias; they stand nowhere else. An operator
may come with attributes: ``OP(x)`` is ``Transpose(x, perm=[1, 0])`` for
``OP = Transpose(perm=[1, 0])``. A placeholder in the line ``in`` is one input with its sizes, as in
``MASK = m[1, S]``, and stands for the input's name in all other lines. In notes, ``CASE`` stands
for the case's name. Lines of a case that do not fit, or contain semicolons, stand below it,
indented further.

Each case is a rule by itself, of which the name is that of the stanza, a hyphen and the case's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from xflow.core.errors import RuleFileError
from xflow.core.expressions import LENGTH, shortened
from xflow.rewriting.rule import CASE, INDENTED, KEYS, NOTES, spelled

NAME = "CASE"
"""What stands for a case's name in the notes of its stanza."""
DEFAULT = "default"
"""The value of an attribute that a case leaves out."""
NONE = "none"
"""The value of an input that a case does not have."""

MOST_CASES = 200
"""Most cases of a stanza; those of the database have up to some twenty."""

WIDTH = 110
"""Columns of a line that has a case's values and its own lines."""

SEMICOLONS = ("set", "proof", "numerics")
"""Keys of lines that contain semicolons, which stand below a case and not beside it."""

OPERATORS = ("+", "-", "*", "/", "%")
"""What an expression of sizes consists of, besides names and numbers."""

_VALUE = re.compile(r"([A-Z][A-Z0-9_]*) = (\S.*)")
_LABEL = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_CALL = re.compile(r"([A-Z]\w*)\((.*)\)", re.DOTALL)
_INPUT = re.compile(r"([A-Za-z]\w*)\s*\[[^\]]*\](?::\w+)?")

SIDES = ("from", "to")
"""Keys of the lines that contain operators, with their inputs and attributes."""

LISTS = ("in", "limits")
"""Keys of the lines that list inputs, with spaces between them."""

LEFT_OUT = {DEFAULT: "an attribute", NONE: "an input behind another"}
"""What these values leave out."""


@dataclass(frozen=True)
class Case:
    """One rule of a stanza: its label, the placeholders' values, and the lines of its own."""

    label: str
    values: Mapping[str, str]
    lines: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    """The file and line that it stands in."""


# Reading


def read_case(lines: Mapping[str, str], where: str) -> Case:
    """The case that the texts behind its keys describe, of which one is ``case``.

    Raises RuleFileError.
    """
    label, _, rest = lines[CASE].partition(" ")
    if not _LABEL.fullmatch(label):
        what = f"{shortened(label)!r} is no name of a case"
        raise RuleFileError(what, where, "use small letters, digits and -")
    values: dict[str, str] = {}
    own = {key: text for key, text in lines.items() if key != CASE}
    for item in filter(None, (each.strip() for each in rest.split(";"))):
        value = _VALUE.fullmatch(item)
        key, _, text = item.partition(" ")
        if value is not None:
            if value[1] in values:
                raise RuleFileError(f"case {label} gives two values to {value[1]}", where)
            values[value[1]] = value[2]
        elif key in SEMICOLONS:
            what = f"{key!r} stands beside case {label}"
            raise RuleFileError(what, where, "write it in a line below the case")
        elif key not in KEYS:
            what = f"{shortened(item)!r} is neither a value nor a line of a rule"
            raise RuleFileError(what, where, "write AXIS = 0, or a key and what it says")
        elif key in own:
            raise RuleFileError(f"a second line {key!r}", where)
        else:
            own[key] = text.strip()
    return Case(label, values, own, where)


def expanded(shared: Mapping[str, str], cases: Sequence[Case]) -> Iterator[dict[str, str]]:
    """The stanza of each case alone. Raises RuleFileError that names the case's line."""
    names = dict.fromkeys(name for case in cases for name in case.values)
    placed = {key: _words(text) & names.keys() for key, text in shared.items()}
    words = frozenset().union(*(found for key, found in placed.items() if key not in NOTES))
    sides = " ".join(shared.get(key, "") for key in SIDES)
    called = {name for name in names if re.search(rf"\b{name}\(", sides)}
    labels: set[str] = set()
    for case in cases:
        if case.label in labels:
            raise RuleFileError(f"a second case {case.label}", case.where)
        labels.add(case.label)
        for key in case.lines:
            if key in shared:
                what = f"case {case.label} says {key!r}, which the rule says for all its cases"
                raise RuleFileError(what, case.where)
            unfilled = frozenset() if key in NOTES else _words(case.lines[key]) & names.keys()
            if unfilled:
                what = f"the line {key!r} of case {case.label} contains {min(unfilled)}"
                raise RuleFileError(what, case.where, "placeholders stand in lines of all cases")
        for name in names:
            if name not in case.values:
                raise RuleFileError(f"case {case.label} gives no value to {name}", case.where)
            if name == NAME:
                raise RuleFileError(f"{NAME} stands for the name of a case", case.where)
            if name not in words:
                what = f"case {case.label} gives a value to {name}, which the rule does not contain"
                raise RuleFileError(what, case.where)
            others = _words(case.values[name]) & names.keys()
            if others:
                what = f"the value of {name} in case {case.label} contains {min(others)}"
                raise RuleFileError(what, case.where, "no placeholder stands in another's value")
        stanza = dict(shared)
        for key, text in shared.items():
            if key in NOTES:
                stanza[key] = re.sub(rf"\b{NAME}\b", case.label, text)
            elif placed[key] and key != "rule":
                values = {name: case.values[name] for name in sorted(placed[key])}
                _check_values(key, values, called, case)
                inputs = placed.get("in", frozenset()) if key != "in" else frozenset()
                stanza[key] = _filled(key, text, values, inputs, case)
                if len(stanza[key]) > LENGTH:
                    what = f"{key!r} of case {case.label} has {len(stanza[key]):,} characters"
                    raise RuleFileError(f"{what}, where {LENGTH:,} are allowed", case.where)
        yield {**stanza, **case.lines, "rule": f"{shared['rule']}-{case.label}"}


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


def _check_values(key: str, values: Mapping[str, str], called: Set[str], case: Case) -> None:
    """Raise RuleFileError for values that the line with this key cannot have.

    `called` are the placeholders that stand for operators.
    """
    for name, value in values.items():
        if key not in SIDES and (name in called or _CALL.fullmatch(value)):
            what = f"{name} is an operator in case {case.label}, as no name in {key!r} is"
            raise RuleFileError(what, case.where, "operators stand in the lines from and to")
        count = len(_INPUT.findall(value))
        if key == "in" and count > 1:
            what = f"the value of {name} in case {case.label} is {count} inputs"
            raise RuleFileError(what, case.where, "give each of them a placeholder of its own")


def _filled(key: str, text: str, values: Mapping[str, str], inputs: Set[str], case: Case) -> str:
    """A shared line with the values of a case; `inputs` of them stand for inputs' names."""
    plain: dict[str, str] = {}
    for name, value in values.items():
        call = _CALL.fullmatch(value)
        given = _INPUT.fullmatch(value)
        if value in (DEFAULT, NONE):
            text = _left_out(key, text, name, value, case)
        elif call is not None and re.search(rf"\b{name}\(", text):
            text = _called(text, name, call[1], call[2])
        else:
            plain[name] = given[1] if given is not None and name in inputs else value
    if not plain:
        return text
    return re.sub(rf"\b({'|'.join(plain)})\b", lambda match: _value(plain[match[1]], match), text)


def _left_out(key: str, text: str, name: str, value: str, case: Case) -> str:
    """A line without the attribute or the input that a placeholder stands for.

    Raises RuleFileError where it stands for something else.
    """
    if key in SIDES:
        pattern = name if value == NONE else rf"\w+\s*=\s*{name}"
        text = re.sub(rf",\s*{pattern}(?=\s*[,)])", "", text)
        if value == DEFAULT:
            text = re.sub(rf"\(\s*{pattern}(,\s*|(?=\)))", "(", text)
    elif key in LISTS and value == NONE:
        text = " ".join(word for word in text.split() if word != name)
    if re.search(rf"\b{name}\b", text):
        what = f"{value!r} leaves out {LEFT_OUT[value]}, which {name} in the line {key!r}"
        do = f"give {name} a value, or the case a line {key!r} of its own"
        raise RuleFileError(f"{what} of case {case.label} is not", case.where, do)
    return text


def _value(value: str, place: re.Match[str]) -> str:
    """A value as it stands at a placeholder's place, in parentheses if it is an operand there."""
    before, behind = place.string[: place.start()].rstrip(), place.string[place.end() :].lstrip()
    operand = before.endswith(OPERATORS) or behind.startswith(OPERATORS)
    return f"({value})" if operand and re.search(r"[-+*/%]", value) else value


def _called(text: str, name: str, operator: str, attributes: str) -> str:
    """A text in which calls of a placeholder are those of an operator with these attributes."""
    for match in reversed(list(re.finditer(rf"\b{name}\(", text))):
        end = _closing(text, match.end())
        inner = ", ".join(filter(None, (text[match.end() : end], attributes)))
        text = f"{text[: match.start()]}{operator}({inner}{text[end:]}"
    return text


def _closing(text: str, start: int) -> int:
    """The place of the parenthesis that closes the one before `start`; the end if there is none."""
    depth, quoted = 1, ""
    for place in range(start, len(text)):
        char = text[place]
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "'\"":
            quoted = char
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                return place
    return len(text)


# Writing


def written(name: str, shared: Mapping[str, str], cases: Sequence[Case]) -> str:
    """The stanza of these cases as text; `shared` are its lines, with placeholders."""
    lines = [f"rule {name}"]
    for key, text in shared.items():
        lines += spelled(key, text)
    beside = [_beside(case) for case in cases]
    label = max(len(case.label) for case in cases)
    columns = _columns(beside)
    for case, (items, own) in zip(cases, beside, strict=True):
        if items:
            padded = [item.ljust(width) for item, width in zip(items, columns, strict=False)]
            text = " ".join((case.label.ljust(label), *padded)).rstrip()
        else:
            text = case.label
        lines += _case_lines(text, items, case.label)
        for key, line in own.items():
            lines += spelled(key, line, 2)
    return "\n".join(lines) + "\n"


def _beside(case: Case) -> tuple[list[str], dict[str, str]]:
    """What stands beside a case, with semicolons, and the lines that stand below it."""
    items = [f"{name} = {value}" for name, value in case.values.items()]
    short = [f"{key} {text}" for key, text in case.lines.items() if key not in SEMICOLONS]
    own = {key: text for key, text in case.lines.items() if key in SEMICOLONS}
    if INDENTED + len("; ".join((case.label, *items, *short))) > WIDTH or any(
        ";" in item for item in short
    ):
        short, own = [], dict(case.lines)
    every = [*items, *short]
    return [*(f"{item};" for item in every[:-1]), *every[-1:]], own


def _columns(rows: Iterable[tuple[Sequence[str], object]]) -> list[int]:
    """The widths of the columns of a table; none where it would be wider than a page."""
    widths: list[int] = []
    for items, _ in rows:
        widths += [0] * (len(items) - len(widths))
        widths = [
            max(width, len(items[place])) if place < len(items) else width
            for place, width in enumerate(widths)
        ]
    return widths


def _case_lines(text: str, items: Sequence[str], label: str) -> list[str]:
    """The line of a case, wrapped where it is too long, behind semicolons."""
    if INDENTED + len(text) <= WIDTH:
        return spelled(CASE, text, wrap=False)
    text = " ".join((label, *items))
    return spelled(CASE, text, wrap=INDENTED + len(text) > WIDTH)
