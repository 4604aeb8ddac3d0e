"""The blocks of BERT and of GPT-2, as PyTorch exports them today, become one Attention each.

They differ from a textbook's attention in that the scale is split over both operands, the keys are
turned in one batch for all heads, the softmax is guarded against NaN, and GPT-2's queries, keys and
values come out of one product. A decoder has keys and values of the past as inputs, of which it
takes the length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from longer import first
from onnx import numpy_helper
from recognition import searched
from spellings import rules_over

import xflow
from xflow.analysis.ranges import Ranges
from xflow.analysis.value_rewrites.least_float_masks import may_cover
from xflow.core.fold import no_constants
from xflow.core.node import Node, Opaque, TensorType, leaf
from xflow.onnx.importer import import_model
from xflow.rewriting.rule import Rule
from xflow.search.driver import SearchResult

HEADS, DEPTH, WIDTH = 4, 32, 128
BATCH, LENGTH = 2, 128
LEAST = float(np.finfo(np.float32).min)
TARGETS = {
    "heads": ("b", "s", -1, DEPTH),
    "batch": (-1, "s", DEPTH),
    "columns": ("b", HEADS, DEPTH, "s"),
    "joined": ("b", "s", -1),
    "rows": (-1, WIDTH),
    "three": ("b", "s", 3 * WIDTH),
}
"""What the blocks reshape to."""
TOKENS = "given = Cast<to = 9>(mask) line = Unsqueeze(given, middle)"
PAST = """after = Range(nought, length, one) across = Unsqueeze(after, first)
    down = Unsqueeze(after, second) past = LessOrEqual(across, down)"""
MASKS = {
    "of tokens": f"{TOKENS} added = Where(line, zero, least)",
    "of numbers": "floats = Cast<to = 1>(mask) wide = Unsqueeze(floats, middle) added = Log(wide)",
    "of tokens, infinite": f"{TOKENS} added = Where(line, zero, infinite)",
    "inverted": """wide = Unsqueeze(mask, middle) given = Cast<to = 1>(wide)
        left = Sub(whole_one, given) added = Mul(left, least)""",
    "of both": f"{TOKENS} {PAST} chosen = And(past, line) added = Where(chosen, zero, least)",
    "of both, infinite": f"""{TOKENS} {PAST} chosen = And(past, line)
        added = Where(chosen, zero, infinite)""",
    "of the past": """seen = Shape<start = 2, end = 3>(past_key) all = Add(seen, s)
        begin = Squeeze(seen, at) end = Squeeze(all, at)
        keys_at = Range(nought, end, one) across = Unsqueeze(keys_at, first)
        rows_at = Range(begin, end, one) down = Unsqueeze(rows_at, second)
        chosen = LessOrEqual(across, down) added = Where(chosen, zero, least)""",
}
ATTENTION = """hq = Reshape(q, heads) tq = Transpose<perm = [0, 2, 1, 3]>(hq)
    hk = Reshape(k, heads) tk = Transpose<perm = [0, 2, 1, 3]>(hk)
    hv = Reshape(v, heads) tv = Transpose<perm = [0, 2, 1, 3]>(hv)
    bk = Reshape(tk, batch) bt = Transpose<perm = [0, 2, 1]>(bk) kt = Reshape(bt, columns)
    cq = Mul(tq, scale) ck = Mul(kt, scale) scores = MatMul(cq, ck) masked = Add(scores, added)
    p = Softmax<axis = -1>(masked) odd = IsNaN(p) sure = Where(odd, zero, p)
    o = MatMul(sure, tv) t = Transpose<perm = [0, 2, 1, 3]>(o)"""
BERT = f"""mq = MatMul(x, wq) q = Add(mq, bias) mk = MatMul(x, wk) k = Add(mk, bias)
    mv = MatMul(x, wv) v = Add(mv, bias) {ATTENTION} j = Reshape(t, joined) y = MatMul(j, wo)"""
UNGUARDED = BERT.replace("odd = IsNaN(p) sure = Where(odd, zero, p)", "").replace("sure", "p")
MADE = re.compile(r"(\w+) =(?! \[| -?\d)")
"""The names of what a block computes, and not those of attributes."""
FIRST = re.sub(
    "|".join(rf"\b{name}\b" for name in MADE.findall(UNGUARDED)), r"\g<0>_first", UNGUARDED
)
SECOND = re.sub(r"\bx\b", "next", UNGUARDED)
TWICE = f"{FIRST} next = LayerNormalization(y_first, gain, bias) {SECOND}"
SCALED = BERT.replace(
    "cq = Mul(tq, scale) ck = Mul(kt, scale)",
    """depth = Shape(tq)
    own = Slice(depth, last, farthest) floats = Cast<to = 1>(own) root = Sqrt(floats)
    inverse = Div(whole_one, root) factor = Sqrt(inverse) cq = Mul(tq, factor)
    ck = Mul(kt, factor)""",
)
GPT2 = f"""f = Reshape(x, rows) g = Gemm(f, packed, biases) all = Reshape(g, three)
    q, k, v = Split<axis = 2, num_outputs = 3>(all) {ATTENTION} j = Reshape(t, rows)
    a = Gemm(j, wo, bias) y = Reshape(a, joined)"""
PROJECTED = "mq = MatMul(x, wq) q = Add(mq, bias) mk = MatMul(x, wk) mv = MatMul(x, wv)"
CACHED = f"""{PROJECTED} hq = Reshape(q, heads) tq = Transpose<perm = [0, 2, 1, 3]>(hq)
    hk = Reshape(mk, heads) tk = Transpose<perm = [0, 2, 1, 3]>(hk)
    hv = Reshape(mv, heads) tv = Transpose<perm = [0, 2, 1, 3]>(hv)
    keys = Concat<axis = -2>(past_key, tk) values = Concat<axis = -2>(past_value, tv)
    whole = Concat<axis = 0>(b, single, s, all) wide = Expand(added, whole)
    kt = Transpose<perm = [0, 1, 3, 2]>(keys) cq = Mul(tq, scale) ck = Mul(kt, scale)
    scores = MatMul(cq, ck) masked = Add(scores, wide) p = Softmax<axis = -1>(masked)
    odd = IsNaN(p) sure = Where(odd, zero, p) o = MatMul(sure, values)
    t = Transpose<perm = [0, 2, 1, 3]>(o) j = Reshape(t, joined) y = MatMul(j, wo)"""


WEIGHTS = {
    **dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH)),
    **dict.fromkeys(("bias", "gain"), (WIDTH,)),
    "table": (50, WIDTH),
    "packed": (WIDTH, 3 * WIDTH),
    "biases": (3 * WIDTH,),
}
CONSTANTS = (
    "float zero = {0}", "float whole_one = {1}", "float infinite = {-inf}",
    f"float least = {{{LEAST}}}",
    "float scale = {0.42}", "int64[2] middle = {1, 2}", "int64[3] first = {0, 1, 2}",
    "int64[3] second = {0, 1, 3}", "int64 nought = {0}", "int64 one = {1}", "int64[1] at = {0}",
    "int64[1] single = {1}", "int64[1] last = {-1}", "int64[1] farthest = {9223372036854775807}",
)  # fmt: skip


def block(body: str, mask: str, *, dynamic: bool) -> onnx.ModelProto:
    """A block behind an embedding, which makes all that it reads finite."""
    sizes = {"b": "b", "s": "s"} if dynamic else {"b": BATCH, "s": LENGTH}
    constants, steps = [*CONSTANTS], []
    if dynamic:
        steps += [f"{n} = Shape<start = {i}, end = {i + 1}>(ids)" for i, n in enumerate("bs")]
        steps.append("length = Squeeze(s, at)")
    else:
        constants.append(f"int64 length = {{{LENGTH}}}")
    for name, target in TARGETS.items():
        known = [sizes.get(str(size), size) for size in target]
        if any(size in ("b", "s") for size in known):
            parts = [size if size in ("b", "s") else f"{name}{i}" for i, size in enumerate(known)]
            steps.append(f"{name} = Concat<axis = 0>({', '.join(map(str, parts))})")
            extents = {part: f"{{{size}}}" for part, size in zip(parts, known, strict=True)}
            constants += [f"int64[1] {n} = {x}" for n, x in extents.items() if n not in ("b", "s")]
        else:
            numbers = ", ".join(map(str, known))
            constants.append(f"int64[{len(known)}] {name} = {{{numbers}}}")
    inputs = [f"int64[{sizes['b']}, {sizes['s']}] {name}" for name in ("ids", "mask")]
    if body is CACHED:
        caches = f"float[{sizes['b']}, {HEADS}, past, {DEPTH}]"
        inputs[1:] = [f"{caches} {name}" for name in ("past_key", "past_value")]
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        g ({", ".join(inputs)}) => (float[{sizes["b"]}, {sizes["s"]}, {WIDTH}] y)
        <{", ".join(constants)}> {{ {" ".join(steps)} e = Gather(table, ids)
        x = LayerNormalization(e, gain, bias) {MASKS[mask]} {body} }}"""
    )
    random = np.random.default_rng(0)
    model.graph.initializer.extend(
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in WEIGHTS.items()
    )
    return onnx.shape_inference.infer_shapes(model)


CONCERNED = {
    *("MatMul", "Softmax", "Attention", "Add", "Mul", "Scalar", "Cast", "Where"),
    *("Transpose", "Reshape", "Gemm", "Split", "Expand"),
}
"""The operators of the blocks."""


@cache
def rules() -> list[Rule]:
    return rules_over(*CONCERNED)


def found(model: onnx.ModelProto, among: Sequence[Rule]) -> SearchResult:
    """What a search by the estimate finds."""
    source = import_model(ir.from_proto(model))
    return searched(source, among)


def operators(result: SearchResult) -> list[str]:
    """The operators that are computed each time."""
    return [_name(node) for node in result.graph.nodes if not node.constant]


def _name(node: Node) -> str:
    return node.op.op_type if isinstance(node.op, Opaque) else getattr(node.op, "name", "")


@cache
def whole(body: str, mask: str, *, dynamic: bool) -> SearchResult:
    return found(block(body, mask, dynamic=dynamic), rules())


@pytest.mark.parametrize("dynamic", first([False, True], 1))
@pytest.mark.parametrize(
    ("body", "mask"),
    [(BERT, "of tokens"), (SCALED, "of tokens"), (GPT2, "of both")],
    ids=["bert", "scaled", "gpt2"],
)
def test_a_block_as_pytorch_exports_it_becomes_one_attention(
    body: str, mask: str, dynamic: bool
) -> None:
    left = operators(whole(body, mask, dynamic=dynamic))
    assert left.count("Attention") == 1
    assert not {"Softmax", "Transpose", "IsNaN", "Mul"} & set(left)


def test_attention_to_the_past_and_to_new_tokens_becomes_one_operator() -> None:
    left = operators(found(block(CACHED, "of the past", dynamic=True), rules()))
    assert left.count("Attention") == 1
    assert not {"Softmax", "IsNaN", "Mul"} & set(left)
    assert left.count("Concat") == 2  # the caches


@cache
def sufficient(body: str = GPT2, mask: str = "of both") -> list[Rule]:
    """The rules that lead to Attention in a block."""
    found = whole(body, mask, dynamic=False)
    applied = {name.split(".")[0] for item in found.replacements for name in item.rules}
    return [rule for rule in rules() if rule.name in applied]


@pytest.mark.parametrize(
    ("body", "mask", "atol"),
    [(GPT2, "of both", 1e-3), (UNGUARDED, "inverted", 1e-2)],  # of results up to 400
    ids=["causal", "inverted"],
)
def test_rows_that_a_finite_mask_covers_are_what_they_were(
    body: str, mask: str, atol: float
) -> None:
    model = block(body, mask, dynamic=False)
    result = xflow.optimize(model, cost="estimated", rules=sufficient(body, mask))
    assert "Attention" in {node.op_type for node in result.model.graph}
    fact = "least-float-is-a-number"
    assert fact in {rule.name for rule in result.report.rules}
    assert result.report.log is not None
    logged = [item for items in result.report.log["rounds"] for item in items]
    assert [item for item in logged if item["fact"] == fact and item["steps"]]
    random = np.random.default_rng(0)
    ones = np.ones((BATCH, LENGTH), np.int64)
    ones[:, : LENGTH // 4] = 0  # padding on the left: its rows may look at nothing
    ones[0] = 0
    feeds = {"ids": random.integers(0, 50, ones.shape), "mask": ones}
    before, after = (
        ort.InferenceSession(message.SerializeToString()).run(None, feeds)[0]
        for message in (model, ir.to_proto(result.model))
    )
    np.testing.assert_allclose(after, before, rtol=1e-3, atol=atol)


def test_a_mask_that_covers_no_row_is_left_alone() -> None:
    causal = np.where(np.tril(np.ones((1, 1, 4, 4), bool)), 0, LEAST).astype(np.float32)
    covering = np.full((1, 1, 4, 4), LEAST, np.float32)
    mask = leaf("mask", TensorType("FLOAT", (1, 1, 4, 4)), constant=True)
    for data, covers in ((causal, False), (covering, True), (covering / 2, False)):
        assert may_cover(mask, Ranges(no_constants), data) == covers


def test_a_guard_stays_where_the_mask_may_cover_a_whole_row() -> None:
    same = sufficient()
    assert "Attention" in operators(found(block(GPT2, "of both", dynamic=False), same))
    left = operators(found(block(GPT2, "of numbers", dynamic=False), same))
    assert "Attention" not in left
    assert {"Softmax", "IsNaN", "Where"} <= set(left)


@pytest.mark.parametrize(
    ("body", "mask"),
    [(GPT2, "of both, infinite"), (BERT, "of tokens, infinite")],
    ids=["gpt2", "bert"],
)
def test_a_mask_tells_which_rows_it_covers(body: str, mask: str) -> None:
    """A guarded row of which nothing is left gives zeros, and so it does behind an Attention."""
    model = block(body, mask, dynamic=False)
    rules = sufficient(body, mask)
    result = xflow.optimize(model, cost="estimated", rules=rules)
    kinds = [node.op_type for node in result.model.graph]
    assert kinds.count("Attention") == 1
    assert not {"IsNaN", "Softmax"} & set(kinds)
    assert "a-covered-row-is-told-by-its-mask" in {rule.name for rule in result.report.rules}
    ones = np.ones((BATCH, LENGTH), np.int64)
    ones[:, : LENGTH // 4] = 0
    ones[0] = 0
    feeds = {"ids": np.random.default_rng(0).integers(0, 50, ones.shape), "mask": ones}
    before, after = (
        ort.InferenceSession(message.SerializeToString()).run(None, feeds)[0]
        for message in (model, ir.to_proto(result.model))
    )
    assert np.isfinite(before).all()
    assert np.ptp(before[0], axis=0).max() < 1e-4 * np.abs(before[1]).max()  # nothing is seen
    np.testing.assert_allclose(after, before, rtol=1e-3, atol=5e-4 * np.abs(before).max())


def test_what_is_behind_a_mask_that_may_cover_all_is_rewritten() -> None:
    """A sequence that is masked throughout makes NaN of itself, and others are what they were."""
    model = block(TWICE, "of tokens, infinite", dynamic=False)
    rules = sufficient(UNGUARDED, "of tokens, infinite")
    result = xflow.optimize(model, cost="estimated", rules=rules)
    assert [node.op_type for node in result.model.graph].count("Attention") == 2
    mask = np.ones((BATCH, LENGTH), np.int64)
    mask[1] = 0
    feeds = {"ids": np.random.default_rng(0).integers(0, 50, mask.shape), "mask": mask}
    before, after = (
        ort.InferenceSession(message.SerializeToString()).run(None, feeds)[0]
        for message in (model, ir.to_proto(result.model))
    )
    assert np.isnan(before[1]).all()
    assert np.isfinite(before[0]).all()
    np.testing.assert_allclose(after[0], before[0], rtol=1e-3, atol=5e-4 * np.abs(before[0]).max())


def test_a_guard_stays_where_a_mask_may_be_something_else_than_ones_and_zeros() -> None:
    """What the model itself takes for possible is not assumed away."""
    left = operators(
        found(block(BERT, "inverted", dynamic=False), sufficient(UNGUARDED, "inverted"))
    )
    assert {"Softmax", "IsNaN", "Where"} <= set(left)
