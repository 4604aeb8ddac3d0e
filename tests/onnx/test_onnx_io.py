"""Models go to graphs and back: unchanged where nothing was rewritten, equivalent where it was."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from xflow.core.fold import Folder
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Opaque, TensorType, Value, apply, leaf
from xflow.core.registry import Operator
from xflow.core.size import symbol
from xflow.onnx.exporter import export_model
from xflow.onnx.files import load_model
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.region import region_model
from xflow.onnx.writer import UnwritableError

HEAD = '<ir_version: 8, opset_import: ["" : 17], producer_name: "tests", model_version: 3>\n'

UNUSUAL = {
    "nothing to do": "g (float[N] x) => (float[N] x) {}",
    "no node, an initializer as output": "g () => (float[2] w) <float[2] w = {1, 2}> {}",
    "input used as output too": """g (float[N] x) => (float[N] x, float[N] y)
        { y = Relu(x) }""",
    "unused input, initializer and node": """g (float[N] x, float[3] spare) => (float[N] y)
        <float[2] idle = {1, 2}> { dead = Exp(x) y = Relu(x) }""",
    "equal nodes": """g (float[N] x) => (float[N] a, float[N] b)
        { a = Relu(x) b = Relu(x) }""",
    "missing optional inputs": """g (float[N] x) => (float[N] y)
        <float high = {6}> { y = Clip(x, "", high) }""",
    "missing optional outputs": """g (float[1,2,8,8] x) => (float[1,2,4,4] y)
        { y, "" = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }""",
    "used second output": """g (float[1,2,8,8] x) => (float[1,2,4,4] y, int64[1,2,4,4] z)
        { y, z = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }""",
    "sequences": """g (float[N] x, float[N] y) => (float z)
        { s = SequenceConstruct(x, y) i = Constant<value_int=1>() t = SequenceAt(s, i)
          z = ReduceMax<keepdims=0>(t) }""",
    "a subgraph that captures": """g (bool c, float[4] x) => (float[4] y) {
        a = Relu(x)
        y = If (c) <
            then_branch = g1 () => (float[4] y1) { y1 = Exp(a) },
            else_branch = g2 () => (float[4] y2) { k = Relu(a) y2 = Neg(k) }> }""",
    "randomness": """g (float[4] x) => (float[4] y) {
        a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b) }""",
    "integers": """g (int64[4] x) => (int64[4] y)
        <int64[4] one = {1, 1, 1, 1}> { y = Add(x, one) }""",
    "a computed shape": """g (float[2,3,4] x) => (float[2,12] y) {
        s = Shape(x) zero = Constant<value_ints=[0]>() a = Gather(s, zero)
        b = Constant<value_ints=[-1]>() t = Concat<axis=0>(a, b) y = Reshape(x, t) }""",
    "a shape that depends on data": """g (float[N] x) => (int64[1, M] y)
        { y = NonZero(x) }""",
}
FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    g (float[N] x) => (float[N] y) { a = mine.twice(x) b = mine.twice(a) y = Relu(b) }
    <domain: "mine", opset_import: ["" : 17]>
    twice (x) => (y) { y = Add(x, x) }"""


def parse(text: str) -> ir.Model:
    proto = onnx.parser.parse_model(text if text.startswith("<") else HEAD + text)
    onnx.checker.check_model(proto)
    model: ir.Model = ir.from_proto(proto)
    return model


def data(model: ir.Model) -> bytes:
    content: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return content


def run(model: ir.Model | bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    content = model if isinstance(model, bytes) else data(model)
    onnx.checker.check_model(onnx.load_from_string(content))
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, feeds)
    return results


def rewritten(imported: Imported, old: Value, new: Value) -> ir.Model:
    """The export of the graph with one value replaced, after checking the promises of export."""
    before = data(imported.model)
    model = export_model(imported, imported.graph.replace({old: new}))
    assert data(imported.model) == before, "the source was changed"
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert [v.name for v in model.graph.outputs] == [v.name for v in imported.model.graph.outputs]
    return model


def value_of(imported: Imported, name: str) -> Value:
    return next(value for source, value in imported.values.items() if source.name == name)


def operators(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if isinstance(node.op, Operator)]


@pytest.mark.parametrize("text", [*UNUSUAL.values(), FUNCTION], ids=[*UNUSUAL, "functions"])
def test_an_unchanged_graph_gives_the_model_back(text: str) -> None:
    model = parse(text)
    before = data(model)
    imported = import_model(model)
    assert data(export_model(imported, imported.graph)) == before
    assert data(model) == before


FEEDS = {
    "x": np.random.default_rng(1).standard_normal(128).astype(np.float32),
    "y": np.ones(4, np.float32),
    "spare": np.zeros(3, np.float32),
    "c": np.array(True),
}


@pytest.mark.parametrize("title", UNUSUAL)
def test_a_rewrite_beside_an_unusual_part_leaves_that_part_as_it_is(title: str) -> None:
    """Each unusual model, followed by Relu(Relu(.)), which is rewritten to one Relu."""
    proto = ir.to_proto(parse(UNUSUAL[title]))
    output = proto.graph.output[0]
    if output.type.tensor_type.elem_type != TensorProto.FLOAT or not proto.graph.input:
        return
    for source, name in ((output.name, "relu_1"), ("relu_1", "relu_2")):
        proto.graph.node.append(helper.make_node("Relu", [source], [name]))
    proto.graph.output.append(onnx.ValueInfoProto(name="relu_2", type=output.type))
    imported = import_model(ir.from_proto(proto))
    model = rewritten(imported, value_of(imported, "relu_2"), value_of(imported, "relu_1"))
    kept = {node.op_type for node in model.graph}
    # Dead nodes go, and so do those that compute a constant shape.
    gone = {"Exp", "Shape", "Gather", "Concat", "Constant"} if title != "sequences" else set()
    assert kept | gone >= {node.op_type for node in imported.model.graph}
    if title != "randomness":
        feeds = {}
        for value in proto.graph.input:
            shape = [d.dim_value or 4 for d in value.type.tensor_type.shape.dim]
            feeds[value.name] = np.resize(FEEDS[value.name], shape)
        for a, b in zip(run(imported.model, feeds), run(model, feeds), strict=True):
            np.testing.assert_array_equal(a, b)


def test_random_operators_and_subgraphs_are_never_merged_but_equal_pure_ones_are() -> None:
    imported = import_model(parse(UNUSUAL["randomness"]))
    assert value_of(imported, "a") != value_of(imported, "b")
    model = parse(
        """g (float[N] x) => (int64[1,M] a, int64[1,M] b, int64[K] c)
        { a = NonZero(x) b = NonZero(x) c = Cast<to=7>(x) }"""
    )
    imported = import_model(model)
    assert value_of(imported, "a").node.op == value_of(imported, "b").node.op
    assert value_of(imported, "a").node.op != value_of(imported, "c").node.op


def test_functions_of_the_model_are_opaque_and_kept() -> None:
    imported = import_model(parse(FUNCTION))
    assert operators(imported.graph) == ["Relu"]
    model = rewritten(imported, value_of(imported, "y"), value_of(imported, "b"))
    assert [function.name for function in model.functions.values()] == ["twice"]
    (result,) = run(model, {"x": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(result, [4, 8])


def test_captured_values_follow_a_rewrite_into_the_subgraph() -> None:
    imported = import_model(parse(UNUSUAL["a subgraph that captures"]))
    a = value_of(imported, "a")
    new = apply("Relu", apply("Relu", [value_of(imported, "x")]))[0]
    model = rewritten(imported, a, apply("Relu", [new])[0])
    x = np.array([-1, 0, 1, 2], np.float32)
    for condition in (True, False):
        feeds = {"c": np.array(condition), "x": x}
        np.testing.assert_array_equal(run(imported.model, feeds)[0], run(model, feeds)[0])


def weighted() -> ir.Model:
    """Two convolutions of one input, added, with names and metadata on everything."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Relu", ["x"], ["x0"], name="first"),
        helper.make_node("Conv", ["x0", "w3"], ["a"], name="three", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x0", "w1"], ["b"], name="one"),
        helper.make_node("Add", ["a", "b"], ["c"], name="sum", doc_string="adds"),
        helper.make_node("Relu", ["c"], ["d"], name="last", doc_string="ends"),
        helper.make_node("Conv", ["d", "v"], ["y"], name="tail"),
    ]
    nodes[4].metadata_props.add(key="colour", value="blue")
    shapes = {"w3": (4, 3, 3, 3), "w1": (4, 3, 1, 1), "v": (2, 4, 1, 1), "idle": (7,)}
    weights = [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    graph = helper.make_graph(
        nodes,
        "weighted",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2, 9, 9])],
        weights,
        value_info=[helper.make_tensor_value_info("d", TensorProto.FLOAT, ["batch", 4, 9, 9])],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, doc_string="a model"
    )
    model.metadata_props.add(key="licence", value="free")
    source: ir.Model = ir.from_proto(model)
    return source


def merged(imported: Imported) -> Value:
    x, w3, w1 = (value_of(imported, name) for name in ("x0", "w3", "w1"))
    padded = apply("Pad", [w1], {"pads": (0, 0, 1, 1, 0, 0, 1, 1)})[0]
    kernel = apply("Add", [w3, padded])[0]
    return apply("Conv", [x, kernel], {"pads": (1, 1, 1, 1)})[0]


def test_a_merged_convolution_is_equivalent_and_its_weights_are_folded() -> None:
    imported = import_model(weighted())
    model = rewritten(imported, value_of(imported, "c"), merged(imported))
    assert [node.op_type for node in model.graph] == ["Relu", "Conv", "Relu", "Conv"]
    x = np.random.default_rng(1).standard_normal((2, 3, 9, 9)).astype(np.float32)
    before, after = run(imported.model, {"x": x})[0], run(model, {"x": x})[0]
    np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-5)


def test_what_was_not_rewritten_keeps_names_order_documentation_and_weights() -> None:
    imported = import_model(weighted())
    model = rewritten(imported, value_of(imported, "c"), merged(imported))
    names = [node.name for node in model.graph]
    assert [names[0], *names[2:]] == ["first", "last", "tail"]
    last = model.graph.node("last")
    assert (last.doc_string, dict(last.metadata_props)) == ("ends", {"colour": "blue"})
    assert [value.name for value in last.outputs] == ["d"]
    assert (model.doc_string, model.metadata_props["licence"]) == ("a model", "free")
    assert str(model.graph.inputs[0].shape) == str(imported.model.graph.inputs[0].shape)
    kept = model.graph.initializers
    assert set(kept) == {"v", "idle", "w3_folded"}
    assert kept["v"].const_value is imported.model.graph.initializers["v"].const_value


def test_new_values_are_described() -> None:
    imported = import_model(weighted())
    model = rewritten(imported, value_of(imported, "c"), merged(imported))
    (value,) = list(model.graph)[1].outputs
    assert value.dtype == ir.DataType.FLOAT
    assert value.shape is not None
    assert [str(n) for n in value.shape] == ["batch", "4", "9", "9"]


def test_an_output_keeps_its_name_when_another_value_takes_its_place() -> None:
    model = parse(
        """g (float[4] x) => (float[4] y, float[4] z, float[4] u)
        { y = Relu(x) z = Relu(y) u = Exp(z) }"""
    )
    imported = import_model(model)
    y, z = value_of(imported, "y"), value_of(imported, "z")
    feeds = {"x": np.array([-1, 0, 1, 2], np.float32)}
    for old, new in ((z, y), (y, value_of(imported, "x"))):
        # The second is no equivalence, but a graph like any other.
        result = dict(zip("yzu", run(rewritten(imported, old, new), feeds), strict=True))
        if old == z:
            np.testing.assert_array_equal(result["z"], result["y"])
        else:
            np.testing.assert_array_equal(result["y"], feeds["x"])
        np.testing.assert_array_equal(result["z"], [0, 0, 1, 2])


def test_an_inner_value_gives_its_name_to_the_output_that_replaces_it() -> None:
    model = parse("g (float[4] x) => (float[4] y, float[4] z) { y = Exp(x) z = Relu(y) }")
    imported = import_model(model)
    y, z = value_of(imported, "y"), value_of(imported, "z")
    graph = Graph((apply("Neg", [y])[0], z)) if "Neg" in _names() else Graph((z, z))
    result = export_model(imported, graph)
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    assert [value.name for value in result.graph.outputs] == ["y", "z"]


def _names() -> set[str]:
    from xflow.ops import operators as registered  # noqa: PLC0415

    return {op.name for op in registered()}


def test_identity_matrices_are_folded_and_large_results_are_not() -> None:
    model = parse("g (float[2,4000] x) => (float[2,4000] y) { a = Relu(x) y = Relu(a) }")
    imported = import_model(model)
    x, a = value_of(imported, "x"), value_of(imported, "a")
    eye = apply("Eye", [], {"n": 4000}, dtype="FLOAT")[0]
    with_eye = rewritten(imported, a, apply("MatMul", [x, eye])[0])
    (folded,) = with_eye.graph.initializers.values()
    assert folded.const_value is not None
    assert folded.const_value.nbytes == 64_000_000

    proto = ir.to_proto(model)
    for name, shape in (("p", (6000, 1)), ("q", (1, 6000))):
        proto.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.shape.dim[1].dim_value = 6000
    imported = import_model(ir.from_proto(proto))
    x, a = value_of(imported, "x"), value_of(imported, "a")
    p = leaf("p", TensorType("FLOAT", (6000, 1)), constant=True)
    q = leaf("q", TensorType("FLOAT", (1, 6000)), constant=True)
    outer = apply("MatMul", [p, q])[0]
    model = rewritten(imported, a, apply("MatMul", [x, outer])[0])
    assert [node.op_type for node in model.graph] == ["MatMul", "MatMul", "Relu"]


def test_folding_computes_in_double_precision() -> None:
    a = leaf("a", TensorType("FLOAT", (1,)), constant=True)
    b = leaf("b", TensorType("FLOAT", (1,)), constant=True)
    values = {"a": np.array([1e8], np.float32), "b": np.array([1.0], np.float32)}
    fold = Folder(lambda v: values.get(v.node.op.key) if isinstance(v.node.op, Leaf) else None)
    total = apply("Sub", [apply("Add", [a, b])[0], a])[0]
    result = fold(total)
    assert result is not None
    assert result.dtype == np.float32
    assert result == [1.0]


def test_a_size_that_the_opset_cannot_express_makes_the_rewrite_impossible() -> None:
    imported = import_model(parse("g (float[N,N] x) => (float[N,N] y) { y = Relu(x) }"))
    x, y = value_of(imported, "x"), value_of(imported, "y")
    eye = apply("Eye", [], {"n": x.shape[0]}, dtype="FLOAT")[0]
    with pytest.raises(UnwritableError):
        export_model(imported, imported.graph.replace({y: apply("MatMul", [x, eye])[0]}))


def test_weights_that_are_inputs_are_no_constants_and_that_is_said() -> None:
    model = parse(
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    )
    imported = import_model(model)
    assert not value_of(imported, "w").is_constant
    assert "also inputs (w)" in imported.warnings[0]
    model = rewritten(
        imported,
        value_of(imported, "y"),
        apply("Add", [value_of(imported, "w"), value_of(imported, "x")])[0],
    )
    assert list(model.graph.initializers) == ["w"]
    one = np.ones(2, np.float32)
    np.testing.assert_array_equal(run(model, {"x": one})[0], [2, 3])
    np.testing.assert_array_equal(run(model, {"x": one, "w": one})[0], [2, 2])


def test_the_long_name_of_the_default_domain_is_the_same_domain(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["ai.onnx" : 17]> g (float[2,3] x) => (float[1,6] y)
        { s = Shape(x) t = ReduceProd(s) one = Constant<value_ints = [1]>()
          r = Relu(x) q = Relu(r) z = Concat<axis = 0>(one, t) y = Reshape(q, z) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    imported = import_model(load_model(tmp_path / "model.onnx"))
    assert operators(imported.graph)[:2] == ["Relu", "Relu"]


def test_equal_small_constants_are_one_leaf() -> None:
    imported = import_model(
        parse(
            """g (float[2] x) => (float[2] y) <float one = {1}>
            { c = Constant<value_float=1.0>() a = Add(x, one) b = Add(x, c) y = Mul(a, b) }"""
        )
    )
    assert value_of(imported, "a") == value_of(imported, "b")


def test_dimensions_that_may_be_1_are_not_taken_for_equal() -> None:
    """Of unknown sizes ONNX says nothing before run time: [N] + [M] may broadcast."""
    imported = import_model(parse("g (float[N] x, float[M] y) => (float[K] z) { z = Add(x, y) }"))
    assert isinstance(value_of(imported, "z").node.op, Opaque)


def test_outdated_shapes_of_inner_values_are_not_believed() -> None:
    proto = onnx.parser.parse_model(
        HEAD + "g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) b = Relu(a) y = Relu(b) }"
    )
    stale = helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 4])
    proto.graph.value_info.append(stale)
    imported = import_model(ir.from_proto(proto))
    assert value_of(imported, "a").shape == (symbol("N"), 4)
    assert operators(imported.graph) == ["Relu"] * 3


def test_sizes_follow_from_the_shapes_of_the_inputs() -> None:
    imported = import_model(
        parse(
            "g (float[batch, 3, 'h w', 8] x) => (float[a,b,c,d] y) { y = Relu(x) }".replace(
                "'h w'", "h"
            )
        )
    )
    assert imported.sizes({"x": (5, 3, 7, 8)}) == {"batch": 5, "h": 7}


def test_a_computed_shape_does_not_keep_the_value_that_it_was_the_shape_of() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,12] y) {
        r = Relu(x) s = Shape(r) zero = Constant<value_ints=[0]>() a = Gather(s, zero)
        b = Constant<value_ints=[-1]>() t = Concat<axis=0>(a, b) y = Reshape(r, t) }"""
    )
    imported = import_model(model)
    assert operators(imported.graph) == ["Relu", "Reshape"]
    x = value_of(imported, "x")
    new = rewritten(imported, value_of(imported, "r"), apply("Exp", [x])[0])
    assert [node.op_type for node in new.graph] == ["Exp", "Reshape"]


def test_sums_and_products_of_dimensions_are_read_off_inputs() -> None:
    """Keys of the past and new ones: how many there are is the shape of what nobody needs."""
    imported = import_model(
        parse(
            """g (float[b, past, 4] p, float[b, n, 4] x) => (float[r, 4] y, float[b, m, 2] z) {
            k = Concat<axis = 1>(p, x) c = Relu(k) s = Shape(c) d = Neg(p)
            at = Constant<value_ints = [0]>() next = Constant<value_ints = [1]>()
            last = Constant<value_ints = [2]>() four = Constant<value_ints = [4]>()
            b0 = Slice(s, at, next) b1 = Slice(s, next, last) rows = Mul(b0, b1)
            t = Concat<axis = 0>(rows, four) y = Reshape(c, t)
            thrice = Add(b1, b1) u = Concat<axis = 0>(b0, thrice, last) z = Reshape(c, u) }"""
        )
    )
    assert operators(imported.graph)[-2:] == ["Reshape", "Reshape"]
    k = value_of(imported, "k")
    new = rewritten(imported, value_of(imported, "c"), apply("Exp", [k])[0])
    assert "Relu" not in {node.op_type for node in new.graph}
    for b, past, n in ((2, 3, 1), (1, 0, 5)):
        feeds = {"p": np.ones((b, past, 4), np.float32), "x": np.zeros((b, n, 4), np.float32)}
        y, z = run(new, feeds)
        assert y.shape == (b * (past + n), 4)
        assert z.shape == (b, 2 * (past + n), 2)


def test_a_region_is_a_model_of_its_own() -> None:
    imported = import_model(weighted())
    graph = Graph((merged(imported), value_of(imported, "x0")))
    content = region_model(graph, imported.constants, sizes={"batch": 2}, opset=17)
    proto = onnx.load_from_string(content)
    onnx.checker.check_model(proto, full_check=True)
    assert [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim] == [2, 3, 9, 9]
    assert [node.op_type for node in proto.graph.node] == ["Relu", "Conv"]
    x = np.random.default_rng(1).standard_normal((2, 3, 9, 9)).astype(np.float32)
    inner = export_model(imported, imported.graph)
    assert run(content, {"x": x})[0].shape == (2, 4, 9, 9)
    assert run(inner, {"x": x})[0].shape == (2, 2, 9, 9)


def test_a_region_with_an_unknown_size_has_no_model() -> None:
    imported = import_model(weighted())
    with pytest.raises(UnwritableError):
        region_model(imported.graph, imported.constants)


def test_a_region_may_give_its_inputs_back() -> None:
    x = leaf("x", TensorType("FLOAT", (3,)))
    content = region_model(Graph((x, apply("Relu", [x])[0], x)), lambda _: None)
    results = run(content, {"x": np.array([-1, 0, 1], np.float32)})
    assert json.dumps([r.tolist() for r in results]) == json.dumps(
        [[-1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 1.0]]
    )


IDLE = {
    "a cast to its own type": "g (float[N] x) => (float[N] y) { a = Cast<to=1>(x) y = Neg(a) }",
    "a dropout": "g (float[N] x) => (float[N] y) { a, m = Dropout(x) y = Neg(a) }",
    "a dropout that is told not to": """g (float[N] x) => (float[N] y)
        <float r = {0.5}, bool t = {0}> { a = Dropout(x, r, t) y = Neg(a) }""",
    "a dropout of opset 7": """<ir_version: 7, opset_import: ["" : 7]>
        g (float[N] x) => (float[N] y) { a, m = Dropout<ratio=0.3>(x) y = Neg(a) }""",
}
BUSY = {
    "a cast to another type": "g (int64[N, M] x) => (int32[N, M] y) { y = Cast<to=6>(x) }",
    "a widening cast": "g (float16[N] x) => (float[N] y) { y = Cast<to=1>(x) }",
    "training": """g (float[N] x) => (float[N] y) <float r = {0.5}, bool t = {1}>
        { y = Dropout(x, r, t) }""",
    "training as the caller wants": """g (float[N] x, bool t) => (float[N] y) <float r = {0.5}>
        { y = Dropout(x, r, t) }""",
    "a mask that is read": "g (float[N] x) => (float[N] y, bool[N] m) { y, m = Dropout(x) }",
    "training by default": """<ir_version: 3, opset_import: ["" : 6]>
        g (float[N] x) => (float[N] y) { y = Dropout(x) }""",
}


@pytest.mark.parametrize("name", IDLE)
def test_what_gives_its_input_back_is_read_as_identity(name: str) -> None:
    graph = import_model(parse(IDLE[name])).graph
    operators = [node.op for node in graph.nodes if isinstance(node.op, Operator)]
    assert [op.name for op in operators] == ["Identity", "Neg"]


@pytest.mark.parametrize("name", BUSY)
def test_what_may_change_its_input_is_no_identity(name: str) -> None:
    graph = import_model(parse(BUSY[name])).graph
    operators = [node.op for node in graph.nodes if isinstance(node.op, Operator)]
    assert "Identity" not in [op.name for op in operators]
