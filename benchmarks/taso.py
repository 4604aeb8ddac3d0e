"""TASO's shipped substitutions as rules of xflow, with every size a symbol.

The left side is typed alone, by first-order unification: a variable has one shape wherever it
occurs, the extent of a concatenation is a sum of extents, a kernel has odd extents ``2*r + 1``, and
the channels of a convolution's input are a number of groups times those of its kernel. Further
requirements of the right side are not put in: the verifier has to find them.

As a program it prints the verifier's verdict on every rule, and the time that it takes.
"""

from __future__ import annotations

import ast
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from typing import Any, TypeAlias

from xflow.core.constraint import parse_constraint
from xflow.core.size import Size, coefficient_of, divide, free_symbols, substitute, symbol
from xflow.core.value_conditions import is_need
from xflow.rewriting.instance import leaf_name
from xflow.rewriting.rule import Rule
from xflow.rewriting.unify import solve
from xflow.verifier.prove import Proved, Refuted, Verdict, prove

FILE = Path(__file__).parents[1] / "tests" / "reference" / "taso-shipped.jsonl"
ELEMENTWISE = {"ew_add": "Add", "ew_mul": "Mul", "relu": "Relu"}
Shape: TypeAlias = tuple[Size, ...]


# Expressions


@dataclass(frozen=True)
class Variable:
    """An input."""

    name: str


@dataclass(frozen=True)
class Call:
    """An operator with its options and arguments; `part` is which output, of several."""

    operator: str
    options: Mapping[str, str]
    arguments: tuple[Expression, ...]
    part: int = 0

    @property
    def axis(self) -> int:
        """The axis of a concat or split."""
        return int(self.options["axis"])


Expression: TypeAlias = Variable | Call


def parse(text: str) -> Expression:
    """Read an expression such as ``concat[axis=0](?i1, relu[](?i2))``."""
    python = re.sub(r"(\w+)\[([^\]]*)\]\(", r"\1(\2)(", text.replace("?", ""))
    return _expression(ast.parse(re.sub(r"\)\.(\d)", r")[\1]", python), mode="eval").body)


def _expression(tree: ast.expr) -> Expression:
    match tree:
        case ast.Name(id=name):
            return Variable(name)
        case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int(part))):
            return _call(call, part)
        case ast.Call():
            return _call(tree)
    raise ValueError(f"{ast.unparse(tree)!r} is no expression")


def _call(tree: ast.Call, part: int = 0) -> Call:
    head = tree.func
    assert isinstance(head, ast.Call), ast.unparse(tree)
    options = {item.arg or "": ast.unparse(item.value) for item in head.keywords}
    return Call(ast.unparse(head.func), options, tuple(map(_expression, tree.args)), part)


def calls(expression: Expression) -> Iterator[Call]:
    """All calls in an expression, arguments first."""
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from calls(argument)
        yield expression


# Types


class Typing:
    """Shapes of variables over as few symbols as the left side's operators leave."""

    def __init__(self, left: Sequence[Expression], right: Sequence[Expression]):
        self._fresh = count()
        self.ranks: dict[str, int] = {}
        for _ in range(2):  # what is known from the last is to reach the first
            for expression in (*left, *right):
                self._rank(expression, None)
        self.shapes: dict[str, Shape] = {}
        self._equations: list[Size] = []
        self._convolutions: list[tuple[Shape, Shape]] = []
        for expression in left:
            self.shape(expression)
        self._unify()
        for refine in (self._odd_kernel, self._groups_of_inputs, self._groups_of_outputs):
            for number in range(len(self._convolutions)):
                refine(number)

    def _rank(self, expression: Expression, rank: int | None) -> int | None:
        """Note the ranks of the variables in `expression`, which has `rank` if that is known."""
        if isinstance(expression, Variable):
            if rank is not None:
                known = self.ranks.setdefault(expression.name, rank)
                assert known == rank, f"{expression.name} has two ranks"
            return self.ranks.get(expression.name)
        match expression.operator:
            case "matmul":
                own: int | None = 2
            case "conv2d":
                own = 4
            case "concat":
                own = int(expression.options["numdim"])
            case _:
                own = rank
        for _ in range(2):  # the rank of one argument is that of the others
            for argument in expression.arguments:
                own = self._rank(argument, own) or own
        return own

    @property
    def any_rank(self) -> bool:
        """Whether the variables may have any rank: all operators are elementwise."""
        return not self.ranks

    def symbol(self) -> Size:
        """A size that is not used yet."""
        return symbol(f"_{next(self._fresh)}")

    def shape(self, expression: Expression) -> Shape:
        """The shape of an expression; what its operators need is noted until it is solved."""
        if isinstance(expression, Variable):
            if expression.name not in self.shapes:
                rank = self.ranks.get(expression.name, 0)
                self.shapes[expression.name] = tuple(self.symbol() for _ in range(rank))
            return self.shapes[expression.name]
        first, *others = map(self.shape, expression.arguments)
        match expression.operator:
            case "matmul":
                self._equations.append(first[1] - others[0][0])
                return (first[0], others[0][1])
            case "conv2d":
                (kernel,) = others
                self._convolutions.append((first, kernel))
                return (first[0], kernel[0], *first[2:])
            case "concat":
                axis = expression.axis
                for other in others:
                    self._equal(_without(first, axis), _without(other, axis))
                total = sum((other[axis] for other in others), start=first[axis])
                return (*first[:axis], total, *first[axis + 1 :])
            case "split":
                axis, part = expression.axis, expression.part
                extent = self.parts(expression.arguments[0], axis)[part]
                return (*first[:axis], extent, *first[axis + 1 :])
        for other in others:
            self._equal(first, other)
        return first

    def parts(self, expression: Expression, axis: int) -> list[Size]:
        """The extents that the most recent concat along `axis` has put together."""
        assert isinstance(expression, Call), "a split of what was not put together"
        first = expression.arguments[0]
        match expression.operator:
            case "concat" if expression.axis == axis:
                return [self.shape(argument)[axis] for argument in expression.arguments]
            case "matmul":
                return self.parts(expression.arguments[axis], axis)
            case "conv2d":
                return self.parts(expression.arguments[1], 0) if axis == 1 else self.parts(first, 0)
        return self.parts(first, axis)

    def _equal(self, left: Shape, right: Shape) -> None:
        self._equations += [a - b for a, b in zip(left, right, strict=True)]

    def _unify(self) -> None:
        """Put into all shapes what an equation determines; the others stay requirements."""
        for number in range(len(self._equations)):
            equation = self._equations[number]
            for name in sorted(free_symbols(equation), key=_age, reverse=True):
                split = coefficient_of(equation, name)
                if split is not None and abs(split[0]) == 1:
                    self._put(name, -split[1] * split[0])
                    break

    def _put(self, name: str, value: Size) -> None:
        values = {name: value}

        def put(shape: Shape) -> Shape:
            return tuple(substitute(size, values) for size in shape)

        self.shapes = {key: put(shape) for key, shape in self.shapes.items()}
        self._equations = list(put(tuple(self._equations)))
        self._convolutions = [(put(x), put(kernel)) for x, kernel in self._convolutions]

    def _odd_kernel(self, number: int) -> None:
        """Extents ``2*r + 1`` for the kernel of a convolution, where they are free."""
        for axis in (2, 3):
            extent = self._convolutions[number][1][axis]
            if _is_symbol(extent):
                self._put(str(extent), 2 * self.symbol() + 1)

    def _groups_of_inputs(self, number: int) -> None:
        """Channels of a convolution's input as groups of its kernel's, where they are free."""
        x, kernel = self._convolutions[number]
        if _is_symbol(x[1]) and not free_symbols(x[1]) & free_symbols(kernel[1]):
            self._put(str(x[1]), self.symbol() * kernel[1])

    def _groups_of_outputs(self, number: int) -> None:
        """Output channels of a convolution as so many in each group, where they are free."""
        x, kernel = self._convolutions[number]
        group, rest = divide(x[1], kernel[1])
        outputs = kernel[0]
        if rest == 0 and _is_symbol(outputs) and not free_symbols(outputs) & free_symbols(group):
            self._put(str(outputs), group * self.symbol())


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _age(name: str) -> int:
    return int(name[1:])


def _is_symbol(size: Size) -> bool:
    return re.fullmatch(r"_\d+", str(size)) is not None


# Rules


@dataclass(frozen=True)
class Shipped:
    """One of TASO's substitutions, with what was found out about it by sampling."""

    number: int
    left: tuple[Expression, ...]
    right: tuple[Expression, ...]
    sound: bool
    """No counterexample is known."""
    guarded: bool
    """It holds only under a condition on shapes."""
    repeats: int | None
    """The number of an earlier one that it repeats."""
    counterexample: Mapping[str, Sequence[int]]
    """Shapes of the variables at which it is false; empty where none are known."""

    @cached_property
    def rule(self) -> Rule:
        """The substitution as a rule of xflow."""
        typing = Typing(self.left, self.right)
        text = ", ".join(_text(e, typing) for e in self.left)
        other = ", ".join(_text(e, typing) for e in self.right)
        names = sorted(
            {item.name for e in (*self.left, *self.right) for item in variables(e)}, key=_age
        )
        if typing.any_rank:
            inputs = " ".join(f"{name}[...]" for name in names)
        else:
            inputs = " ".join(
                f"{name}[{', '.join(map(str, typing.shapes[name]))}]" for name in names
            )
        found = re.findall(r"\b_\d+\b", inputs)
        letters = dict(zip(dict.fromkeys(found), ascii_lowercase, strict=False))

        def rename(line: str) -> str:
            return re.sub(r"\b_\d+\b", lambda name: letters[name[0]], line)

        return Rule(f"taso-{self.number}", rename(inputs), rename(text), rename(other))


def variables(expression: Expression) -> Iterator[Variable]:
    """The variables in an expression, again wherever they occur."""
    if isinstance(expression, Variable):
        yield expression
    else:
        for argument in expression.arguments:
            yield from variables(argument)


def _text(expression: Expression, typing: Typing) -> str:
    """An expression in the syntax of rules."""
    if isinstance(expression, Variable):
        return expression.name
    arguments = ", ".join(_text(argument, typing) for argument in expression.arguments)
    match expression.operator:
        case "matmul":
            text = f"MatMul({arguments})"
        case "conv2d":
            x, kernel = map(typing.shape, expression.arguments)
            pads = ", ".join(str((extent - 1) // 2) for extent in kernel[2:])
            text = f"Conv({arguments}, pads=[{pads}, {pads}], group={x[1] // kernel[1]})"
        case "concat":
            text = f"Concat({arguments}, axis={expression.axis})"
        case "split":
            parts = typing.parts(expression.arguments[0], expression.axis)
            extents = ", ".join(map(str, parts))
            text = f"Split({arguments}, axis={expression.axis}, split=[{extents}])"
            text += f"[{expression.part}]"
        case name:
            text = f"{ELEMENTWISE[name]}({arguments})"
    return f"Relu({text})" if expression.options.get("acti") == "relu" else text


def load(path: Path = FILE) -> list[Shipped]:
    """The substitutions of a file, in order."""
    return [_shipped(json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def distinct_sound() -> list[Shipped]:
    """The substitutions that hold and do not repeat an earlier one: 120."""
    return [shipped for shipped in load() if shipped.sound and shipped.repeats is None]


def _shipped(record: Mapping[str, Any]) -> Shipped:
    shapes = record["counterexample_shapes"] or {}
    return Shipped(
        record["rule"],
        tuple(parse(left) for left, _ in record["outputs"]),
        tuple(parse(right) for _, right in record["outputs"]),
        record["numeric"] == "sound_on_samples",
        record["needs_shape_guard"],
        record["dup_of"],
        {f"i{name.lstrip('-')}": shape for name, shape in shapes.items()},
    )


def excludes(where: Sequence[str], shipped: Shipped) -> bool:
    """Whether conditions on the rule's sizes are false at the shapes of the counterexample."""
    instance = shipped.rule.instance(0)
    sizes = solve(
        equation
        for value in instance.inputs
        for equation in zip(value.shape, shipped.counterexample[leaf_name(value)], strict=True)
    )
    assert sizes is not None, f"{shipped.rule.inputs} does not fit {shipped.counterexample}"
    return any(parse_constraint(text).substitute(sizes).decided is False for text in where)


# The table


@dataclass(frozen=True)
class Line:
    """The verdict on one substitution."""

    shipped: Shipped
    verdict: Verdict
    milliseconds: float

    @property
    def where(self) -> tuple[str, ...]:
        """The conditions of the proof on sizes and signs."""
        return tuple(text for text in self._all if not is_need(text, self.shipped.rule.value_names))

    @property
    def needs(self) -> tuple[str, ...]:
        """The conditions of the proof that elements are numbers."""
        return tuple(text for text in self._all if text not in self.where)

    @property
    def _all(self) -> tuple[str, ...]:
        return self.verdict.where if isinstance(self.verdict, Proved) else ()

    @property
    def is_right(self) -> bool:
        """Proved if it is sound; else refuted, or proved where the counterexample is not."""
        if isinstance(self.verdict, Proved):
            return self.shipped.sound or excludes(self.where, self.shipped)
        return isinstance(self.verdict, Refuted) and not self.shipped.sound

    def __str__(self) -> str:
        mark = "" if self.is_right else "  WRONG"
        word = type(self.verdict).__name__.lower()
        time_taken = f"{self.milliseconds:8.0f} ms"
        return f"{self.shipped.number:4}  {word:8}{time_taken}  {', '.join(self._all)}{mark}"


def judge(shipped: Shipped) -> Line:
    """Prove or refute one direction, with conditions inferred."""
    rule = shipped.rule
    start = time.perf_counter()
    verdict = prove(rule, both_ways=False)
    return Line(shipped, verdict, 1000 * (time.perf_counter() - start))


def main() -> int:
    """Print the table and its totals; 1 if a verdict is wrong."""
    lines = []
    for shipped in load():
        lines.append(judge(shipped))
        print(lines[-1], flush=True)
    distinct = [line for line in lines if line.shipped.repeats is None and line.shipped.sound]
    proved = [line for line in distinct if isinstance(line.verdict, Proved)]
    conditional = [line for line in proved if line.where]
    needing = [line for line in proved if line.needs]
    unsound = [line for line in lines if not line.shipped.sound]
    print(
        f"{len(proved)} of {len(distinct)} distinct sound rules proved, "
        f"{len(conditional)} of them under a condition, "
        f"{len(needing)} where elements of an input are numbers; "
        f"{sum(line.is_right for line in unsound)} of {len(unsound)} unsound ones rejected; "
        f"{sum(line.milliseconds for line in lines) / 1000:.1f} s"
    )
    return 0 if all(line.is_right for line in lines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
