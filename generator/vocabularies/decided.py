"""Vocabularies of choices and Booleans under a constant condition, as an analysis decides them."""

from __future__ import annotations

from xflow.generator.production import Production, choices, numbers
from xflow.generator.vocabularies.common import X
from xflow.generator.vocabulary import Family, Input, Vocabulary

TRUTH = "truth"
CONSTANTS = ("false", "true")

DECIDED = Family(
    "decided",
    (
        Vocabulary(
            "decided conditions",
            (
                Input("c", TRUTH, "...", (32,), dtype="BOOL"),
                Input("x", X, "...", (32,)),
                Input("y", X, "...", (32,)),
            ),
            (
                numbers("zero", 0),
                numbers("one", 1),
                Production("Cast", ("zero",), "false", choices(to=["BOOL"])),
                Production("Cast", ("one",), "true", choices(to=["BOOL"])),
                Production("Not", (TRUTH,), TRUTH),
                *(
                    Production(op, (TRUTH, constant), TRUTH)
                    for op in ("And", "Or", "Xor")
                    for constant in CONSTANTS
                ),
                *(Production("Where", (constant, X, X), X) for constant in CONSTANTS),
            ),
            (2, 2, 2),
            free=frozenset({"zero", "one", *CONSTANTS}),
            roots=frozenset({X, TRUTH}),
        ),
    ),
    about="choices and Booleans whose condition is a constant",
)
