"""Vocabularies of products with matrices of weights as convolutions of one pixel.

Tokens [N, L, C] are an image [N, C, 1, L], and a product with a matrix is a convolution of it. A
runtime that has a layout of its own for images may compute a chain of such convolutions, and what
acts on each pixel in between, faster than the products; one alone pays for the way there and back.
"""

from __future__ import annotations

from xflow.generator.production import Production, choices
from xflow.generator.vocabularies.common import applied, pointwise
from xflow.generator.vocabulary import Family, Input, Vocabulary

TOKENS, SHOWN, READ, IMAGE, MADE, OUT = "tokens", "shown", "read", "image", "made", "out"
"""Sorts: tokens and what they are as an image, an image and what it is as tokens, what is made of
images, and of all of it tokens."""
WEIGHT, KERNEL, VECTOR, SCALE = "weight", "kernel", "vector", "scale"
"""Matrices [C, K], kernels [K, C, 1, 1], vectors [C] and [C, 1, 1]."""
N, C, K, H, W = 2, 3, 5, 4, 7
TO_FIRST, TO_LAST = choices(perm=[(0, 3, 1, 2)]), choices(perm=[(0, 2, 3, 1)])

WEIGHTS = (
    Input("w", WEIGHT, "C K", (C, K)),
    Input("b", "bias", "K", (K,)),
    Input("v", VECTOR, "C", (C,)),
)
FREE = frozenset({WEIGHT, KERNEL, VECTOR, SCALE, "bias", "turned"})


def _pixels(
    name: str, x: Input, images: tuple[Input, ...], ones: tuple[int, ...], *more: Production
) -> Vocabulary:
    """Tokens that are images [N, H, W, C] with `ones` among the axes."""
    axes = choices(axes=[ones])
    lifted, last, lowered = ("lifted", "last", "lowered") if ones else (TOKENS, READ, OUT)
    return Vocabulary(
        name,
        (x, *images, *WEIGHTS),
        (
            *(
                (
                    Production("Unsqueeze", (TOKENS,), lifted, axes),
                    Production("Squeeze", (last,), READ, axes),
                    Production("Squeeze", (lowered,), OUT, axes),
                )
                if ones
                else ()
            ),
            Production("Transpose", (lifted,), SHOWN, TO_FIRST),
            Production("Transpose", (IMAGE,), last, TO_LAST),
            Production("Transpose", (MADE,), lowered, TO_LAST),
            *(
                production
                for tokens in (TOKENS, READ)
                for production in (
                    applied("MatMul", tokens, WEIGHT, "product"),
                    applied("MatMul", tokens, WEIGHT, OUT),
                )
            ),
            *(pointwise(OUT, READ, *other) for other in ((), (VECTOR,), (READ,))),
            pointwise(MADE, IMAGE),
            applied("Add", "product", "bias", OUT),
            pointwise(OUT, TOKENS, READ),
            Production("Transpose", (WEIGHT,), "turned", choices(perm=[(1, 0)])),
            Production("Unsqueeze", ("turned",), KERNEL, choices(axes=[(2, 3)])),
            *(
                Production("Conv", (image, KERNEL, *bias), MADE)
                for image in (SHOWN, IMAGE)
                for bias in ((), ("bias",))
            ),
            Production("Unsqueeze", (VECTOR,), SCALE, choices(axes=[(1, 2)])),
            *(pointwise(MADE, *pair) for pair in ((IMAGE, SCALE), (SHOWN, IMAGE), (IMAGE, IMAGE))),
            *more,
        ),
        (2, 2, 2, 2, 2, 2),
        free=FREE,
        exact=False,
        roots=frozenset({OUT}),
        chain=True,
    )


IMAGES = _pixels(
    "images whose channels come last",
    Input("x", TOKENS, "N H W C", (N, H, W, C)),
    tuple(Input(name, IMAGE, "N C H W", (N, C, H, W)) for name in "yz"),
    (),
)
SEQUENCES = _pixels(
    "sequences of tokens",
    Input("x", TOKENS, "N L C", (N, W, C)),
    tuple(Input(name, IMAGE, "N C 1 L", (N, C, 1, W)) for name in "yz"),
    (1,),
)
ROWS = _pixels(
    "rows of tokens",
    Input("x", TOKENS, "L C", (W, C)),
    tuple(Input(name, IMAGE, "1 C 1 L", (1, C, 1, W)) for name in "yz"),
    (0, 1),
    *(
        Production("Gemm", (tokens, WEIGHT, *bias), OUT)
        for tokens in (TOKENS, READ)
        for bias in ((), ("bias",))
    ),
)

VIEWS = Vocabulary(
    "tokens of one sequence in two axes and in three",
    (Input("x", TOKENS, "1 L C", (1, W, C)), Input("y", "last", "1 1 L C", (1, 1, W, C))),
    (
        Production("Reshape", (TOKENS,), "rows", choices(shape=[(W, C)])),
        Production("Unsqueeze", ("rows",), "lifted", choices(axes=[(0, 1)])),
        Production("Unsqueeze", (TOKENS,), "lifted", choices(axes=[(1,)])),
        Production("Squeeze", ("last",), "low", choices(axes=[(0, 1)])),
        Production("Reshape", ("low",), OUT, choices(shape=[(1, W, C)])),
        Production("Squeeze", ("last",), OUT, choices(axes=[(1,)])),
    ),
    (0, 0, 0),
    roots=frozenset({"lifted", OUT}),
)
"""Where batch and length are merged around each product, as GPT-2 does, and there is one batch."""

PIXELS = Family(
    "pixels",
    (IMAGES,),
    about="products of images whose channels come last, as convolutions of one pixel",
)
TOKENS_FAMILY = Family(
    "tokens",
    (SEQUENCES, ROWS, VIEWS),
    about="products of tokens with matrices of weights, as convolutions of one pixel",
)
"""A family of its own: an operator on an image, or on its tokens, is one step, not two."""
