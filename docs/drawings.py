"""The drawings of the documents: `python docs/drawings.py` writes them anew.

Boxes and arrows in SVG, in colours that can be read on a light and on a dark page. That of the
packages is made from the code: from what imports what.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
LINE = 16
Point: TypeAlias = tuple[int, int]
TONES = {"plain": "#8a8f98", "good": "#2e9e5b", "bad": "#d1495b", "key": "#3b7dd8"}


@dataclass
class Drawing:
    """A drawing of a size in pixels, to which boxes, arrows and words are added."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, at: Point, size: Point, text: str, tone: str = "plain") -> None:
        """A box, from its upper left corner, around lines of text; the first of several is bold."""
        (x, y), (width, height), colour = at, size, TONES[tone]
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{colour}" '
            f'fill-opacity="0.13" stroke="{colour}" stroke-width="1.5"/>'
        )
        lines = text.split("\n")
        top = y + height / 2 - LINE * (len(lines) - 1) / 2 + 4.5
        for number, line in enumerate(lines):
            bold = not number and len(lines) > 1
            self.words(x + width // 2, round(top + LINE * number), line, bold=bold)

    def words(self, x: int, y: int, text: str, *, bold: bool = False) -> None:
        """Words around `x`."""
        weight = ' class="bold"' if bold else ""
        self.parts.append(f'<text x="{x}" y="{y}"{weight}>{escape(text)}</text>')

    def arrow(self, *points: Point, tone: str = "plain") -> None:
        """A line through points, with a head at its end."""
        way = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(
            f'<polyline points="{way}" fill="none" stroke="{TONES[tone]}" stroke-width="1.5"'
            f' marker-end="url(#{tone})"/>'
        )

    def seam(self, x: int, top: int, bottom: int) -> None:
        """A dashed line downwards."""
        self.parts.append(
            f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="{TONES["bad"]}" '
            'stroke-width="2" stroke-dasharray="3 3"/>'
        )

    def __str__(self) -> str:
        heads = "".join(
            f'<marker id="{tone}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
            for tone, colour in TONES.items()
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" role="img" aria-label="{escape(self.title)}">\n'
            "<style>text{font:13px sans-serif;text-anchor:middle;fill:#4f5764}"
            ".bold{font-weight:bold}"
            "@media (prefers-color-scheme:dark){text{fill:#aeb4bf}}</style>\n"
            f"<defs>{heads}</defs>\n{body}\n</svg>\n"
        )


def parts() -> Drawing:
    """How operators become rules, and rules a faster model."""
    made = Drawing(760, 296, "The parts of xflow")
    made.box((20, 20), (150, 56), "operators\neach declared once", "key")
    made.box((210, 20), (150, 56), "generator\npairs that seem equal")
    made.box((400, 20), (150, 56), "verifier\nproves, for all sizes")
    made.box((590, 20), (150, 56), "rules\ntext, certificates", "good")
    made.box((400, 112), (150, 40), "counterexample", "bad")
    for x in (170, 360, 550):
        made.arrow((x, 48), (x + 38, 48))
    made.arrow((475, 76), (475, 110), tone="bad")
    made.box((20, 220), (130, 56), "model\nin ONNX", "key")
    made.box((190, 220), (150, 56), "search\nregion by region")
    made.box((380, 220), (150, 56), "gate\nequal? faster?")
    made.box((590, 220), (150, 56), "model and report\nfaster, certified", "good")
    for start, end in ((150, 188), (340, 378), (530, 588)):
        made.arrow((start, 248), (end, 248))
    made.arrow((665, 76), (665, 180), (265, 180), (265, 218), tone="good")
    made.arrow((95, 76), (95, 150), (230, 150), (230, 218), tone="key")
    made.words(170, 142, "shapes, numpy, cost")
    made.words(580, 172, "both ways")
    return made


def rewriting() -> Drawing:
    """A chain of rewrites none of which gains alone."""
    made = Drawing(760, 250, "Two branches become one convolution in three steps")
    made.words(95, 20, "as exported", bold=True)
    made.box((65, 32), (60, 28), "x", "key")
    made.box((20, 92), (70, 28), "Conv 3×3")
    made.box((100, 92), (70, 28), "Conv 1×1")
    made.box((60, 152), (70, 28), "Add")
    made.arrow((85, 60), (55, 90))
    made.arrow((105, 60), (135, 90))
    made.arrow((55, 120), (85, 150))
    made.arrow((135, 120), (105, 150))
    made.words(380, 20, "pad the smaller kernel: dearer by itself", bold=True)
    made.box((350, 32), (60, 28), "x", "key")
    made.box((295, 92), (80, 28), "Conv 3×3")
    made.box((385, 92), (80, 28), "Conv 3×3", "bad")
    made.box((490, 92), (90, 28), "Pad(w)", "good")
    made.box((345, 152), (70, 28), "Add")
    made.arrow((370, 60), (338, 90))
    made.arrow((390, 60), (422, 90))
    made.arrow((490, 106), (467, 106), tone="good")
    made.arrow((338, 120), (370, 150))
    made.arrow((422, 120), (390, 150))
    made.words(670, 20, "one convolution", bold=True)
    made.box((640, 32), (60, 28), "x", "key")
    made.box((625, 92), (90, 28), "Conv 3×3", "good")
    made.box((612, 152), (116, 28), "Add(v, Pad(w))", "good")
    made.arrow((670, 60), (670, 90))
    made.arrow((670, 152), (670, 122), tone="good")
    for x in (215, 590):
        made.arrow((x, 106), (x + 30, 106), tone="key")
    made.words(380, 222, "Green: computed from weights alone, once, when the model is written.")
    made.words(
        380, 240, "The search keeps states that cost up to twice the best: red is on the way."
    )
    return made


def regions() -> Drawing:
    """Regions, seams, and regions that are equal up to weights."""
    made = Drawing(760, 210, "A model is cut where one value passes")
    made.words(380, 20, "first pass: three regions, two of them equal, so two searches", bold=True)
    xs = [20 + 92 * number for number in range(8)]
    for row, groups in ((34, (3, 3, 2)), (124, (1, 3, 3, 1))):
        names = ["Conv", "Relu", "Conv", "Conv", "Relu", "Conv", "Pool", "Gemm"]
        tones = [
            tone for count, tone in zip(groups, _shades(groups), strict=True) for _ in range(count)
        ]
        for x, name, tone in zip(xs, names, tones, strict=True):
            made.box((x, row), (70, 34), name, tone)
            if x != xs[-1]:
                made.arrow((x + 70, row + 17), (x + 90, row + 17))
        for seam in accumulate(groups[:-1]):
            made.seam(20 + 92 * seam - 11, row - 6, row + 40)
    made.words(
        380, 112, "next pass: cut at other places; what lay on a seam lies inside", bold=True
    )
    made.words(380, 190, "Then passes over what is near the changes, for as long as there are any.")
    return made


def packages() -> Drawing:
    """The packages, and from which of them each imports.

    A row holds what imports nothing of its own row; an arrow that others imply is left out.
    """
    order = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["xflow"]["layers"]
    names: list[str] = order["xflow"]
    imported = {name: _imported(name) & {*names} - {name} for name in names}
    below: dict[str, set[str]] = {}
    level: dict[str, int] = {}
    for name in names:
        below[name] = imported[name].union(*(below[each] for each in imported[name]))
        level[name] = 1 + max((level[each] for each in imported[name]), default=-1)
    top = max(level.values())
    wide, high, apart, gap = 232, 74, 34, 24
    made = Drawing(800, (top + 1) * (high + apart), "The packages of xflow, from the bottom up")
    places: dict[str, Point] = {}
    for row in range(top + 1):
        for column, name in enumerate([name for name in names if level[name] == row]):
            x, y = (
                gap + column * (wide + gap),
                made.height - (row + 1) * (high + apart) + apart // 2,
            )
            places[name] = x, y
            tone = "key" if name in ("generator", "verifier") else "plain"
            told = textwrap.fill(_first_line(name), 34)
            made.box((x, y), (wide, high), f"{name}\n{told}", tone)
    for name in names:
        for each in sorted(imported[name]):
            if any(each in below[other] for other in imported[name]):
                continue
            (x, y), (to_x, to_y) = places[name], places[each]
            start, end = (x + wide // 2, y + high), (to_x + wide // 2, to_y - 2)
            if level[name] - level[each] > 1:  # between the columns, past the rows in between
                lane = to_x - gap // 2
                made.arrow(start, (lane, start[1] + apart // 2), (lane, end[1] - apart // 2), end)
            else:
                made.arrow(start, end)
    return made


def _folder(package: str) -> Path:
    inner = ROOT / "xflow" / package
    return inner if inner.exists() else ROOT / package


def _imported(package: str) -> set[str]:
    """The names of the packages from which modules of a package import."""
    found: set[str] = set()
    for path in _folder(package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("xflow"):
                module = [*str(node.module).split("."), *(each.name for each in node.names)]
                found.add(module[1])
    return found


def _first_line(package: str) -> str:
    """What a package says that it is."""
    text = ast.get_docstring(ast.parse((_folder(package) / "__init__.py").read_text("utf-8")))
    return (text or "").partition("\n")[0].rstrip(".")


def _shades(groups: tuple[int, ...]) -> list[str]:
    return ["key", "key", "good"] if len(groups) == 3 else ["plain", "good", "key", "plain"]


DRAWINGS = {"parts": parts, "rewriting": rewriting, "regions": regions, "packages": packages}


def main() -> None:
    """Write the files."""
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(str(draw()), encoding="utf-8")


if __name__ == "__main__":
    main()
