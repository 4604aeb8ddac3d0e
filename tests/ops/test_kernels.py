"""What the analysis takes for granted of operators, held against ONNX Runtime's kernels.

Where a graph may hold what is no number, `xflow.analysis` says what an operator makes of it: within
which bounds its results lie and whether NaN or an infinity may be among them, whether it may give a
number where it reads none, whether a small change may make a large one; of operators that the
registry does not describe, whether they give elements of their inputs, or sums of them. Each is
tried with odd values planted in the inputs of the operator's examples, or of ONNX's own test cases.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from operator_cases import (
    POSITIVE,
    at_each_example,
    cases,
    element_types,
    exact_inputs,
    has_inputs,
    sorts_of,
)
from planting import EXTREME, ORDINARY, SPECIAL, UNEVEN
from runtime import Runtime
from suites import Suite, node_models

from xflow.analysis.observers import decides, loses
from xflow.analysis.opaque import MOVES, Made, decides_by, kind_of
from xflow.analysis.ranges import Ranges, of_array
from xflow.core.assumptions import Assumption
from xflow.core.fold import no_constants
from xflow.core.intervals import Range
from xflow.core.node import Node, Opaque, TensorType, Value, apply, leaf
from xflow.core.registry import Array, Example, Operator
from xflow.core.sorts import REAL
from xflow.onnx.importer import import_model
from xflow.verifier.rounding.rounded import FP32

CASES = [
    (op, example)
    for op, example in cases()
    if op.op_type and example.shapes and has_inputs(op, example)
    and all(all(shape) for shape in example.shapes)
]  # fmt: skip
at_each_case = at_each_example(CASES)
EVERYTHING = (*SPECIAL, *EXTREME, *ORDINARY)
PLACES = 2
"""Elements of each input in which each value is planted."""
MIXTURES = 10
LEAST = float(np.finfo(np.float32).min)
STEP = 2.0**-18
"""A small change, of which no jump is made, and by which nothing is rounded away."""


class Case:
    """One operator at one example, in the runtime."""

    def __init__(self, op: Operator, example: Example) -> None:
        self.op, self.example = op, example
        self.sorts = sorts_of(op, example)
        self.rng = random.Random(zlib.crc32(f"{op.name} {example}".encode()))
        self.runtime = Runtime()
        self.outputs = self.values({})
        self.base = {
            f"x{k}": np.array(array, np.float64) if sort == REAL else array
            for k, (array, sort) in enumerate(
                zip(exact_inputs(op, example), self.sorts, strict=True)
            )
        }

    def values(self, known: Mapping[str, Range]) -> tuple[Value, ...]:
        """The operator's outputs; `known` is what is known of its inputs."""
        kinds, _ = element_types(self.op, self.example, "FLOAT")
        leaves = [
            leaf(f"x{k}", TensorType(kind, shape), known=known.get(f"x{k}"))
            for k, (kind, shape) in enumerate(zip(kinds, self.example.shapes, strict=True))
        ]
        return apply(self.op, leaves, self.example.attributes, dtype="FLOAT")

    @property
    def node(self) -> Node:
        return self.outputs[0].node

    @property
    def reals(self) -> list[int]:
        """The positions of inputs of floats, of which there may be none."""
        return [k for k, sort in enumerate(self.sorts) if sort == REAL and self.base[f"x{k}"].size]

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The outputs in the runtime."""
        return [np.asarray(a) for a in self.runtime(self.outputs, inputs, FP32)]

    def planted(self, position: int, place: int, value: float) -> dict[str, Array]:
        """The base with one element of an input replaced."""
        inputs = {name: array.copy() for name, array in self.base.items()}
        inputs[f"x{position}"].reshape(-1)[place] = value
        return inputs

    def places(self, position: int) -> list[int]:
        """Some elements of an input."""
        size = self.base[f"x{position}"].size
        return self.rng.sample(range(size), min(size, PLACES))

    def odd(self) -> Iterator[dict[str, Array]]:
        """Inputs with odd values: in one element, and in many."""
        yield self.base
        for position in self.reals:
            for place, value in itertools.product(self.places(position), EVERYTHING):
                yield self.planted(position, place, value)
        for number in range(MIXTURES if self.reals else 0):
            values = (EVERYTHING, SPECIAL, (-np.inf,))[number % 3]
            inputs = {name: array.copy() for name, array in self.base.items()}
            for position in self.rng.sample(self.reals, self.rng.randint(1, len(self.reals))):
                flat = inputs[f"x{position}"].reshape(-1)
                share = self.rng.choice((0.2, 0.6, 1.0))
                for place in range(flat.size):
                    if self.rng.random() < share:
                        flat[place] = self.rng.choice(values)
            yield {
                name: array.astype(np.float32).astype(np.float64) if array.dtype == float else array
                for name, array in inputs.items()
            }


def leaps(at: Callable[[float], list[Array]], point: float) -> bool:
    """Whether a function of one number jumps at `point`: by as much over any distance."""
    found: list[list[Array]] = []
    for step in (STEP, STEP / 16):
        below, above = at(point - step), at(point + step)
        if [a.shape for a in below] != [a.shape for a in above]:
            return True
        with np.errstate(all="ignore"):
            found.append([np.abs(a - b) for a, b in zip(below, above, strict=True)])
    far, near = found
    return any(
        bool(((a < 1e2) & np.isfinite(b) & (b > 0.01) & (b > a / 4)).any())
        for a, b in zip(far, near, strict=True)
    )


def outside(known: Range, array: Array) -> str:
    """What an element of `array` is that `known` says it is not; empty if nothing."""
    if not known.nan and np.isnan(array).any():
        return "NaN"
    if not known.plus and np.isposinf(array).any():
        return "inf"
    if not known.minus and np.isneginf(array).any():
        return "-inf"
    numbers = array[np.isfinite(array)]
    slack = 1e-5 * max(1.0, float(np.abs(numbers).max(initial=0.0)))
    if numbers.min(initial=np.inf) < known.low - slack:
        return f"{numbers.min()} < {known.low}"
    if numbers.max(initial=-np.inf) > known.high + slack:
        return f"{numbers.max()} > {known.high}"
    if known.nonzero and (numbers == 0).any():
        return "0"
    for axis in known.reached or ():
        if np.isneginf(array).all(axis=axis).any():
            return f"a line along {axis} of -inf throughout"
    for axis, bound in known.least:
        with np.errstate(invalid="ignore"):
            reached = (array >= bound - slack).any(axis=axis) | np.isnan(array).any(axis=axis)
        if not reached.all():
            return f"a line along {axis} below {bound}"
    return ""


@at_each_case
def test_no_result_lies_outside_of_its_range(op: Operator, example: Example) -> None:
    case = Case(op, example)
    for inputs in case.odd():
        ranges = {
            name: of_array(array.astype(np.float32))
            for name, array in inputs.items()
            if array.dtype.kind == "f"
        }
        found = Ranges(no_constants, Assumption.NONE)
        for value, array in zip(case.values(ranges), case.run(inputs), strict=True):
            if array.dtype.kind == "f" and array.size:
                wrong = outside(found.of(value), array)
                assert not wrong, (wrong, found.of(value), inputs, array)


@at_each_case
def test_what_is_not_lost_shows(op: Operator, example: Example) -> None:
    """Where it is a number although an input has none, that element must not count at all."""
    case = Case(op, example)
    for position in case.reals:
        if loses(case.node, position):
            continue
        for place in case.places(position):
            others = [case.run(case.planted(position, place, v)) for v in (0.625, 1.5, 3.25)]
            for value in SPECIAL:
                outputs = case.run(case.planted(position, place, value))
                for number, array in enumerate(outputs):
                    finite = np.isfinite(array.astype(np.float64))
                    for other in others:
                        plain = np.isfinite(other[number])
                        same = np.isclose(array, other[number], rtol=1e-5, atol=1e-6)
                        assert not (finite & plain & ~same).any(), (value, position, place)


@at_each_case
def test_what_does_not_decide_is_continuous(op: Operator, example: Example) -> None:
    """Just below and above what may be a threshold: 0, halves and integers, and other elements."""
    case = Case(op, example)
    for position in case.reals:
        if decides(case.node, position):
            continue
        array = case.base[f"x{position}"]
        own = [float(v) for v in array.reshape(-1)[:2]]
        signs = (1,) if position in POSITIVE.get(op.name, ()) else (1, -1)
        points = [0.0, *(s * v for s in signs for v in (0.5, 1.0, 1.5, 2.0, 3.0, 6.0)), *own]
        for place, point in itertools.product(case.places(position), points):

            def outputs(number: float) -> list[Array]:
                made = case.run(case.planted(position, place, number))  # noqa: B023
                return [array for array in made if array.dtype.kind == "f"]

            assert not leaps(outputs, point), (position, place, point)


# Operators that the registry does not describe ----------------------------------------------------


@cache
def suites() -> dict[str, list[Suite]]:
    """ONNX's test cases of single operators of which something is said, by the operator."""
    found: dict[str, list[Suite]] = {}
    for suite in node_models():
        nodes = suite.model.graph.node
        if len(nodes) == 1 and (kind_of(nodes[0].op_type) is not None or nodes[0].op_type == "Pad"):
            found.setdefault(nodes[0].op_type, []).append(suite)
    return found


NAMES = sorted({schema.name for schema in onnx.defs.get_all_schemas()})
OF_KIND = {kind: [name for name in NAMES if kind_of(name) is kind] for kind in Made}
STEADY = [name for name in NAMES if kind_of(name) and not decides_by(name, 0)]
RANDOM = frozenset({"Bernoulli", "RandomNormalLike", "RandomUniformLike", "Dropout"})
"""Operators of which two runs give two results."""


REDUCING = "reduction"
"""An attribute of operators that compute with elements then, and that the importer does not name to
the analysis, see `test_scattering_by_a_reduction_is_not_named`."""


def runs(op_type: str) -> Iterator[tuple[onnxruntime.InferenceSession, list[Array], Suite]]:
    """Sessions of an operator's test cases, with inputs of 32-bit floats among them."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    for suite in suites().get(op_type, ()):
        arrays = suite.data[0][0]
        (node,) = suite.model.graph.node
        if any(a.name == REDUCING and a.s != b"none" for a in node.attribute):
            continue
        if not any(isinstance(a, np.ndarray) and a.dtype == np.float32 for a in arrays):
            continue
        if any(not isinstance(a, np.ndarray) for a in arrays):
            continue
        try:
            session = onnxruntime.InferenceSession(
                suite.model.SerializeToString(), options, ["CPUExecutionProvider"]
            )
            session.run(
                None, dict(zip((i.name for i in session.get_inputs()), arrays, strict=True))
            )
        except Exception:
            continue
        yield session, [np.array(a) for a in arrays], suite


def run(session: onnxruntime.InferenceSession, arrays: Sequence[Array]) -> list[Array] | None:
    """The outputs; None where the kernel refuses these inputs."""
    feeds = dict(zip((i.name for i in session.get_inputs()), arrays, strict=True))
    try:
        found: Any = session.run(None, feeds)
    except Exception:
        return None
    return [np.asarray(a) for a in found]


def planted(arrays: Sequence[Array], number: int, place: int, value: float) -> list[Array]:
    """The arrays with one element replaced."""
    found = [array.copy() for array in arrays]
    found[number].reshape(-1)[place] = value
    return found


def spots(arrays: Sequence[Array], seed: str) -> Iterator[tuple[int, int]]:
    """Some elements of the arrays of 32-bit floats, as the array's number and the element's."""
    rng = random.Random(seed)
    for number, array in enumerate(arrays):
        if array.dtype == np.float32 and array.size:
            for place in rng.sample(range(array.size), min(array.size, 3)):
                yield number, place


def floats(arrays: Sequence[Array]) -> list[Array]:
    return [array for array in arrays if array.dtype == np.float32]


@pytest.mark.parametrize("name", OF_KIND[Made.ELEMENTS])
def test_what_gives_elements_gives_nothing_else(name: str) -> None:
    for session, arrays, suite in runs(name):
        for number, place in spots(arrays, suite.name):
            for value in (*SPECIAL, *EXTREME):
                given = planted(arrays, number, place, value)
                known = np.concatenate([a.reshape(-1) for a in floats(given)])
                for output in floats(run(session, given) or []):
                    own = np.isin(output, known) | (output == 0)
                    own |= (np.abs(output) == -LEAST) & np.isinf(known).any() & (name == "Clip")
                    own |= np.isnan(output) & np.isnan(known).any()
                    assert own.all(), (suite.name, number, value)


@pytest.mark.parametrize("name", sorted(MOVES))
def test_what_moves_elements_loses_none(name: str) -> None:
    for session, arrays, suite in runs(name):
        for number, place in spots(arrays, suite.name):
            plain = [run(session, planted(arrays, number, place, v)) for v in (0.625, 3.25)]
            for value in SPECIAL:
                odd = run(session, planted(arrays, number, place, value))
                for other in plain:
                    for a, b in zip(odd or [], other or [], strict=False):
                        if a.dtype == np.float32 and a.shape == b.shape:
                            assert not (np.isfinite(a) & np.isfinite(b) & (a != b)).any(), (
                                suite.name,
                                number,
                                value,
                            )


@pytest.mark.parametrize("name", OF_KIND[Made.SUMS])
def test_what_sums_numbers_gives_numbers(name: str) -> None:
    for session, arrays, suite in runs(name):
        for number, place in spots(arrays, suite.name):
            for value in (0.0, -0.0, 1.0, -1.0, 0.3, 1e4, -1e4, 1e-40):
                for output in floats(run(session, planted(arrays, number, place, value)) or []):
                    assert np.isfinite(output).all(), (suite.name, number, value)


@pytest.mark.parametrize("name", OF_KIND[Made.NUMBERS])
def test_what_gives_numbers_always_does(name: str) -> None:
    for session, arrays, suite in runs(name):
        for number, place in spots(arrays, suite.name):
            for value in (*SPECIAL, *EXTREME):
                for output in floats(run(session, planted(arrays, number, place, value)) or []):
                    assert np.isfinite(output).all(), (suite.name, number, value)


@pytest.mark.parametrize("name", [name for name in STEADY if name not in RANDOM])
def test_what_is_steady_is_continuous(name: str) -> None:
    for session, arrays, suite in runs(name):
        for number, place in spots(arrays, suite.name):
            if decides_by(name, number):
                continue
            own = float(arrays[number].reshape(-1)[place])
            for point in (own, 0.0, 0.5, 1.0, -0.5, -1.0, 2.5):
                assert not leaps(
                    lambda v: floats(run(session, planted(arrays, number, place, v)) or []),  # noqa: B023
                    point,
                ), (suite.name, number, point)


def test_scattering_by_a_reduction_is_not_named() -> None:
    for reduction, name in (("none", "ScatterElements"), ("max", "")):
        model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
            g (float[4] x, int64[2] i, float[2] u) => (float[4] y)
            {{ y = ScatterElements <reduction = "{reduction}"> (x, i, u) }}""")
        imported = import_model(ir.from_proto(onnx.shape_inference.infer_shapes(model)))
        assert [n.op.op_type for n in imported.graph.nodes if isinstance(n.op, Opaque)] == [name]


# Operators on elements ----------------------------------------------------------------------------

ELEMENTWISE = {
    f"{op.name} {example.attributes} {len(example.shapes)}": (op, example)
    for op, example in CASES
    if op.elementwise and all(sort == REAL for sort in sorts_of(op, example))
}
EXTENTS = (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 1000)


def is_even(op: Operator, example: Example) -> bool:
    """Whether an element is the same to the bit wherever it stands, and in any company."""
    drawn = np.random.default_rng(0).uniform(-4, 4, 2000).astype(np.float32).astype(np.float64)
    columns = [np.roll(drawn, 17 * k) for k in range(len(example.shapes))]

    def run_by(extent: int) -> Array:
        leaves = [leaf(f"x{k}", TensorType("FLOAT", (extent,))) for k in range(len(columns))]
        values, runtime = apply(op, leaves, example.attributes, dtype="FLOAT"), Runtime()
        return np.concatenate(
            [
                runtime(
                    values, {f"x{k}": c[at : at + extent] for k, c in enumerate(columns)}, FP32
                )[0]
                for at in range(0, len(drawn) - extent + 1, extent)
            ]
        )

    alone = run_by(1)
    return all(
        np.array_equal(found, alone[: len(found)], equal_nan=True) for found in map(run_by, EXTENTS)
    )


@at_each_example(list(ELEMENTWISE.values()))
def test_elements_are_computed_alike_wherever_they_stand(op: Operator, example: Example) -> None:
    """As rules take for granted that say that their sides agree to the bit.

    Which kernels do not is a matter of the processor's vectors, too.
    """
    assert op.name in UNEVEN or is_even(op, example)
