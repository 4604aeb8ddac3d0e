"""Where in the text of a rule a mistake is: the smallest part that makes no sense by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from xflow.core.errors import RuleFileError, ShapeError, SizeError, UsageError
from xflow.core.expressions import LENGTH, expression
from xflow.rewriting.declarations import parse_inputs, parse_sorts
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import HIGHEST_RANK, make_rule

LABELS = {
    "in": "in the inputs",
    "param": "in the parameters",
    "rank": "in the ranks",
    "from": "in the left side",
    "to": "in the right side",
    "where": "in the condition",
    "reverse": "in the condition of the reverse",
    "types": "in the types",
}
_MISTAKES = (RuleFileError, ShapeError, SizeError, SyntaxError, ValueError, KeyError)


def read_rule(stanza: Mapping[str, str], where: str = "") -> Rule:
    """The rule of a stanza.

    Raises UsageError that says where in the stanza the mistake is; `where` names the stanza.
    """
    try:
        for key, text in stanza.items():
            if len(text) > LENGTH:
                what = f"{len(text):,} characters, where {LENGTH:,} are allowed"
                raise UsageError(what, _join(where, LABELS.get(key, key)))
        for place, what, do in _in_declarations(stanza):
            raise UsageError(what, _join(where, place), do)
        rule = make_rule({key: text.strip() for key, text in stanza.items()}, where)
        _check_ranks(rule)
        for direction in rule.directions():
            for _ in direction.instances():
                pass
    except RuleFileError as error:
        raise _located(stanza, where, error) from None
    except RecursionError:
        raise UsageError("the expressions are nested too deeply", where) from None
    return rule


def _check_ranks(rule: Rule) -> None:
    for instance in rule.instances():
        for number, (left, right) in enumerate(zip(instance.lhs, instance.rhs, strict=True)):
            if not instance.broadcast and len(left.shape) != len(right.shape):
                shapes = [", ".join(map(str, value.shape)) for value in (left, right)]
                raise RuleFileError(
                    f"the sides have different ranks: output {number} is [{shapes[0]}] on the "
                    f"left and [{shapes[1]}] on the right"
                )


def _located(stanza: Mapping[str, str], where: str, error: RuleFileError) -> UsageError:
    """The mistake of the smallest part that has one, else `error` as it is."""
    for place, what, do in _mistakes(stanza):
        return UsageError(what, _join(where, place), do)
    return UsageError(error.what, where, error.do)


def _join(where: str, place: str) -> str:
    return f"{where}, {place}" if where else place


def _mistakes(stanza: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Places in the expressions, what is wrong there, and what to do about it."""
    sides = {}
    for key in _SIDES:
        text = stanza.get(key, "").strip()
        if not text:
            yield LABELS[key], "there is no expression", ""
            return
        try:
            sides[key] = expression(text)
        except (SyntaxError, ValueError) as error:
            yield _syntax(LABELS[key], text, error)
    blank = Rule(
        "part", stanza.get("in", ""), "", "", stanza.get("param", ""), ranks=_ranks(stanza)
    )
    for key, tree in sides.items():
        for part in _parts(tree):
            text = ast.unparse(part)
            mistake = _mistake(replace(blank, lhs=text, rhs=text))
            if mistake:
                column = _column(stanza[key].strip(), part)
                yield (f"{LABELS[key]} at column {column} ({_short(text)})", *mistake)
    for key in ("where", "reverse"):
        for text in filter(None, map(str.strip, stanza.get(key, "").split(","))):
            if key == "reverse" and text == "always":
                continue
            try:
                expression(text)
            except (SyntaxError, ValueError) as error:
                yield _syntax(LABELS[key], text, error)
                continue
            mistake = _mistake(replace(_whole(stanza, blank), where=(text,)))
            if mistake:
                yield (f"{LABELS[key]} {_short(text)!r}", *mistake)


def _in_declarations(stanza: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Mistakes in what is declared: inputs, parameters, ranks."""
    try:
        names = [name for name, _ in parse_inputs(stanza.get("in", ""))]
        parse_sorts(stanza.get("in", ""))
    except RuleFileError as error:
        yield LABELS["in"], error.what, error.do
        return
    except (SyntaxError, ValueError) as error:
        yield LABELS["in"], f"a size is malformed: {_reason(error)}", "write name[n, m]"
        return
    for name in names:
        if names.count(name) > 1:
            yield LABELS["in"], f"{name} is declared twice", ""
    words = stanza.get("rank", "0").split()
    for word in words[:-1] if words[-1:] == ["..."] else words:
        if not word.isdecimal():
            yield LABELS["rank"], f"{_short(word)!r} is no number", "write 1 2 3"
        elif len(word) > 2 or int(word) > HIGHEST_RANK:
            yield LABELS["rank"], f"{_short(word)} is higher than {HIGHEST_RANK}", ""
    for param in stanza.get("param", "").split():
        name = param.removeprefix("*").removesuffix(":real")
        if not name.isidentifier():
            yield LABELS["param"], f"{param!r} is no name", "write s, *s or s:real"
    try:
        _ = Rule("part", stanza.get("in", ""), "", "", stanza.get("param", "")).names
    except RuleFileError as error:
        yield LABELS["in" if "param" not in stanza else "param"], error.what, error.do


def _whole(stanza: Mapping[str, str], blank: Rule) -> Rule:
    """A rule with the sides of a stanza, as far as they can be read."""
    try:
        left, right = (ast.unparse(expression(stanza[k].strip())) for k in _SIDES)
    except (SyntaxError, ValueError, KeyError):
        return blank
    return replace(blank, lhs=left, rhs=right)


_SIDES = ("from", "to")


def _mistake(rule: Rule) -> tuple[str, str] | None:
    """What is wrong with a rule, and what to do; None if nothing is."""
    try:
        for _ in rule.instances():
            pass
    except RuleFileError as error:
        return error.what, error.do
    except _MISTAKES as error:
        return _reason(error), ""
    return None


def _parts(tree: ast.expr) -> Iterator[ast.expr]:
    """The expressions in `tree` that have a value each, the innermost first."""
    match tree:
        case ast.Tuple(elts=elements):
            for element in elements:
                yield from _parts(element)
            return
        case ast.Subscript(value=ast.Call() as call):
            for argument in call.args:
                yield from _parts(argument)
        case ast.Call():
            for argument in tree.args:
                yield from _parts(argument)
        case ast.Constant():
            return
    yield tree


def _ranks(stanza: Mapping[str, str]) -> tuple[int, ...]:
    words = stanza.get("rank", "0").split()
    known = (int(word) for word in words if word.isdecimal() and len(word) <= 2)
    return tuple(rank for rank in known if rank <= HIGHEST_RANK) or (0,)


def _column(text: str, part: ast.expr) -> int:
    """Where `part` begins in `text`, from 1 on; the parser counts bytes."""
    lines = text.splitlines()
    line = lines[part.lineno - 1].encode()[: part.col_offset].decode(errors="replace")
    return sum(len(other) + 1 for other in lines[: part.lineno - 1]) + len(line) + 1


def _syntax(label: str, text: str, error: Exception) -> tuple[str, str, str]:
    column = f" at column {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
    return f"{label}{column} ({_short(text)})", f"this cannot be read: {_reason(error)}", ""


def _reason(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return str(error.msg).removesuffix(". Perhaps you forgot a comma?")
    return str(error.args[0]) if error.args else type(error).__name__


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
