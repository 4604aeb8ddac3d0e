"""Composite operators in the ways in which exporters and people write them out.

Each is an ONNX graph in text. ``N`` and ``S`` stand for a batch and a sequence, of fixed or dynamic
sizes; constants are declared beside them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import onnx

from xflow.ops import operators as declared
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules

OPSET = 20
STATIC = {"N": "2", "S": "64"}
DYNAMIC = {"N": "N", "S": "S"}


def rules_over(*operators: str) -> list[Rule]:
    """The rules that have these operators alone, or any elementwise one: the others cost time."""
    known = {*operators, *(op.name for op in declared() if op.schematic)}
    return [
        rule
        for rule in load_rules(default_directory())
        if set(re.findall(r"([A-Z]\w+)\(", f"{rule.lhs} {rule.rhs}")) <= known
    ]


@dataclass(frozen=True)
class Composite:
    """An operator, the inputs and declarations of its spellings, and the spellings by name.

    A spelling computes y from x, or from q, k and v. `missed` says why some are not recognised yet.
    """

    kind: str
    operator: str
    inputs: str
    output: str
    constants: str
    spellings: dict[str, str]
    missed: dict[str, str]

    def model(self, spelling: str, *, dynamic: bool) -> onnx.ModelProto:
        """The spelling as a model, with names for all of its nodes."""
        sizes = DYNAMIC if dynamic else STATIC
        text = f"""<ir_version: 10, opset_import: ["" : {OPSET}]>
            g ({self.inputs}) => ({self.output}) <{self.constants}>
            {{ {self.spellings[spelling]} }}"""
        for name, size in sizes.items():
            text = text.replace(f"${name}", size)
        model = onnx.parser.parse_model(text)
        for node in model.graph.node:
            node.name = f"{node.op_type} {node.output[0]}"
        return model


def _scalars(**numbers: float) -> str:
    return ", ".join(f"float {name} = {{{number!r}}}" for name, number in numbers.items())


def _vector(name: str, size: int, start: float) -> str:
    numbers = ", ".join(f"{start + k / size:.5f}" for k in range(size))
    return f"float[{size}] {name} = {{{numbers}}}"


WIDTH = 64
TOKENS = f"float[$N, $S, {WIDTH}]"
_PARAMETERS = ", ".join((_vector("gain", WIDTH, 0.5), _vector("shift", WIDTH, -0.5)))
_MOMENTS = (
    "int64[1] last = {2}, "
    + _scalars(eps=1e-5, two=2.0, half=0.5, minus=-0.5, one=1.0, width=float(WIDTH))
    + f", {_scalars(inverse=1 / WIDTH)}, {_PARAMETERS}"
)
_CENTRED = "m = ReduceMean(x, last) d = Sub(x, m)"
_VARIANCE = f"{_CENTRED} d2 = Pow(d, two) v = ReduceMean(d2, last) e = Add(v, eps)"

LAYER_NORMALIZATION = Composite(
    "normalization",
    "LayerNormalization",
    f"{TOKENS} x",
    f"{TOKENS} y",
    _MOMENTS,
    {
        "divided by a root": f"""{_VARIANCE} r = Sqrt(e) n = Div(d, r) s = Mul(n, gain)
            y = Add(s, shift)""",
        "a square as a product": f"""{_CENTRED} d2 = Mul(d, d) v = ReduceMean(d2, last)
            e = Add(v, eps) r = Sqrt(e) n = Div(d, r) s = Mul(n, gain) y = Add(s, shift)""",
        "times a reciprocal": f"""{_VARIANCE} r = Sqrt(e) i = Reciprocal(r) n = Mul(d, i)
            s = Mul(n, gain) y = Add(s, shift)""",
        "one over a root": f"""{_VARIANCE} r = Sqrt(e) i = Div(one, r) n = Mul(d, i)
            s = Mul(n, gain) y = Add(s, shift)""",
        "times a power": f"""{_VARIANCE} i = Pow(e, minus) n = Mul(d, i) s = Mul(n, gain)
            y = Add(s, shift)""",
        "divided by a power": f"""{_VARIANCE} r = Pow(e, half) n = Div(d, r) s = Mul(gain, n)
            y = Add(shift, s)""",
        "a sum over its number": f"""{_CENTRED} d2 = Mul(d, d) t = ReduceSum(d2, last)
            v = Div(t, width) e = Add(v, eps) r = Sqrt(e) n = Div(d, r) s = Mul(n, gain)
            y = Add(s, shift)""",
        "two means of sums": """a = ReduceSum(x, last) m = Mul(a, inverse) d = Sub(x, m)
            d2 = Mul(d, d) t = ReduceSum(d2, last) v = Mul(t, inverse) e = Add(v, eps) r = Sqrt(e)
            n = Div(d, r) s = Mul(n, gain) y = Add(s, shift)""",
        "the gain first": f"""{_VARIANCE} r = Sqrt(e) i = Reciprocal(r) g = Mul(i, gain)
            s = Mul(d, g) y = Add(s, shift)""",
        "moments apart, as TensorFlow has it": """m = ReduceMean(x, last) d = Sub(x, m)
            d2 = Mul(d, d) v = ReduceMean(d2, last) e = Add(v, eps) r = Sqrt(e) i = Reciprocal(r)
            g = Mul(i, gain) a = Mul(x, g) b = Mul(m, g) c = Sub(shift, b) y = Add(a, c)""",
        "the mean of squares less a square": """m = ReduceMean(x, last) x2 = Mul(x, x)
            q = ReduceMean(x2, last) m2 = Mul(m, m) v = Sub(q, m2) e = Add(v, eps) r = Sqrt(e)
            d = Sub(x, m) n = Div(d, r) s = Mul(n, gain) y = Add(s, shift)""",
        "without a shift": f"""{_VARIANCE} r = Sqrt(e) n = Div(d, r) y = Mul(n, gain)""",
        "moments of x, as Flax has it": """m = ReduceMean(x, last) x2 = Mul(x, x)
            q = ReduceMean(x2, last) m2 = Mul(m, m) v = Sub(q, m2) e = Add(v, eps) d = Sub(x, m)
            r = Sqrt(e) i = Reciprocal(r) g = Mul(i, gain) s = Mul(d, g) y = Add(s, shift)""",
        "moments of x apart, as Keras has it": """m = ReduceMean(x, last) x2 = Mul(x, x)
            q = ReduceMean(x2, last) m2 = Mul(m, m) v = Sub(q, m2) e = Add(v, eps) r = Sqrt(e)
            i = Reciprocal(r) g = Mul(i, gain) a = Mul(x, g) b = Mul(m, g) c = Sub(shift, b)
            y = Add(a, c)""",
        "the axis put back": """a = ReduceSum<keepdims = 0>(x, last) u = Unsqueeze(a, last)
            m = Div(u, width) d = Sub(x, m) d2 = Mul(d, d) b = ReduceSum<keepdims = 0>(d2, last)
            w = Unsqueeze(b, last) v = Div(w, width) e = Add(v, eps) r = Sqrt(e) n = Div(d, r)
            s = Mul(n, gain) y = Add(s, shift)""",
        "a variance that is kept above zero": """m = ReduceMean(x, last) x2 = Mul(x, x)
            q = ReduceMean(x2, last) m2 = Mul(m, m) v0 = Sub(q, m2) v = Relu(v0) e = Add(v, eps)
            d = Sub(x, m) r = Sqrt(e) n = Div(d, r) s = Mul(n, gain) y = Add(s, shift)""",
    },
    {
        "a variance that is kept above zero": "the prover does not know that a mean of squares is "
        "at least the square of the mean",
    },
)

RMS_NORMALIZATION = Composite(
    "normalization",
    "RMSNormalization",
    f"{TOKENS} x",
    f"{TOKENS} y",
    _MOMENTS,
    {
        "divided by a root": """x2 = Pow(x, two) v = ReduceMean(x2, last) e = Add(v, eps)
            r = Sqrt(e) n = Div(x, r) y = Mul(n, gain)""",
        "times a reciprocal": """x2 = Pow(x, two) v = ReduceMean(x2, last) e = Add(v, eps)
            r = Sqrt(e) i = Reciprocal(r) n = Mul(x, i) y = Mul(gain, n)""",
        "one over a root": """x2 = Mul(x, x) v = ReduceMean(x2, last) e = Add(eps, v)
            r = Sqrt(e) i = Div(one, r) n = Mul(x, i) y = Mul(n, gain)""",
        "times a power": """x2 = Mul(x, x) v = ReduceMean(x2, last) e = Add(v, eps)
            i = Pow(e, minus) n = Mul(x, i) y = Mul(n, gain)""",
        "a sum over its number": """x2 = Mul(x, x) t = ReduceSum(x2, last) v = Div(t, width)
            e = Add(v, eps) r = Sqrt(e) n = Div(x, r) y = Mul(n, gain)""",
        "a sum of squares": """t = ReduceSumSquare(x, last) v = Mul(t, inverse)
            e = Add(v, eps) r = Sqrt(e) n = Div(x, r) y = Mul(n, gain)""",
        "the gain first": """x2 = Pow(x, two) v = ReduceMean(x2, last) e = Add(v, eps)
            r = Sqrt(e) g = Div(gain, r) y = Mul(x, g)""",
        "the gain on the tensor": """x2 = Pow(x, two) v = ReduceMean(x2, last) e = Add(v, eps)
            r = Sqrt(e) i = Reciprocal(r) g = Mul(x, gain) y = Mul(g, i)""",
        "divided by a power": """x2 = Mul(x, x) v = ReduceMean(x2, last) e = Add(v, eps)
            r = Pow(e, half) n = Div(x, r) y = Mul(n, gain)""",
        "without a gain": """x2 = Pow(x, two) v = ReduceMean(x2, last) e = Add(v, eps)
            r = Sqrt(e) y = Div(x, r)""",
        "the axis put back": """x2 = Mul(x, x) a = ReduceSum<keepdims = 0>(x2, last)
            u = Unsqueeze(a, last) v = Div(u, width) e = Add(v, eps) r = Sqrt(e) n = Div(x, r)
            y = Mul(n, gain)""",
    },
    {},
)

_GELU = _scalars(
    two=2.0, half=0.5, one=1.0, three=3.0, root=math.sqrt(2), over=1 / math.sqrt(2),
    cubic=0.044715, scale=math.sqrt(2 / math.pi), double=2 * math.sqrt(2 / math.pi),
    inner=0.044715 * math.sqrt(2 / math.pi),
)  # fmt: skip
GELU = Composite(
    "activation",
    "Gelu",
    f"{TOKENS} x",
    f"{TOKENS} y",
    _GELU,
    {
        "half at the end": """a = Div(x, root) e = Erf(a) s = Add(e, one) p = Mul(x, s)
            y = Mul(p, half)""",
        "half first": "a = Div(x, root) e = Erf(a) s = Add(e, one) h = Mul(x, half) y = Mul(h, s)",
        "half inside": "a = Div(x, root) e = Erf(a) s = Add(one, e) h = Mul(half, s) y = Mul(x, h)",
        "times a reciprocal": """a = Mul(x, over) e = Erf(a) s = Add(e, one) p = Mul(x, s)
            y = Mul(p, half)""",
        "times a reciprocal, half first": """a = Mul(x, over) e = Erf(a) s = Add(one, e)
            h = Mul(half, x) y = Mul(h, s)""",
        "divided by two": """r = Sqrt(two) a = Div(x, r) e = Erf(a) s = Add(e, one) p = Mul(x, s)
            y = Div(p, two)""",
        "as a sum": "a = Mul(x, over) e = Erf(a) h = Mul(x, half) p = Mul(h, e) y = Add(h, p)",
        "by tanh": """c = Pow(x, three) k = Mul(c, cubic) l = Add(x, k) a = Mul(l, scale)
            t = Tanh(a) s = Add(t, one) h = Mul(x, half) y = Mul(h, s)""",
        "by tanh, a cube of products": """q = Mul(x, x) c = Mul(q, x) k = Mul(cubic, c)
            l = Add(x, k) a = Mul(scale, l) t = Tanh(a) s = Add(one, t) p = Mul(x, s)
            y = Mul(half, p)""",
        "by tanh, factored": """q = Mul(x, x) k = Mul(q, cubic) l = Add(k, one) f = Mul(x, l)
            a = Mul(f, scale) t = Tanh(a) s = Add(t, one) h = Mul(s, half) y = Mul(x, h)""",
        "by tanh, factored to the end": """q = Mul(x, x) k = Mul(q, inner) l = Add(k, scale)
            a = Mul(x, l) t = Tanh(a) s = Add(t, one) h = Mul(x, half) y = Mul(h, s)""",
        "by the complement": """g = Neg(x) a = Mul(g, over) e = Erf(a) s = Sub(one, e)
            h = Mul(x, half) y = Mul(h, s)""",
        "by tanh, a slope first": """w = Mul(x, scale) k = Mul(x, cubic) q = Mul(k, x)
            l = Add(q, one) a = Mul(w, l) t = Tanh(a) s = Add(t, one) h = Mul(x, half)
            y = Mul(h, s)""",
        "by tanh, three products": """k = Mul(x, cubic) q = Mul(k, x) c = Mul(q, x) l = Add(x, c)
            a = Mul(l, scale) t = Tanh(a) s = Add(t, one) h = Mul(x, half) y = Mul(h, s)""",
        "by tanh, half inside": """q = Mul(x, x) c = Mul(x, q) k = Mul(cubic, c) l = Add(x, k)
            a = Mul(scale, l) t = Tanh(a) s = Add(one, t) h = Mul(half, s) y = Mul(x, h)""",
        "by a sigmoid": """c = Pow(x, three) k = Mul(c, cubic) l = Add(x, k) a = Mul(l, double)
            t = Sigmoid(a) y = Mul(x, t)""",
    },
    {
        "by a sigmoid": "the direction is refused: 1 + tanh loses digits where a sigmoid has them",
    },
)

_SWISH = _scalars(one=1.0, half=0.5, alpha=1.702, two=2.0)
SWISH = Composite(
    "activation",
    "Swish",
    f"{TOKENS} x",
    f"{TOKENS} y",
    _SWISH,
    {
        "times a sigmoid": "s = Sigmoid(x) y = Mul(x, s)",
        "a sigmoid first": "s = Sigmoid(x) y = Mul(s, x)",
        "a sigmoid written out": """n = Neg(x) e = Exp(n) d = Add(one, e) s = Div(one, d)
            y = Mul(x, s)""",
        "divided": "n = Neg(x) e = Exp(n) d = Add(e, one) y = Div(x, d)",
        "by a reciprocal": "n = Neg(x) e = Exp(n) d = Add(e, one) s = Reciprocal(d) y = Mul(x, s)",
        "by tanh": "h = Mul(x, half) t = Tanh(h) s = Add(t, one) y = Mul(h, s)",
        "by tanh, half inside": """h = Mul(x, half) t = Tanh(h) s = Add(t, one) p = Mul(s, half)
            y = Mul(x, p)""",
        "a scaled one, as QuickGelu has it": "a = Mul(x, alpha) s = Sigmoid(a) y = Mul(x, s)",
    },
    {},
)

_HARD = _scalars(zero=0.0, one=1.0, three=3.0, six=6.0, half=0.5, sixth=1 / 6)
HARD_SWISH = Composite(
    "activation",
    "HardSwish",
    f"{TOKENS} x",
    f"{TOKENS} y",
    _HARD,
    {
        "times a gate, divided": """a = Add(x, three) c = Clip(a, zero, six) p = Mul(x, c)
            y = Div(p, six)""",
        "times a gate over six": """a = Add(x, three) c = Clip(a, zero, six) g = Div(c, six)
            y = Mul(x, g)""",
        "times a sixth": "a = Add(three, x) c = Clip(a, zero, six) g = Mul(c, sixth) y = Mul(g, x)",
        "a sixth at the end": """a = Add(x, three) c = Clip(a, zero, six) p = Mul(c, x)
            y = Mul(p, sixth)""",
        "by HardSigmoid": "s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(x, s)",
        "a line cut off": "l = Mul(x, sixth) a = Add(l, half) c = Clip(a, zero, one) y = Mul(x, c)",
        "by Min and Max": """a = Add(x, three) m = Max(a, zero) c = Min(m, six) p = Mul(x, c)
            y = Div(p, six)""",
        "by Relu and Min": """a = Add(x, three) m = Relu(a) c = Min(m, six) g = Mul(c, sixth)
            y = Mul(x, g)""",
    },
    {},
)

SOFTMAX = Composite(
    "softmax",
    "Softmax",
    f"{TOKENS} x",
    f"{TOKENS} y",
    "int64[1] last = {2}, " + _scalars(one=1.0),
    {
        "divided by a sum": "e = Exp(x) t = ReduceSum(e, last) y = Div(e, t)",
        "shifted by the maximum": """m = ReduceMax(x, last) d = Sub(x, m) e = Exp(d)
            t = ReduceSum(e, last) y = Div(e, t)""",
        "times a reciprocal": """m = ReduceMax(x, last) d = Sub(x, m) e = Exp(d)
            t = ReduceSum(e, last) i = Reciprocal(t) y = Mul(e, i)""",
        "one over the sum": """m = ReduceMax(x, last) d = Sub(x, m) e = Exp(d)
            t = ReduceSum(e, last) i = Div(one, t) y = Mul(i, e)""",
        "the power of a LogSoftmax": "l = LogSoftmax<axis = -1>(x) y = Exp(l)",
        "the axis put back": """m = ReduceMax<keepdims = 0>(x, last) u = Unsqueeze(m, last)
            d = Sub(x, u) e = Exp(d) a = ReduceSum<keepdims = 0>(e, last) t = Unsqueeze(a, last)
            y = Div(e, t)""",
        "by the logarithm of the sum": """l = ReduceLogSumExp(x, last) d = Sub(x, l)
            y = Exp(d)""",
    },
    {},
)

HEADS, HEAD = 3, 64
_ROWS = f"float[$N, $S, {HEADS * HEAD}]"
_SPLIT = " ".join(
    f"s{n} = Reshape({n}, split) h{n} = Transpose<perm = [0, 2, 1, 3]>(s{n})" for n in "qkv"
)
_KEYS = "kt = Transpose<perm = [0, 1, 3, 2]>(hk)"
_WEIGHTED = """p = Softmax<axis = -1>(w) o = MatMul(p, hv)
    t = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(t, flat)"""
ATTENTION = Composite(
    "attention",
    "Attention",
    f"{_ROWS} q, {_ROWS} k, {_ROWS} v, float[$N, 1, $S, $S] mask, bool[$N, 1, $S, $S] seen",
    f"{_ROWS} y",
    f"int64[4] split = {{0, 0, {HEADS}, {HEAD}}}, int64[3] flat = {{0, 0, {HEADS * HEAD}}}, "
    + _scalars(
        scale=HEAD**-0.5,
        root=HEAD**0.5,
        part=HEAD**-0.25,
        quarter=HEAD**0.25,
        never=-1e9,
        zero=0.0,
        least=-3.4028234663852886e38,
    ),
    {
        "scaled behind, by Mul": f"""{_SPLIT} {_KEYS} m = MatMul(hq, kt)
            w = Mul(m, scale) {_WEIGHTED}""",
        "scaled behind, by Div": f"""{_SPLIT} {_KEYS} m = MatMul(hq, kt)
            w = Div(m, root) {_WEIGHTED}""",
        "scaled before, queries": f"""{_SPLIT} {_KEYS} c = Mul(hq, scale)
            w = MatMul(c, kt) {_WEIGHTED}""",
        "scaled before, by Div": f"""{_SPLIT} {_KEYS} c = Div(hq, root)
            w = MatMul(c, kt) {_WEIGHTED}""",
        "scaled before, keys": f"{_SPLIT} {_KEYS} c = Mul(kt, scale) w = MatMul(hq, c) {_WEIGHTED}",
        "scaled rows": f"""c = Mul(q, scale) sq = Reshape(c, split)
            hq = Transpose<perm = [0, 2, 1, 3]>(sq) sk = Reshape(k, split)
            hk = Transpose<perm = [0, 2, 1, 3]>(sk) sv = Reshape(v, split)
            hv = Transpose<perm = [0, 2, 1, 3]>(sv) {_KEYS} w = MatMul(hq, kt) {_WEIGHTED}""",
        "scaled by parts": f"""{_SPLIT} {_KEYS} c = Mul(hq, part) b = Mul(kt, part)
            w = MatMul(c, b) {_WEIGHTED}""",
        "keys transposed at once": f"""sq = Reshape(q, split)
            hq = Transpose<perm = [0, 2, 1, 3]>(sq) sk = Reshape(k, split)
            kt = Transpose<perm = [0, 2, 3, 1]>(sk) sv = Reshape(v, split)
            hv = Transpose<perm = [0, 2, 1, 3]>(sv) m = MatMul(hq, kt) w = Mul(m, scale)
            {_WEIGHTED}""",
        "with a mask, scaled behind": f"""{_SPLIT} {_KEYS} m = MatMul(hq, kt) c = Div(m, root)
            w = Add(c, mask) {_WEIGHTED}""",
        "with a mask, scaled before": f"""{_SPLIT} {_KEYS} c = Mul(hq, scale) m = MatMul(c, kt)
            w = Add(mask, m) {_WEIGHTED}""",
        "a mask by Where": f"""{_SPLIT} {_KEYS} m = MatMul(hq, kt) c = Mul(m, scale)
            w = Where(seen, c, never) {_WEIGHTED}""",
        "a mask of the least float by Where": f"""{_SPLIT} {_KEYS} m = MatMul(hq, kt)
            c = Mul(m, scale) w = Where(seen, c, least) {_WEIGHTED}""",
        "a mask by Where, turned round": f"""{_SPLIT} {_KEYS} m = MatMul(hq, kt)
            c = Mul(m, scale) u = Not(seen) w = Where(u, least, c) {_WEIGHTED}""",
        "a mask made of Booleans": f"""{_SPLIT} {_KEYS} m = MatMul(hq, kt) c = Mul(m, scale)
            a = Where(seen, zero, least) w = Add(c, a) {_WEIGHTED}""",
        "not scaled": f"{_SPLIT} {_KEYS} w = MatMul(hq, kt) {_WEIGHTED}",
    },
    {
        "a mask by Where": "not equal over the reals, and beside -1e9 a score is not lost: nothing "
        "tells that scores are not as low",
    },
)

COMPOSITES = {
    "LayerNormalization": LAYER_NORMALIZATION,
    "RMSNormalization": RMS_NORMALIZATION,
    "Gelu": GELU,
    "Swish": SWISH,
    "HardSwish": HARD_SWISH,
    "Softmax": SOFTMAX,
    "Attention": ATTENTION,
}
