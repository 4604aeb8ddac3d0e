"""By how much the estimate of a kernel is off, and how sure that is: what trees have learned."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean

import numpy as np

from xflow.core.errors import XflowError
from xflow.cost.learned.features import Features, KernelCall, features
from xflow.cost.learned.trees import Trees

SHIPPED = Path(__file__).with_name("correction.npz")
MOST = 3.0
"""How far a kernel may be corrected, as a logarithm to the base of 2."""


@dataclass(frozen=True)
class Off:
    """By how much the estimate of a kernel is off, and the standard error of that.

    Both are logarithms to the base of 2: at 1, the kernel takes twice as long as is estimated.
    """

    mean: float
    error: float

    @property
    def shrunk(self) -> float:
        """What of it counts: nothing where it is no more than its error, nearly all where it is
        much more (James and Stein, 1961)."""
        if not self.mean:
            return 0.0
        part = max(0.0, 1.0 - (self.error / self.mean) ** 2)
        return min(MOST, max(-MOST, part * self.mean))


class Correction:
    """Trees in parts, each learned without a part of the data, and the kinds of known kernels.

    `usual` has what each part says of the usual kernel of a kind, in the median. How long that
    takes differs from machine to machine, and is not corrected; what counts is by how much others
    of the kind are off more or less, as far as the parts agree on that. Kernels of other kinds are
    not corrected at all. Raises ValueError where a kind has not a number for each part.
    """

    def __init__(self, trees: Trees, usual: Mapping[str, Sequence[float]]) -> None:
        self.trees = trees
        self.usual = {kind: tuple(usual[kind]) for kind in sorted(usual)}
        if any(len(each) != len(trees.parts) for each in self.usual.values()):
            raise ValueError("a kind of kernel has not a number for each part")
        if not all(math.isfinite(number) for each in self.usual.values() for number in each):
            raise ValueError("what is said of a kind of kernel is no number")

    @property
    def kinds(self) -> Set[str]:
        """The kinds of kernels that are corrected."""
        return self.usual.keys()

    @classmethod
    def read(cls, path: Path) -> Correction:
        """Read a file. Raises XflowError where it is none."""
        try:
            trees, others = Trees.read(path)
            kinds, usual = others["kinds"], others["usual"]
            if kinds.dtype.kind != "U" or usual.dtype.kind != "f" or usual.ndim != 2:
                raise ValueError("it has no kinds of kernels")
            return cls(trees, dict(zip(kinds.tolist(), usual.tolist(), strict=True)))
        except (OSError, ValueError, TypeError, KeyError) as error:
            what = f"what the learned cost has learned cannot be read: {error}"
            raise XflowError(what, str(path), "install xflow anew") from error

    def write(self, path: Path) -> None:
        """Write a file that `read` reads, the same for the same correction."""
        usual = np.array(list(self.usual.values())).reshape(-1, len(self.trees.parts))
        self.trees.write(path, kinds=np.array(list(self.usual), np.str_), usual=usual)

    def of(self, found: Features) -> Off:
        """By how much the estimate of a kernel with these features is off, beside others like it.

        The error is that of a jackknife: how the parts differ, each of which lacks other data.
        """
        usual = self.usual.get(kind_of(found))
        if usual is None:
            return Off(0.0, 0.0)
        told = self.trees(self.trees.row(found))
        parts = [each - mine for each, mine in zip(told, usual, strict=True)]
        mean = fmean(parts)
        spread = math.fsum((part - mean) ** 2 for part in parts)
        return Off(mean, math.sqrt(spread * (len(parts) - 1) / len(parts)))

    def __call__(self, kernel: KernelCall) -> float:
        """The factor by which the estimated seconds of a kernel are multiplied.

        It is rounded to 32 bits, in which powers are the same on any machine.
        """
        return float(np.float32(2.0 ** self.of(features(kernel)).shrunk))

    @cached_property
    def digest(self) -> str:
        """Equal for equal corrections."""
        text = f"{self.trees.digest} {self.usual}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Correction) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Correction({self.digest})"


def kind_of(found: Features) -> str:
    """The operator of a kernel, how it is counted, and the width of its elements in bytes."""
    named = sorted(name for name in found if name.startswith(("is ", "counted as ")))
    return f"{', '.join(named)}, {found.get('width', 0):g} bytes"


@cache
def shipped() -> Correction:
    """The correction that comes with the program. Raises XflowError where it is damaged."""
    return Correction.read(SHIPPED)
