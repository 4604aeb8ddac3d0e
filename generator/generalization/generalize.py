"""Generalisation: from pairs of concrete graphs to a rule over symbols.

Sizes come from unification, attributes that vary among the pairs of one skeleton from fitting,
and attributes that do not vary are set free one kind at a time for as long as both sides still
agree at random sizes. All of it only proposes: the prover decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from xflow.core.errors import XflowError
from xflow.core.size import Size
from xflow.generator.generalization.fit import fit
from xflow.generator.generalization.sample import try_instance
from xflow.generator.generalization.skeleton import Point, Skeleton
from xflow.generator.generalization.typing import slot_symbol, unify
from xflow.generator.generalization.wording import NotUniformError, Wording
from xflow.generator.vocabulary import Vocabulary
from xflow.ops import operator, operators
from xflow.rewriting.instance import leaves_of
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules

LIFTED = ("strides", "dilations", "pads", "kernel_shape", "group", "starts", "ends", "scales")
"""Attributes that may be set free, in the order in which that is tried one by one."""


@dataclass
class Generalizer:
    """Generalises the pairs of one vocabulary."""

    vocabulary: Vocabulary
    seed: int

    def rules(self, skeleton: Skeleton, points: Sequence[Point]) -> Iterator[Rule]:
        """Plausible rules, the most general first."""
        starts = [fit(skeleton, points, weights_first) for weights_first in (True, False)]
        example = points[0] if self.vocabulary.by_example else None
        if example is not None:  # as extents are
            starts = [self._set_free(skeleton, numbers, ("ends",)) for numbers in starts]
        tried: list[list[Size]] = []
        for numbers in starts:
            if numbers in tried:
                continue
            tried.append(numbers)
            rule = self._plausible(skeleton, numbers, example)
            if rule is not None:
                # With padding, or without: a side may be undefined in what padding adds. And for
                # any number of groups, or not: few channels seldom show that there must be one.
                made: list[Rule] = []
                given = ("", "pads", *(("group",) if example is not None else ()))
                ways = (True, False) if self.vocabulary.alike else (False,)
                for fixed, alike in product(given, ways):
                    kinds = [name for name in LIFTED if name != fixed]
                    lifted = self._lift(skeleton, numbers, kinds, example, alike)
                    if lifted is None or lifted in made:
                        continue
                    made.append(lifted)
                    # Symbols on one side only would leave the way back without their values.
                    if is_determined(lifted) >= is_determined(rule):
                        yield lifted
                yield rule
                return

    def _lift(
        self,
        skeleton: Skeleton,
        numbers: list[Size],
        among: Iterable[str],
        example: Point | None,
        alike: bool,
    ) -> Rule | None:
        """The rule with as many attributes set free as is plausible; None where none is.

        For `alike` see `_set_free`.
        """
        kinds = [name for name in among if self._set_free(skeleton, numbers, (name,)) != numbers]
        if not kinds:
            return None
        free = self._set_free(skeleton, numbers, kinds, alike=alike)
        best = self._plausible(skeleton, free, example)
        for name in kinds if best is None else ():
            # The same attribute of different operators need not mean the same: a Pad of channels
            # leaves the borders of an image as they are, whatever the padding of a pool is.
            ops = sorted({_plainest(s.op) for s in skeleton.slots if s.attribute == name})
            for among_ops in ((), *((op,) for op in ops if len(ops) > 1)):
                wider = self._set_free(skeleton, numbers, (name,), among_ops, alike=alike)
                if wider == numbers:
                    continue
                lifted = self._plausible(skeleton, wider, example)
                if lifted is not None:
                    best, numbers = lifted, wider
                    if not among_ops:
                        break
        return best

    def _set_free(
        self,
        skeleton: Skeleton,
        numbers: Sequence[Size],
        names: Iterable[str],
        ops: Sequence[str] = (),
        *,
        alike: bool = False,
    ) -> list[Size]:
        """Replace numbers that all nodes of one operator share by a symbol that they share.

        Of `ops` only, if there are any. An operator that is another one on other types counts as
        that one. With `alike`, nodes of all operators share one for each number of an
        attribute that has several, the least of which stays: a stride of 1 is none.
        """
        result = list(numbers)
        met: dict[str, set[int]] = {}
        for slot, number in zip(skeleton.slots, numbers, strict=True):
            if alike and isinstance(number, int):
                met.setdefault(slot.attribute, set()).add(number)
        least = {name: min(some) for name, some in met.items() if len(some) > 1}
        groups: dict[tuple[object, ...], list[int]] = {}
        for j, slot in enumerate(skeleton.slots):
            op = _plainest(slot.op)
            if slot.attribute in names and slot.costs and (not ops or op in ops):
                number = numbers[j]
                shared = isinstance(number, int) and slot.attribute in least
                if shared and number == least[slot.attribute]:
                    continue
                groups.setdefault(
                    (slot.attribute, slot.position, number if shared else op), []
                ).append(j)
        for key, members in sorted(groups.items(), key=str):
            values = {numbers[j] if isinstance(numbers[j], int) else None for j in members}
            if key[0] == "scales" and values == {1}:
                continue  # an axis that is not enlarged: few operators support enlarging it
            if len(values) == 1 and None not in values and self._may_vary(skeleton, key, members):
                for j in members:
                    result[j] = slot_symbol(members[0], skeleton.slots[members[0]])
        return result

    def _may_vary(
        self, skeleton: Skeleton, key: tuple[object, ...], members: Sequence[int]
    ) -> bool:
        """Padding of whole tensors is set free along vectors only, if there are any."""
        if self.vocabulary.ranks == (0,):
            return True
        slot = skeleton.slots[members[0]]
        length = sum(
            other.node == slot.node and other.attribute == slot.attribute
            for other in skeleton.slots
        )
        return length <= 2 or slot.position in (length // 2 - 1, length - 1)

    def _plausible(
        self, skeleton: Skeleton, numbers: Sequence[Size], example: Point | None
    ) -> Rule | None:
        typing = unify(skeleton, numbers, example)
        if typing is None or any(
            isinstance(size, int) and size > 1 and not literal
            for item, shape in zip(skeleton.inputs, typing.shapes, strict=True)
            for literal, size in zip(item.literal, shape, strict=True)
        ):
            return None  # an extent that had to be one number is an accident of enumeration
        try:
            rule = Wording(skeleton, typing, self.vocabulary).rule()
        except NotUniformError:
            return None
        return rule if plausible(rule, self.seed) else None


@cache
def _plainest(name: str) -> str:
    """The operator that one is on other types, such as Conv for ConvInteger; else itself."""
    above = [each for each in operators() if isinstance(operator(name), type(each))]
    return min(above, key=lambda each: len(type(each).__mro__)).name


def plausible(rule: Rule, seed: int) -> bool:
    """Whether `rule` reads back and both sides agree at random sizes, at its first two ranks.

    A symbol that could have one value only is no generalisation: that is not plausible either.
    """
    try:
        (rule,) = parse_rules(str(rule), "candidate")
        if rule.lhs == rule.rhs:
            return False
        for rank in sorted(rule.ranks, key=lambda rank: (rank == 0, rank))[:2]:
            verdict = try_instance(rule.instance(rank), seed)
            if not verdict.plausible or (verdict.fixed and rank <= 1):
                return False
    except XflowError:
        return False
    return True


def is_determined(rule: Rule) -> tuple[bool, bool]:
    """For each direction whether one side says all inputs, sizes and numbers of the other."""
    there = back = True
    for instance in rule.instances():
        there = there and instance.is_determined
        back = back and replace(instance, lhs=instance.rhs, rhs=instance.lhs).is_determined
    return there, back


def reads_all(rule: Rule) -> bool:
    """Whether the right side is a term that reads all inputs of the left one.

    Numbers that only the left side has may be chosen when rewriting from right to left: by how
    much to pad, say. An input alone is not a term: every value is one.
    """
    return (
        all(
            leaves_of(instance.lhs) <= leaves_of(instance.rhs) and not instance.rhs[0].is_leaf
            for instance in rule.instances()
        )
        or is_determined(rule)[1]
    )
