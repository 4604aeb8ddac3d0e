"""A model of two matrix products and rules that simplify it, shared by several tests."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from xflow.core.node import Value
from xflow.cost.estimate import EstimatedCost
from xflow.pipeline import api
from xflow.rewriting.derivation import abstract, application
from xflow.rewriting.match import find_matches
from xflow.rewriting.replacement import Replacement
from xflow.rewriting.text import parse_rules

RULES = parse_rules(
    """
rule merge-products
  in       x[N, K] a[K, M] b[K, M]
  from     Add(MatMul(x, a), MatMul(x, b))
  to       MatMul(x, Add(a, b))

rule relu-of-relu
  in       x[...]
  from     Relu(Relu(x))
  to       Relu(x)
  exact    bits

rule bounds-together
  in       x[...] v[...] w[...]
  from     Max(Max(x, v), w)
  to       Max(x, Max(v, w))
  exact    bits
"""
)


def two_products(size: int = 96) -> onnx.ModelProto:
    """y[N, size] = relu(relu(x @ a + x @ b))."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"], name="left"),
        helper.make_node("MatMul", ["x", "b"], ["q"], name="right"),
        helper.make_node("Add", ["p", "q"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["t"], name="once"),
        helper.make_node("Relu", ["t"], ["y"], name="twice"),
    ]
    weights = [
        numpy_helper.from_array(random.standard_normal((size, size)).astype(np.float32), name)
        for name in ("a", "b")
    ]
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", size])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.metadata_props.add(key="licence", value="free")
    return model


def separated() -> onnx.ModelProto:
    """Two parts that are searched on their own: products before, a lone Relu behind CumSum."""
    model = two_products()
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.array(1), "axis"))
    graph.node.append(helper.make_node("CumSum", ["y", "axis"], ["e"]))
    graph.node.append(helper.make_node("Relu", ["e"], ["z"], name="alone"))
    graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 96]))
    return model


def one_relu(twice: Value) -> Replacement:
    """The replacement of a Relu of a Relu by the inner one, with the step that leads there."""
    once = twice.node.inputs
    inputs = once[0].node.inputs
    local = abstract((twice,), inputs)
    rule = RULES[1]
    (match,) = find_matches(rule.instance(0), local, at=local.outputs)
    step = application(local, rule.name, 0, match)
    assert step is not None
    return Replacement((twice,), once, (rule.name,), 1e-6, inputs, (step,))


def operators(result: api.Result) -> list[str]:
    return [node.op_type for node in result.model.graph]


class Unmeasured(EstimatedCost):
    """A substitute for measurements that answers by the estimate."""

    warnings = ()


def listed(ir_version: int = 8) -> onnx.ModelProto:
    """Two products whose weights are among the inputs, as exporters used to write them."""
    model = two_products()
    model.ir_version = ir_version
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    return model
