"""Cases of operators that only move data."""

from __future__ import annotations

from isolated.case import Draw, Outputs, case
from isolated.expression import node, nodes

Pair = tuple[Outputs, Outputs]

PARTS = "Concat(Relu(a), Relu(b)) of a split"


@case(PARTS)
def relu_of_parts(g: Draw) -> Pair:
    x, half = g.planes, g.sizes.channels // 2
    a, b = nodes("Split", 2, x, [half, half], axis=1)
    return node("Concat", node("Relu", a), node("Relu", b), axis=1), node("Relu", x)


@case(PARTS)
def relu_of_parts_of_features(g: Draw) -> Pair:
    x, half = g.inner, g.sizes.hidden // 2
    a, b = nodes("Split", 2, x, [half, half], axis=-1)
    return node("Concat", node("Relu", a), node("Relu", b), axis=-1), node("Relu", x)


@case(PARTS)
def sigmoid_of_parts(g: Draw) -> Pair:
    x, half = g.inner, g.sizes.hidden // 2
    a, b = nodes("Split", 2, x, [half, half], axis=-1)
    return node("Concat", node("Sigmoid", a), node("Sigmoid", b), axis=-1), node("Sigmoid", x)


@case(PARTS)
def scale_of_parts(g: Draw) -> Pair:
    x, half = g.inner, g.sizes.hidden // 2
    c = g.weight(1)
    a, b = nodes("Split", 2, x, [half, half], axis=-1)
    return node("Concat", a * c, b * c, axis=-1), x * c


@case(PARTS)
def relu_of_slices(g: Draw) -> Pair:
    x, n = g.planes, g.sizes.channels
    a = node("Slice", x, [0], [n // 2], [1])
    b = node("Slice", x, [n // 2], [n], [1])
    return node("Concat", node("Relu", a), node("Relu", b), axis=1), node("Relu", x)


EXPANDED = "Expand + Add"


@case(EXPANDED)
def expanded_bias(g: Draw) -> Pair:
    s = g.sizes
    x, b = g.inner, g.input(1, 1, s.hidden)
    return x + node("Expand", b, [1, s.tokens, s.hidden]), x + b


@case(EXPANDED)
def expanded_mask(g: Draw) -> Pair:
    """As attention masks are expanded to all heads."""
    s = g.sizes
    x, m = g.scores, g.input(1, 1, 1, s.tokens)
    return x + node("Expand", m, [1, 1, s.tokens, s.tokens]), x + m


@case(EXPANDED)
def expanded_factor(g: Draw) -> Pair:
    """As the gates of squeeze-and-excitation, expanded to the planes."""
    s = g.sizes
    x, gate = g.planes, g.input(1, s.channels, 1, 1)
    return x * node("Expand", gate, [1, s.channels, s.side, s.side]), x * gate


@case(EXPANDED)
def expanded_to_the_shape_of_another(g: Draw) -> Pair:
    s = g.sizes
    x, b = g.inner, g.input(1, 1, s.hidden)
    return x + node("Expand", b, node("Shape", x)), x + b


@case(EXPANDED)
def tiled_bias(g: Draw) -> Pair:
    s = g.sizes
    x, b = g.inner, g.input(1, 1, s.hidden)
    return x + node("Tile", b, [1, s.tokens, 1]), x + b


NESTED = "nested Concat and Slice"


@case(NESTED)
def concat_of_concat(g: Draw) -> Pair:
    x, y, z = g.planes, g.planes, g.planes
    plain = node("Concat", node("Concat", x, y, axis=1), z, axis=1)
    return plain, node("Concat", x, y, z, axis=1)


@case(NESTED)
def concats_of_concats(g: Draw) -> Pair:
    """As in DenseNet, layer by layer."""
    x, y, z, u = g.planes, g.planes, g.planes, g.planes
    plain = node("Concat", node("Concat", node("Concat", x, y, axis=1), z, axis=1), u, axis=1)
    return plain, node("Concat", x, y, z, u, axis=1)


@case(NESTED)
def slice_of_slice(g: Draw) -> Pair:
    x, n, side = g.planes, g.sizes.channels, g.sizes.side
    plain = node("Slice", node("Slice", x, [1], [n], [1]), [1], [side], [2])
    return plain, node("Slice", x, [1, 1], [n, side], [1, 2])


@case(NESTED)
def slice_of_slice_of_one_axis(g: Draw) -> Pair:
    x, n = g.planes, g.sizes.channels
    plain = node("Slice", node("Slice", x, [1], [n], [1]), [1], [n - 2], [1])
    return plain, node("Slice", x, [2], [n - 1], [1])


@case(NESTED)
def slice_of_concat(g: Draw) -> Pair:
    x, y, n = g.planes, g.planes, g.sizes.channels
    joined = node("Concat", x, y, axis=1)
    return node("Relu", node("Slice", joined, [0], [n], [1])), node("Relu", x)


@case(NESTED)
def split_of_concat(g: Draw) -> Pair:
    x, y, n = g.planes, g.planes, g.sizes.channels
    a, b = nodes("Split", 2, node("Concat", x, y, axis=1), [n, n], axis=1)
    return node("Relu", a) + b, node("Relu", x) + y


@case(NESTED)
def concat_of_split(g: Draw) -> Pair:
    x, half = g.planes, g.sizes.channels // 2
    joined = node("Concat", *nodes("Split", 2, x, [half, half], axis=1), axis=1)
    return node("Relu", joined), node("Relu", x)


@case(NESTED)
def concat_of_slices(g: Draw) -> Pair:
    x, n = g.planes, g.sizes.channels
    parts = [node("Slice", x, [k], [k + n // 2], [1]) for k in (0, n // 2)]
    return node("Relu", node("Concat", *parts, axis=1)), node("Relu", x)


CANCEL = "transposes that cancel"


@case(CANCEL)
def transpose_of_transpose(g: Draw) -> Pair:
    x = g.planes
    there = node("Transpose", x, perm=[0, 2, 3, 1])
    return node("Relu", node("Transpose", there, perm=[0, 3, 1, 2])), node("Relu", x)


@case(CANCEL)
def relu_between_transposes(g: Draw) -> Pair:
    """As layouts are changed around an operator that does not care."""
    x = g.planes
    there = node("Relu", node("Transpose", x, perm=[0, 2, 3, 1]))
    return node("Transpose", there, perm=[0, 3, 1, 2]), node("Relu", x)


@case(CANCEL)
def scale_between_transposes(g: Draw) -> Pair:
    n = g.sizes.channels
    x, w = g.planes, g.weight(n)
    there = node("Transpose", x, perm=[0, 2, 3, 1]) * w
    return node("Transpose", there, perm=[0, 3, 1, 2]), x * node("Reshape", w, [1, n, 1, 1])


@case(CANCEL)
def sum_between_transposes(g: Draw) -> Pair:
    x, y = g.planes, g.planes
    total = node("Transpose", x, perm=[0, 2, 3, 1]) + node("Transpose", y, perm=[0, 2, 3, 1])
    return node("Transpose", total, perm=[0, 3, 1, 2]), x + y


@case(CANCEL)
def transposes_that_compose(g: Draw) -> Pair:
    s = g.sizes
    x = g.input(1, s.tokens, s.heads, s.width // s.heads)
    there = node("Transpose", x, perm=[0, 2, 1, 3])
    return node("Transpose", there, perm=[0, 1, 3, 2]), node("Transpose", x, perm=[0, 2, 3, 1])


@case(CANCEL)
def product_of_transposes(g: Draw) -> Pair:
    n = g.sizes.width
    x, w = g.input(n, g.sizes.tokens), g.weight(n, n)
    plain = node("Transpose", x, perm=[1, 0]) @ node("Transpose", w, perm=[1, 0])
    return node("Transpose", plain, perm=[1, 0]), w @ x


VIEWS = "Reshape of Reshape"


@case(VIEWS)
def reshape_of_reshape(g: Draw) -> Pair:
    s = g.sizes
    x = g.tokens
    heads = node("Reshape", x, [1, s.tokens, s.heads, s.width // s.heads])
    plain = node("Reshape", heads, [s.tokens, s.width])
    return node("Relu", plain), node("Relu", node("Reshape", x, [s.tokens, s.width]))


@case(VIEWS)
def reshape_there_and_back(g: Draw) -> Pair:
    s = g.sizes
    x = g.tokens
    heads = node("Reshape", x, [1, s.tokens, s.heads, s.width // s.heads])
    return node("Relu", node("Reshape", heads, [1, s.tokens, s.width])), node("Relu", x)


@case(VIEWS)
def relu_between_reshapes(g: Draw) -> Pair:
    s = g.sizes
    x = g.tokens
    flat = node("Relu", node("Reshape", x, [s.tokens, s.width]))
    return node("Reshape", flat, [1, s.tokens, s.width]), node("Relu", x)


@case(VIEWS)
def flatten_of_reshape(g: Draw) -> Pair:
    s = g.sizes
    x = g.input(1, s.channels, s.side, s.side)
    flat = node("Flatten", node("Reshape", x, [1, s.channels, s.side * s.side]), axis=1)
    return node("Relu", flat), node("Relu", node("Flatten", x, axis=1))


@case(VIEWS)
def squeeze_of_unsqueeze(g: Draw) -> Pair:
    x = g.tokens
    return node("Relu", node("Squeeze", node("Unsqueeze", x, [1]), [1])), node("Relu", x)
