"""Vocabularies of concatenations of five to eight tensors, taken apart one tensor at a time.

Shorter ones are among the `parts`. A rule has a fixed number of inputs, and what is proved of a
concatenation of two holds for a longer one that is taken apart.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import sorts
from xflow.generator.vocabularies.parts import FIRST, INNER, LAST, SECOND, Layout
from xflow.generator.vocabulary import Family, Vocabulary


def _joins(layout: Layout, count: int) -> Vocabulary:
    """All at once; the last one behind the others; and the first one before the others."""
    names, axis = "xyzuvwst"[:count], f"axis={layout.axis}"
    every, but_last, but_first = map(", ".join, (names, names[:-1], names[1:]))
    return Vocabulary(
        f"{count} tensors along {layout.name}",
        tuple(layout.input(name, name) for name in names),
        ranks=layout.ranks,
        roots=sorts("whole"),
    ).steps(f"""
        whole = Concat({every}, {axis})
        head = Concat({but_last}, {axis})
        whole = Concat(head, {names[-1]}, {axis})
        tail = Concat({but_first}, {axis})
        whole = Concat({names[0]}, tail, {axis})
    """)


JOINS = Family(
    "joins",
    tuple(
        _joins(layout, count) for layout in (FIRST, SECOND, LAST, INNER) for count in (5, 6, 7, 8)
    ),
    about="concatenations of five to eight tensors",
)
