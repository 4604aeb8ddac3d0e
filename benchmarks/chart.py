"""Draws the benchmark's chart: the speedup of each model by each tool."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from tables import Row

MARKERS = "oDsv^P<>X"
ROW_INCHES = 0.42
SPREAD = 0.6
"""The part of a row's height over which the tools are spread."""


def draw(rows: Sequence[Row], tools: Sequence[str], title: str, target: Path) -> bool:
    """Write the chart as SVG, the same bytes for the same figures.

    Returns False, and writes nothing, where matplotlib is not installed: it comes with the extra
    of the peers.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib as mpl  # noqa: PLC0415 - takes a second, and is optional
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "xflow", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 1.6 + ROW_INCHES * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        axes.axvline(1, color="black", linewidth=0.8)
        for number, tool in enumerate(tools):
            shift = (number + 0.5) / len(tools) - 0.5
            points = [
                (made.ratio, made.low or made.ratio, made.high or made.ratio, place)
                for place, row in enumerate(rows)
                if (made := row.attempt(tool)).ratio is not None
            ]
            ratios = [ratio for ratio, *_ in points]
            axes.errorbar(
                ratios,
                [place + SPREAD * shift for *_, place in points],
                xerr=(
                    [max(0.0, ratio - low) for ratio, low, *_ in points],
                    [max(0.0, high - ratio) for ratio, _, high, _ in points],
                ),
                fmt=MARKERS[number % len(MARKERS)],
                markersize=5,
                elinewidth=0.8,
                label=tool,
            )
        axes.set_yticks(range(len(rows)), [row.model for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="x", linewidth=0.3)
        axes.set_xlabel("times as fast as ONNX Runtime alone, with the 95 % interval")
        axes.set_title(title, fontsize=9)
        figure.legend(loc="outside lower center", ncols=len(tools), fontsize=8)
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return True
