"""Vocabularies of zeros around images: before pools, and where channels come last."""

from __future__ import annotations

from itertools import product

from xflow.core.registry import Attribute
from xflow.generator.production import Production, choices
from xflow.generator.vocabularies.common import X
from xflow.generator.vocabularies.convolutions import SPATIAL
from xflow.generator.vocabularies.last_channels import FIRST, LAST, TO_FIRST, TO_LAST, C, H, N, W
from xflow.generator.vocabulary import Family, Input, Vocabulary

WIDTHS = range(3)
AROUND: list[Attribute] = [(0, 0, p, 0, 0, q) for p in WIDTHS for q in WIDTHS]
WITHIN: list[Attribute] = list(product(WIDTHS, WIDTHS))

MAXIMA = choices(kernel_shape=[(3,)], pads=WITHIN, dilations=[(1,)])
"""Dilations stay 1, as in models. That a pool of positive values takes over a Pad is true, but the
generalization does not find it yet from the terms that are enumerated here."""

POOLS = Vocabulary(
    "zeros before pools",
    (Input("x", X, "N C *S", (2, 3, 11)),),
    (
        Production("Relu", (X,), "positive"),
        Production("Pad", (X,), "padded", choices(pads=AROUND)),
        Production("Pad", ("positive",), "padded positive", choices(pads=AROUND)),
        *(
            Production("MaxPool", (sort,), "pooled", MAXIMA)
            for sort in ("positive", "padded positive")
        ),
        *(
            Production(
                "AveragePool",
                (sort,),
                "averaged",
                choices(kernel_shape=[(3,)], pads=WITHIN, count_include_pad=[1]),
            )
            for sort in (X, "padded")
        ),
        Production("AveragePool", ("padded",), "averaged", choices(kernel_shape=[(3,)])),
    ),
    (0, 0, 0, 0),
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"pooled", "averaged"}),
)

PLANE = list(product(WIDTHS, repeat=4))
ZEROS: dict[str, tuple[dict[str, Attribute], ...]] = {
    FIRST: choices(pads=[(0, 0, a, b, 0, 0, c, d) for a, b, c, d in PLANE]),
    LAST: choices(pads=[(0, a, b, 0, 0, c, d, 0) for a, b, c, d in PLANE]),
}


def _moved(source: str, target: str, sizes: tuple[int, ...]) -> Vocabulary:
    """Zeros around an image before and behind a change of its layout."""
    perm = TO_FIRST if target == FIRST else TO_LAST
    return Vocabulary(
        f"zeros around images with channels {source}",
        (Input("x", source, "N H W C" if source == LAST else "N C H W", sizes),),
        (
            Production("Pad", (source,), "padded", ZEROS[source]),
            Production("Transpose", ("padded",), "out", perm),
            Production("Transpose", (source,), target, perm),
            Production("Pad", (target,), "out", ZEROS[target]),
        ),
        (0, 0, 0),
        roots=frozenset({"out"}),
    )


BORDERS = Family(
    "borders",
    (POOLS, _moved(LAST, FIRST, (N, H, W, C)), _moved(FIRST, LAST, (N, C, H, W))),
    about="zeros around images, before pools and where channels come last",
)
