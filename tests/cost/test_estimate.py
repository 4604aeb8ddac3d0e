"""The estimate: what it calls cheaper has to be so on any machine."""

import pickle
from dataclasses import replace
from fractions import Fraction

import pytest
from graphs import call, tensor

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.graph import Graph
from xflow.core.node import Value, opaque
from xflow.core.size import symbol
from xflow.cost.estimate import EstimatedCost, Estimator, MeanEstimator
from xflow.cost.target import Layout, TargetModel

TARGET = TargetModel(fused_overhead=0.0)


def seconds(*outputs: Value) -> float:
    return Estimator(TARGET)(Graph(outputs))


X = tensor("x", 1, 32, 28, 28)
W = tensor("w", 32, 32, 3, 3, constant=True)
CONV = call("Conv", X, W, pads=(1, 1, 1, 1))
OTHER = call(
    "Conv",
    tensor("z", 1, 32, 28, 28),
    tensor("v", 32, 32, 3, 3, constant=True),
    pads=(1, 1, 1, 1),
)


def test_leaves_and_constant_expressions_cost_nothing() -> None:
    assert seconds(X) == 0
    assert seconds(call("Mul", W, W)) == 0
    assert seconds(call("Conv", X, call("Add", W, W), pads=(1, 1, 1, 1))) == seconds(CONV)


def test_activation_and_weights_fuse_into_the_convolution_before() -> None:
    scale = tensor("s", 32, 1, 1, constant=True)
    assert seconds(call("Relu", call("Add", call("Mul", CONV, scale), scale))) == seconds(CONV)
    parameters = [tensor(key, 32, constant=True) for key in "abcd"]
    normal = call("BatchNormalization", CONV, *parameters, epsilon=Fraction(1, 1000))
    assert seconds(normal) == seconds(CONV)


def test_one_sum_fuses_and_only_before_the_activation() -> None:
    once = call("Relu", call("Add", CONV, OTHER))
    assert seconds(once) == seconds(call("Add", CONV, OTHER)) < seconds(CONV, OTHER)
    assert seconds(call("Add", once, OTHER)) > seconds(once)
    assert seconds(call("Add", call("Add", CONV, OTHER), OTHER)) > seconds(once)


def test_sums_are_fused_in_the_layout_alone() -> None:
    """There alone they are taken together; what is read as it came is not in the layout."""
    both = Estimator(replace(TARGET, layout=None))
    assert both(Graph((call("Add", CONV, X),))) == both(Graph((CONV,)))
    assert seconds(call("Add", CONV, X)) > seconds(CONV)
    assert seconds(call("LeakyRelu", call("Add", CONV, OTHER))) > seconds(call("Add", CONV, OTHER))


def test_what_others_read_too_is_not_fused() -> None:
    assert seconds(call("Relu", CONV), CONV) > seconds(CONV)
    assert seconds(call("Relu", CONV), call("Tanh", CONV)) > seconds(CONV)


def test_sum_that_enlarges_is_not_fused() -> None:
    batch = tensor("b", 4, 32, 28, 28)
    assert seconds(call("Add", CONV, batch)) > seconds(CONV)


def test_views_are_nearly_free() -> None:
    view = seconds(call("Reshape", X, shape=(1, 32, 784)))
    assert 0 < view < seconds(call("Relu", X)) / 2


def test_cost_is_that_of_the_nodes_each_once() -> None:
    both = seconds(call("MatMul", CONV, OTHER))
    assert both == pytest.approx(
        seconds(CONV) + seconds(OTHER) + Estimator(TARGET).node(call("MatMul", CONV, OTHER).node)
    )
    assert seconds(call("Div", CONV, CONV)) < 2 * seconds(CONV)


def test_thin_groups_are_slower_than_their_arithmetic() -> None:
    thin = call("Conv", X, tensor("d", 32, 1, 3, 3, constant=True), pads=(1, 1, 1, 1), group=32)
    assert seconds(thin) > seconds(CONV) / 32


def test_it_is_the_arithmetic_that_counts_and_not_how_many_channels_are_read() -> None:
    estimator = Estimator(replace(TARGET, overhead=0.0, cold_overhead=0.0))

    def each(channels: int, extent: int) -> float:
        x = tensor("x", 1, channels, 112 + extent - 1, 112 + extent - 1)
        w = tensor("w", 64, channels, extent, extent, constant=True)
        return estimator.node(call("Conv", x, w).node) / (channels * extent**2)

    assert each(3, 6) == pytest.approx(each(12, 3))


@pytest.mark.parametrize(("channels", "faster"), [(64, 1.0), (128, 2.0)])
def test_a_single_row_of_few_channels_is_for_one_thread(channels: int, faster: float) -> None:
    """In the layout a convolution is shared out by rows, and by four blocks of channels."""
    x = tensor("row", 1, channels, 1, 2**14)
    conv = call("Conv", x, tensor("v", channels, channels, 1, 5, constant=True))
    one, two = (
        Estimator(replace(TARGET, overhead=0.0, cold_overhead=0.0, threads=threads)).node(conv.node)
        for threads in (1, 2)
    )
    assert one / two == pytest.approx(faster)


@pytest.mark.parametrize(
    ("block", "inner", "outer", "computed"),
    [
        (16, 32, 24, 32 * 32),
        (16, 24, 32, 32 * 32),
        (8, 24, 24, 24 * 24),
        (8, 12, 4, 16 * 8),
        (16, 12, 16, 12 * 16),  # read as they are, and not in the layout
    ],
)
def test_whole_blocks_of_channels_are_computed(
    block: int, inner: int, outer: int, computed: int
) -> None:
    target = replace(TARGET, overhead=0.0, cold_overhead=0.0, layout=Layout(block=block))

    def each(inner: int, outer: int) -> float:
        x = tensor("x", 1, inner, 58, 58)
        w = tensor("w", outer, inner, 3, 3, constant=True)
        return Estimator(target).node(call("Conv", x, w).node)

    assert each(inner, outer) / each(32, 32) == pytest.approx(computed / 32**2)


def test_a_convolution_of_any_number_of_images_has_an_estimate() -> None:
    x = tensor("images", symbol("N"), 32, 28, 28)
    one = Estimator(TARGET, {"N": 1})(Graph((call("Conv", x, W, pads=(1, 1, 1, 1)),)))
    assert one == seconds(CONV)


def test_a_column_with_borders_takes_longer_than_a_row() -> None:
    """The runtime computes several pixels of a row at once."""

    def convolved(*image: int, pads: tuple[int, ...]) -> float:
        window = (3, 1) if image[-1] == 1 else (1, 3)
        weight = tensor("w", 128, 128, *window, constant=True)
        return seconds(call("Conv", tensor("x", 1, 128, *image), weight, pads=pads))

    column, row = convolved(200, 1, pads=(1, 0, 1, 0)), convolved(1, 200, pads=(0, 1, 0, 1))
    assert column > 1.3 * row
    # Without borders it takes all rows for one.
    none = (0, 0, 0, 0)
    assert convolved(200, 1, pads=none) <= convolved(1, 200, pads=none)


def test_convolutions_by_single_pixels_lose_nothing_outside_of_the_layout() -> None:
    pixels, window = (tensor(f"dynamic {k}", 20, 20, k, k) for k in (1, 3))
    x = tensor("x", 1, 20, 28, 28)
    estimator = Estimator(replace(TARGET, overhead=0.0, cold_overhead=0.0))
    pointwise = estimator.node(call("Conv", x, pixels).node)
    assert estimator.node(call("Conv", x, window, pads=(1, 1, 1, 1)).node) > 9 * pointwise


def test_symbolic_sizes_and_opaque_nodes_have_a_cost() -> None:
    free = tensor("f", symbol("batch"), 64)
    assert seconds(call("Relu", free)) > 0
    (value,) = opaque("Custom", [X], [X.type])
    assert seconds(value) > 0


def test_a_known_size_is_that_of_its_symbol() -> None:
    free = tensor("f", symbol("batch"), symbol("length"), 64)
    known = {"batch": 1, "length": 384}
    told = Estimator(TARGET, known)(Graph((call("Relu", free),)))
    assert told == seconds(call("Relu", tensor("x", 1, 384, 64)))
    assert Estimator(TARGET, {"length": 384})(Graph((call("Relu", free),))) > told


def test_estimated_cost_measures_nothing() -> None:
    cost = EstimatedCost(Estimator(TARGET))
    assert not cost.measures
    assert cost.measure([Graph((CONV,))], 1.0) == [None]
    assert cost.estimate(Graph((CONV,))) == seconds(CONV)


@pytest.mark.parametrize("name", ["Sum", "Max", "Min"])
def test_several_tensors_at_once_move_as_much_as_two_at_a_time(name: str) -> None:
    estimate = Estimator(replace(TARGET, overhead=0.0, cold_overhead=0.0))
    x, y, z = (tensor(key, 256, 256) for key in "xyz")
    pairs = call(name, call(name, x, y), z)
    assert estimate(Graph((call(name, x, y, z),))) == pytest.approx(estimate(Graph((pairs,))))


def test_a_product_is_no_cheaper_in_einstein_notation() -> None:
    x, w = tensor("x", 128, 768), tensor("w", 768, 768, constant=True)
    einsum = call("Einsum", x, w, equation="ij,jk->ik")
    assert seconds(einsum) >= seconds(call("MatMul", x, w))


def test_a_gate_that_is_enlarged_stays_in_the_layout() -> None:
    gate = call("GlobalAveragePool", CONV)
    kernel = tensor("k", CONV.shape[1], CONV.shape[1], 1, 1, constant=True)
    enlarged = call("Resize", gate, scales=(1, 1, *CONV.shape[2:]))
    plain, wide = (
        seconds(call("Conv", call("Mul", CONV, each), kernel)) for each in (gate, enlarged)
    )
    assert wide < plain


def test_heads_of_an_attention_are_shared_out_among_threads_and_one_head_is_not() -> None:
    def attended(heads: int) -> float:
        width = 1024 // heads
        query, key, value = (tensor(name, 1, heads, 512, width) for name in "qkv")
        return seconds(call("Attention", query, key, value, scale=Fraction(1)))

    assert attended(1) > 1.5 * attended(2)
    assert attended(3) > 1.2 * attended(4)


def test_a_softcap_of_many_scores_takes_longer_than_their_attention() -> None:
    """It is timed so: one hyperbolic tangent after the other. Of few scores it hardly counts."""

    def attended(queries: int, keys: int, name: str, **softcap: Fraction) -> float:
        query = tensor("q", 1, 8, queries, 64)
        others = [tensor(each, 1, 4, keys, 64) for each in "kv"]
        return seconds(call(name, query, *others, scale=Fraction(1), **softcap))

    def factor(queries: int, keys: int) -> float:
        capped = attended(queries, keys, "CappedAttention", softcap=Fraction(50))
        return capped / attended(queries, keys, "Attention")

    assert 3 < factor(128, 128) < 8
    assert factor(1, 512) < 3


def test_a_normalization_spelled_out_for_the_fusion_is_served_like_the_operator() -> None:
    def spelled(power: Value) -> Value:
        centred = call("Sub", row, call("ReduceMean", row, axes=(1,), keepdims=True))
        spread = call("ReduceMean", call("Pow", centred, power), axes=(1,), keepdims=True)
        deviation = call("Sqrt", call("Add", spread, tensor("epsilon", 1, constant=True)))
        return call("Add", call("Mul", call("Div", centred, deviation), scale), scale)

    row, scale = tensor("row", 16, 768), tensor("scale", 768, constant=True)
    whole = call("LayerNormalization", row, scale, scale, axis=1, epsilon=Fraction(1, 1000))
    served = Estimator().served
    fused = spelled(tensor("two", 1, constant=True))
    assert served(Graph((fused,))) == served(Graph((whole,)))
    assert served(Graph((spelled(tensor("power", 1)),))) != served(Graph((whole,)))
    assert served(Graph((fused, fused.node.inputs[0]))) != served(Graph((whole,)))


class TestSettings:
    """The estimate at several settings of the sizes."""

    X = tensor("x", symbol("N"), 64)
    WHOLE = Graph((call("Add", call("Exp", X), X),))
    PART = Graph((call("Exp", X),))
    SIZES = ({"N": 1}, {"N": 100000})

    def test_one_setting_has_the_estimate_of_its_sizes(self) -> None:
        alone = Estimator(TARGET, self.SIZES[1])
        same = MeanEstimator.over(TARGET, self.SIZES[1:], self.WHOLE)
        assert same(self.PART) == alone(self.PART)
        assert same.at_each(self.PART) == (alone(self.PART),)

    def test_all_settings_of_the_whole_count_alike(self) -> None:
        estimator = MeanEstimator.over(TARGET, self.SIZES, self.WHOLE)
        small, large = (Estimator(TARGET, sizes) for sizes in self.SIZES)
        assert estimator(self.WHOLE) == pytest.approx(small(self.WHOLE))
        shares = [each(self.PART) / each(self.WHOLE) for each in (small, large)]
        assert estimator(self.PART) / estimator(self.WHOLE) == pytest.approx(sum(shares) / 2)
        assert estimator.at_each(self.PART) == (small(self.PART), large(self.PART))

    def test_another_process_estimates_the_same(self) -> None:
        for count in (1, 2):
            estimator = MeanEstimator.over(TARGET, self.SIZES[:count], self.WHOLE)
            another = pickle.loads(pickle.dumps(estimator.anew()))()
            assert another(self.PART) == estimator(self.PART)
            assert another.at_each(self.PART) == estimator.at_each(self.PART)
