"""Attention with keys and values of the past, and causal attention, as models have them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

import xflow
from xflow.blocks.find import find_larger, find_with_pasts
from xflow.core.node import complete_attributes
from xflow.core.registry import Array, OnnxCall
from xflow.onnx.importer import import_model
from xflow.ops import by_onnx
from xflow.rewriting.text import parse_rules

HEADS, GROUPS, DEPTH = 4, 2, 8
RULES = """
rule masked-attention-with-a-past
  in       q[B, H, S, D] x[B, C, P, D] k[B, C, L, D] y[B, C, P, E] v[B, C, L, E]
             a[1, 1, S, L + P]:bool
  param    s:real
  from     MaskedAttention(q, Concat(x, k, axis=2), Concat(y, v, axis=2), a, scale=s),
             Concat(x, k, axis=2), Concat(y, v, axis=2)
  to       CachedMaskedAttention(q, k, v, x, y, a, scale=s)[0],
             CachedMaskedAttention(q, k, v, x, y, a, scale=s)[1],
             CachedMaskedAttention(q, k, v, x, y, a, scale=s)[2]
  types    reals
  limits   q x k

rule masked-attention-to-causal-attention
  in       q[B, H, S, D] k[B, C, L, D] v[B, C, L, E]
  param    s:real
  from     MaskedAttention(q, k, v, LowerTriangle(shape=[1, 1, S, L]), scale=s)
  to       CausalAttention(q, k, v, scale=s)
  types    reals
  limits   q k

rule causal-attention-with-a-past
  in       q[B, H, S, D] k[B, C, L, D] v[B, C, L, E] x[B, C, P, D] y[B, C, P, E]
  param    s:real
  from     CachedMaskedAttention(q, k, v, x, y, LowerTriangle(shape=[1, 1, S, L + P], offset=P),
             scale=s)[0], CachedMaskedAttention(q, k, v, x, y, LowerTriangle(shape=[1, 1, S, L + P],
             offset=P), scale=s)[1], CachedMaskedAttention(q, k, v, x, y, LowerTriangle(shape=[1, 1,
             S, L + P], offset=P), scale=s)[2]
  to       CachedCausalAttention(q, k, v, x, y, scale=s)[0],
             CachedCausalAttention(q, k, v, x, y, scale=s)[1],
             CachedCausalAttention(q, k, v, x, y, scale=s)[2]
  types    reals
  limits   q k x

rule masked-attention-to-attention
  in       q[B, H, S, D] k[B, C, L, D] v[B, C, L, E]
  param    s:real
  from     MaskedAttention(q, k, v, AllTrue(shape=[1, 1, S, L]), scale=s)
  to       Attention(q, k, v, scale=s)
  where    finite(k), finite(q)
  types    reals

rule causal-attention-of-shared-heads
  in       q[B, H*n, S, D] k[B, H, L, D] v[B, H, L, E]
  param    n s:real
  from     CausalAttention(q, Reshape(Expand(Unsqueeze(k, axes=[2]), shape=[B, H, n, L, D]),
             shape=[B, H * n, L, D]), Reshape(Expand(Unsqueeze(v, axes=[2]), shape=[B, H, n, L, E]),
             shape=[B, H * n, L, E]), scale=s)
  to       CausalAttention(q, k, v, scale=s)
  where    H >= 1
  types    reals
  limits   q k
"""
"""As the generator proves them."""

SEEN = np.tril(np.ones((1, 1, 3, 8), bool), 5)
COVERED = SEEN & (np.arange(3) != 1)[:, None]
LATER = (np.add.outer(np.arange(8), np.arange(8)) % 3 > 0)[None, None]
"""In some rows keys alone that are later than the query, which has none of these."""
LATER[0, 0, (1, 6)] = np.arange(8) > 1, np.arange(8) > 6


def arrays(new: int = 3, past: int | None = 5, *, packed: bool = False) -> dict[str, Array]:
    """Random queries, keys and values of new tokens, and those of the past."""
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"Q": (1, HEADS, new, DEPTH)}
    shapes |= dict.fromkeys("KV", (1, GROUPS, new, DEPTH))
    if packed:
        shapes = {name: (1, new, shape[1] * DEPTH) for name, shape in shapes.items()}
    if past is not None:
        shapes |= dict.fromkeys(("past_key", "past_value"), (1, GROUPS, past, DEPTH))
    return {name: random.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


ORDER = ("Q", "K", "V", "mask", "past_key", "past_value", "nonpad")


def single(feeds: dict[str, Array], outputs: int, **attributes: float) -> onnx.ModelProto:
    """A model of one Attention."""
    names = [name if name in feeds else "" for name in ORDER]
    while not names[-1]:
        names.pop()
    given = [f"o{k}" for k in range(outputs)]
    node = onnx.helper.make_node("Attention", names, given, **attributes)
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    infos = [onnx.helper.make_tensor_value_info(name, 1, None) for name in given]
    graph = onnx.helper.make_graph([node], "g", inputs, infos)
    opsets = [onnx.helper.make_opsetid("", 24 if "nonpad" in feeds else 23)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(source: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return list(ort.InferenceSession(source.SerializeToString(), options).run(None, feeds))


def by_declaration(source: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """What the operator gives as which the node of a model is read."""
    (node,) = source.graph.node
    known = {name: feeds[name].shape for name in node.input if name}
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    shapes = tuple(known.get(name) for name in node.input)
    call = OnnxCall("Attention", 23, "", given, shapes, outputs=len(node.output))
    (name,) = (
        node.op.name  # type: ignore[union-attr]
        for node in import_model(ir.from_proto(source)).graph.nodes
        if node.inputs
    )
    (op,) = (op for op in by_onnx("Attention", "", 23) if op.name == name)
    read = op.from_onnx(call)
    assert read is not None
    inputs = [feeds[node.input[position]] for position in read[1]]
    attributes = complete_attributes(op, read[0], [array.shape for array in inputs])
    with np.errstate(invalid="ignore"):
        return op.numpy(inputs, attributes)


PACKED = {"q_num_heads": HEADS, "kv_num_heads": GROUPS}
OF_BOOLEANS = {"mask": SEEN}
CASES: dict[str, tuple[dict[str, Array], int, Mapping[str, float]]] = {
    "a past": (arrays(), 3, {}),
    "a past, packed": (arrays(packed=True), 3, PACKED),
    "a past that is empty": (arrays(past=0), 3, {}),
    "one query": (arrays(new=1), 3, {"is_causal": 1}),
    "causal behind a past": (arrays(packed=True), 3, {"is_causal": 1, **PACKED}),
    "causal": (arrays(past=None), 1, {"is_causal": 1}),
    "chosen keys": (arrays() | OF_BOOLEANS, 3, {}),
    "a row without keys": (arrays() | {"mask": COVERED}, 3, {}),
    "chosen keys, a softcap": (arrays(8, None) | {"mask": SEEN[..., :1, :].repeat(8, 2)}, 1,
                               {"softcap": 0.5}),
    "a past, a softcap": (arrays(), 3, {"softcap": 0.5}),
    "causal, a softcap": (arrays(8, None), 1, {"is_causal": 1, "softcap": 0.5}),
    "causal behind a past, a softcap": (arrays(), 3, {"is_causal": 1, "softcap": 0.5}),
    "causal behind an empty past, a softcap": (arrays(past=0), 3, {"is_causal": 1, "softcap": 0.5}),
    "causal, chosen keys": (arrays(8, None) | {"mask": LATER}, 1, {"is_causal": 1}),
    "causal behind a past, chosen keys": (arrays(packed=True) | {"mask": LATER[:, :, 5:]}, 3,
                                          {"is_causal": 1, **PACKED}),
    "causal behind an empty past, chosen keys": (arrays(past=0) | {"mask": LATER[..., :3, :3]}, 3,
                                                 {"is_causal": 1}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_runtime_and_reference_make_what_is_declared(case: str) -> None:
    """Also of what is no number: an element of a key or a value that is NaN, inf or -inf."""
    feeds, outputs, attributes = CASES[case]
    source = single(feeds, outputs, **attributes)
    places = [name for name in ("K", "V", "past_key") if name in feeds and feeds[name].size]
    spoiled = [feeds]
    for name in places:
        for number in (np.nan, np.inf, -np.inf):
            array = feeds[name].copy()
            array.reshape(-1)[-1] = number
            spoiled.append(feeds | {name: array})
    for each in spoiled:
        declared = by_declaration(source, each)
        found = run(source, each)
        with np.errstate(all="ignore"):
            reference = ReferenceEvaluator(source).run(None, each)
        for a, b, c in zip(declared, found, reference, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(b, c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("more", "outputs", "attributes"),
    [
        ({"mask": np.ones((3, 1), bool)}, 3, {}),
        ({"mask": np.ones((1, 1, 1, 8), bool)}, 3, {}),
        ({"mask": np.ones((3, 7), bool)}, 3, {}),
        ({"mask": SEEN.astype(np.float32)}, 3, {"is_causal": 1}),
        ({"mask": SEEN}, 3, {"is_causal": 1, "softcap": 2.0}),
        ({}, 4, {}),
        ({}, 1, {}),
    ],
    ids=[
        "one column",
        "one row",
        "too short",
        "causal besides one that is added",
        "causal, chosen and capped",
        "scores",
        "nothing left",
    ],
)
def test_what_is_not_declared_is_left_alone(
    more: dict[str, Array], outputs: int, attributes: dict[str, float]
) -> None:
    imported = import_model(ir.from_proto(single(arrays() | more, outputs, **attributes)))
    assert {node.op_type for node in imported.opaque_nodes.values()} == {"Attention"}


def test_a_count_of_keys_is_not_declared() -> None:
    feeds = arrays(past=None) | {"nonpad": np.asarray([2])}
    imported = import_model(ir.from_proto(single(feeds, 1)))
    assert imported.opaque_nodes


def concatenated(past: int = 5, new: int = 3, order: str = "pk, k0") -> onnx.ModelProto:
    heads, rows = f"float[1, {HEADS}, {new}, {DEPTH}]", f"float[1, {GROUPS}, {new}, {DEPTH}]"
    before, whole = (f"float[1, {GROUPS}, {n}, {DEPTH}]" for n in (past, past + new))
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23]>
        g ({heads} q, {rows} k0, {rows} v0, {before} pk, {before} pv,
           bool[1, 1, {new}, {past + new}] seen) => ({heads} y, {whole} k, {whole} v) {{
            k = Concat<axis = -2>({order}) v = Concat<axis = -2>(pv, v0)
            y = Attention<scale = 0.25>(q, k, v, seen) }}"""
    )


def optimized(source: onnx.ModelProto) -> onnx.ModelProto:
    result = xflow.optimize(source, rules=parse_rules(RULES), cost="estimated", budget=2, check=1)
    return ir.to_proto(result.model)


def test_an_attention_on_what_is_concatenated_takes_the_past_itself() -> None:
    source = concatenated()
    rewritten = optimized(source)
    (node,) = rewritten.graph.node
    assert node.op_type == "Attention"
    assert [*node.output] == ["y", "k", "v"]
    feeds = dict(zip(("q", "k0", "v0", "pk", "pv"), arrays().values(), strict=True))
    for seen in (SEEN, COVERED):
        for before, after in zip(
            run(source, feeds | {"seen": seen}), run(rewritten, feeds | {"seen": seen}), strict=True
        ):
            assert (before == after).all()


SPELLED = """kt = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, kt) p = Softmax<axis = -1>(s)
    y = MatMul(p, v)"""


@pytest.mark.parametrize("spelled", [False, True])
@pytest.mark.parametrize("axis", [2, 1])
def test_what_concatenates_a_past_for_an_attention_is_searched_with_it(
    axis: int, spelled: bool
) -> None:
    """Behind one of the sequence is an operator for both, so that no region parts them."""
    made = SPELLED if spelled else "y = Attention<scale = 0.25>(q, k, v)"
    source = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23]>
        g (float[1, 4, 3, 8] q, float[1, 2, 3, 8] k0, float[1, 2, 3, 8] v0,
           float[1, 2, 3, 8] pk, float[1, 2, 3, 8] pv)
        => (float y, float[1, N, L, 8] k) {{
            k1 = Concat<axis = {axis}>(pk, k0) v1 = Concat<axis = {axis}>(pv, v0)
            k = {"Tile(k1, two)" if axis == 2 else "Identity(k1)"}
            v = {"Tile(v1, two)" if axis == 2 else "Identity(v1)"}
            {made} }}"""
    )
    two = np.asarray([1, 2, 1, 1])
    source.graph.initializer.append(onnx.numpy_helper.from_array(two, "two"))
    imported = import_model(ir.from_proto(source))
    find = find_with_pasts if spelled else find_larger
    found = find(imported.graph, imported.constants)
    with_past = [block for block in found if any(node.is_operator("Concat") for node in block)]
    assert len(with_past) == (axis == 2)
    for block in with_past:
        assert sum(node.is_operator("Concat") for node in block) == 2


def test_a_past_at_the_end_is_none() -> None:
    ops = [node.op_type for node in optimized(concatenated(order="k0, pk")).graph.node]
    assert sorted(ops) == ["Attention", "Concat", "Concat"]


@pytest.mark.parametrize(
    ("offset", "causal"),
    [(64, 1), (63, 0), (65, 0), (0, 0)],
    ids=["causal", "one key less", "one key more", "from the first key"],
)
def test_a_constant_mask_behind_a_past_is_read_exactly(offset: int, causal: int) -> None:
    """Also what is_causal says of keys that are concatenated outside: it begins at the first."""
    source = concatenated(64, 128)
    seen = np.tri(128, 192, offset, dtype=bool)[None, None]
    source.graph.initializer.append(onnx.numpy_helper.from_array(seen, "seen"))
    del source.graph.input[-1]
    rewritten = optimized(source)
    (node,) = rewritten.graph.node
    assert {a.name: a.i for a in node.attribute if a.i} == ({"is_causal": 1} if causal else {})
    assert [bool(name) for name in node.input] == [True, True, True, not causal, True, True]
    feeds = dict(zip(("q", "k0", "v0", "pk", "pv"), arrays(128, 64).values(), strict=True))
    for before, after in zip(run(source, feeds), run(rewritten, feeds), strict=True):
        assert (before == after).all()


def test_heads_that_are_repeated_for_causal_attention_are_shared_by_it() -> None:
    whole, new = (f"float[1, {heads}, 8, {DEPTH}]" for heads in (HEADS, GROUPS))
    source = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23]>
        g ({whole} q, {new} k, {new} v) => ({whole} y)
        <int64[1] axis = {{2}}, int64[5] each = {{1, {GROUPS}, {HEADS // GROUPS}, 8, {DEPTH}}},
         int64[4] joined = {{1, {HEADS}, 8, {DEPTH}}}> {{
            k1 = Unsqueeze(k, axis) k2 = Expand(k1, each) ks = Reshape(k2, joined)
            v1 = Unsqueeze(v, axis) v2 = Expand(v1, each) vs = Reshape(v2, joined)
            y = Attention<is_causal = 1>(q, ks, vs) }}"""
    )
    rewritten = optimized(source)
    (node,) = rewritten.graph.node
    feeds = dict(zip("qkv", arrays(8, None).values(), strict=True))
    assert (run(source, feeds)[0] == run(rewritten, feeds)[0]).all()
    assert {a.name: a.i for a in node.attribute if a.name == "is_causal"} == {"is_causal": 1}


def test_a_causal_mask_of_unknown_size_is_not_written_out() -> None:
    """Else what is found with it, and has no form, takes all with it that was found besides."""
    source = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23]>
        g (float[2, {HEADS}, S, {DEPTH}] q, float[2, {GROUPS}, L, {DEPTH}] k0,
           float[2, {GROUPS}, L, {DEPTH}] v0, float[2, {GROUPS}, P, {DEPTH}] pk,
           float[2, {GROUPS}, P, {DEPTH}] pv)
        => (float[2, {HEADS}, S, {DEPTH}] y, float[2, {GROUPS}, T, {DEPTH}] k,
            float[2, {GROUPS}, T, {DEPTH}] v) {{
            k = Concat<axis = 2>(pk, k0) v = Concat<axis = 2>(pv, v0)
            y = Attention<scale = 0.25, is_causal = 1>(q, k, v) }}"""
    )
    report = xflow.optimize(source, cost="estimated", budget=2, check=1).report
    assert not report.warnings


@pytest.mark.parametrize(
    ("seen", "inputs", "causal"),
    [
        (np.tri(128, 128, 0, dtype=bool), 3, 1),
        (np.tri(128, 128, 1, dtype=bool), 4, 0),
        (np.tri(128, 128, -1, dtype=bool), 4, 0),
        (np.tri(128, 128, 0, dtype=bool).T, 4, 0),
        (np.tri(128, 128, 128, dtype=bool), 3, 0),
        (np.tri(128, 128, 126, dtype=bool), 4, 0),
    ],
    ids=["causal", "one key more", "one key less", "the other way", "all", "all but one"],
)
def test_a_constant_mask_is_read_exactly(seen: Array, inputs: int, causal: int) -> None:
    """Off by one key, in one row, or the other way round, it stays what it is."""
    heads = f"float[1, {HEADS}, 128, {DEPTH}]"
    source = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23]> g ({heads} q, {heads} k, {heads} v)
        => ({heads} y) {{ y = Attention<scale = 0.25>(q, k, v, seen) }}"""
    )
    source.graph.initializer.append(onnx.numpy_helper.from_array(seen[None, None], "seen"))
    (node,) = optimized(source).graph.node
    given = {attribute.name: attribute.i for attribute in node.attribute}
    assert (len(node.input), given.get("is_causal", 0)) == (inputs, causal)
