"""Dimensions of inputs that must agree with others, as a mask as long as past and new tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir
from onnx import ValueInfoProto

from xflow.core.errors import ModelError
from xflow.core.size import free_symbols, solved
from xflow.feeds.inputs import OPEN, Shapes, default_shapes
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.interface import required_inputs
from xflow.onnx.types import interface

CACHE = re.compile(r"past|cache", re.IGNORECASE)
TOKENS = re.compile(r"^(decoder_)?(input_ids|inputs_embeds|position_ids|tokens?)$", re.IGNORECASE)
MASK = re.compile(r"^(decoder_)?(attention|attn)_?mask$", re.IGNORECASE)
"""Names of inputs of decoders by what they hold."""


def with_ties(imported: Imported, given: Shapes) -> Shapes:
    """The given shapes, and those of inputs whose default sizes would not agree with the others.

    A dimension is tied where an operator requires it to be a sum or product of others, and that of
    an attention mask where names of inputs tell that there are caches.
    Inputs that are given a shape keep it. Raises what `default_shapes` raises.
    """
    proto = interface(imported.model)
    inputs = required_inputs(proto)
    ties = {**_of_masks(inputs), **_ties(imported, inputs)}
    tied = set()
    for item in inputs:
        for dim in item.type.tensor_type.shape.dim:
            tie = ties.get(dim.dim_param)
            if isinstance(tie, str) and item.name not in given:
                dim.dim_param = tie
                tied.add(item.name)
    if not tied:
        return given
    chosen = default_shapes(proto, given)
    return {**given, **{name: chosen[name] for name in tied}}


def with_numbers(imported: Imported, given: Shapes) -> Shapes:
    """The given shapes, and those of inputs with dimensions that operators want to be numbers.

    All others of their dimensions are `OPEN`. An export by tracing has the sizes of its example in
    the targets of some Reshapes, whatever it declares, and an LSTM has weights for so many
    features. That is good enough to feed a model that does not run at the default sizes, and for
    nothing else: the runtime puts -1 into some targets, and runs at other sizes, too.
    A dimension of the same name as one of a given shape has its size.
    """
    inputs = required_inputs(interface(imported.model))
    ties = _ties(imported, inputs)
    numbers = {name: tie for name, tie in ties.items() if isinstance(tie, int)}
    taken = {name for item in inputs if item.name in given for name in _names(item)}
    found = dict(given)
    for item in inputs:
        sizes = tuple(OPEN if name in taken else numbers.get(name, OPEN) for name in _names(item))
        if item.name not in given and any(size != OPEN for size in sizes):
            found[item.name] = sizes
    return found


def fitting(imported: Imported, given: Shapes, runs: Callable[[Shapes], bool]) -> Shapes:
    """The given shapes `with_ties`, and `with_numbers` if the model runs with these alone.

    `runs` says whether it does at some sizes of what stays free.
    """
    tied, numbers = with_ties(imported, given), with_numbers(imported, given)
    if numbers == given or runs(tied):
        return tied
    likely = with_ties(imported, numbers)
    return likely if runs(likely) else tied


def fitting_settings(
    model: ir.Model,
    settings: Sequence[Shapes],
    runs: Callable[[Shapes], bool],
    *,
    sized: bool,
) -> Sequence[Shapes]:
    """The settings of the input shapes as `fitting` has them; unchanged if the import fails.

    So are settings without any shape where real inputs have theirs, if the model is `sized`.
    """
    try:
        imported = import_model(model)
    except ModelError:
        return settings
    return [
        shapes if sized and not shapes else fitting(imported, shapes, runs) for shapes in settings
    ]


def _of_masks(inputs: Sequence[ValueInfoProto]) -> Mapping[str, str]:
    """The length of the attention mask of a decoder with caches, as past and new tokens together.

    Its name is that of no other dimension, and an exporter often does not say what it is. What the
    caches, the tokens and the mask are, the names tell that most exporters give to inputs.
    """
    past = {name for item in inputs if CACHE.search(item.name) for name in _names(item)[2:] if name}
    new = {
        name for item in inputs if TOKENS.search(item.name) for name in _names(item)[1:2] if name
    }
    masks = [item for item in inputs if MASK.search(item.name)]
    others = {n for item in inputs if item not in masks for n in _names(item)}
    totals = {_names(item)[-1] for item in masks if _names(item)} - others
    if not len(past) == len(new) == 1 or past == new:
        return {}
    return {name: f"{min(past)} + {min(new)}" for name in totals if re.fullmatch(r"\w+", name)}


def _names(item: ValueInfoProto) -> list[str]:
    """The names of a tensor's dimensions, empty where there is none."""
    return [dim.dim_param for dim in item.type.tensor_type.shape.dim]


def _ties(imported: Imported, inputs: Sequence[ValueInfoProto]) -> Mapping[str, str | int]:
    """Dimensions of inputs by name, each with the number, or expression over others, that it is."""
    names = {}
    for item in inputs:
        for dim in item.type.tensor_type.shape.dim:
            own = imported.names.of_dimension.get(dim.dim_param)
            if own is not None and re.fullmatch(r"\w+", dim.dim_param):
                names[own] = dim.dim_param
    found: dict[str, str | int] = {}
    used: set[str] = set()
    for difference in imported.equations:
        if not free_symbols(difference) <= set(names):
            continue
        for symbol in sorted(free_symbols(difference)):
            value, _ = solved(difference, symbol) or (None, 0)
            taken = {names[each] for each in free_symbols(value)} if value is not None else set()
            name = names[symbol]
            if value is None or name in found or name in used or taken & set(found):
                continue
            if isinstance(value, int):
                found[name] = value
            else:
                found[name] = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), str(value))
            used |= taken
            break
    return found
