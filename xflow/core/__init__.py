"""The intermediate representation: sizes, conditions, graphs, and what an operator declares."""
