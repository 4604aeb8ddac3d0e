"""What rounding does to the two sides of a rule."""
