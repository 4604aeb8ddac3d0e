"""An estimate of what a graph costs: a roofline, aware of the fusions of ONNX Runtime.

An operator takes the larger of its arithmetic at the peak of its class and its traffic at the
memory's bandwidth, and an overhead for the call. What the runtime fuses into the operator before
it is free; what depends on constants alone is computed once and free. The estimate only has to
rank graphs: what is kept, a measurement decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from xflow.graph import Graph, Leaf, Node, TensorType, Value
from xflow.ops.registry import Operator
from xflow.size import Size, free_symbols, product, substitute

BYTES = {"DOUBLE": 8, "INT64": 8, "UINT64": 8, "FLOAT16": 2, "BFLOAT16": 2, "BOOL": 1, "INT8": 1}
"""Bytes per element where they are not 4."""

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu", "Clip")


class Stage(IntEnum):
    """What a chain of fused operators has come to: weights absorb, a tensor is added, it ends."""

    WEIGHTS = 0
    SUM = 1
    ACTIVATION = 2


@dataclass(frozen=True)
class TargetModel:
    """The target as the estimate sees it: the machine's numbers and the runtime's fusions."""

    threads: int = 2
    peak: Mapping[str, float] = field(
        default_factory=lambda: {
            "Conv": 220e9, "ConvTranspose": 60e9, "MatMul": 180e9, "Gemm": 180e9,
        }
    )  # fmt: skip
    """Operations per second and thread, by operator; `other_peak` for the rest."""
    other_peak: float = 35e9
    bandwidth: float = 60e9
    """Bytes per second and thread, of tensors that the processor's own caches hold."""
    slow: Mapping[str, float] = field(
        default_factory=lambda: {
            "Div": 1.9, "Reciprocal": 1.9, "Sqrt": 3.0, "Max": 1.5, "Min": 1.5, "Greater": 1.5,
            "GreaterOrEqual": 1.5, "Less": 1.5, "LessOrEqual": 1.5, "Equal": 1.5, "Where": 2.5,
            "LeakyRelu": 2.2, "Pow": 3.0, "PRelu": 40.0, "Mean": 1.7, "Sum": 1.2,
        }
    )  # fmt: skip
    """How many times as long as a product the runtime takes for the same elements with operators
    that are as simple, but that it does not compute as well."""
    overhead: float = 5e-6
    """Seconds for each call of an operator."""
    views: frozenset[str] = frozenset(
        {"Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten", "Dropout"}
    )
    view_overhead: float = 1e-6
    """Seconds for an operator of `views`, which moves no data."""
    fused_overhead: float = 2e-7
    """Seconds for an operator that is fused into another: not quite nothing."""
    full_channels: int = 16
    """Channels of a group, in and out, from which a convolution reaches its peak."""
    fused: Mapping[str, Mapping[str, Stage]] = field(
        default_factory=lambda: {
            "Conv": {
                "BatchNormalization": Stage.WEIGHTS, "Mul": Stage.WEIGHTS, "Add": Stage.WEIGHTS,
                **dict.fromkeys(_ACTIVATIONS, Stage.ACTIVATION),
            },
            "MatMul": {"Add": Stage.WEIGHTS},
            "Gemm": dict.fromkeys(_ACTIVATIONS, Stage.ACTIVATION),
        }
    )  # fmt: skip
    """What the runtime does together with the operator before it, if nobody else reads that."""
    summed: frozenset[tuple[str, str]] = frozenset({("Conv", "Add")})
    """The fusions whose other operand may also be a computed tensor of the same shape."""
    channels: Mapping[str, int] = field(
        default_factory=lambda: {"Conv": 1, "MatMul": -1, "Gemm": -1}
    )
    """The axis along which constants may differ that go into the weights of an operator."""
    unknown_size: int = 16
    """What a symbolic size of the model is taken to be."""


class Estimator:
    """Estimates graphs for one target. Keeps what it has worked out for each node."""

    def __init__(self, target: TargetModel | None = None) -> None:
        self.target = target or TargetModel()
        self._seconds: dict[Node, float] = {}

    def __call__(self, graph: Graph) -> float:
        """The seconds that one run of `graph` takes."""
        readers: dict[Value, int] = dict.fromkeys(graph.outputs, 2)  # an output must exist
        for node in graph.nodes:
            for value in node.inputs:
                readers[value] = readers.get(value, 0) + 1
        total = 0.0
        chains: dict[Value, tuple[str, Stage]] = {}
        """For values that may be fused into: the operator at the head, and what followed it."""
        for node in graph.nodes:
            if node.constant or isinstance(node.op, Leaf):
                continue
            name = node.op.name if isinstance(node.op, Operator) else ""
            chain = self._fused(node, name, readers, chains)
            if chain is None:
                total += self.node(node)
                chain = name, Stage.WEIGHTS
            else:
                total += self.target.fused_overhead
            chains[Value(node, 0)] = chain
        return total

    def _fused(
        self,
        node: Node,
        name: str,
        readers: Mapping[Value, int],
        chains: Mapping[Value, tuple[str, Stage]],
    ) -> tuple[str, Stage] | None:
        """The chain that `node` is fused into, and where that then stands; None if into none."""
        for position, value in enumerate(node.inputs):
            if value not in chains or readers[value] != 1 or value.shape != node.types[0].shape:
                continue
            head, reached = chains[value]
            stage = self.target.fused.get(head, {}).get(name)
            if stage is None:
                continue
            others = [v for i, v in enumerate(node.inputs) if i != position]
            if not all(v.is_constant for v in others):
                if (head, name) not in self.target.summed:
                    continue
                if any(v.shape != value.shape for v in others):
                    continue
                stage = Stage.SUM
            elif stage == Stage.WEIGHTS and not self._suits_weights(node, others, head):
                continue
            if stage > reached or stage == reached == Stage.WEIGHTS:
                return head, stage
        return None

    def _suits_weights(self, node: Node, constants: Sequence[Value], head: str) -> bool:
        """Whether constants that `node` applies differ along the channels alone."""
        if not (isinstance(node.op, Operator) and node.op.elementwise):
            return True  # parameters of a normalization
        rank = len(node.types[0].shape)
        if not rank:
            return True
        channel = self.target.channels[head] % rank
        return all(
            size == 1 or axis == channel
            for value in constants
            for axis, size in enumerate(value.shape, rank - len(value.shape))
        )

    def node(self, node: Node) -> float:
        """The seconds that a node takes alone."""
        if node not in self._seconds:
            self._seconds[node] = self._node(node)
        return self._seconds[node]

    def _node(self, node: Node) -> float:
        target = self.target
        name = node.op.name if isinstance(node.op, Operator) else ""
        if name in target.views:
            return target.view_overhead
        moved = sum(map(self._bytes, (*(v.type for v in node.inputs), *node.types)))
        seconds = moved * target.slow.get(name, 1.0) / (target.bandwidth * target.threads)
        if isinstance(node.op, Operator):
            shapes = [value.shape for value in node.inputs]
            flops = node.op.flops(shapes, node.attributes, [t.shape for t in node.types])
            peak = target.peak.get(name, target.other_peak) * target.threads
            seconds = max(seconds, self._int(flops) / (peak * self._efficiency(node)))
        return seconds + target.overhead

    def _efficiency(self, node: Node) -> float:
        """The part of the peak that an operator with thin groups of channels reaches."""
        group = node.attributes.get("group")
        if group is None or len(node.inputs) < 2:
            return 1.0
        weight = [self._int(size) for size in node.inputs[1].shape]
        groups = self._int(group) if isinstance(group, int) else 1
        inner, outer = weight[1], max(1, weight[0] // groups)
        full = self.target.full_channels
        return math.sqrt(min(1.0, inner / full) * min(1.0, outer / full))

    def _bytes(self, type: TensorType) -> int:
        return BYTES.get(type.dtype, 4) * self._int(product(type.shape))

    def _int(self, size: Size) -> int:
        if not isinstance(size, int):
            unknown = self.target.unknown_size
            size = substitute(size, dict.fromkeys(free_symbols(size), unknown))
        assert isinstance(size, int)
        return max(0, size)


class EstimatedCost:
    """A `CostModel` for which the estimate decides: the same result on any machine."""

    measures = False

    def __init__(self, target: TargetModel | None = None) -> None:
        self.estimate = Estimator(target)

    def measure(self, graphs: Sequence[Graph], seconds: float) -> list[float | None]:
        """Nothing: None for every graph."""
        return [None] * len(graphs)
