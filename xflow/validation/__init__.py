"""Compares two models on inputs, and drops rewrites that change results or do not pay."""
