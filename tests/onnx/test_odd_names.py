"""Names that no exporter writes: passed through as they are, or one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from damage import ODD_NAMES
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from products import RULES

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode, ModelError, printable
from xflow.core.size import Expr, symbol
from xflow.core.size_text import parse_size, reads_back
from xflow.cost.worker import Worker
from xflow.onnx.files import load_model
from xflow.onnx.importer import MOST_TERMS, import_model
from xflow.onnx.interface import is_dimension_name
from xflow.onnx.types import LONGEST, SymbolNames
from xflow.pipeline import api


class Kept(Worker):
    """A process that serves all runs of this module."""

    def __exit__(self, *_: object) -> None:
        """Leave it running."""


@pytest.fixture(scope="module")
def kept() -> Iterator[Worker]:
    worker = Kept()
    yield worker
    worker.close()


@pytest.fixture(autouse=True)
def served(kept: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "Worker", lambda *_: kept)


def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def network() -> onnx.ModelProto:
    """Products that become one, a graph inside an operator, a function, and what is said of it."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((96, 96)).astype(np.float32), n) for n in "ab"
    ]
    yes = numpy_helper.from_array(np.array(True), "yes")
    node = helper.make_node
    twice = [node("Relu", ["v"], ["q"], name="inner"), node("Relu", ["q"], ["o"])]
    then = helper.make_graph(twice, "then", [], [value("o", "N", 96)])
    other = helper.make_graph([node("Neg", ["v"], ["o"])], "else", [], [value("o", "N", 96)])
    nodes = [
        node("MatMul", ["x", "a"], ["p"], name="left", doc_string="the left one"),
        node("MatMul", ["x", "b"], ["r"], name="right"),
        node("Add", ["p", "r"], ["s"], name="sum"),
        node("Relu", ["s"], ["t"], name="once"),
        node("Relu", ["t"], ["v"], name="twice"),
        node("If", ["yes"], ["y"], name="if", then_branch=then, else_branch=other),
        node("Own", ["y"], ["z"], name="call", domain="own"),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x", "N", 96)], [value("z", "N", 96)], [*weights, yes], doc_string="d"
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="tests")
    body = [node("Relu", ["i"], ["h"]), node("Relu", ["h"], ["j"])]
    model.functions.append(helper.make_function("own", "Own", ["i"], ["j"], body, opsets[:1]))
    model.metadata_props.add(key="licence", value="free")
    return model


def parts(message: Any) -> Iterator[Any]:
    """A message and all in it."""
    yield message
    for field, held in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in held if hasattr(held, "__len__") else [held]:
                yield from parts(part)


def renamed(model: onnx.ModelProto, old: str, new: str) -> onnx.ModelProto:
    """The model with a text replaced wherever it stands."""
    for message in parts(model):
        for field, held in message.ListFields():
            if field.type == field.TYPE_STRING and isinstance(held, str) and held == old:
                setattr(message, field.name, new)
            elif field.type == field.TYPE_STRING and not isinstance(held, str):
                for number, text in enumerate(held):
                    if text == old:
                        held[number] = new
    return model


NAMED = {
    "the graph": "g",
    "a graph inside": "then",
    "an input, and its dimension's readers": "x",
    "an output": "z",
    "a weight": "a",
    "a value": "s",
    "a value that is read inside": "v",
    "a value inside": "q",
    "a dimension": "N",
    "an operator": "sum",
    "an operator with graphs": "if",
    "an operator inside": "inner",
    "a function and its domain": "own",
    "a function": "Own",
    "a value of a function": "h",
    "metadata": "licence",
    "what metadata say": "free",
    "a description": "the left one",
    "the producer": "tests",
}
FORBIDDEN = {"", *(name for name in ODD_NAMES if len(name) > 5_000)}


@pytest.mark.parametrize("which", ["in turn", pytest.param("a NUL", marks=pytest.mark.many)])
@pytest.mark.parametrize("kind", NAMED)
def test_odd_names_pass_through_or_are_one_sentence(
    kind: str, which: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another name at each place, and one that breaks C's strings at all of them."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "own.rules").write_text("\n".join(map(str, RULES)))
    source, target, report = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "r.json"
    spot = list(NAMED).index(kind)
    for name in ["a\0b"] if which == "a NUL" else [ODD_NAMES[spot % len(ODD_NAMES)]]:
        model = renamed(network(), NAMED[kind], name)
        source.write_bytes(model.SerializeToString())
        target.unlink(missing_ok=True)
        line = [str(source), str(target), "--rules", str(tmp_path / "rules"), "--check", "1"]
        line += ["--cost", "estimated", "--budget", "1", "--threads", "1", "--report", str(report)]
        code = entry.main(line)
        said = capfd.readouterr()
        assert "internal error" not in said.err
        assert all(printable(char) == char for char in said.err + said.out)
        if code != ExitCode.OK:
            assert code in (ExitCode.ERROR, ExitCode.VALIDATION_FAILED)
            assert said.err.count("\n") == 1
            assert len(said.err) < 2_000
            assert name in FORBIDDEN
            continue
        assert json.loads(report.read_text())["changed"]
        written = onnx.load(target)
        onnx.checker.check_model(target)
        assert written.graph.input == model.graph.input
        assert written.graph.output == model.graph.output
        assert written.metadata_props == model.metadata_props
        assert written.graph.name == (model.graph.name or "graph")
        again = tmp_path / "again.onnx"
        assert entry.main(["replay", str(report), str(source), str(again), "-q"]) == ExitCode.OK
        assert again.read_bytes() == target.read_bytes()


def test_what_is_no_text_is_one_sentence_in_a_model_in_memory() -> None:
    """Messages cannot hold it, models of onnx-ir can."""
    for change in (
        lambda model: setattr(model.graph, "name", "\ud800"),
        lambda model: setattr(model.graph[0], "name", "\ud800"),
        lambda model: setattr(model.graph.inputs[0], "name", "\ud800"),
        lambda model: model.metadata_props.update({"key": "\ud800"}),
    ):
        model = ir.from_proto(network())
        change(model)
        with pytest.raises(ModelError, match="cannot be written"):
            xflow.optimize(model, rules=RULES, cost="estimated", budget=1)


def test_messages_hold_nothing_that_a_terminal_acts_on() -> None:
    text = str(ModelError("a\x1b[31mb\0c\u202e", "d\ud800\ne"))
    assert text == "d\\ud800 e: a\\x1b[31mb\\x00c\\u202e"
    assert printable("ä\n漢") == "ä\n漢"


@given(st.lists(st.text(max_size=80), max_size=6))
@example(["\u0f2a"])  # half of a digit: a character of words, and of no identifier
def test_every_dimension_has_a_size_that_is_written_and_read(names: list[str]) -> None:
    own = SymbolNames()
    sizes = [own.size(ir.SymbolicDim(name)) for name in names]
    assert all(map(reads_back, sizes))
    proper = list(filter(is_dimension_name, names))  # of the others, each is another size
    assert len(set(sizes)) == len(set(proper)) + len(names) - len(proper)
    assert [own.dimension(size) for size in sizes] == [
        None if name.startswith("unk__") or name not in proper else name for name in names
    ]
    assert max((len(str(size)) for size in sizes), default=0) < LONGEST + 10


def test_a_dimension_is_not_taken_for_an_index() -> None:
    """Which analyses call i0, i1 and so on."""
    own = SymbolNames()
    names = ["i0", "_i1", "i2x", "_k3", "k3"]
    sizes = [own.size(ir.SymbolicDim(name)) for name in names]
    assert list(map(str, sizes)) == ["i0_2", "_i1_2", "i2x", "_k3_2", "k3"]
    assert list(map(own.dimension, sizes)) == names


def test_unknown_dimensions_have_names_of_their_own() -> None:
    own = SymbolNames()
    sizes = [own.size(ir.SymbolicDim(None)) for _ in range(5_000)]
    sizes += [own.size(ir.SymbolicDim(f"unknown_{k}")) for k in range(5)]
    assert len(set(sizes)) == len(sizes)


# Sizes that nobody can reckon with


def side_by_side(count: int) -> onnx.ModelProto:
    """Images of so many unknown sizes put side by side."""
    inputs = [value(f"x{k}", f"n{k}", 4) for k in range(count)]
    nodes = [
        helper.make_node("Concat", [each.name for each in inputs], ["c"], axis=0),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", "m", 4)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def multiplied_out(rank: int) -> onnx.ModelProto:
    """The product of so many sums: each axis is padded, and all are made one."""
    sizes = [f"n{k}" for k in range(rank)]
    pads = numpy_helper.from_array(np.array([0] * rank + [1] * rank), "pads")
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"], axis=0),
        helper.make_node("Relu", ["f"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", *sizes)], [value("y", 1, "m")], [pads])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def outer(count: int) -> onnx.ModelProto:
    """A matrix whose number of elements is a product of two long sums."""
    rows = [value(f"x{k}", f"n{k}", 1) for k in range(count)]
    columns = [value(f"w{k}", 1, f"m{k}") for k in range(count)]
    nodes = [
        helper.make_node("Concat", [each.name for each in rows], ["c"], axis=0),
        helper.make_node("Concat", [each.name for each in columns], ["e"], axis=1),
        helper.make_node("MatMul", ["c", "e"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [*rows, *columns], [value("y", "a", "b")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("count", [5, 60, pytest.param(300, marks=pytest.mark.many)])
@pytest.mark.parametrize("make", [side_by_side, outer], ids=lambda make: make.__name__)
def test_models_of_many_sizes_are_optimized(
    make: Callable[[int], onnx.ModelProto], count: int
) -> None:
    sizes = {f"{name}{k}": (2, 4) for name in "x" for k in range(count)}
    if make is outer:
        sizes = {f"x{k}": (2, 1) for k in range(count)} | {f"w{k}": (1, 2) for k in range(count)}
    result = xflow.optimize(
        make(count), rules=RULES, cost="estimated", budget=5, check=1, input_shapes=sizes
    )
    assert result.report.changed
    assert not result.report.warnings


@pytest.mark.timeout(60)
def test_a_product_of_sums_is_a_size_like_another(tmp_path: Path) -> None:
    for rank in (3, 24):
        path = tmp_path / "model.onnx"
        onnx.save(multiplied_out(rank), path)
        imported = import_model(load_model(path))
        (y,) = imported.graph.outputs
        (_, size) = y.shape
        assert isinstance(size, Expr)
        assert len(size.terms) == (2**rank if 2**rank <= MOST_TERMS else 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [each for each in ODD_NAMES if len(each) > 100])
def test_a_dimension_with_a_name_without_end_is_a_size(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(renamed(network(), "N", name), path)
    imported = import_model(load_model(path))
    (rows, _) = imported.graph.outputs[0].shape
    assert rows == parse_size(str(rows)) == symbol(str(rows))
