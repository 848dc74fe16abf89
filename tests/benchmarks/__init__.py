"""Benchmarks: CPU seconds and ratios within one run, never wall times. Run `python -m tests.benchmarks`."""
