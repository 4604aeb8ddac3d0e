"""Models with empty tensors, or with attributes that say nothing sensible, are read or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import numpy_helper
from operator_cases import build, cases, run_onnxruntime

from xflow.analysis.observers import Observed, contexts
from xflow.analysis.ranges import Ranges
from xflow.core.errors import ModelError
from xflow.core.registry import Operator
from xflow.onnx.importer import import_model
from xflow.ops import operators
from xflow.pipeline.api import optimize

CASES = cases()
EXAMPLES = 3
"""Examples of each operator, spread over all of them."""
STRANGE = (0, -1, 10**6)

Change: TypeAlias = Callable[[onnx.ModelProto], Iterator[onnx.ModelProto]]


def models(op: Operator) -> Iterator[onnx.ModelProto]:
    """The operator at some of its examples as a model of one node, at the newest opset."""
    examples = [example for one, example in CASES if one is op]
    for example in examples[:: -(-len(examples) // EXAMPLES)]:
        model = build(op, example, 1 if op.domain else 24)
        if model is not None:
            yield model


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def dimensions(model: onnx.ModelProto) -> list[onnx.TensorShapeProto.Dimension]:
    return [d for item in model.graph.input for d in item.type.tensor_type.shape.dim]


def emptied(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The model with one dimension of its inputs as 0, or all of one extent."""
    extents = [d.dim_value for d in dimensions(model)]
    places = [[k] for k in range(len(extents))]
    places += [[k for k, n in enumerate(extents) if n == extent] for extent in {*extents}]
    for chosen in places:
        made = copied(model)
        found = dimensions(made)
        for place in chosen:
            found[place].dim_value = 0
        yield made


def distorted(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The model with another integer in one of its attributes or parameters."""
    (node,) = model.graph.node
    for value in STRANGE:
        for place in range(len(node.attribute)):
            made = copied(model)
            attribute = made.graph.node[0].attribute[place]
            if attribute.type == onnx.AttributeProto.INT:
                attribute.i = value
            elif attribute.ints:
                attribute.ints[0] = value
            yield made
        for place, tensor in enumerate(model.graph.initializer):
            array = numpy_helper.to_array(tensor).copy()
            if array.dtype.kind in "iu" and array.size:
                array.reshape(-1)[0] = value
                made = copied(model)
                made.graph.initializer[place].CopyFrom(numpy_helper.from_array(array, tensor.name))
                yield made


def analyse(model: onnx.ModelProto) -> None:
    """What a run does with any model, whether or not there is a rewrite. May raise ModelError."""
    imported = import_model(ir.from_proto(model))
    ranges = Ranges(imported.constants)
    for value in imported.graph.outputs:
        ranges.of(value)
    contexts(imported.graph, [Observed.NOWHERE] * len(imported.graph.outputs))
    for node in imported.graph.nodes:
        if isinstance(node.op, Operator):
            shapes = [value.shape for value in node.inputs]
            node.op.flops(shapes, node.attributes, [value.shape for value in node.outputs])


@pytest.mark.parametrize("change", [emptied, distorted])
@pytest.mark.parametrize("op", [op for op in operators() if op.op_type], ids=str)
def test_models_with_odd_sizes_are_read_or_refused(op: Operator, change: Change) -> None:
    for model in models(op):
        for each in change(model):
            with suppress(ModelError):  # in one sentence
                analyse(each)


@pytest.mark.parametrize(
    "body",
    [
        "g (float[2, 0, 3] x) => (float[6, 0] y) "
        "{ a = Relu(x) b = Flatten<axis=3>(a) s = Constant<value_ints=[6, 0]>() "
        "y = Reshape<allowzero=1>(b, s) }",
        "g (float[2, 0] x, float[0, 3] w) => (float[2, 3] y) "
        '{ a = Relu(x) y = Einsum<equation="ik,kj->ij">(a, w) }',
        "g (float[1, 4, 0, 2] x) => (float[1, 16, 0, 1] y) "
        "{ a = Relu(x) b = Relu(a) y = SpaceToDepth<blocksize=2>(b) }",
    ],
)
def test_a_model_with_empty_tensors_is_optimized(body: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 20]> ' + body)
    result = optimize(model, objective="nodes", budget=2)
    arrays = [
        np.ones([d.dim_value for d in item.type.tensor_type.shape.dim], np.float32)
        for item in model.graph.input
    ]
    after = ir.to_proto(result.model)
    for old, new in zip(
        run_onnxruntime(model, arrays), run_onnxruntime(after, arrays), strict=True
    ):
        np.testing.assert_array_equal(old, new)


def test_a_part_without_elements_says_nothing_of_the_other_extents() -> None:
    """The runtime joins it to parts of any batch, and inference takes its batch for that of all."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[batch, t, 8] x) => (float[a, b, 2, 4] y)'
        "<int64[4] target = {0, 0, 2, 4}> {"
        " k = Reshape(x, target) kk = Concat<axis = 1>(past, k)"
        " mean = ReduceMean<axes = [0], keepdims = 1>(kk) y = Relu(mean) }"
    )
    past = onnx.numpy_helper.from_array(np.zeros((1, 0, 2, 4), np.float32), "past")
    model.graph.initializer.append(past)
    result = optimize(model, objective="nodes", cost="estimated", budget=5, threads=1)
    x = np.random.default_rng(0).standard_normal((3, 5, 8)).astype(np.float32)
    before, after = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": x})[0]
        for each in (model, ir.to_proto(result.model))
    )
    np.testing.assert_array_equal(before, after)


def test_a_copy_of_an_operator_with_other_inputs_has_its_own_sizes() -> None:
    """Sign of integers is not rewritten, and both stand for one operator."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (int64[2, 3] x, int64[40, 50] y) => (int64[2, 3] a, int64[40, 50] b) {
            a = Sign (x)
            t = Transpose <perm = [1, 0]> (y)
            u = Transpose <perm = [1, 0]> (t)
            s = Sign (u)
            b = Neg (s)
        }"""
    )
    made = optimize(model, cost="estimated", budget=5, threads=1)
    assert made.report.changed
    onnx.checker.check_model(ir.to_proto(made.model), full_check=True)
