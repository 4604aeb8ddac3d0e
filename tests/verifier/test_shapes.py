"""Operators of shape and window: true rules are proved, wrong ones refuted, and their corners."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from longer import some, without
from operator_cases import (
    as_floats,
    assert_equal,
    exact_inputs,
    onnx_model,
    outputs_by_specification,
    read_node,
    run_onnxruntime,
)
from places import CORPUS

from xflow.core.errors import RuleFileError, ShapeError
from xflow.core.node import TensorType, Value, apply, complete_attributes, format_value, leaf
from xflow.core.registry import Array, Attributes, Example, Need, OnnxCall, Operator, Shape
from xflow.core.size import Size, symbols
from xflow.onnx.importer import import_model
from xflow.onnx.region import region_model
from xflow.ops import operator
from xflow.ops.einsum import Equation
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier import prove as prover
from xflow.verifier.prove import Proved, Unknown, prove
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.refute import Survived, search_counterexample

TRUE = parse_rules((CORPUS / "shapes.rules").read_text(), "shapes.rules")
WRONG = parse_rules((CORPUS / "bad_shapes.rules").read_text(), "bad_shapes.rules")


def names(rule: Rule) -> str:
    return rule.name


def test_the_corpora_are_large_enough() -> None:
    assert len({rule.name for rule in TRUE}) >= 40
    assert len({rule.name for rule in WRONG}) >= 25


LONGEST = "transposed-convolutions-of-one-input-added", "transposed-convolutions-of-a-sum"
"""Those that take many seconds."""


@pytest.mark.parametrize("rule", some(without(TRUE, *LONGEST), 2), ids=names)
def test_a_true_rule_is_proved(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)


@pytest.mark.parametrize(
    "rule",
    without(WRONG, "transposed-convolution-without-overlap-in-the-wrong-mode"),
    ids=names,
)
def test_a_wrong_rule_is_refuted_and_not_proved_even_without_evaluation(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(search_counterexample(rule), Counterexample)
    monkeypatch.setattr(prover, "search_counterexample", lambda *_, **__: Survived(10**6))
    assert isinstance(prove(rule, infer=False, both_ways=False), Unknown)


# Words


def test_a_word_is_part_of_a_rule_and_is_printed_with_it() -> None:
    (rule,) = parse_rules(
        "rule r\n  in x[N, 4 * C, H, W]\n  from DepthToSpace(x, blocksize=2, mode='CRD')\n  to "
        "DepthToSpace(x, blocksize=2)\n"
    )
    assert parse_rules(str(rule)) == [rule]
    lhs, rhs = rule.instance(0).lhs[0], rule.instance(0).rhs[0]
    assert lhs.node.attributes["mode"] == "CRD"
    assert rhs.node.attributes["mode"] == "DCR"
    assert format_value(lhs) == "DepthToSpace(x, blocksize=2, mode='CRD')"


@pytest.mark.parametrize("word", ["CRD", "1", "['CRD']", "'crd'"])
def test_a_word_that_is_not_in_quotes_or_not_known_is_not_read(word: str) -> None:
    with pytest.raises(RuleFileError):
        parse_rules(
            f"rule r\n  in x[N, 4, H, W]\n  from DepthToSpace(x, blocksize=2, mode={word})\n  to x"
        )


# Rounding up in pooling

EXTENTS = (1, 2, 4, 5, 6)
BORDERS = ((0, 0), (1, 1), (0, 1), (2, 1))


@pytest.mark.parametrize(
    ("name", "count"), [("MaxPool", 0), ("AveragePool", 0), ("AveragePool", 1)], ids=str
)
def test_pooling_rounds_up_as_onnxruntime_does(name: str, count: int) -> None:
    """Also where the last window would begin behind the input: it is left out."""
    op = operator(name)
    compared = 0
    for n, k, s, (begin, end) in product(EXTENTS, (1, 2, 3), (1, 2, 3, 4), BORDERS):
        plain = {"kernel_shape": [k], "strides": [s], "pads": [begin, end], "ceil_mode": 1}
        if count:
            plain["count_include_pad"] = count
        model = onnx_model(OnnxCall(name, 20, "", plain, ((1, 2, n),)), 1)
        understood = op.from_onnx(read_node(model))
        assert understood is not None
        shapes = ((1, 2, n),)
        attributes = complete_attributes(op, understood[0], shapes)
        try:
            found = op.shape(shapes, attributes, Need())
        except ShapeError:
            continue
        exact = exact_inputs(op, Example(shapes))
        arrays = as_floats(exact, np.float32)
        expected = op.numpy(arrays, attributes)
        assert found == [array.shape for array in expected]
        assert_equal(run_onnxruntime(model, arrays), expected, rtol=1e-5)
        assert_equal(outputs_by_specification(op, shapes, attributes, exact, {}), expected, 1e-5)
        compared += 1
    assert compared >= 100


def test_rounding_up_is_written_as_pads_also_at_unknown_sizes() -> None:
    (n,) = symbols("n")
    attributes: Attributes = {"kernel_shape": (3,), "strides": (2,), "ceil_mode": 1}
    x = leaf("x", TensorType("REAL", (1, 1, n)))
    (pooled,) = apply("MaxPool", (x,), attributes)
    assert pooled.node.attributes["ceil_mode"] == 0
    assert pooled.node.attributes["pads"] == (0, (3 - n) % 2)
    assert apply("MaxPool", (_leaf(1, 1, 6),), attributes)[0].shape == (1, 1, 3)
    assert apply("MaxPool", (_leaf(1, 1, 7),), attributes)[0].shape == (1, 1, 3)


def test_rounding_up_an_unknown_extent_is_not_read_from_a_model() -> None:
    (n,) = symbols("n")
    plain = {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}
    op = operator("MaxPool")
    assert op.from_onnx(OnnxCall("MaxPool", 20, "", plain, ((1, 2, n),))) is None
    assert op.from_onnx(OnnxCall("MaxPool", 20, "", plain, ((n, 2, 6),))) is not None


def test_a_negative_pad_is_refused_also_where_rounding_up_would_hide_it() -> None:
    attributes: Attributes = {
        "kernel_shape": (3,),
        "strides": (2,),
        "pads": (0, -1),
        "ceil_mode": 1,
    }
    for name in ("MaxPool", "AveragePool"):
        with pytest.raises(ShapeError):
            apply(name, (_leaf(1, 1, 7),), attributes)


# Transposed convolution


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
def test_pads_of_a_transposed_convolution_are_resolved_as_onnxruntime_does(mode: str) -> None:
    op = operator("ConvTranspose")
    compared = 0
    for n, k, s, d, cut in product((1, 3), (1, 2, 4), (1, 2, 3), (1, 2), (None, -1, 0, 1, 2, 3)):
        full = s * (n - 1) + d * (k - 1) + 1
        plain: dict[str, object] = {"strides": [s], "dilations": [d], "auto_pad": mode}
        if cut is not None and full - cut >= 1:
            plain["output_shape"] = [full - cut]
        shapes: tuple[Shape, ...] = ((1, 1, n), (1, 2, k))
        model = onnx_model(OnnxCall("ConvTranspose", 20, "", plain, shapes), 1)
        understood = op.from_onnx(read_node(model))
        if understood is None:
            continue
        attributes = complete_attributes(op, understood[0], shapes)
        try:
            op.shape(shapes, attributes, Need())
        except ShapeError:
            continue
        arrays = as_floats(exact_inputs(op, Example(((1, 1, n), (1, 2, k)))), np.float32)
        assert_equal(run_onnxruntime(model, arrays), op.numpy(arrays, attributes), rtol=1e-5)
        compared += 1
    assert compared >= 20


# Einsum


def _leaf(*shape: Size) -> Value:
    return leaf(f"x{shape}", TensorType("REAL", shape))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("ij,jk->ik", "ab,bc->ac"),
        (" i j , j k -> i k ", "ab,bc->ac"),
        ("ij,jk", "ab,bc->ac"),
        ("kj,ji", "ab,bc->ca"),
        ("bij,bjk->bik", "abc,acd->abd"),
        ("ZY,YX->ZX", "ab,bc->ac"),
        ("...ij,...jk->...ik", "...ab,...bc->...ac"),
        ("i...,i...", "a...,a...->..."),
        ("ij,ij", "ab,ab->"),
    ],
)
def test_equations_that_mean_the_same_are_one(text: str, canonical: str) -> None:
    assert str(Equation.parse(text).renamed()) == canonical
    assert str(Equation.parse(canonical).renamed()) == canonical


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("ii->i", (2,)),
        ("ij->ii", (2,)),
        ("ij->k", (2,)),
        ("i1->i", (2,)),
        ("i.j->ij", (2,)),
        ("ij,jk->ik", (2, 3)),
        ("ij,jk->ik", (2,)),
        ("...i->i", (2,)),
        ("i->...i", (1,)),
        ("...ij,...jk->...ik", (3, 2)),
        ("......i->i", (2,)),
        ("ab,bC", (2, 2)),
        ("->", (1,)),
    ],
)
def test_an_equation_that_is_malformed_or_not_declared_is_refused(
    text: str, ranks: tuple[int, ...]
) -> None:
    with pytest.raises(ShapeError):
        apply("Einsum", [_leaf(*(2,) * rank) for rank in ranks], {"equation": text})


def test_axes_with_one_label_have_one_extent() -> None:
    n, m = symbols("n m")
    need = Need()
    apply("Einsum", (_leaf(2, n), _leaf(m, 3)), {"equation": "ij,jk->ik"}, need=need)
    assert [condition.substitute({"m": n}).decided for condition in need.conditions] == [True]
    with pytest.raises(ShapeError):
        apply("Einsum", (_leaf(2, 1), _leaf(3, 3)), {"equation": "ij,jk->ik"})


@pytest.mark.parametrize("seed", range(12))
def test_a_random_einsum_is_numpys(seed: int) -> None:
    """The definition, run by the operators that it consists of, against `numpy.einsum`."""
    rng = np.random.default_rng(seed)
    sizes = dict(zip("abcdef", rng.permutation([1, 2, 3, 2, 3, 4]), strict=True))
    terms = [
        "".join(rng.permutation(list("abcdef"))[: rng.integers(0, 4)])
        for _ in range(rng.integers(1, 4))
    ]
    met = sorted(set("".join(terms)))
    output = "".join(rng.permutation(met)[: rng.integers(0, len(met) + 1)]) if met else ""
    equation = f"{','.join(terms)}->{output}"
    op = operator("Einsum")
    shapes = tuple(tuple(int(sizes[x]) for x in term) for term in terms)
    attributes = complete_attributes(op, {"equation": equation}, shapes)
    exact = exact_inputs(op, Example(shapes))
    expected: list[Array] = [np.asarray(np.einsum(equation, *as_floats(exact)))]
    assert op.shape(shapes, attributes, Need()) == [expected[0].shape]
    assert_equal(outputs_by_specification(op, shapes, attributes, exact, {}), expected)
    assert_equal(op.numpy(as_floats(exact), attributes), expected)


# Backwards


@pytest.mark.parametrize(
    ("start", "end", "step"), [(4, -1, -1), (3, 0, -2), (2, 2, -1), (0, -1, -3)]
)
def test_a_slice_backwards_is_read_and_written(start: int, end: int, step: int) -> None:
    op = operator("Slice")
    shapes = ((2, 5),)
    cut = {"starts": (start,), "ends": (end,), "axes": (1,), "steps": (step,)}
    call = op.to_onnx(cut, shapes, 20)
    assert call is not None
    model = onnx_model(call, 1)
    exact = exact_inputs(op, Example(shapes))
    expected = [exact[0][:, range(start, end, step)]]
    assert op.shape(shapes, cut, Need()) == [expected[0].shape]
    assert_equal(op.numpy(exact, cut), expected)
    assert_equal(outputs_by_specification(op, shapes, cut, exact, {}), expected)
    assert_equal(run_onnxruntime(model, as_floats(exact, np.float32)), expected, rtol=1e-6)
    assert op.from_onnx(read_node(model)) == (cut, (0,))


@pytest.mark.parametrize(("start", "end"), [(5, 0), (-1, -1), (2, 3), (4, -2)])
def test_a_slice_backwards_stays_within_the_axis(start: int, end: int) -> None:
    cut = {"starts": (start,), "ends": (end,), "axes": (0,), "steps": (-1,)}
    with pytest.raises(ShapeError):
        apply("Slice", (_leaf(5),), cut)


def test_the_reversal_of_an_unknown_extent_is_read_and_written() -> None:
    (n,) = symbols("n")
    op = operator("Slice")
    cut = {"starts": (n - 1,), "ends": (-1,), "axes": (0,), "steps": (-1,)}
    call = op.to_onnx(cut, ((n,),), 20)
    assert call is not None
    columns = [call.constants[k].tolist() for k in (1, 2, 3, 4)]
    assert columns == [[-1], [-(2**63 - 1)], [0], [-1]]
    assert op.from_onnx(replace(call, shapes=((n,), (1,), (1,), (1,), (1,)))) == (cut, (0,))


# In a model

NETWORK = """<ir_version: 8, opset_import: ["" : 19]>
    net (float[batch, 4, 3, 5] x, float[4, 8, 2, 2] w, float[4, 6] v) => (float[2, batch, 6] y)
    <float[0] none = {}, float[4] twice = {1.0, 1.0, 2.0, 2.0},
     int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 0}, int64[4] rows = {1, 1, 2, 1},
     int64[3] two = {2, 1, 1},
     int64[1] start = {-1}, int64[1] end = {-100}, int64[1] axis = {3}, int64[1] step = {-2},
     int64[3] shape = {0, 4, -1}, int64[1] last = {2}>
    {
        a = ConvTranspose <strides = [2, 1], output_padding = [1, 0], auto_pad = "VALID"> (x, w)
        b = Resize <mode = "nearest"> (a, none, twice)
        c = DepthToSpace <blocksize = 2, mode = "CRD"> (b)
        d = SpaceToDepth <blocksize = 2> (c)
        e = Pad <mode = "reflect"> (d, pads)
        f = MaxPool <kernel_shape = [3, 2], strides = [2, 3], ceil_mode = 1> (e)
        g = AveragePool <kernel_shape = [2, 3], strides = [2, 2], pads = [1, 1, 0, 0],
                         ceil_mode = 1, count_include_pad = 1> (f)
        h = Tile (g, rows)
        i = Slice (h, start, end, axis, step)
        j = Flatten (i)
        k = Reshape (j, shape)
        l = ReduceMean <keepdims = 0> (k, last)
        m = Einsum <equation = "...j, jk"> (l, v)
        y = Expand (m, two)
    }"""


def test_a_model_of_these_operators_is_understood_and_written_anew() -> None:
    proto = onnx.parser.parse_model(NETWORK)
    onnx.checker.check_model(proto)
    imported = import_model(ir.from_proto(proto))
    known = [node.op.name for node in imported.graph.nodes if isinstance(node.op, Operator)]
    assert len(known) == len(proto.graph.node), known
    content = region_model(imported.graph, imported.constants, sizes={"batch": 3}, opset=19)
    rng = np.random.default_rng(5)
    arrays = [
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((3, 4, 3, 5), (4, 8, 2, 2), (4, 6))
    ]
    new = onnx.load_from_string(content)
    names = [value.name for value in new.graph.input]
    feeds = dict(zip(("x", "w", "v"), arrays, strict=True))
    anew = run_onnxruntime(new, [feeds[name] for name in names])
    assert_equal(anew, run_onnxruntime(proto, arrays), rtol=1e-5)


# Matching


def test_a_rule_for_one_equation_is_that_for_other_letters() -> None:
    (rule,) = [rule for rule in TRUE if rule.name == "einsum-in-a-batch-is-matmul"]
    other = replace(rule, lhs=rule.lhs.replace("bij,bjk->bik", "xyz,xzw->xyw"))
    assert rule.instance(0).lhs == other.instance(0).lhs
