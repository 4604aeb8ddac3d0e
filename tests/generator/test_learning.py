"""Rules are learned from regions of models: found around them, proved, and written to be used."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import xflow
from xflow.cli.entry import main
from xflow.core.errors import ExitCode, RuleFileError
from xflow.core.evaluation import run
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.generator.derive import Derivation
from xflow.generator.learning.equals import Equal
from xflow.generator.learning.forms import lessons_of, schematic, widened, without_axis
from xflow.generator.learning.job import LearnJob
from xflow.generator.learning.lessons import Lessons
from xflow.generator.learning.numbers import Numbers, Style
from xflow.generator.learning.regions import Region, places, regions_of, siblings
from xflow.generator.learning.sizes import shrunk
from xflow.generator.runner.chunks import Chunk
from xflow.generator.runner.desk import Desk, complete
from xflow.generator.runner.engine import InlineEngine
from xflow.generator.runner.outcome import Outcome
from xflow.generator.saturation.derivation import Derived, derive_claim
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules


def tensor(name: str, *shape: int, constant: bool = False) -> Value:
    return leaf(name, TensorType("FLOAT", shape), constant=constant)


def op(name: str, *inputs: Value, **attributes: object) -> Value:
    return apply(name, list(inputs), attributes)[0]  # type: ignore[arg-type]


def region(root: Value, *weights: str) -> Region:
    return Region(root, frozenset(weights), {})


def taught(known: list[Rule], *regions: Region) -> list[Rule]:
    """The rules that regions teach."""
    desk = Desk(InlineEngine(), 0, 0)
    job = LearnJob(known, desk)
    lessons = [lesson for each in regions for lesson in lessons_of(each, 0)]
    made: list[Derivation] = []
    complete(desk, {"learned": job.steps(lessons)}, lambda name, result: made.append(result))
    return [item.rule for item in made[0].kept]


def equation(inputs: str, left: str, right: str) -> Rule:
    (rule,) = parse_rules(f"rule wanted\n  in {inputs}\n  from {left}\n  to {right}\n")
    return rule


def follows(wanted: Rule, rules: list[Rule]) -> bool:
    return isinstance(derive_claim(wanted, rules), Derived)


QUOTIENT = equation("x[...] y[...]", "Mul(x, Reciprocal(y))", "Div(x, y)")
KNOWN = load_rules(default_directory())
LESS = [rule for rule in KNOWN if (rule.lhs, rule.rhs) != (QUOTIENT.lhs, QUOTIENT.rhs)]


X, KERNELS, POINTS = tensor("x", 1, 8, 14, 14), tensor("w", 16, 8, 3, 3), tensor("w", 16, 8, 1, 1)
INTO_A_CONVOLUTION = {
    "a scale": (
        op("Mul", op("Conv", X, KERNELS, pads=(1, 1, 1, 1)), tensor("r", 1, 16, 1, 1)),
        equation(
            "x[N, C, l] w[O, C, k] r[1, O, 1]",
            "Mul(Conv(x, w), r)",
            "Conv(x, Mul(w, Reshape(r, shape=[O, 1, 1])))",
        ),
    ),
    "the stride of a pool": (
        op("Conv", op("AveragePool", X, kernel_shape=(1, 1), strides=(2, 2)), POINTS),
        equation(
            "x[N, C, l] w[O, C, 1]",
            "Conv(AveragePool(x, kernel_shape=[1], strides=[3]), w)",
            "Conv(x, w, strides=[3])",
        ),
    ),
}
"""Regions, and what they teach."""


def elementwise() -> list[Rule]:
    """The rules of one family."""
    path = default_directory() / "elementwise.rules"
    return parse_rules(path.read_text(encoding="utf-8"), checked=False)


def quotient() -> onnx.ModelProto:
    """A model that multiplies by a reciprocal."""
    nodes = [
        helper.make_node("Reciprocal", ["y"], ["r"]),
        helper.make_node("Mul", ["x", "r"], ["z"]),
    ]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [6, 7]) for name in "xyz"]
    graph = helper.make_graph(nodes, "quotient", tensors[:2], tensors[2:])
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


class TestRegions:
    def test_inner_values_are_read_within_alone(self) -> None:
        x = tensor("x", 4, 4)
        shared = op("Exp", x)
        graph = Graph((op("Add", op("Neg", shared), op("Abs", shared)), shared))
        for place in places(graph):
            inner = {node for node in place.nodes if node is not place.root.node}
            for node in inner:
                assert node.outputs[0] not in graph.outputs
                assert place.nodes.issuperset(graph.users[node.outputs[0]])
        assert any(len(place.nodes) == 3 for place in places(graph))

    def test_a_long_chain_is_one_region(self) -> None:
        value = tensor("x", 4)
        for _ in range(8):
            value = op("Exp", value)
        assert max(len(place.nodes) for place in places(Graph((value,)))) == 8

    def test_results_side_by_side(self) -> None:
        x, w, v = (
            tensor("x", 3, 4),
            tensor("w", 4, 5, constant=True),
            tensor("v", 4, 5, constant=True),
        )
        one, other = op("MatMul", x, w), op("MatMul", x, v)
        assert list(siblings(Graph((one, other)))) == [(one, other)]

    def test_a_type_without_a_reading_makes_no_region(self) -> None:
        x = leaf("x", TensorType("STRING", (3,)))
        root = op("Identity", tensor("y", 3))
        assert not list(regions_of(x, frozenset({root.node}), {}, lambda value: None))

    def test_numbers_are_those_of_definitions(self) -> None:
        numbers = Numbers(Style.NUMBERS)
        half = numbers.constant(0.5)
        root = numbers.constant(float(np.float32(np.sqrt(2 / np.pi))))
        assert half is not None
        assert root is not None
        assert half.node.attributes["value"] == Fraction(1, 2)
        assert run([root], {})[0] == pytest.approx(np.sqrt(2 / np.pi))
        assert numbers.constant(0.123456) is None

    def test_one_number_is_one_symbol(self) -> None:
        numbers = Numbers(Style.SYMBOLS)
        first = numbers.attribute("epsilon", Fraction(1, 1000))
        assert numbers.attribute("epsilon", Fraction(1, 1000)) == first
        assert numbers.attribute("alpha", Fraction(1, 10)) != first
        assert set(numbers.reals.values()) == {"epsilon", "alpha"}
        assert numbers.attribute("scale", Fraction(1)) == 1


class TestForms:
    @given(st.permutations(range(3)), st.tuples(*[st.integers(2, 40)] * 3))
    @settings(deadline=None, max_examples=30)
    def test_small_sizes_differ(self, perm: list[int], shape: tuple[int, ...]) -> None:
        small = shrunk(op("Transpose", tensor("x", *shape), perm=tuple(perm)), frozenset(), 0)
        assert small is not None
        assert len(set(small.shape)) == 3

    def test_what_must_be_equal_stays_equal(self) -> None:
        x, w = tensor("x", 1, 197, 768), tensor("w", 768, 768)
        heads = op("Reshape", op("MatMul", x, w), shape=(1, 197, 12, 64))
        small = shrunk(heads, frozenset({"w"}), 0)
        assert small is not None
        (y, v) = Graph((small,)).leaves
        assert y.shape[2] == v.shape[0]
        assert v.shape[1] == small.shape[2] * small.shape[3]

    def test_a_batch_of_one_becomes_a_batch(self) -> None:
        heads = op("Reshape", tensor("x", 1, 6, 20), shape=(1, 6, 4, 5))
        assert widened(heads, frozenset()).shape == (2, 6, 4, 5)
        mask = op("Add", tensor("x", 4, 6, 6), tensor("a", 1, 6, 6))
        assert widened(mask, frozenset()) is mask  # of other values there are four

    def test_axes_that_are_treated_alike_become_one(self) -> None:
        x, w = tensor("x", 1, 8, 14, 14), tensor("w", 8, 8, 3, 3)
        image = op("Conv", x, w, pads=(1, 1, 1, 1), strides=(2, 2))
        less = without_axis(image, 3)
        assert less is not None
        assert less.shape == (1, 8, 7)
        uneven = op("Conv", x, w, pads=(1, 1, 1, 1), strides=(2, 1))
        assert without_axis(uneven, 3) is None

    def test_any_function_stands_for_one(self) -> None:
        x = tensor("x", 3, 4)
        made = schematic(op("Transpose", op("Mish", x), perm=(1, 0)))
        assert made is not None
        assert "Elementwise" in str(made)
        assert schematic(op("Mish", x)) is None
        assert schematic(op("Transpose", op("Exp", op("Mish", x)), perm=(1, 0))) is None

    def test_codes_read_back(self) -> None:
        (lesson,) = lessons_of(region(op("Transpose", tensor("x", 3, 4), perm=(1, 0))), 0)
        assert all(each.code().form() == each for each in (lesson.first, *lesson.others))


class FailsOnConcat(InlineEngine):
    """Runs chunks but those about a concatenation, which fail."""

    def submit(self, chunk: Chunk[Any], key: str, family: str, urgency: int) -> None:
        if isinstance(chunk, Equal) and "Concat" in chunk.about:
            self.outcomes.put((key, Outcome(None, f"{chunk.about} fails")))
        else:
            super().submit(chunk, key, family, urgency)


class TestLearning:
    def test_a_region_that_cannot_be_learned_from_does_not_end_the_job(self) -> None:
        x, y = tensor("x", 6, 7), tensor("y", 6, 7)
        desk = Desk(FailsOnConcat(), 0, 0)
        job = LearnJob(LESS, desk)
        bad, good = op("Concat", x, y, axis=0), op("Mul", x, op("Reciprocal", y))
        lessons = [lesson for v in (bad, good) for lesson in lessons_of(region(v), 0)]
        complete(desk, {"learned": job.steps(lessons)}, lambda name, result: None)
        assert follows(QUOTIENT, [*LESS, *(item.rule for item in job.result.kept)])
        assert all("Concat" in text for text in job.failures)
        assert job.failures

    def test_a_rule_that_is_missing_is_found_and_proved(self) -> None:
        x, y = tensor("x", 6, 7), tensor("y", 6, 7)
        rules = taught(LESS, region(op("Mul", x, op("Reciprocal", y))))
        assert not follows(QUOTIENT, LESS)
        assert follows(QUOTIENT, [*LESS, *rules])
        assert all(rule.origin == "learned" for rule in rules)

    def test_what_follows_is_not_stated_again(self) -> None:
        x = tensor("x", 6, 7)
        exchanged = region(op("Transpose", op("Relu", x), perm=(1, 0)))
        assert taught(KNOWN, exchanged) == []

    def test_a_law_of_movement_holds_for_any_function(self) -> None:
        x = tensor("x", 6, 7)
        rules = taught([], region(op("Transpose", op("Mish", x), perm=(1, 0))))
        wanted = equation("x[n, m]", "Transpose(Erf(x))", "Erf(Transpose(x))")
        assert follows(wanted, rules)

    @pytest.mark.parametrize(
        ("root", "wanted"), INTO_A_CONVOLUTION.values(), ids=INTO_A_CONVOLUTION
    )
    def test_a_convolution_takes_in_what_is_beside_it_at_any_rank(
        self, root: Value, wanted: Rule
    ) -> None:
        assert follows(wanted, taught([], region(root, "w", "r")))

    def test_a_block_that_is_in_no_list(self) -> None:
        """Images less their mean over channels are those of kernels less their mean."""
        image = op("Conv", X, KERNELS, pads=(1, 1, 1, 1))
        centred = op("Sub", image, op("ReduceMean", image, axes=(1,), keepdims=1))
        wanted = equation(
            "x[N, C, l, m] w[O, C, 3, 3]",
            "Sub(Conv(x, w), ReduceMean(Conv(x, w), axes=[1]))",
            "Conv(x, Sub(w, ReduceMean(w, axes=[0])))",
        )
        assert not follows(wanted, KNOWN)
        assert follows(wanted, taught(KNOWN, region(centred, "w")))

    def test_what_holds_by_chance_is_no_rule(self) -> None:
        """At equal extents a transposition of a symmetric term would pass for the identity."""
        x = tensor("x", 5, 5)
        rules = taught([], region(op("Transpose", x, perm=(1, 0))))
        assert rules == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rules that lack one, a model that needs it, and what was learned from it."""
    folder = tmp_path_factory.mktemp("learning")
    (folder / "few").mkdir()
    rules = [rule for rule in LESS if rule.is_base and rule in elementwise()]
    text = "\n".join(map(str, rules))
    (folder / "few" / "elementwise.rules").write_text(text, encoding="utf-8")
    onnx.save(quotient(), folder / "model.onnx")
    command = ["rules", "learn", str(folder / "model.onnx"), "--rules", str(folder / "few")]
    assert main([*command, "--out", str(folder / "more"), "--jobs", "1"]) == ExitCode.OK
    return folder


class TestCommand:
    def test_the_folder_has_all_that_is_known(self, folder: Path) -> None:
        few, more = load_rules(folder / "few"), load_rules(folder / "more")
        learned = [rule for rule in more if rule.origin == "learned"]
        assert {rule.name for rule in more} - {rule.name for rule in learned} == {
            rule.name for rule in few
        }
        assert follows(QUOTIENT, more)
        for rule in learned:
            assert (folder / "more" / "certificates" / f"{rule.name}.json").exists()
            assert rule.numerics is not None
        assert "model.onnx" in (folder / "more" / "learned.rules").read_text("utf-8")

    def test_the_model_is_optimized_by_what_was_learned(self, folder: Path) -> None:
        result = xflow.optimize(
            folder / "model.onnx", rules=folder / "more", cost="estimated", budget=5.0
        )
        assert [node.op_type for node in result.model.graph] == ["Div"]

    def test_learning_again_adds_nothing_and_loses_nothing(self, folder: Path) -> None:
        before = load_rules(folder / "more")
        command = ["rules", "learn", str(folder / "model.onnx"), "--jobs", "1", "-q"]
        assert main([*command, "--out", str(folder / "more")]) == ExitCode.OK
        assert load_rules(folder / "more") == before

    def test_the_rules_that_come_with_xflow_are_not_changed(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ["rules", "learn", str(folder / "model.onnx")]
        assert main([*command, "--out", str(default_directory())]) == ExitCode.USAGE
        assert "xflow's own rules" in capsys.readouterr().err

    def test_a_broken_model_is_told_before_anything_is_done(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "broken.onnx").write_bytes(b"nothing of the kind")
        command = ["rules", "learn", str(tmp_path / "broken.onnx"), "--out", str(tmp_path / "o")]
        assert main(command) == ExitCode.ERROR
        assert capsys.readouterr().err.count("\n") == 1
        assert not (tmp_path / "o").exists()


def test_an_origin_that_there_is_not() -> None:
    with pytest.raises(RuleFileError, match="origin"):
        parse_rules("rule a\n  in x[...]\n  from Neg(Neg(x))\n  to x\n  origin guessed\n")


def test_a_region_that_no_skeleton_states_is_left_out() -> None:
    """Rules write ``Cast(0, to='BOOL')`` for a condition that is known."""
    never = apply("Scalar", [], {"value": Fraction(0)}, dtype="BOOL")[0]
    lessons = Lessons()
    root = op("Where", never, tensor("x", 3, 4), tensor("y", 3, 4))
    lessons.add(Graph((root,)), {}, lambda value: None)
    assert len(lessons) == 0
