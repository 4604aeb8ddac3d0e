"""Calibration: measures the numbers of a machine on which the estimate of costs is based."""

from xflow import ops as ops  # declares the operators that are looked up by name
