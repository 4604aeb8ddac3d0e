"""Blocks of a model: attention, normalizations, activations, however they are spelled."""
