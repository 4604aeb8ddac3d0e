"""The chunks of the job: pieces of work that are pure functions of what they hold.

They pickle, and their keys name them in the journal: equal data, equal key, in every process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

from xflow.generator.enumeration.enumerate import enumerate_terms
from xflow.generator.filtering import filtering_rules
from xflow.generator.generalization.definitions import definitional_rules
from xflow.generator.generalization.generalize import Generalizer
from xflow.generator.generalization.propose import Proposal, propose
from xflow.generator.generalization.skeleton import Point, take_apart
from xflow.generator.idle import is_idle, may_matter
from xflow.generator.runner.codec import Code, decode, digest, encode
from xflow.generator.saturation.base import consequences
from xflow.generator.saturation.gaps import database_of, is_gap, stanzas
from xflow.generator.settle import Settled, settle, settle_first
from xflow.generator.vocabulary import Vocabulary
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.rounding.measure import measure

Result_co = TypeVar("Result_co", covariant=True)


class Chunk(Generic[Result_co]):
    """A piece of work; `kind` is what the report calls it."""

    kind: ClassVar[str]

    @cached_property
    def key(self) -> str:
        """The name of this work: a digest of its kind and of everything it depends on."""
        return digest(self.kind, self)

    @property
    def about(self) -> str:
        """Its subject in words, for messages."""
        raise NotImplementedError

    def run(self) -> Result_co:
        """Do it."""
        raise NotImplementedError


@dataclass(frozen=True)
class ProposalCode:
    """A proposal as plain data: source and target, and the numbers of all pairs like them."""

    pair: Code
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Explored:
    """The result of enumerating a vocabulary: counts, and proposals in the order of decision."""

    counts: Counter[str]
    proposals: tuple[ProposalCode, ...]
    idle: tuple[ProposalCode, ...] = ()
    """Idle proposals: no search needs them, but a derivation may."""


@dataclass(frozen=True)
class Explore(Chunk[Explored]):
    """Enumerate a vocabulary, and propose."""

    kind: ClassVar[str] = "enumerate"
    vocabulary: Vocabulary
    seed: int
    max_ops: int

    @property
    def about(self) -> str:
        return f"the vocabulary {self.vocabulary.name}"

    def run(self) -> Explored:
        found = enumerate_terms(self.vocabulary, self.seed, self.max_ops)
        counts: Counter[str] = Counter(graphs=found.graphs, classes=found.classes)
        proposals = propose(found.candidates, self.vocabulary, self.seed, counts)
        wanted: list[ProposalCode] = []
        idle: list[ProposalCode] = []
        for item in proposals:
            if self.vocabulary.searched and not is_idle(item, self.vocabulary):
                wanted.append(_code(item))
            elif may_matter(item):
                idle.append(_code(item))
        counts.update(proposed=len(proposals), idle=len(proposals) - len(wanted))
        return Explored(counts, tuple(wanted), tuple(idle))


def _code(proposal: Proposal) -> ProposalCode:
    return ProposalCode(encode((proposal.source, proposal.target)), tuple(proposal.points))


@dataclass(frozen=True)
class Equated:
    """Terms that equal the region of a model."""

    terms: tuple[Code, ...]


_keys: dict[int, tuple[Vocabulary, str]] = {}


def vocabulary_key(vocabulary: Vocabulary) -> str:
    """A digest of a vocabulary, worked out once for each object, since many chunks hold it."""
    found = _keys.get(id(vocabulary))
    if found is None:  # the object is kept, so that its id is not reused
        found = _keys[id(vocabulary)] = (vocabulary, digest(vocabulary))
    return found[1]


@dataclass(frozen=True)
class State(Chunk[tuple[str, ...]]):
    """State equations that are known from how they are made: the texts of rules."""

    kind: ClassVar[str] = "define"
    what: str
    """A key of `STATED`."""
    seed: int

    @property
    def about(self) -> str:
        return self.what

    def run(self) -> tuple[str, ...]:
        return tuple(map(str, STATED[self.what](self.seed)))


STATED: Mapping[str, Callable[[int], Iterable[Rule]]] = {
    "the definitions of composite operators": definitional_rules,
    "algorithms of minimal filtering": lambda seed: filtering_rules(),
}
"""What is stated, as a function of the seed."""


@dataclass(frozen=True)
class Judged:
    """Verdicts on the rules of a proposal, the most general first, up to the first proved."""

    settled: tuple[Settled, ...]
    further: tuple[str, ...]
    """Less general rules that were not tried."""


@dataclass(frozen=True)
class Judge(Chunk[Judged]):
    """Generalise a proposal, and prove the plausible rules."""

    kind: ClassVar[str] = "prove"
    vocabulary: Vocabulary
    proposal: ProposalCode
    seed: int

    @property
    def about(self) -> str:
        source, target = decode(self.proposal.pair)
        return f"the proposal {source} = {target}"

    @cached_property
    def key(self) -> str:
        return digest(self.kind, vocabulary_key(self.vocabulary), self.proposal, self.seed)

    def run(self) -> Judged:
        source, target = decode(self.proposal.pair)
        skeleton, _ = take_apart(source, target, self.vocabulary)
        generalizer = Generalizer(self.vocabulary, self.seed)
        rules = generalizer.rules(skeleton, self.proposal.points)
        return Judged(*settle_first(rules, self.seed))


@dataclass(frozen=True)
class Settle(Chunk[Settled]):
    """Prove one rule."""

    kind: ClassVar[str] = "prove"
    text: str
    seed: int

    @property
    def about(self) -> str:
        return " ".join(self.text.split())

    def run(self) -> Settled:
        (rule,) = parse_rules(self.text)
        return settle(rule, self.seed)


@dataclass(frozen=True)
class Consequence:
    """The numbers of the rules that a rule follows from, and whether it does so plainly."""

    numbers: tuple[int, ...]
    is_plain: bool


@dataclass(frozen=True)
class Compare(Chunk[dict[int, Consequence]]):
    """Which of a family's rules follow from others; `own` and `known` are numbered in one row."""

    kind: ClassVar[str] = "compare"
    own: tuple[str, ...]
    known: tuple[str, ...]

    @property
    def about(self) -> str:
        return f"what {len(self.own)} rules follow from"

    def run(self) -> dict[int, Consequence]:
        rules = parse_rules(stanzas((*self.own, *self.known)))
        number = {rule.name: i for i, rule in enumerate(rules)}
        found = consequences(rules[: len(self.own)], rules[len(self.own) :])
        return {
            number[name]: Consequence(tuple(number[rule] for rule in f.rules), f.is_plain)
            for name, f in found.items()
        }


@dataclass(frozen=True)
class FindGaps(Chunk[tuple[bool, ...]]):
    """Which of some equations the rules do not derive, see `is_gap`."""

    kind: ClassVar[str] = "gaps"
    pairs: tuple[Code, ...]
    rules: tuple[str, ...]

    @property
    def about(self) -> str:
        return f"what explains {len(self.pairs)} equations"

    def run(self) -> tuple[bool, ...]:
        database = database_of(stanzas(self.rules))
        sides = [decode(pair) for pair in self.pairs]
        return tuple(is_gap(source, target, database) for source, target in sides)


@dataclass(frozen=True)
class Measure(Chunk[str]):
    """Measure what rounding does to a rule: its line `numerics`."""

    kind: ClassVar[str] = "numerics"
    text: str

    @property
    def about(self) -> str:
        return f"the rounding of {' '.join(self.text.split())}"

    def run(self) -> str:
        (rule,) = parse_rules(self.text)
        return str(measure(rule))
