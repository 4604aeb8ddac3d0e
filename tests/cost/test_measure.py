"""Inputs, the measuring process and the timing of models against each other."""

import math
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from xflow.core.deadline import Deadline
from xflow.core.errors import ModelError, ProviderError, UsageError, WorkerError
from xflow.cost import measure
from xflow.cost.child import NO_TIME
from xflow.cost.comparison import CONFIDENCE, Comparison, Timing
from xflow.cost.measure import (
    ALONE,
    EARLY,
    FEW_ROUNDS,
    MIN_ROUNDS,
    Measurer,
    Setting,
    Target,
    check_provider,
)
from xflow.cost.profile import profiled
from xflow.cost.worker import Failed, Lost, Worker, from_wire, to_wire
from xflow.feeds.inputs import contradicted, default_shapes, load_proto, random_inputs
from xflow.pipeline.timing_verdict import is_settled

pytestmark = pytest.mark.own_process


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>\n' + text
    )


SMALL = model("g (float[4, 4] x) => (float[4, 4] y) { y = Tanh(x) }").SerializeToString()
LARGE = model(
    "g (float[4, 4] x) => (float[4, 4] z) {"
    " s = Constant<value_ints = [512, 512]>() e = Constant<value_float = 0.5>()"
    " w = Expand(e, s) a = MatMul(w, w) b = ReduceSum<keepdims = 0>(a)"
    " c = ReduceSum<keepdims = 0>(x) d = Mul(b, c) f = Tanh(d) z = Add(x, f) }"
).SerializeToString()
# Counts to 2^62.
ENDLESS = model(
    "g (float[4, 4] x) => (float[4, 4] y) {"
    " n = Constant<value_int = 4611686018427387904>() t = Cast<to = 9>(n)"
    " y = Loop(n, t, x) <body = b (int64 i, bool c, float[4, 4] v)"
    " => (bool d, float[4, 4] u) { d = Identity(c) u = Tanh(v) }> }"
).SerializeToString()
HUGE = model(
    "g (float[4, 4] x) => (float y) {"
    " s = Constant<value_ints = [1000000, 1000000]>() e = ReduceMean<keepdims = 0>(x)"
    " w = Expand(e, s) y = ReduceSum<keepdims = 0>(w) }"
).SerializeToString()


@pytest.fixture(scope="module")
def measurer() -> Iterator[Measurer]:
    with Measurer(Target("cpu", 1)) as measurer:
        yield measurer


class TestInputs:
    def test_they_depend_on_the_seed_and_the_name_only(self) -> None:
        both = model("g (float[3, 5] a, float[3, 5] b) => (float[3, 5] c) { c = Add(a, b) }")
        one = model("g (float[3, 5] b) => (float[3, 5] c) { c = Neg(b) }")
        first, again, other = (random_inputs(both, seed) for seed in (1, 1, 2))
        assert all(np.array_equal(first[name], again[name]) for name in "ab")
        assert not np.array_equal(first["a"], other["a"])
        assert not np.array_equal(first["a"], first["b"])
        assert np.array_equal(random_inputs(one, 1)["b"], first["b"])

    def test_indices_lie_in_the_table_however_they_get_there(self) -> None:
        text = model(
            "g (int64[B, S] ids, int32[4] rows, int64[6] shifted, int64[3, 2] nd, int64[8] hot)"
            " => (float[B, S, 3] a, float[4, 3] b, float[6, 3] c, float[3] d, float[8, 9] e)"
            " <float[7, 3] table, float[2, 3] both> {"
            " two = Constant<value_int = 2>() flat = Constant<value_ints = [-1]>()"
            " u = Unsqueeze(ids, flat) v = Squeeze(u, flat) a = Gather(table, v)"
            " w = Cast<to = 7>(rows) t = Transpose(table) b0 = Gather<axis = 1>(t, w)"
            " b = Transpose(b0) p = Add(shifted, two) c = Gather(table, p)"
            " d = GatherND(both, nd) k = Constant<value_ints = [9]>()"
            " on = Constant<value_floats = [0.0, 1.0]>() e = OneHot(hot, k, on) }"
        )
        for name, dims in (("table", (7, 3)), ("both", (2, 3))):
            table = np.zeros(dims, np.float32)
            text.graph.initializer.append(onnx.numpy_helper.from_array(table, name))
        values: dict[str, list[np.ndarray]] = {item.name: [] for item in text.graph.input}
        for seed in range(30):
            for name, array in random_inputs(text, seed).items():
                values[name].append(array)
        highest = {name: int(np.max(arrays)) for name, arrays in values.items()}
        assert highest == {"ids": 6, "rows": 6, "shifted": 4, "nd": 1, "hot": 8}
        assert all(np.min(arrays) == 0 for arrays in values.values())

    def test_an_index_inside_a_branch_and_a_function_is_found(self) -> None:
        inner = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 18, "f" : 1]>\n'
            "g (int64[4] i, int64[4] j, bool c) => (float[4] y, float[4] z)"
            " <float[5] t = {1.0, 2.0, 3.0, 4.0, 5.0}> {"
            " y = If(c) <then_branch = p () => (float[4] u) { u = Gather(t, i) },"
            " else_branch = q () => (float[4] v) { v = Gather(t, i) }> z = f.take(t, j) }\n"
            '<domain: "f", opset_import: ["" : 18]> take (a, b) => (o) { o = Gather(a, b) }'
        )
        for name in "ij":
            highest = max(random_inputs(inner, seed)[name].max() for seed in range(20))
            assert highest == 4

    def test_a_mask_is_mostly_ones_with_a_tail_of_zeros(self) -> None:
        text = model(
            "g (int64[B, S] attention_mask, bool[2, 8] some_mask, int64[B, S] m, int64[1] mask)"
            " => (int64[B, S] y, int64[B, S] z) { one = Constant<value_int = 1>()"
            " z = Sub(one, m) y = Identity(attention_mask) }"
        )
        for seed in range(5):
            values = random_inputs(text, seed)
            for name in ("attention_mask", "some_mask", "m"):
                for row in values[name]:
                    assert row[0] == 1
                    assert row.mean() >= 0.5
                    assert (np.diff(row.astype(int)) <= 0).all()
                    assert row[-1] == 0
            assert values["mask"].tolist() == [1]
        assert values["some_mask"].dtype == np.bool_

    def test_a_number_that_gives_a_ratio_or_an_extent_lies_in_its_range(self) -> None:
        text = model(
            "g (float[3] x, float ratio, float limit, float other) => (float[3] y, float[k] z) {"
            " y = Dropout(x, ratio) zero = Constant<value_float = 0.0>()"
            " one = Constant<value_float = 1.0>() z = Range(zero, limit, one) }"
        )
        values = random_inputs(text, 3)
        assert values["ratio"] == 0
        assert values["limit"] == 16
        assert values["other"] not in (0, 16)
        assert values["ratio"].dtype == np.float32

    def test_every_element_type_has_values(self) -> None:
        kinds = [
            "float", "double", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64",
            "uint64", "bool", "string", "complex64", "float8e4m3fn",
        ]  # fmt: skip
        for kind in kinds:
            one = model(f"g ({kind}[2, 3] x, {kind} s) => ({kind}[2, 3] y) {{ y = Identity(x) }}")
            values = random_inputs(one, 0)
            assert isinstance(values["s"], np.ndarray)
            assert (values["x"].shape, values["s"].shape) == ((2, 3), ())
            if kind != "string":
                wanted = onnx.helper.tensor_dtype_to_np_dtype(
                    one.graph.input[0].type.tensor_type.elem_type
                )
                assert values["x"].dtype == wanted
                assert from_wire(to_wire(values["x"])).tobytes() == values["x"].tobytes()

    def test_dynamic_sizes_are_the_same_wherever_they_have_the_same_name(self) -> None:
        text = model(
            "g (int64[batch, seq] a, float[batch, 4, past, 8] b, float[N, 3, H, W] image,"
            " float[seq] c) => (float[seq] y) { y = Neg(c) }"
        )
        text.graph.input.append(
            onnx.helper.make_tensor_value_info("d", 1, ["batch", "past + seq", None])
        )
        shapes = default_shapes(text)
        assert shapes == {
            "a": (1, 16),
            "b": (1, 4, 16, 8),
            "image": (1, 3, 224, 224),
            "c": (16,),
            "d": (1, 32, 16),
        }
        shapes = default_shapes(text, {"a": [2, 5], "b": (2, 4, 7, 8)})
        assert (shapes["c"], shapes["d"]) == ((5,), (2, 12, 16))
        other = default_shapes(text, {"a": [2, 5]}, variant=1)
        assert (other["a"], other["b"]) == ((2, 5), (2, 4, 24, 8))

    @pytest.mark.parametrize(
        ("shapes", "message"),
        [
            ({"z": [1]}, "no input 'z'"),
            ({"a": [1, 2, 3]}, "2 dimensions"),
            ({"a": [2, 4]}, "dimension 1 of input 'a' is 3 in the model, not 4"),
            ({"b": [-1]}, "cannot be -1"),
        ],
    )
    def test_shapes_that_contradict_the_model_are_an_error(
        self, shapes: dict[str, list[int]], message: str
    ) -> None:
        text = model("g (float[N, 3] a, float[N] b) => (float[N, 3] y) { y = Neg(a) }")
        with pytest.raises(UsageError, match=message):
            random_inputs(text, 0, shapes)

    def test_one_name_may_have_several_sizes(self) -> None:
        text = model("g (float[N, 3] a, float[N] b, float[N] c) => (float[N, 3] y) { y = Neg(a) }")
        shapes = {"a": (2, 3), "b": (5,)}
        assert default_shapes(text, shapes) == {**shapes, "c": (2,)}
        assert contradicted(text, shapes) == {"N"}
        assert contradicted(text, {"a": (2, 3), "b": (2,)}) == set()

    def test_what_is_no_name_ties_no_sizes(self) -> None:
        text = model("g (float[N, 3] a, float[N] b) => (float[N, 3] y) { y = Neg(a) }")
        for item in text.graph.input:
            item.type.tensor_type.shape.dim[0].dim_param = "?"
        assert default_shapes(text, {"a": (2, 3)}) == {"a": (2, 3), "b": (1,)}
        assert contradicted(text, {"a": (2, 3), "b": (5,)}) == set()

    def test_what_cannot_be_fed_is_an_error_and_defaults_are_not_fed(self) -> None:
        text = model(
            "g (float[2] a, float[2] w) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(a, w) }"
        )
        text.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [2]))
        assert list(random_inputs(text, 0)) == ["a"]
        text.graph.input.append(onnx.helper.make_tensor_sequence_value_info("s", 1, [3]))
        assert [each.shape for each in random_inputs(text, 0)["s"]] == [(3,), (3,)]
        del text.graph.input[-1]
        key, value = onnx.TensorProto.INT64, onnx.TypeProto()
        value.tensor_type.elem_type = onnx.TensorProto.FLOAT
        kind = onnx.helper.make_map_type_proto(key, value)
        text.graph.input.append(onnx.helper.make_value_info("m", kind))
        with pytest.raises(ModelError, match="'m' is a map"):
            random_inputs(text, 0)
        del text.graph.input[-1]
        text.graph.input.append(onnx.helper.make_tensor_value_info("h", 1, [2**31, 2**31]))
        with pytest.raises(ModelError, match="too large"):
            random_inputs(text, 0)
        del text.graph.input[-1]
        text.graph.input.append(onnx.helper.make_tensor_value_info("old", 1, [-1, 2]))
        assert random_inputs(text, 0)["old"].shape == (1, 2)
        del text.graph.input[-1]
        text.graph.input.append(onnx.helper.make_tensor_value_info("r", 1, None))
        with pytest.raises(ModelError, match="no declared rank"):
            random_inputs(text, 0)
        assert random_inputs(text, 0, {"r": [2, 2]})["r"].shape == (2, 2)


class TestTiming:
    def test_models_run_interleaved_with_one_sample_per_round(self, measurer: Measurer) -> None:
        small, large, again = measurer.time_together([SMALL, LARGE, SMALL], 0.3)
        assert isinstance(small, Timing)
        assert isinstance(large, Timing)
        assert isinstance(again, Timing)
        assert len(small.samples) == len(large.samples) == len(again.samples) >= 6
        assert small.minimum <= small.median
        assert small.spread >= 0

    def test_the_slower_model_is_recognised(self, measurer: Measurer) -> None:
        heavy = model(
            "g (float[4, 4] x) => (float[4, 4] z) { s = Constant<value_ints = [64, 64]>()"
            " t = Tile(x, s) a = MatMul(t, t) b = MatMul(a, t) m = ReduceMean<keepdims = 0>(b)"
            " z = Add(x, m) }"
        ).SerializeToString()
        result = measurer.compare(heavy, SMALL, 0.3)
        assert isinstance(result, Comparison)
        assert 1 < result.low <= result.ratio <= result.high

    def test_a_broken_model_costs_only_its_own_measurement(
        self, measurer: Measurer, tmp_path: Path
    ) -> None:
        unknown = model("g (float[4] x) => (float[4] y) { y = com.microsoft.Nope(x) }")
        # Is loaded, but fails in the run: 16 elements make no 3 x 3 matrix.
        misfit = model(
            "g (float[A, 4] x, int64[2] s) => (float[B, C] y) { t = Constant<value_int = 3>()"
            " n = Add(s, t) y = Reshape(x, n) }"
        ).SerializeToString()
        results = measurer.time_together(
            [
                b"no model",
                SMALL,
                unknown.SerializeToString(),
                tmp_path / "none.onnx",
                misfit,
                SMALL,
            ],
            0.1,
        )
        assert [type(result) for result in results] == [
            Failed, Timing, Failed, Failed, Failed, Timing,
        ]  # fmt: skip
        assert isinstance(measurer.compare(SMALL, b"no model", 0.1), Failed)

    def test_external_data_is_found_beside_the_file(
        self, measurer: Measurer, tmp_path: Path
    ) -> None:
        text = model("g (float[4, 4] x) => (float[4, 4] y) <float[4, 4] w> { y = Add(x, w) }")
        weights = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
        text.graph.initializer.append(weights)
        path = tmp_path / "folder" / "model.onnx"
        path.parent.mkdir()
        onnx.save(text, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        assert (path.parent / "w.bin").exists()
        (result,) = measurer.time_together([path], 0.05)
        assert isinstance(result, Timing)

    def test_a_hanging_model_hits_its_limit_and_the_others_are_timed(
        self, measurer: Measurer
    ) -> None:
        start = time.monotonic()
        results = measurer.time_together([SMALL, ENDLESS, LARGE], 0.1, deadline=Deadline.after(6))
        assert time.monotonic() - start < 12
        assert [type(result) for result in results] == [Timing, Lost, Timing]
        assert isinstance(results[1], Lost)
        assert "did not finish" in results[1].reason

    def test_a_crash_costs_only_the_model_at_work(self, measurer: Measurer) -> None:
        measurer.time_together([SMALL], 0.01)
        pid = measurer.worker.pid
        assert pid is not None
        timer = threading.Timer(1.0, os.kill, (pid, signal.SIGTERM))
        timer.start()
        results = measurer.time_together([SMALL, ENDLESS, SMALL], 0.1, deadline=Deadline.after(30))
        timer.join()
        assert [type(result) for result in results] == [Timing, Lost, Timing]
        assert measurer.worker.pid != pid

    @pytest.mark.skipif(
        platform.machine().lower() not in ("x86_64", "amd64"), reason="divides without a trap"
    )
    def test_a_model_that_aborts_the_process_costs_only_itself(self, measurer: Measurer) -> None:
        """The least integer over -1 has no result, and the processor raises a signal for it."""
        text = model(
            "g (int64[4] x) => (int64[4] y) <int64[4] least, int64[4] minus> {"
            " q = Div(least, minus) y = Add(x, q) }"
        )
        for name, number in (("least", -(2**63)), ("minus", -1)):
            values = np.full(4, number, np.int64)
            text.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        results = measurer.time_together([SMALL, text.SerializeToString(), SMALL], 0.1)
        assert [type(result) for result in results] == [Timing, Lost, Timing]
        assert isinstance(results[1], Lost)
        assert "SIGFPE" in results[1].reason

    def test_a_model_that_declares_another_output_than_it_gives_is_timed(
        self, measurer: Measurer
    ) -> None:
        """The runtime refuses to write into the output of the run before, which has two axes."""
        text = model("g (float[2, n, m] x) => (float[k] y) { r = Relu(x) y = Squeeze(r) }")
        (result,) = measurer.time_together([text.SerializeToString()], 0.05)
        assert isinstance(result, Timing)

    def test_an_accident_between_two_requests_is_noted(self, measurer: Measurer) -> None:
        measurer.time_together([SMALL], 0.01)
        process = measurer.worker._process
        assert process is not None
        process.kill()
        process.wait()
        (result,) = measurer.time_together([SMALL], 0.01)
        assert isinstance(result, Timing)
        assert "SIGKILL" in measurer.worker.accidents[-1]

    def test_nothing_runs_beyond_the_deadline(self) -> None:
        with Measurer(Target(), deadline=Deadline.after(-1)) as late:
            (result,) = late.time_together([SMALL], 10.0)
        assert result == Failed(NO_TIME)

    def test_a_lack_of_memory_costs_only_that_measurement(self) -> None:
        with Worker(memory_limit=2**31) as worker:
            results = Measurer(Target(), worker).time_together([HUGE, SMALL], 0.05)
        assert [type(result) for result in results] == [Failed, Timing]


def passes(
    ratio: float, count: int, *, rounds: int = 50, noise: float = 0.05, between: float = 0.0
) -> list[tuple[Timing, Timing]]:
    """Timings of two models, of which the second is `ratio` times as fast."""
    generator = np.random.default_rng(count)
    made = []
    for _ in range(count):
        session = ratio * np.exp(generator.normal(0, between))
        first, second = np.exp(generator.normal(0, noise, (2, rounds)))
        made.append((Timing(tuple(session * first)), Timing(tuple(second))))
    return made


class TestComparison:
    def test_the_ratio_is_inside_its_interval_and_repeatable(self) -> None:
        found = Comparison.over(passes(2.0, 4), 3)
        assert 1.9 < found.low < found.ratio < found.high < 2.1
        assert Comparison.over(passes(2.0, 4), 3) == found

    def test_more_passes_tell_more(self) -> None:
        few, many = (Comparison.over(passes(1.0, count, between=0.02)) for count in (4, 32))
        assert many.high - many.low < 0.6 * (few.high - few.low)

    def test_what_sessions_differ_by_is_no_gain(self) -> None:
        # Hardly any noise in a pass, but 2 % between sessions.
        found = Comparison.over(passes(1.0, 6, noise=0.001, between=0.02))
        assert found.low < 1 < found.high

    def test_who_looks_twice_has_to_see_more(self) -> None:
        once, twice = (Comparison.over(passes(1.0, 4), looks=looks) for looks in (1, 2))
        assert twice.low < once.low < once.high < twice.high

    def test_the_drift_of_the_machine_cancels_out(self) -> None:
        speeds = np.linspace(1, 3, 40)
        first, second = Timing(tuple(1.1 * speeds)), Timing(tuple(speeds))
        assert first.relative_to(second) == pytest.approx(1.1)
        found = Comparison.over([(first, second)])
        assert [found.low, found.high] == pytest.approx([1.1, 1.1])

    @pytest.mark.parametrize("hit", [(0.7, 0.2), (0.2, 0.7), (0.6, 0.6)])
    def test_who_was_disturbed_more_often_is_no_slower(self, hit: tuple[float, float]) -> None:
        generator = np.random.default_rng(7)
        first, second = (
            Timing(tuple(np.where(generator.random(24) < often, 2.0, 1.0) * taken))
            for often, taken in zip(hit, (1.0, 0.9), strict=True)
        )
        assert second.relative_to(first) == pytest.approx(0.9)

    def test_passes_go_on_while_it_is_undecided(self, monkeypatch: pytest.MonkeyPatch) -> None:
        orders = []

        def at_each(_: Measurer, order: tuple[bytes, bytes], *__: object, **___: object) -> object:
            orders.append(order)
            return [(Timing((1.0, 1.0)),), (Timing((1.0, 1.0)),)]

        monkeypatch.setattr(Measurer, "time_at_each", at_each)
        measurer = Measurer(Target())
        seen: list[int] = []

        def undecided(found: Comparison) -> bool:
            seen.append(found.passes)
            return found.passes < 5

        found = measurer.compare(b"a", b"b", 1.0, passes=3, undecided=undecided, extra_s=10.0)
        assert isinstance(found, Comparison)
        assert seen == [3, 9]
        assert found.passes == 9
        assert orders[:3] == [(b"a", b"b"), (b"b", b"a"), (b"a", b"b")]
        found = measurer.compare(b"a", b"b", 1.0, passes=5, undecided=undecided, extra_s=10.0)
        assert isinstance(found, Comparison)
        assert found.passes == 5

    def test_what_was_timed_counts_where_there_is_no_time_for_one_more_pass(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measurer = Measurer(Target())
        measurer.free_threads()  # the first time that takes a moment
        deadline = Deadline.after(0.05)
        left = [Timing((1.0, 1.0))] * 4

        def at_each(_: Measurer, order: tuple[bytes, bytes], *__: object, **___: object) -> object:
            if left:
                return [(left.pop(),), (left.pop(),)]
            time.sleep(deadline.left)
            return [Failed("ran out of time")] * 2

        monkeypatch.setattr(Measurer, "time_at_each", at_each)
        found = measurer.compare(b"a", b"b", 1.0, passes=4, deadline=deadline)
        assert isinstance(found, Comparison)
        assert found.passes == 2


class TestEarly:
    """A comparison ends early where each pass by itself shows the same."""

    @pytest.mark.parametrize(
        ("ratio", "expected"), [(1.2, 2), (0.8, 2), (1.02, 4), (1.0, 12), (0.98, 4)]
    )
    def test_what_each_of_two_passes_shows_needs_no_more(
        self, monkeypatch: pytest.MonkeyPatch, ratio: float, expected: int
    ) -> None:
        timed = passes(ratio, 12, noise=0.01 if ratio == 1.0 else 0.001)

        def at_each(_: Measurer, order: tuple[bytes, bytes], *__: object, **___: object) -> object:
            pair = timed.pop()
            return [(each,) for each in (pair if order[0] == b"a" else pair[::-1])]

        monkeypatch.setattr(Measurer, "time_at_each", at_each)
        found = Measurer(Target()).compare(
            b"a",
            b"b",
            1.0,
            settled=is_settled,
            undecided=lambda each: each.high - each.low > 0.001,
            extra_s=10.0,
        )
        assert isinstance(found, Comparison)
        assert found.passes == expected

    def test_a_setting_that_is_settled_is_not_timed_further(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counts: list[int] = []
        one, half = Timing((1.0,) * 6), Timing((0.5,) * 6)

        def at_each(
            _: Measurer, order: tuple[bytes, bytes], __: float, at: Sequence[Setting], **___: object
        ) -> object:
            counts.append(len(at))
            times = {b"a": (one, one), b"b": (half, one)}  # as fast at the second one
            return [times[each][-len(at) :] for each in order]

        monkeypatch.setattr(Measurer, "time_at_each", at_each)
        found = Measurer(Target()).compare_at_each(
            b"a", b"b", 1.0, [Setting(), Setting()], settled=is_settled
        )
        assert not isinstance(found, Failed)
        assert [each.passes for each in found] == [2, 4]
        assert counts == [2, 2, 1, 1]

    def test_passes_that_are_hopeless_are_not_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Measurer, "time_at_each", lambda *_, **__: [(Timing((1.0, 1.0)),)] * 2)
        asked: list[tuple[int, float]] = []

        def hopeless(found: Comparison, more: float) -> bool:
            asked.append((found.passes, more))
            return found.passes == 6

        found = Measurer(Target()).compare(
            b"a", b"b", 1.0, undecided=lambda _: True, hopeless=hopeless, extra_s=10.0
        )
        assert isinstance(found, Comparison)
        assert found.passes == 6
        assert asked == [(4, 3.0), (5, 12 / 5), (6, 2.0)]

    def test_one_pass_settles_nothing(self) -> None:
        (alone,) = [Comparison.over([each]) for each in passes(2.0, 1)]
        assert not is_settled([alone])
        assert is_settled([alone, alone])

    def test_passes_that_disagree_settle_nothing(self) -> None:
        faster, slower = (Comparison.over(passes(ratio, 1)) for ratio in (1.5, 0.5))
        assert not is_settled([faster, slower])
        assert not is_settled([faster, faster, Comparison.over(passes(1.02, 1))])

    @pytest.mark.parametrize("rounds", [FEW_ROUNDS, 5, MIN_ROUNDS, 7, 8, 9, 10, 12, 20, 100])
    def test_that_two_passes_show_what_is_not_so_is_paid_for(self, rounds: int) -> None:
        ((before, after),) = passes(1.0, 1, rounds=rounds)
        low = Comparison.over([(before, after)], confidence=ALONE).low
        ratios = np.divide(before.samples, after.samples)
        # It is above the true median only if no more of the runs are below that than below it.
        below = int((ratios < low).sum())
        chance = sum(math.comb(rounds, count) for count in range(below + 1)) / 2**rounds
        assert chance**2 < EARLY

    def test_the_look_that_is_early_is_paid_for(self) -> None:
        timed = passes(1.0, 4)
        usual, paid = (
            Comparison.over(timed, looks=2, confidence=each)
            for each in (CONFIDENCE, CONFIDENCE + EARLY)
        )
        assert paid.low <= usual.low < usual.high <= paid.high
        assert paid != usual

    @pytest.mark.parametrize(("long_s", "rounds"), [(60.0, 6), (0.0, 4)])
    def test_few_rounds_of_long_runs_suffice(
        self, measurer: Measurer, monkeypatch: pytest.MonkeyPatch, long_s: float, rounds: int
    ) -> None:
        monkeypatch.setattr(measure, "LONG_S", long_s)
        for timed in measurer.time_together([SMALL] * 2, 0.0, few_rounds=4):
            assert isinstance(timed, Timing)
            assert len(timed.samples) == rounds
        (timed,) = measurer.time_together([SMALL], 0.0)
        assert isinstance(timed, Timing)
        assert len(timed.samples) == MIN_ROUNDS


class TestSettings:
    MODEL = model("g (float[N, 16] x) => (float[N, 16] y) { y = Tanh(x) }").SerializeToString()

    def test_each_model_has_a_timing_for_each(self) -> None:
        settings = [Setting({"x": (1, 16)}), Setting({"x": (100_000, 16)})]
        with Measurer() as measurer:
            results = measurer.time_at_each([self.MODEL] * 2, 0.05, settings)
        for found in results:
            assert not isinstance(found, Failed)
            small, large = found
            assert large.minimum > small.minimum

    def test_a_model_that_fails_at_one_costs_only_itself(self) -> None:
        settings = [Setting({"x": (4, 16)}), Setting({"x": (3, 16)})]
        even = model(
            "g (float[N, 16] x) => (float[M, 32] y) {"
            " s = Constant<value_ints = [-1, 32]>() y = Reshape(x, s) }"
        ).SerializeToString()
        with Measurer() as measurer:
            bad, good = measurer.time_at_each([even, self.MODEL], 0.05, settings)
        assert isinstance(bad, Failed)
        assert "Reshape" in bad.reason
        assert not isinstance(good, Failed)
        assert len(good) == 2

    def test_only_undecided_settings_are_timed_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        timed: list[list[Mapping[str, Any]]] = []

        def at_each(
            _: Measurer, __: object, ___: float, settings: Sequence[Setting], **____: object
        ) -> object:
            timed.append([setting.shapes for setting in settings])
            return [(Timing((1.0, 1.0)),) * len(settings)] * 2

        monkeypatch.setattr(Measurer, "time_at_each", at_each)
        one, other = Setting({"x": (1,)}), Setting({"x": (2,)})
        asked: list[Comparison] = []

        def undecided(found: Comparison) -> bool:
            asked.append(found)
            return len(asked) == 2

        found = Measurer(Target()).compare_at_each(
            b"a", b"b", 1.0, [one, other], passes=2, undecided=undecided, extra_s=10.0
        )
        assert not isinstance(found, Failed)
        assert [each.passes for each in found] == [2, 6]
        assert timed == [[one.shapes, other.shapes]] * 2 + [[other.shapes]] * 4


class TestWorker:
    def test_it_is_reused_and_ends_when_closed(self) -> None:
        worker = Worker()
        with Measurer(Target(), worker) as measurer:
            measurer.time_together([SMALL], 0.01)
            process = worker._process
            measurer.time_together([SMALL], 0.01)
            assert worker._process is process
        assert process is not None
        assert process.poll() is None, "a shared worker outlives the measurer"
        worker.close()
        assert worker.pid is None
        assert process.poll() is not None

    def test_it_ends_in_the_middle_of_a_run_when_its_owner_is_gone(self) -> None:
        worker = Worker()
        request: dict[str, Any] = {
            "kind": "run", "model": ENDLESS, "options": Target().session_options(),
            "feeds": [{"x": np.zeros((4, 4), np.float32)}],
        }  # fmt: skip
        results: list[Any] = []
        limit = Deadline.after(60)
        asking = threading.Thread(target=lambda: results.append(worker.ask(request, limit)))
        worker.runtime_version  # noqa: B018 - starts the process
        asking.start()
        time.sleep(0.5)
        process = worker._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()  # what the end of the owner does
        asking.join(20)
        assert isinstance(results[0], Lost)
        assert "ended with status 0" in results[0].reason
        assert results[0].model == 1

    def test_a_missing_runtime_is_one_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.executable", "/no/such/python")
        with pytest.raises(WorkerError, match="cannot be started"):
            Worker().providers  # noqa: B018


class TestTarget:
    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(UsageError, match="unknown provider 'tpu'"):
            Target("tpu")
        with pytest.raises(UsageError, match="from 1 to 1024"):
            Target(threads=0)

    def test_factors_are_not_rounded_where_models_are_compared(self) -> None:
        served, compared = (Target("cuda").session_options(precise=each) for each in (False, True))
        assert served["provider_options"] == [{}, {}]
        assert compared["provider_options"] == [{"use_tf32": "0"}, {}]
        assert {**served, "provider_options": 0} == {**compared, "provider_options": 0}

    def test_a_provider_that_is_not_there_is_one_sentence(
        self, measurer: Measurer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Worker, "providers", ("CPUExecutionProvider",))
        with pytest.raises(ProviderError, match=r"has no CUDAExecutionProvider; .*: cpu$"):
            check_provider(Target("cuda"), measurer.worker)

    def test_a_provider_that_does_not_load_is_one_sentence(self, measurer: Measurer) -> None:
        try:
            check_provider(Target("cuda"), measurer.worker)
        except ProviderError as error:
            assert "CUDAExecutionProvider" in str(error)  # noqa: PT017 - some machines have one


def test_a_profile_has_the_seconds_of_one_run_by_kernel(measurer: Measurer) -> None:
    """Also of a model that a budget has hardly time for: two runs are all that it takes."""
    how = (measurer.target, measurer.worker, Setting())
    for seconds in (0.0, 0.1):
        deadline = Deadline.after(60.0)
        found = profiled(LARGE, *how, seconds=seconds, deadline=deadline)
        assert not isinstance(found, Failed)
        assert set(found) >= {"Tanh", "Add", "Mul"}
        assert all(spent > 0 for spent in found.values())
        assert list(found.values()) == sorted(found.values(), reverse=True)
    late = profiled(ENDLESS, *how, seconds=0.0, deadline=Deadline.after(1.0))
    assert isinstance(late, Failed)


def test_a_file_that_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    with pytest.raises(ModelError, match="cannot be read"):
        load_proto(path)
    path.write_bytes(b"hello")
    with pytest.raises(ModelError, match="not an ONNX model"):
        load_proto(path)
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="not an ONNX model"):
        load_proto(path)
