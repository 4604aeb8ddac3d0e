"""Rules as text: stanzas of lines, each a key and what it says; see `xflow.rewriting.rule`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from xflow.core.errors import RuleFileError, ShapeError, SizeError
from xflow.core.expressions import LENGTH, expression, shortened
from xflow.core.sorts import HOLDS_FOR
from xflow.rewriting.abbreviations import LET, spelled_out
from xflow.rewriting.cases import MOST_CASES, expanded, read_case
from xflow.rewriting.declarations import parse_inputs
from xflow.rewriting.rule import CASE, EXACT, KEYS, LEARNED, NOTES, Rule, begins_a_line

HIGHEST_RANK = 12
"""The largest rank that a rule may name."""

MOST_OPERATORS = 200
"""Most operators on a side of a rule; those of the database have up to 18."""

MOST_SPELLED_OUT = 1_000
"""Most operators on a side when its abbreviations are spelled out."""

MOST_NAMES = 64
"""Most inputs, parameters or conditions of a rule; those of the database have up to 12."""

LONGEST_NAME = 200
"""Most characters of a rule's name; the generator's have up to a hundred."""

_Lines: TypeAlias = dict[str, str]


def parse_rules(text: str, source: str = "rules", *, checked: bool = True) -> list[Rule]:
    """Read stanzas; blank lines and lines that start with ``#`` are passed over.

    Raises RuleFileError that names `source` and the line. Unless `checked`, sides are taken as they
    are spelled, and rules that make no sense at one of their ranks raise it only when they are used
    there.
    """
    stanzas = parse_stanzas(text, source)
    return [make_rule(stanza, f"{source}:{line}", checked=checked) for line, stanza in stanzas]


def parse_stanzas(text: str, source: str = "rules") -> Iterator[tuple[int, dict[str, str]]]:
    """The stanzas of a text, each with its line and the texts behind its keys.

    Of a stanza with cases, each is one by itself, see `xflow.rewriting.cases`. Raises RuleFileError
    that names `source` and the line, also for two rules of one name.
    """
    lines: dict[str, int] = {}
    for line, stanza in _expanded(text, source):
        name = stanza["rule"]
        if name in lines:
            what = f"there is another rule {shortened(name)} in line {lines[name]}"
            raise RuleFileError(what, f"{source}:{line}")
        lines[name] = line
        yield line, stanza


def _expanded(text: str, source: str) -> Iterator[tuple[int, _Lines]]:
    """The stanzas of a text, each case as one by itself."""
    for start, written, cases in _stanzas(text, source):
        shared = _spelled_out(written, cases, f"{source}:{start}")
        # That there was such a line tells that sides are longer than anybody wrote them.
        mark = {key: text for key, text in written.items() if key == LET}
        if not cases:
            yield start, shared | mark
        elif len(cases) > MOST_CASES:
            what = f"{len(cases)} cases, where {MOST_CASES} are allowed"
            raise RuleFileError(what, f"{source}:{start}")
        else:
            found = [read_case(lines, f"{source}:{line}") for line, lines in cases]
            for (line, _), stanza in zip(cases, expanded(shared, found), strict=True):
                yield line, stanza | mark


def _spelled_out(shared: _Lines, cases: Sequence[tuple[int, _Lines]], where: str) -> _Lines:
    """The common text of a stanza, its sides without abbreviations. Raises RuleFileError."""
    if LET not in shared:
        return shared
    for key in (LET, "from", "to"):
        count = shared.get(key, "").count("(")
        if count > MOST_OPERATORS:
            what = f"{count} operators in {key!r}, where {MOST_OPERATORS} are allowed"
            raise RuleFileError(what, where)
    declared = " ".join(lines.get("in", "") for lines in (shared, *(own for _, own in cases)))
    try:
        return spelled_out(shared, re.findall(r"\w+", declared))
    except RuleFileError as error:
        raise RuleFileError(error.what, where, error.do) from None
    except (SizeError, SyntaxError) as error:
        raise RuleFileError(shortened(str(error), 400), where) from None


def _stanzas(text: str, source: str) -> Iterator[tuple[int, _Lines, Sequence[tuple[int, _Lines]]]]:
    """The stanzas of a text as they are written: the line of each, its lines and its cases."""
    stanza: _Lines = {}
    target = stanza
    cases: list[tuple[int, _Lines]] = []
    start = indented = case_depth = 0
    last = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{source}:{number}"
        key, _, rest = line.strip().partition(" ")
        depth = len(line) - len(line.lstrip())
        goes_on = depth > indented and last in (CASE, *KEYS) and not begins_a_line(line)
        if goes_on:
            key, rest = last, f"{target.pop(last)} {line.strip()}"
        else:
            indented, last = depth, key
        if key == "rule":
            if stanza:
                yield start, stanza, cases
            start, stanza, cases = number, {"rule": rest.strip()}, []
            target = stanza
            continue
        if not stanza or key not in (CASE, *KEYS) or not line[0].isspace():
            raise RuleFileError(
                f"{shortened(key)!r} is no line of a rule",
                where,
                f"expected one of: rule, {', '.join(KEYS)}, {CASE}",
            )
        if len(rest) > LENGTH:
            what = f"a line of {len(rest):,} characters, where {LENGTH:,} are allowed"
            raise RuleFileError(what, where)
        if not goes_on and key == CASE:
            target, case_depth = {}, depth
            cases.append((number, target))
        elif not goes_on and cases and depth <= case_depth:
            do = "write it before them, or indented further"
            raise RuleFileError(f"a line {key!r} behind cases", where, do)
        if key in target:
            raise RuleFileError(f"a second line {key!r}", where)
        target[key] = rest.strip()
    if stanza:
        yield start, stanza, cases


def make_rule(stanza: Mapping[str, str], where: str, *, checked: bool = True) -> Rule:
    """The rule of a stanza that was found at `where`. Raises RuleFileError; see `parse_rules`."""
    name = stanza["rule"]
    if len(name) > LONGEST_NAME or not re.fullmatch(r"[a-z0-9]+([-.][a-z0-9]+)*", name):
        what = f"{shortened(name)!r} is no rule name"
        raise RuleFileError(what, where, f"use small letters, digits and -, {LONGEST_NAME} at most")
    for key in ("in", "from", "to"):
        if key not in stanza:
            raise RuleFileError(f"rule {name} has no line {key!r}", where)
    try:
        _check_extent(stanza)
        words = stanza.get("rank", "0").split()
        ranks = tuple(map(int, words[:-1] if words[-1:] == ["..."] else words))
        reverse = stanza.get("reverse")
        if not ranks or min(ranks) < 0 or len(set(ranks)) < len(ranks):
            raise RuleFileError("the ranks are no list of different numbers from 0 on")
        if max(ranks) > HIGHEST_RANK:
            raise RuleFileError(f"rank {max(ranks)} is higher than {HIGHEST_RANK}")
        types = stanza.get("types")
        if types is not None and types not in HOLDS_FOR:
            raise RuleFileError(f"{types!r} are no types", do=f"use one of: {'; '.join(HOLDS_FOR)}")
        exact = stanza.get("exact")
        if exact is not None and exact not in EXACT:
            raise RuleFileError(f"{exact!r} is no exactness", do=f"use one of: {'; '.join(EXACT)}")
        rule = Rule(
            name,
            " ".join(stanza["in"].split()),
            _canonical(stanza["from"]) if checked else stanza["from"],
            _canonical(stanza["to"]) if checked else stanza["to"],
            " ".join(stanza.get("param", "").split()),
            ranks,
            _conditions(stanza.get("where", "")),
            None if reverse is None else () if reverse == "always" else _conditions(reverse),
            {key: " ".join(stanza[key].split()) for key in NOTES if key in stanza},
            types,
            words[-1:] == ["..."],
            exact,
            tuple(stanza.get("limits", "").split()),
        )
        strangers = sorted(set(rule.limits) - {name for name, _ in parse_inputs(rule.inputs)})
        if strangers:
            raise RuleFileError(f"{strangers[0]!r} among the limits is no input")
        if not re.fullmatch(r"base|search(; follows from .+)?", rule.notes.get("set", "base")):
            raise RuleFileError(
                f"{rule.notes['set']!r} is no set of rules",
                do="write 'base', 'search', or 'search; follows from' and the names of rules",
            )
        if rule.origin not in ("", LEARNED):
            raise RuleFileError(f"{rule.origin!r} is no origin of rules", do=f"write {LEARNED!r}")
        _ = rule.numerics  # a malformed line is an error at once
        for _ in rule.usable_instances() if checked else ():
            pass
    except RuleFileError as error:
        raise RuleFileError(error.what, f"{where}, rule {name}", error.do) from None
    except (ShapeError, SizeError, SyntaxError, ValueError, LookupError) as error:
        raise RuleFileError(shortened(str(error), 400), f"{where}, rule {name}") from None
    except ZeroDivisionError:
        raise RuleFileError("it divides by zero", f"{where}, rule {name}") from None
    except RecursionError:
        raise RuleFileError("it is nested too deeply", f"{where}, rule {name}") from None
    return rule


def _check_extent(stanza: Mapping[str, str]) -> None:
    """Raise RuleFileError for more than anybody writes, which would take too long to look at."""
    counts = {
        "inputs": (stanza["in"].count("["), MOST_NAMES),
        "parameters": (len(stanza.get("param", "").split()), MOST_NAMES),
        **{
            f"conditions in {key!r}": (stanza.get(key, "").count(",") + 1, MOST_NAMES)
            for key in ("where", "reverse")
        },
        **{
            f"operators in {key!r}": (
                stanza[key].count("("),
                MOST_SPELLED_OUT if LET in stanza else MOST_OPERATORS,
            )
            for key in ("from", "to")
        },
    }
    for what, (count, most) in counts.items():
        if count > most:
            raise RuleFileError(f"{count} {what}, where {most} are allowed")


def _canonical(text: str) -> str:
    tree = expression(text)
    if isinstance(tree, ast.Tuple):
        return ", ".join(map(ast.unparse, tree.elts))
    return ast.unparse(tree)


def _conditions(text: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(ast.unparse(expression(part)) for part in parts)
