"""The numbers of a target by name: those that are measured, and may be stored.

A number is called as the field of `TargetModel`, with a key behind a dot: ``slow.Relu``. Of the
layout there are ``layout.block`` (0: there is none), ``layout.reorder``, ``layout.outside.Conv``.
Units are those of the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xflow.cost.target import Layout, TargetModel

SANE: Mapping[str, tuple[float, float]] = {
    "overhead": (1e-8, 1e-3),
    "view_overhead": (1e-9, 1e-3),
    "bandwidth": (1e8, 1e14),
    "peak": (1e8, 1e16),
    "slow": (0.05, 500.0),
    "full_channels": (1.0, 128.0),
    "group_overhead": (1e-9, 1e-2),
    "layout.reorder": (0.2, 50.0),
    "layout.outside": (0.5, 200.0),
}
"""The least and the largest plausible value of a number."""
ALIKE = 1.5
"""Factor up to which a kernel counts as neither slower nor faster than by default. `Sum` was once
at 0.72 and `Add`, which is as bound by memory, at 0.92: with such numbers the search replaces one
by the other at each sum, which seems to gain at once, and finds nothing else."""
BLOCKS = (8, 16)
"""Channels of a block in the runtime's layouts, the fewest first."""


def with_numbers(target: TargetModel, numbers: Mapping[str, float]) -> TargetModel:
    """`target` with numbers replaced, but for kernels that are about as slow as by default.

    Raises ValueError where it has no number of that name, or a value is not plausible.
    """
    changes: dict[str, Any] = {}
    layout: dict[str, float] = {}
    for name, value in numbers.items():
        if not is_sane(name, value):
            raise ValueError(f"{name} cannot be {value}")
        field, _, key = name.partition(".")
        if field == "layout":
            layout[key] = value
        elif field == "slow" and is_alike(default_of(target, name), value):
            continue
        elif key:
            changes.setdefault(field, dict(getattr(target, field)))[key] = value
        else:
            integral = isinstance(getattr(target, field), int)
            changes[field] = round(value) if integral else value
    return replace(target, layout=_with_layout(target.layout, layout), **changes)


def _with_layout(layout: Layout | None, numbers: Mapping[str, float]) -> Layout | None:
    block = numbers.get("block", 0 if layout is None else layout.block)
    if not block:
        return None
    layout = layout or Layout()
    outside = {
        key.partition(".")[2]: value for key, value in numbers.items() if key.startswith("outside.")
    }
    return replace(
        layout,
        block=round(block),
        reorder=numbers.get("reorder", layout.reorder),
        outside={**layout.outside, **outside},
    )


def is_alike(default: float, value: float) -> bool:
    """Whether a kernel counts as no slower and no faster than by default."""
    return 1 / ALIKE < value / default < ALIKE


def is_sane(name: str, value: float) -> bool:
    """Whether a value is plausible for a number."""
    if name == "layout.block":
        return value in (0, *BLOCKS)
    ranges = [span for known, span in SANE.items() if f"{name}.".startswith(f"{known}.")]
    return bool(ranges) and ranges[0][0] <= value <= ranges[0][1]


def default_of(target: TargetModel, name: str) -> float:
    """The value of a number in `target`."""
    field, _, key = name.partition(".")
    if field in ("slow", "peak"):
        found: Mapping[str, float] = getattr(target, field)
        return found.get(key, 1.0 if field == "slow" else target.other_peak)
    if field != "layout":
        return float(getattr(target, name))
    layout = target.layout
    if layout is None:
        return 0.0
    if key in ("block", "reorder"):
        return float(getattr(layout, key))
    return layout.outside.get(key.partition(".")[2], 1.0)
