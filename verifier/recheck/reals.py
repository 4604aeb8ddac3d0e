"""Decides equations between real numbers without sums by cvc5."""

from __future__ import annotations

from typing import Any

from xflow.core.spec import Call, Element, Literal, Plus, Scalar, Times
from xflow.verifier.recheck.forms import Unreplayable
from xflow.verifier.recheck.solver import require_solver

try:
    import cvc5
except ImportError:  # see `solver`
    cvc5 = None

LIMIT = 4_000_000


def equal_over_reals(left: Scalar, right: Scalar) -> bool:
    """Whether both are equal for all real elements, wherever both are defined.

    Raises Unreplayable for an expression with a sum, a choice or a size.
    """
    require_solver()
    reader = _Reader()
    a, b = reader.read(left), reader.read(right)
    solver = cvc5.Solver(reader.manager)
    solver.setOption("rlimit-per", str(LIMIT))
    solver.setLogic("QF_UFNRA")
    try:
        for fact in reader.facts:
            solver.assertFormula(fact)
        solver.assertFormula(reader.manager.mkTerm(cvc5.Kind.DISTINCT, a, b))
        return bool(solver.checkSat().isUnsat())
    except RuntimeError:  # what cvc5 raises
        return False


class _Reader:
    def __init__(self) -> None:
        self.manager = cvc5.TermManager()
        self.facts: list[Any] = []
        self._real = self.manager.getRealSort()
        self._known: dict[Scalar, Any] = {}
        self._functions: dict[tuple[str, int], Any] = {}

    def read(self, scalar: Scalar) -> Any:
        if scalar not in self._known:
            self._known[scalar] = self._read(scalar)
        return self._known[scalar]

    def _read(self, scalar: Scalar) -> Any:
        match scalar:
            case Literal(value):
                return self.manager.mkReal(value.numerator, value.denominator)
            case Element():
                return self.manager.mkConst(self._real, f"e{len(self._known)}")
            case Plus(args):
                return self._make(cvc5.Kind.ADD, *map(self.read, args))
            case Times(args):
                return self._make(cvc5.Kind.MULT, *map(self.read, args))
            case Call(function, args):
                return self._call(function, [self.read(arg) for arg in args])
        raise Unreplayable(f"{type(scalar).__name__} is beyond real arithmetic")

    def _call(self, function: str, args: list[Any]) -> Any:
        kinds, make = cvc5.Kind, self._make
        nothing = self.manager.mkReal(0)
        if function in ("max", "min"):
            first, *others = args
            kind = kinds.GEQ if function == "max" else kinds.LEQ
            for other in others:
                first = make(kinds.ITE, make(kind, first, other), first, other)
            return first
        if function == "abs":
            (arg,) = args
            return make(kinds.ITE, make(kinds.GEQ, arg, nothing), arg, make(kinds.NEG, arg))
        key = function, len(args)
        if key not in self._functions:
            sort = self._real
            if args:
                sort = self.manager.mkFunctionSort([self._real] * len(args), self._real)
            self._functions[key] = self.manager.mkConst(sort, function)
        known = self._functions[key]
        value = make(kinds.APPLY_UF, known, *args) if args else known
        if function == "reciprocal":
            one = self.manager.mkReal(1)
            self.facts.append(make(kinds.EQUAL, make(kinds.MULT, value, args[0]), one))
        elif function == "sqrt":
            self.facts.append(make(kinds.GEQ, value, nothing))
            self.facts.append(make(kinds.EQUAL, make(kinds.MULT, value, value), args[0]))
        elif function == "exp":
            self.facts.append(make(kinds.GT, value, nothing))
        return value

    def _make(self, kind: Any, *args: Any) -> Any:
        return args[0] if len(args) == 1 and kind in _FOLDS else self.manager.mkTerm(kind, *args)


_FOLDS = (cvc5.Kind.ADD, cvc5.Kind.MULT) if cvc5 is not None else ()
