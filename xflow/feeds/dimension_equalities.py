"""Dimensions of inputs that must agree with others, as a mask as long as past and new tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from xflow.core.errors import ModelError
from xflow.core.size import Size, coefficient_of, free_symbols
from xflow.feeds.inputs import Shapes, default_shapes
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.interface import required_inputs
from xflow.onnx.types import interface


def with_ties(imported: Imported, shapes: Shapes) -> Shapes:
    """The given shapes, and those of inputs whose default sizes would not agree with the others.

    A dimension is tied where an operator requires it to be a sum or product of others.
    Inputs that are given a shape keep it. Raises what `default_shapes` raises.
    """
    ties = _ties(imported)
    proto = interface(imported.model)
    tied = set()
    for item in required_inputs(proto):
        for dim in item.type.tensor_type.shape.dim:
            if dim.dim_param in ties and item.name not in shapes:
                dim.dim_param = ties[dim.dim_param]
                tied.add(item.name)
    if not tied:
        return shapes
    chosen = default_shapes(proto, shapes)
    return {**shapes, **{name: chosen[name] for name in tied}}


def tied_settings(model: ir.Model, settings: Sequence[Shapes]) -> Sequence[Shapes]:
    """The settings of the input shapes `with_ties`; unchanged if the import fails."""
    try:
        imported = import_model(model)
    except ModelError:
        return settings
    return [with_ties(imported, shapes) for shapes in settings]


def _ties(imported: Imported) -> Mapping[str, str]:
    """Dimensions of inputs by name, each with the expression over others that it must equal."""
    names = {}
    for item in required_inputs(interface(imported.model)):
        for dim in item.type.tensor_type.shape.dim:
            if re.fullmatch(r"\w+", dim.dim_param):
                names[imported.names.of_dimension[dim.dim_param]] = dim.dim_param
    found: dict[str, str] = {}
    used: set[str] = set()
    for difference in imported.equations:
        if not free_symbols(difference) <= set(names):
            continue
        for symbol in sorted(free_symbols(difference)):
            value = _solved(difference, symbol)
            taken = {names[each] for each in free_symbols(value)} if value is not None else set()
            name = names[symbol]
            if value is None or name in found or name in used or taken & set(found):
                continue
            found[name] = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), str(value))
            used |= taken
            break
    return found


def _solved(difference: Size, symbol: str) -> Size | None:
    """The value of a symbol where the difference is 0, if that is a sum of positive terms."""
    linear = coefficient_of(difference, symbol)
    if linear is None or linear[0] not in (1, -1):
        return None
    value = -linear[0] * linear[1]
    return None if "-" in str(value) or value == 0 else value
