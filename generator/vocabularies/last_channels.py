"""Vocabularies of images with channels last, transposed and back: scales and shifts by channel.

`first` are images with channels first, `last` those with channels last; a `scale` is [1, C, 1, 1]
and a `vector` [C].
"""

from __future__ import annotations

from functools import partial

from xflow.generator.vocabularies.common import sorts
from xflow.generator.vocabulary import Family, Input, Vocabulary

FIRST, LAST = "first", "last"
N, C, H, W = 2, 5, 3, 4
TO_FIRST, TO_LAST = "perm=(0, 3, 1, 2)", "perm=(0, 2, 3, 1)"
LAST_IMAGE = Input("x", LAST, "N H W C", (N, H, W, C))
FIRST_IMAGE = Input("x", FIRST, "N C H W", (N, C, H, W))
SCALE = Input("s", "scale", "1 C 1 1", (1, C, 1, 1))

scaled = partial(Vocabulary, limits=(1, 1, 1), free=sorts("scale"), exact=False, roots=sorts("out"))

TO_THE_FRONT = scaled("channels to the front", (LAST_IMAGE, SCALE)).steps(f"""
    vector = Reshape(scale, shape=({C},))
    first = Transpose(last, {TO_FIRST})
    changed = Elementwise(last, vector)
    out = Elementwise(first, scale) | Transpose(changed, {TO_FIRST})
""")

TO_THE_BACK = scaled("channels to the back", (FIRST_IMAGE, SCALE)).steps(f"""
    vector = Reshape(scale, shape=({C},))
    last = Transpose(first, {TO_LAST})
    changed = Elementwise(first, scale)
    moved = Mul(first, scale) | Add(first, scale)
    mean = ReduceMean(first, axes=(2, 3), keepdims=1)
    out = Elementwise(last, vector) | Transpose(changed, {TO_LAST})
    out = ReduceMean(moved, axes=(2, 3), keepdims=1) | Mul(mean, scale) | Add(mean, scale)
""")

LAST_CHANNELS = Family(
    "last-channels",
    (TO_THE_FRONT, TO_THE_BACK),
    about="scales and shifts of channels that go first or last",
)
