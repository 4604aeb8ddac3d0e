"""Whether two normal forms are equal."""
