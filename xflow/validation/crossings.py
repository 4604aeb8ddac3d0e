"""Inputs at which values that are computed from all of an input cross constants of a model.

A sum or a product with weights is compared with a constant, and no element of the input alone
decides how. The input is scaled as a whole instead: how the compared value grows with it is seen
from a few runs, and from that the factor with which the value comes to lie on each side of the
constants, and between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from xflow.feeds.edge_cases import InputSet
from xflow.onnx.nodes import COMPARISONS

WHAT = "values computed from sums around the model's constants"
"""What these inputs are called."""
MOST_COMPARED = 4
"""Compared values that are aimed at."""
MOST_AIMS = 12
"""Values that each of them is to have."""
MOST_SCALED = 2
"""Inputs that are scaled, one after the other."""
STEPS = 3
"""How often a factor is corrected, where the value is not proportional to it."""
BESIDE = 1e-3
"""How far from a constant, relative to it, values are to lie."""
CLOSE = 1e-4
"""An error of a value, relative to it, that needs no correction."""
FACTORS = (1e-3, 1e3)
"""The least and the largest magnitude of factors; others make extreme inputs."""

Run = Callable[[ModelProto, Sequence[InputSet]], Sequence[Mapping[str, np.ndarray] | None]]
"""Runs a model on sets of inputs; None for one on which it fails."""


def compares(model: ModelProto) -> dict[str, np.ndarray]:
    """The values that a model compares with numbers, with these, in increasing order."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    given = {item.name for item in model.graph.input}
    found: dict[str, np.ndarray] = {}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    for node in model.graph.node:
        if node.op_type in COMPARISONS and len(node.input) == 2:
            for name, other in (node.input, reversed(node.input)):
                tensor = constants.get(other)
                if tensor is None or name in constants or name in given:
                    continue
                if np.prod(tensor.dims) <= MOST_AIMS and not tensor.external_data:
                    values = numpy_helper.to_array(tensor).reshape(-1)
                    if values.dtype.kind == "f":
                        known = found.get(name, np.zeros(0))
                        found[name] = np.union1d(known, values[np.isfinite(values)])
    return dict(list(found.items())[:MOST_COMPARED])


def crossings(model: ModelProto, base: InputSet, names: Sequence[str], run: Run) -> list[InputSet]:
    """Inputs like `base`, but for a factor of one of the inputs `names`, see the module.

    `model` holds its weights.
    """
    compared = compares(model)
    names = [name for name in names if name in base.values][:MOST_SCALED]
    if not compared or not names:
        return []
    whole = _with_outputs(model, list(compared))

    def values_at(factors: Sequence[tuple[str, float]]) -> list[Mapping[str, np.ndarray] | None]:
        found = run(whole, [_scaled(base, name, factor) for name, factor in factors])
        return [*found, *[None] * (len(factors) - len(found))]

    ends = values_at([(name, factor) for name in names for factor in (0.0, 1.0)])
    aims: list[_Aim] = []
    for name, zero, one in zip(names, ends[::2], ends[1::2], strict=True):
        if zero is not None and one is not None:
            for tensor, constants in compared.items():
                aims += _aims(name, tensor, constants, zero[tensor], one[tensor])
    for _ in range(STEPS):
        left = [number for number, aim in enumerate(aims) if not aim.reached]
        if not left:
            break
        seen = values_at([(aims[number].name, aims[number].factor) for number in left])
        for number, values in zip(left, seen, strict=True):
            aims[number] = aims[number].corrected(values)
    usable = [aim for aim in aims if FACTORS[0] <= abs(aim.factor) <= FACTORS[1]]
    factors = dict.fromkeys((aim.name, aim.factor) for aim in usable)
    return [_scaled(base, name, factor) for name, factor in factors]


@dataclass(frozen=True)
class _Aim:
    """A factor of the input `name` with which an element of a tensor is to have the value `wanted`.

    `before` is another factor, and the element's value with it.
    """

    name: str
    tensor: str
    place: int
    wanted: float
    factor: float
    before: tuple[float, float]
    reached: bool = False

    def corrected(self, values: Mapping[str, np.ndarray] | None) -> _Aim:
        """The aim with a factor by the secant through two values, unless the value is reached."""
        seen = np.nan if values is None else float(values[self.tensor].reshape(-1)[self.place])
        error = self.wanted - seen
        factor, value = self.before
        if not np.isfinite(error) or abs(error) <= CLOSE * abs(self.wanted) or seen == value:
            return replace(self, reached=True)
        moved = self.factor + error * (self.factor - factor) / (seen - value)
        return replace(self, factor=moved, before=(self.factor, seen))


def _aims(
    name: str, tensor: str, constants: np.ndarray, zero: np.ndarray, one: np.ndarray
) -> list[_Aim]:
    """The aims for one tensor, by its values without an input and with it as it is.

    Of all elements, the one is taken for which the factor is nearest to 1.
    """
    if one.shape != zero.shape or one.dtype.kind != "f" or not one.size:
        return []
    least, first = (each.astype(np.float64).reshape(-1) for each in (zero, one))
    wanted = [(a + b) / 2 for a, b in pairwise(constants)]
    wanted += [value * (1 + side) for value in constants for side in (BESIDE, -BESIDE)]
    found = []
    for value in map(float, wanted[:MOST_AIMS]):
        with np.errstate(all="ignore"):
            factors = (value - least) / (first - least)
            far = np.abs(np.log(np.abs(factors)))
        place = int(np.argmin(np.where(np.isfinite(far), far, np.inf)))
        if np.isfinite(far[place]):
            end = 0.0 if factors[place] == 1 else 1.0
            known = end, float((first if end else least)[place])
            found.append(_Aim(name, tensor, place, value, float(factors[place]), known))
    return found


def _scaled(base: InputSet, name: str, factor: float) -> InputSet:
    value = base.values[name]
    with np.errstate(over="ignore", invalid="ignore"):  # such are inputs as well
        scaled = np.asarray(value.astype(np.float64) * factor).astype(value.dtype)
    return replace(base, what=WHAT, values={**base.values, name: scaled}, ordinary=False)


def _with_outputs(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """The model with further outputs."""
    whole = ModelProto()
    whole.CopyFrom(model)
    known = {item.name for item in model.graph.output}
    whole.graph.output.extend(
        helper.make_empty_tensor_value_info(name) for name in names if name not in known
    )
    return whole
