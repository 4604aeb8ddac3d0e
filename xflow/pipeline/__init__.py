"""One run of the optimizer, phase by phase, and the Python API."""
