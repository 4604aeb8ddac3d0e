"""Vocabularies of zeros around images: before pools, and where channels come last."""

from __future__ import annotations

from itertools import product

from xflow.generator.vocabularies.common import X, either, sorts
from xflow.generator.vocabularies.convolutions import SPATIAL
from xflow.generator.vocabularies.last_channels import (
    FIRST,
    FIRST_IMAGE,
    LAST,
    LAST_IMAGE,
    TO_FIRST,
    TO_LAST,
)
from xflow.generator.vocabulary import Family, Input, Vocabulary

WIDTHS = range(3)
AROUND = "pads=" + either((0, 0, p, 0, 0, q) for p in WIDTHS for q in WIDTHS)
WITHIN = "pads=" + either(product(WIDTHS, WIDTHS))

POOLS = Vocabulary(
    "zeros before pools",
    (Input("x", X, "N C *S", (2, 3, 11)),),
    limits=(0, 0, 0, 0),
    exact=False,
    ranks=SPATIAL,
    roots=sorts("pooled averaged"),
).steps(f"""
    positive = Relu(x)
    padded, padded_positive = Pad((x, positive), {AROUND})
    pooled = MaxPool(positive | padded_positive, kernel_shape=(3,), {WITHIN}, dilations=(1,))
    averaged = AveragePool(x | padded, kernel_shape=(3,), {WITHIN}, count_include_pad=1)
    averaged = AveragePool(padded, kernel_shape=(3,))
""")
"""Dilations stay 1, as in models. That a pool of positive values takes over a Pad is true, but the
generalization does not find it yet from the terms that are enumerated here."""

PLANE = tuple(product(WIDTHS, repeat=4))
ZEROS = {
    FIRST: "pads=" + either((0, 0, a, b, 0, 0, c, d) for a, b, c, d in PLANE),
    LAST: "pads=" + either((0, a, b, 0, 0, c, d, 0) for a, b, c, d in PLANE),
}


def _moved(image: Input, target: str, perm: str) -> Vocabulary:
    """Zeros around an image before and behind a change of its layout."""
    source = image.sort
    return Vocabulary(
        f"zeros around images with channels {source}", (image,), roots=sorts("out")
    ).steps(f"""
        padded = Pad({source}, {ZEROS[source]})
        out, {target} = Transpose((padded, {source}), {perm})
        out = Pad({target}, {ZEROS[target]})
    """)


BORDERS = Family(
    "borders",
    (POOLS, _moved(LAST_IMAGE, FIRST, TO_FIRST), _moved(FIRST_IMAGE, LAST, TO_LAST)),
    about="zeros around images, before pools and where channels come last",
)
