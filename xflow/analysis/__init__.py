"""What is known of the values of a graph: their ranges, and who would notice what is no number."""
