"""Vocabularies of parts of tensors along any one axis: concatenated, split, sliced and padded.

A rule has one vector, so the axis is stated to be the first, the second, the last but one or the
last; together these are all axes of tensors of up to four.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from xflow.generator.vocabularies.common import X, cut, either, scalar, sorts
from xflow.generator.vocabulary import Family, Input, Vocabulary


@dataclass(frozen=True)
class Layout:
    """Names and sizes of the axes of a tensor, and the place of the axis that is cut."""

    name: str
    dims: str
    sizes: tuple[int, ...]
    axis: int
    ranks: tuple[int, ...]

    @property
    def single_axes(self) -> list[int]:
        """The axes that are not part of the vector."""
        return [i for i, word in enumerate(self.dims.split()) if not word.startswith("*")]

    def input(self, name: str, sort: str = X, extent: int | None = None) -> Input:
        """An input, of another extent along the axis if so."""
        sizes = list(self.sizes)
        if extent is not None:
            sizes[self.axis] = extent
        return Input(name, sort, self.dims, tuple(sizes))

    def line(self, name: str, sort: str) -> Input:
        """An input that is 1 along all other axes."""
        dims = [
            word if place == self.axis else ("*1" if word.startswith("*") else "1")
            for place, word in enumerate(self.dims.split())
        ]
        sizes = tuple(n if place == self.axis else 1 for place, n in enumerate(self.sizes))
        return Input(name, sort, " ".join(dims), sizes)

    def column(self, name: str, sort: str) -> Input:
        """An input that is 1 along the axis alone."""
        dims = ["1" if i == self.axis else word for i, word in enumerate(self.dims.split())]
        sizes = tuple(1 if i == self.axis else n for i, n in enumerate(self.sizes))
        return Input(name, sort, " ".join(dims), sizes)

    @property
    def along(self) -> tuple[int, ...]:
        """How often a `column` is repeated to fill the tensor."""
        return tuple(n if place == self.axis else 1 for place, n in enumerate(self.sizes))

    @property
    def around(self) -> tuple[int, ...]:
        """How often a `line` is repeated to fill the tensor."""
        return tuple(1 if place == self.axis else n for place, n in enumerate(self.sizes))

    def pads(self, before: int, after: int) -> tuple[int, ...]:
        """Padding along the axis alone."""
        rank = len(self.sizes)
        return tuple(
            before if i == self.axis else after if i == rank + self.axis else 0
            for i in range(2 * rank)
        )

    def slices(self, starts: range, ends: range) -> tuple[dict[str, tuple[int, ...]], ...]:
        """Slices along the axis."""
        return tuple(
            {"starts": (a,), "ends": (b,), "axes": (self.axis,), "steps": (1,)}
            for a, b in product(starts, ends)
            if a < b
        )


FIRST = Layout("the first axis", "n *S", (4, 3), 0, (0, 1, 2, 3))
SECOND = Layout("the second axis", "N C *S", (2, 4, 3), 1, (1, 2, 3))
INNER = Layout("the last axis but one", "*B n m", (2, 4, 3), 1, (1, 2))
LAST = Layout("the last axis", "*B n", (3, 4), 1, (0, 1, 2, 3))


def _commuting(layout: Layout) -> Vocabulary:
    """Elementwise operators and parts: both sides of what commutes, and what cancels."""
    extent = layout.sizes[layout.axis]
    join, split = f"axis={layout.axis}", f"axis={layout.axis}, split=({extent}, {extent})"
    return Vocabulary(
        f"elementwise operators along {layout.name}",
        (
            *(layout.input(name) for name in "xy"),
            *(layout.line(name, "line") for name in "rt"),
            scalar("k", "c"),
        ),
        limits=(2, 1, 2, 2),
        free=sorts("line c"),
        exact=False,
        ranks=layout.ranks,
        roots=sorts("x joined f"),
    ).steps(f"""
        joined = Concat(x, x, {join})
        line = Concat(line, line, {join})
        x = Split(joined, {split})
        f = Elementwise(x | joined, [line | c])
        f = Concat(f, f, {join}) | Split(f, {split})
    """)


def _pairs(layout: Layout) -> Vocabulary:
    """Operators of two on two that are concatenated, and concatenations of two along two axes."""
    axes = f"axis={either(layout.single_axes)}"
    return Vocabulary(
        f"pairs along {layout.name}",
        tuple(layout.input(name) for name in "xyzu"),
        limits=(0, 0, 0, 0),
        exact=False,
        ranks=layout.ranks,
        roots=sorts("out"),
    ).steps(f"""
        joined = Concat(x, x, {axes})
        f = Elementwise(x, x)
        out = Elementwise(joined, joined) | Concat(f, f, {axes})
        out = Concat(joined, joined, {axes})
    """)


def _cuts(layout: Layout) -> Vocabulary:
    """Slices of slices, of paddings and of concatenations."""
    two = either((k, 13 - k) for k in range(1, 13))
    axis = layout.axis
    return Vocabulary(
        f"slices along {layout.name}",
        (layout.input("x", extent=13),),
        ranks=layout.ranks,
        roots=sorts("x part less"),
    ).steps(
        f"""
        part = Slice(x, {cut(axis, range(4), range(9, 13))})
        less = Slice(part, {cut(axis, range(3), range(4, 7))}) | Slice(x, **slices)
        part = Slice(x, {cut(axis, [0], [13])}) | Split(x, axis={axis}, split={two})
        part = Slice(x, {cut(axis, [0], range(1, 13))}) | Slice(x, {cut(axis, range(1, 13), [13])})
        """,
        slices=layout.slices(range(7), range(4, 10)),
    )


def _places(layout: Layout) -> Vocabulary:
    """Gather at constant indices: a run of them is a slice, a single one a slice without axis."""
    axis = f"axis={layout.axis}"
    starts = either(range(6))
    slices = " | ".join(
        f"Slice(x, {cut(layout.axis, [a], [a + n])})" for a in range(6) for n in (1, 2, 3)
    )
    return Vocabulary(
        f"places along {layout.name}",
        (layout.input("x", extent=9),),
        limits=(1, 1, 0),
        ranks=layout.ranks,
        roots=sorts("part less"),
    ).steps(f"""
        place = Place(start={starts})
        run = PlacesFrom(start={starts}, n=2 | 3)
        part = Gather(x, run, {axis}) | {slices}
        less = Gather(x, place, {axis}) | Squeeze(part, axes=({layout.axis},))
    """)


def _joins(layout: Layout) -> Vocabulary:
    """Concatenations of several: nested, and of parts of one."""
    axis, extent = f"axis={layout.axis}", layout.sizes[layout.axis]
    split = f"split={(extent,) * 2} | {(extent,) * 3} | {(extent, 2 * extent)}"
    return Vocabulary(
        f"concatenations along {layout.name}",
        tuple(layout.input(name) for name in "xyzu"),
        ranks=layout.ranks,
        roots=sorts("x joined"),
    ).steps(
        f"""
        joined = Concat(x, x, {axis}) | Concat(x, x, x, {axis}) | Concat(x, x, x, x, {axis})
        joined = Concat(joined, x | joined, {axis}) | Concat(x, joined, {axis})
        x = Split(joined, {axis}, {split}) | Slice(joined, **parts)
        """,
        parts=layout.slices(range(0, 9, 4), range(4, 13, 4)),
    )


def _pieces(layout: Layout) -> Vocabulary:
    """A tensor in two, three or four pieces, put together again."""
    axis = f"axis={layout.axis}"
    return Vocabulary(
        f"pieces along {layout.name}",
        (layout.input("x", extent=12),),
        limits=(0,) * 6,
        ranks=layout.ranks,
        roots=sorts("x whole"),
        chain=True,
    ).steps(f"""
        piece2 = Split(x, {axis}, split=(6, 6))
        piece3 = Split(x, {axis}, split=(4, 4, 4))
        piece4 = Split(x, {axis}, split=(3, 3, 3, 3))
        whole = Concat(piece2, piece2, {axis}) | Concat(piece3, piece3, piece3, {axis})
        whole = Concat(piece4, piece4, piece4, piece4, {axis})
    """)


def _padded(layout: Layout) -> Vocabulary:
    """Zeros before and behind: padded twice, cut off again, and functions that are 0 at 0."""
    some = f"pads={either(layout.pads(p, q) for p in range(3) for q in range(3))}"
    return Vocabulary(
        f"padding along {layout.name}",
        (layout.input("x"), layout.input("y"), layout.line("r", "line")),
        limits=(0, 0, 0, 0),
        exact=False,
        ranks=layout.ranks,
        roots=sorts("x wide g"),
    ).steps(f"""
        wide = Pad(x | wide, {some})
        x = Slice(wide, {cut(layout.axis, range(3), range(4, 7))})
        f, g = ZeroPreserving((x, wide), [(x, wide)])
        g = Pad(f, {some})
    """)


def _vocabularies(layout: Layout) -> tuple[Vocabulary, ...]:
    return tuple(
        make(layout) for make in (_commuting, _pairs, _cuts, _joins, _pieces, _padded, _places)
    )


PARTS = Family(
    "parts",
    tuple(vocabulary for layout in (FIRST, SECOND, LAST) for vocabulary in _vocabularies(layout)),
    about="parts of tensors along the first, second or last axis: concatenated, split and sliced",
)
INNER_PARTS = Family(
    "inner-parts",
    _vocabularies(INNER),
    about="parts of tensors along the last axis but one: concatenated, split and sliced",
)
"""Apart, since in three axes it is the second axis, whose rules would make its own redundant."""
