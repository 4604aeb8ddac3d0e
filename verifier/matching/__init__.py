"""Decides whether two normal forms are equal."""
