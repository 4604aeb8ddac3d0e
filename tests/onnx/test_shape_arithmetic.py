"""Targets that are computed from the shapes of tensors: with dynamic dimensions as with static."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from runtime import run_model

import xflow
from xflow.core.graph import Graph
from xflow.core.node import Opaque, apply
from xflow.core.registry import Operator, Shape
from xflow.core.size import floor_divide, free_symbols, symbol, symbols
from xflow.cost.fusion import operator_name
from xflow.onnx.exporter import export_model
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.shape_arithmetic import cut_shape, spectra
from xflow.onnx.writer import UnwritableError

HEADS, WIDTH = 3, 12


class Builder:
    """Nodes and constants of a model, in the way that exporters of dynamic shapes write them."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: object, dtype: type = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def __call__(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def size(self, x: str, axis: int) -> str:
        """The extent of an axis, as a vector of one element."""
        number = self("Gather", self("Shape", x), self.constant(axis), axis=0)
        return self("Unsqueeze", number, self.constant([0]))

    def model(
        self, output: str, shape: Sequence[int | str], result: Sequence[int | str]
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "attention",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, result)],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        return model


def attention(batch: int | str, tokens: int | str) -> onnx.ModelProto:
    """Self-attention in heads, whose shapes are computed, under a mask that is expanded."""
    random = np.random.default_rng(0)
    add = Builder()
    n, s = add.size("x", 0), add.size("x", 1)
    width = add("Div", add("Mul", add.constant(WIDTH), add.constant(1)), add.constant(HEADS))
    width = add("Unsqueeze", width, add.constant([0]))
    target = add("Concat", n, s, add.constant([HEADS]), width, axis=0)

    def heads(permutation: Sequence[int]) -> str:
        weight = add.constant(random.standard_normal((WIDTH, WIDTH)), np.float32)
        apart = add("Reshape", add("MatMul", "x", weight), target)
        return add("Transpose", apart, perm=permutation)

    query, key, value = heads((0, 2, 1, 3)), heads((0, 2, 3, 1)), heads((0, 2, 1, 3))
    scores = add("Mul", add("MatMul", query, key), add.constant(0.5, np.float32))
    scores = add("Mul", scores, add.constant(0.25, np.float32))
    wide = add("Concat", n, add.constant([1]), s, s, axis=0)
    shape = add("Where", add("Equal", wide, add.constant([-1] * 4)), add.constant([1] * 4), wide)
    mask = add("Expand", add.constant([[[[-1.0]]]], np.float32), shape)
    weights = add("Softmax", add("Add", scores, mask), axis=-1)
    together = add("Transpose", add("MatMul", weights, value), perm=(0, 2, 1, 3))
    whole = add("Concat", n, s, add.constant([-1]), axis=0)
    result = add("Relu", add("Relu", add("Reshape", together, whole)))
    return add.model(result, [batch, tokens, WIDTH], [batch, tokens, WIDTH])


def imported(model: onnx.ModelProto) -> Imported:
    return import_model(ir.from_proto(model))


def operators(graph_of: Imported) -> Counter[str]:
    """The operators that the graph computes, the opaque ones as such."""
    return Counter(
        node.op.name if isinstance(node.op, Operator) else "opaque"
        for node in graph_of.graph.nodes
        if isinstance(node.op, Operator | Opaque) and not node.constant
    )


DYNAMIC = {
    "batch": ("n", 5),
    "sequence": (2, "s"),
    "both": ("n", "s"),
    "of one name": ("n", "n"),
}


@pytest.mark.parametrize("sizes", DYNAMIC.values(), ids=DYNAMIC)
def test_a_dynamic_export_is_seen_as_the_static_one(sizes: tuple[int | str, int | str]) -> None:
    static, dynamic = operators(imported(attention(2, 5))), operators(imported(attention(*sizes)))
    assert "opaque" not in dynamic
    assert dynamic == static


def test_targets_are_polynomials_over_the_names_of_dimensions() -> None:
    graph = imported(attention("n", "s")).graph
    targets = {node.attributes["shape"] for node in graph.nodes
               if isinstance(node.op, Operator) and node.op.name == "Reshape"}  # fmt: skip
    n, s = symbol("n"), symbol("s")
    assert targets == {(n, s, HEADS, WIDTH // HEADS), (n, s, WIDTH)}


def test_an_optimized_model_keeps_its_dynamic_dimensions() -> None:
    model = attention("n", "s")
    result = xflow.optimize(model, cost="estimated", budget=60.0, input_shapes={"x": (2, 5, WIDTH)})
    assert result.report.changed
    after = ir.to_proto(result.model)
    assert after.graph.input == model.graph.input
    assert after.graph.output == model.graph.output
    for batch, tokens in ((2, 5), (1, 1), (7, 3)):
        x = np.random.default_rng(1).standard_normal((batch, tokens, WIDTH)).astype(np.float32)
        expected, found = run(model, {"x": x}), run(after, {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_sizes_that_the_model_does_not_compute_are_read_off_its_inputs() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[n, s] x, float[s] z) => (float[n, s] y) { y = Add(x, z) }""")
    source = imported(model)
    (old,) = source.graph.outputs
    x, z = old.node.inputs
    (wide,) = apply("Expand", [z], {"shape": (symbol("n"), symbol("s"))})
    (new,) = apply("Add", [x, wide], {})
    after = ir.to_proto(export_model(source, source.graph.replace({old: new})))
    assert [node.op_type for node in after.graph.node] == [
        *("Shape", "Shape", "Concat", "Expand", "Add")
    ]
    for batch, tokens in ((2, 5), (1, 1)):
        random = np.random.default_rng(1)
        feeds = {"x": random.standard_normal((batch, tokens)), "z": random.standard_normal(tokens)}
        given = {name: array.astype(np.float32) for name, array in feeds.items()}
        np.testing.assert_array_equal(run(after, given), run(model, given))
    (added,) = imported(after).graph.outputs
    assert added.node.inputs[1].node.attributes["shape"] == (symbol("n"), symbol("s"))


def in_parts(opset: int) -> tuple[onnx.ModelProto, Imported, Graph]:
    """A model of two Relu, and the same as one Relu of both inputs, whose result is split."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[n, s] x, float[m, s] z) => (float[n, s] y, float[m, s] v)
        {{ y = Relu(x) v = Relu(z) }}""")
    source = imported(model)
    old = source.graph.outputs
    (both,) = apply("Concat", [value.node.inputs[0] for value in old], {"axis": 0})
    (active,) = apply("Relu", [both], {})
    new = apply("Split", [active], {"axis": 0, "split": (symbol("n"), symbol("m"))})
    return model, source, source.graph.replace(dict(zip(old, new, strict=True)))


@pytest.mark.parametrize("opset", [18, 13])
def test_parts_of_dynamic_extents_are_written_and_read_back(opset: int) -> None:
    model, source, graph = in_parts(opset)
    after = ir.to_proto(export_model(source, graph))
    onnx.checker.check_model(after, full_check=True)
    for rows, others in ((2, 5), (1, 1), (0, 3), (3, 0)):
        random = np.random.default_rng(1)
        feeds = {
            "x": random.standard_normal((rows, 4), np.float32),
            "z": random.standard_normal((others, 4), np.float32),
        }
        for found, expected in zip(run_model(after, feeds), run_model(model, feeds), strict=True):
            np.testing.assert_array_equal(found, expected)
    second = imported(after).graph.outputs[1]
    assert second.node.op == graph.outputs[1].node.op
    assert second.node.attributes == graph.outputs[1].node.attributes
    assert second.shape == (symbol("m"), symbol("s"))


def test_parts_of_dynamic_extents_have_no_form_before_they_could_be_computed() -> None:
    _, source, graph = in_parts(11)
    with pytest.raises(UnwritableError, match="Split has no ONNX form at opset 11"):
        export_model(source, graph)


@pytest.mark.parametrize(
    ("opset", "attributes"), [(13, "axis = 1"), (18, "axis = 1, num_outputs = 2")]
)
def test_equal_parts_of_a_dynamic_extent_have_known_sizes(opset: int, attributes: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[n, s] x) => (float[n, s] y)
        {{ k = Concat<axis = 1>(x, x) p, q = Split<{attributes}>(k) y = Mul(p, q) }}""")
    (product,) = imported(model).graph.outputs
    split = product.node.inputs[0].node
    assert isinstance(split.op, Operator)
    assert split.attributes["split"] == (symbol("s"), symbol("s"))


def test_unequal_parts_of_a_dynamic_extent_stay_opaque() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, s] x) => (float[n, p] y) { y, z = Split<axis = 1, num_outputs = 2>(x) }""")
    (part,) = imported(model).graph.outputs
    assert isinstance(part.node.op, Opaque)


@pytest.mark.parametrize("opset", [17, 13])
def test_sizes_that_no_input_has_are_read_off_what_is_computed(opset: int) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[n, 1, h, w] x) => (float[n, p, q, 2] y)
        <float[2, 1, 2, 2] k = {{1, 2, 3, 4, 5, 6, 7, 8}}>
        {{ c = Conv<strides = [2, 2], pads = [1, 1, 0, 0]>(x, k)
           y = Transpose<perm = [0, 2, 3, 1]>(c) }}""")
    source = imported(model)
    (old,) = source.graph.outputs
    (image,) = old.node.inputs
    n, channels, h, w = image.shape
    (rows,) = apply("Reshape", [image], {"shape": (n, channels, h * w)})
    (turned,) = apply("Transpose", [rows], {"perm": (0, 2, 1)})
    (new,) = apply("Reshape", [turned], {"shape": (n, h, w, channels)})
    after = ir.to_proto(export_model(source, source.graph.replace({old: new})))
    onnx.checker.check_model(after, full_check=True)
    for sizes in ((2, 7, 4), (1, 1, 1), (3, 2, 9)):
        batch, height, width = sizes
        drawn = np.random.default_rng(1).standard_normal((batch, 1, height, width), np.float32)
        np.testing.assert_array_equal(run(after, {"x": drawn}), run(model, {"x": drawn}))


@pytest.mark.parametrize(("opset", "exponentials"), [(17, 1), (13, 1), (6, 2)])
def test_nothing_stays_only_to_have_its_sizes_read(opset: int, exponentials: int) -> None:
    """Where old opsets cannot reckon with sizes, it stays, under a name of its own."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[n, s] x) => (float[n, s] y)
        {{ a = Abs(x) b = Abs(a) z = Exp(b) sizes = Shape(z)
           t = Transpose(z) r = Reshape(t, sizes) y = Neg(r) }}""")
    source = imported(model)
    (twice,) = next(n.inputs for n in source.graph.nodes if operator_name(n) == "Exp")
    after = export_model(source, source.graph.replace({twice: twice.node.inputs[0]}))
    written = ir.to_proto(after)
    onnx.checker.check_model(written, full_check=True)
    counts = Counter(node.op_type for node in written.graph.node)
    assert (counts["Exp"], counts["Reshape"]) == (exponentials, 1)
    assert {"z", "r"} <= {name for node in written.graph.node for name in node.output}
    for batch, tokens in ((2, 5), (1, 1)):
        given = {"x": np.random.default_rng(1).standard_normal((batch, tokens), np.float32)}
        np.testing.assert_array_equal(run(written, given), run(model, given))


def test_sizes_behind_a_strided_convolution_do_not_keep_it() -> None:
    """No input has them, and what had them is not computed any more."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 1, h, w] x) => (float[n, p, q, 2] y)
        <float[2, 1, 2, 2] k = {1, 2, 3, 4, 5, 6, 7, 8}>
        { c = Conv<strides = [2, 2], pads = [1, 1, 0, 0]>(x, k) a = Abs(c) b = Abs(a) z = Exp(b)
          sizes = Shape(z) t = Transpose(z) r = Reshape(t, sizes) y = Neg(r) }""")
    source = imported(model)
    (twice,) = next(n.inputs for n in source.graph.nodes if operator_name(n) == "Exp")
    graph = source.graph.replace({twice: twice.node.inputs[0]})
    written = ir.to_proto(export_model(source, graph))
    onnx.checker.check_model(written, full_check=True)
    counts = Counter(node.op_type for node in written.graph.node)
    assert (counts["Conv"], counts["Abs"], counts["Exp"]) == (1, 1, 1)
    for batch, height, width in ((2, 7, 4), (1, 1, 1), (3, 2, 9)):
        shape = (batch, 1, height, width)
        given = {"x": np.random.default_rng(1).standard_normal(shape, np.float32)}
        np.testing.assert_array_equal(run(written, given), run(model, given))


def test_a_grid_as_large_as_a_rewritten_image_does_not_keep_the_old_one() -> None:
    """Rows and columns are each expanded to the length of both: neither may wait for the other."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 1, h, w] x) => (float[p, q, 2] y)
        <float[1, 1, 2, 2] k = {1, 2, 3, 4}, float zero = {0}, float one = {1},
         int64[2] column = {-1, 1}, int64[2] row = {1, -1}, int64[1] last = {-1},
         int64 two = {2}, int64 three = {3}>
        { c = Conv<strides = [2, 2], pads = [1, 1, 0, 0]>(x, k) a = Abs(c) b = Abs(a)
          sizes = Shape(b) height = Gather(sizes, two) width = Gather(sizes, three)
          h1 = Cast<to = 1>(height) w1 = Cast<to = 1>(width)
          hs = Range(zero, h1, one) ws = Range(zero, w1, one)
          hn = Shape(hs) wn = Shape(ws) both = Concat<axis = 0>(hn, wn)
          hc = Reshape(hs, column) wr = Reshape(ws, row)
          i = Expand(hc, both) j = Expand(wr, both)
          iu = Unsqueeze(i, last) ju = Unsqueeze(j, last) y = Concat<axis = 2>(iu, ju) }""")
    source = imported(model)
    twice = next(n.outputs[0] for n in source.graph.nodes if operator_name(n) == "Abs")
    twice = next(n.outputs[0] for n in source.graph.users[twice] if operator_name(n) == "Abs")
    written = ir.to_proto(export_model(source, source.graph.replace({twice: twice.node.inputs[0]})))
    onnx.checker.check_model(written, full_check=True)
    counts = Counter(node.op_type for node in written.graph.node)
    assert (counts["Conv"], counts["Abs"], counts["Range"], counts["Expand"]) == (1, 1, 2, 2)
    for height, width in ((7, 4), (1, 1), (2, 9)):
        given = {"x": np.ones((1, 1, height, width), np.float32)}
        np.testing.assert_array_equal(run(written, given), run(model, given))


def test_sizes_are_read_off_nothing_that_waits_for_them() -> None:
    """What is expanded as `o` is has the sizes that `o` is looking for, and reads them off it."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 1, h, w] x, float[1, 1, 1, 1] u, float[1, 1, 1, 1] v)
          => (float[1, 1, p, q] o, float[1, 1, p, q] n, float[1, 1, p, q] y)
        <float[1, 1, 2, 2] k = {1, 2, 3, 4}>
        { c = Conv<strides = [2, 2], pads = [1, 1, 0, 0]>(x, k) a = Abs(c) b = Abs(a) s = Shape(b)
          o = Expand(u, s) so = Shape(o) d = Abs(v) e = Abs(d) n = Expand(e, so) y = Neg(b) }""")
    source = imported(model)
    doubled = [
        node.outputs[0]
        for node in source.graph.nodes
        if operator_name(node)
        == operator_name(node.inputs[0].node if node.inputs else node)
        == "Abs"
    ]
    graph = source.graph.replace({value: value.node.inputs[0] for value in doubled})
    written = ir.to_proto(export_model(source, graph))
    assert Counter(node.op_type for node in written.graph.node)["Abs"] == 2
    one = np.full((1, 1, 1, 1), -2, np.float32)
    for height, width in ((7, 4), (1, 1), (2, 9)):
        given = {"x": np.ones((1, 1, height, width), np.float32), "u": one, "v": one}
        for mine, theirs in zip(run_model(written, given), run_model(model, given), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_sizes_are_read_off_constants_that_are_made_at_run_time() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 1, h, w] x) => (float[p, q] y)
        <float[1, 1, 1, 1] k = {2}, float zero = {0}, float one = {1}, int64[1] three = {3},
         int64[1] axis = {0}, int64 two = {2}, int64[2] column = {-1, 1}>
        { a = Abs(x) b = Abs(a) c = Conv<strides = [1, 2]>(b, k) s = Shape(c)
          n = Gather<axis = 0>(s, two) f = Cast<to = 1>(n) r2 = Range(zero, f, one)
          t0 = Squeeze(three, axis) t1 = Cast<to = 1>(t0) r1 = Range(zero, t1, one)
          n1 = Shape(r1) n2 = Shape(r2) t = Concat<axis = 0>(n1, n2) u = Reshape(r1, column)
          e = Expand(u, t) y = Add(e, r2) }""")
    source = imported(model)
    first = next(n.outputs[0] for n in source.graph.nodes if operator_name(n) == "Abs")
    (second,) = (n.outputs[0] for n in source.graph.users[first])
    written = ir.to_proto(export_model(source, source.graph.replace({second: first})))
    counts = Counter(node.op_type for node in written.graph.node)
    assert (counts["Conv"], counts["Abs"], counts["Range"]) == (1, 1, 2)
    given = {"x": np.ones((1, 1, 5, 4), np.float32)}
    np.testing.assert_array_equal(run(written, given), run(model, given))


def test_an_old_network_that_stays_for_its_sizes_is_walked_once() -> None:
    """It has as many paths as there are subsets of its blocks."""
    blocks = " ".join(f"a{n} = Abs(t{n}) t{n + 1} = Add(t{n}, a{n})" for n in range(60))
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 6]>
        g (float[n, s] x) => (float[n, s] y)
        {{ a = Abs(x) t0 = Abs(a) {blocks} sizes = Shape(t60) t = Transpose(t60)
           r = Reshape(t, sizes) y = Neg(r) }}""")
    source = imported(model)
    twice = next(n.outputs[0] for n in source.graph.nodes if n.inputs and not n.inputs[0].is_leaf)
    graph = source.graph.replace({twice: twice.node.inputs[0]})
    assert len(graph.nodes) < len(source.graph.nodes)
    assert ir.to_proto(export_model(source, graph)).graph.node


def test_quotients_of_sizes_are_rounded_down() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[h] x) => (float[h] y) <float[1] c = {3}> { y = Mul(x, c) }""")
    source = imported(model)
    (old,) = source.graph.outputs
    x, c = old.node.inputs
    (h,) = x.shape
    negative = floor_divide(3 - h, 2)
    parts = [apply("Expand", [c], {"shape": (part,)})[0] for part in (h + negative, -negative)]
    (wide,) = apply("Concat", parts, {"axis": 0})
    (new,) = apply("Mul", [x, wide], {})
    written = ir.to_proto(export_model(source, Graph((new,))))
    for size in (2, 3, 4, 5, 8, 9):
        given = {"x": np.arange(size, dtype=np.float32)}
        np.testing.assert_array_equal(run(written, given), run(model, given))


def test_a_constant_of_dynamic_sizes_is_made_at_run_time() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[n, s] x) => (float[n, s] y) <float[1] c = {3}> { y = Mul(x, c) }""")
    source = imported(model)
    (old,) = source.graph.outputs
    x, c = old.node.inputs
    (wide,) = apply("Expand", [c], {"shape": x.shape})
    (new,) = apply("Mul", [x, wide], {})
    after = ir.to_proto(export_model(source, source.graph.replace({old: new})))
    assert [node.op_type for node in after.graph.node][-2:] == ["Expand", "Mul"]
    given = {"x": np.ones((2, 5), np.float32)}
    np.testing.assert_array_equal(run(after, given), run(model, given))


def test_a_guard_behind_a_mask_made_by_range_has_the_sizes_of_the_scores() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[n, s] x) => (float[n, s] y) <int64 start = {0}, int64 step = {1}, float c = {0}>
        { l = Shape<start = 1>(x) axes = Constant<value_ints = [0]>() end = Squeeze(l, axes)
          r = Range(start, end, step) f = Cast<to = 1>(r) m = Add(x, f)
          odd = IsNaN(m) y = Where(odd, c, m) }""")
    (chosen,) = imported(model).graph.outputs
    assert chosen.shape == (symbol("n"), symbol("s"))
    assert operators(imported(model))["Where"] == 1


POSITIONS = """<ir_version: 9, opset_import: ["" : 17]>
    g (float[n, s, 4] x, float[n, t, 4] z) => (float[n, s, 4] y)
    <float[1, 8, 4] table = {TABLE}, int64[1] first = {0}, int64[1] second = {1}>
    { length = Shape<start = 1, end = 2>(OF) part = Slice(table, first, length, second)
      y = Add(x, part) }"""
"""What BERT does with positions, of which it has eight here."""


@pytest.mark.parametrize(("of", "follows"), [("x", True), ("z", False)])
def test_positions_cut_to_the_length_of_an_input_leave_its_sizes_known(
    of: str, follows: bool
) -> None:
    numbers = ", ".join(map(str, range(32)))
    text = POSITIONS.replace("TABLE", numbers).replace("OF", of)
    (y,) = imported(onnx.parser.parse_model(text)).graph.outputs
    assert (y.shape == (symbol("n"), symbol("s"), 4)) == follows


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "shape"),
    [
        ([0], [3], [1], (1, 3, 4)),
        ([0], [9], [-2], (1, 8, 4)),
        ([0, 0], [3, 2], [1, 2], (1, 3, 2)),
        ([1], [3], [1], (1, "b", 4)),
        ([0, 0], [3], [1], None),  # and such do not run
        ([0], [3], [5], None),
        ([0, 0], [3, 2], [1, 1], None),
    ],
)
def test_what_a_slice_leaves(
    starts: list[int], ends: list[int], axes: list[int], shape: tuple[int | str, ...] | None
) -> None:
    inferred = symbols("a b c")
    vectors = [np.array(vector) for vector in (starts, ends, axes)]
    found, clipped = cut_shape((1, 8, 4), vectors, inferred)
    assert not clipped
    assert [str(size) for size in found] == [str(size) for size in shape or inferred]


def test_a_number_that_is_said_of_a_clipped_size_says_nothing_of_other_sizes() -> None:
    vectors = [np.array([0]), np.array([symbol("s")], object), np.array([1])]
    unknown = (1, symbol("u"), 4)
    assert cut_shape((1, 8, 4), vectors, unknown) == (unknown, {symbol("u"): symbol("s")})
    assert cut_shape((1, 8, 4), vectors, (1, 3, 4)) == ((1, 3, 4), {})


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, dict(feeds))
    return np.asarray(result)


SPECTRUM = """<ir_version: 8, opset_import: ["" : 17]>
spectrum (float[b, l] x, float[20] window) => (float[b, f, k] y)
<int64 hop = {5}, int64 length = {20}, int64 real = {0}, int64 imaginary = {1}>
{
    s = STFT(x, hop, WINDOW, LENGTH)
    t = Transpose<perm = [0, 2, 1, 3]>(s)
    a = Gather<axis = 3>(t, real)
    b = Gather<axis = 3>(t, imaginary)
    q = Div(b, a)
    angle = Atan(q)
    c = Mul(a, a)
    d = Mul(angle, c)
    y = Transpose<perm = [0, 2, 1]>(d)
}"""


@pytest.mark.parametrize("frame", ["hop, window, length", "hop, window", "hop, , length"])
def test_what_is_computed_from_spectra_of_a_signal_of_any_length_is_known(frame: str) -> None:
    model = ir.from_onnx_text(SPECTRUM.replace("hop, WINDOW, LENGTH", frame))
    imported = import_model(model)
    opaque = [each.op_type for each in imported.opaque_nodes.values()]
    assert opaque == ["STFT", "Atan"]
    (y,) = imported.graph.outputs
    x = imported.values[model.graph.inputs[0]]
    assert (y.type.dtype, y.shape[0], y.shape[2]) == ("FLOAT", x.shape[0], 11)
    # The runtime divides in floats: the number of frames does not follow from the length.
    assert not free_symbols(y.shape[1]) & free_symbols(x.shape[1])


def test_the_shape_of_spectra() -> None:
    real, many, complex_ = (symbol("b"), symbol("l")), (2, 100, 1), (2, 100, 2)
    five, sixteen = np.array(5), np.array(16)

    def told(*shapes: Shape | None, onesided: int = 1, length: np.ndarray | None = None) -> object:
        node = ir.node("STFT", [None] * 4, {"onesided": onesided})
        return spectra(node, [shapes[0], (), *shapes[1:]], [None, five, None, length])

    assert told(real, (20,)) == (symbol("b"), None, 11, 2)
    assert told(many, (21,)) == (2, None, 11, 2)
    assert told(many, None, (), length=sixteen) == (2, None, 9, 2)
    assert told(complex_, (20,), onesided=0) == (2, None, 20, 2)
    assert told(complex_, (20,)) is None
    assert told(real, (symbol("w"),)) is None
    assert told(real, None, ()) is None
    assert told((), (20,)) is None


def test_what_is_not_determined_stays_opaque() -> None:
    add = Builder()
    half = add("Div", add.size("x", 0), add.constant([2]))  # not exact for odd sizes
    target = add("Concat", half, add.constant([-1]), axis=0)
    model = add.model(add("Reshape", "x", target), ["n", 4], ["m", "k"])
    assert operators(imported(model)) == {"opaque": 6}


def test_constants_that_wrap_around_are_left_to_the_runtime() -> None:
    """Sums of sizes never do, so that what does is no size."""
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (uint8[2] x) => (uint8[2] y) {'
        " a = Constant<value = uint8[2] {200, 1}>() b = Constant<value = uint8[2] {100, 2}>()"
        " c = Add(a, b) y = Add(x, c) }"
    )
    result = xflow.optimize(model, cost="estimated", budget=2, check=1)
    (found,) = run_model(ir.to_proto(result.model), {"x": np.array([1, 2], np.uint8)})
    assert found.tolist() == [45, 5]


FLOATING = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[batch, 6, 7] x) => (float[a, b, c] y)
    <int64[1] start = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] end = {3},
     int64[1] rest = {-1}, float[1] patch = {2.0}, int64[6] pads = {0, 0, 0, 0, 0, 1}> {
        sizes = Shape(x) size = Slice(sizes, two, end) real = Cast<to=1>(size)
        parts = Div(real, patch) whole = Ceil(parts) count = Cast<to=7>(whole)
        batch = Slice(sizes, start, one) target = Concat<axis=0>(batch, count, rest)
        padded = Pad(x, pads) y = Reshape(padded, target) }"""
"""As exports of `ceil(width / patch)` compute a size, of which ONNX's inference knows nothing."""


def test_numbers_of_sizes_are_computed_through_floats() -> None:
    model = onnx.parser.parse_model(FLOATING)
    imported = import_model(ir.from_proto(model))
    batch = symbol("batch")
    assert imported.graph.outputs[0].shape == (batch, 4, 12)
    x = np.random.default_rng(0).random((5, 6, 7), np.float32)
    assert run_model(model, {"x": x})[0].shape == (5, 4, 12)


@pytest.mark.parametrize("divisor", ["0.0", "1e-30", "-0.0", "nan"])
def test_casts_of_what_is_no_size_are_left_to_the_runtime(divisor: str) -> None:
    model = onnx.parser.parse_model(FLOATING)
    (patch,) = (each for each in model.graph.initializer if each.name == "patch")
    patch.CopyFrom(numpy_helper.from_array(np.asarray([float(divisor)], np.float32), "patch"))
    imported = import_model(ir.from_proto(model))
    (count,) = (value for value in imported.values if value.name == "count")
    assert count not in imported.known


def test_products_of_floats_are_left_to_the_runtime() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[206] x) => (float[n] y) <float[3] v = {6.0, 4.6, 7.5}> {
            p = ReduceProd(v) f = Floor(p) target = Cast<to=7>(f) y = Reshape(x, target) }"""
    imported = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    (target,) = (value for value in imported.values if value.name == "target")
    assert target not in imported.known  # 207 in double precision, and 206 in single


def test_positions_that_are_repeated_for_each_text_have_known_sizes() -> None:
    """Whisper repeats positions for each text of the batch, and gathers rows of a table by them."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[n, s, 4] x, float[8, 4] table) => (float[n, s, 4] y)
        <int64 first = {0}, int64 step = {1}, int64[1] one = {1}>
        { batch = Shape<start = 0, end = 1>(x) length = Shape<start = 1, end = 2>(x)
          end = Squeeze(length) r = Range(first, end, step)
          zero = Constant<value_ints = [0]>() row = Unsqueeze(r, zero)
          times = Concat<axis = 0>(batch, one) rows = Tile(row, times)
          last = Constant<value_ints = [-1]>() at = Unsqueeze(rows, last)
          part = GatherND(table, at) y = Add(x, part) }""")
    assert operators(imported(model))["Add"] == 1
    assert imported(model).graph.outputs[0].shape == (symbol("n"), symbol("s"), 4)


ENLARGED = {
    "sizes": ("e = Resize<mode = "
              '"linear">(p, none, none, sizes)', 11),
    "no scales": ('e = Resize<mode = "linear">(p, , , sizes)', 18),
    "whole factors": ('e = Resize<mode = "linear">(p, none, twice)', 11),
    "omitted sizes": ('e = Resize<mode = "linear">(p, none, twice, )', 18),
    "an older form": ('e = Resize<mode = "linear">(p, twice)', 10),
    "repeated": ("e = Resize(p, none, none, sizes)", 13),
}  # fmt: skip
"""Ways to make an image of 2 h by 2 w pixels of one that is half as large, and their opsets."""


@pytest.mark.parametrize("name", ENLARGED)
def test_what_is_computed_behind_an_enlarged_image_is_known(name: str) -> None:
    """The exporter of PyTorch computes its size from that of another one, as in each pyramid."""
    body, opset = ENLARGED[name]
    model = onnx.parser.parse_model(
        f"""<ir_version: 5, opset_import: ["" : {opset}]>
        g (float[n, 2, h, w] p) => (float[n, 2, a, b] y)
        <float[4] twice = {{1, 1, 2, 2}}, float[0] none = {{}}, int64[4] times = {{1, 1, 2, 2}}> {{
            s = Shape(p)
            sizes = Mul(s, times)
            {body}
            t = Transpose<perm = [0, 1, 3, 2]>(e)
            u = Transpose<perm = [0, 1, 3, 2]>(t)
            r = Relu(u)
            y = Add(e, r)
        }}"""
    )
    known = imported(model)
    n, h, w = (symbol(each) for each in "nhw")
    assert known.graph.outputs[0].shape == (n, 2, 2 * h, 2 * w)
    assert operators(known)["opaque"] <= 3  # the Resize, and what computes its size
    assert ("Resize" in operators(known)) == (name == "repeated")
    if name != "sizes":
        return
    image = np.random.default_rng(0).standard_normal((3, 2, 4, 5), np.float32)
    image[0, 0, 1, 1:3] = np.nan, np.inf
    result = xflow.optimize(model, budget=5.0, threads=1, cost="estimated", check=1).model
    assert not any(node.op_type == "Transpose" for node in result.graph)
    for feed in (image, image[:0], image[:1, :, :1, :1]):
        before, after = (run_model(proto, {"p": feed}) for proto in (model, ir.to_proto(result)))
        np.testing.assert_array_equal(before, after)
