"""Vocabularies: inputs of concrete sizes and productions over sorts, from which terms are built.

Sizes are *collapsed*: axes that a rule tells apart share a size (square matrices, as many output
channels as input channels), because otherwise few graphs would type. Generalisation takes the
sizes apart again. A size 1 stands for itself in every rule; other sizes become symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from xflow.core.node import TensorType, Value, leaf
from xflow.core.registry import Attributes
from xflow.core.sorts import INT
from xflow.generator.drawn import Drawn
from xflow.generator.equations import steps
from xflow.generator.production import Production
from xflow.ops import operator

DTYPE = "FLOAT"
"""Element type of enumerated terms: rules are matched on them as on models."""


def type_made(op: str) -> str:
    """The element type of an operator without inputs: integers where it supports no other."""
    return "INT64" if operator(op).sorts == frozenset({INT}) else DTYPE


@dataclass(frozen=True)
class Input:
    """An input: `dims` name its axes as rules should (``N C *S``; ``...`` for any shape).

    A number in the place of a name says that a rule is to be stated for this extent alone.
    """

    name: str
    sort: str
    dims: str
    sizes: tuple[int, ...]
    dtype: str = DTYPE
    """``BOOL`` for conditions, ``INT64`` for places of an axis of extent 3 or more."""
    positive: bool = False
    """Drawn without negative elements, where a function is defined for no others. The prover does
    not assume it."""
    sign: str = ""
    """``> 0`` for an input of which rules may say that, as of a scale, and ``>= 0``. They do where
    they are not proved without, or of a weaker sign."""

    @property
    def names(self) -> tuple[str, ...]:
        """A preferred name for each axis, without the star of a vector."""
        return tuple(name.removeprefix("*") for name in self.dims.split())

    @property
    def vector(self) -> tuple[bool, ...]:
        """For each axis whether it stands for any number of axes."""
        return tuple(name.startswith("*") for name in self.dims.split())

    @property
    def literal(self) -> tuple[bool, ...]:
        """For each axis whether rules are stated for its extent alone."""
        pairs = zip(self.names, self.sizes, strict=True)
        return tuple(size == 1 or name.isdigit() for name, size in pairs)

    @property
    def any_shape(self) -> bool:
        """Whether it is an input of any shape, for elementwise operators alone."""
        return self.dims == "..."

    @property
    def value(self) -> Value:
        """The leaf."""
        return leaf(self.name, TensorType(self.dtype, self.sizes))


@dataclass(frozen=True)
class Vocabulary:
    """One enumeration. Sorts in `free` depend on weights alone and cost nothing at run time; so do
    all that are made of these alone, or of nothing, and they are found in `free` as well.

    `limits[n]` is the largest number of free operators in a term of n operators that cost.
    `exact`: sums, products and maxima alone, so that float64 computes without rounding.
    `ranks` are the lengths of vectors at which rules are stated.
    """

    name: str
    inputs: tuple[Input, ...]
    productions: tuple[Production, ...] = ()
    limits: tuple[int, ...] = (0, 0, 0)
    free: frozenset[str] = frozenset()
    exact: bool = True
    ranks: tuple[int, ...] = (0,)
    roots: frozenset[str] = frozenset({"x"})
    """Sorts whose equal terms are proposed as rules."""
    chain: bool = False
    """Its sorts are stages of one computation: deep terms are few, so a limit on the operators of
    a run does not cut them off."""
    reach: int = 1
    """A factor of all elements of inputs, where constants of the vocabulary are large."""
    ties: bool = False
    """Draw elements that are often equal and often 0, for comparisons."""
    reals: Mapping[Fraction, str] = field(default_factory=dict)
    """Numbers that stand for real symbols of rules, such as an epsilon: they mean nothing else."""
    signs: Mapping[str, str] = field(default_factory=dict)
    """The signs that rules may ask of these symbols, see `Input.sign`."""
    literal: frozenset[str] = frozenset()
    """Operators whose integers stand for themselves in every rule."""
    by_example: bool = False
    """Whether what operators leave open of sizes is taken from the enumerated pair: which axes a
    `Reshape` splits and merges, which channels a convolution groups, which extents a constant has.
    Sizes that mean different things must differ then. The end of a slice is free from the start,
    and a convolution may be required to have one group."""
    searched: bool = True
    """Whether the search is to have its rules: if not, those that no others explain are in the base
    alone, as of two ways to write one thing that costs the same in both."""
    alike: bool = False
    """Whether equal numbers that attributes of one name have may be one symbol of a rule, whatever
    operators have them, as where a stride goes from a pool into a convolution."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "free", _made_of(self.free, self.inputs, self.productions))

    def steps(self, *texts: str, **given: Sequence[Attributes]) -> Vocabulary:
        """With these equations as its productions, see `xflow.generator.equations.steps`.

        Raises ValueError where it has productions already: what is free depends on all of them.
        """
        if self.productions:
            raise ValueError(f"{self.name} has productions")
        made = tuple(production for text in texts for production in steps(text, **given))
        return replace(self, productions=made)

    @property
    def drawn(self) -> Drawn:
        """How elements of inputs are drawn."""
        positive = frozenset(item.name for item in self.inputs if item.positive or item.sign)
        return Drawn(positive, self.reach, self.ties)


@dataclass(frozen=True)
class Family:
    """A file of rules: vocabularies that are enumerated one after the other."""

    name: str
    vocabularies: tuple[Vocabulary, ...] = ()
    states: str = ""
    """What it states, besides what its vocabularies find: a key of `STATED` in
    `xflow.generator.runner.chunks`."""
    about: str = field(default="", compare=False)


def _made_of(
    free: frozenset[str], inputs: Sequence[Input], productions: Sequence[Production]
) -> frozenset[str]:
    """The sorts in `free`, and those of which every term is made of these alone."""
    costly = {item.sort for item in inputs} - free
    made = {production.result for production in productions} - free
    while True:
        more = {p.result for p in productions if not {*p.args} <= (free | made) - costly}
        if more - free <= costly:
            return free | (made - costly)
        costly |= more - free
