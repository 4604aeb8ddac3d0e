"""Checkers of rewrites by facts about values, which share no code with the finders of these.

The package lies below `xflow.analysis` and cannot import it: it compares the new value of a rewrite
with the old one, and takes ranges from an interval analysis of its own.
"""

from xflow import ops as ops  # declares the operators that are looked up by name
