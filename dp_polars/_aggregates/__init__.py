"""Aggregates: what can be computed for each group of a private frame."""
