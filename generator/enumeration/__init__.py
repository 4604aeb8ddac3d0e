"""Enumeration of the terms of a vocabulary, level by level, and their classes by fingerprints."""
