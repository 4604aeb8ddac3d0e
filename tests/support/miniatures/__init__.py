"""Miniatures of well-known architectures, with few and narrow layers, as exporters write them."""

from miniatures import (
    convolutions,
    detection,
    exported,
    language,
    other,
    sound,
    vision_transformers,
)
from miniatures.net import BUILT

__all__ = [
    "BUILT",
    "convolutions",
    "detection",
    "exported",
    "language",
    "other",
    "sound",
    "vision_transformers",
]
