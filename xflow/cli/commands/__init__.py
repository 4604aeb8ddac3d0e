"""The commands, a module each: its arguments, its help, and what it does.

A module has `add`, which adds the command to a parser, and `run`. It is loaded for any `--help`, so
what takes a while to load is imported in the functions that use it.
"""
