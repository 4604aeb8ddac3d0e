"""Finders of rewrites that rest on facts about values, and not on a proved rule."""

from xflow import ops as ops  # declares the operators that are looked up by name
