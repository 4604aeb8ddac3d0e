"""Vocabularies of concatenations of five to eight tensors, taken apart one tensor at a time.

Shorter ones are among the `parts`. A rule has a fixed number of inputs, and what is proved of a
concatenation of two holds for a longer one that is taken apart.
"""

from __future__ import annotations

from xflow.generator.production import Production, choices
from xflow.generator.vocabularies.parts import FIRST, INNER, LAST, SECOND, Layout
from xflow.generator.vocabulary import Family, Vocabulary

COUNTS = (5, 6, 7, 8)
NAMES = "xyzuvwst"
WHOLE, HEAD, TAIL = "whole", "head", "tail"


def _joins(layout: Layout, count: int) -> Vocabulary:
    """All at once; the last one behind the others; and the first one before the others."""
    axis = choices(axis=[layout.axis])
    names = tuple(NAMES[:count])

    def joined(sorts: tuple[str, ...], result: str) -> Production:
        return Production("Concat", sorts, result, axis)

    return Vocabulary(
        f"{count} tensors along {layout.name}",
        tuple(layout.input(name, name) for name in names),
        (
            joined(names, WHOLE),
            joined(names[:-1], HEAD),
            joined((HEAD, names[-1]), WHOLE),
            joined(names[1:], TAIL),
            joined((names[0], TAIL), WHOLE),
        ),
        (0, 0, 0),
        ranks=layout.ranks,
        roots=frozenset({WHOLE}),
    )


JOINS = Family(
    "joins",
    tuple(_joins(layout, count) for layout in (FIRST, SECOND, LAST, INNER) for count in COUNTS),
    about="concatenations of five to eight tensors",
)
