"""Convolutions of 8-bit integers as convolutions of floats: where their sums allow it alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from certified import optimized
from onnx import numpy_helper, parser
from operator_cases import run_onnxruntime

from xflow.cli import entry
from xflow.core.errors import ExitCode
from xflow.core.graph import Graph, walk
from xflow.core.registry import Array, Operator
from xflow.core.value_conditions import MOST_SUM
from xflow.cost.estimate import EstimatedCost
from xflow.onnx.importer import import_model
from xflow.pipeline import attempts
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.steps import Steps

BODY = """<ir_version: 8, opset_import: ["" : 13]>
main (float[{shape}] x) => (float[{outputs}] y) <float s = {{0.01}}> {{
    c, t, z = DynamicQuantizeLinear(x)
    i = ConvInteger<{attributes}>(c, w, z{zero})
    f = Cast<to = 1>(i)
    m = Mul(t, s)
    y = Mul(f, m)
}}"""


def network(
    weights: Array,
    zero: Array | None,
    attributes: str = "pads = [1, 1, 1, 1]",
    shape: Sequence[int] = (2, 3, 7, 6),
) -> onnx.ModelProto:
    """A convolution whose images are quantized while it runs, as `quantize_dynamic` makes it."""
    text = BODY.format(
        shape=", ".join(map(str, shape)),
        outputs="N, C, H, W",
        attributes=attributes,
        zero="" if zero is None else ", v",
    )
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    if zero is not None:
        model.graph.initializer.append(numpy_helper.from_array(zero, "v"))
    return model


class Floats(EstimatedCost):
    """A cost by which only products of integers are dear."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.layouts = None  # type: ignore[assignment]

    def estimate(self, graph: Graph) -> float:
        names = [node.op.name for node in graph.nodes if isinstance(node.op, Operator)]
        return 1.0 + 10 * names.count("ConvInteger") + 0.01 * len(names)


def rewritten(
    model: onnx.ModelProto, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path, Path]:
    """The model, what the rules for floats make of it, and the report."""
    monkeypatch.setattr(attempts, "EstimatedCost", Floats)
    return optimized(model, folder, "\n\n".join(map(str, rules_of_floats())))


@cache
def rules_of_floats() -> list[Rule]:
    return [r for r in load_rules(default_directory()) if "NearestFloat" in r.operators]


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


def images(shape: Sequence[int]) -> list[Array]:
    """Ordinary ones, two values as far apart as codes can be, and one value everywhere."""
    rng = np.random.default_rng(3)
    ordinary = rng.normal(0, 3, shape).astype(np.float32)
    extreme = rng.choice(np.array([0, 1], np.float32), shape)
    return [ordinary, extreme, -extreme, np.zeros(shape, np.float32), ordinary + 100]


def same_bits(before: Path, after: Path, shape: Sequence[int]) -> None:
    for image in images(shape):
        ((one,), (other,)) = (run_onnxruntime(onnx.load(p), [image]) for p in (before, after))
        np.testing.assert_array_equal(one, other)


RNG = np.random.default_rng(0)
SIGNED = RNG.integers(-128, 128, (4, 3, 3, 3)).astype(np.int8)
UNSIGNED = RNG.integers(0, 256, (4, 3, 3, 3)).astype(np.uint8)


LAYERS = {
    "none": (SIGNED, None),
    "zero": (SIGNED, np.array(0, np.int8)),
    "extreme": (SIGNED, np.array(-128, np.int8)),
    "unsigned": (UNSIGNED, np.array(131, np.uint8)),
}
PLACES = {
    "padded": ("pads = [1, 1, 1, 1]", 3),
    "strided": ("pads = [0, 1, 2, 1], strides = [2, 1]", 3),
    "grouped": ("group = 2", 6),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("place", PLACES)
def test_it_gives_the_same_bits_and_is_certified(
    layer: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes, channels = PLACES[place]
    shape = (2, channels, 7, 6)
    model = network(*LAYERS[layer], attributes, shape)
    before, after, report = rewritten(model, tmp_path, monkeypatch)
    assert "Conv" in operators(after)
    assert "ConvInteger" not in operators(after)
    same_bits(before, after, shape)
    assert entry.main(["certify", str(before), str(after), str(report), "-q"]) == ExitCode.OK


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
@pytest.mark.parametrize("zero", [None, 0, 3])
def test_the_largest_sum_that_is_exact(
    more: int, taken: bool, zero: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more, and a sum of products may have 25 bits."""
    shift = zero or 0
    count, last = divmod(MOST_SUM + more, 127 - shift)
    line = np.array([*[127] * count, last + shift], np.int8)
    weights = line.reshape(1, -1, 1, 1)
    shape = (1, weights.shape[1], 2, 2)
    given = None if zero is None else np.array(zero, np.int8)
    before, after, _ = rewritten(network(weights, given, shape=shape), tmp_path, monkeypatch)
    assert ("ConvInteger" not in operators(after)) == taken
    same_bits(before, after, shape)


def test_weights_that_are_given_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(SIGNED, None)
    weights = model.graph.initializer.pop()
    assert weights.name == "w"
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", 3, SIGNED.shape))
    _, after, _ = rewritten(model, tmp_path, monkeypatch)
    assert "ConvInteger" in operators(after)


SCALED = "g = Mul(f, s) h = Add(g, b)"
NORMALIZED = "h = BatchNormalization(f, v, v, v, v)"


@pytest.mark.parametrize(
    ("behind", "taken"),
    [
        (f"{SCALED} y = Identity(h)", True),
        (f"{SCALED} y = Floor(h)", False),
        (f"{SCALED} y = ArgMax<axis = 1>(h)", False),
        (f"{SCALED} y = Cast<to = 6>(h)", False),
        (f"{SCALED} y = Greater(h, s)", False),
        (f"{SCALED} y, o, u = DynamicQuantizeLinear(h)", False),
        ("h = Add(f, b) y = Floor(h)", False),
        ("h = Mul(f, b) y = Ceil(h)", False),
        ("h = Div(f, s) y = Round(h)", False),
        ("g = Relu(f) h = Transpose<perm = [0, 2, 3, 1]>(g) j = Mul(h, s) y = Floor(j)", False),
        (f"{NORMALIZED} y = Identity(h)", True),
        (f"{NORMALIZED} y = Floor(h)", False),
        ("y = QuantizeLinear(f, s, z)", False),
        ("g = Relu(f) y = QuantizeLinear(g, s, z)", False),
        ("y = Floor(f)", True),
        ("y, o, u = DynamicQuantizeLinear(f)", True),
        # The runtime folds constants alone, and what adds to a product.
        ("g = Mul(f, t) h = Add(g, b) y = Floor(h)", True),
        ("h = Add(f, t) y = Floor(h)", False),
        ("m = Mul(t, s) g = Mul(f, m) h = Relu(g) y, o, u = DynamicQuantizeLinear(h)", True),
    ],
)
def test_sums_that_the_runtime_merges_with_constants_stay_integers_where_bits_are_seen(
    behind: str, taken: bool
) -> None:
    """Weights that are multiplied by 0.1 make no sums of integers: -8.1 is -8.100001 then."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 15]>
    main (uint8[1, 3, 4, 4] x, uint8 z, float t) => (y) <int8[1, 3, 1, 1] w = {{7, -3, 9}},
        float s = {{0.1}}, float[1] v = {{0.3}}, float[1, 1, 1] b = {{0.4}}> {{
        i = ConvInteger(x, w, z) f = Cast<to = 1>(i) {behind}
    }}""")
    source = import_model(ir.from_proto(model))
    steps = Steps(RuleIndex(rules_of_floats()), source.constants).of(source.graph)
    made = {str(value) for step in steps for node in walk(step.after) for value in node.outputs}
    assert any(value.startswith("Conv(") for value in made) == taken


def rules_of_reals() -> list[Rule]:
    return [r for r in load_rules(default_directory()) if "DequantizeLinear" in r.operators]


@pytest.mark.parametrize(
    ("behind", "taken"),
    [
        ("y = Identity(x)", True),
        ("y = Conv(x, w)", True),
        ("h = Conv(x, w) y, o, u = DynamicQuantizeLinear(h)", True),
        ("h = Conv(x, w) y = QuantizeLinear(h, s, z)", False),
        ("h = ConvTranspose(x, w) g = Relu(h) y = QuantizeLinear(g, s, z)", False),
        ("g = Softmax<axis = 1>(x) h = Reshape(g, n) y = QuantizeLinear(h, s, z)", False),
        ("g = GlobalAveragePool(x) h = Neg(g) k = Conv(h, v) y = QuantizeLinear(k, s, z)", False),
    ],
)
def test_floats_become_reals_of_codes_where_none_are_made_of_them_by_a_given_scale(
    behind: str, taken: bool
) -> None:
    """Between a DequantizeLinear and a QuantizeLinear, the runtime makes codes of weights."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 15]>
    main (uint8[1, 3, 4, 4] a, uint8 z) => (y) <float[3, 3, 1, 1] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9}},
        float[1, 3, 1, 1] v = {{1, 2, 3}}, float s = {{0.1}}, int64[1] n = {{-1}}> {{
        b = Cast<to = 1>(a) c = Cast<to = 1>(z) x = Sub(b, c) {behind}
    }}""")
    source = import_model(ir.from_proto(model))
    steps = Steps(RuleIndex(rules_of_reals()), source.constants).of(source.graph)
    made = {str(value) for step in steps for node in walk(step.after) for value in node.outputs}
    assert any(value.startswith("DequantizeLinear(") for value in made) == taken
