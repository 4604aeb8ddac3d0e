"""The recheck: an independent checker of certificates.

It imports nothing of the prover: it reads the rule's text, takes the operators' specifications
(`xflow.ops`), and asks cvc5 where the prover asked Z3. For each rule, in each direction, at each
rank:

1. *Statement.* The certificate is about this very rule, assumes what the left side gives (sizes,
   requirements, `where`), and lists what the right side requires (`check`).
2. *Requirements and definedness.* What the right side requires, that its quotients, roots and
   logarithms are defined, and that it looks up at places that exist, follows from what the left
   side gives (`check`, `defined`, `ranges`, `witness`).
3. *Elements.* Each element that the right side reads, and each that may get lost on the left, is
   read by the left side where it has a value, or is a number by a condition (`elements`); that
   inputs have -inf for a limit is read off both sides.
4. *Normal forms.* Each side's specification is expanded anew (`expand`, `clashes`, `laws`) and
   shown, for all sizes, to equal the recorded normal form (`output`).
5. *Matching.* The recorded groups of terms cancel: the changes of variables are bijections of
   Z^n, products agree after them, and weighted guards sum to 0 (`replay`, `groups`, `finite`);
   together they cover all terms. Each recorded obligation is solved again (`solver`). What is
   left over is put to cvc5 as arithmetic of real numbers with choices, with unknowns for elements,
   for sums and for maxima over ranges (`abstraction`, `unknowns`); there a comparison is the sign
   of a sum (`comparisons`).
6. *Evaluation.* Both sides are evaluated at random sizes (`evaluate`, `compiled`), in exact
   rational arithmetic as far as the functions of the language have rational values.
7. *Bits.* That no operation rounds is read off the specifications, and that the sides agree to the
   bit is tried on 32-bit floats (`floats`).

Steps 1 to 5 are proof: they hold for all sizes and all real inputs, given that cvc5 is right when
it says ``unsat``. Step 6 is a test, at some ten assignments of sizes a rank; nothing rests on it
alone. Step 7 is one too, and all that there is for the line ``exact bits``: of a rule that has it,
elements need not be numbers where step 3 is not shown. Not rechecked: the search for conditions,
and what is measured.

A step without a replay, an unknown and an exhausted limit leave a rule *not confirmed*; a step that
does not follow, or a point at which the sides differ, makes the certificate *wrong*. What follows
by itself, without a record, is accepted: the record is only a hint, and is not trusted.
"""
