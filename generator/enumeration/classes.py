"""Classes of terms with equal fingerprints: the fingerprint and the representative of each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from xflow.core.node import TensorType
from xflow.core.registry import Array


@cache
def salt(kind: str, type: TensorType) -> Array:
    """Two integers that make fingerprints of different sorts and types differ."""
    digest = hashlib.blake2b(f"{kind} {type}".encode(), digest_size=16).digest()
    return np.frombuffer(digest, np.uint64)


@dataclass
class Classes:
    """Fingerprints, and the number of the representative of each."""

    prints: Array = field(default_factory=lambda: np.zeros((0, 2), np.uint64))
    rows: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def owners(self, prints: Array) -> Array:
        """For each fingerprint the place of the first equal one among the known and these."""
        both = np.concatenate([self.prints, prints])
        sequence = np.lexsort(both.T)  # keeps the order of equal ones
        ordered = both[sequence]
        starts = np.ones(len(both), bool)
        starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        owner = np.empty(len(both), np.int64)
        owner[sequence] = sequence[starts][np.cumsum(starts) - 1]
        return owner[len(self) :]

    def extend(self, prints: Array, rows: Array) -> None:
        """Add classes that are new."""
        self.prints = np.concatenate([self.prints, prints])
        self.rows = np.concatenate([self.rows, rows])
        self.__dict__.pop("_by_print", None)

    @cached_property
    def _by_print(self) -> dict[bytes, int]:
        keys = np.ascontiguousarray(self.prints).view("V16").reshape(-1).tolist()
        return dict(zip(keys, self.rows.tolist(), strict=True))

    def find(self, print_: Array) -> int | None:
        """The representative of the class with this fingerprint; None where there is none."""
        return self._by_print.get(np.ascontiguousarray(print_).tobytes())
