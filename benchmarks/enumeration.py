"""Enumeration: how many graphs, how fast, in how much memory, and what larger graphs add.

First the operators of TASO's generator at three operators, and whether what TASO found there is
found: for each of its sound substitutions, are both sides enumerated, and in one class? A side
counts as enumerated where it is a term of the enumeration itself, its parts replaced by their
representatives. A substitution of several outputs is looked at one output at a time.

Then every family at 2, 3 and 4 operators: what each depth adds. Of its proposals, how many are no
idle reordering, and how many of these do not follow downhill from the rules of the database?
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console
from rich.table import Table

import taso
from xflow.core.errors import ShapeError
from xflow.core.node import Value, apply
from xflow.core.registry import Operator
from xflow.generator.enumeration.enumerate import enumerate_terms
from xflow.generator.enumeration.level import Enumeration
from xflow.generator.families import FAMILIES
from xflow.generator.generalization.propose import Proposal, propose
from xflow.generator.idle import is_idle
from xflow.generator.minimize import Reducer
from xflow.generator.vocabularies.taso_set import IMAGES, MATRICES, TASO
from xflow.generator.vocabulary import Vocabulary
from xflow.rewriting.store import default_directory, load_rules

DEPTHS = (2, 3, 4)
TOO_MANY = 2_000_000
"""A depth that is expected to have more graphs is left out."""


@dataclass
class Run:
    """The counts and costs of one enumeration."""

    found: Enumeration
    proposals: list[Proposal]
    counts: Counter[str]
    seconds: float
    """On the clock."""
    processor: float
    """Seconds of processor time."""


def run(vocabulary: Vocabulary, depth: int) -> Run:
    """Enumerate and propose."""
    clock, processor = time.perf_counter(), time.process_time()
    counts: Counter[str] = Counter()
    found = enumerate_terms(vocabulary, 0, depth)
    proposals = propose(found.candidates, vocabulary, 0, counts)
    spent = time.perf_counter() - clock, time.process_time() - processor
    return Run(found, proposals, counts, *spent)


def megabytes() -> int:
    """The most memory that the process has held so far."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size // (2**20 if sys.platform == "darwin" else 2**10)


# TASO's substitutions


class Reader:
    """Reads TASO's expressions as terms of a vocabulary, and looks them up."""

    def __init__(self, vocabulary: Vocabulary, found: Enumeration):
        self.vocabulary = vocabulary
        self.found = found
        self._inputs = [item.value for item in vocabulary.inputs if item.sort in vocabulary.roots]
        self._members = {candidate.source.text: candidate.target for candidate in found.candidates}
        self._kernel = len(self._inputs[0].shape) - 2

    def read(self, expression: taso.Expression, names: Mapping[str, Value]) -> Value:
        """The graph of an expression. Raises ShapeError."""
        if isinstance(expression, taso.Variable):
            return names[expression.name]
        args = [self.read(argument, names) for argument in expression.arguments]
        options = expression.options
        match expression.operator:
            case "matmul":
                (value,) = apply("MatMul", args)
            case "conv2d":
                x, w = (value.shape for value in args)
                assert isinstance(x[1], int)
                assert isinstance(w[1], int)
                pads = (1,) * (2 * self._kernel)
                (value,) = apply("Conv", args, {"pads": pads, "group": x[1] // w[1]})
            case "concat":
                (value,) = apply("Concat", args, {"axis": expression.axis})
            case "split":
                extent = args[0].shape[expression.axis]
                assert isinstance(extent, int)
                halves = (extent // 2, extent // 2)
                parts = apply("Split", args, {"axis": expression.axis, "split": halves})
                value = parts[expression.part]
            case name:
                (value,) = apply(taso.ELEMENTWISE[name], args)
        return apply("Relu", [value])[0] if options.get("acti") == "relu" else value

    def names(self, expressions: Sequence[taso.Expression]) -> dict[str, Value]:
        """An input for each variable."""
        met = dict.fromkeys(v.name for e in expressions for v in taso.variables(e))
        return dict(zip(met, self._inputs, strict=False))

    def reduce(self, value: Value) -> tuple[Value, bool]:
        """The representative of a term, its parts reduced first, and whether it is enumerated."""
        if value.is_leaf:
            return value, True
        sources = value.node.inputs
        parts = [self.reduce(source)[0] for source in sources]
        for args in (parts, *self._sharing(sources, parts)):
            for made in self._orders(value, args):
                member = self._members.get(str(made))
                if member is not None:
                    return member.value, True
                known = self.found.representative(made, self.vocabulary.inputs[0].sort)
                if known is not None and known.text == str(made):
                    return made, True
        return self._orders(value, parts)[0], False

    def _sharing(self, sources: Sequence[Value], parts: Sequence[Value]) -> Iterator[list[Value]]:
        """Arguments one of which stays as it is but for its parts: it may share one of these."""
        for i, source in enumerate(sources):
            if not source.is_leaf:
                below = [self.reduce(value)[0] for value in source.node.inputs]
                for whole in self._orders(source, below):
                    yield [*parts[:i], whole, *parts[i + 1 :]]

    @staticmethod
    def _orders(value: Value, args: Sequence[Value]) -> list[Value]:
        """The term on other arguments, in both orders if the operator is commutative."""
        op = value.node.op
        assert isinstance(op, Operator)
        orders = [args, args[::-1]] if op.commutative else [args]
        attributes = value.node.attributes
        return [apply(op, order, attributes, dtype="FLOAT")[value.index] for order in orders]


@dataclass(frozen=True)
class Line:
    """The result for one substitution."""

    shipped: taso.Shipped
    how: str
    """``one class``, ``parts`` where the sides are alike once parts are replaced; or a reason."""

    @property
    def is_found(self) -> bool:
        return self.how in ("one class", "parts")


def look_up(shipped: taso.Shipped, readers: Sequence[Reader]) -> Line:
    """Whether the enumeration has found a substitution."""
    images = any(
        call.operator == "conv2d" or call.options.get("numdim") == "4"
        for side in (*shipped.left, *shipped.right)
        for call in taso.calls(side)
    )
    reader = readers[images]
    names = reader.names((*shipped.left, *shipped.right))
    how = "one class"
    for left, right in zip(shipped.left, shipped.right, strict=True):
        try:
            sides = [reader.reduce(reader.read(side, names)) for side in (left, right)]
        except ShapeError as error:
            return Line(shipped, f"does not fit the sizes: {error}")
        if sides[0][0] != sides[1][0]:
            return Line(shipped, f"{sides[0][0]} and {sides[1][0]} are in two classes")
        if not all(enumerated for _, enumerated in sides):
            how = "parts"
    return Line(shipped, how)


def taso_set(console: Console) -> bool:
    """TASO's operators at three operators, and its substitutions; whether all are found."""
    table = Table(
        "vocabulary", "graphs", "classes", "candidates", "proposals", "s", "cpu s", "MB",
        box=box.SIMPLE_HEAD, title="TASO's operators, at most 3",
    )  # fmt: skip
    total: Counter[str] = Counter()
    readers = []
    for vocabulary in TASO.vocabularies:
        made = run(vocabulary, 3)
        if vocabulary in (MATRICES, IMAGES):
            readers.append(Reader(vocabulary, made.found))
        row = {
            "graphs": made.found.graphs,
            "classes": made.found.classes,
            "candidates": len(made.found.candidates),
            "proposals": len(made.proposals),
        }
        total.update(row)
        total["ms"] += round(1000 * made.seconds)
        total["cpu"] += round(1000 * made.processor)
        numbers = [f"{number:,}" for number in row.values()]
        table.add_row(
            vocabulary.name, *numbers, f"{made.seconds:.1f}", f"{made.processor:.1f}",
            f"{megabytes():,}",
        )  # fmt: skip
    numbers = [f"{total[name]:,}" for name in ("graphs", "classes", "candidates", "proposals")]
    table.add_row(
        "in all", *numbers, f"{total['ms'] / 1000:.1f}", f"{total['cpu'] / 1000:.1f}",
        f"{megabytes():,}",
    )  # fmt: skip
    table.add_row("TASO's program", "16,400,000", "", "", "", "81", "", "7,100")
    console.print(table)
    wanted = [s for s in taso.load() if s.sound and s.repeats is None]
    lines = [look_up(shipped, readers) for shipped in wanted]
    found = Counter(line.how for line in lines if line.is_found)
    console.print(
        f"{sum(found.values())} of {len(lines)} sound substitutions are found: "
        f"{found['one class']} in one class, {found['parts']} by classes of their parts"
    )
    for line in lines:
        if not line.is_found:
            console.print(f"  missed {line.shipped.number}: {line.how}", markup=False)
    return all(line.is_found for line in lines)


# Families


def deeper(vocabulary: Vocabulary, depth: int) -> Vocabulary:
    """The vocabulary with limits for so many operators; further ones are those of the last."""
    limits = vocabulary.limits
    return replace(vocabulary, limits=(*limits, *(limits[-1],) * depth)[: depth + 1])


def by_depth(vocabulary: Vocabulary, depths: Sequence[int]) -> Iterator[tuple[int, Run | int]]:
    """The vocabulary at each depth; the number of graphs expected where they are too many."""
    graphs: list[int] = []
    for depth in depths:
        expected = graphs[-1] ** 2 // max(1, graphs[-2]) if len(graphs) > 1 else 0
        if expected > TOO_MANY:
            yield depth, expected
            return
        made = run(deeper(vocabulary, depth), depth)
        graphs.append(made.found.graphs)
        yield depth, made


def add_rows(table: Table, vocabulary: Vocabulary, depths: Sequence[int], rules: Reducer) -> None:
    """A row for each depth, the proposals counted that no smaller depth has."""
    known: set[str] = set()
    for depth, made in by_depth(vocabulary, depths):
        if isinstance(made, int):
            table.add_row(vocabulary.name, str(depth), f"about {made:,}, left out")
            continue
        new = [p for p in made.proposals if p.skeleton.key not in known]
        known.update(p.skeleton.key for p in new)
        useful = [p for p in new if not is_idle(p, vocabulary)]
        rest = sum(not rules.derives(p.source, p.target, vocabulary) for p in useful)
        numbers = (
            made.found.graphs,
            len(made.found.candidates),
            made.counts["accidental"],
            len(new),
            len(useful),
            rest,
        )
        table.add_row(
            vocabulary.name,
            str(depth) if made.found.exact or not vocabulary.exact else f"{depth}, to 7 digits",
            *(f"{number:,}" for number in numbers),
            f"{made.seconds:.1f}",
            f"{megabytes():,}",
        )


def families(console: Console, names: Sequence[str], depths: Sequence[int]) -> None:
    """The table of what each depth adds to every vocabulary."""
    rules = Reducer()
    for rule in load_rules(default_directory()):
        rules.add(rule)
    for family in FAMILIES:
        if names and family.name not in names:
            continue
        table = Table(
            "vocabulary", "operators", "graphs", "candidates", "accidental", "proposals",
            "not idle", "not derived", "s", "MB", box=box.SIMPLE_HEAD, title=family.name,
        )  # fmt: skip
        for vocabulary in family.vocabularies:
            add_rows(table, vocabulary, depths, rules)
        console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; 1 if a substitution of TASO's is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--families", default="", help="names, by commas; all if left out")
    parser.add_argument("--depths", default="2,3,4", help="numbers of operators")
    parser.add_argument("--taso-only", action="store_true", help="leave the families out")
    given = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    complete = taso_set(console)
    if not given.taso_only:
        depths = [int(depth) for depth in given.depths.split(",")]
        families(console, [name for name in given.families.split(",") if name], depths)
    return 0 if complete else 1


if __name__ == "__main__":
    raise SystemExit(main())
