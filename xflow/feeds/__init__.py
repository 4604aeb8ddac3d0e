"""Inputs to run a model on: those of a user, random ones and edge cases."""
