"""Inputs to run a model on: real ones, random ones and edge cases."""
