"""Vocabularies of images enlarged by repeating pixels, and of operators that commute with that.

A pixel that is broadcast over an image can be enlarged first; a runtime may keep one form in its
layout and not the other. An operator before enlarging computes each pixel only once.
"""

from __future__ import annotations

from functools import partial

from xflow.generator.vocabularies.common import either, scalar, sorts, tensors
from xflow.generator.vocabularies.convolutions import FREE, SPATIAL, C, S, bias, image, point, scale
from xflow.generator.vocabulary import Family, Vocabulary

enlarged = partial(Vocabulary, exact=False, ranks=SPATIAL)

GATES = enlarged(
    "a pixel for the whole image",
    (image("x"), *tensors("pixel: g[N C *1] r[1 C *1]", N=2, C=C)),
    roots=sorts("wide out"),
).steps(f"""
    wide = Resize(pixel, scales=(1, 1, {S})) | Resize(pixel, scales=(2, 1, {S}))
    wide = Expand(pixel, shape=(2, {C}, {S}))
    out = Elementwise(x, pixel) | Elementwise(pixel, x)
    out = Elementwise(x, wide) | Elementwise(wide, x)
""")

ENLARGED = enlarged(
    "enlarged images",
    (image("x"), image("y"), scale("r"), point("w"), bias("b"), scalar("k", "c")),
    limits=(0, 0, 0, 0),
    free=FREE | {"c"},
    roots=sorts("wide g"),
).steps("""
    wide, g = Resize((x, f), scales=(1, 1, 2))
    f, g = Conv((x, wide), kernel)
    f, g = Conv((x, wide), kernel, bias)
    f, g = Elementwise((x, wide), [scale | c | (x, wide)])
    f, g = Concat((x, wide), (x, wide), axis=0 | 1)
""")
"""An operator makes `f` of an image and `g` of the enlarged one: `f` is enlarged to `g`."""

TWICE = enlarged(
    "enlarged again, and pooled", (image("x"),), limits=(0, 0, 0), roots=sorts("x pooled")
).steps("""
    x = Resize(x, scales=(1, 1, 1) | (1, 1, 2) | (1, 1, 3) | (1, 1, 6))
    pooled = GlobalAveragePool(x) | GlobalMaxPool(x)
    pooled = AveragePool(x, kernel_shape=(2,), strides=(2,))
    pooled = AveragePool(x, kernel_shape=(3,), strides=(3,))
    pooled = MaxPool(x, kernel_shape=(2,), strides=(2,))
    pooled = MaxPool(x, kernel_shape=(3,), strides=(3,))
    pooled = ReduceMean(x, axes=(2,), keepdims=1) | ReduceMax(x, axes=(2,), keepdims=1)
""")


def _scales(*factors: int) -> str:
    return "scales=" + either((1, 1, factor) for factor in factors)


AGAIN = enlarged(
    "enlarged by two factors", (image("x"),), limits=(0, 0, 0), exact=True, roots=sorts("wide")
).steps(f"""
    once = Resize(x, {_scales(2, 3, 4)})
    wide = Resize(once, {_scales(2, 3, 4)}) | Resize(x, {_scales(4, 6, 8, 9, 12, 16)})
""")
"""So many pairs of factors that the factor of both is seen to be their product."""

RESIZED = Family(
    "resized", (GATES, ENLARGED, TWICE, AGAIN), about="images that are enlarged by repeating pixels"
)
