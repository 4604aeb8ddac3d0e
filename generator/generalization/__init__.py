"""Generalisation of pairs of concrete graphs to proposed rules over symbols."""
