"""No rewrite makes a right output wrong: guards, hidden infinities, cancellation, what is discrete.

Each model is optimized by the number of its operators and by estimated times, where no clock
decides, and run on inputs at which a rewrite that is true of real numbers alone would show.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from longer import in_turn
from onnx import shape_inference
from runtime import run_model

import xflow
from xflow.core.assumptions import DEFAULT
from xflow.core.registry import Array
from xflow.cost import Objective
from xflow.rewriting.store import default_directory, load_rules

NAN, INF = np.nan, np.inf
LEAST = float(np.finfo(np.float32).min)
SEEN = np.tril(np.ones((4, 4), bool))
ROWS = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16"


def floats(values: object) -> Array:
    return np.asarray(values, np.float32)


def spread(centre: float, deviation: float, *shape: int) -> Array:
    return floats(centre + deviation * np.random.default_rng(0).standard_normal(shape))


@dataclass(frozen=True)
class Case:
    """A model as text, and inputs that the original gets right."""

    name: str
    signature: str
    weights: str
    body: str
    feeds: dict[str, Array] = field(default_factory=dict)
    tolerance: float = 2e-6
    """Of the largest element of an output."""
    opset: int = 20
    data: dict[str, Array] = field(default_factory=dict)
    """Weights besides those in the text; with such, the models run as they are written."""

    @property
    def model(self) -> onnx.ModelProto:
        weights = f"<{self.weights}>" if self.weights else ""
        text = (
            f'<ir_version: 9, opset_import: ["" : {self.opset}]> g {self.signature} {weights}'
            f" {{{self.body}}}"
        )
        model = onnx.parser.parse_model(text)
        made = (onnx.numpy_helper.from_array(array, name) for name, array in self.data.items())
        model.graph.initializer.extend(made)
        return shape_inference.infer_shapes(model)


TOTALS = {"part": floats(np.ones((4, 3))), "total": floats([[0], [1], [2], [0]])}
LOST_ROWS = floats([[0, 0, 0], [1, 2, 3], [-4, 5, 6], [0, 0, 0]])
ODD = floats([NAN, 7, 5, -1, INF, -INF])
COUNTS = floats(np.arange(64))
KERNEL = ", ".join(f"{k / 16:.4f}" for k in range(1, 17))

GUARDS = [
    Case(
        "a quotient where its divisor is positive",
        "(float[4, 3] part, float[4, 1] total) => (float[4, 3] y)",
        "float zero = {0}, float hundred = {100}",
        "c = Greater(total, zero) q = Div(part, total) h = Mul(hundred, q) y = Where(c, h, zero)",
        TOTALS,
    ),
    Case(
        "a quotient unless its divisor is 0",
        "(float[4, 3] part, float[4, 1] total) => (float[4, 3] y)",
        "float zero = {0}, float hundred = {100}",
        "c = Equal(total, zero) q = Div(part, total) h = Mul(q, hundred) y = Where(c, zero, h)",
        TOTALS,
    ),
    Case(
        "vectors of length 1 unless they are empty",
        "(float[4, 3] x) => (float[4, 3] y)",
        "float zero = {0}, int64[1] axis = {1}",
        "s = Mul(x, x) t = ReduceSum(s, axis) n = Sqrt(t) c = Greater(n, zero) q = Div(x, n)"
        " y = Where(c, q, zero)",
        {"x": LOST_ROWS},
    ),
    Case(
        "an exponential that does not overflow",
        "(float[4] x) => (float[4] y)",
        "float cap = {80}, float zero = {0}, float two = {2}",
        "c = Less(x, cap) e = Exp(x) h = Mul(e, two) y = Where(c, h, zero)",
        {"x": floats([100, 1, 90, -200])},
    ),
    Case(
        "a mean over what counts",
        "(float[4, 3] x, float[4, 3] w) => (float[4] y)",
        "float zero = {0}, int64[1] axis = {1}",
        "p = Mul(x, w) s = ReduceSum<keepdims = 0>(p, axis) n = ReduceSum<keepdims = 0>(w, axis)"
        " c = Greater(n, zero) q = Div(s, n) y = Where(c, q, zero)",
        {"x": LOST_ROWS + 1, "w": floats([[0, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0]])},
    ),
    Case(
        "a root of what is not negative",
        "(float[4] x, float[4] z) => (float[4] y)",
        "float zero = {0}",
        "c = GreaterOrEqual(x, zero) r = Sqrt(x) m = Mul(r, z) y = Where(c, m, zero)",
        {"x": floats([-1, 4, -0.5, 9]), "z": floats([1, 2, 3, 4])},
    ),
]
OBSERVED = [
    Case(
        "a test for NaN behind a quotient that cancels",
        "(float[4] x, float[4] w) => (float[4] y)",
        "float zero = {0}",
        "m = Mul(x, w) r = Div(m, w) n = IsNaN(r) y = Where(n, zero, r)",
        {"x": floats([1, 2, 3, 4]), "w": floats([0, 1, 0, 2])},
    ),
    Case(
        "a value that equals itself unless it is NaN",
        "(float[4] x, float[4] w) => (float[4] y)",
        "float zero = {0}",
        "m = Mul(x, w) r = Div(m, w) n = Equal(r, r) y = Where(n, r, zero)",
        {"x": floats([1, 2, 3, 4]), "w": floats([0, 1, 0, 2])},
    ),
    Case(
        "a test for infinity behind a logarithm of an exponential",
        "(float[4] x) => (float[4] y)",
        "float zero = {0}",
        "e = Exp(x) r = Log(e) n = IsInf(r) y = Where(n, zero, r)",
        {"x": floats([1, 200, -200, 4])},
    ),
    Case(
        "a test for NaN behind a square of a root",
        "(float[4] x) => (float[4] y)",
        "float zero = {0}",
        "e = Sqrt(x) r = Mul(e, e) n = IsNaN(r) y = Where(n, zero, r)",
        {"x": floats([1, -2, -3, 4])},
    ),
    Case(
        "a comparison that is false of NaN",
        "(float[4] x, float[4] w) => (float[4] y)",
        "float zero = {0}, float one = {1}",
        "m = Mul(x, w) r = Div(m, w) n = Less(r, one) y = Where(n, r, zero)",
        {"x": floats([0.5, 2, 0.25, -4]), "w": floats([0, 1, 0, 2])},
    ),
]
OVERFLOW = [
    Case(
        "an exponential of integers may be infinite",
        "(int64[4] i) => (float[4] y)",
        "float zero = {0}",
        "x = Cast<to = 1>(i) e = Exp(x) n = IsInf(e) y = Where(n, zero, e)",
        {"i": np.array([1, 2, 1000, 90])},
    ),
    Case(
        "a quotient of exponentials of integers may be NaN",
        "(int64[4] i) => (float[4] y)",
        "float zero = {0}",
        "x = Cast<to = 1>(i) e = Exp(x) d = Div(e, e) n = IsNaN(d) y = Where(n, zero, d)",
        {"i": np.array([1, 2, 1000, 90])},
    ),
    Case(
        "a power of integers may be infinite",
        "(int64[4] i) => (float[4] y)",
        "float zero = {0}, float base = {10}",
        "x = Cast<to = 1>(i) e = Pow(base, x) n = IsInf(e) y = Where(n, zero, e)",
        {"i": np.array([1, 2, 1000, 39])},
    ),
]


def masked(name: str, inputs: str, scores: str, feeds: dict[str, Array]) -> Case:
    return Case(
        name,
        f"({inputs}, bool[4, 4] seen) => (float[4, 4] y)",
        f"float least = {{{LEAST}}}, float[4, 4] v = {{{ROWS}}}",
        f"{scores} s = Where(seen, scores, least) p = Softmax(s) y = MatMul(p, v)",
        {"seen": SEEN, **feeds},
    )


SCORES = spread(0, 1, 4, 4)
BROKEN_SCORES = np.where(SEEN, SCORES, floats(NAN))
HUGE_SCORES = np.where(SEEN, SCORES, floats(3e38))
LARGE = floats(np.ones((4, 4)))
LARGE[3] = 1e20
ROUNDED = [  # to a number at which something else is the case
    Case(
        "a sigmoid that is 1",
        "(float[4] x) => (float[4] y)",
        "float low = {-30}, float high = {30}, float one = {1}, float zero = {0}",
        "c = Clip(x, low, high) s = Sigmoid(c) d = Sub(one, s) r = Reciprocal(d) i = IsInf(r)"
        " y = Where(i, zero, r)",
        {"x": floats([40, 0, 1, 25])},
    ),
    Case(
        "a hyperbolic tangent that is 1",
        "(float[4] x) => (float[4] y)",
        "float low = {-30}, float high = {30}, float one = {1}, float zero = {0}",
        "c = Clip(x, low, high) t = Tanh(c) s = Mul(t, t) d = Sub(one, s) l = Log(d) i = IsInf(l)"
        " y = Where(i, zero, l)",
        {"x": floats([40, 0, 1, 25])},
    ),
    Case(
        "a sum in which a number is lost",
        "(float[4] x) => (float[4] y)",
        "float low = {1e-12}, float high = {1}, float one = {1}, float zero = {0}",
        "c = Clip(x, low, high) a = Add(one, c) d = Sub(a, one) r = Reciprocal(d) i = IsInf(r)"
        " y = Where(i, zero, r)",
        {"x": floats([0, 1e-10, 1, 0.5])},
    ),
    Case(
        "a sigmoid of a constant that is 1",
        "(float[4] x) => (float[4] y)",
        "float[4] c = {22.430423, 1, 2, 30}, float[4] w = {1, 2, 3, 4}",
        "s = Sigmoid(c) f = Floor(s) a = Mul(x, f) y = Mul(a, w)",
        {"x": floats([1, 1, 1, 1])},
    ),
    Case(
        "a sigmoid of a constant that a quotient is taken by",
        "(float[4] x) => (float[4] y)",
        "float[4] c = {22.430423, 1, 2, 30}, float low = {-3}, float high = {3}, float one = {1},"
        " float zero = {0}",
        "v = Clip(x, low, high) s = Sigmoid(c) d = Sub(one, s) q = Div(v, d) i = IsInf(q)"
        " y = Where(i, zero, q)",
        {"x": floats([1, 1, 1, 1])},
    ),
    Case(
        "a sigmoid that is 0",
        "(float[4] x) => (float[4] y)",
        "float low = {-80}, float high = {30}, float zero = {0}",
        "c = Clip(x, low, high) s = Sigmoid(c) r = Reciprocal(s) i = IsInf(r)"
        " y = Where(i, zero, r)",
        {"x": floats([-100, 0, 1, -60])},
    ),
]
MASKED = [
    masked("scores of an input", "float[4, 4] x", "scores = Identity(x)", {"x": BROKEN_SCORES}),
    masked("huge scores", "float[4, 4] x", "scores = Neg(x)", {"x": -HUGE_SCORES}),
    masked(
        "scores that are a quotient",
        "float[4, 4] x, float[4, 4] w",
        "scores = Div(x, w)",
        {"x": SCORES, "w": floats(SEEN)},
    ),
    masked(
        "a product that overflows where it is masked",
        "float[4, 4] x, float[4, 4] w",
        "scores = MatMul(x, w)",
        {"x": LARGE, "w": LARGE.T.copy(), "seen": ~np.eye(4, dtype=bool)},
    ),
]
ALIKE = floats(np.ones((4, 4)))
COVERED = floats([[-INF] * 4, [0] * 4, [0, -INF, 0, 0], [-INF] * 4])
"""A mask that leaves nothing of two rows."""


def guarded(name: str, mask: str, scores: str, m: Array, weights: str = "") -> Case:
    """A mask that comes to the scores of a softmax by some way, and a guard of its weights."""
    shape = ", ".join(map(str, m.shape))
    return Case(
        name,
        f"(float[4, 4] q, float[4, 4] k, float[{shape}] m) => (float[4, 4] y)",
        f"float zero = {{0}}, int64[1] axis = {{0}}{weights}",
        f"{mask} {scores} p = Softmax(s) n = IsNaN(p) y = Where(n, zero, p)",
        {"q": ALIKE, "k": ALIKE, "m": m},
    )


ADDED = "a = MatMul(q, k) s = Add(a, b)"
IMAGE = ", int64[2] axes = {0, 1}, float[1, 1, 1, 1] w = {1}, float[1, 4] ones = {1, 1, 1, 1}"
COVERING = [
    guarded("a mask that Gemm adds", "", "s = Gemm(q, k, m)", COVERED),
    guarded(
        "a mask that Gemm adds to every row", "", "s = Gemm(q, k, m)", floats([-INF] * 4)
    ),
    guarded(
        "the least of several masks",
        "b = ReduceMin<keepdims = 0>(m, axis)",
        ADDED,
        np.stack([COVERED, COVERED]),
    ),
    *(
        guarded(
            f"a mask behind a {name}", f"u = Unsqueeze(m, axes) {body} b = Squeeze(v, axes)",
            ADDED, COVERED, IMAGE,
        )
        for name, body in (
            ("pool of maxima", "v = MaxPool<kernel_shape = [1, 1]>(u)"),
            ("pool of means", "v = AveragePool<kernel_shape = [1, 3], pads = [0, 1, 0, 1]>(u)"),
            ("convolution", "v = Conv(u, w)"),
        )
    ),
    guarded("a mask that a product expands", "b = MatMul(m, ones)", ADDED, COVERED[:, :1], IMAGE),
    Case(
        "weights that are compared, of scores to which Gemm adds a mask",
        "(float[4, 4] q, float[4, 4] k, float[4, 4] m) => (float[4, 4] y)",
        "float two = {2}",
        "s = Gemm(q, k, m) p = Softmax(s) n = Less(p, two) y = Where(n, p, two)",
        {"q": ALIKE, "k": ALIKE, "m": COVERED},
    ),
    Case(
        "a mask in front of a sigmoid",
        "(float[4, 4] q, float[4, 4] k, float[4, 4] m) => (float[4, 4] y)",
        "float one = {1}",
        "a = MatMul(q, k) g = Add(a, m) p = Sigmoid(g) s = Mul(g, p) c = Less(s, one)"
        " y = Where(c, s, one)",
        {"q": ALIKE, "k": ALIKE, "m": COVERED},
    ),
]  # fmt: skip
DISCRETE = [
    Case(
        f"two scalings in front of {name}",
        f"(float[64] x) => ({kind}[64] y)",
        f"float a = {{{a}}}, float b = {{{b}}}, float t = {{3}}",
        f"m = {first}(x, a) n = Mul(m, b) {last}",
        {"x": COUNTS},
        0.0,
    )
    for name, kind, a, b, first, last in (
        ("Floor", "float", 0.1, 10, "Mul", "y = Floor(n)"),
        ("Ceil", "float", 3, 3, "Div", "y = Ceil(n)"),
        ("Round", "float", 0.3, 5, "Mul", "y = Round(n)"),
        ("a Cast", "int64", 0.1, 10, "Mul", "y = Cast<to = 7>(n)"),
        ("Equal", "bool", 0.1, 10, "Mul", "y = Equal(n, t)"),
        ("Less", "bool", 0.1, 10, "Mul", "y = Less(n, t)"),
        ("Sign", "float", 0.1, 10, "Mul", "d = Sub(n, t) y = Sign(d)"),
    )
]
QUOTIENTS = {"a": floats([0, 1, 2, 3, 4, -5]), "b": floats([0, 0, 1, 1, 0, 0])}
"""Of which one is NaN, and others are infinite."""
COMPARED = [
    Case(
        "the lesser of two is not a Clip",
        "(float[6] a, float[6] b) => (float[6] y)",
        "float six = {6}",
        "x = Div(a, b) c = Less(x, six) y = Where(c, x, six)",
        QUOTIENTS,
    ),
    Case(
        "what is positive is not a Relu",
        "(float[6] a, float[6] b) => (float[6] y)",
        "float zero = {0}",
        "x = Div(a, b) c = Greater(x, zero) y = Where(c, x, zero)",
        QUOTIENTS,
    ),
    Case(
        "not less is not greater or equal",
        "(float[6] a, float[6] b, float[6] z) => (bool[6] y)",
        "",
        "x = Div(a, b) c = Less(x, z) y = Not(c)",
        {**QUOTIENTS, "z": floats(np.zeros(6))},
    ),
    Case(
        "what equals itself is not all",
        "(float[6] a, float[6] b) => (float[6] y)",
        "float zero = {0}",
        "x = Div(a, b) c = Equal(x, x) y = Where(c, x, zero)",
        QUOTIENTS,
    ),
    Case(
        "an input that is compared with itself",
        "(float[6] x) => (float[6] y)",
        "float zero = {0}",
        "c = Equal(x, x) y = Where(c, x, zero)",
        {"x": ODD},
    ),
    Case(
        "an input that is tested is not clipped either",
        "(float[6] x) => (float[6] y, float[6] z)",
        "float zero = {0}, float six = {6}",
        "n = IsNaN(x) y = Where(n, zero, x) c = Less(x, six) z = Where(c, x, six)",
        {"x": ODD},
    ),
    Case(
        "an input that is compared with infinity",
        "(float[6] x) => (float[6] y)",
        "float zero = {0}, float most = {3.4028234663852886e38}",
        "a = Abs(x) c = LessOrEqual(a, most) y = Where(c, x, zero)",
        {"x": ODD},
    ),
]
TESTED = [
    Case(
        f"an input that is tested by {name}",
        "(float[1, 6] x) => (bool[r, c] n, float[1, 6] z)",
        "float zero = {0}, float one = {1}, int64 axis = {0}, int64[1] count = {6},"
        " float[6, 2] w = {1, 2, -3, 1, 2, -1, 1, 1, 1, 0.5, 1, -1}",
        f"{body} g = Greater(x, zero) z = Where(g, x, zero)",
        {"x": ODD[None]},
    )
    for name, body in (
        ("its sum", "s = ReduceSum(x) n = IsNaN(s)"),
        ("its maximum", "s = ReduceMax(x) n = IsInf(s)"),
        ("whether its sum is itself", "s = ReduceSum(x) n = Equal(s, s)"),
        ("a product", "s = MatMul(x, w) n = IsNaN(s)"),
        ("its cumulative sum", "s = CumSum(x, axis) n = IsNaN(s)"),
        ("its largest elements", "s, i = TopK(x, count) n = IsNaN(s)"),
        ("the weights of a softmax", "s = Softmax(x) n = IsNaN(s)"),
        ("its difference to itself", "s = Sub(x, x) n = Equal(s, zero)"),
        ("its quotient by itself", "s = Div(x, x) n = Equal(s, one)"),
        ("its product with 0", "s = Mul(x, zero) n = Equal(s, zero)"),
    )
]
CANCELLING = [
    Case(
        "coordinates that are scaled before a product",
        "(float[8, 3] x) => (float[8, 2] y)",
        "float[3] mean = {5000000, 5000000, 5000000}, float[3] std = {50, 50, 50},"
        " float[3, 2] w = {1, 2, -3, 1, 2.5, -1}, float[2] b = {0.5, -0.5}",
        "d = Sub(x, mean) z = Div(d, std) m = MatMul(z, w) y = Add(m, b)",
        {"x": spread(5e6, 50, 8, 3)},
    ),
    Case(
        "an offset before a convolution",
        "(float[1, 1, 8, 8] x) => (float[1, 2, 6, 6] y)",
        "float mean = {100000}, float[2] b = {0.5, -0.5},"
        " float[2, 1, 3, 3] w = {1, 2, -3, 1, 2, -1, 1, 1, 1, 0.5, 1, -1, 2, 1, 1, 1, -2, 1}",
        "d = Sub(x, mean) y = Conv(d, w, b)",
        {"x": spread(1e5, 1, 1, 1, 8, 8)},
    ),
    Case(
        "two offsets",
        "(float[8, 3] x) => (float[8, 3] y)",
        "float a = {-1000000}, float scale = {0.01}, float c = {3}",
        "d = Add(x, a) z = Mul(d, scale) y = Add(z, c)",
        {"x": spread(1e6, 1, 8, 3)},
    ),
    Case(
        "one channel beside a large one",
        "(float[8, 3] x) => (float[8, 2] y)",
        "float off = {100000.3}, float[3] c = {0.123, 300000, 0.5}, int64[1] zero = {0},"
        " int64[1] end = {3}, int64[1] one = {1}, int64[1] step = {2}",
        "d = Sub(x, off) z = Sub(d, c) y = Slice(z, zero, end, one, step)",
        {"x": spread(1e5, 1, 8, 3)},
    ),
    Case(
        "a difference of two inputs",
        "(float[8, 3] x, float[8, 3] z) => (float[8, 2] y)",
        "float[3, 2] w = {1, 2, -3, 1, 2, -1}",
        "d = Sub(x, z) y = MatMul(d, w)",
        {"x": spread(1e6, 1, 8, 3), "z": spread(1e6, 2, 8, 3)},
    ),
    Case(
        "coordinates in another order",
        "(float[8, 3] x) => (float[8, 3] y)",
        "float[3, 3] w = {0, 1, 0, 0, 0, 1, 1, 0, 0}, float[3] s = {0.02, 0.021, 0.019},"
        " float[3] b = {-5000000, -5000000, -5000000}",
        "m = MatMul(x, w) d = Add(m, b) y = Mul(d, s)",
        {"x": spread(5e6, 50, 8, 3)},
    ),
    Case(
        "scaled differences of neighbours",
        "(float[1, 1, 12] x) => (float[1, 1, 11] y)",
        "float[1, 1, 2] w = {-1, 1}, float s = {0.1}",
        "d = Conv(x, w) y = Mul(d, s)",
        {"x": spread(5e6, 50, 1, 1, 12)},
    ),
    Case(
        "differences of neighbours in two kernels",
        "(float[1, 1, 12] x) => (float[1, 2, 11] y)",
        "float[1, 1, 2] w = {-1, 1}, float[2, 1, 1] v = {0.37, -0.81}, float[2] b = {0.3, 0.7}",
        "d = Conv(x, w) y = Conv(d, v, b)",
        {"x": spread(5e6, 50, 1, 1, 12)},
    ),
    Case(
        "differences of neighbours, normalized",
        "(float[1, 1, 12] x) => (float[1, 1, 11] y)",
        "float[1, 1, 2] w = {-1, 1}, float[1] scale = {0.9}, float[1] bias = {0.1},"
        " float[1] mean = {3}, float[1] variance = {210}",
        "d = Conv(x, w) y = BatchNormalization(d, scale, bias, mean, variance)",
        {"x": spread(5e6, 50, 1, 1, 12)},
    ),
    Case(
        "differences of columns behind a product",
        "(float[8, 3] x) => (float[8, 2] y)",
        "float[3, 2] w = {1, 0, -1, 1, 0, -1}, float[2, 2] v = {0.31, -0.87, 1.13, 0.77}",
        "d = MatMul(x, w) y = MatMul(d, v)",
        {"x": spread(5e6, 50, 8, 3)},
    ),
    Case(
        "differences of columns, divided",
        "(float[8, 3] x) => (float[8, 2] y)",
        "float[3, 2] w = {1, 0, -1, 1, 0, -1}, float[2] s = {49, 51}",
        "d = MatMul(x, w) y = Div(d, s)",
        {"x": spread(5e6, 50, 8, 3)},
    ),
    Case(
        "a scaled weighted sum",
        "(float[8, 3] x) => (float[8, 1] y)",
        "float[3] w = {1, -2, 1}, float s = {0.1}, int64[1] axis = {1}",
        "p = Mul(x, w) d = ReduceSum(p, axis) y = Mul(d, s)",
        {"x": spread(5e6, 50, 8, 3)},
    ),
    Case(
        "a product with what is all but 1",
        "(float[3] x, float[3] z) => (float[3] y, float[3] k)",
        "float one = {1}",
        "a = Sub(z, one) y = Mul(x, a) k = Mul(x, z)",
        {"x": floats([0.3, 0.7, 1.1]), "z": floats([1 + 2**-20, 1 - 2**-21, 1 + 2**-22])},
    ),
    Case(
        "a product with what is all but -1",
        "(float[3] x, float[3] z) => (float[3] y, float[3] k)",
        "float one = {1}",
        "a = Add(one, z) y = Mul(x, a) k = Mul(x, z)",
        {"x": floats([0.3, 0.7, 1.1]), "z": floats([-1 + 2**-20, -1 - 2**-21, -1 + 2**-22])},
    ),
    Case(
        "a blend with a large number that does not count",
        "(float[3] x, float[3] z, float[3] t) => (float[3] y)",
        "float one = {1}",
        "u = Sub(one, t) a = Mul(x, u) b = Mul(z, t) y = Add(a, b)",
        {"x": floats([1e9] * 3), "z": floats([1.5, -2.25, 0.1]), "t": floats([1] * 3)},
    ),
    Case(
        "one large feature among many",
        "(float[8, 256] x) => (float[8, 2] y)",
        f"float[256] mean = {{{', '.join(['0'] * 77 + ['5000000'] + ['0'] * 178)}}},"
        f" float[256] std = {{{', '.join(['1'] * 77 + ['50'] + ['1'] * 178)}}},"
        f" float[256, 2] w = {{{', '.join(f'{np.sin(i):.4f}' for i in range(512))}}}",
        "d = Sub(x, mean) z = Div(d, std) y = MatMul(z, w)",
        {"x": np.where(np.arange(256) == 77, spread(5e6, 50, 8, 256), spread(0, 1, 8, 256))},
        tolerance=2e-5,
    ),
    Case(
        "rows of a table of coordinates",
        "(float[3, 3] x) => (float[3, 2] y)",
        "float[3, 2] w = {5000012.5, 4999961.5, 4999912, 5000051, 5000033.5, 4999970},"
        " float[2] s = {0.02, 0.021}, float[2] b = {-5000000, -5000000}",
        "m = MatMul(x, w) d = Add(m, b) y = Mul(d, s)",
        {"x": np.eye(3, dtype=np.float32)},
    ),
    Case(
        "a quotient of small differences",
        "(float[8, 3] x) => (float[8, 3] y)",
        "float a = {1.7}, float b = {0.6}, float sum = {2.3}",
        "d = Sub(x, a) e = Sub(d, b) o = Sub(x, sum) y = Div(e, o)",
        {"x": spread(2.3, 3e-6, 8, 3)},
    ),
    Case(
        "the sign of a small difference",
        "(float[8, 3] x) => (float[8, 3] y)",
        "float a = {1.7}, float b = {0.6}, float tiny = {1e-12}",
        "d = Sub(x, a) e = Sub(d, b) p = Abs(e) t = Max(p, tiny) y = Div(e, t)",
        {"x": spread(2.3, 3e-6, 8, 3)},
    ),
    Case(
        "the logarithm of a small difference",
        "(float[8, 3] x) => (float[8, 3] y)",
        "float a = {1.7}, float b = {0.6}, float tiny = {1e-12}",
        "d = Sub(x, a) e = Sub(d, b) p = Abs(e) t = Add(p, tiny) y = Log(t)",
        {"x": spread(2.3, 3e-6, 8, 3)},
    ),
    Case(
        "the root of a small difference",
        "(float[8, 3] x) => (float[8, 3] y)",
        "float a = {1.7}, float b = {0.6}",
        "d = Sub(x, a) e = Sub(d, b) p = Relu(e) y = Sqrt(p)",
        {"x": spread(2.3, 3e-6, 8, 3)},
    ),
]


SCALED = "a = Mul(x, c) b = Mul(a, d)"
PARTS = "float a = {1.7}, float b = {0.6}, float sum = {2.3}, float one = {1}"
DIFFERENCES = "d = Sub(x, a) e = Sub(d, b) o = Sub(x, sum)"
CHAIN = " ".join(f"o{n + 1} = Sin(o{n})" for n in range(40))
FLIPPED = (
    "If (c) <then_branch = t () => (float[8, 3] p) {p = Neg(o)},"
    " else_branch = f () => (float[8, 3] n) {n = Abs(o)}>"
)
SCALED_SHIFTS = [  # x * k + c is (x + c / k) * k where k is not 0, and the quotient is a number
    Case(
        f"a scale of {scale} and a shift of {shift} before a convolution with a border",
        "(float[1, 2, 6, 6] x) => (float[1, 2, 6, 6] y)",
        f"float[2, 1, 1] k = {{{scale}, 0.5}}, float c = {{{shift}}}, float[2] b = {{0.5, -0.5}},"
        " float[2, 2, 3, 3] w = {" + ", ".join(map(str, [1, 2, -3, 1, 2, -1, 1, 1, 1] * 4)) + "}",
        "r = HardSwish(x) m = Mul(r, k) a = Add(m, c) y = Conv<pads = [1, 1, 1, 1]>(a, w, b)",
        {"x": spread(0, 3, 1, 2, 6, 6)},
    )
    for scale, shift in ((0, 1), (1e-30, 1), (1e-38, 1000), (1e30, 1), (-2, 0.7))
]
DIVIDENDS = [
    Case(
        f"a quotient by what is small with it: {name}",
        "(float[8, 3] x, bool c) => (float[8, 3] y)" if "(c)" in body else
        "(float[8, 3] x) => (float[8, 3] y)",
        PARTS,
        f"{DIFFERENCES} {body}",
        {"x": spread(2.3, 3e-6, 8, 3)} | ({"c": np.array(True)} if "(c)" in body else {}),
    )
    for name, body in (
        ("an operator that is opaque", "q = Atan(o) y = Div(e, q)"),
        ("a hyperbolic sine", "q = Sinh(o) y = Div(e, q)"),
        ("behind many operators", f"o0 = Identity(o) {CHAIN} y = Div(e, o40)"),
        ("its inverse", "r = Reciprocal(o) y = Mul(e, r)"),
        ("the inverse of one that is opaque", "q = Atan(o) r = Reciprocal(q) y = Mul(e, r)"),
        ("a choice of graphs", f"q = {FLIPPED} y = Div(e, q)"),
        ("an exponential less one", "p = Exp(o) q = Sub(p, one) y = Div(e, q)"),
        ("an exponential of a logarithm",
         "p = Abs(o) l = Log(p) n = Neg(l) q = Exp(n) y = Mul(e, q)"),
    )
]  # fmt: skip
SCALES = "float c = {0.020408162847161293}, float d = {49}"
INTEGERS = {"x": floats([[7, 14, 27, 28], [35, 41, 47, 54]])}
OFFSETS = "float[4] m = {0.1, 0.2, 0.3, 0.7}, float n = {0.001}"
SHIFTED = "d = Sub(x, m) e = Sub(d, n)"
SMALL = {"x": np.tile(floats([0.1, 0.2, 0.3, 0.7]) + np.float32(0.001), (2, 1))}

CANCELLING += [  # a bias of values goes past weights that add up to 1
    Case(
        f"values with an offset in front of {what}",
        "(float[1, 4, 8] q, float[1, 4, 8] k, float[1, 4, 8] v) => (float[1, 4, 8] y)",
        f"float[8] b = {{{', '.join(['-5000000'] * 8)}}}",
        f"w = Add(v, b) {body} m = MatMul(a, u) y = Add(m, c)",
        {"q": spread(0, 1, 1, 4, 8), "k": spread(1, 1, 1, 4, 8), "v": spread(5e6, 50, 1, 4, 8)},
        opset=23,
        data={"u": np.eye(8, dtype=np.float32) * 2, "c": np.arange(8, dtype=np.float32)},
    )
    for what, body in (
        ("an attention", "a = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, w)"),
        (
            "an attention in parts",
            "t = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, t) p = Softmax(s) a = MatMul(p, w)",
        ),
    )
]


BEHIND = [  # operators of which only the name is known stand between
    Case(
        "floats that are read as integers",
        "(float[2, 4] x) => (float[2, 4, 60] y)",
        f"{SCALES}, float depth = {{60}}, float[2] v = {{0, 1}}",
        f"{SCALED} y = OneHot(b, depth, v)",
        INTEGERS,
    ),
    Case(
        "NaN that is read as an integer",
        "(float[2, 4] x) => (float[2, 4, 8] y)",
        "float depth = {8}, float[2] v = {0, 1}",
        "l = Log(x) e = Exp(l) y = OneHot(e, depth, v)",
        {"x": floats([[1, -1, 3, -3], [0, 2, -7, -2]])},
    ),
    Case(
        "integers behind computed bounds",
        "(float[2, 4] x) => (float[2, 4] y)",
        SCALES,
        f"{SCALED} l = ReduceMin<keepdims = 0>(x) h = ReduceMax<keepdims = 0>(x)"
        " q = Clip(b, l, h) y = Floor(q)",
        INTEGERS,
    ),
    Case(
        "integers behind a narrower type",
        "(float[2, 4] x) => (int32[2, 4] y)",
        SCALES,
        f"{SCALED} h = Cast<to = 10>(b) y = Cast<to = 6>(h)",
        {"x": floats([[6.9995117, 13.9990234, 16.998047, 26.998047], [27.998047, 7, 14, 17]])},
    ),
    Case(
        "integers behind the nearest pixels",
        "(float[2, 4] x, float[1, 2, 4, 2] at) => (float[1, 1, 2, 4] y)",
        f"{SCALES}, int64[2] axes = {{0, 1}}",
        f'{SCALED} u = Unsqueeze(b, axes) q = GridSample<mode = "nearest">(u, at) y = Floor(q)',
        {**INTEGERS, "at": np.zeros((1, 2, 4, 2), np.float32)},
    ),
    Case(
        "a reciprocal behind computed bounds",
        "(float[2, 4] x, float l, float h) => (float[2, 4] y)",
        OFFSETS,
        f"{SHIFTED} q = Clip(e, l, h) y = Reciprocal(q)",
        {**SMALL, "l": floats(-9), "h": floats(9)},
    ),
    Case(
        "a small norm behind a triangle",
        "(float[2, 4] x) => (float[2, 4] y)",
        f"{OFFSETS}, int64 k = {{9}}, int64[1] axis = {{1}}",
        f"{SHIFTED} t = Trilu<upper = 0>(e, k) r = ReduceL2(t, axis) y = Div(t, r)",
        SMALL,
    ),
    Case(
        "a small sum of squares",
        "(float[2, 4] x) => (float[2] y)",
        f"{OFFSETS}, int64[1] axis = {{1}}",
        f"{SHIFTED} r = ReduceSumSquare<keepdims = 0>(e, axis) y = Log(r)",
        SMALL,
    ),
    Case(
        "a negative power",
        "(float[2, 4] x) => (float[2, 4] y)",
        f"{OFFSETS}, float k = {{-1}}",
        f"{SHIFTED} y = Pow(e, k)",
        SMALL,
    ),
    Case(
        "small differences in front of a normalization",
        "(float[2, 4] x) => (float[2, 4] y)",
        f"{OFFSETS}, float[4] w = {{1, 1, 1, 1}}",
        f"{SHIFTED} y = LayerNormalization<epsilon = 1e-12>(e, w)",
        SMALL,
    ),
    Case(
        "small differences in front of a normalization by their squares",
        "(float[2, 4] x) => (float[2, 4] y)",
        f"{OFFSETS}, float[4] w = {{1, 1, 1, 1}}",
        f"{SHIFTED} y = RMSNormalization<epsilon = 1e-12>(e, w)",
        SMALL,
        opset=23,
    ),
    Case(
        "a mask of least floats and infinities",
        "(float[1, 2, 4, 8] q, float[1, 2, 4, 8] k, float[1, 2, 4, 8] v, float[1, 1, 4, 4] m)"
        " => (float[1, 2, 4, 8] y)",
        "float scale = {0.35355339}",
        "kt = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, kt) t = Mul(s, scale) w = Add(t, m)"
        " p = Softmax<axis = -1>(w) y = MatMul(p, v)",
        {
            **{name: spread(0, 1, 1, 2, 4, 8) + floats(i) for i, name in enumerate("qkv")},
            "m": floats(
                [[[[0, 0, 0, 0], [0, LEAST, -INF, 0], [LEAST, -INF, LEAST, -INF], [LEAST] * 4]]]
            ),
        },
    ),
]


WEIGHTS = np.random.default_rng(1).standard_normal((16, 8))
FOLDED = [  # constants, in the model's type or in attributes, that are other numbers or none
    Case(
        f"an epsilon of {epsilon} in double",
        "(double[2, 4] x) => (double[2, 4] y)",
        "int64[1] axis = {-1}",
        "u = ReduceMean(x, axis) c = Sub(x, u) s = Mul(c, c) v = ReduceMean(s, axis)"
        " e = Add(v, epsilon) r = Sqrt(e) q = Div(c, r) y = Mul(q, g)",
        {"x": np.array([[3, 3, 3, 3], [0, size, 0, 0]])},
        1e-12,
        data={"epsilon": np.array(epsilon), "g": np.arange(1.0, 5)},
    )
    for epsilon, size in ((1e-60, 1e-28), (1e-46, 1e-23))
]
FOLDED += [
    Case(
        f"an epsilon of {epsilon} in double, of a root mean square",
        "(double[2, 4] x) => (double[2, 4] y)",
        "int64[1] axis = {-1}",
        "s = Mul(x, x) v = ReduceMean(s, axis) e = Add(v, epsilon) r = Sqrt(e) q = Div(x, r)"
        " y = Mul(q, g)",
        {"x": np.array([[0, 0, 0, 0], [0, size, 0, 0]])},
        1e-12,
        opset=23,
        data={"epsilon": np.array(epsilon), "g": np.arange(1.0, 5)},
    )
    for epsilon, size in ((1e-60, 1e-28), (1e-46, 1e-23))
]
FOLDED += [
    Case(
        "a factor of a bias in double",
        "(double[2, 2] x, double[2, 2] w, double[2, 2] b) => (double[2, 2] y)",
        "",
        "m = MatMul(x, w) s = Mul(b, a) y = Add(m, s)",
        {"x": np.eye(2), "w": np.eye(2) * 3, "b": np.zeros((2, 2)) + 7},
        1e-14,
        data={"a": np.array(0.1)},
    )
]
FOLDED += [
    Case(
        f"two scales in {signature.split('[')[0][1:]}, {a} and {b}",
        signature,
        "",
        "t = Mul(x, a) u = Mul(t, b) y = Mul(u, w)",
        {"x": np.full(4, x, dtype), "w": np.full(4, w, dtype)},
        0.01 if dtype is np.float16 else 1e-5,
        data={"a": np.array(a, dtype), "b": np.array(b, dtype)},
    )
    for signature, dtype, a, b, x, w in (
        ("(float[4] x, float[4] w) => (float[4] y)", np.float32, 1e-25, 1e-25, 1e15, 1e30),
        ("(float[4] x, float[4] w) => (float[4] y)", np.float32, 1e30, 1e30, 1e-30, 1),
        ("(float16[4] x, float16[4] w) => (float16[4] y)", np.float16, 5e-4, 5e-4, 6e4, 1),
        ("(float16[4] x, float16[4] w) => (float16[4] y)", np.float16, 1e-4, 1e-4, 6e4, 1e3),
        ("(double[4] x, double[4] w) => (double[4] y)", np.float64, 1e-200, 1e-200, 1e150, 1e150),
    )
]
FOLDED += [
    Case(
        f"a small scale behind {name} in 16 bits",
        f"(float16[{shape}] x) => (float16[N] y)".replace("[N]", result),
        "",
        body,
        {"x": (WEIGHTS.reshape(given) * 1e4).clip(-6e4, 6e4).astype(np.float16)},
        0.005,
        data={"a": np.array(1e-4, np.float16), "w": (0.002 * weights).astype(np.float16)},
    )
    for name, shape, result, given, weights, body in (
        (
            *("a product", "8, 16", "[8, 8]", (8, 16), WEIGHTS),
            "p = MatMul(x, w) y = Mul(p, a)",
        ),
        (
            *("a convolution", "2, 16, 2, 2", "[2, 8, 2, 2]", (2, 16, 2, 2)),
            WEIGHTS.T[:, :, None, None],
            "p = Conv(x, w) y = Mul(p, a)",
        ),
    )
]
HUGE = floats([3e38, -3e38, 2e38, 1])
PEAKS = np.zeros((1, 1, 8, 512), np.float32)
PEAKS[0, 0, range(8), [100, 150, 200, 9, 9, 350, 400, 450]] = 1000  # two in one window
NEARLY_TOO_LARGE = [  # rewritten, a number in between would overflow
    Case(
        "a common factor",
        "(float[4] x, float[4] y, float[4] z) => (float[4] r)",
        "",
        "a = Mul(x, y) b = Mul(z, y) r = Add(a, b)",
        {"x": HUGE, "y": floats([0.1] * 4), "z": HUGE},
    ),
    Case(
        "a common divisor",
        "(float[4] x, float[4] y, float[4] z) => (float[4] r)",
        "",
        "a = Div(x, y) b = Div(z, y) r = Add(a, b)",
        {"x": HUGE, "y": floats([10] * 4), "z": HUGE},
    ),
    Case(
        "sums in another order",
        "(float[4, 4] x, float[4, 4] z) => (float[4, 4] r)",
        "float[4, 4] w = {0.25, 0, 0, 0, 0, 0.25, 0, 0, 0, 0, 0.25, 0, 0, 0, 0, 0.25}",
        "a = MatMul(x, w) b = MatMul(z, w) r = Add(a, b)",
        {"x": HUGE * np.eye(4, dtype=np.float32), "z": HUGE * np.eye(4, dtype=np.float32)},
    ),
    Case(
        "scalings",
        "(float[4] x) => (float[4] r)",
        "float a = {1e-30}, float b = {1e20}, float c = {1e20}",
        "s = Mul(x, a) t = Mul(s, b) r = Mul(t, c)",
        {"x": HUGE},
    ),
    Case(
        "windows with a border, of averages",
        "(float[1, 1, 8, 512] a) => (float[1, 1, 8, 512] y)",
        "float k = {1.6e38}",
        "s = Softmax<axis = -1>(a) x = Mul(s, k) r = Neg(a) n = Neg(r) t = Softmax<axis = -1>(n)"
        " z = Mul(t, k) p = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)"
        " q = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(z) y = Add(p, q)",
        {"a": PEAKS},
    ),
    Case(
        "windows with a border, of averages of two",
        "(float[1, 1, 8, 512] a, float[1, 1, 8, 512] b) => (float[1, 1, 8, 512] y)",
        "float k = {1.6e38}",
        "s = Softmax<axis = -1>(a) x = Mul(s, k) t = Softmax<axis = -1>(b) z = Mul(t, k)"
        " p = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)"
        " q = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(z) y = Add(p, q)",
        {"a": PEAKS, "b": PEAKS},
    ),
    Case(
        "windows with a border, of convolutions",
        "(float[1, 3, 4, 8] a, float[1, 3, 4, 8] b) => (float[1, 1, 4, 10] y)",
        "float k = {1.6e38}, float l = {-1.6e38}, float[1, 3, 1, 1] w = {1, 1, -1}",
        "s = Softmax<axis = -1>(a) x = Mul(s, k) t = Softmax<axis = -1>(b) z = Mul(t, l)"
        " p = Conv<pads = [0, 1, 0, 1]>(x, w) q = Conv<pads = [0, 1, 0, 1]>(z, w) y = Sub(p, q)",
        {
            name: floats(1000 * (np.arange(8) == 5)) + np.zeros((1, 3, 4, 8), np.float32)
            for name in "ab"
        },
    ),
]


TABLE = np.random.default_rng(0).random((8192, 1)).astype(np.float32)
TABLE[777] = np.float32(0.7)
POWERS = floats(2.0 ** np.random.default_rng(0).integers(0, 5, (8192, 1)) * 41)
POWERS[777] = 1
ROW = {"i": np.array([777])}
TWICE = floats([0.2, 0.4, 0.6, 0.8, 1.2, 1.4, 3.6, 7.7])
SOME_NAN = floats([[NAN, 0, 0, 0]])
SUMMED = "int64[1] axes = {1}, float half = {0.5}, float five = {5}"
STEPWISE = [  # a constant that the runtime would have rounded on the way
    Case(
        "a table that is looked up, scaled and rounded to integers",
        "(int64[1] i) => (float[1, 1] y)",
        "float ten = {10}, float six = {6}",
        "g = Gather(t, i) a = Mul(g, ten) b = Sub(a, six) y = Floor(b)",
        ROW,
        data={"t": TABLE},
    ),
    Case(
        "a table of the model's own that is rounded to integers before",
        "(int64[1] i) => (float[1, 1] y)",
        "float c = {41}, float three = {3}",
        "d = Div(t, c) e = Mul(d, c) f = Floor(e) g = Gather(f, i) y = Mul(g, three)",
        ROW,
        data={"t": POWERS},
    ),
    Case(
        "a quotient of single precision in a model of double precision",
        "(double[4] x) => (double[4] y)",
        "float one = {1}, float three = {3}, double k = {1024}",
        "d = Div(one, three) e = Cast<to = 11>(d) s = Mul(e, k) y = Sub(x, s)",
        {"x": np.float64(np.float32(1) / np.float32(3)) * 1024 + np.arange(4)},
        tolerance=1e-12,
    ),
    Case(
        "a sum with a constant that rounds to quarters",
        "(float[8] x) => (float[8] y)",
        "float m = {12582912}, float four = {4}, float quarter = {0.25}",
        "z = Mul(x, four) a = Add(z, m) b = Sub(a, m) y = Mul(b, quarter)",
        {"x": TWICE},
    ),
    Case(
        "a sum of halves by an operator of which only the name is known",
        "(float16[1, 4] x) => (float16[1, 4] y)",
        "float16 eleven = {11}, int64 axis = {1}, float16 two = {2}, float16 zero = {0},"
        " float16 q = {2001}",
        "a = Min(x, eleven) e = Exp(a) f = Floor(e) s = CumSum(f, axis) d = Sub(s, q)"
        " r = Reciprocal(d) m = Mul(r, two) y = Where(c, m, zero)",
        {"x": np.full((1, 4), 7.6016, np.float16)},
        data={"c": np.array([[True, False, True, False]])},
        tolerance=1e-3,
    ),
    Case(
        "a sum that a branch tests",
        "(float[1, 4] x, bool b) => (float[1, 1] y, bool[1, 1] q)",
        SUMMED,
        "s = ReduceSum(x, axes) l = Less(s, half) q = Not(l) y = If(b) <then_branch = yes ()"
        " => (float[1, 1] o) { n = IsNaN(s) o = Where(n, five, s) }, else_branch = no ()"
        " => (float[1, 1] p) { p = Identity(s) }>",
        {"x": SOME_NAN, "b": np.array(True)},
    ),
]


def optimized(
    model: onnx.ModelProto, objective: Objective = "nodes", assume: str = DEFAULT.option
) -> tuple[onnx.ModelProto, xflow.Report]:
    budget = 20.0 if objective == "nodes" else 2.0
    result = xflow.optimize(
        model,
        objective=objective,
        cost="estimated",
        budget=budget,
        assume=assume,
    )
    return ir.to_proto(result.model), result.report


@pytest.mark.parametrize(
    ("case", "objective"),
    in_turn(
        [
            *(*GUARDS, *OBSERVED, *OVERFLOW, *ROUNDED, *MASKED, *COVERING, *DISCRETE, *COMPARED),
            *(*TESTED, *CANCELLING, *BEHIND, *SCALED_SHIFTS, *DIVIDENDS, *FOLDED),
            *STEPWISE,
        ],
        ("nodes", "latency"),
    ),
)
def test_what_was_right_stays_right(case: Case, objective: Objective) -> None:
    model, report = optimized(case.model, objective)
    assert not [text for text in report.warnings if "dropped" in text]  # nothing wrong was tried
    assert_right(case, model)


@pytest.mark.parametrize("assume", ["none", "finite-inputs"])
@pytest.mark.parametrize(("case", "objective"), in_turn(NEARLY_TOO_LARGE, ("nodes", "latency")))
def test_nothing_overflows_that_did_not(case: Case, objective: Objective, assume: str) -> None:
    model, _ = optimized(case.model, objective, assume)
    assert_right(case, model)


@pytest.mark.parametrize("function", ["Softplus", "Mish"])
@pytest.mark.parametrize(("behind", "moves"), [("Floor", False), ("Neg", True)])
def test_nothing_discrete_sees_where_an_element_was_computed(
    function: str, behind: str, moves: bool
) -> None:
    """Kernels of such functions may give another last digit at another place of a tensor."""
    case = Case(
        "",
        "(float[16, 670, 64] x) => (float[16, 3, 64] y)",
        "float c = {1.0299}, int64[1] b = {0}, int64[1] e = {3}, int64[1] along = {1}",
        f"f = {function}(x) s = Slice(f, b, e, along) d = Div(s, c) y = {behind}(d)",
        {"x": np.full((16, 670, 64), 0.588265, np.float32)},
    )
    model, report = optimized(case.model, "latency")
    known = load_rules(default_directory())
    sliced = {rule.name for rule in known if "Slice(" in rule.lhs + rule.rhs}
    assert any(use.name.removesuffix(".reverse") in sliced for use in report.rules) == moves
    assert_right(case, model)


@pytest.mark.parametrize(
    ("between", "kept"),
    [
        ("p = AveragePool<kernel_shape = [2, 2]>(n)", True),
        ("p = GlobalAveragePool(n)", True),
        ("p = Softmax<axis = -1>(n)", True),
        ("p = Conv(n, w)", False),
        ("p = MatMul(v, n)", False),
        ("p = MatMul(n, n)", True),
    ],
)
@pytest.mark.parametrize(
    "codes",
    [
        "y = QuantizeLinear(p, a, u)",
        "y, s, z = DynamicQuantizeLinear(p)",
        "r = Cast<to = 6>(p) y = Cast<to = 2>(r)",
    ],
)
def test_codes_are_the_same_behind_sums_unless_these_are_of_products_with_weights(
    between: str, kept: bool, codes: str
) -> None:
    """A quantized network shows which code it was, and a pool does not hide the last digit."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[1, 4, 8, 8] x) => (uint8[N, C, H, W] y)
    <float a = {{0.1}}, float b = {{10}}, uint8 u = {{7}}, float[4, 4, 1, 1] w = {{{KERNEL}}},
     float[1, 1, 2, 8] v = {{{KERNEL}}}>
    {{ m = Mul(x, a) n = Mul(m, b) {between} {codes} }}"""
    model, _ = optimized(onnx.parser.parse_model(text), "nodes")
    assert (operators(model).count("Mul") == 2) == kept


def test_what_may_overflow_as_much_as_before_is_rewritten_without_assumptions() -> None:
    """Bounded numbers are added in any order, and of others nothing else is added."""
    case = Case(
        "",
        "(float[4, 3] x, float[4, 3] y, float[3, 4] w) => (float[4, 3] r, float[4, 4] s)",
        "float[4] c = {1, 2, 3, 4}",
        "a = Sigmoid(x) b = Tanh(y) d = Mul(a, a) e = Mul(b, a) r = Add(d, e)"
        " t = Transpose<perm = [1, 0]>(w) u = Transpose<perm = [1, 0]>(t) m = MatMul(x, u)"
        " s = Add(m, c)",
        {"x": HUGE[:3] * np.ones((4, 1), np.float32), "y": np.zeros((4, 3), np.float32)},
    )
    model, report = optimized(case.model, assume="none")
    assert len([name for name in operators(model) if name == "Mul"]) == 1
    assert "Transpose" not in operators(model)
    assert not report.assumed


def assert_right(case: Case, model: onnx.ModelProto) -> None:
    """What the model of a case gets right, another one does."""
    runs = [run_model(m, case.feeds, as_written=bool(case.data)) for m in (case.model, model)]
    for before, after in zip(*runs, strict=True):
        compare(case, before, after)


def compare(case: Case, before: np.ndarray, after: np.ndarray) -> None:
    assert after.dtype == before.dtype
    if before.dtype.kind != "f":
        assert np.array_equal(before, after)
        return
    right = np.isfinite(before)
    assert np.isfinite(after[right]).all()
    assert right.any()
    error = np.abs(before[right].astype(np.float64) - after[right]).max()
    assert error <= case.tolerance * np.abs(before[right]).max()


def operators(model: onnx.ModelProto) -> list[str]:
    return sorted(node.op_type for node in model.graph.node)


@pytest.mark.parametrize(
    ("signature", "weights", "body", "left"),
    [
        (  # the mean and deviation of an image's pixels
            "(float[1, 1, 8, 8] x) => (float[1, 2, 6, 6] y)",
            "float mean = {0.485}, float std = {0.229}, float[2] b = {0.5, -0.5}, float[2, 1, 3, 3]"
            " w = {1, 2, -3, 1, 2, -1, 1, 1, 1, 0.5, 1, -1, 2, 1, 1, 1, -2, 1}",
            "d = Sub(x, mean) z = Div(d, std) y = Conv(z, w, b)",
            ["Conv"],
        ),
        (  # a scaler with moderate constants
            "(float[8, 3] x) => (float[8, 2] y)",
            "float[3] mean = {1.5, -2, 10}, float[3] std = {0.5, 3, 4}, float[2] b = {0.5, -0.5},"
            " float[3, 2] w = {1, 2, -3, 1, 2, -1}",
            "d = Sub(x, mean) z = Div(d, std) m = MatMul(z, w) y = Add(m, b)",
            ["Gemm"],
        ),
        (  # a quotient by what is not 0
            "(float[4, 3] x) => (float[4, 3] y)",
            "float four = {4}, float half = {0.5}, float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}",
            "m = MatMul(x, w) d = Div(m, four) y = Mul(d, half)",
            ["MatMul"],
        ),
        (  # a comparison of what is known to be a number
            "(float[4, 3] x) => (float[4, 3] y)",
            "float zero = {0}, float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}",
            "m = MatMul(x, w) c = Greater(m, zero) y = Where(c, m, zero)",
            ["MatMul", "Max"],  # the same as a Relu
        ),
        (  # two scalings with nothing discrete behind them
            "(float[4, 3] x) => (float[4, 3] y)",
            "float a = {0.25}, float b = {8}",
            "m = Mul(x, a) y = Mul(m, b)",
            ["Mul"],
        ),
        (  # two offsets by whose difference nothing divides
            "(float[8, 3] x, float[8, 3] w) => (float[8, 3] y)",
            "float a = {0.7}, float b = {0.3}",
            "d = Sub(x, a) e = Sub(d, b) y = Div(e, w)",
            ["Div", "Sub"],
        ),
        (  # a small scale behind a layer, for which no input is as near to its offset as the scale
            "(float[4, 3] x) => (float[4, 3] y)",
            "float[3, 3] w = {0.31, -0.87, 1.13, 0.77, 0.19, -0.43, -0.59, 0.67, 0.29},"
            " float[3] b = {0.3, 0.7, -0.2}, float[3] s = {0.00001, 0.000023, 0.000017}",
            "m = MatMul(x, w) d = Add(m, b) y = Mul(d, s)",
            ["Gemm"],
        ),
    ],
    ids=["image", "scaler", "quotient", "comparison", "scalings", "offsets", "layer-scale"],
)
def test_what_remains_possible_is_done(
    signature: str, weights: str, body: str, left: list[str]
) -> None:
    model, _ = optimized(Case("", signature, weights, body).model)
    assert operators(model) == left


def test_a_clip_without_a_bound_stays_what_it_is() -> None:
    """As ONNX says, it cuts infinities down to the largest float: it gets no other bound."""
    case = Case(
        "",
        "(float[6] x, float[6] w) => (float[6] y, float[6] z)",
        "float zero = {0}",
        "q = Div(x, w) y = Clip(q, zero) n = Neg(x) z = Neg(n)",
        {"x": floats([1, 2, -3, 4, 0, -1]), "w": floats([0, 1, 1, 0, 0, 0])},
    )
    model, report = optimized(case.model)
    assert report.changed
    assert_right(case, model)


def test_a_maximum_behind_which_infinities_are_tested_is_no_clip() -> None:
    case = Case(
        "",
        "(float[6] x, float[6] w) => (float[6] y)",
        "float zero = {0}, float one = {1}",
        "q = Div(x, w) m = Max(q, zero) n = IsInf(m) y = Where(n, one, zero)",
        {"x": floats([1, 2, -3, 4, 5, -1]), "w": floats([0, 1, 1, 0, 2, 0])},
    )
    model, _ = optimized(case.model)
    assert_right(case, model)
