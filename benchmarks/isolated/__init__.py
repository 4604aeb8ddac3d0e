"""Isolated graphs: rewrites that the runtime misses, each on its own.

Every case of `CASES` is a graph as exporters emit it and the better one that somebody would write
by hand. Both read the same inputs and weights, so that what the rules can do is an equation.
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
