"""ONNX models: reading, writing, shapes, functions and subgraphs."""

from xflow import ops as ops  # declares the operators that are looked up by name
