"""The verifier: proves that both sides of a rule are equal for all sizes.

`prove` is the entry: it reads both sides at a symbolic output index through the operators' own
specifications (`xflow.ops`), brings them to a normal form (`normal`), matches their sums
(`match`) and discharges every question about indices and sizes with Z3 (`arithmetic`). `refute`
looks for counterexamples by running both sides on small random tensors. `database` proves whole
directories again.
"""
