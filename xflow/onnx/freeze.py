"""Weights that are also inputs of the model, which a caller may replace: made constants.

Exporters of years ago listed every weight among the inputs, because IR versions before 4 demanded
it. In a later one, ONNX Runtime takes such a weight for something that changes from call to call,
and neither folds nor fuses it. Whoever does give weights to the model at run time can keep them.
"""

from __future__ import annotations

import onnx_ir as ir

from xflow.onnx.copying import copy_meta

CONSTANTS = 4
"""The IR version from which on an initializer need not be an input."""

SHOWN = 3


def overridable(model: ir.Model) -> tuple[str, ...]:
    """The names of the model's inputs that have a value of their own."""
    graph = model.graph
    return tuple(value.name or "" for value in graph.inputs if value.name in graph.initializers)


def frozen(model: ir.Model) -> ir.Model:
    """The model with its overridable inputs as constants; itself if it has none.

    Weights are shared with `model`, which is not changed.
    """
    names = frozenset(overridable(model))
    if not names:
        return model
    copy = model.clone()
    copy_meta(model, copy)
    kept = [value for value in copy.graph.inputs if value.name not in names]
    copy.graph.inputs.clear()
    copy.graph.inputs.extend(kept)
    copy.ir_version = max(copy.ir_version, CONSTANTS)
    return copy


def listed(names: tuple[str, ...]) -> str:
    """The first few of several names."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
