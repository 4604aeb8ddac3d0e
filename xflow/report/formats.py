"""Amounts, durations and shapes as a report shows them."""

from collections.abc import Mapping, Sequence

from xflow.cost import Objective


def format_amount(amount: float, objective: Objective) -> str:
    """Return what an objective counts with its unit; seconds for latency."""
    if objective == "latency":
        return format_seconds(amount)
    if objective == "nodes":
        return f"{amount:.0f}"
    for unit in ("B", "KiB", "MiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.2f} {unit}"
        amount /= 1024
    return f"{amount:.2f} GiB"


def format_shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    """Return the shapes of inputs as the command line takes them."""
    return " ".join(f"{name}:{','.join(map(str, sizes))}" for name, sizes in shapes.items())


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that leaves one to three digits before the point."""
    unit, scale = unit_of(seconds)
    return f"{seconds * scale:.2f} {unit}"


def unit_of(seconds: float) -> tuple[str, float]:
    """Return the unit that suits a duration, and how many of it make one second."""
    if abs(seconds) >= 1:
        return "s", 1.0
    if abs(seconds) >= 1e-3:
        return "ms", 1e3
    return "us", 1e6


def percent(share: float) -> str:
    """Return a share, 0 to 1, as a text."""
    return f"{round(100 * share)} %"
