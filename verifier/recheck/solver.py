"""Decides questions about integers by cvc5.

Only ``unsat`` counts as an answer; ``sat``, ``unknown``, an exhausted resource limit and an error
of the solver all mean "does not follow". Limits count solver steps, so that a verdict does not
depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

from xflow.core.assignments import Assignment, Assignments
from xflow.core.constraint import Constraint, at_least, equal
from xflow.core.errors import MissingSolver
from xflow.core.size import OpaqueInteger, Quotient, Symbol, atoms, symbol
from xflow.verifier.recheck.integers import NO_RANGES, Integers, Kind, Ranges
from xflow.verifier.recheck.steps import NO_CODES, CodeRanges

try:
    import cvc5
except ImportError:  # an extra, which is not needed to optimize a model
    cvc5 = None

LIMITS = (100_000, 100_000, 200_000)
"""Steps of the solver at each `Kind`."""
SAMPLE_LIMIT = 100_000

Guards = Sequence[Constraint]


def require_solver() -> None:
    """Raises MissingSolver where cvc5 is not installed."""
    if cvc5 is None:
        raise MissingSolver("cvc5 is not installed", do="pip install '.[recheck]' in a checkout")


class Questions:
    """Questions under assumptions that hold throughout.

    Each is asked up to three times, see `Kind`. `asked` counts the calls of the solver.
    """

    def __init__(
        self,
        assumed: Iterable[Constraint],
        limits: tuple[int, int, int] = LIMITS,
        ranges: Ranges = NO_RANGES,
        codes: CodeRanges = NO_CODES,
        satisfying: Assignments | None = None,
    ):
        require_solver()
        self.assumed = tuple(assumed)
        self._assumed_set = frozenset(self.assumed)
        self.ranges = ranges
        self.codes = codes
        """Where the elements of inputs of codes are."""
        self.asked = 0
        self._manager = cvc5.TermManager()
        self._limits = dict(zip(Kind, limits, strict=True))
        self._made: dict[tuple[Kind, Guards], _Stage] = {}
        self._memo: dict[object, bool] = {}
        self._satisfying = Assignments() if satisfying is None else satisfying

    def contradictory(self, conditions: Iterable[Constraint]) -> bool:
        """Whether `conditions` cannot all hold."""
        rest = []
        for condition in conditions:
            if condition.decided is False:
                return True
            if condition.decided is None:
                rest.append(condition)
        return self._unsat(rest, [])

    def implied(self, condition: Constraint, path: Guards = ()) -> bool:
        """Whether `condition` holds wherever `path` does."""
        if condition.decided or condition in path or condition in self.assumed:
            return True
        return all(self.contradictory((*path, piece)) for piece in condition.negation())

    def vanishes(self, weighted: Sequence[tuple[Fraction, Guards]], path: Guards = ()) -> bool:
        """Whether ``sum(weight * [guards])`` is 0 wherever `path` holds."""
        whole = lcm(*(weight.denominator for weight, _ in weighted)) if weighted else 1
        return self._unsat(path, [(int(weight * whole), tuple(gs)) for weight, gs in weighted])

    def covered(self, path: Guards, alternatives: Sequence[Guards]) -> bool:
        """Whether wherever `path` holds, all of some alternative do."""
        if any(all(g.decided for g in option) for option in alternatives):
            return True
        # ``sum(1 * [alternative])`` is positive; all weights are, so it is 0 only without any.
        return self._unsat(path, [(1, tuple(option)) for option in alternatives], zero=True)

    def _stage(self, kind: Kind, assumed: tuple[Constraint, ...]) -> _Stage:
        key = kind, assumed
        if key not in self._made:
            self._made[key] = _Stage(self._manager, assumed, self._limits[kind], kind, self.ranges)
        return self._made[key]

    def _unsat(
        self,
        path: Iterable[Constraint],
        weighted: list[tuple[int, tuple[Constraint, ...]]],
        zero: bool = False,
    ) -> bool:
        conditions = list(dict.fromkeys(path))
        key = (frozenset(conditions), tuple(weighted), zero)
        if key not in self._memo:
            self._memo[key] = (
                self._refuted(conditions, weighted, zero)
                if weighted
                else any(map(self._part_refuted, self._open_parts(conditions)))
            )
        return self._memo[key]

    def _open_parts(self, conditions: Guards) -> Iterable[Guards]:
        """The conditions, and what is assumed, in parts that are not known to be satisfied."""
        return self._satisfying.unsatisfied(conditions, self.assumed)

    def _part_refuted(self, part: Guards) -> bool:
        """Whether some of the conditions, and of what is assumed, contradict each other."""
        key = frozenset(part)
        if key not in self._memo:
            own = [c for c in part if c not in self._assumed_set]
            self._memo[key] = self._refuted(own, [], False, part)
        return self._memo[key]

    def _refuted(
        self,
        conditions: Sequence[Constraint],
        weighted: list[tuple[int, tuple[Constraint, ...]]],
        zero: bool,
        part: Guards = (),
    ) -> bool:
        """Whether a weighted sum is (not) 0 nowhere; without one, whether a `part` is refuted."""
        for kind in Kind:
            assumed = self.assumed
            if part and kind is Kind.PRODUCTS:  # what is assumed of other axes takes long
                assumed = tuple(c for c in part if c in self._assumed_set)
            stage = self._stage(kind, assumed)
            self.asked += 1
            if stage.refutes(conditions, weighted, zero, part):
                return True
            if not stage.has_products:
                return False  # further kinds would ask the same
            if part and stage.found is not None and self._satisfying.learn(stage.found, part):
                return False
        return False


class _Stage:
    """One solver that holds the assumptions, with products abstracted or not."""

    def __init__(
        self, manager: Any, assumed: Guards, limit: int, kind: Kind, ranges: Ranges = NO_RANGES
    ):
        self._manager = manager
        self._integers = Integers(manager, kind, ranges)
        self._broken = False
        self.found: Assignment | None = None
        """What satisfied the last question, where products and quotients may be unknowns."""
        solver = cvc5.Solver(manager)
        solver.setOption("incremental", "true")
        solver.setOption("produce-models", "true")
        solver.setOption("rlimit-per", str(limit))
        solver.setLogic("QF_NIA" if kind is Kind.PRODUCTS else "QF_LIA")
        self._solver = solver
        formulas = [self._integers.formula(c) for c in assumed]
        for formula in (*formulas, *self._integers.facts):
            solver.assertFormula(formula)

    @property
    def has_products(self) -> bool:
        """Whether anything was translated that is no linear question."""
        return self._integers.has_products

    def refutes(
        self,
        conditions: Guards,
        weighted: Sequence[tuple[int, tuple[Constraint, ...]]],
        zero: bool,
        unknowns_of: Guards = (),
    ) -> bool:
        """Whether the conditions, and a weighted sum that is (not) 0, contradict each other.

        If not, `found` tells what the unknowns of some conditions may be.
        """
        kinds = cvc5.Kind
        try:
            known = len(self._integers.facts)
            formulas = [self._integers.formula(c) for c in conditions]
            if weighted:
                nothing = self._manager.mkInteger(0)
                pieces = [
                    self._manager.mkTerm(
                        kinds.ITE,
                        self._integers.all_hold(guards),
                        self._manager.mkInteger(weight),
                        nothing,
                    )
                    for weight, guards in weighted
                ]
                total = pieces[0] if len(pieces) == 1 else self._manager.mkTerm(kinds.ADD, *pieces)
                vanishes = self._manager.mkTerm(kinds.EQUAL, total, nothing)
                formulas.append(vanishes if zero else vanishes.notTerm())
            # Definitions are true whatever else holds; those that are new here are asserted
            # for good, so that a later question finds them.
            for fact in self._integers.facts[known:]:
                self._solver.assertFormula(fact)
        except RuntimeError:  # what cvc5 raises
            return False
        return self._answer(formulas, unknowns_of)

    def model(self, names: Iterable[str], conditions: Guards) -> dict[str, int] | None:
        """Integers for `names` that satisfy the conditions according to the solver."""
        if self._broken:
            return None
        self._broken = True
        try:
            formulas = [self._integers.formula(c) for c in conditions]
            self._solver.push()
            for formula in formulas:
                self._solver.assertFormula(formula)
            found = None
            if self._solver.checkSat().isSat():
                values = {n: self._solver.getValue(self._integers.atom(Symbol(n))) for n in names}
                found = {name: int(value.getIntegerValue()) for name, value in values.items()}
            self._solver.pop()
        except RuntimeError:
            return None
        self._broken = False
        return found

    def _answer(self, formulas: Sequence[Any], unknowns_of: Guards) -> bool:
        if self._broken:
            return False
        self._broken = True  # until the assertions made here are popped
        self.found = None
        try:
            self._solver.push()
            for formula in formulas:
                self._solver.assertFormula(formula)
            result = self._solver.checkSat()
            answer = bool(result.isUnsat())
            if result.isSat() and unknowns_of:
                self.found = self._assignment(unknowns_of)
            self._solver.pop()
        except RuntimeError:
            return False
        self._broken = False
        return answer

    def _assignment(self, conditions: Guards) -> Assignment:
        """What the solver's model says of the symbols and opaque integers in `conditions`."""
        symbols: dict[str, int] = {}
        opaque: dict[OpaqueInteger, int] = {}
        for atom in {atom for c in conditions for atom in atoms(c.difference)}:
            if not isinstance(atom, Quotient):
                value = self._solver.getValue(self._integers.atom(atom)).getIntegerValue()
                if isinstance(atom, Symbol):
                    symbols[atom.name] = int(value)
                else:
                    opaque[atom] = int(value)
        return Assignment(symbols, opaque)


def find_integers(conditions: Guards, wanted: Mapping[str, int]) -> dict[str, int] | None:
    """Small integers that satisfy `conditions`, the first of them as `wanted` where that can be.

    None where the solver finds none; the caller makes sure of what it finds.
    """
    require_solver()
    near = [c for name in wanted for c in (at_least(symbol(name), -2), at_least(9, symbol(name)))]
    stage = _Stage(cvc5.TermManager(), (*conditions, *near), SAMPLE_LIMIT, Kind.PRODUCTS)
    fixed: list[Constraint] = []
    best = stage.model(wanted, fixed)
    names = list(wanted)
    for block in (names[:2], names[2:4], names[4:6]):
        if best is None or not block:
            break
        more = [equal(symbol(name), wanted[name]) for name in block]
        found = stage.model(wanted, [*fixed, *more])
        if found is not None:
            best = found
            fixed += more
    return best
