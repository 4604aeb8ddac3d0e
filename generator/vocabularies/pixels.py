"""Vocabularies of products with matrices of weights as convolutions of one pixel.

Tokens [N, L, C] are an image [N, C, 1, L], and a product with a matrix is a convolution of it. A
runtime that has a layout of its own for images may compute a chain of such convolutions, and what
acts on each pixel in between, faster than the products; one alone pays for the way there and back.

`shown` are tokens as an image, `read` an image as tokens; `made` is made of images, and `out` of
tokens: a vector [C] of these is a `scale` [C, 1, 1] of those.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import OUT, sorts, stages, tensors
from xflow.generator.vocabulary import Family, Input, Vocabulary

TOKENS, IMAGE = "tokens", "image"
N, C, K, H, W = 2, 3, 5, 4, 7
WEIGHTS = tensors("weight: w[C K]  bias: b[K]  vector: v[C]", C=C, K=K)


def _pixels(
    name: str, tokens: str, image: str, ones: tuple[int, ...] = (), *, more: str = ""
) -> Vocabulary:
    """Tokens that are images [N, H, W, C] with `ones` among the axes."""
    extents = {"N": N, "C": C, "H": H, "W": W, "L": W, "1": 1}

    def of(name: str, sort: str, dims: str) -> Input:
        return Input(name, sort, dims, tuple(extents[axis] for axis in dims.split()))

    lifted, last, lowered = ("lifted", "last", "lowered") if ones else (TOKENS, "read", OUT)
    axes = f"""
        lifted = Unsqueeze(tokens, axes={ones})
        read, out = Squeeze((last, lowered), axes={ones})
    """
    return stages(
        name,
        (of("x", TOKENS, tokens), of("y", IMAGE, image), of("z", IMAGE, image), *WEIGHTS),
        limits=(2, 2, 2, 2, 2, 2),
        free=sorts("weight bias vector"),
    ).steps(
        axes if ones else "",
        f"""
        shown = Transpose({lifted}, perm=(0, 3, 1, 2))
        {last}, {lowered} = Transpose((image, made), perm=(0, 2, 3, 1))
        product, out = MatMul(tokens, weight)
        product, out = MatMul(read, weight)
        out = Elementwise(read, [vector | read])
        made = Elementwise(image)
        out = Add(product, bias) | Elementwise(tokens, read)
        turned = Transpose(weight, perm=(1, 0))
        kernel = Unsqueeze(turned, axes=(2, 3))
        made = Conv(shown, kernel, [bias]) | Conv(image, kernel, [bias])
        scale = Unsqueeze(vector, axes=(1, 2))
        made = Elementwise(image, scale) | Elementwise(shown | image, image)
        """,
        more,
    )


IMAGES = _pixels("images whose channels come last", "N H W C", "N C H W")
SEQUENCES = _pixels("sequences of tokens", "N L C", "N C 1 L", (1,))
ROWS = _pixels(
    "rows of tokens",
    "L C",
    "1 C 1 L",
    (0, 1),
    more="out = Gemm(tokens, weight, [bias]) | Gemm(read, weight, [bias])",
)

VIEWS = Vocabulary(
    "tokens of one sequence in two axes and in three",
    tensors("tokens: x[1 L C]  last: y[1 1 L C]", L=W, C=C),
    limits=(0, 0, 0),
    roots=sorts("lifted out"),
).steps(f"""
    rows = Reshape(tokens, shape={(W, C)})
    lifted = Unsqueeze(rows, axes=(0, 1)) | Unsqueeze(tokens, axes=(1,))
    low = Squeeze(last, axes=(0, 1))
    out = Reshape(low, shape={(1, W, C)}) | Squeeze(last, axes=(1,))
""")
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
