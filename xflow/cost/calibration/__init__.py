"""Measurements of a machine, from which the estimate of costs is made."""

from xflow import ops as ops  # declares the operators that are looked up by name
