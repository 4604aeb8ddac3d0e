"""Rules: their text, where they match, what a place allows, and the log of what was applied."""

from xflow import ops as ops  # declares the operators that are looked up by name
