"""Whether the constants that a rewrite folds are numbers of their type, as their sources are.

``(x * a) * b`` is ``x * (a * b)``, but where a and b are small, their product may be 0 in the type
of the model, or subnormal, with few digits; where they are large, it may be infinite. It depends on
the data, and is asked of what is folded in the end: products on the way have 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xflow.core.fold import Folder, moves
from xflow.core.graph import walk
from xflow.core.node import Value

NO_NUMBERS = "a constant that it folds is too small or too large for its element type"
"""Why a rewrite is refused."""


def folded(
    before: Sequence[Value], after: Sequence[Value], inputs: Sequence[Value]
) -> Iterator[Value]:
    """The constant expressions that are computed for `after`, and are not there for `before`.

    Both are read down to `inputs`. What only moves elements is left out.
    """
    known = set(inputs)
    for node in walk(before, known):
        if node.constant:
            known.update(node.outputs)
    read = [value for node in walk(after, known) if not node.constant for value in node.inputs]
    for value in dict.fromkeys((*read, *after)):
        if value.is_constant and value not in known:
            made = (node for node in walk([value], known) if node.inputs)
            if not all(map(moves, made)):
                yield value


def loses_numbers(
    before: Sequence[Value], after: Sequence[Value], inputs: Sequence[Value], folder: Folder
) -> bool:
    """Whether a constant that is folded for `after` loses numbers, as far as its data is known."""
    return any(folder.loses_numbers(value) for value in folded(before, after, inputs))
