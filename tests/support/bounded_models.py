"""Random models on a constant table, of which every value is an output, to test ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

N = 4
TYPES: tuple[type[np.floating[Any]], ...] = (np.float32, np.float64)
"""Not 16 bits: ONNX Runtime's CPU kernels keep 32 between operators, and overflow later."""
UNARY = (
    *("Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Erf", "Sqrt", "Log", "Reciprocal", "Floor"),
    *("Ceil", "Sign", "Softplus", "Elu", "HardSigmoid", "LeakyRelu", "Identity", "Softsign", "Sin"),
    *("Cos", "Selu", "Gelu"),
)
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp", "ReduceL2")
CONSTANTS = (0.5, 2.0, 3.0, -1.0, 0.0, 100.0, 1e-3, 1e4, 1e-6)
SPECIAL = (0.0, -np.inf, np.inf, 1.0, -1.0, np.nan)


def bounded_model(seed: int) -> onnx.ModelProto:
    """A model of up to seven operators, or groups of them, on a table [4, 4] with odd elements."""
    random = np.random.default_rng(seed)
    dtype = TYPES[seed % len(TYPES)]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"], axis=0)]
    names = ["x"]
    for number in range(int(random.integers(2, 8))):
        output = f"v{number}"
        nodes += _operators(random, names, output)
        names.append(output)
    outputs = [name for node in nodes for name in node.output]
    read = {name for node in nodes for name in node.input}
    constants = {name: array for name, array in _constants(random, dtype).items() if name in read}
    graph = helper.make_graph(
        nodes,
        "bounded",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [N])],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def _constants(
    random: np.random.Generator, dtype: type[np.floating[Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    table = random.standard_normal((N, N)) * 10.0 ** random.integers(-3, 12)
    for _ in range(int(random.integers(0, 3))):
        table[random.integers(N), random.integers(N)] = random.choice(SPECIAL)
    low = random.choice([-np.inf, float(np.finfo(dtype).min), -1e4])
    known = {
        "table": table,
        "c": np.asarray(random.choice(CONSTANTS)),
        "w": random.standard_normal((N, N)) * 10.0 ** random.integers(-2, 3),
        "mask": np.where(random.random((N, N)) < 0.5, 0, low),
        "gain": np.abs(random.standard_normal(N)),
        "bias": random.standard_normal(N),
        **{name: np.asarray(value) for name, value in EXPONENTS.items()},
        "epsilon": np.asarray(1e-5),
    }
    made = {name: array.astype(dtype) for name, array in known.items()}
    return {**made, "axes": np.asarray([1])}


EXPONENTS = {"half": 0.5, "two": 2.0, "three": 3.0}


def _operators(random: np.random.Generator, names: list[str], output: str) -> list[onnx.NodeProto]:
    """One operator, or some that stand together in models, on values so far."""

    def make(op: str, inputs: list[str], name: str = output, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [name], **attributes)

    a, b = str(random.choice(names)), str(random.choice([*names, "c", "w", "mask"]))
    match int(random.integers(12)):
        case 0 | 1:
            return [make(str(random.choice(UNARY)), [a])]
        case 2 | 3:
            order = [a, b] if random.random() < 0.5 else [b, a]
            return [make(str(random.choice(BINARY)), order)]
        case 4:
            return [make("MatMul", [a, str(random.choice([*names, "w"]))])]
        case 5:
            return [make("Softmax", [a], axis=int(random.integers(2)))]
        case 6:
            return [make(str(random.choice(REDUCTIONS)), [a, "axes"], keepdims=1)]
        case 7:
            return [make("Pow", [a, str(random.choice(list(EXPONENTS)))])]
        case 8:
            tested = make("Less", [a, "c"], f"{output}.less")
            return [tested, make("Where", [f"{output}.less", a, b])]
        case 9:
            tested = make("IsNaN", [a], f"{output}.nan")
            return [tested, make("Where", [f"{output}.nan", "half", a])]
        case 10:
            steps = [f"{output}.{step}" for step in ("square", "mean", "more", "root")]
            square, mean, more, root = steps
            return [
                make("Mul", [a, a], square),
                make("ReduceMean", [square, "axes"], mean, keepdims=1),
                make("Add", [mean, "epsilon"], more),
                make("Sqrt", [more], root),
                make("Div", [a, root]),
            ]
        case _:
            return [
                [make("LayerNormalization", [a, "gain", "bias"], axis=-1)],
                [make("Transpose", [a], perm=[1, 0])],
                [make("Clip", [a, "", "three"])],
                [make("Clip", [a, "half", "three"])],
                [make("Sum", [a, b, a])],
                [make("Mean", [a, b, a])],
            ][int(random.integers(6))]
