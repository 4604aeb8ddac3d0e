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

scaled = partial(Vocabulary, limits=(1, 1, 1), free=sorts("scale"), roots=sorts("out"))

TO_THE_FRONT = scaled("channels to the front", (LAST_IMAGE, SCALE)).steps(f"""
    vector = Reshape(scale, shape=({C},))
    out, changed = Mul((first, last), (scale, vector))
    out, changed = Add((first, last), (scale, vector))
    first, out = Transpose((last, changed), {TO_FIRST})
""")

TO_THE_BACK = scaled("channels to the back", (FIRST_IMAGE, SCALE)).steps(f"""
    vector = Reshape(scale, shape=({C},))
    changed, out, out = Mul((first, last, mean), (scale, vector, scale))
    changed, out, out = Add((first, last, mean), (scale, vector, scale))
    last, out = Transpose((first, changed), {TO_LAST})
    mean, out = ReduceMean((first, changed), axes=(2, 3), keepdims=1)
""")

LAST_CHANNELS = Family(
    "last-channels",
    (TO_THE_FRONT, TO_THE_BACK),
    about="scales and shifts of channels that go first or last",
)
