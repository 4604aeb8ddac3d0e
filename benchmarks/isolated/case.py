"""A case of the isolated graphs: a graph as exporters emit it, and a better one written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx

from isolated.expression import Operand, Tensor, Variable, Weight, model, variables

OPSET = 20


@dataclass(frozen=True)
class Sizes:
    """The sizes of the tensors in the graphs, those of usual models."""

    tokens: int = 128
    width: int = 768
    hidden: int = 3072
    heads: int = 12
    channels: int = 64
    side: int = 56
    image: int = 224


SMALL = Sizes(tokens=5, width=8, hidden=12, heads=2, channels=6, side=8, image=16)
"""Sizes for tests: the equations do not depend on them."""


class Draw:
    """Makes the inputs and the random weights of one case, named in order."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._random = np.random.default_rng(0)
        self._inputs = 0
        self._weights = 0

    def input(self, *shape: int) -> Tensor:
        """A new input."""
        self._inputs += 1
        return Tensor(Variable(f"x{self._inputs - 1}", shape))

    def weight(self, *shape: int, positive: bool = False) -> Tensor:
        """New weights, normally distributed, or between 0.5 and 1.5; small where many are added."""
        if positive:
            values = self._random.uniform(0.5, 1.5, shape)
        else:
            values = self._random.standard_normal(shape)
            if len(shape) > 1:
                values /= math.sqrt(math.prod(shape) // max(shape[0], shape[-1]))
        self._weights += 1
        return Tensor(Weight(f"w{self._weights - 1}", values.astype(np.float32)))

    @property
    def tokens(self) -> Tensor:
        """A new input [1, tokens, width], as between the blocks of a transformer."""
        return self.input(1, self.sizes.tokens, self.sizes.width)

    @property
    def inner(self) -> Tensor:
        """A new input [1, tokens, hidden], as within the second part of such a block."""
        return self.input(1, self.sizes.tokens, self.sizes.hidden)

    @property
    def scores(self) -> Tensor:
        """A new input [1, heads, tokens, tokens]."""
        return self.input(1, self.sizes.heads, self.sizes.tokens, self.sizes.tokens)

    @property
    def planes(self) -> Tensor:
        """A new input [1, channels, side, side], as in a convolution net."""
        return self.input(1, self.sizes.channels, self.sizes.side, self.sizes.side)


Outputs: TypeAlias = Tensor | tuple[Tensor, ...]
Builder: TypeAlias = Callable[[Draw], tuple[Outputs, Outputs]]
"""Gives the plain form and the one made by hand, over the same inputs and weights."""


@dataclass(frozen=True)
class Case:
    """One pair of graphs. `item` says which rewrite it is an example of."""

    name: str
    item: str
    build: Builder
    opset: int = OPSET

    def models(self, sizes: Sizes | None = None) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """The plain model and the one made by hand."""
        plain, by_hand = map(_tuple, self.build(Draw(sizes or Sizes())))
        inputs = variables((*plain, *by_hand))
        return model(plain, inputs, self.opset), model(by_hand, inputs, self.opset)


def _tuple(outputs: Outputs) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else outputs


CASES: dict[str, Case] = {}
"""All cases by name, in the order of their declaration."""


def case(item: str, *, opset: int = OPSET) -> Callable[[Builder], Builder]:
    """Declare a case, named as the function that builds it."""

    def declare(build: Builder) -> Builder:
        name = build.__name__.replace("_", "-")
        assert name not in CASES, f"two cases called {name}"
        CASES[name] = Case(name, item, build, opset)
        return build

    return declare


def constant(values: Any, kind: type[np.generic] = np.float32) -> Operand:
    """A constant of any shape and element type."""
    return np.asarray(values, kind)
