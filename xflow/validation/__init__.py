"""Whether two models compute the same."""
