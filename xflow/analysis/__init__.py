"""Static analysis of values: ranges, inputs that may be NaN or infinite, and their observers."""
