"""Vocabularies of choices and Booleans under a constant condition, as an analysis decides them."""

from __future__ import annotations

from xflow.generator.vocabularies.common import X, sorts
from xflow.generator.vocabulary import Family, Input, Vocabulary

DECIDED = Family(
    "decided",
    (
        Vocabulary(
            "decided conditions",
            (
                Input("c", "truth", "...", (32,), dtype="BOOL"),
                Input("x", X, "...", (32,)),
                Input("y", X, "...", (32,)),
            ),
            limits=(2, 2, 2),
            roots=sorts("x truth"),
        ).steps("""
            zero = 0; one = 1
            false, true = Cast((zero, one), to="BOOL")
            truth = Not(truth) | And(truth, false | true) | Or(truth, false | true)
            truth = Xor(truth, false | true)
            x = Where(false | true, x, x)
        """),
    ),
    about="choices and Booleans whose condition is a constant",
)
