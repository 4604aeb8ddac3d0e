"""Counterexamples as ONNX models, for a person to run in ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xflow.core.errors import OutputError, ShapeError
from xflow.core.fold import numpy_dtype
from xflow.core.graph import Graph, walk
from xflow.core.node import Leaf, TensorType, Value, apply, leaf
from xflow.core.registry import Operator
from xflow.core.sorts import BOOL, CODE, INT, REAL, integer_range
from xflow.onnx.region import region_model
from xflow.onnx.writer import UnwritableError
from xflow.verifier.proof.code_types import typings
from xflow.verifier.refutation.counterexample import (
    Counterexample,
    read_expression,
    sort_of_array,
)

OPSETS = (20, 23, 24)
"""Opsets in the order in which they are tried; some operators need a late one."""

RUN = '''\
"""Runs both sides of a refuted rule in ONNX Runtime and prints where they differ."""
import pathlib
import sys

import numpy as np
import onnxruntime as ort

here = pathlib.Path(__file__).parent
inputs = dict(np.load(here / "inputs.npz"))
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
sides = []
for name in ("left", "right"):
    session = ort.InferenceSession(here / f"{name}.onnx", options, ["CPUExecutionProvider"])
    sides.append(session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()}))
differ = False
for number, (a, b) in enumerate(zip(*sides)):
    print(f"output {number}\\nleft  {a.tolist()}\\nright {b.tolist()}")
    same = a.shape == b.shape and np.isclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True).all()
    differ = differ or not same
print("the sides differ" if differ else "the sides agree here")
sys.exit(0 if differ else 1)
'''
"""The program that is written beside the models; its exit code is 0 if the sides differ."""


@dataclass(frozen=True)
class Saved:
    """The files that were written to a folder."""

    files: tuple[str, ...]
    confirmed: bool
    """ONNX Runtime gives different outputs."""
    remarks: tuple[str, ...]
    """Why something is missing, or was not confirmed."""


def save_counterexample(found: Counterexample, folder: Path) -> Saved:
    """Write both sides, the inputs and a program that runs them; the folder is made.

    In float32, and in float64 where the sides do not differ in float32. Raises OutputError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        saved = _save(found, folder, "FLOAT")
        if not saved.confirmed and not saved.remarks:
            double = _save(found, folder, "DOUBLE")
            saved = double if double.confirmed else _save(found, folder, "FLOAT")
            if not saved.confirmed:
                remark = "ONNX Runtime, which rounds and skips factors of zero, sees no difference"
                saved = Saved(saved.files, False, (remark,))
    except OSError as error:
        raise OutputError(f"it cannot be written: {error.strerror}", str(folder)) from error
    return saved


def _save(found: Counterexample, folder: Path, real: str) -> Saved:
    elements = {REAL: real, INT: "INT64", CODE: "UINT8", BOOL: "BOOL"}
    remarks: list[str] = []
    files = ["inputs.npz"]
    codes = _types_of_codes(found)
    types = {
        name: codes.get(name, elements[sort_of_array(array)])
        for name, array in found.inputs.items()
    }
    inputs = {name: array.astype(numpy_dtype(types[name])) for name, array in found.inputs.items()}
    np.savez(folder / "inputs.npz", allow_pickle=False, **inputs)
    sides = {"left": found.left}
    if found.right_outputs is None:
        remarks.append(f"there is no right.onnx: {found.reason}")
    else:
        sides["right"] = found.right
    for name, expression in sides.items():
        path = folder / f"{name}.onnx"
        path.unlink(missing_ok=True)
        try:
            values = _typed(read_expression(expression, found.inputs), elements, types)
            path.write_bytes(_model(values))
            files.append(path.name)
        except (UnwritableError, ShapeError) as error:  # codes may need to be of two types
            remarks.append(f"there is no {path.name}: {error}")
    program = folder / "run.py"
    program.unlink(missing_ok=True)
    if {"left.onnx", "right.onnx"} <= set(files):
        program.write_text(RUN)
        files.append(program.name)
        done = subprocess.run(
            [sys.executable, str(program)], capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1) or "Traceback" in done.stderr:
            said = done.stderr.strip().splitlines()
            remarks.append(f"ONNX Runtime does not run it: {said[-1] if said else 'it crashed'}")
        return Saved(tuple(files), done.returncode == 0, tuple(remarks))
    return Saved(tuple(files), False, tuple(remarks))


def _model(values: Sequence[Value]) -> bytes:
    """The model of these outputs at the oldest opset that has it. Raises UnwritableError."""
    for opset in OPSETS[:-1]:
        try:
            return region_model(Graph(tuple(values)), lambda _: None, opset=opset)
        except UnwritableError:
            continue
    return region_model(Graph(tuple(values)), lambda _: None, opset=OPSETS[-1])


def _types_of_codes(found: Counterexample) -> Mapping[str, str]:
    """Types for the inputs of codes, for which both sides are defined and which hold the data.

    Empty where there are none.
    """
    try:
        values = [
            value
            for side in (found.left, found.right)
            for value in read_expression(side, found.inputs)
        ]
    except ShapeError:  # the right side is not defined there
        values = list(read_expression(found.left, found.inputs))
    for chosen in typings(values):
        spans = {name: (found.inputs[name], *integer_range(chosen[name])) for name in chosen}
        if all(((low <= array) & (array <= high)).all() for array, low, high in spans.values()):
            return chosen
    return {}


def _typed(
    values: Sequence[Value], elements: Mapping[str, str], types: Mapping[str, str]
) -> list[Value]:
    """`values` with ONNX element types for the sorts of rules, and `types` for the inputs."""
    done: dict[Value, Value] = {}
    for node in walk(values):
        dtype = elements.get(node.types[0].dtype, node.types[0].dtype)
        if isinstance(node.op, Leaf):
            kind = TensorType(types[node.op.key], node.types[0].shape)
            made: tuple[Value, ...] = (leaf(node.op.key, kind),)
        else:
            assert isinstance(node.op, Operator)
            sources = [done[source] for source in node.inputs]
            attributes = dict(node.attributes)
            if attributes.get("to") == REAL:
                attributes["to"] = elements[REAL]
            made = apply(node.op, sources, attributes, dtype=dtype)
        done.update(zip(node.outputs, made, strict=True))
    return [done[value] for value in values]
