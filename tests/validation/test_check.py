"""The check of a rewritten model: equal ones pass, and nothing else does."""

import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from xflow.core.deadline import Deadline
from xflow.core.errors import ModelError, UsageError
from xflow.cost import child
from xflow.cost.measure import Target
from xflow.cost.worker import Lost, Worker, from_wire, to_wire
from xflow.feeds.edge_cases import InputSet
from xflow.onnx.files import data_files
from xflow.onnx.interface import check_interface
from xflow.validation import reference as reference_module
from xflow.validation.difference import difference
from xflow.validation.equivalence import CheckResult, check_equivalent
from xflow.validation.reference import Reference, Runner

Check = Callable[..., CheckResult]


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]>\n' + text)


@pytest.fixture(scope="module")
def check() -> Iterator[Check]:
    """Check two graphs, given as text, in one process."""
    with Worker() as worker:

        def run(before: str, after: str, **options: Any) -> CheckResult:
            sources = [model(text).SerializeToString() for text in (before, after)]
            return check_equivalent(*sources, worker=worker, **options)

        yield run


class TestEquivalence:
    def test_a_model_that_takes_long_is_compared_on_fewer_random_inputs_and_all_real_ones(
        self, check: Check, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reference_module, "NEEDED_PART", 0.0)
        before = "g (float[4] x) => (float[4] y) { y = Neg(x) }"
        wrong = "g (float[4] x) => (float[4] y) { y = Relu(x) }"
        result = check(before, before, samples=3, edge_cases=False)
        assert (result.ok, result.samples, result.late) == (True, 1, 2)
        real = [
            InputSet(f"real inputs {k}", {"x": np.full(4, k, np.float32)}, {"x": (4,)})
            for k in range(2)
        ]
        result = check(before, before, samples=3, edge_cases=False, inputs=real)
        assert (result.ok, result.given, result.samples, result.late) == (True, 2, 0, 3)
        assert not check(before, wrong, samples=3, edge_cases=False).ok

    def test_an_equal_model_passes_and_its_rounding_is_reported(self, check: Check) -> None:
        result = check(
            "g (float[8, 64] x, float[64, 8] w, float[64, 8] v) => (float[8, 8] y) {"
            " a = MatMul(x, w) b = MatMul(x, v) y = Add(a, b) }",
            "g (float[8, 64] x, float[64, 8] w, float[64, 8] v) => (float[8, 8] y) {"
            " a = Add(w, v) y = MatMul(x, a) }",
        )
        assert result.ok
        assert result.reason == ""
        assert 0 < result.max_rel < 1e-4
        assert 0 < result.max_abs < 1e-3
        assert result.samples == 3
        assert result.shapes["x"] == (8, 64)

    def test_the_same_seed_gives_the_same_result(self, check: Check) -> None:
        texts = (
            "g (float[64] x) => (float[64] y) { a = Exp(x) y = Mul(a, x) }",
            "g (float[64] x) => (float[64] y) { a = Tanh(x) y = Mul(a, x) }",
        )
        first, again, other = (check(*texts, seed=seed) for seed in (1, 1, 2))
        assert first == again
        assert first.max_abs != other.max_abs

    @pytest.mark.parametrize(
        ("before", "after", "reason"),
        [
            ("Relu(x)", "LeakyRelu<alpha = 0.01>(x)", "output 'y' differs by .* element"),
            ("Log(x)", "Identity(x)", "NaN in only one"),
            ("Identity(x)", "Log(x)", "NaN in only one"),
            ("Reciprocal(z)", "Identity(z)", "infinite in only one"),
        ],
    )
    def test_a_wrong_model_is_detected(
        self, check: Check, before: str, after: str, reason: str
    ) -> None:
        head = "g (float[4, 4] x) => (float[4, 4] y) { z = Sub(x, x) y ="
        result = check(f"{head} {before} }}", f"{head} {after} }}")
        assert not result.ok
        assert result.culprit == ""
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(result.reason)

    def test_integers_must_agree_exactly(self, check: Check) -> None:
        result = check(
            "g (float[100] x) => (int64 y) { y = ArgMax<keepdims = 0>(x) }",
            "g (float[100] x) => (int64 y) { y = ArgMin<keepdims = 0>(x) }",
            rtol=1e9,
            atol=1e9,
        )
        assert not result.ok
        assert "differs in 1 of 1 elements" in result.reason

    def test_another_shape_type_or_set_of_outputs_is_detected(self, check: Check) -> None:
        head = "g (float[2, 3] x) =>"
        before = f"{head} (float[A, B] y) {{ y = Relu(x) }}"
        result = check(before, f"{head} (float[A, B] y) {{ a = Relu(x) y = Transpose(a) }}")
        assert result.reason.startswith("output 'y' has shape [2, 3] before and [3, 2] after")
        result = check(before, f"{head} (double[A, B] y) {{ a = Relu(x) y = Cast<to = 11>(a) }}")
        assert result.reason.startswith("output 'y' has type float32 before and float64 after")
        result = check(before, f"{head} (float[A, B] z) {{ z = Relu(x) }}")
        assert result.reason == "only one of the models has the outputs y, z"

    def test_a_model_that_does_not_run_is_named(self, check: Check) -> None:
        good = "g (float[2] x) => (float[2] y) { y = Relu(x) }"
        bad = "g (float[2] x) => (float[2] y) { y = Nope(x) }"
        result = check(good, bad)
        assert (result.ok, result.culprit) == (False, "after")
        assert result.reason.startswith("the rewritten model does not run")
        result = check(bad, good)
        assert (result.ok, result.culprit) == (False, "before")

    def test_an_endless_model_fails_within_the_limit(self, check: Check) -> None:
        result = check(
            "g (float[2] x) => (float[2] y) { y = Identity(x) }",
            "g (float[2] x) => (float[2] y) {"
            " n = Constant<value_int = 4611686018427387904>() t = Cast<to = 9>(n)"
            " y = Loop(n, t, x) <body = b (int64 i, bool c, float[2] v)"
            " => (bool d, float[2] u) { d = Identity(c) u = Identity(v) }> }",
            deadline=Deadline.after(2.0),
        )
        assert (result.ok, result.culprit) == (False, "after")

    def test_random_models_are_told_from_wrong_ones(self, check: Check) -> None:
        result = check(
            "g (float[9] x) => (float[9] y) { r = RandomNormalLike(x) y = Add(x, r) }",
            "g (float[9] x) => (float[9] y) {"
            " a = Tanh(x) b = Atanh(a) r = RandomNormalLike(x) y = Add(b, r) }",
        )
        assert (result.ok, result.culprit) == (False, "before")
        assert "does not agree with itself" in result.reason

    def test_a_rewrite_that_holds_at_the_default_sizes_only_is_detected(self, check: Check) -> None:
        before = "g (float[N, S] x) => (float[A, B] y) { y = Relu(x) }"
        after = (
            "g (float[N, S] x) => (float[A, B] y) { s = Constant<value_ints = [1, 16]>()"
            " a = Relu(x) y = Reshape(a, s) }"
        )
        assert check(before, before).samples == 4
        result = check(before, after)
        assert not result.ok
        assert result.reason.startswith("at other sizes, the rewritten model does not run")
        assert check(after, before).ok, "the input model runs at these sizes only"
        assert check(before, after, shapes={"x": [1, 16]}).ok
        with pytest.raises(UsageError, match="no input 'q'"):
            check(before, after, shapes={"q": [1]})

    def test_a_rewrite_that_takes_one_length_for_another_is_detected(self, check: Check) -> None:
        head = "g (float[N, S] x, float[N, K] z) => (float[N] y) { i = Constant<value_int = 1>()"
        tail = "n = Cast<to = 1>(l) m = ReduceSum<keepdims = 0>(x, j) y = Div(m, n) }"
        j = "j = Constant<value_ints = [1]>()"
        before, after = (
            f"{head} {j} s = Shape({name}) l = Gather(s, i) {tail}" for name in ("x", "z")
        )
        assert check(before, before).ok
        result = check(before, after)
        assert not result.ok
        assert "sizes that differ" in result.reason

    def test_short_floats_strings_and_sequences_are_compared(self, check: Check) -> None:
        for kind in ("bfloat16", "float16", "string"):
            head = f"g ({kind}[2, 3] x) => ({kind}[A, B] y)"
            one = f"{head} {{ y = Identity(x) }}"
            two = f"{head} {{ s = Constant<value_ints = [3, 2]>() y = Reshape(x, s) }}"
            assert check(one, one).ok, kind
            assert not check(one, two).ok, kind
        head = "g (float[2, 3] x) => (seq(float[A, B]) y)"
        one = f"{head} {{ y = SequenceConstruct(x, x) }}"
        two = f"{head} {{ n = Neg(x) y = SequenceConstruct(x, n) }}"
        assert check(one, one).ok
        assert not check(one, two).ok

    def test_an_output_that_is_never_finite_is_named(self, check: Check) -> None:
        text = (
            "g (float[8] x) => (float[8] y, float[8] z) { y = Log(x) a = Sub(x, x) z = Div(a, a) }"
        )
        result = check(text, text)
        assert result.ok
        assert result.unchecked == {"z"}
        with pytest.raises(UsageError, match="at least 1"):
            check(text, text, samples=0)

    def test_a_model_without_inputs_is_compared(self, check: Check) -> None:
        one, two = (
            f"g () => (float[1] y) {{ a = Constant<value_floats = [{value}]>() y = Neg(a) }}"
            for value in (1.0, 2.0)
        )
        assert check(one, one).ok
        assert not check(one, two).ok

    def test_a_reference_saves_the_runs_of_the_input_model(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As while the guilty one of many rewrites is looked for."""
        before, after, wrong = (
            model(
                f"g (float[4] x) => (float[4] y) {{ a = Tanh(x) y = {each} }}"
            ).SerializeToString()
            for each in ("Add(a, a)", "Sum(a, a)", "Sub(a, a)")
        )
        asked: list[object] = []
        ask = Worker.ask

        def spy(worker: Worker, request: dict[str, Any], *rest: Any) -> Any:
            asked.append(request.get("model"))
            return ask(worker, request, *rest)

        monkeypatch.setattr(Worker, "ask", spy)
        reference = Reference(before)
        with Worker() as worker:
            checks = [
                check_equivalent(before, each, worker=worker, reference=reference)
                for each in (after, wrong, after)
            ]
        assert [each.ok for each in checks] == [True, False, True]
        assert asked.count(before) == 1
        assert asked.count(after) == 2

    def test_large_weights_are_held_once_and_the_files_of_a_reference_are_looked_up_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proto = model("g (float[4, 64] x) => (float[4, 64] y) { y = MatMul(x, w) }")
        weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
        before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
        for path in (before, after):
            copy = onnx.ModelProto.FromString(proto.SerializeToString())  # it is changed
            onnx.save(copy, path, save_as_external_data=True, location=f"{path.stem}.data")
        looked: list[Path] = []
        requests: list[dict[str, Any]] = []
        ask = Worker.ask

        def looking(path: Path) -> list[Path]:
            looked.append(path)
            return data_files(path)

        def asking(worker: Worker, request: dict[str, Any], *rest: Any) -> Any:
            requests.append(request)
            return ask(worker, request, *rest)

        monkeypatch.setattr(reference_module, "LARGE", 2**10)
        monkeypatch.setattr(reference_module, "data_files", looking)
        monkeypatch.setattr(Worker, "ask", asking)
        reference = Reference(before)
        with Worker() as worker:
            for _ in range(2):
                assert check_equivalent(before, after, worker=worker, reference=reference).ok
        assert looked.count(before) == 1
        compared = [request for request in requests if isinstance(request["model"], str)]
        assert [Path(request["model"]).stem for request in compared] == ["before", "after", "after"]
        for request in compared:
            assert request["options"]["entries"]["session.disable_prepacking"] == "1"
            assert request["mapped"] == [str(Path(request["model"]).with_suffix(".data"))]

    def test_bytes_that_are_no_model_are_an_error(self) -> None:
        with pytest.raises(ModelError):
            check_equivalent(b"hello", b"hello")


class TestDifference:
    def test_an_element_near_zero_is_judged_by_its_neighbours(self) -> None:
        before = np.array([1.0, -2.0, 1e-9, 3.0], np.float32)
        found = difference(before, before + np.float32(1e-6), 1e-4, 0)
        assert found.reason == ""
        assert found.max_rel < 1e-5

    def test_a_few_huge_elements_excuse_nothing(self) -> None:
        before = np.array([1.0, 2.0, 3.0, 4.0, -1e9, -1e9], np.float32)
        after = before.copy()
        after[1] += 1
        assert difference(before, after, 1e-3, 1e-5).reason

    def test_zeros_have_the_scale_of_the_absolute_tolerance(self) -> None:
        zeros = np.zeros(4, np.float32)
        assert difference(zeros, zeros + np.float32(9e-6), 1e-3, 1e-5).reason == ""
        found = difference(zeros, zeros + np.float32(1e-4), 1e-3, 1e-5)
        assert found.reason
        assert found.max_rel == pytest.approx(1e-2)

    def test_equal_infinities_and_nans_agree(self) -> None:
        values = np.array([np.inf, -np.inf, np.nan, 1.0])
        assert difference(values, values.copy(), 0, 0).reason == ""
        assert difference(values, -values, 1, 1).reason.startswith("is infinite")

    def test_an_output_may_err_by_roundings_of_its_type(self) -> None:
        values = np.array([1.0, 2.0, 3.0]).astype(ml_dtypes.bfloat16)
        after = (values.astype(np.float32) * (1 + 2**-6)).astype(ml_dtypes.bfloat16)
        assert difference(values, after, 1e-6, 0).reason == ""
        assert difference(values, -after, 1e-6, 0).reason

    def test_empty_and_scalar_outputs_are_compared(self) -> None:
        assert difference(np.zeros((0, 3)), np.zeros((0, 3)), 0, 0).reason == ""
        assert difference(np.array(1.0), np.array(1.5), 1e-3, 0).reason
        assert difference(None, np.array(1.0), 1e-3, 0).reason
        assert difference({"a": 1.0}, {"a": 2.0}, 1e-3, 0).reason
        assert difference([np.ones(2)], [np.ones(2), np.ones(2)], 0, 0).reason


class TestInterface:
    TEXT = "g (float[N, 4] x, int64[2] k) => (float[N, 4] y, float[M] z) { y = Relu(x) }"

    def test_an_unchanged_interface_passes_and_a_raised_opset_too(self) -> None:
        after = model(self.TEXT.replace("Relu", "Neg"))
        after.opset_import[0].version = 21
        after.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        assert check_interface(model(self.TEXT), after) is None

    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            ("float[N, 4] x, int64[2] k", "int64[2] k, float[N, 4] x", "inputs were 'x', 'k'"),
            ("float[N, 4] x", "float[B, 4] x", "input 'x' was .*N.* is now .*B"),
            ("int64[2] k", "int32[2] k", "input 'k'"),
            (", float[M] z", "", "outputs were 'y', 'z' and are now 'y'"),
            ("float[M] z", "float[2] z", "output 'z'"),
        ],
    )
    def test_a_changed_interface_is_said(self, old: str, new: str, reason: str) -> None:
        said = check_interface(model(self.TEXT), model(self.TEXT.replace(old, new)))
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(said)

    def test_lost_metadata_defaults_and_lowered_opsets_are_said(self) -> None:
        before, after = model(self.TEXT), model(self.TEXT)
        before.metadata_props.add(key="author", value="me")
        assert check_interface(before, after) == "the metadata 'author' changed"
        after.metadata_props.add(key="author", value="me")
        assert check_interface(before, after) is None
        after.opset_import[0].version = 17
        assert check_interface(before, after) == "the opset of ai.onnx was 18 and is now 17"
        after.opset_import[0].version = 18
        for each in (before, after):
            each.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(2), "w"))
        before.graph.input.append(onnx.helper.make_tensor_value_info("w", 11, [2]))
        assert check_interface(before, after) == "the optional inputs were 'w' and are now none"


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="divides without a trap"
)
def test_a_model_is_checked_at_sizes_at_which_it_runs_though_others_end_the_process() -> None:
    """It divides by zero at 24 and at 256, and reads an element that only longer inputs have."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch, n] x) => (float[batch] y, int64[] r)
        <int64 one = {1}, int64 a = {24}, int64 b = {256}, int64 last = {1000}> {
            shape = Shape(x) size = Gather(shape, one) c = Sub(size, a) d = Sub(size, b)
            e = Mul(c, d) r = Mod(size, e) y = Gather<axis=1>(x, last) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    result = check_equivalent(model, model, samples=2, seed=0)
    assert result.ok, result.reason


def test_a_run_that_would_end_too_late_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the other model has time for, too: not one that begins in time and ends late."""

    class Slow:
        def __init__(self, *_: object) -> None: ...

        def outputs(self, *_: object) -> dict[str, Any]:
            time.sleep(0.2)
            return {}

    monkeypatch.setattr(child, "Runner", Slow)
    request = {"model": "", "options": {}, "feeds": [{}] * 4, "needed": 4, "needed_s": 0.5}
    steps: Any = SimpleNamespace(at=lambda _: None)
    answers = child.run_each(None, steps, request)
    assert ["late" in each for each in answers] == [False, False, True, True]


class Crashing:
    """A measuring process that crashes on a set of inputs whose first element is negative."""

    def ask(self, request: dict[str, Any], *_: object) -> list[dict[str, Any]] | Lost:
        first = [from_wire(feeds["x"]).item(0) for feeds in request["feeds"]]
        crashes = [number for number, value in enumerate(first, 1) if value < 0]
        if crashes:
            return Lost("the measuring process crashed", crashes[0])
        return [{"outputs": {"y": to_wire(np.float32(value))}} for value in first]


@pytest.mark.parametrize(
    ("first", "given", "lost"),
    [
        ([0, 1, -2, 3], 1, [2]),  # a random set costs itself
        ([0, -1, -2, 3], 0, [1, 2]),
        ([0, -1, 2, 3], 2, None),  # a real one is to be compared
        ([-1, 1, 2, 3], 0, None),  # with the first one, other sizes may be
        ([0, -1, 2, 3], None, None),
    ],
)
def test_random_inputs_that_crash_the_runtime_are_left_out(
    first: list[int], given: int | None, lost: list[int] | None
) -> None:
    sets = [InputSet("", {"x": np.full(1, value, np.float32)}, {"x": (1,)}) for value in first]
    worker: Any = Crashing()
    source = model("g (float[1] x) => (float[1] y) { y = Neg(x) }").SerializeToString()
    runner = Runner.of(source, Target(), worker)
    answers = runner.each(sets, 3, 1.0, Deadline.after(10.0), given=given)
    if lost is None:
        assert isinstance(answers, Lost)
    else:
        assert isinstance(answers, dict)
        assert [n for n, each in sorted(answers.items()) if isinstance(each, Lost)] == lost
        assert len(answers) == len(sets)
