"""The calibration: what it measures, what follows from it, and what it does without."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xflow.ops  # noqa: F401 - fills the registry
from xflow.cli.commands.calibrate import table
from xflow.core.graph import Graph
from xflow.core.sorts import ELEMENT, REAL
from xflow.cost.calibration import calibrate as calibrate_module
from xflow.cost.calibration import peak_probes, probes
from xflow.cost.calibration.calibrate import (
    OPSET,
    Calibration,
    Number,
    calibrate,
    calibrated,
    default_target,
    stored,
)
from xflow.cost.calibration.numbers import BLOCKS, default_of, is_sane, shrunk, with_numbers
from xflow.cost.calibration.probes import Constants
from xflow.cost.comparison import Timing
from xflow.cost.estimate import Estimator
from xflow.cost.layout import LayoutModel
from xflow.cost.machine import Crowd
from xflow.cost.measure import Measurer, Target
from xflow.cost.store import Platform, Store
from xflow.cost.target import FUSIONS, Fusion, TargetModel
from xflow.cost.worker import Failed
from xflow.onnx.region import region_model
from xflow.ops import operators

TARGET = TargetModel()
X = (Constants().input(probes.SCORES), Constants().input(probes.SCORES))
PLACE = Platform("a processor", "cpu", 2, "1.0")


class FakeMeasurer(Measurer):
    """Times models by the operators in them, of which small ones take a hundredth.

    Those of which no time is given are as slow as in the default target: `default` is the time of
    one that reads and writes three tensors as fast as memory allows. The operator `once` is as slow
    as is said the first time alone.
    """

    def __init__(
        self,
        seconds: Mapping[str, float],
        default: float = 1e-4,
        provider: str = "cpu",
        once: str = "",
        cuts_off: bool = False,
    ) -> None:
        super().__init__(Target(provider, 2))
        self.seconds_of = dict(seconds)
        self.once = once
        self.cuts_off = cuts_off
        self.default = default
        self.models = 0
        self.batches: set[int] = set()
        """First sizes of images and of sequences."""

    def time_together(self, models: Sequence[Any], seconds: float, **_: Any) -> list[Any]:
        self.models += len(models)
        loaded = list(map(onnx.load_from_string, models))
        timed = list(map(self.timing, loaded))
        if any(node.op_type == self.once for model in loaded for node in model.graph.node):
            self.seconds_of.pop(self.once, None)
        return timed

    def outputs(self, model: bytes, inputs: Sequence[Any], *_: Any) -> list[Any] | Failed:
        """The results of products on codes: right, or with sums that are cut off."""
        right = next(
            right
            for graph, x, right in peak_probes.extremes(Constants())
            if x.shape == inputs[0].shape
        )
        return [np.full(2, right / 2 if self.cuts_off else right, np.float32)]

    def timing(self, model: onnx.ModelProto) -> Timing | Failed:
        sizes = [
            math.prod(dim.dim_value for dim in each.type.tensor_type.shape.dim)
            for each in model.graph.input
        ]
        shapes = (each.type.tensor_type.shape.dim for each in model.graph.input)
        self.batches |= {shape[0].dim_value for shape in shapes if len(shape) > 2}
        is_small = max(sizes) <= 1000

        def seconds(node: onnx.NodeProto) -> float:
            tensors = len(node.input) + len(node.output)
            factor = 1.0 if is_small else default_of(TARGET, f"slow.{node.op_type}") * tensors / 3
            return self.seconds_of.get(node.op_type, self.default * factor)

        total = sum(map(seconds, model.graph.node))
        return Timing((1e-5 + total * (0.01 if is_small else 1.0),) * 10)


class BrokenMeasurer(FakeMeasurer):
    def outputs(self, model: bytes, inputs: Sequence[Any], *_: Any) -> list[Any] | Failed:
        return Failed("it broke")

    def timing(self, model: onnx.ModelProto) -> Timing | Failed:
        return Failed("it broke")


class TestProbes:
    @pytest.mark.parametrize("fusion", FUSIONS, ids=lambda f: f"{f.kernel}: {f.pattern}")
    def test_every_pattern_of_the_target_is_fused_by_the_runtime(
        self, fusion: Fusion, tmp_path: Path
    ) -> None:
        assert probes.fused_constants(fusion) is not None, "its constants are not known"
        constants = Constants()
        probe = probes.fused_probe(fusion, constants)
        model = region_model(probe.graph, constants, opset=OPSET)
        names = {
            "SkipLayerNormalization": {"SkipLayerNormalization"},
            "LayerNormalization": {"LayerNormalization"},
            "RMSNormalization": {"SimplifiedLayerNormalization", "RMSNormalization"},
            "Gelu": {"Gelu", "FastGelu", "BiasGelu"},
            "QuickGelu": {"QuickGelu"},
        }
        found = set(optimized(model, tmp_path)) - {"Neg"}  # which reads what the pattern gives
        assert found <= names[fusion.kernel]
        assert len(found) == 1

    def test_they_all_have_a_form_in_onnx_and_run(self) -> None:
        constants = Constants()
        target = TargetModel()
        made = [
            probes.views(constants),
            *probes.elementwise(target, constants),
            *probes.moved(constants),
            *peak_probes.peaks(constants),
            *peak_probes.layouts(constants).values(),
            *peak_probes.groups(constants).values(),
            *peak_probes.on_codes(constants),
        ]
        names = {probe.name for probe in made}
        assert {"slow.Relu", "slow.Softmax", "slow.Transpose", "peak.Conv", "peak.Gemm"} <= names
        for probe in made:
            newest = max(getattr(node.op, "since", 1) for node in probe.graph.nodes)
            model = region_model(probe.graph, constants, opset=max(OPSET, newest))
            onnx.checker.check_model(onnx.load_from_string(model))

    def test_products_on_codes_are_computed_on_codes(self, tmp_path: Path) -> None:
        constants = Constants()
        for probe in peak_probes.on_codes(constants):
            found = optimized(region_model(probe.graph, constants, opset=OPSET), tmp_path)
            kernel = "QLinearConv" if "Conv" in probe.name else "QLinearMatMul"
            assert found[kernel] == peak_probes.ROW_OF

    def test_the_greatest_products_are_exact_without_the_kernels_on_codes(self) -> None:
        constants = Constants()
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        for graph, x, right in peak_probes.extremes(constants):
            data = region_model(graph, constants, opset=OPSET)
            session = onnxruntime.InferenceSession(data, options)
            (result,) = session.run(None, {session.get_inputs()[0].name: x})
            np.testing.assert_allclose(result, right, rtol=1e-6)

    def test_images_in_blocks_are_told_from_others_by_their_channels(self, tmp_path: Path) -> None:
        constants = Constants()
        found = peak_probes.layouts(constants)
        inside = region_model(found["MaxPool"].graph, constants, opset=OPSET)
        outside = region_model(found["MaxPool.odd"].graph, constants, opset=OPSET)
        # A runtime without a layout of its own converts neither.
        assert optimized(outside, tmp_path)["ReorderInput"] == 0
        assert optimized(inside, tmp_path)["ReorderInput"] <= 1

    def test_the_runtime_has_no_kernel_where_the_target_counts_several_calls(
        self, tmp_path: Path
    ) -> None:
        constants = Constants()
        target = TargetModel()
        expected = {"HardSwish": 2, **target.calls}
        for probe in (*probes.elementwise(target, constants), *probes.moved(constants)):
            name = probe.name.removeprefix("slow.")
            copies = sum(getattr(node.op, "name", "") == name for node in probe.graph.nodes)
            newest = max(getattr(node.op, "since", 1) for node in probe.graph.nodes)
            model = region_model(probe.graph, constants, opset=max(OPSET, newest))
            found = optimized(model, tmp_path)
            free = {"Shape", "ReorderInput", "ReorderOutput", *target.views}
            calls = sum(count for kind, count in found.items() if kind not in free)
            assert calls == copies * expected.get(name, 1), name

    def test_the_runtime_stays_in_its_layout_where_the_target_says_so(self, tmp_path: Path) -> None:
        constants = Constants()
        target = TargetModel()
        assert target.layout is not None
        converted = {}
        for op in operators():
            if op.schematic:
                continue
            takes_reals = REAL in op.sorts and op.taken(0) in {REAL, ELEMENT}
            if op.elementwise and op.arity == (1, 1) and takes_reals and not op.attributes:
                x, w = constants.input((1, 32, 8, 8)), constants.weight(32, 32, 1, 1)
                image = probes.call("Conv", probes.call(op.name, probes.call("Conv", x, w)), w)
                newest = max(OPSET, op.since)
                found = optimized(region_model(Graph((image,)), constants, opset=newest), tmp_path)
                converted[op.name] = found["ReorderInput"]
        if not converted["Relu"]:
            pytest.skip("the runtime has no layout of its own on this machine")
        kept = {name for name, times in converted.items() if times == 1}
        inside = target.layout.stays | target.fused["Conv"].keys() | target.views
        assert kept == converted.keys() & inside

    @pytest.mark.parametrize(
        ("name", "attributes"),
        [
            *((name, {}) for name in ("Relu", "Sigmoid", "Tanh", "HardSwish", "Gelu")),
            ("HardSigmoid", {"alpha": Fraction(1, 5), "beta": Fraction(1, 2)}),
            ("LeakyRelu", {"alpha": Fraction(1, 4)}),
            ("Clip", {"min": Fraction(0)}),
            ("Clip", {"min": Fraction(0), "max": Fraction(6)}),
        ],
    )
    @pytest.mark.parametrize("shared", [False, True])
    def test_sums_and_activations_in_the_layout_are_those_of_the_runtime(
        self, name: str, attributes: Mapping[str, Fraction], shared: bool, tmp_path: Path
    ) -> None:
        """Behind a convolution, and behind a sum with it."""
        layout = TargetModel().layout
        assert layout is not None
        constants = Constants()
        x, w = constants.input((1, 32, 8, 8)), constants.weight(32, 32, 1, 1)
        first = probes.call("Conv", x, w)
        source = probes.call("Add", probes.call("Conv", first, w), first) if shared else first
        graph = Graph((probes.call("Conv", probes.call(name, source, **attributes), w),))
        found = optimized(region_model(graph, constants, opset=21), tmp_path)
        if not found["ReorderInput"]:
            pytest.skip("the runtime has no layout of its own on this machine")
        converted = LayoutModel(layout).converted(graph)
        inside = found["ReorderInput"] == found["ReorderOutput"] == 1
        assert inside == (len(converted) == 2)

    @pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Tanh", "HardSigmoid", "Gelu"])
    def test_activations_are_fused_into_normalizations_in_the_layout(
        self, name: str, tmp_path: Path
    ) -> None:
        constants = Constants()
        x, w = constants.input((1, 32, 8, 8)), constants.weight(32, 32, 1, 1)
        pool = probes.call("MaxPool", probes.call("Conv", x, w), kernel_shape=(1, 1))
        scales = [constants.weight(32) for _ in range(4)]
        normal = probes.call("BatchNormalization", pool, *scales, epsilon=Fraction(1, 1000))
        ends = [probes.call("Conv", each, w) for each in (normal, probes.call(name, normal))]
        plain, graph = (Graph((end,)) for end in ends)
        found = optimized(region_model(graph, constants, opset=21), tmp_path)
        if not found["ReorderInput"]:
            pytest.skip("the runtime has no layout of its own on this machine")
        estimator = Estimator(replace(TARGET, bandwidth=1e30, overhead=1.0, fused_overhead=0.0))
        calls = estimator(graph) - estimator(plain)
        assert bool(found[name]) == (calls > 0.5)


def optimized(model: bytes, folder: Path) -> Counter[str]:
    """How often each operator occurs in a model once the runtime has optimized it."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(folder / "optimized.onnx").graph.node
    return Counter(node.op_type for node in nodes)


class TestNumbers:
    def test_what_takes_longer_for_the_same_bytes_is_slower(self) -> None:
        found = numbers(FakeMeasurer({"Sqrt": 4e-4, "Exp": 2e-4}))
        assert found["slow.Sqrt"] == pytest.approx(2 * found["slow.Exp"], rel=0.05)
        assert found["slow.Add"] == pytest.approx(1.0, rel=0.05)

    def test_what_is_slow_once_is_not_believed(self) -> None:
        """Something else had the memory while an operator was timed."""
        found = numbers(FakeMeasurer({"Abs": 1e-3, "Exp": 1e-3}, once="Abs"))
        assert found["slow.Abs"] == pytest.approx(1.0, rel=0.05)
        assert found["slow.Exp"] == pytest.approx(15.0, rel=0.05)

    def test_bandwidth_is_the_bytes_in_a_second_of_one_thread(self) -> None:
        elements = sum(math.prod(shape) for shape in (probes.ROWS, probes.IMAGE)) / 2
        found = numbers(FakeMeasurer({"Mul": 1e-4}))
        assert found["bandwidth"] == pytest.approx(3 * 4 * elements / 1e-4 / 2, rel=0.05)

    @pytest.mark.parametrize("factor", [0.7, 1.3])
    def test_kernels_that_all_differ_from_the_reference_stay_alike(self, factor: float) -> None:
        """What is unusual then is the reference, and the others are as fast as they were."""
        plain, other = (numbers(FakeMeasurer({"Mul": 1e-4 * each})) for each in (1, factor))
        assert other["slow.Max"] == pytest.approx(plain["slow.Max"], rel=0.01)
        assert other["bandwidth"] == pytest.approx(plain["bandwidth"], rel=0.01)
        target = with_numbers(TargetModel(), other)
        for name in ("Max", "Min", "Add", "Relu", "Clip"):
            assert default_of(target, f"slow.{name}") == default_of(TARGET, f"slow.{name}")

    def test_peak_is_the_arithmetic_in_a_second_of_one_thread(self) -> None:
        _, tokens, width = probes.ROWS
        found = numbers(FakeMeasurer({"Gemm": 1e-3}))
        assert found["peak.Gemm"] == pytest.approx(2 * tokens * width**2 / 1e-3 / 2, rel=0.05)

    def test_no_peak_is_beyond_what_a_core_can_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("xflow.cost.calibration.calibrate.most_flops", lambda: 4e11)
        found = numbers(FakeMeasurer({"Gemm": 1e-4, "ConvInteger": 1e-5}))
        assert "peak.Gemm" not in found
        assert "peak.ConvInteger" in found  # of integers it does more at a time

    def test_what_slows_the_first_models_down_makes_nothing_slow(self) -> None:
        class Disturbed(FakeMeasurer):
            def time_together(self, models: Sequence[Any], seconds: float, **_: Any) -> list[Any]:
                factor = 1.0 if self.models else 4.0
                timed = super().time_together(models, seconds)
                return [Timing(tuple(factor * sample for sample in t.samples)) for t in timed]

        found, plain = numbers(Disturbed({})), numbers(FakeMeasurer({}))
        assert found["bandwidth"] == pytest.approx(plain["bandwidth"], rel=0.01)
        assert found["slow.Add"] == pytest.approx(plain["slow.Add"], rel=0.01)

    def test_products_are_timed_beside_a_product(self) -> None:
        """What slows the memory down leaves the arithmetic as it was, and so must the reference."""
        seen: list[set[str]] = []

        class Watched(FakeMeasurer):
            def time_together(self, models: Sequence[Any], seconds: float, **_: Any) -> list[Any]:
                loaded = map(onnx.load_from_string, models)
                seen.append({node.op_type for model in loaded for node in model.graph.node})
                return super().time_together(models, seconds)

        calibrate(Watched({}))
        for operators_together in seen:
            if operators_together & {"Conv", "Gemm", "Attention", "ConvTranspose"}:
                assert "MatMul" in operators_together
        assert any({"Conv", "MatMul", "Gemm", "Attention"} <= each for each in seen)

    def test_calls_are_what_small_operators_take(self) -> None:
        found = numbers(FakeMeasurer({}))
        assert found["overhead"] == pytest.approx(1e-6, rel=0.05)
        assert found["view_overhead"] == pytest.approx(1e-6, rel=0.05)

    def test_what_takes_no_longer_in_blocks_shows_that_there_are_none(self) -> None:
        found = numbers(FakeMeasurer({}))
        assert found["layout.block"] == 0
        assert with_numbers(TargetModel(), found).layout is None

    def test_only_processors_have_a_layout_of_their_own(self) -> None:
        found = numbers(FakeMeasurer({}, provider="cuda"))
        assert with_numbers(TargetModel(), found).layout is None
        assert found["slow.Add"] == pytest.approx(1.0, rel=0.05)

    def test_a_gpu_is_given_work_that_takes_longer_than_its_calls(self) -> None:
        measurer = FakeMeasurer({}, provider="cuda")
        calibrate(measurer)
        assert max(measurer.batches) == probes.BATCHES["cuda"]

    @pytest.mark.parametrize("cuts_off", [False, True])
    def test_sums_are_cut_off_where_they_are_seen_to_be(self, cuts_off: bool) -> None:
        found = numbers(FakeMeasurer({}, cuts_off=cuts_off))
        assert with_numbers(TargetModel(), found).cuts_off is cuts_off

    def test_sums_may_be_cut_off_where_nothing_was_measured(self) -> None:
        assert with_numbers(TargetModel(), {"peak.Conv": 1e12}).cuts_off

    def test_how_fast_products_on_codes_are_says_nothing_of_others(self) -> None:
        found = dict.fromkeys(("peak.Conv", "peak.MatMul", "peak.Gemm"), 1.7e11)
        fast = dict.fromkeys((f"{name}.codes" for name in ("peak.Conv", "peak.MatMul")), 1e13)
        plain, target = (with_numbers(TargetModel(), each) for each in (found, {**found, **fast}))
        assert target.peak["Conv.codes"] == 1e13
        assert target.bandwidth == plain.bandwidth
        assert {n: v for n, v in target.peak.items() if f"peak.{n}" not in fast} == {
            n: v for n, v in plain.peak.items() if f"peak.{n}" not in fast
        }

    def test_what_fails_keeps_its_default_and_says_so(self) -> None:
        found = calibrate(BrokenMeasurer({}))
        assert found.measured == {}
        assert all(number.reason == "it broke" for number in found.numbers)
        assert with_numbers(TargetModel(), found.measured) == TargetModel()

    def test_what_makes_no_sense_keeps_its_default_and_says_so(self) -> None:
        found = calibrate(FakeMeasurer({"Sqrt": 1.0}))
        (number,) = [each for each in found.numbers if each.name == "slow.Sqrt"]
        assert number.measured is None
        assert "makes no sense" in number.reason

    def test_every_number_reaches_the_target(self) -> None:
        found = {
            "overhead": 2e-6,
            "full_channels": 8.0,
            "slow.Relu": 3.0,
            "peak.Conv": 1e12,
            "layout.block": 8.0,
            "layout.reorder": 4.0,
            "layout.outside.MaxPool": 9.0,
        }
        target = with_numbers(TargetModel(), found)
        assert {name: default_of(target, name) for name in found} == pytest.approx(found)
        assert isinstance(target.full_channels, int)
        assert target.slow["Div"] == TargetModel().slow["Div"]

    def test_kernels_that_differ_by_noise_alone_stay_alike(self) -> None:
        assert with_numbers(TargetModel(), {"slow.Sum": 0.7, "slow.Add": 1.3}) == TargetModel()
        slower = with_numbers(TargetModel(), {"slow.Sum": 0.3, "slow.Add": 3.0}).slow
        assert (slower["Sum"], slower["Add"]) == (0.3, 3.0)

    @given(st.floats(0.01, 100), st.floats(1.01, 3), st.floats(1, 1.1))
    def test_a_ratio_is_shrunk_to_one_or_not_at_all_or_in_between(
        self, ratio: float, tolerance: float, step: float
    ) -> None:
        found = shrunk(ratio, tolerance)
        assert min(1.0, ratio) <= found <= max(1.0, ratio)
        assert shrunk(1 / ratio, tolerance) == pytest.approx(1 / found)
        far = abs(math.log(ratio)) / math.log(tolerance)
        assert (found == 1.0) == (far <= 1) or found == pytest.approx(1.0)
        assert (found == ratio) or far < 2
        # A little more or less changes little.
        assert found <= shrunk(ratio * step, tolerance) * (1 + 1e-9)
        assert shrunk(ratio * step, tolerance) <= found * step**2 * (1 + 1e-9)

    @given(st.floats(0.6, 1.6), st.data())
    def test_a_machine_that_differs_by_its_speed_alone_ranks_all_forms_as_by_default(
        self, speed: float, data: st.DataObject
    ) -> None:
        """Each number is off by what calibrations of one machine differ by."""
        layout = TARGET.layout
        assert layout is not None
        noise = st.floats(1 / 1.1, 1.1)
        found = {f"peak.{name}": value * speed for name, value in TARGET.peak.items()}
        found |= {"bandwidth": TARGET.bandwidth * speed}
        found |= {name: default_of(TARGET, name) / speed for name in ("overhead", "view_overhead")}
        found |= {f"layout.outside.{name}": 1.3 * n for name, n in layout.outside.items()}
        found = {name: value * data.draw(noise) for name, value in found.items()}
        target = with_numbers(TARGET, found)
        times = target.peak["Conv"] / TARGET.peak["Conv"]
        assert times == pytest.approx(speed, rel=0.11)
        assert target.layout == layout
        graph = Graph((probes.call("Softmax", probes.call("MatMul", *X)),))
        assert Estimator(target)(graph) == pytest.approx(Estimator(TARGET)(graph) / times)

    def test_a_gpu_launches_kernels_no_faster_for_all_that_it_computes(self) -> None:
        found = {f"peak.{name}": 100 * value for name, value in TARGET.peak.items()}
        fast = with_numbers(TARGET, found)
        assert fast.overhead == pytest.approx(TARGET.overhead / 2)
        slow = with_numbers(TARGET, {**found, "overhead": 8e-6})
        assert (slow.overhead, slow.cold_overhead) == (8e-6, 2 * TARGET.cold_overhead)

    def test_a_single_peak_does_not_tell_how_fast_a_machine_is(self) -> None:
        found = with_numbers(TARGET, {"peak.ConvInteger": 10 * TARGET.peak["ConvInteger"]})
        assert found.bandwidth == TARGET.bandwidth
        assert found.peak["Conv"] == TARGET.peak["Conv"]

    def test_unknown_and_senseless_numbers_are_refused(self) -> None:
        for numbers in ({"speed": 1.0}, {"slow.Relu": -1.0}, {"layout.block": 7.0}):
            with pytest.raises(ValueError, match="cannot be"):
                with_numbers(TargetModel(), numbers)

    def test_a_real_run_measures_what_it_should(self) -> None:
        with Measurer(Target("cpu", 1)) as measurer:
            found = calibrate(measurer, seconds=2.0)
        assert {"overhead", "bandwidth", "slow.Div", "peak.Conv", "layout.block"} <= {
            number.name for number in found.numbers
        }
        assert all(is_sane(name, value) for name, value in found.measured.items())
        assert found.measured.get("layout.block", 0) in (0, *BLOCKS)
        assert len(found.measured) > len(found.numbers) / 2


class TestStored:
    @pytest.fixture(autouse=True)
    def alone(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """Whether other processes are in the way, time after time; mostly they are not."""
        told: list[bool] = []

        class Told(Crowd):
            def in_the_way(self, threads: int) -> bool:
                return bool(told) and told.pop(0)

            def free(self, threads: int) -> int:
                return threads

        monkeypatch.setattr(calibrate_module, "Crowd", Told)
        monkeypatch.setattr(calibrate_module, "LISTENING_S", 0.0)
        return told

    @pytest.mark.parametrize("told", [[True], [False, True]])
    def test_nothing_is_kept_of_what_was_measured_on_a_busy_machine(
        self, tmp_path: Path, told: list[bool], alone: list[bool]
    ) -> None:
        measurer = FakeMeasurer({})
        with Store(tmp_path / "costs.sqlite") as store:
            alone += told
            assert calibrated(PLACE, measurer, store) is None
            assert store.calibration(PLACE) is None
            assert bool(measurer.models) == (not told[0])
            assert calibrated(PLACE, measurer, store) is not None

    def test_where_there_is_room_for_fewer_threads_the_numbers_of_a_thread_are_theirs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Full(Crowd):
            def free(self, threads: int) -> int:
                return 1

        monkeypatch.setattr(calibrate_module, "Crowd", Full)
        measurer = FakeMeasurer({"Sqrt": 4e-4})
        with Store(tmp_path / "costs.sqlite") as store:
            found = calibrated(PLACE, measurer, store)
            assert found is not None
            assert found.threads == PLACE.threads
            alone = stored(replace(PLACE, threads=1), store)
            assert alone is not None
            assert found == replace(alone, threads=PLACE.threads)
            assert stored(PLACE, store) is None

    def test_it_is_measured_once_for_a_place(self, tmp_path: Path) -> None:
        measurer = FakeMeasurer({"Sqrt": 4e-4})
        steps: list[str] = []
        with Store(tmp_path / "costs.sqlite") as store:
            first = known(PLACE, measurer, store, lambda phase, _: steps.append(phase))
            count = measurer.models
            assert count
            assert set(steps) == {"calibrate"}
            assert known(PLACE, measurer, store) == first
            assert measurer.models == count
            assert first != TargetModel(threads=2)
            other = Platform("a processor", "cpu", 1, "1.0")
            assert known(other, measurer, store).threads == 1
            assert measurer.models == 2 * count

    def test_it_outlives_the_process(self, tmp_path: Path) -> None:
        with Store(tmp_path / "costs.sqlite") as store:
            store.put_calibration(PLACE, json.dumps({"slow.Relu": 7.0}))
        with Store(tmp_path / "costs.sqlite") as store:
            assert known(PLACE, BrokenMeasurer({}), store).slow["Relu"] == 7.0

    @pytest.mark.parametrize("text", ["{", "[]", "3", '{"speed": 1}', '{"slow.Relu": "x"}'])
    def test_what_cannot_be_read_is_measured_again(self, tmp_path: Path, text: str) -> None:
        measurer = FakeMeasurer({})
        with Store(tmp_path / "costs.sqlite") as store:
            store.put_calibration(PLACE, text)
            calibrated(PLACE, measurer, store)
            assert measurer.models
            assert "bandwidth" in json.loads(store.calibration(PLACE) or "")

    def test_where_nothing_can_be_measured_nothing_is_kept(self, tmp_path: Path) -> None:
        with Store(tmp_path / "costs.sqlite") as store:
            target = calibrated(PLACE, BrokenMeasurer({}), store)
            assert target == default_target(PLACE)
            assert store.calibration(PLACE) is None


def test_the_table_has_a_line_for_each_number() -> None:
    found = Calibration((Number("a", 1.0, 2.0), Number("b", 1.0, None, "it broke")))
    assert table(found).row_count == 2


def known(*arguments: Any) -> TargetModel:
    target = calibrated(*arguments)
    assert target is not None
    return target


def numbers(measurer: Measurer) -> dict[str, float]:
    return calibrate(measurer).measured
