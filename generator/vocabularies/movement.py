"""Vocabularies of operators that move the elements of a plane, some of which commute."""

from __future__ import annotations

from xflow.generator.vocabularies.common import X
from xflow.generator.vocabulary import Family, Input, Vocabulary


def _plane(name: str) -> Input:
    return Input(name, X, "n m", (4, 5))


MOVEMENT = Family(
    "movement",
    (
        Vocabulary("planes", (_plane("x"), _plane("y")), limits=(0, 0, 0, 0), exact=False).steps("""
            x = ZeroPreserving(x) | Elementwise(x, [x]) | Transpose(x, perm=(1, 0))
            x = Concat(x, x, axis=0 | 1) | Reshape(x, shape=(4, 5) | (20,))
            x = Unsqueeze(x, axes=(0,) | (2,)) | Squeeze(x, axes=(0,) | (2,))
            x = Slice(x, starts=(0,), ends=(2,), axes=(0,), steps=(1,))
            x = Slice(x, starts=(1,), ends=(3,), axes=(0,), steps=(1,))
            x = Slice(x, starts=(0,) | (1,), ends=(3,), axes=(1,), steps=(1,))
            x = Pad(x, pads=(1, 0, 2, 0) | (0, 2, 0, 1))
        """),
    ),
    about="operators that move elements, and what commutes with them",
)
