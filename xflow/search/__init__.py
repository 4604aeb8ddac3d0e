"""The search for a faster form of a graph, region by region."""

from xflow import ops as ops  # declares the operators that are looked up by name
