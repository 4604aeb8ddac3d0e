"""Isolated graphs: rewrites that the runtime misses, each on its own.

Every case of `CASES` is a graph as exporters emit it and a better one written by hand. Both read
the same inputs and weights, so that the rewrite is an equation that rules may derive.
"""

from isolated import activations, convolutions, movements, normalizations, products
from isolated.case import CASES, SMALL, Case, Sizes

__all__ = [
    "CASES",
    "SMALL",
    "Case",
    "Sizes",
    "activations",
    "convolutions",
    "movements",
    "normalizations",
    "products",
]
