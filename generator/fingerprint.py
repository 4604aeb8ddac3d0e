"""Fingerprints: what a term evaluates to on a few random inputs.

Inputs are dyadic rationals k/4 with 1 <= |k| <= 7, held in float64. Sums, products and maxima of
them are exact at the depths enumerated here, which is asserted; so equal fingerprints differ from
equality only by chance, and order is the true one. Functions that are not rational are compared
to nine digits; for these a fingerprint proposes and says nothing else.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from xflow.errors import ShapeError
from xflow.graph import Leaf, Node, Value
from xflow.ops.registry import Array, Operator

GRID = float(2**20)
BOUND = float(2**30)


def random_dyadics(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Random k/4 with 1 <= |k| <= 7, both signs."""
    magnitude = rng.integers(1, 8, tuple(shape)) / 4.0
    return np.asarray(magnitude * rng.choice((-1.0, 1.0), tuple(shape)))


@dataclass
class Evaluator:
    """Evaluates terms at `draws` random inputs, each node once."""

    seed: int
    draws: int = 3
    exact: bool = True
    _memo: dict[Node, list[list[Array]]] = field(default_factory=dict)

    def _leaf(self, node: Node) -> list[list[Array]]:
        assert isinstance(node.op, Leaf)
        results = []
        for draw in range(self.draws):
            # The name decides the draw, not the order in which leaves are met.
            rng = np.random.default_rng([self.seed, draw, zlib.crc32(node.op.key.encode())])
            shape = [int(str(size)) for size in node.types[0].shape]
            results.append([random_dyadics(rng, shape)])
        return results

    def of(self, node: Node) -> list[list[Array]]:
        """For each draw the outputs of `node`."""
        found = self._memo.get(node)
        if found is None:
            if isinstance(node.op, Leaf):
                found = self._leaf(node)
            else:
                assert isinstance(node.op, Operator)
                below = [(self.of(value.node), value.index) for value in node.inputs]
                with np.errstate(all="ignore"):
                    found = [
                        node.op.numpy([of[draw][index] for of, index in below], node.attributes)
                        for draw in range(self.draws)
                    ]
            self._memo[node] = found
        return found

    def key(self, value: Value) -> bytes | None:
        """A digest of the values of `value`; None where one is not finite.

        Raises ShapeError where the term's arrays are not of its shape.
        """
        digest = hashlib.blake2b(digest_size=16)
        for outputs in self.of(value.node):
            array = np.asarray(outputs[value.index], dtype=np.float64)
            if array.shape != value.shape:
                raise ShapeError(f"{value} evaluates to {array.shape}, not {value.shape}")
            if self.exact:
                scaled = array * GRID
                assert array.size == 0 or np.abs(array).max() < BOUND, value
                assert bool((scaled == np.rint(scaled)).all()), value
            elif not np.isfinite(array).all():
                return None
            else:
                array = rounded(array)
            digest.update(np.ascontiguousarray(array + 0.0).tobytes())  # + 0.0: no negative zero
        return digest.digest()


def rounded(array: Array, digits: int = 9) -> Array:
    """`array` to so many significant digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.floor(np.log10(np.abs(array)))
    exponent = np.where(np.isfinite(exponent), exponent, -12.0)
    scale = 10.0 ** (np.maximum(exponent, -12.0) - (digits - 1))
    return np.asarray(np.rint(array / scale) * scale)
