"""What is random, or has a state, is never computed twice, folded, or taken for another's."""

import onnx
import onnx_ir as ir
import pytest

import xflow
from xflow.onnx.importer import import_model
from xflow.onnx.nodes import RANDOM, computation_key
from xflow.ops import by_onnx, operator

HEAD = '<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>\n'
DRAWN = {
    "RandomNormal": "RandomNormal<shape=[4]>()",
    "RandomNormalLike": "RandomNormalLike(x)",
    "RandomUniform": "RandomUniform<shape=[4]>()",
    "RandomUniformLike": "RandomUniformLike(x)",
    "RandomUniformLike of a constant": "RandomUniformLike(w)",
    "Bernoulli": "Bernoulli(w)",
    "a seed": "RandomNormalLike<seed=1.0>(x)",
    "a function": "mine.draw(x)",
    "an operator of another library": "mine.mystery(x)",
}
FUNCTION = """
<domain: "mine", opset_import: ["" : 17]> draw (x) => (y) { y = RandomUniformLike(x) }"""


def model(drawn: str) -> onnx.ModelProto:
    """Two equal draws, one of which is used twice, amid what rules would simplify."""
    text = f"""g (float[4] x) => (float[4] y, float[4] z) <float[4] w = {{1, 0, 1, 0}}> {{
        a = {drawn} b = {drawn} p = Mul(a, x) q = Mul(a, x) s = Add(p, q)
        d = Sub(s, b) r = Relu(d) y = Relu(r) z = Sub(a, a) }}"""
    return onnx.parser.parse_model(HEAD + text + FUNCTION)


@pytest.mark.parametrize("title", DRAWN)
def test_equal_draws_are_told_apart_and_none_is_folded(title: str) -> None:
    imported = import_model(ir.from_proto(model(DRAWN[title])))
    values = {source.name: value for source, value in imported.values.items()}
    assert values["a"] != values["b"]
    assert values["a"].node.op != values["b"].node.op
    assert not values["a"].node.constant
    assert imported.constants(values["a"]) is None


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("title", DRAWN)
def test_each_is_drawn_as_often_as_before(title: str) -> None:
    source = model(DRAWN[title])
    result = xflow.optimize(source, cost="estimated", budget=1, threads=1, check=1)
    kind = source.graph.node[0].op_type
    drawn = [node.op_type for node in result.model.graph].count(kind)
    assert drawn == [node.op_type for node in source.graph.node].count(kind) == 2


def test_what_onnx_calls_random_is_no_operator_of_ours() -> None:
    """By the schemas of the installed onnx; what has graphs inside is never merged either."""
    kinds = onnx.defs.OpSchema.NodeDeterminism
    found = {
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.domain == "" and schema.node_determinism == kinds.NonDeterministic
    }
    inner = {
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if any(a.type == onnx.defs.OpSchema.AttrType.GRAPH for a in schema.attributes.values())
    }
    # AffineGrid is determined by its inputs; its schema says otherwise.
    assert found - inner - {"AffineGrid"} <= RANDOM
    empty = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 17}), ir_version=8)
    for name in RANDOM:
        # Dropout is one where it drops nothing, which its training mode tells.
        known = [operator("Identity")] if name == "Dropout" else []
        assert list(by_onnx(name, "", 17)) == known
        assert computation_key(ir.Node("", name, []), empty) is None


def test_the_mask_of_a_training_dropout_stays_with_its_output() -> None:
    text = """g (float[64] x) => (float[64] y, bool[64] m) <float r = {0.5}, bool t = {1}> {
        a, m = Dropout(x, r, t) b = Relu(a) y = Relu(b) }"""
    source = onnx.parser.parse_model(HEAD.replace(', "mine" : 1', "") + text)
    result = xflow.optimize(source, cost="estimated", budget=1, threads=1, check=1)
    kinds = [node.op_type for node in result.model.graph]
    assert kinds.count("Dropout") == 1
    assert [value.name for value in result.model.graph.outputs] == ["y", "m"]
