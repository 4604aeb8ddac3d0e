"""Attention, normalizations and activations in a graph, however they are spelled."""

from xflow import ops as ops  # declares the operators that are looked up by name
