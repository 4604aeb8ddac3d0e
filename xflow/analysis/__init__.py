"""What is known of the values of a graph: ranges, and which operators tell numbers from others."""
