"""The last resort: Z3's real arithmetic, for expressions without sums over ranges."""

from __future__ import annotations

import z3

from xflow.ops.spec import Call, Element, If, Literal, OfSize, Plus, Scalar, Times
from xflow.verifier.arithmetic import NONLINEAR_LIMIT, Arithmetic


def equal_reals(left: Scalar, right: Scalar, arithmetic: Arithmetic) -> bool:
    """Whether Z3 shows both equal for all reals, wherever both are defined.

    That the right side is defined is the caller's business. A resource limit, a failure or an
    expression with a sum over a range means "not shown".
    """
    reader = _Reader()
    try:
        a, b = reader.read(left), reader.read(right)
    except _NotScalarError:
        return False
    solver = z3.Solver(ctx=reader.context)
    solver.set("rlimit", NONLINEAR_LIMIT)
    solver.add(*reader.facts, a != b)
    try:
        shown = solver.check() == z3.unsat
    except z3.Z3Exception:
        return False
    if shown:
        arithmetic.obligations.append({"real arithmetic": solver.sexpr()})
    return bool(shown)


class _NotScalarError(Exception):
    """The expression contains a sum or a choice on indices."""


class _Reader:
    def __init__(self) -> None:
        self.context = z3.Context()
        self.facts: list[z3.BoolRef] = []
        self._elements: dict[Element, z3.ArithRef] = {}
        self._memo: dict[Scalar, z3.ArithRef] = {}

    def read(self, scalar: Scalar) -> z3.ArithRef:
        if scalar not in self._memo:
            self._memo[scalar] = self._read(scalar)
        return self._memo[scalar]

    def _read(self, scalar: Scalar) -> z3.ArithRef:
        match scalar:
            case Literal(value):
                return z3.RealVal(str(value), self.context)
            case Element():
                if scalar not in self._elements:
                    name = f"e{len(self._elements)}"
                    self._elements[scalar] = z3.Real(name, self.context)
                return self._elements[scalar]
            case Plus(args):
                return z3.Sum([self.read(arg) for arg in args])
            case Times(args):
                return z3.Product([self.read(arg) for arg in args])
            case Call(function, args):
                return self._call(function, [self.read(arg) for arg in args])
            case OfSize() | If():
                raise _NotScalarError
        raise _NotScalarError

    def _call(self, function: str, args: list[z3.ArithRef]) -> z3.ArithRef:
        first = args[0]
        if function in ("max", "min"):
            for arg in args[1:]:
                keep = first >= arg if function == "max" else first <= arg
                first = z3.If(keep, first, arg)
            return first
        if function == "abs":
            return z3.If(first >= 0, first, -first)
        real = z3.RealSort(self.context)
        value = z3.Function(f"{function}!", real, real)(first)
        if function == "reciprocal":
            self.facts.append(value * first == 1)
        elif function == "sqrt":
            self.facts += [value >= 0, value * value == first]
        elif function == "exp":
            self.facts.append(value > 0)
        return value
