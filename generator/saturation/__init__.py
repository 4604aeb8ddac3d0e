"""Consequences of rules: equality saturation in an e-graph, derivations, the base and its gaps."""
