"""Counterexamples: found by running both sides, made small, and written to be run."""
