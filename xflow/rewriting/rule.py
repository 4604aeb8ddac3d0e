"""Rules: proven equations between two graphs, as text that a person can read and re-check.

A rule is written for all sizes and, where it has *vectors*, for all lengths of these. A name with
a star is a vector: ``x[N, C, *S]`` has as many axes behind C as the rule's rank says, and
``pads=[*(e + p), *f]`` splices vectors into a list, element by element; an integer in a starred
expression stands for itself in every element, and ``axis`` for 0, 1, 2, ... The line ``rank``
lists the ranks at which it holds; three dots behind them say that it holds at all higher ones, too,
because it touches no axis of a vector. An input ``x[...]`` has
any shape and is read with ONNX broadcasting; such a rule contains elementwise operators alone.
``c[N]:bool`` is a tensor of Booleans, ``i[K]:int`` one of integers; all others are of one element
type, which the line ``types`` tells: ``reals`` (also where there is no such line), ``reals,
integers`` (which wrap around), or ``any``. A condition ``s != 0``, ``s > 0``, ``s >= 0``,
``finite(s)`` or ``s < inf`` on an input or a real attribute speaks of every element's value, see
`xflow.core.value_conditions`. `Rule.instance` spells a rule out at one rank.

The line ``exact`` says that the sides agree to the last bit: ``bits``, whatever the inputs hold, or
``numbers``, where they hold numbers; without it they may differ by roundings. The line ``limits``
names inputs of which elements may be -inf, as those of masks are: the sides agree there, too.

A rule is one of the base, from which the others follow, and one that the search uses, unless the
line ``set`` says that it is one of these alone: ``base``, or ``search; follows from one, another``.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

from xflow.core.constraint import Constraint, constraint_from_ast
from xflow.core.errors import RuleFileError, ShapeError, SizeError
from xflow.core.expressions import LENGTH, expression, fraction, shortened
from xflow.core.graph import Leaf, TensorType, Value, apply, leaf, walk
from xflow.core.registry import Attribute, Kind, Operator, RealSymbol
from xflow.core.size import (
    Expr,
    Size,
    free_symbols,
    from_ast,
    opaque_integers,
    readable,
    substitute,
    symbol,
)
from xflow.core.sorts import BOOL, ELEMENT, HOLDS_FOR, INT, REAL, REALS_ONLY
from xflow.core.value_conditions import Fact, fact_of
from xflow.ops import operator, operators
from xflow.rewriting.numerics import Numerics, parse_numerics

MAX_RANK = 6
"""The largest rank at which a rule that holds at any rank is instantiated."""

HIGHEST_RANK = 12
"""The largest rank that a rule may name."""

MOST_OPERATORS = 200
"""Most operators on a side of a rule; those of the database have up to 18."""

MOST_NAMES = 64
"""Most inputs, parameters or conditions of a rule; those of the database have up to 12."""

MOST_TERMS, MOST_FACTORS = 100, 16
"""Most terms of a size in a rule, and most factors of a term; in the database 8 and 3."""

LONGEST_NAME = 200
"""Most characters of a rule's name; the generator's have up to a hundred."""
RESERVED = ("axis", "any", "inf", "finite")
"""Names that mean something else in a rule."""
BITS, NUMBERS = "bits", "numbers"
EXACT = (BITS, NUMBERS)
"""How sides may agree beyond what they are as real numbers, see above."""

BASE = "base"
"""The line ``set`` of a rule that the search does without."""

ANY_SHAPE = (symbol("any"),)
"""Shape of an input ``x[...]`` in an instance: elementwise operators treat all axes alike, so one
symbolic axis stands for any number of them."""


@dataclass(frozen=True)
class Instance:
    """A rule spelled out at one rank: two lists of values over the same leaves."""

    rank: int
    inputs: tuple[Value, ...]
    broadcast: bool
    """The inputs have any shapes that broadcast; their `ANY_SHAPE` is not to be matched."""
    lhs: tuple[Value, ...]
    rhs: tuple[Value, ...]
    where: tuple[Constraint, ...]
    types: str = REALS_ONLY
    """The element types for which it holds, one of `HOLDS_FOR`."""
    facts: tuple[Fact, ...] = ()
    """What `where` says of the values of inputs and real attributes."""
    exact: str | None = None
    """One of `EXACT`; None: the sides may differ by roundings."""
    limits: frozenset[str] = frozenset()
    """The inputs of which elements may be -inf."""

    @cached_property
    def free_symbols(self) -> frozenset[str]:
        """Names of size symbols that occur in the right side's attributes but nowhere left."""
        known = attribute_symbols(self.lhs).union(
            *(free_symbols(size) for leaf in leaves_of(self.lhs) for size in leaf.shape)
        )
        return attribute_symbols(self.rhs) - known

    @cached_property
    def is_determined(self) -> bool:
        """Whether a match of the left side says everything that the right side needs."""
        return not self.free_symbols and leaves_of(self.rhs) <= leaves_of(self.lhs)

    @cached_property
    def is_fillable(self) -> bool:
        """Whether all that a match of the left side leaves open is one size."""
        return len(self.free_symbols) == 1 and leaves_of(self.rhs) <= leaves_of(self.lhs)


@dataclass(frozen=True)
class Rule:
    """A proven equation ``lhs = rhs``, to be used from left to right.

    The texts are in the syntax of rule files. `reverse` holds the conditions for the use from
    right to left, or None where that was not proved. A direction may leave numbers open, which are
    for its user to choose: it is not determined, see `Instance`.
    """

    name: str
    inputs: str
    lhs: str
    rhs: str
    params: str = ""
    ranks: tuple[int, ...] = (0,)
    where: tuple[str, ...] = ()
    reverse: tuple[str, ...] | None = None
    notes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Further lines of the stanza, such as `proof` and `numerics`."""
    types: str | None = None
    """The element types for which it holds, one of `HOLDS_FOR`; None: not said, so reals."""
    any_rank: bool = False
    """Whether what holds at the first of `ranks` holds at every higher one, slice by slice."""
    exact: str | None = None
    """One of `EXACT`; None: the sides may differ by roundings."""
    limits: tuple[str, ...] = ()
    """Names of the inputs of which elements may be -inf."""

    @cached_property
    def root(self) -> str | None:
        """The name of the operator that gives the left side's first output; None for an input."""
        tree = _tree(self.lhs)
        tree = tree.elts[0] if isinstance(tree, ast.Tuple) else tree
        tree = tree.value if isinstance(tree, ast.Subscript) else tree
        return (
            tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else None
        )

    def instance(self, rank: int) -> Instance:
        """The rule at one rank. Raises RuleFileError where it makes no sense."""
        return _instance(self, rank)

    def instances(self) -> Iterator[Instance]:
        """The rule at each of the ranks at which it is proved one by one."""
        return map(self.instance, self.ranks)

    def usable_instances(self) -> Iterator[Instance]:
        """The rule at each rank at which it may be applied."""
        return map(self.instance, self.usable_ranks)

    @property
    def usable_ranks(self) -> tuple[int, ...]:
        """The ranks at which it may be applied."""
        further = range(max(self.ranks) + 1, MAX_RANK + 1) if self.any_rank else ()
        return (*self.ranks, *further)

    def reversed(self) -> Rule:
        """The rule from right to left, named `NAME.reverse`. It must have a `reverse`."""
        assert self.reverse is not None, self.name
        return replace(
            self,
            name=f"{self.name}.reverse",
            lhs=self.rhs,
            rhs=self.lhs,
            where=self.reverse,
            reverse=None,
            notes=self._turned_notes(),
        )

    def _turned_notes(self) -> dict[str, str]:
        if self.numerics is None:
            return dict(self.notes)
        return {**self.notes, "numerics": str(self.numerics.turned())}

    @cached_property
    def numerics(self) -> Numerics | None:
        """What rounding does to its sides; None where nobody measured. Raises RuleFileError."""
        text = self.notes.get("numerics")
        return None if text is None else parse_numerics(text)

    @cached_property
    def statement(self) -> str:
        """What it says, as text: without its name and notes, which say nothing of its sides."""
        return str(replace(self, name="rule", notes={}))

    @property
    def is_base(self) -> bool:
        """Whether it is one of those from which the others follow."""
        return self.notes.get("set", BASE) == BASE

    @property
    def is_searched(self) -> bool:
        """Whether the search uses it."""
        return self.notes.get("set") != BASE

    def directions(self) -> tuple[Rule, ...]:
        """The rule in each direction that was proved, as rules to be used from left to right."""
        forward = replace(self, reverse=None)
        return (forward,) if self.reverse is None else (forward, self.reversed())

    @cached_property
    def names(self) -> Names:
        """The names that the rule declares. Raises RuleFileError."""
        return _declared_names(parse_inputs(self.inputs), self.params)

    @cached_property
    def value_names(self) -> frozenset[str]:
        """Names of which a condition may state a fact: the inputs and the real attributes."""
        return frozenset(name for name, _ in parse_inputs(self.inputs)) | self.names.reals

    @cached_property
    def operators(self) -> frozenset[str]:
        """Names of the operators on either side."""
        instance = self.instance(self.ranks[0])
        return frozenset(
            node.op.name
            for node in walk((*instance.lhs, *instance.rhs))
            if isinstance(node.op, Operator)
        )

    def __str__(self) -> str:
        lines = [f"rule {self.name}"]

        def line(key: str, text: str) -> None:
            lines.append(f"  {key:<9}{text}".rstrip())

        line("in", self.inputs)
        if self.params:
            line("param", self.params)
        if self.ranks != (0,):
            line("rank", " ".join(map(str, self.ranks)) + (" ..." if self.any_rank else ""))
        line("from", self.lhs)
        line("to", self.rhs)
        if self.where:
            line("where", ", ".join(self.where))
        if self.reverse is not None:
            line("reverse", ", ".join(self.reverse) or "always")
        if self.types is not None:
            line("types", self.types)
        if self.exact is not None:
            line("exact", self.exact)
        if self.limits:
            line("limits", " ".join(self.limits))
        for key, text in self.notes.items():
            line(key, text)
        return "\n".join(lines) + "\n"


_NOTES = ("set", "proof", "numerics")
_KEYS = (
    *("in", "param", "rank", "from", "to", "where", "reverse", "types", "exact", "limits"),
    *_NOTES,
)


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

    Raises RuleFileError that names `source` and the line.
    """
    stanza: dict[str, str] = {}
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, _, rest = line.strip().partition(" ")
        if key == "rule":
            if stanza:
                yield start, stanza
            start, stanza = number, {"rule": rest.strip()}
        elif not stanza or key not in _KEYS or not line[0].isspace():
            raise RuleFileError(
                f"{shortened(key)!r} is no line of a rule",
                f"{source}:{number}",
                f"expected one of: rule, {', '.join(_KEYS)}",
            )
        elif len(rest) > LENGTH:
            what = f"a line of {len(rest):,} characters, where {LENGTH:,} are allowed"
            raise RuleFileError(what, f"{source}:{number}")
        elif key in stanza:
            raise RuleFileError(f"a second line {key!r}", f"{source}:{number}")
        else:
            stanza[key] = rest.strip()
    if stanza:
        yield start, stanza


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
            {key: stanza[key] for key in _NOTES if key in stanza},
            types,
            words[-1:] == ["..."],
            exact,
            tuple(stanza.get("limits", "").split()),
        )
        strangers = sorted(set(rule.limits) - {name for name, _ in parse_inputs(rule.inputs)})
        if strangers:
            raise RuleFileError(f"{strangers[0]!r} among the limits is no input")
        if not re.fullmatch(r"base|search; follows from .+", rule.notes.get("set", "base")):
            raise RuleFileError(
                f"{rule.notes['set']!r} is no set of rules",
                do="write 'base', or 'search; follows from' and the names of rules",
            )
        _ = rule.numerics  # a malformed line is an error at once
        for _ in rule.usable_instances() if checked else ():
            pass
    except RuleFileError as error:
        raise RuleFileError(error.what, f"{where}, rule {name}", error.do) from None
    except (ShapeError, SizeError, SyntaxError, ValueError, KeyError) as error:
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
            f"operators in {key!r}": (stanza[key].count("("), MOST_OPERATORS)
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


@dataclass(frozen=True)
class _Scope:
    """The names of a rule at one rank."""

    rank: int
    scalars: frozenset[str]
    vectors: frozenset[str]
    reals: frozenset[str]
    leaves: Mapping[str, Value]

    def sizes(self, tree: ast.expr) -> Size:
        size = from_ast(tree)
        self._check(size, self.scalars)
        return size

    def component(self, size: Size, position: int) -> Size:
        """Element number `position` of a size expression over vectors."""
        self._check(size, self.scalars | self.vectors | {"axis"})
        values: dict[str, Size] = {name: symbol(f"{name}_{position}") for name in self.vectors}
        return substitute(size, {**values, "axis": position})

    def items(self, trees: Iterable[ast.expr]) -> tuple[Size, ...]:
        result: list[Size] = []
        for tree in trees:
            if isinstance(tree, ast.Starred):
                size = from_ast(tree.value)
                result.extend(self.component(size, j) for j in range(self.rank))
            else:
                result.append(self.sizes(tree))
        return tuple(result)

    def _check(self, size: Size, known: frozenset[str]) -> None:
        if isinstance(size, Expr) and (
            len(size.terms) > MOST_TERMS or any(len(m) > MOST_FACTORS for m, _ in size.terms)
        ):
            raise RuleFileError(
                f"a size has more than {MOST_TERMS} terms, or a term more than {MOST_FACTORS} "
                "factors, when it is multiplied out"
            )
        if any(opaque_integers(size)):
            raise RuleFileError(f"the size {size} depends on the data of a tensor")
        unknown = sorted(free_symbols(size) - known)
        if unknown:
            raise RuleFileError(
                f"{unknown[0]} is not declared"
                + (" as a single size: write *" + unknown[0] if unknown[0] in self.vectors else "")
            )


SORT_NAMES = {None: REAL, "real": REAL, "bool": BOOL, "int": INT}
"""How inputs say what their elements are."""

_INPUT = re.compile(r"([A-Za-z]\w*)\s*\[([^\]]*)\](?::(\w+))?\s*")


def parse_sorts(text: str) -> dict[str, str]:
    """The sort of each input in ``x[N, *S] c[...]:bool``."""
    sorts: dict[str, str] = {}
    for match in _INPUT.finditer(text):
        name, _, sort = match.groups()
        if sort not in SORT_NAMES:
            raise RuleFileError(f"{sort!r} is no sort", do="write :bool, :int or nothing")
        sorts[name] = SORT_NAMES[sort]
    return sorts


def parse_inputs(text: str) -> list[tuple[str, list[ast.expr] | None]]:
    """``x[N, *S] y[...]`` as pairs of a name and its dimensions (None for ``...``)."""
    inputs: list[tuple[str, list[ast.expr] | None]] = []
    rest = text.strip()
    while rest:
        match = _INPUT.match(rest)
        if match is None:
            raise RuleFileError(f"{shortened(rest)!r} is no input", do="write name[dims]")
        name, dims, _ = match.groups()
        if dims.strip() == "...":
            inputs.append((name, None))
        else:
            tree = expression(f"[{dims}]")
            if not isinstance(tree, ast.List):
                raise RuleFileError(f"[{shortened(dims)}] are no dimensions")
            inputs.append((name, tree.elts))
        rest = rest[match.end() :]
    return inputs


@dataclass(frozen=True)
class Names:
    """The names that a rule declares for sizes: single ones, vectors, and reals."""

    scalars: frozenset[str]
    vectors: frozenset[str]
    reals: frozenset[str]


def _declared_names(inputs: list[tuple[str, list[ast.expr] | None]], params: str) -> Names:
    scalars: set[str] = set()
    vectors: set[str] = set()
    reals: set[str] = set()
    for param in params.split():
        if param.startswith("*"):
            vectors.add(param[1:])
        elif param.endswith(":real"):
            reals.add(param.removesuffix(":real"))
        else:
            scalars.add(param)
    for _, dims in inputs:
        for dim in dims or ():
            inside = dim.value if isinstance(dim, ast.Starred) else dim
            found = {node.id for node in ast.walk(inside) if isinstance(node, ast.Name)}
            if isinstance(dim, ast.Starred):
                vectors |= found - scalars - {"axis"}
            else:
                scalars |= found - vectors
    everything = sorted((*scalars, *vectors, *reals))
    for name in everything:
        # `any` is the axis of ANY_SHAPE, and v_0, v_1, ... are the elements of a vector v.
        stem = re.fullmatch(r"(.*)_\d+", name)
        if (
            name.startswith("_")
            or name in ("axis", "any", "inf", "finite")
            or (stem and stem.group(1) in vectors)
        ):
            raise RuleFileError(f"the name {name} is reserved")
        if everything.count(name) > 1 or params.split().count(name) > 1:
            raise RuleFileError(f"{name} is declared twice")
    return Names(frozenset(scalars), frozenset(vectors), frozenset(reals))


@cache
def _instance(rule: Rule, rank: int) -> Instance:
    inputs = parse_inputs(rule.inputs)
    names = rule.names
    scope = _Scope(rank, names.scalars, names.vectors, names.reals, {})
    broadcast = any(dims is None for _, dims in inputs)
    leaves: dict[str, Value] = {}
    sorts = parse_sorts(rule.inputs)
    for name, dims in inputs:
        if name in leaves:
            raise RuleFileError(f"a second input {name}")
        shape = ANY_SHAPE if dims is None else scope.items(dims)
        if any(isinstance(size, int) and size < 0 for size in shape):
            raise RuleFileError(f"the input {name} has a negative size")
        if broadcast and dims is not None:
            raise RuleFileError("inputs of any shape do not mix with inputs of a given shape")
        leaves[name] = leaf(name, TensorType(sorts[name], shape))
    scope = replace(scope, leaves=leaves)
    lhs, rhs = _side(rule.lhs, scope), _side(rule.rhs, scope)
    if len(lhs) != len(rhs):
        raise RuleFileError("the two sides have different numbers of outputs")
    if broadcast:
        for node in walk((*lhs, *rhs)):
            # Nor constants with a shape: they would tie the one axis that stands for any number.
            if isinstance(node.op, Operator) and not (
                node.op.elementwise or node.op.name == "Scalar"
            ):
                raise RuleFileError(f"{node.op.name} does not act on inputs of any shape")
    if any(a.type.dtype != b.type.dtype for a, b in zip(lhs, rhs, strict=True)):
        raise RuleFileError("the two sides have different element types")
    facts = {
        text: fact for text in rule.where if (fact := fact_of(text, rule.value_names)) is not None
    }
    return Instance(
        rank,
        tuple(leaves.values()),
        broadcast,
        lhs,
        rhs,
        tuple(conditions_at((text for text in rule.where if text not in facts), scope)),
        rule.types or REALS_ONLY,
        tuple(facts.values()),
        rule.exact,
        frozenset(rule.limits),
    )


def conditions_at(texts: Iterable[str], scope: _Scope) -> Iterator[Constraint]:
    """Conditions spelled out; one that speaks of vectors holds in every element."""
    for text in texts:
        condition = constraint_from_ast(expression(text))
        if condition.symbols & scope.vectors:
            for position in range(scope.rank):
                yield Constraint(
                    scope.component(condition.difference, position), condition.relation
                )
        else:
            scope.component(condition.difference, 0)  # checks the names
            yield condition


@cache
def _tree(text: str) -> ast.expr:
    """An expression of a rule, parsed once for all ranks."""
    return expression(text)


def _side(text: str, scope: _Scope) -> tuple[Value, ...]:
    tree = _tree(text)
    trees = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return tuple(_value(item, scope) for item in trees)


def _value(tree: ast.expr, scope: _Scope, dtype: str = REAL) -> Value:
    """The value of an expression; `dtype` is what a number or a constant operator is then."""
    match tree:
        case ast.Name(id=name) if name in scope.leaves:
            return scope.leaves[name]
        case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int(position))):
            outputs = _call(call, scope, dtype)
            if position >= len(outputs):
                raise RuleFileError(f"{readable(call)} has no output {position}")
            return outputs[position]
        case ast.Call():
            outputs = _call(tree, scope, dtype)
            if len(outputs) != 1:
                raise RuleFileError(f"{readable(tree)} has several outputs", do="choose one: [0]")
            return outputs[0]
        case ast.Constant() | ast.UnaryOp() | ast.BinOp():
            return apply("Scalar", (), {"value": _real(tree, scope)}, dtype=dtype)[0]
    raise RuleFileError(f"{readable(tree)!r} is no declared input, operator or number")


def _arguments(op: Operator, trees: list[ast.expr], scope: _Scope, dtype: str) -> list[Value]:
    """The inputs of an operator; a constant has the element type that its place asks for."""
    found: dict[int, Value] = {}
    for position, tree in enumerate(trees):
        if not _is_constant(tree, scope):
            found[position] = _value(tree, scope, dtype)
            if op.taken(position) == ELEMENT:
                dtype = found[position].type.dtype
    for position, tree in enumerate(trees):
        if position not in found:
            taken = op.taken(position)
            found[position] = _value(tree, scope, dtype if taken == ELEMENT else taken)
    return [found[position] for position in range(len(trees))]


def _is_constant(tree: ast.expr, scope: _Scope) -> bool:
    """Whether an expression reads no input, so that its place says its element type."""
    match tree:
        case ast.Call(args=args):
            return all(_is_constant(arg, scope) for arg in args)
        case ast.Subscript(value=value):
            return _is_constant(value, scope)
        case ast.Name(id=name):
            return name not in scope.leaves
    return True


def _call(tree: ast.Call, scope: _Scope, dtype: str) -> tuple[Value, ...]:
    name = ast.unparse(tree.func)
    try:
        op = operator(name)
    except KeyError:
        close = difflib.get_close_matches(name, [op.name for op in operators()], n=3)
        advice = f"did you mean {' or '.join(close)}?" if close else ""
        raise RuleFileError(f"there is no operator {name}", do=advice) from None
    args = _arguments(op, tree.args, scope, dtype)
    attributes: dict[str, Attribute] = {}
    for keyword in tree.keywords:
        if keyword.arg is None or keyword.arg not in op.attributes:
            raise RuleFileError(f"{name} has no attribute {keyword.arg}")
        spec = op.attributes[keyword.arg]
        attributes[keyword.arg] = _attribute(keyword.value, spec.kind, args, scope, op.adds_axes)
    return apply(op, args, attributes, dtype=dtype)


def _attribute(
    tree: ast.expr, kind: Kind, args: list[Value], scope: _Scope, adds_axes: bool
) -> Attribute:
    if kind is Kind.REAL:
        return _real(tree, scope)
    if kind is Kind.TEXT:
        if not isinstance(tree, ast.Constant) or not isinstance(tree.value, str):
            raise RuleFileError(f"{readable(tree)!r} is no text in quotes")
        return tree.value
    if kind in (Kind.INT, Kind.AXIS):
        size = scope.sizes(tree)
        negative = isinstance(size, int) and size < 0
        return size + len(args[0].shape) if kind is Kind.AXIS and negative else size
    if not isinstance(tree, ast.List):
        raise RuleFileError(f"{readable(tree)!r} is no list")
    items = scope.items(tree.elts)
    if kind in (Kind.AXES, Kind.PERMUTATION):
        rank = len(args[0].shape) + (len(items) if adds_axes else 0)
        items = tuple(i + rank if isinstance(i, int) and i < 0 else i for i in items)
    return items


def _real(tree: ast.expr, scope: _Scope) -> Fraction | RealSymbol:
    if isinstance(tree, ast.Name) and tree.id in scope.reals:
        return RealSymbol(tree.id)
    value = _number(tree)
    if value is None:
        raise RuleFileError(f"{readable(tree)!r} is no number")
    return value


def _number(tree: ast.expr) -> Fraction | None:
    match tree:
        case ast.Constant(value=int() | float() as value):
            return fraction(str(value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _number(operand)
            return None if number is None else -number
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            a, b = _number(left), _number(right)
            return a / b if a is not None and b else None
    return None


def attribute_symbols(values: Iterable[Value]) -> frozenset[str]:
    """Names of the size symbols in attributes of nodes under `values`."""
    names: set[str] = set()
    for node in walk(values):
        for attribute in node.attributes.values():
            parts: tuple[Any, ...] = attribute if isinstance(attribute, tuple) else (attribute,)
            for part in parts:
                if not isinstance(part, Fraction | RealSymbol | str):
                    names |= free_symbols(part)
    return frozenset(names)


def leaves_of(values: Iterable[Value]) -> frozenset[Value]:
    """The inputs of a rule that `values` read."""
    return frozenset(node.outputs[0] for node in walk(values) if isinstance(node.op, Leaf))


def leaf_name(value: Value) -> str:
    """The name of a rule's input."""
    assert isinstance(value.node.op, Leaf)
    return value.node.op.key
