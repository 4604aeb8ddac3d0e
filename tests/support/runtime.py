"""Evaluates graphs in ONNX Runtime without its optimizations, in a given element type.

The counterpart of `xflow.verifier.rounding.rounded` in the runtime that serves the model: the
figures in the `numerics` lines are compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime

from xflow.core.fold import no_constants
from xflow.core.graph import Graph, walk
from xflow.core.node import Leaf, Node, TensorType, Value, apply, leaf
from xflow.core.registry import Array, Operator
from xflow.core.sorts import INT, REAL
from xflow.onnx.region import region_model
from xflow.onnx.writer import UnwritableError
from xflow.rewriting.numerics import TYPES
from xflow.verifier.rounding.rounded import Precision, run_rounded

OPSET, NEWEST = 20, 24
"""Of the models: the former, unless an operator is newer or has no such form there."""


@dataclass
class Runtime:
    """Evaluates values as `run_rounded` does, in sessions of one thread that it keeps."""

    provider: str = "CPUExecutionProvider"
    sessions: dict[tuple[tuple[Value, ...], str], onnxruntime.InferenceSession] = field(
        default_factory=dict
    )

    def __call__(
        self, values: Sequence[Value], feeds: Mapping[str, Array], precision: Precision | None
    ) -> list[Array]:
        """The arrays of `values`, in float64; without a precision, by the numpy readings.

        Raises UnwritableError where a value has no ONNX form, and the runtime's exceptions where
        it has no kernel.
        """
        if precision is None or any(np.asarray(array).size == 0 for array in feeds.values()):
            # Some kernels refuse empty tensors, which lose nothing either.
            return run_rounded(values, feeds, precision)
        session = self._session(tuple(values), precision)
        given = {}
        for item in session.get_inputs():
            array = np.asarray(feeds[item.name])
            given[item.name] = array.astype(precision.element) if array.dtype.kind == "f" else array
        outputs = session.run(None, given)
        return [a.astype(np.float64) if a.dtype.kind not in "biu" else a for a in outputs]

    def _session(
        self, values: tuple[Value, ...], precision: Precision
    ) -> onnxruntime.InferenceSession:
        key = (values, precision.name)
        if key not in self.sessions:
            options = onnxruntime.SessionOptions()
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.log_severity_level = 4
            graph = Graph(_typed(values, TYPES[precision.name]))
            model = _model(graph)
            self.sessions[key] = onnxruntime.InferenceSession(
                model, options, providers=[self.provider]
            )
        return self.sessions[key]


def _model(graph: Graph) -> bytes:
    """The model at the oldest opset from `OPSET` on that has all operators as they are."""
    newest = max(node.op.since for node in graph.nodes if isinstance(node.op, Operator))
    for opset in range(max(OPSET, newest), NEWEST):
        try:
            return region_model(graph, no_constants, opset=opset)
        except UnwritableError:
            continue
    return region_model(graph, no_constants, opset=NEWEST)


def _typed(values: Sequence[Value], dtype: str) -> tuple[Value, ...]:
    """`values` of a rule with `dtype` for the reals."""
    sorts = {REAL: dtype, INT: "INT64"}
    made: dict[Node, tuple[Value, ...]] = {}
    for node in walk(values):
        if isinstance(node.op, Leaf):
            (type_,) = node.types
            own = sorts.get(type_.dtype, type_.dtype)
            made[node] = (leaf(node.op.key, TensorType(own, type_.shape)),)
        else:
            assert isinstance(node.op, Operator)
            inputs = [made[source.node][source.index] for source in node.inputs]
            attributes = {
                name: sorts.get(value, value) if isinstance(value, str) else value
                for name, value in node.attributes.items()
            }
            own = sorts.get(node.types[0].dtype, node.types[0].dtype)
            made[node] = apply(node.op, inputs, attributes, dtype=own)
    return tuple(made[value.node][value.index] for value in values)


def run_model(
    model: onnx.ModelProto, feeds: Mapping[str, Array], *, as_written: bool = False
) -> list[Array]:
    """The outputs of a model in ONNX Runtime, as it is served.

    `as_written`, without the runtime's own rewrites, which round reals of doubles to 32 bits.
    """
    options = onnxruntime.SessionOptions()
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs: list[Array] = session.run(None, dict(feeds))
    return outputs
