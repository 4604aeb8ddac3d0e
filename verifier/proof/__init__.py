"""The proof of one instance of a rule, and the ranks and element types to which it extends."""
