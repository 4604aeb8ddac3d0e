"""Recognises attention, normalizations and activations in a graph, in whatever spelling."""

from xflow import ops as ops  # declares the operators that are looked up by name
