"""The cost model of a search: estimates, and measurements that are kept and reused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from xflow.cost.estimate import Estimator, TargetModel
from xflow.cost.measure import Measurer
from xflow.cost.store import Place, Store, processor_name
from xflow.cost.worker import Failed
from xflow.fold import ConstantLookup
from xflow.graph import Graph, Leaf, Node, Opaque
from xflow.onnx_region import region_model
from xflow.onnx_writer import UnwritableError
from xflow.ops.registry import Attribute
from xflow.size import Expr, Size, substitute

LOADING_S = 20.0
"""What measuring a few regions may take beyond the time that they run: to load them."""


class Costs:
    """Prices regions on ONNX Runtime; `estimate` is the roofline, `measure` runs them.

    `constants` gives the data of constant leaves, `sizes` the size symbols of the model.
    """

    measures = True

    def __init__(
        self,
        measurer: Measurer,
        store: Store,
        constants: ConstantLookup,
        *,
        sizes: Mapping[str, int] | None = None,
        opset: int = 20,
    ) -> None:
        target = measurer.target
        self.estimate = Estimator(TargetModel(threads=target.threads))
        self._measurer = measurer
        self._store = store
        self._constants = constants
        self._sizes = sizes or {}
        self._opset = opset
        self._place = Place(
            processor_name(target.provider),
            target.provider,
            target.threads,
            measurer.runtime_version,
        )

    def measure(self, graphs: Sequence[Graph], seconds: float) -> list[float | None]:
        """The seconds that a run of each graph takes; None for one that cannot be run.

        Graphs are timed together with the first of them, and on its scale: what was stored for
        the first counts, so that the drift of the machine's speed cancels out between calls.
        """
        if not graphs:
            return []
        keys = [region_key(graph, self._sizes, self._opset) for graph in graphs]
        contexts = [keys[0], *(f"{keys[0]}/{key}" for key in keys[1:])]
        stored = [self._store.get(self._place, context) for context in contexts]
        known = [None if cost is None else cost.seconds for cost in stored]
        missing = [number for number, cost in enumerate(known) if cost is None]
        if not missing:
            return known
        chosen = sorted({0, *missing})
        models: dict[int, bytes] = {}
        for number in chosen:
            try:
                models[number] = region_model(
                    graphs[number], self._constants, sizes=self._sizes, opset=self._opset
                )
            except UnwritableError:
                continue
        if 0 not in models:
            return [None] * len(graphs)
        timings = self._measurer.time_together(
            list(models.values()), seconds, limit_s=2 * seconds + LOADING_S
        )
        by_number = dict(zip(models, timings, strict=True))
        first = by_number[0]
        if isinstance(first, Failed):
            return [None] * len(graphs)
        scale = 1.0 if known[0] is None else known[0] / first.median
        for number, timing in by_number.items():
            if known[number] is None and not isinstance(timing, Failed):
                median = timing.median * scale
                known[number] = median
                self._store.put(self._place, contexts[number], median, len(timing.samples))
        return known


def region_key(graph: Graph, sizes: Mapping[str, int], opset: int) -> str:
    """A hash of what a region computes: operators, attributes, types, not the data of weights."""
    numbers: dict[Node, int] = {}
    digest = hashlib.sha256(f"opset {opset}\n".encode())
    for node in graph.nodes:
        numbers[node] = len(numbers)
        inputs = [(numbers[value.node], value.index) for value in node.inputs]
        if isinstance(node.op, Leaf):
            what = "constant" if node.op.constant else "input"
        else:
            what = node.op.key if isinstance(node.op, Opaque) else node.op.name
        attributes = [(key, _plain(value, sizes)) for key, value in sorted(node.attributes.items())]
        types = [(kind.dtype, [_size(n, sizes) for n in kind.shape]) for kind in node.types]
        digest.update(f"{what} {inputs} {attributes} {types}\n".encode())
    outputs = [(numbers[value.node], value.index) for value in graph.outputs]
    digest.update(f"{outputs}".encode())
    return digest.hexdigest()


def _size(size: Size, sizes: Mapping[str, int]) -> str:
    return str(substitute(size, sizes))


def _plain(attribute: Attribute, sizes: Mapping[str, int]) -> str:
    if isinstance(attribute, tuple):
        return f"[{', '.join(_size(size, sizes) for size in attribute)}]"
    return _size(attribute, sizes) if isinstance(attribute, Expr) else str(attribute)
