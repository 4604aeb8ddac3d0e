"""Models that the checker passes though runtimes read them in two ways, or never end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from xflow.core.errors import ModelError
from xflow.onnx.files import load_model
from xflow.onnx.refusals import MOST_OPERATORS

TEXT = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
g (float[4] x, bool c) => (float[4] z) <float[4] w = {1, 2, 3, 4}> {
  t = Relu(x) s = own.F(t)
  z = If(c) <
    then_branch = yes () => (float[4] a) { b = Abs(s) a = Add(b, w) },
    else_branch = no () => (float[4] d) { d = Exp(s) }>
}
<opset_import: ["" : 17], domain: "own"> F (p) => (q) { q = Neg(p) }"""
CONSTANT = np.full(4, 7, np.float32)


def branch(model: onnx.ModelProto) -> onnx.GraphProto:
    attributes = model.graph.node[-1].attribute
    graph: onnx.GraphProto = next(each.g for each in attributes if each.name == "then_branch")
    return graph


def imported_twice(model: onnx.ModelProto) -> None:
    model.opset_import.append(helper.make_opsetid("ai.onnx", 11))


def imported_twice_elsewhere(model: onnx.ModelProto) -> None:
    model.opset_import.append(helper.make_opsetid("own", 2))


def imported_twice_in_a_function(model: onnx.ModelProto) -> None:
    model.functions[0].opset_import.append(helper.make_opsetid("ai.onnx", 16))


def shadows(name: str) -> Callable[[onnx.ModelProto], None]:
    def damage(model: onnx.ModelProto) -> None:
        branch(model).initializer.append(numpy_helper.from_array(CONSTANT, name))

    return damage


def shadows_sparsely(model: onnx.ModelProto) -> None:
    tensor = branch(model).sparse_initializer.add(dims=[4])
    tensor.values.CopyFrom(helper.make_tensor("t", onnx.TensorProto.FLOAT, [1], [5.0]))
    tensor.indices.CopyFrom(helper.make_tensor("", onnx.TensorProto.INT64, [1], [3]))


def shadows_deep_inside(model: onnx.ModelProto) -> None:
    inner = parser.parse_graph("deep () => (float[4] e) { e = Neg(t) }")
    inner.initializer.append(numpy_helper.from_array(CONSTANT, "t"))
    other = parser.parse_graph("other () => (float[4] f) { f = Neg(t) }")
    node = helper.make_node("If", ["c"], ["unread"], then_branch=inner, else_branch=other)
    branch(model).node.append(node)


def calls(depth: int) -> Callable[[onnx.ModelProto], None]:
    """Functions of which each calls the one before twice."""

    def damage(model: onnx.ModelProto) -> None:
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        called = "F"
        for number in range(depth):
            nodes = [
                helper.make_node(called, ["p"], ["r"], domain="own"),
                helper.make_node(called, ["r"], ["q"], domain="own"),
            ]
            called = f"F{number}"
            function = helper.make_function("own", called, ["p"], ["q"], nodes, imports)
            model.functions.append(function)
        model.graph.node[1].op_type = called

    return damage


def calls_itself(model: onnx.ModelProto) -> None:
    node = helper.make_node("F", ["p"], ["q"], domain="own")
    model.functions[0].node[0].CopyFrom(node)
    model.functions[0].opset_import.append(helper.make_opsetid("own", 1))


def beyond_memory(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].ClearField("float_data")
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].dims[:] = [0, 2**62]


REFUSED: dict[str, tuple[Callable[[onnx.ModelProto], None], str]] = {
    "ONNX's operators twice": (imported_twice, "ai.onnx is imported in two versions, 17 and 11"),
    "other operators twice": (imported_twice_elsewhere, "own is imported in two versions, 1 and 2"),
    "in a function": (imported_twice_in_a_function, "own.F: the operator set ai.onnx is imported"),
    "the name of a result": (shadows("t"), "is named 't'"),
    "the name of an input": (shadows("x"), "is named 'x'"),
    "the name of a weight": (shadows("w"), "is named 'w'"),
    "the name of a sparse weight": (shadows_sparsely, "is named 't'"),
    "a name two graphs further out": (shadows_deep_inside, "is named 't'"),
    "calls without end": (calls(40), f"({MOST_OPERATORS:,} at most)"),
    "calls in a long chain": (calls(90), f"({MOST_OPERATORS:,} at most)"),
    "a function of itself": (calls_itself, "F"),
    "no elements times too many": (beyond_memory, "tensor w: its dimensions are larger"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_one_meaning_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    damage, said = REFUSED[what]
    model = parser.parse_model(TEXT)
    damage(model)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


ALLOWED: dict[str, Callable[[onnx.ModelProto], None]] = {
    "nothing odd": lambda model: None,
    "one version under two names": lambda model: model.opset_import.append(
        helper.make_opsetid("ai.onnx", 17)
    ),
    "a name of a later value": shadows("z"),
    "a name of a value of the other branch": shadows("d"),
    "some calls": calls(10),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_has_one_meaning_is_read(what: str, tmp_path: Path) -> None:
    model = parser.parse_model(TEXT)
    ALLOWED[what](model)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    load_model(path)
