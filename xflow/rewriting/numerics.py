"""The `numerics` line of a rule: what rounding does to each side, and where it must not be used.

    numerics fp32 2^-24 2^-23, extreme 2^-23 2^-9; ...; cancels: forward; refused: none

For each element type the largest relative error of the left and of the right side, at ordinary
magnitudes and at extreme ones (``inf`` where a side overflows and the result would not). Then the
directions by which digits may be lost that the other side keeps, where inputs nearly cancel each
other: these are applied only where that is seen not to happen, see `xflow.rewriting.cancellation`.
Likewise, named by ``offsets``, those by which they are lost where two inputs nearly cancel and
another one is small: there, only constants count, as means that are subtracted. Then the directions
that lose too much anyway: in all element types, or in those named. One that loses too much at
elements that are small beside others of the same tensor, and at no others, is refused for
``elements``: it may be used where errors count against the largest elements, as is said of fast
algorithms for products and convolutions (Higham, *Accuracy and Stability of Numerical Algorithms*,
2002, chapter 23).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import IntEnum

from xflow.core.errors import RuleFileError

TYPES = {"fp32": "FLOAT", "fp16": "FLOAT16", "bf16": "BFLOAT16"}
"""ONNX names of the element types that are measured."""

EVERYWHERE = frozenset({*TYPES.values(), "DOUBLE"})
"""What a refusal without a type stands for: what fails in fp32 fails in fp64, only later."""

NARROW = frozenset({TYPES["fp16"], TYPES["bf16"]})
"""Those in which the runtime's processor kernels differ by how they compute in between."""

ELEMENTS = "elements"
"""The reason of a refusal that does not count where errors are measured by a tensor's norm."""

EXACT = "exact"
UNMEASURED = "not measured"

_NUMBER = r"(?:0|inf|2\^-?\d+)"
_FIGURES = re.compile(rf"(\w+) ({_NUMBER}) ({_NUMBER}), extreme ({_NUMBER}) ({_NUMBER})")
_REFUSAL = re.compile(r"(forward|reverse)(?: in (\w+))? \(([^()]+)\)")
CANCELS, OFFSETS = "cancels: ", "offsets: "
_TURNED = {"forward": "reverse", "reverse": "forward"}


class Hazard(IntEnum):
    """Where a direction may lose digits that the other side keeps."""

    NONE = 0
    OFFSETS = 1
    """Where an input nearly is a constant that is subtracted from it."""
    CANCELLATION = 2
    """Where any inputs nearly cancel each other."""
    WEIGHTS = 3
    """Where products with constants are exact, as with an identity matrix or differences: there are
    many such rules, and few such constants."""

    def includes(self, other: Hazard) -> bool:
        """Whether who avoids this hazard avoids the other one: `WEIGHTS` is the last to be."""
        return bool(self and other) and (self is Hazard.WEIGHTS or other is not Hazard.WEIGHTS)


@dataclass(frozen=True)
class Figures:
    """Relative errors in one element type, as text: powers of two, ``0`` or ``inf``."""

    type: str
    left: str
    right: str
    extreme_left: str
    extreme_right: str

    def turned(self) -> Figures:
        """With left and right exchanged."""
        return Figures(self.type, self.right, self.left, self.extreme_right, self.extreme_left)

    def __str__(self) -> str:
        ordinary = f"{self.type} {self.left} {self.right}"
        return f"{ordinary}, extreme {self.extreme_left} {self.extreme_right}"


@dataclass(frozen=True)
class Refusal:
    """A direction, ``forward`` or ``reverse``, that is not to be used, and why."""

    direction: str
    reason: str
    type: str = ""
    """The element type that it is refused in, such as ``fp16``; empty: all of them."""

    @property
    def element_types(self) -> frozenset[str]:
        """ONNX names of the element types that it is refused in."""
        return frozenset({TYPES[self.type]}) if self.type else EVERYWHERE

    def __str__(self) -> str:
        where = f" in {self.type}" if self.type else ""
        return f"{self.direction}{where} ({self.reason})"


@dataclass(frozen=True)
class Numerics:
    """What was measured of a rule. `figures` is empty where `note` says why there are none."""

    figures: tuple[Figures, ...]
    refusals: tuple[Refusal, ...] = ()
    note: str = ""
    cancels: tuple[str, ...] = ()
    """The directions, ``forward`` or ``reverse``, that lose digits where inputs nearly cancel."""

    offsets: tuple[str, ...] = ()
    """Those that do where two inputs nearly cancel and another one is small."""

    @property
    def hazard(self) -> Hazard:
        """Where digits may be lost by using the rule from left to right."""
        if "forward" in self.cancels:
            return Hazard.CANCELLATION
        return Hazard.OFFSETS if "forward" in self.offsets else Hazard.NONE

    @property
    def refused(self) -> frozenset[str]:
        """ONNX names of the element types in which the rule must not be used left to right."""
        return self.refused_by()

    def refused_by(self, *, normwise: bool = False) -> frozenset[str]:
        """The same where errors are measured by each element, or `normwise`, by the largest."""
        return frozenset[str]().union(
            *(
                item.element_types
                for item in self.refusals
                if item.direction == "forward" and not (normwise and item.reason == ELEMENTS)
            )
        )

    def turned(self) -> Numerics:
        """The same of the rule with its sides exchanged."""
        refusals = (replace(item, direction=_TURNED[item.direction]) for item in self.refusals)
        return Numerics(
            tuple(item.turned() for item in self.figures),
            tuple(refusals),
            self.note,
            tuple(sorted(_TURNED[direction] for direction in self.cancels)),
            tuple(sorted(_TURNED[direction] for direction in self.offsets)),
        )

    def __str__(self) -> str:
        refused = ", ".join(map(str, self.refusals)) or "none"
        parts = [self.note] if self.note else [str(item) for item in self.figures]
        for name, directions in ((CANCELS, self.cancels), (OFFSETS, self.offsets)):
            parts += [f"{name}{', '.join(directions)}"] if directions else []
        return "; ".join([*parts, f"refused: {refused}"])


def _pop_directions(parts: list[str], name: str) -> tuple[str, ...]:
    """The directions that the last of `parts` lists under a name; none where it is another part."""
    if not parts or not parts[-1].startswith(name):
        return ()
    found = tuple(parts.pop().removeprefix(name).split(", "))
    if not set(found) <= _TURNED.keys():
        raise RuleFileError(f"{', '.join(found)!r} are no directions")
    return found


def parse_numerics(text: str) -> Numerics:
    """Read a line. Raises RuleFileError."""
    *parts, last = text.split("; ")
    figures: list[Figures] = []
    note = ""
    offsets, cancels = (_pop_directions(parts, name) for name in (OFFSETS, CANCELS))
    for part in parts:
        match = _FIGURES.fullmatch(part)
        if part in (EXACT, UNMEASURED) and len(parts) == 1:
            note = part
        elif match is None or match[1] not in TYPES:
            raise RuleFileError(f"{part!r} is no figure of a numerics line")
        else:
            figures.append(Figures(*match.groups()))
    if not last.startswith("refused: "):
        raise RuleFileError("a numerics line ends with what is refused", do="or with refused: none")
    refusals: list[Refusal] = []
    items = last.removeprefix("refused: ")
    for item in [] if items == "none" else items.split(", "):
        match = _REFUSAL.fullmatch(item)
        if match is None or (match[2] and match[2] not in TYPES):
            raise RuleFileError(f"{item!r} is no direction that is refused")
        refusals.append(Refusal(match[1], match[3], match[2] or ""))
    return Numerics(tuple(figures), tuple(refusals), note, cancels, offsets)
