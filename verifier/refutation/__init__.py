"""Counterexamples: found by running both sides, shrunk, and written as ONNX models."""
