"""The numbers of a target by name: those that are measured, and may be stored.

A number is called as the field of `TargetModel`, with a key behind a dot: ``slow.Relu``. Of the
layout there are ``layout.block`` (0: there is none), ``layout.reorder``, ``layout.outside.Conv``.
Of ``cuts_off``, 1 stands for true and 0 for false. Units are those of the fields.
"""

from __future__ import annotations

import math
import statistics
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
    "cuts_off": (0.0, 1.0),
}
"""The least and the largest plausible value of a number."""
ALIKE = 1.5
"""Factor up to which a kernel counts as neither slower nor faster than by default. `Sum` was once
at 0.72 and `Add`, which is as bound by memory, at 0.92: with such numbers the search replaces one
by the other at each sum, which seems to gain at once, and finds nothing else."""
AS_FAST = 1.25
"""The same for what gets faster with the whole machine, once that is taken out. Eight calibrations
of one machine in a row gave bandwidths, and peaks of one operator, that differed by as much."""
FEWEST = 3
"""Peaks of which the middle one tells how fast a machine is."""
MOST = 2.0
"""Factor by which calls of which nothing was measured are slower or faster than by default: a GPU
computes a hundred times as fast, and launches its kernels no faster."""
ON_CODES = ".codes"
"""In the names of peaks of kernels on codes: these differ most between processors, and tell nothing
of how fast others are."""
BLOCKS = (8, 16)
"""Channels of a block in the runtime's layouts, the fewest first."""


def with_numbers(target: TargetModel, numbers: Mapping[str, float]) -> TargetModel:
    """`target` with measured numbers in the place of its own, as far as they differ beyond doubt.

    The whole machine is taken to be as many times as fast as the peaks are in the median. Numbers
    that are about what follows from that keep their ratios to the others (`shrunk`), and so do
    those that were not measured: no form of a graph becomes cheaper than another by noise.

    Raises ValueError where it has no number of that name, or a value is not plausible.
    """
    for name, value in numbers.items():
        if not is_sane(name, value):
            raise ValueError(f"{name} cannot be {value}")
    speed = _speed(target, numbers)
    scaled = _scaled(target, speed, numbers)
    changes: dict[str, Any] = {}
    layout: dict[str, float] = {}
    for name in numbers:
        field, _, key = name.partition(".")
        value = _believed(target, name, numbers[name], speed)
        if field == "layout":
            layout[key] = value
        elif value == default_of(scaled, name):
            continue
        elif key:
            changes.setdefault(field, dict(getattr(scaled, field)))[key] = value
        else:
            kind = type(getattr(target, field))
            changes[field] = kind(round(value)) if issubclass(kind, int) else value
    return replace(scaled, layout=_with_layout(target.layout, layout), **changes)


def _speed(target: TargetModel, numbers: Mapping[str, float]) -> float:
    """How many times as fast as by default a machine computes."""
    peaks = [name for name in numbers if name.startswith("peak.") and ON_CODES not in name]
    ratios = [numbers[name] / default_of(target, name) for name in peaks]
    return statistics.median(ratios) if len(ratios) >= FEWEST else 1.0


def _scaled(target: TargetModel, speed: float, numbers: Mapping[str, float]) -> TargetModel:
    """The numbers of `target` of which nothing was measured, on a machine of that speed."""

    def calls(name: str) -> float:
        factor = 1 / speed
        if name in numbers:
            factor = _believed(target, name, numbers[name], speed) / default_of(target, name)
        return min(max(factor, 1 / MOST), MOST)

    return replace(
        target,
        peak={name: value * speed for name, value in target.peak.items()},
        other_peak=target.other_peak * speed,
        bandwidth=target.bandwidth * speed,
        overhead=target.overhead * calls("overhead"),
        cold_overhead=target.cold_overhead * calls("overhead"),
        fused_overhead=target.fused_overhead * calls("overhead"),
        view_overhead=target.view_overhead * calls("view_overhead"),
        cold_view_overhead=target.cold_view_overhead * calls("view_overhead"),
        group_overhead=target.group_overhead * calls("overhead"),
    )


def _believed(target: TargetModel, name: str, value: float, speed: float) -> float:
    """A number as far as what was measured differs from what is to be expected."""
    if name in ("layout.block", "cuts_off"):
        return value
    expected, tolerance = default_of(target, name), AS_FAST
    if not expected:  # of a layout that the target does not have
        return value
    if name in ("overhead", "view_overhead", "group_overhead"):
        expected /= speed
    elif name == "bandwidth" or name.startswith("peak."):
        expected *= speed
    else:
        tolerance = ALIKE
    return expected * shrunk(value / expected, tolerance)


def shrunk(ratio: float, tolerance: float) -> float:
    """A ratio of what was measured to what was expected, less what may be noise.

    It is 1 up to a factor of `tolerance`, itself from the square of that on, and in between grows
    from the one to the other, so that a little more or less changes little: firm shrinkage of its
    logarithm (Gao and Bruce, WaveShrink with firm shrinkage, Statistica Sinica 1997).
    """
    size, least = abs(math.log(ratio)), math.log(tolerance)
    if size >= 2 * least:
        return ratio
    return math.exp(math.copysign(max(0.0, 2 * (size - least)), math.log(ratio)))


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


def is_of_codes(name: str) -> bool:
    """Whether a number is the peak of a kernel on codes or integers."""
    return ON_CODES in name or "Integer" in name


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
