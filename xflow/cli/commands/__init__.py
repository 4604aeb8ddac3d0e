"""The commands, one module each, with its arguments, its help and its implementation.

A module has `add`, which adds the command to a parser, and `run`. It is loaded for any `--help`, so
modules that are slow to load are imported in the functions that use them.
"""
