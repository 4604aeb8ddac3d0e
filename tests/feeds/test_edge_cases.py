"""Edge cases: what values they have, for which inputs, and that they suit any model."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from random_models import models

from xflow.feeds.edge_cases import EdgeCases, InputSet, other_sizes
from xflow.feeds.inputs import DEFAULT, Feeder, default_shapes, element, free_dimensions
from xflow.feeds.meetings import Meeting, meetings
from xflow.feeds.told_apart import compared_sizes, differing_indices


def model(text: str, **weights: object) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    for name, value in weights.items():
        array = np.asarray(value, np.float32 if isinstance(value, float) else None)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def drawn(one: onnx.ModelProto, seed: int = 0, *, planted: bool = True) -> list[InputSet]:
    feeder = Feeder.of(one, default_shapes(one))
    return list(EdgeCases(one, feeder, planted=planted).draw(seed))


def met(one: onnx.ModelProto, name: str = "x") -> list[Meeting]:
    return meetings(one, default_shapes(one), [name])[name]


PLAIN = model(
    "g (float[3, 16] x, float16[4, 8] h, bfloat16[8] b, int64[6] n, uint8[5] p, bool[4] c)"
    " => (float[3, 16] y) { y = Relu(x) }"
)


class TestDrawing:
    def test_they_depend_on_the_seed_alone(self) -> None:
        first, again, other = (drawn(PLAIN, seed) for seed in (1, 1, 2))
        assert [each.what for each in first] == [each.what for each in again]

        def same(one: list[InputSet], two: list[InputSet]) -> list[bool]:
            pairs = zip(one, two, strict=True)
            return [a.values["x"].tobytes() == b.values["x"].tobytes() for a, b in pairs]

        assert all(same(first, again))
        assert not all(same(first, other))

    def test_real_numbers_have_zeros_ties_and_all_magnitudes(self) -> None:
        for name, most in (("x", 1e6), ("h", 250.0), ("b", 1e6)):
            values = [each.values[name].astype(np.float64) for each in drawn(PLAIN, planted=False)]
            largest = [np.abs(each).max() for each in values]
            assert max(largest) > most
            assert min(size for size in largest if size > 0) < 1e-5
            assert any((each == 0).all() for each in values)
            rows = [each.reshape(-1, each.shape[-1]) for each in values]
            assert any(0 < (each == 0).all(1).sum() < len(each) for each in rows) or name == "b"
            assert any(len(np.unique(each)) <= 6 < each.size for each in values)
            assert all(np.isfinite(each).all() for each in values)
        offset = [each.values["x"] for each in drawn(PLAIN) if "small differences" in each.what]
        assert all(4e6 < each.min() < each.max() < 6e6 for each in offset)

    def test_numbers_that_are_none_are_planted_in_few_elements_where_asked_for(self) -> None:
        planted = [each for each in drawn(PLAIN) if each.planted]
        flat = np.concatenate([each.values["x"].reshape(-1) for each in planted])
        kinds = set(map(str, flat[~np.isfinite(flat)].tolist()))
        assert kinds == {"nan", "inf", "-inf"}
        for each in planted:
            assert 1 <= (~np.isfinite(each.values["x"])).sum() <= 3
        assert not any(each.planted for each in drawn(PLAIN, planted=False))

    def test_integers_are_small_and_of_the_whole_range(self) -> None:
        values = np.concatenate([each.values["n"] for each in drawn(PLAIN)])
        assert values.min() == -(2**63)
        assert values.max() == 2**63 - 1
        assert ((np.abs(values) <= 9) & (values < 0)).any()
        small = model("g (int32[4] n, float[n] x) => (float[m] y) { y = Expand(x, n) }")
        extents = np.concatenate([each.values["n"] for each in drawn(small)])
        assert set(extents.tolist()) <= {0, 1}, "what becomes a size stays small"

    def test_masks_are_all_ones_all_zeros_and_with_holes(self) -> None:
        text = "g (int64[2, 8] attention_mask, float[2, 8] x) => (float[2, 8] y) { y = Relu(x) }"
        masks = [each.values["attention_mask"] for each in drawn(model(text))]
        sums = {int(mask.sum()) for mask in masks}
        assert {0, 16} <= sums
        assert any((np.diff(mask, axis=1) > 0).any() for mask in masks)
        assert all(np.isin(mask, (0, 1)).all() for mask in masks)


class TestMeetings:
    def test_an_element_meets_what_it_is_held_against_through_moves_and_arithmetic(self) -> None:
        one = model(
            "g (float[1, 4, 4, 2] x) => (bool[1, 2, 16] y) { t = Transpose<perm = [0, 3, 1, 2]>(x)"
            " d = Sub(t, m) e = Div(d, s) f = Reshape(e, r) y = Greater(f, c) }",
            m=np.array([10, 20], np.float32).reshape(2, 1, 1),
            s=np.array([2, 4], np.float32).reshape(2, 1, 1),
            r=[1, 2, 16],
            c=3.0,
        )
        offset, threshold = met(one)
        assert (offset.centers[0, ..., 0] == 10).all()
        assert (offset.centers[0, ..., 1] == 20).all()
        assert offset.spread is not None
        assert np.allclose(offset.spread[0, 0, 0], [2, 4])
        assert np.allclose(threshold.centers[0, 1, 1], [16, 32])
        assert threshold.sharp

    @pytest.mark.parametrize(
        ("body", "centers", "sharp"),
        [
            ("y = Clip(x, c)", [5], False),
            ("y = Max(x, c)", [5], False),
            ("a = Exp(x) y = Min(a, c)", [np.log(5)], False),
            ("a = Sqrt(x) b = Less(a, c) y = Cast<to = 1>(b)", [0, 25], True),
            ("a = Neg(x) b = LessOrEqual(a, c) y = Cast<to = 1>(b)", [-5], True),
            ("a = Mul(x, x) b = Equal(a, c) y = Cast<to = 1>(b)", [np.sqrt(5)], True),
            ("y = Div(c, x)", [0], True),
            ("a = Mul(x, c) y = Floor(a)", [-0.4, -0.2, 0, 0.2, 0.4], True),
            ("a = Cast<to = 7>(x) y = Cast<to = 1>(a)", [-2, -1, 0, 1, 2], True),
            ("y = HardSigmoid<alpha = 0.5, beta = 0.25>(x)", [-0.5, 1.5], False),
        ],
    )
    def test_each_kind_of_constant_is_met(
        self, body: str, centers: list[float], sharp: bool
    ) -> None:
        one = model(f"g (float[2] x) => (float[2] y) {{ {body} }}", c=5.0)
        found = [each for each in met(one) if each.spread is None]
        assert sorted(float(each.centers[0]) for each in found) == pytest.approx(centers, rel=1e-6)
        assert all(each.sharp is sharp for each in found)

    def test_values_right_beside_a_threshold_are_drawn(self) -> None:
        text = "g (float[64] x) => (bool[64] y) { y = Less(x, c) }"
        (around, *_) = [each for each in drawn(model(text, c=7.0)) if "around" in each.what]
        seven = np.float32(7)
        for value in (
            seven,
            np.nextafter(seven, np.float32(8)),
            np.nextafter(seven, np.float32(6)),
        ):
            assert (around.values["x"] == value).any()

    def test_what_bends_and_does_not_leap_has_no_values_right_beside_it(self) -> None:
        """There, a result near zero consists of rounding."""
        text = "g (float[256] x) => (float[256] y) { d = Sub(x, c) y = Relu(d) }"
        for each in drawn(model(text, c=7.0), planted=False):
            if "constants" in each.what:
                apart = np.abs(each.values["x"].astype(np.float64) - 7)
                assert apart[apart > 0].min() > 1e-6 * 7

    def test_what_is_behind_a_product_or_unknown_is_not_met(self) -> None:
        text = (
            "g (float[2, 2] x, float[2, 2] w) => (float[2, 2] y) { a = MatMul(x, w) y = Max(a, c) }"
        )
        assert not meetings(model(text, c=5.0), {"x": (2, 2), "w": (2, 2)}, ["x"])


class TestSizes:
    def test_free_dimensions_become_one_odd_and_empty(self) -> None:
        text = "g (float[N, S, 4] x, int64[N, S] i, float[?, 8] z) => (float[N, S, 4] y)"
        one = model(f"{text.replace('?', 'M')} {{ y = Relu(x) }}")
        one.graph.input[2].type.tensor_type.shape.dim[0].ClearField("dim_param")
        assert free_dimensions(one) == ["N", "S", "z/0"]
        chosen = default_shapes(one)
        found = dict(other_sizes(one, {}, chosen, DEFAULT, empty=True))
        assert found["sizes of one"] == {"x": (1, 1, 4), "i": (1, 1), "z": (1, 8)}
        assert found["no elements along 'S'"] == {"x": (1, 0, 4), "i": (1, 0), "z": (1, 8)}
        assert found["no elements along 'z/0'"]["z"] == (0, 8)
        assert all(shapes != chosen for shapes in found.values())
        given = {"x": (5, 6, 4)}
        chosen = default_shapes(one, given)
        for _, shapes in other_sizes(one, given, chosen, DEFAULT, empty=True):
            assert shapes["x"] == (5, 6, 4)
            assert shapes["i"] == (5, 6)
        assert free_dimensions(one, {**given, "z": (1, 8)}) == []

    def test_lengths_differ_from_each_other_once(self) -> None:
        """Else a model could not be told from one that takes one length for another."""
        one = model("g (float[N, S, 4] x, float[N, K, 4] z) => (float[N, S, 4] y) { y = Relu(x) }")
        found = dict(other_sizes(one, {}, default_shapes(one), DEFAULT, empty=False))
        assert found["sizes that differ"] == {"x": (1, 19, 4), "z": (1, 22, 4)}
        found = dict(other_sizes(one, {"z": (1, 8, 4)}, default_shapes(one), DEFAULT, empty=False))
        assert "sizes that differ" not in found

    def test_sums_of_dimensions_follow_from_their_parts(self) -> None:
        one = model("g (float[N, P] a) => (float[N, P] y) { y = Neg(a) }")
        one.graph.input.append(onnx.helper.make_tensor_value_info("b", 1, ["N", "P + 1"]))
        for _, shapes in other_sizes(one, {}, default_shapes(one), DEFAULT, empty=True):
            assert shapes["b"][1] == shapes["a"][1] + 1


class TestToldApart:
    LOOKUP = "g (int64[1, 8] n) => (float[1, 8, 2] y) { y = Gather(e, n) }"

    def test_indices_take_turns_through_a_table(self) -> None:
        one = model(self.LOOKUP, e=np.zeros((504, 2), np.float32))
        sets = [each.values["n"] for each in drawn(one)]
        assert set(np.concatenate(sets).reshape(-1).tolist()) >= set(range(504))
        some = np.concatenate([each.reshape(-1) for each in sets[-10:]])
        assert len(set(some.tolist())) == len(some), "no row comes twice"

    def test_rows_that_differ_are_tried_first(self) -> None:
        table = np.arange(100_000, dtype=np.float32).reshape(-1, 2)
        other = table.copy()
        other[[7, 31337]] += 1
        one, two = (model(self.LOOKUP, e=each) for each in (table, other))
        shapes = default_shapes(one)
        here = Path(), Path()
        aimed = differing_indices((one, two), here, shapes, ["n"])
        assert aimed["n"].tolist() == [7, 31337]
        assert not differing_indices((one, one), here, shapes, ["n"])
        edge_cases = EdgeCases(one, Feeder.of(one, shapes), planted=False, aimed=aimed)
        first = next(iter(edge_cases.draw(0)))
        assert set(first.values["n"].reshape(-1).tolist()) == {7, 31337}

    def test_sizes_that_are_compared_are_tried_on_both_sides(self) -> None:
        one = model(
            "g (float[N, 4] x) => (float[N, 4] y) { s = Shape<start = 0, end = 1>(x)"
            " m = Mul(s, k) c = Greater(m, t) n = Neg(x) z = Add(n, w) y = Where(c, z, x) }",
            t=[512],
            k=[1],
            w=64.0,
        )
        assert compared_sizes(one) == [512]
        sizes = other_sizes(one, {}, default_shapes(one), DEFAULT, empty=False, compared=[512])
        assert {511, 512, 513} <= {shapes["x"][0] for _, shapes in sizes}


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(models(), st.integers(0, 2**32 - 1))
def test_they_suit_any_model(one: onnx.ModelProto, seed: int) -> None:
    shapes = default_shapes(one)
    feeder = Feeder.of(one, shapes)
    kinds = {item.name: element(item).type.tensor_type.elem_type for item in feeder.inputs}
    for each in EdgeCases(one, feeder, planted=True).draw(seed):
        assert each.values.keys() == kinds.keys()
        for name, value in each.values.items():
            for tensor in value if isinstance(value, list) else [value]:
                assert tensor.shape == shapes[name]
                wanted = onnx.helper.tensor_dtype_to_np_dtype(kinds[name])
                assert tensor.dtype in (wanted, object)


def test_short_floats_stay_in_their_range() -> None:
    one = model("g (float8e4m3fn[8] a, float8e5m2[8] b) => (float8e4m3fn[8] y) { y = Identity(a) }")
    for each in drawn(one, planted=False):
        assert each.values["a"].dtype == ml_dtypes.float8_e4m3fn
        assert np.isfinite(each.values["a"].astype(np.float32)).all()
