"""Measures the rounding errors of the two sides of a rule."""
