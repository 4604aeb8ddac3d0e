"""Derivations: whether an equation follows from rules within some steps, and by which.

Both sides are put into one e-graph at sizes at which the left side is defined and the conditions
hold, and saturated. What is found must be found again, with the same rules alone, at further sizes
and at every rank of the equation, see `draws`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xflow.core.graph import walk
from xflow.core.node import Value
from xflow.core.registry import Operator
from xflow.core.sorts import REALS_ONLY
from xflow.core.value_conditions import SIGNS, Fact, fact_of
from xflow.generator.saturation.directions import Database
from xflow.generator.saturation.draws import draws
from xflow.generator.saturation.egraph import EGraph, Step
from xflow.generator.saturation.saturate import MAX_NODES, Saturation
from xflow.rewriting.instance import Instance
from xflow.rewriting.match import NoMatch
from xflow.rewriting.rewrite import BuiltSide, build
from xflow.rewriting.rule import Rule
from xflow.verifier.conditions import sign_conditions
from xflow.verifier.proof.defined import is_partial_node
from xflow.verifier.prove import Proved, Refuted, prove

GENERAL, BROADCASTS = 3, 8
"""General draws of sizes, and of shapes that broadcast, at each rank."""


@dataclass(frozen=True)
class Derived:
    """An equation follows: within so many steps of saturation, by these rules."""

    steps: int
    rules: tuple[str, ...]
    """The names of the rules, in the order of their first use."""
    chains: tuple[tuple[Step, ...], ...]
    """For each output the way from the left to the right side."""
    inputs: Mapping[str, Value]
    """The inputs of the terms in the chains, by their names in the equation."""
    where: tuple[str, ...] = ()
    """The conditions on sizes under which the equation was derived."""

    @property
    def is_partial(self) -> bool:
        """Whether a term on the way, such as a quotient, is not defined for all inputs."""
        terms = dict.fromkeys(
            t for chain in self.chains for s in chain for t in (s.before, s.after)
        )
        return any(map(is_partial_node, walk(terms)))


@dataclass(frozen=True)
class NotDerived:
    """No derivation was found; `reason` says where the search ended."""

    reason: str


@dataclass(frozen=True)
class _Case:
    """Both sides of an equation at certain sizes."""

    left: tuple[Value, ...]
    right: tuple[Value, ...]
    inputs: Mapping[str, Value]
    facts: Sequence[tuple[Value, Fact]]
    thorough: bool = False
    """See `derive`."""

    @property
    def values(self) -> tuple[Value, ...]:
        """The values on both sides."""
        return (*self.left, *self.right)

    @property
    def pairs(self) -> list[tuple[Value, Value]]:
        """The left and the right value of each output."""
        return list(zip(self.left, self.right, strict=True))

    def search(self, rules: Database, max_nodes: int) -> Saturation:
        """An e-graph of both sides, to be grown by rules."""
        return Saturation(rules, self.values, self.facts, max_nodes, folds=self.thorough)


def derive_claim(
    rule: Rule,
    rules: Database | Sequence[Rule],
    steps: int = 3,
    seed: int = 0,
    infer: bool = True,
) -> Derived | NotDerived:
    """As `derive`, for an equation that is not known to hold.

    An equation that the verifier proves is derived as it stands. Else, with `infer`, the verifier
    is asked for conditions on sizes, under which the equation is derived; `Derived.where` names
    them. Without them it may be false at sizes that were not tried. An equation that the verifier
    refutes all the same is not derived; one with partial operators, at any rank, or between
    constants that are computed, only if proved.
    """
    database = rules if isinstance(rules, Database) else Database.of(rules)
    found = derive(rule, database, steps, seed, thorough=True)
    is_derived = isinstance(found, Derived)
    shown = prove(rule, infer=False, both_ways=False) if is_derived else None
    if isinstance(shown, Proved) or (shown is None and not infer):
        return found
    if infer:
        # Only for what was derived is a search among conditions by samples worth its time.
        under = prove(rule, both_ways=False, weaken=is_derived)
        of_sizes = not isinstance(under, Proved) or not _speaks_of_values(rule, under.where)
        shown = under if shown is None or of_sizes else _of_something(rule) or shown
    match shown:
        case Proved(where=where) if set(where) - set(rule.where):
            return derive(replace(rule, where=where), database, steps, seed, thorough=True)
        case Refuted(counterexample=counterexample):
            return NotDerived(f"it is false: {counterexample.reason}")
    if (
        isinstance(found, Derived)
        and not isinstance(shown, Proved)
        and (found.is_partial or rule.any_rank)
    ):
        return NotDerived("it is not shown that the right side is defined where the left one is")
    if isinstance(found, Derived) and not isinstance(shown, Proved):
        # Constants that are equal at the sizes that are tried may differ at others.
        return derive(rule, database.only(found.rules), steps, seed)
    return found


def _of_something(rule: Rule) -> Proved | None:
    """A proof where inputs have elements, as all that are drawn have."""
    declared = {name.lstrip("*") for name in rule.params.split()}
    extents = [text for text in sign_conditions(rule, 1) if text.split()[0] not in declared]
    found = prove(replace(rule, where=(*rule.where, *extents)), both_ways=False)
    for text in extents if isinstance(found, Proved) else ():
        fewer = tuple(each for each in extents if each != text)
        shown = prove(replace(rule, where=(*rule.where, *fewer)), both_ways=False)
        if isinstance(shown, Proved):
            found, extents = shown, list(fewer)
    return found if isinstance(found, Proved) else None


def _speaks_of_values(rule: Rule, where: Sequence[str]) -> bool:
    """Whether one of the conditions that the rule lacks is about signs of elements of an input.

    That elements are numbers is assumed: an equation of numbers is derived.
    """
    names = rule.value_names
    facts = (fact_of(text, names) for text in set(where) - set(rule.where))
    return any(fact is not None and fact.relation in SIGNS for fact in facts)


def derive(
    rule: Rule,
    rules: Database | Sequence[Rule],
    steps: int = 3,
    seed: int = 0,
    max_nodes: int = MAX_NODES,
    *,
    thorough: bool = False,
) -> Derived | NotDerived:
    """Whether `rules` lead from one side of `rule` to the other within `steps` steps.

    If `thorough`, tensors made of constants alone are equal where their elements are, and where the
    rules of one case do not lead through all others in so many steps, all rules may: a term on the
    way, which each of several rules makes, may take longer by those alone that are named.
    Each step is an equality where both its terms are defined. Where operators that are not defined
    everywhere take part (`Derived.is_partial`), that alone does not show that the right side is
    defined wherever the left side is.
    """
    database = rules if isinstance(rules, Database) else Database.of(rules)
    rng = random.Random(f"{seed} {rule.lhs} {rule.rhs}")
    made: list[Derived] = []
    for rank in sorted(sampled_ranks(rule), reverse=True):
        cases = cases_of(rule.instance(rank), rng)
        if isinstance(cases, NotDerived):
            return cases
        cases = [replace(case, thorough=thorough) for case in cases]
        found = _at_one_rank(cases, database, steps, max_nodes)
        if isinstance(found, NotDerived):
            return found
        made.append(found)
    used = dict.fromkeys(name for one in made for name in one.rules)
    most = max(one.steps for one in made)
    return replace(made[0], steps=most, rules=tuple(used), where=rule.where)


def sampled_ranks(rule: Rule) -> tuple[int, ...]:
    """The ranks of a rule, and of one that holds at any a further one."""
    return (*rule.ranks, max(rule.ranks) + 1) if rule.any_rank else rule.ranks


def _at_one_rank(
    cases: Sequence[_Case], database: Database, steps: int, max_nodes: int
) -> Derived | NotDerived:
    """A derivation by rules that derive all cases of an equation at one rank."""
    found: Derived | NotDerived = NotDerived("there is no case")
    for case in cases[:GENERAL]:
        first = _search(case, database, steps, max_nodes)
        if isinstance(first, NotDerived):
            return first
        first = _with_fewest_rules(first, case, database, max_nodes)
        again = _everywhere(cases, database.only(first.rules), steps, max_nodes)
        if again is not None:
            return replace(first, steps=max(first.steps, again))
        found = NotDerived("what derives it at some sizes does not at others")
    return _one_by_one(cases, database, steps, max_nodes) if cases[0].thorough else found


def _one_by_one(
    cases: Sequence[_Case], database: Database, steps: int, max_nodes: int
) -> Derived | NotDerived:
    """Derivations of all cases of an equation at one rank, each by whichever rules."""
    made: list[Derived] = []
    names: dict[str, None] = {}
    for case in cases:
        found = _meet([case.search(database.only(names), max_nodes)], [case], steps)
        if isinstance(found, NotDerived):
            found = _search(case, database, steps, max_nodes)
        if isinstance(found, NotDerived):
            return found
        made.append(found)
        names |= dict.fromkeys(found.rules)
    return replace(made[0], steps=max(one.steps for one in made), rules=tuple(names))


def _everywhere(
    cases: Sequence[_Case], database: Database, steps: int, max_nodes: int
) -> int | None:
    """The number of steps within which rules derive all cases; None if they do not."""
    most = 0
    for case in cases:
        found = _meet([case.search(database, max_nodes)], [case], steps)
        if isinstance(found, NotDerived):
            return None
        most = max(most, found.steps)
    return most


def _search(case: _Case, database: Database, steps: int, max_nodes: int) -> Derived | NotDerived:
    """A derivation at certain sizes, in as few steps as there are.

    The rules over the equation's own operators are tried before all rules, and what lies below
    operators that both sides have in common before the whole: these searches grow less.
    """
    cases, searches = [], []
    for part in reversed(list(_parts(case))):
        for rules in (database.within(part.values), database):
            cases.append(part)
            searches.append(part.search(rules, max_nodes))
    found = _meet(searches, cases, steps)
    if isinstance(found, Derived):  # of the whole, which takes no more steps
        search = case.search(database.only(found.rules), max_nodes)
        whole = _meet([search], [case], found.steps)
        if isinstance(whole, NotDerived) and case.thorough:
            return _meet([case.search(database, max_nodes)], [case], steps)
        return whole
    return found


def _parts(case: _Case) -> Iterator[_Case]:
    """An equation, what is left without the operators on top that its sides share, and so on."""
    while True:
        yield case
        pairs: dict[tuple[Value, Value], None] = {}
        for left, right in case.pairs:
            if left != right and not _are_alike(left, right):
                return
            sources = zip(left.node.inputs, right.node.inputs, strict=True)
            pairs.update(((one, other), None) for one, other in sources if one != other)
        if not pairs:
            return
        lefts, rights = zip(*pairs, strict=True)
        case = replace(case, left=lefts, right=rights)


def _are_alike(left: Value, right: Value) -> bool:
    """Whether two values differ in the inputs of their nodes alone."""
    a, b = left.node, right.node
    return (
        isinstance(a.op, Operator)
        and (a.op, left.index, a.attributes) == (b.op, right.index, b.attributes)
        and [source.type for source in a.inputs] == [source.type for source in b.inputs]
    )


def _meet(
    searches: Sequence[Saturation], cases: Sequence[_Case], steps: int
) -> Derived | NotDerived:
    """Grow e-graphs by turns until in one of them the sides of its case have met."""
    done = 0
    for done in range(steps + 1):
        for search, case in zip(searches, cases, strict=True):
            if done:
                search.step()
            if search.has_met(case.pairs):
                return _derived(case, search.egraph, done)
        if all(search.is_finished for search in searches):
            break
    if any(search.is_full for search in searches):
        return NotDerived("there is none before the limit on the e-graph's nodes is reached")
    if all(search.is_finished for search in searches):
        return NotDerived(f"there is none: after {done - 1} steps nothing more follows")
    return NotDerived(f"there is none within {steps} steps")


def _derived(case: _Case, egraph: EGraph, steps: int) -> Derived:
    chains = tuple(tuple(egraph.explain(left, right)) for left, right in case.pairs)
    names = dict.fromkeys(s.rule for chain in chains for s in chain if s.rule is not None)
    return Derived(steps, tuple(names), chains, case.inputs)


def _with_fewest_rules(found: Derived, case: _Case, database: Database, max_nodes: int) -> Derived:
    """The derivation without the rules that it can do without: an e-graph also knows detours."""
    for name in found.rules:
        if name in found.rules:
            fewer = database.only(set(found.rules) - {name})
            search = case.search(fewer, max_nodes)
            shorter = _meet([search], [case], found.steps)
            found = shorter if isinstance(shorter, Derived) else found
    return found


def cases_of(instance: Instance, rng: random.Random) -> list[_Case] | NotDerived:
    """Both sides at several sizes; the first ones are as general as they come.

    Elements are of the widest type for which the rule holds, so that what holds of real numbers
    alone is not used; of real numbers where an operator does not take that type.
    """
    found = _cases(instance, rng)
    if isinstance(found, NotDerived) and instance.types != REALS_ONLY:
        return _cases(replace(instance, types=REALS_ONLY), rng)
    return found


def _cases(instance: Instance, rng: random.Random) -> list[_Case] | NotDerived:
    cases: list[_Case] = []
    reason = "no sizes were found at which the left side is defined"
    for match in draws(instance, rng, BROADCASTS if instance.broadcast else GENERAL):
        left, right = build(instance.lhs, match), build(instance.rhs, match)
        if isinstance(left, NoMatch):
            continue
        differ = isinstance(right, NoMatch) or any(
            a.type != b.type for a, b in zip(left.values, right.values, strict=True)
        )
        if isinstance(right, BuiltSide) and not differ:
            facts = [
                (match.bindings[f.name], f) for f in instance.facts if f.name in match.bindings
            ]
            cases.append(_Case(left.values, right.values, match.bindings, facts))
        else:
            reason = right.reason if isinstance(right, NoMatch) else "it has another type"
            reason = f"the right side does not suit some sizes of the left one: {reason}"
            if not instance.broadcast:  # a rule without shapes is used where they agree
                return NotDerived(reason)
    return cases or NotDerived(reason)
