"""Models that are nearly the same are told apart, and right rewrites of networks are not refused.

Each pair of wrong ones was once called equal: random inputs of deviation 1 reach no bound at 8 and
hold no zero, and an absolute tolerance swallows what is small.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from xflow.cli import entry
from xflow.core.deadline import Deadline
from xflow.core.errors import ExitCode
from xflow.cost.worker import Worker
from xflow.validation.equivalence import CheckResult, check_equivalent

Check = Callable[..., CheckResult]
Weights = dict[str, Any]


def model(text: str, weights: Weights | None = None, opset: int = 18) -> bytes:
    """A model from its text, whose weights are arrays, or numbers for float32 ones."""
    head = f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
    made = onnx.parser.parse_model(head + text)
    for name, value in (weights or {}).items():
        array = np.float32(value) if isinstance(value, float) else np.asarray(value)
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return bytes(made.SerializeToString())


@pytest.fixture(scope="module")
def check() -> Iterator[Check]:
    """A check in one process for all tests."""
    with Worker() as worker:

        def run(before: bytes, after: bytes, **options: Any) -> CheckResult:
            return check_equivalent(before, after, worker=worker, **options)

        yield run


def normal(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape)
    return (scale * values).astype(np.float32)


def scaled(kind: str, factor: float) -> bytes:
    dtype = {"float": np.float32, "float16": np.float16, "double": np.float64}[kind]
    text = f"g ({kind}[4, 16] x) => ({kind}[4, 16] y) {{ y = Mul(x, c) }}"
    return model(text, {"c": np.asarray(factor, dtype)})


def linear(factor: float) -> bytes:
    text = "g (float[4, 16] x) => (float[4, 3] y) { y = MatMul(x, w) }"
    return model(text, {"w": normal(16, 3, scale=factor)})


def classes(count: int, scale: float, head: str = "Softmax(z)") -> bytes:
    text = f"g (float[1, 4] x) => (float[1, n] y) {{ z = MatMul(x, w) y = {head} }}"
    return model(text, {"w": normal(4, count, scale=scale)})


def integers(kind: str, body: str) -> bytes:
    return model(f"g ({kind}[6] n) => ({kind}[6] y) {{ y = {body} }}")


def clipped(body: str, **weights: Any) -> bytes:
    text = f"g (float[2, 16] x) => (float[2, 16] y) {{ {body} }}"
    return model(text, {"low": -8.0, "high": 8.0, **weights})


def divided(body: str, rows: str = "8, 4") -> bytes:
    text = f"g (float[{rows}] n, float[{rows}] d) => (float[{rows}] y) {{ {body} }}"
    return model(text, {"zero": 0.0, "least": 1e-6, "last": np.array([-1])})


def band(value: str, low: float, high: float) -> tuple[bytes, bytes]:
    """Models that differ where a value that is computed from x lies between two numbers."""
    text = "g (float[1, 16] x) => (float[n, m] y)"
    weights: Weights = {"w": normal(16, 16), "a": low, "b": high}
    inside = "c = Greater(q, a) d = Less(q, b) e = And(c, d) n = Neg(q) y = Where(e, n, q)"
    return (
        model(f"{text} {{ q = {value} {inside} }}", weights),
        model(f"{text} {{ y = {value} }}", weights),
    )


def tables() -> Iterator[bytes]:
    """Two tables of which one row is another."""
    table = normal(50_000, 4)
    for step in (0, 1):
        table[31337] += step
        text = "g (int64[1, 16] n) => (float[1, 16, 4] y) { y = Gather(e, n) }"
        yield model(text, {"e": table})


def sized(body: str) -> bytes:
    """A model that computes a size and a comparison of it, and `body` from these."""
    text = "g (float[N, 4] x) => (float[N, 4] y) { s = Shape<start = 0, end = 1>(x)"
    return model(f"{text} c = Greater(s, t) n = Neg(x) y = {body} }}", {"t": [512]})


def apart(text: str, **weights: Any) -> tuple[bytes, bytes]:
    """Models with two signs that cancel out in the place of "?(a)", and without."""
    made = [text.replace("?(a)", each) for each in ("Neg(m)", "Identity(a)")]
    one, other = (model(f"g {each}", {"s": 0.25, **weights}) for each in made)
    return one, other


BY_THE_RUNTIME = {
    "sums before a movement": apart(
        "(int32[6, 4] c) => (float[4, 6] y)"
        " { a = DequantizeLinear(c, s) m = Neg(a) b = ?(a) y = Transpose(b) }"
    ),
    "counts before a movement": apart(
        "(bool[N, 4] c) => (float[4, N] y) { k = Cast<to = 6>(c) n = CumSum(k, zero)"
        " a = DequantizeLinear(n, s) m = Neg(a) b = ?(a) y = Transpose(b) }",
        zero=np.array(0),
    ),
    "weights that become codes": apart(
        "(uint8[1, 3, 8, 8] c) => (uint8[1, 4, 6, 6] y) { a = DequantizeLinear(c, s, z)"
        " m = Neg(a) b = ?(a) v = Conv(b, w) y = QuantizeLinear(v, s, z) }",
        z=np.array(128, np.uint8),
        w=normal(4, 3, 3, 3, scale=0.1),
    ),
}
"""Models that the runtime serves otherwise: without its optimizations they are the same."""
WRONG = {
    "counts that are cut off": BY_THE_RUNTIME["counts before a movement"],
    "a row of a large table": tuple(tables()),
    "sizes above a constant": (sized("Where(c, n, x)"), sized("Identity(x)")),
    "a narrow band of sums": band("ReduceSum(x)", 7.7, 7.8),
    "a narrow band of products": band("MatMul(x, w)", 17.7, 17.8),
    "a narrow band in the other model": band("MatMul(x, w)", 17.7, 17.8)[::-1],
    "sign of a small factor": (scaled("float", 1e-6), scaled("float", -1e-6)),
    "sign of a small factor in float16": (scaled("float16", 1e-6), scaled("float16", -1e-6)),
    "sign of a small product": (linear(1e-7), linear(-1e-7)),
    "sign of the weights before a softmax": (classes(200_000, 0.05), classes(200_000, -0.05)),
    "sign of tiny weights before a softmax": (classes(20_000, 1e-4), classes(20_000, -1e-4)),
    "sign of the weights before an exponential": (
        classes(20_000, 0.01, "Softmax<axis = 0>(z)"),
        classes(20_000, -0.01, "Tanh(z)"),
    ),
    "square of an integer": (integers("int64", "Mul(n, n)"), integers("int64", "Identity(n)")),
    "square of a short integer": (integers("int32", "Mul(n, n)"), integers("int32", "Abs(n)")),
    "halves of integers": (
        model("g (int64[6] n) => (int64[6] y) { h = Div(n, t) y = Mul(h, t) }", {"t": [2]}),
        integers("int64", "Identity(n)"),
    ),
    "clip": (clipped("y = Clip(x, low, high)"), clipped("y = Identity(x)")),
    "clip by minimum and maximum": (
        clipped("a = Min(x, high) y = Max(a, low)"),
        clipped("y = Max(x, low)"),
    ),
    "clip behind a product": (
        clipped("a = MatMul(x, w) y = Clip(a, low, high)", w=normal(16, 16, scale=0.05)),
        clipped("y = MatMul(x, w)", w=normal(16, 16, scale=0.05)),
    ),
    "safe division": (
        divided("e = Equal(d, zero) q = Div(n, d) y = Where(e, zero, q)"),
        divided("y = Div(n, d)"),
    ),
    "division by at least something": (
        divided("a = Abs(d) m = Max(a, least) y = Div(n, m)"),
        divided("a = Abs(d) y = Div(n, a)"),
    ),
    "rows divided by their sums": (
        divided("s = ReduceSum(d, last) g = Greater(s, zero) q = Div(n, s) y = Where(g, q, zero)"),
        divided("s = ReduceSum(d, last) a = Abs(s) g = Greater(s, zero) q = Div(n, a)"
                " f = Cast<to = 1>(g) y = Mul(q, f)"),
    ),
}  # fmt: skip


class TestWrongOnes:
    @pytest.mark.parametrize("what", WRONG)
    def test_a_wrong_model_is_seen_by_the_check(self, what: str, check: Check) -> None:
        before, after = WRONG[what]
        found = check(before, after, refines=True, planted=False, empty=False)
        assert not found.ok, "and so it is by what is promised"
        assert found.culprit == ""
        assert "output 'y'" in found.reason

    @pytest.mark.parametrize("what", WRONG)
    def test_each_is_the_same_as_itself(self, what: str, check: Check) -> None:
        for one in WRONG[what]:
            assert check(one, one).ok

    @pytest.mark.parametrize("what", WRONG)
    def test_the_command_ends_with_its_exit_code(
        self, what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
        for path, data in zip((before, after), WRONG[what], strict=True):
            path.write_bytes(data)
        assert entry.main(["check", str(before), str(after)]) == ExitCode.DIFFERENT
        assert capfd.readouterr().err.count("\n") == 1

    @pytest.mark.parametrize("kind", ["file", "symbolic link", "hard link", "name with dots"])
    def test_the_row_is_seen_wherever_the_table_is_read_from(
        self, kind: str, check: Check, tmp_path: Path
    ) -> None:
        paths = tmp_path / "a.onnx", tmp_path / "b.onnx"
        for path, data in zip(paths, WRONG["a row of a large table"], strict=True):
            path.write_bytes(data)
        before, after = paths
        given = tmp_path / ("v1..2.onnx" if kind == "name with dots" else "given.onnx")
        if kind == "symbolic link":
            given.symlink_to(before)
        elif kind == "hard link":
            given.hardlink_to(before)
        else:
            before.rename(given)
        assert not check(given, after).ok

    def test_a_guard_that_is_added_is_seen_unless_that_is_promised(
        self, check: Check, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        after, before = WRONG["safe division"]
        assert not check(before, after).ok
        assert check(before, after, refines=True).ok
        paths = tmp_path / "a.onnx", tmp_path / "b.onnx"
        for path, data in zip(paths, (before, after), strict=True):
            path.write_bytes(data)
        assert entry.main(["check", *map(str, paths)]) == ExitCode.DIFFERENT
        assert "--promised" in capfd.readouterr().err
        assert entry.main(["check", *map(str, paths), "--promised"]) == ExitCode.OK


@pytest.mark.parametrize("what", BY_THE_RUNTIME)
def test_what_the_runtime_alone_makes_different_is_told(what: str, check: Check) -> None:
    found = check(*BY_THE_RUNTIME[what])
    assert not found.ok
    assert "without its optimizations they are the same to the bit" in found.reason


THRESHOLDS = [
    ("Less(x, c)", "LessOrEqual(x, c)"),
    ("LessOrEqual(x, c)", "Less(x, c)"),
    ("Equal(x, c)", "Greater(x, x)"),
]


@pytest.mark.parametrize(("before", "after"), THRESHOLDS)
@pytest.mark.parametrize("way", ["x = Identity(z)", "m = Sub(z, b) x = Mul(m, a)", "x = Sqrt(z)"])
def test_comparisons_that_differ_at_one_value_are_told_apart(
    before: str, after: str, way: str, check: Check
) -> None:
    texts = [f"g (float[32] z) => (bool[32] y) {{ {way} y = {body} }}" for body in (before, after)]
    weights: Weights = {"c": 20.0, "b": 3.0, "a": 4.0}
    found = check(*(model(text, weights) for text in texts), planted=False)
    assert not found.ok
    assert "constants" in found.reason


def scaler(mean: float, deviation: float) -> tuple[bytes, bytes]:
    """(x - mean) / deviation, and the same folded into a product and a sum."""
    text = "g (float[4, 8] x) => (float[4, 8] y)"
    apart = model(f"{text} {{ d = Sub(x, m) y = Div(d, s) }}", {"m": mean, "s": deviation})
    folded = model(
        f"{text} {{ d = Mul(x, f) y = Add(d, b) }}",
        {"f": 1 / deviation, "b": -mean / deviation},
    )
    return apart, folded


@pytest.mark.parametrize("way", [0.485, 0.229], ids=["image", "inverse"])
@pytest.mark.parametrize("moderate", [(0.485, 0.229), (127.5, 127.5), (2000.0, 5.0), (-3.0, 10.0)])
def test_a_scaler_with_moderate_constants_may_be_folded(
    moderate: tuple[float, float], way: float, check: Check
) -> None:
    pair = scaler(*moderate)
    found = check(*(pair if way == 0.485 else pair[::-1]))
    assert found.ok, found.reason


@pytest.mark.parametrize("large", [(5e6, 50.0), (1e5, 3.0), (-4e7, 1e3)])
def test_a_scaler_whose_differences_lose_their_digits_may_not(
    large: tuple[float, float], check: Check
) -> None:
    found = check(*scaler(*large))
    assert not found.ok
    assert "subtracted" in found.reason
    assert check(*scaler(*large)[::-1]).ok, "what is more exact is right"


def test_a_mean_of_each_channel_is_met_by_its_own_channel(check: Check) -> None:
    """The images have the channels last, and are put first before the mean is subtracted."""
    means = np.array([5e6, 1.0, -3.0], np.float32).reshape(1, 3, 1, 1)
    text = (
        "g (float[1, 8, 8, 3] x) => (float[1, 3, 8, 8] y) { t = Transpose<perm = [0, 3, 1, 2]>(x)"
    )
    apart = model(f"{text} d = Sub(t, m) y = Mul(d, s) }}", {"m": means, "s": 0.02})
    folded = model(f"{text} d = Mul(t, s) y = Add(d, b) }}", {"b": -0.02 * means, "s": 0.02})
    assert not check(apart, folded).ok


class TestNoNumbers:
    HEAD = "g (float[4, 8] x) => (float[4, 8] y)"

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("c = Less(x, six) y = Where(c, x, six)", "y = Min(x, six)"),
            ("e = Equal(x, x) y = Where(e, x, zero)", "y = Identity(x)"),
            ("n = IsNaN(x) y = Where(n, zero, x)", "y = Identity(x)"),
            ("y = Identity(x)", "m = ReduceMean(x, last) a = Sub(x, m) y = Add(a, m)"),
        ],
    )
    def test_a_planted_one_must_not_spread(self, before: str, after: str, check: Check) -> None:
        weights: Weights = {"six": 6.0, "zero": 0.0, "last": np.array([-1])}
        pair = [model(f"{self.HEAD} {{ {body} }}", weights) for body in (before, after)]
        found = check(*pair)
        assert not found.ok
        if "Mean" not in after:
            assert "NaN in only one" in found.reason
            assert check(*pair, planted=False).ok

    def test_where_the_input_model_gives_none_there_may_be_any(self, check: Check) -> None:
        """Sums and products of real numbers tell nothing about infinities."""
        weights: Weights = {"v": normal(8, 8), "w": normal(8, 8, seed=1)}
        before = "a = MatMul(x, v) b = MatMul(x, w) s = Add(a, b) y = Relu(s)"
        after = "m = Add(v, w) p = MatMul(x, m) y = Relu(p)"
        pair = (model(f"{self.HEAD} {{ {body} }}", weights) for body in (before, after))
        assert check(*pair).ok


class TestSizes:
    DYNAMIC = "g (float[N, 4] x) => (float[N, 4] y)"

    def test_a_model_that_is_another_for_one_row_or_none_is_told_apart(self, check: Check) -> None:
        before = model(f"{self.DYNAMIC} {{ y = Relu(x) }}")
        sliced = f"{self.DYNAMIC} {{ a = Slice(x, one, end, zero) b = Slice(x, zero, one, zero)"
        weights: Weights = {"one": [1], "zero": [0], "end": [2**31]}
        after = model(f"{sliced} c = Concat<axis = 0>(b, a) y = Relu(c) }}", weights)
        assert check(before, after).ok
        after = model(
            f"{self.DYNAMIC} {{ s = Shape(x) t = Max(s, least) p = Sub(t, s) z = Concat<axis = 0>"
            "(none, p) e = Pad(x, z) y = Relu(e) }",
            {"least": [1, 4], "none": [0, 0]},
        )
        found = check(before, after)
        assert found.reason.startswith("at no elements along 'N', output 'y' has shape [0, 4]")
        assert check(before, after, empty=False).ok

    def test_sizes_at_which_the_input_model_fails_are_left_out_and_counted(
        self, check: Check
    ) -> None:
        text = "g (float[N, 4] x) => (float[4] y) { y = Gather(x, first) }"
        found = check(*[model(text, {"first": 0})] * 2)
        assert found.ok
        assert found.left_out > 0

    def test_sizes_at_which_the_runtime_gives_another_rank_are_left_out(self, check: Check) -> None:
        """Its reductions over negative axes keep the axis where there is no element."""
        text = "g (float[N, 4] x) => (float[N] y) { y = ReduceSum<keepdims = 0>(x, axes) }"
        before, after = (model(text, {"axes": [axis]}) for axis in (-1, 1))
        found = check(before, after)
        assert found.ok, found.reason
        assert found.left_out > 0
        assert not check(
            after, model(text.replace("keepdims = 0", "keepdims = 1"), {"axes": [1]})
        ).ok

    def test_sizes_at_which_the_runtime_gives_another_size_are_left_out(self, check: Check) -> None:
        """The same reductions keep the extent of the axis where it should be 1."""
        text = "g (float[N, 4] x) => (float[N, 1] y) { y = ReduceMean<axes = [AXIS]>(x) }"
        before, after = (model(text.replace("AXIS", axis), opset=13) for axis in ("-1", "1"))
        found = check(before, after)
        assert found.ok, found.reason
        assert found.left_out > 0
        assert not check(after, model("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }")).ok


class TestRightOnes:
    """Networks and what becomes of them by rewrites that are right but for rounding."""

    def test_normalizations_of_a_deep_network_may_be_folded_into_its_convolutions(
        self, check: Check
    ) -> None:
        apart, folded, wrong = [], [], []
        weights: Weights = {}
        for n in range(10):
            kernel = normal(8, 8, 3, 3, scale=0.17, seed=n)
            gamma, beta, mean = (normal(8, seed=100 * k + n) for k in (1, 2, 3))
            var = np.abs(normal(8, seed=400 + n)) + np.float32(0.5)
            factor = gamma.astype(np.float64) / np.sqrt(var.astype(np.float64) + 1e-5)
            bias = beta - mean * factor
            weights |= {
                f"k{n}": kernel, f"g{n}": gamma, f"b{n}": beta, f"m{n}": mean, f"v{n}": var,
                f"f{n}": (kernel * factor[:, None, None, None]).astype(np.float32),
                f"c{n}": bias.astype(np.float32),
                f"e{n}": (bias * (1 + 0.01 * (n == 4))).astype(np.float32),
            }  # fmt: skip
            conv = "Conv<pads = [1, 1, 1, 1]>"
            relu = f"x{n + 1} = Relu(n{n})"
            apart.append(f"a{n} = {conv}(x{n}, k{n}) n{n} = BatchNormalization"
                         f"(a{n}, g{n}, b{n}, m{n}, v{n}) {relu}")  # fmt: skip
            folded.append(f"n{n} = {conv}(x{n}, f{n}, c{n}) {relu}")
            wrong.append(f"n{n} = {conv}(x{n}, f{n}, e{n}) {relu}")
        texts = [
            f"g (float[1, 8, 12, 12] x0) => (float[1, 8, 12, 12] x10) {{ {' '.join(each)} }}"
            for each in (apart, folded, wrong)
        ]
        before, after, other = (model(text, weights) for text in texts)
        found = check(before, after)
        assert found.ok, found.reason
        assert found.max_rel > 1e-7, "the models round differently"
        assert found.yardstick == "float64"
        assert found.noise is not None
        assert 0 < found.noise < 1e-3
        assert not check(before, other).ok, "one bias of a hundred is one per cent off"

    def test_an_attention_may_become_one_operator(self, check: Check) -> None:
        text = "g (float[1, 2, 16, 8] q, float[1, 2, 16, 8] k, float[1, 2, 16, 8] v)"
        head = f"{text} => (float[1, 2, 16, 8] y)"
        spelled = (
            f"{head} {{ t = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, t) m = Mul(s, c)"
            " w = Softmax<axis = -1>(m) y = MatMul(w, v) }"
        )
        fused = f"{head} {{ y = Attention(q, k, v) }}"
        pair = [model(each, {"c": 8**-0.5}, opset=23) for each in (spelled, fused)]
        assert check(*pair).ok
        wrong = model(spelled, {"c": 8**0.5}, opset=23)
        assert not check(pair[0], wrong).ok

    def test_half_precision_may_be_rounded_in_another_order(self, check: Check) -> None:
        def network(scale: float, factor: float) -> bytes:
            body, weights = [], {}
            for n in range(3):
                body.append(f"a{n} = MatMul(x{n}, w{n}) b{n} = Mul(a{n}, c) x{n + 1} = Tanh(b{n})")
                weights[f"w{n}"] = normal(64, 64, scale=scale, seed=n).astype(np.float16)
            weights["c"] = np.asarray(factor, np.float16)
            text = f"g (float16[4, 64] x0) => (float16[4, 64] x3) {{ {' '.join(body)} }}"
            return model(text, weights)

        before, after = network(0.12, 0.9), network(0.12 * 0.9, 1.0)
        found = check(before, after)
        assert found.ok, found.reason
        assert found.max_rel > 1e-3, "that is more than the tolerance"
        assert not check(before, network(0.12 * 0.88, 1.0)).ok

    def test_what_the_runtime_does_to_quantized_models_is_not_ours(self, check: Check) -> None:
        """It makes integer operators of them, unless something is in the way."""
        body = (
            "q0 = QuantizeLinear(x, sx, zx) d0 = DequantizeLinear(q0, sx, zx)"
            " k = DequantizeLinear(w, sw, zw) a = MatMul(d0, k) BEHIND"
            " q1 = QuantizeLinear(b, sy, zx) d1 = DequantizeLinear(q1, sy, zx)"
            " l = DequantizeLinear(w, sw, zw) y = MatMul(d1, l)"
        )
        weights: Weights = {
            "w": np.random.default_rng(0).integers(-127, 128, (32, 32)).astype(np.int8),
            "sx": 0.03, "sw": 0.011, "sy": 0.21, "zx": np.uint8(128), "zw": np.int8(0),
            "least": -3e38,
        }  # fmt: skip
        head = "g (float[8, 32] x) => (float[8, 32] y)"
        before, after = (
            model(f"{head} {{ {body.replace('BEHIND', behind)} }}", weights)
            for behind in ("b = Identity(a)", "b = Max(a, least)")
        )
        found = check(before, after)
        assert found.ok, found.reason
        weights["sy"] = 0.22
        other = model(f"{head} {{ {body.replace('BEHIND', 'b = Identity(a)')} }}", weights)
        assert not check(before, other).ok


def test_the_error_of_the_input_model_is_reported(check: Check) -> None:
    text = "g (float[4, 64] x) => (float[4, 64] y) { a = MatMul(x, w) y = Softmax(a) }"
    one = model(text, {"w": normal(64, 64)})
    found = check(one, one)
    assert found.yardstick == "float64"
    assert found.noise is not None
    assert 1e-8 < found.noise < 1e-4


def test_inputs_on_which_nothing_is_finite_are_counted(check: Check) -> None:
    text = "g (float[4] x) => (float y) { y = ReduceSum<keepdims = 0>(x) }"
    found = check(*[model(text)] * 2)
    assert found.ok
    assert found.silent >= 3, "a NaN and both infinities"
    assert check(*[model(text)] * 2, planted=False).silent == 0


def test_integers_that_end_the_runtime_s_process_are_left_out(check: Check) -> None:
    """A division by zero, and that of the least integer by -1, raise a signal on many machines."""
    text = "g (int64[4] a, int64[4] b) => (int64[4] y) { c = Abs(b) d = Add(c, one) y = Div(a, d) }"
    found = check(*[model(text, {"one": [1]})] * 2)
    assert found.ok, found.reason
    assert found.edge_cases > 0


def test_edge_cases_may_be_left_out_and_take_part_of_the_time(check: Check) -> None:
    text = "g (float[4] x) => (float[4] y) { y = Relu(x) }"
    one = model(text)
    assert check(one, one, edge_cases=False).edge_cases == 0
    assert check(one, one).edge_cases > 20
    slow = model(
        "g (float[64, 64] x) => (float[64, 64] y) { n = Constant<value_int = 3000>()"
        " t = Constant<value_ints = [1]>() c = Cast<to = 9>(t) s = Squeeze(c)"
        " y = Loop(n, s, x) <body = b (int64 i, bool k, float[64, 64] v)"
        " => (bool l, float[64, 64] u) { l = Identity(k) p = MatMul(v, v) u = Softmax(p) }> }"
    )
    few = check(slow, slow, deadline=Deadline.after(5.0))
    assert few.ok, few.reason
    assert few.edge_cases < 20
