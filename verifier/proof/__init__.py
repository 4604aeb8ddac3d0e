"""The proof of one instance of a rule, and to which ranks and element types it extends."""
