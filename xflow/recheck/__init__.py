"""Checkers of rewrites that rest on values, which share no code with what finds these.

They lie below `xflow.analysis`, whose modules they cannot import: ranges are computed by a second
analysis, and what is put in place is held against what stood there.
"""

from xflow import ops as ops  # declares the operators that are looked up by name
