"""Mutants: rules that are one step away from a true one, most of them false.

The prover tries each without its own cross-check by evaluation, and each mutant that it proves is
evaluated at random sizes by the operators' `numpy` implementations, which are independent of the
specifications that a proof uses: on numbers, and with NaN and infinities planted where its
conditions do not forbid them. A mutant that is proved and false is a bug in the prover.

The lines of a rule on elements that are NaN or infinite are mutated, too: a condition on them is
left out or weakened, and more is claimed of bits and of -inf. Such a mutant is judged as it stands,
and is proved only if the prover shows all that it claims.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from itertools import zip_longest
from typing import Any

import pytest
from places import CORPUS, TESTS

from xflow.core.errors import XflowError
from xflow.core.registry import Operator
from xflow.core.sorts import REAL
from xflow.ops import operators
from xflow.rewriting.declarations import parse_inputs, parse_sorts
from xflow.rewriting.rule import BITS, NUMBERS, Rule
from xflow.rewriting.store import load_rules
from xflow.rewriting.text import parse_rules
from xflow.verifier import prove as prover
from xflow.verifier.prove import Proved, Unknown
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.planted import search_planted
from xflow.verifier.refutation.refute import CASES, Survived, search_counterexample

CORPORA = tuple(
    path
    for path in sorted(CORPUS.glob("*.rules"))
    if not {"bad", "false"} & set(re.split("[-_]", path.stem))
)
"""The hand-picked true equations."""

CONFIRMATIONS = 50
"""Random size assignments at which a mutant that is proved is evaluated."""


OF_A_SEARCH = 12
"""Least number of assignments to search for: a search for few gives up early."""

SEARCHES = 40
"""Searches for assignments at which a mutant can be evaluated; most find all in the first."""

OF_EACH = 3
"""Mutants of one rule in a sample."""


@dataclass(frozen=True)
class Mutant:
    """A rule and the step that leads to it."""

    rule: Rule
    step: str
    as_it_stands: bool = False
    """Whether a line on NaN and infinities or on bits is mutated: then the prover may find no
    conditions for it."""

    def __str__(self) -> str:
        return f"{self.step}:\n{self.rule}"


class Outcome(Enum):
    """The outcome of judging a mutant."""

    ILL_TYPED = "ill-typed"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    CUT_OFF = "cut off"
    """It took longer than the limit, or its process died."""
    CONFIRMED = "proved and confirmed"
    UNCONFIRMED = "proved and not confirmed"
    """Evaluation finds no difference, but too few of the sizes drawn can be compared."""
    FALSE = "proved and false"


HOLES = (Outcome.UNCONFIRMED, Outcome.FALSE)
"""The outcomes that are failures."""


# The steps


def mutants(rule: Rule) -> Iterator[Mutant]:
    """All rules that are one step away from `rule`, each once, at its smallest rank above 0."""
    rank = min(filter(None, rule.ranks), default=0)
    start = replace(rule, ranks=(rank,), reverse=None, notes={})
    seen = {str(start)}
    for mutant in _mutants(start):
        if str(mutant.rule) not in seen:
            seen.add(str(mutant.rule))
            yield mutant


def _mutants(rule: Rule) -> Iterator[Mutant]:
    leaves = [name for name, _ in parse_inputs(rule.inputs)]
    names = rule.names
    known = [leaves, sorted(names.scalars), sorted(names.vectors), sorted(names.reals)]
    for step, text in _changed(rule.lhs, known):
        yield Mutant(replace(rule, lhs=text), f"left: {step}")
    for step, text in _changed(rule.rhs, known):
        yield Mutant(replace(rule, rhs=text), f"right: {step}")
    for step, text in _changed_dimensions(rule.inputs, known):
        yield Mutant(replace(rule, inputs=text), step)
    for i, condition in enumerate(rule.where):
        others = (rule.where[:i], rule.where[i + 1 :])
        if not is_about_elements(condition):
            yield Mutant(replace(rule, where=(*others[0], *others[1])), f"without {condition}")
        for step, text in _changed(condition, known):
            yield Mutant(replace(rule, where=(*others[0], text, *others[1])), f"where: {step}")
    yield from _of_what_is_no_number(rule)


def is_about_elements(condition: str) -> bool:
    """Whether a condition asks that elements of an input are no infinities."""
    return condition.startswith("finite(") or condition.endswith(" < inf")


def _of_what_is_no_number(rule: Rule) -> Iterator[Mutant]:
    """Rules that require less of NaN and infinities, or claim more of them or of bits."""
    for condition in rule.where:
        others = tuple(text for text in rule.where if text != condition)
        finite = re.fullmatch(r"finite\((\w+)\)", condition)
        if is_about_elements(condition):
            step = f"asks not for {condition}"
            yield Mutant(replace(rule, where=others), step, as_it_stands=True)
        if finite:
            below = f"{finite[1]} < inf"
            step = f"asks for {below} instead"
            yield Mutant(replace(rule, where=(*others, below)), step, as_it_stands=True)
    for exact in {None: (NUMBERS, BITS), NUMBERS: (BITS,)}.get(rule.exact, ()):
        yield Mutant(replace(rule, exact=exact), f"exact: {exact}", as_it_stands=True)
    if rule.exact == BITS:
        return  # such a rule has no line ``limits``
    for name, sort in parse_sorts(rule.inputs).items():
        if sort == REAL and name not in rule.limits:
            more = replace(rule, limits=(*rule.limits, name))
            yield Mutant(more, f"limits: {name}", as_it_stands=True)


def _changed(text: str, known: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Expressions one step away from `text`, several separated by commas among them."""
    tree = ast.parse(f"[{text}]", mode="eval")
    for node, put in list(_places(tree)):
        for step, instead in _steps(node, known):
            put(instead)
            changed = ast.unparse(tree)[1:-1]
            put(node)
            yield step, changed


def _places(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """The nodes below `tree`, each with a function that replaces it.

    A copy of the whole for each step takes more time than all else that is done to make mutants.
    """
    for parent in ast.walk(tree):
        for name, child in ast.iter_fields(parent):
            if isinstance(child, ast.AST):
                yield child, partial(setattr, parent, name)
            elif isinstance(child, list):
                for i, item in enumerate(child):
                    yield item, partial(child.__setitem__, i)


def _changed_dimensions(text: str, known: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Declarations of inputs in which one dimension is another."""
    declared = parse_inputs(text)
    for number, (name, dims) in enumerate(declared):
        for step, inside in _changed(", ".join(map(ast.unparse, dims or ())), known):
            parts = [
                f"{n}[...]" if d is None else f"{n}[{', '.join(map(ast.unparse, d))}]"
                for n, d in declared
            ]
            parts[number] = f"{name}[{inside}]"
            yield f"{name}: {step}", " ".join(parts)


Step = tuple[str, ast.AST]
"""The step in words, and the node that replaces another."""


def _steps(node: ast.AST, known: Sequence[Sequence[str]]) -> Iterator[Step]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            given = frozenset(keyword.arg or "" for keyword in keywords)
            for other in _of_the_same_arity(name, len(args), given):
                yield f"{name} is {other}", ast.Call(ast.Name(other), args, keywords)
            for i in range(1, len(args)):
                exchanged = ast.Call(node.func, _exchanged(args, i), keywords)
                yield f"{name} with operands exchanged", exchanged
            for i in range(len(args) if len(args) > 1 else 0):
                fewer = ast.Call(node.func, [*args[:i], *args[i + 1 :]], keywords)
                yield f"{name} without an operand", fewer
            for leaf in known[0] if _takes(name, len(args) + 1) else ():
                more = ast.Call(node.func, [*args, ast.Name(leaf)], keywords)
                yield f"{name} with another operand", more
            for arg in args:
                yield f"{name} left out", arg
            for i, keyword in enumerate(keywords):
                rest = [*keywords[:i], *keywords[i + 1 :]]
                yield f"{name} without {keyword.arg}", ast.Call(node.func, args, rest)
        case ast.Constant(value=int(value)):
            for number in (value - 1, value + 1):
                yield f"{value} is {number}", ast.Constant(number)
        case ast.Name(id=name):
            for kind in known:
                for other in kind if name in kind else ():
                    if other != name:
                        yield f"{name} is {other}", ast.Name(other)
            if any(name in kind for kind in known[1:3]):
                for op, word in ((ast.Add(), "+"), (ast.Sub(), "-")):
                    yield f"{name} {word} 1", ast.BinOp(node, op, ast.Constant(1))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "a sign left out", operand
        case ast.BinOp(left=left, op=op, right=right):
            for kind_of in (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv):
                if not isinstance(op, kind_of):
                    word = f"{type(op).__name__} is {kind_of.__name__}"
                    yield word, ast.BinOp(left, kind_of(), right)
        case ast.Compare(left=left, ops=[op], comparators=right):
            for relation in (ast.GtE, ast.Gt, ast.Eq, ast.LtE):
                if not isinstance(op, relation):
                    word = f"{type(op).__name__} is {relation.__name__}"
                    yield word, ast.Compare(left, [relation()], right)
        case ast.List(elts=elts):
            for i in range(1, len(elts)):
                yield "elements exchanged", ast.List(_exchanged(elts, i))


def _exchanged(items: Sequence[Any], i: int) -> list[Any]:
    return [*items[: i - 1], items[i], items[i - 1], *items[i + 1 :]]


@cache
def _takes(name: str, count: int) -> bool:
    """Whether there is an operator of that name that takes so many operands."""
    return any(_fits(op, count) for op in operators() if op.name == name)


def _fits(op: Operator, count: int) -> bool:
    """Whether an operator takes so many operands."""
    least, most = op.arity
    return least <= count and (most is None or count <= most)


@cache
def _of_the_same_arity(name: str, count: int, given: frozenset[str]) -> tuple[str, ...]:
    """The other operators that take `count` operands and the attributes that are `given`.

    Those that need further attributes are left out.
    """
    found = []
    for other in operators():
        needed = {key for key, spec in other.attributes.items() if spec.default is None}
        if other.name != name and _fits(other, count) and needed <= given <= set(other.attributes):
            found.append(other.name)
    return tuple(found)


# The judgement


@dataclass(frozen=True)
class Judgement:
    """The outcome for a mutant, and the reason."""

    mutant: Mutant
    outcome: Outcome
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.outcome.value}: {self.mutant}{self.detail}"


def is_typed(rule: Rule) -> bool:
    """Whether a rule can be read and typed."""
    try:
        for _ in rule.instances():
            pass
    except (XflowError, SyntaxError, ValueError, KeyError, ZeroDivisionError):
        return False
    return True


def judge(mutant: Mutant, tell_proved: Callable[[], None] = lambda: None) -> Judgement:
    """Evaluate a mutant, and let the prover try it in any case.

    `tell_proved` is called when the prover has proved it, before that is confirmed.

    Where evaluation finds it false, the prover must not prove it as it stands; else the prover
    may find conditions, and under these it is evaluated again. So it may where it is false of NaN
    and infinities alone.
    """
    rule = mutant.rule
    if not is_typed(rule):
        return Judgement(mutant, Outcome.ILL_TYPED)
    found = search_counterexample(rule)
    planted: Counterexample | Survived | None = None
    if isinstance(found, Survived):
        # Of a mutant of another kind, what is claimed beyond equality is for the prover to say.
        claimed = rule if mutant.as_it_stands else replace(rule, exact=None, limits=())
        planted = search_planted(claimed)
    refuted = next((f for f in (found, planted) if isinstance(f, Counterexample)), None)
    if refuted is not None:
        verdict = _proof(rule, infer=False, thorough=True)
        if verdict is not None and (not mutant.as_it_stands or shows_claims(verdict, rule)):
            return Judgement(mutant, Outcome.FALSE, str(refuted))
        if refuted is found or mutant.as_it_stands:
            return Judgement(mutant, Outcome.REFUTED, str(refuted))
    verdict = _proof(rule, infer=not mutant.as_it_stands)
    if verdict is None or (mutant.as_it_stands and not shows_claims(verdict, rule)):
        return Judgement(mutant, Outcome.UNKNOWN)
    proved = rule
    if not mutant.as_it_stands:
        proved = replace(rule, where=verdict.where, exact=verdict.exact, limits=verdict.limits)
    # The prover's cross-check, left out above, rejects rules with hardly any cases.
    least = prover.MIN_CASES * len(proved.ranks)
    if proved.where != rule.where:
        found = search_counterexample(proved, cases=CASES)
    if isinstance(found, Survived):
        if found.cases < least:
            return Judgement(mutant, Outcome.UNKNOWN, f"only {found.cases} cases satisfy {proved}")
        tell_proved()
        found = _evaluated(proved, found.cases)
    if isinstance(found, Survived):
        planted = search_planted(proved, cases=CONFIRMATIONS, seed=1)
        found = planted if isinstance(planted, Counterexample) else found
    if isinstance(found, Counterexample):
        return Judgement(replace(mutant, rule=proved), Outcome.FALSE, str(found))
    if found.cases >= CONFIRMATIONS:
        return Judgement(replace(mutant, rule=proved), Outcome.CONFIRMED)
    return Judgement(replace(mutant, rule=proved), Outcome.UNCONFIRMED, f"{found.cases} cases")


def shows_claims(verdict: Proved, rule: Rule) -> bool:
    """Whether a proof shows the claims of `rule` on bits and on -inf, as `verify_rule` checks."""
    if rule.exact is not None and verdict.exact not in (BITS, rule.exact):
        return False
    return verdict.exact == BITS or set(rule.limits) <= set(verdict.limits)


def _evaluated(rule: Rule, cases: int) -> Counterexample | Survived:
    """Evaluate a rule at 50 random assignments, `cases` of which are done.

    Fewer where many searches do not find that many.
    """
    for seed in range(1, SEARCHES + 1):
        wanted = max(CONFIRMATIONS - cases, OF_A_SEARCH)
        found = search_counterexample(rule, cases=wanted, seed=seed)
        if isinstance(found, Counterexample):
            return found
        cases += found.cases
        if cases >= CONFIRMATIONS:
            break
    return Survived(cases)


def _proof(rule: Rule, infer: bool, thorough: bool = False) -> Proved | None:
    """The proof of `rule` without cross-check by evaluation; None where there is none.

    With `thorough` its quick search is left out, which the thorough one begins with.
    """
    with pytest.MonkeyPatch.context() as patch:
        for search in ("search_counterexample", "search_planted"):
            patch.setattr(prover, search, lambda *_, **__: Survived(10**6))
        if thorough:
            patch.setattr(prover, "_found", _found_thoroughly)
        verdict = prover.prove(rule, infer=infer, both_ways=False)
    return verdict if isinstance(verdict, Proved) else None


_found = prover._found


def _found_thoroughly(rule: Rule, infer: bool, weaken: bool, thorough: bool) -> Proved | Unknown:
    return _found(rule, infer, weaken, thorough) if thorough else Unknown("not asked")


# Which mutants


def true_rules(*names: str) -> list[Rule]:
    """The rules of the database and of the corpora with these names, or of all corpora."""
    return load_rules(TESTS.parent / "rules") + hand_picked(*names)


def hand_picked(*names: str) -> list[Rule]:
    """The rules of the corpora with these names; of all of them if none are given."""
    return [rule for path in CORPORA for rule in parse_rules(path.read_text("utf-8"), path.name)]


def sample(rules: Sequence[Rule], size: int, seed: int) -> list[Mutant]:
    """`size` mutants of rules drawn at random, a few of each."""
    rng = random.Random(seed)
    drawn: list[Mutant] = []
    while len(drawn) < size:
        found = list(mutants(rng.choice(rules)))
        drawn += rng.sample(found, min(OF_EACH, len(found), size - len(drawn)))
    return drawn


def in_turn(rule: Rule) -> list[Mutant]:
    """The mutants of `rule` with the kinds of steps in turn, both in a random order."""
    kinds: dict[tuple[str, ...], list[Mutant]] = {}
    found = list(mutants(rule))
    rng = random.Random(str(replace(rule, notes={})))
    for mutant in rng.sample(found, len(found)):
        kinds.setdefault(_kind(mutant.step), []).append(mutant)
    rows = zip_longest(*(kinds[kind] for kind in rng.sample(sorted(kinds), len(kinds))))
    return [mutant for row in rows for mutant in row if mutant is not None]


def _kind(step: str) -> tuple[str, ...]:
    """The words of a step, with one word for all operators, one for all numbers and so on."""
    return tuple(
        word
        if word in WORDS
        else "operator"
        if word[:1].isupper()
        else "number"
        if word.lstrip("-").isdigit()
        else "name"
        for word in step.split()
    )


WORDS = frozenset(
    (
        *("left:", "right:", "where:", "exact:", "limits:", "bits", "numbers", "instead"),
        *("without", "is", "with", "exchanged", "out", "not", "for", "asks", "another", "+", "-"),
    )
)
