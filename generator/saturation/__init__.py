"""What follows from rules: an e-graph that grows by them, derivations, the base and its gaps."""
