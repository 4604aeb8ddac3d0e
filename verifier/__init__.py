"""The verifier: proves that both sides of a rule are equal for all sizes.

`prove` is the entry: for each rank, `instance` reads both sides at a symbolic output index through
the operators' own specifications (`xflow.ops`), `algebra` brings them to a normal form, `matching`
shows that the forms are equal, and Z3 (`algebra.arithmetic`) answers every question about indices
and sizes. `defined` shows that the right side is defined wherever the left is; `conditions` looks
for conditions that a rule lacks, `ranks` and `types` say to which ranks and types a proof extends.

Beside the proof: `refutation` looks for counterexamples by running both sides on small tensors,
`rounding` measures what floating-point arithmetic does to them, `recheck` checks certificates
independently of the prover, and `database` proves whole directories again.
"""

from xflow import ops as ops  # declares the operators that are looked up by name
