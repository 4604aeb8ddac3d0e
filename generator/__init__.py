"""The generator: builds the database of rules from the operators' declarations alone.

`run` is the entry. For each vocabulary of `families`, `enumerate` lists terms and groups them by
`fingerprint`, `propose` pairs members of a class, `generalize` turns pairs over numbers into a
rule over symbols (`skeleton`, `fit`, `typing`, `wording`), `sample` filters by evaluation, and
`derive` proves with `xflow.verifier` what `minimize` cannot derive from smaller rules.
"""

from xflow import ops as ops  # declares the operators that are looked up by name
