"""The constants of a graph as the search may see them, and what is known of its values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from xflow.analysis.observers import Observed, contexts
from xflow.analysis.on_codes import OnCodes
from xflow.analysis.ranges import Ranges, coarse, without_sign
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.fold import ConstantLookup, with_expressions
from xflow.core.graph import Graph
from xflow.core.node import Node, Value, leaf
from xflow.core.registry import Array
from xflow.core.sorts import CODES, FLOATS
from xflow.core.value_conditions import exact_sums
from xflow.ops.quantized import weights_of
from xflow.rewriting.numerics import Hazard
from xflow.search.policy import POLICY, Policy
from xflow.search.region import Region


class Constants:
    """The constants of a graph as the search may see them, and analyses of its values.

    `assumption` says what these may assume, `outside` how the graph's outputs are observed, where
    it is a part of another.
    """

    def __init__(
        self,
        lookup: ConstantLookup,
        assumption: Assumption = DEFAULT,
        outside: Observed = Observed.NOWHERE,
        policy: Policy = POLICY,
    ) -> None:
        self.lookup = lookup
        self.policy = policy
        self.ranges = Ranges(lookup, assumption)
        self.outside = outside
        self.careful: dict[Node, Hazard] = {}
        """The nodes of regions of which a form lost digits, and by rules of which hazard."""
        self._keys: dict[Value, str | None] = {}
        self._on_codes: OnCodes | None = None

    def on_codes(self, graph: Graph) -> OnCodes:
        """What the runtime may compute on codes in a graph."""
        if self._on_codes is None or self._on_codes.graph is not graph:
            self._on_codes = OnCodes(graph, self.ranges)
        return self._on_codes

    def contexts(self, graph: Graph) -> Mapping[Value, Observed]:
        """How each value of a graph is observed."""
        return contexts(graph, [self.outside] * len(graph.outputs))

    def leaf(
        self, name: str, value: Value, readers: Iterable[Node], blocked: bool = False
    ) -> Value:
        """A leaf that stands for a value, with the facts about it that matter to `readers`.

        These are the nodes that read it. Whether weights are positive, say, matters only where
        values computed from them are numbers for that reason: weights of other layers may not be.
        """
        dtype = value.type.dtype
        if dtype not in FLOATS:
            exact = self._exact_sums(value, readers)
            return leaf(
                name,
                value.type,
                constant=value.is_constant,
                blocked=blocked,
                known=None if value.is_leaf else self.ranges.of(value),  # computed: no input
                exact_sums=exact,
            )
        known = self.ranges.of(value)
        least = coarse(known, dtype, constant=value.is_constant)
        if value.is_constant and known.is_real:
            plain = without_sign(least, dtype)
            if not any(node.constant for node in readers) and all(
                self.ranges.is_real_with(node, value, plain) for node in readers
            ):
                least = plain
        return leaf(
            name,
            value.type,
            constant=value.is_constant,
            blocked=blocked,
            known=least,
        )

    def _exact_sums(self, value: Value, readers: Iterable[Node]) -> bool:
        """Whether sums of products with a constant of codes are exact.

        That is so for all that reads it: for products of codes, less their zero points.
        """
        is_constant = value.is_constant and value.type.dtype in CODES
        codes = self.lookup(value) if is_constant else None
        pairs = [weights_of(node) or (None, None) for node in readers]
        zeros = [zero if weights is value else None for weights, zero in pairs]
        if codes is None or not zeros:
            return False
        less = [None if zero is None else self.lookup(zero) for zero in zeros]
        if any(zero is not None and data is None for zero, data in zip(zeros, less, strict=True)):
            return False
        return all(exact_sums(codes, each) for each in less)

    def key(self, value: Value) -> str | None:
        """A key of the data of `value`; None if rules must not depend on it."""
        if value not in self._keys:
            array = self.lookup(value) if value.is_leaf else None
            self._keys[value] = None if array is None else self._digest(array)
        return self._keys[value]

    def of(self, region: Region) -> ConstantLookup:
        """The lookup for the leaves of a region, and for small expressions over them."""
        own = region.own

        def find(value: Value) -> Array | None:
            source = own.get(value)
            if source is None or not source.is_constant or self.key(source) is None:
                return None
            return self.lookup(source)

        return with_expressions(find, self.policy.told_apart)

    def _digest(self, array: Array) -> str | None:
        """A hash of data that a rule could recognise: small, uniform, or of zeros and ones."""
        if array.size == 0 or array.dtype.kind not in "biuf":
            return None
        if array.size > self.policy.told_apart:
            sample = array.reshape(-1)[:64]
            if np.all(sample == sample[0]) and np.all(array == sample[0]):
                array = array.reshape(-1)[:1]
            elif not (_is_mask(sample) and _is_mask(array)):
                return None
        data = np.ascontiguousarray(array).tobytes()
        return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + data).hexdigest()[:16]


def _is_mask(array: Array) -> bool:
    """Whether an array is of zeros and ones."""
    return bool(np.all((array == 0) | (array == 1)))
