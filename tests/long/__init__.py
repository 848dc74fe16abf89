"""Tests that take long, run by `python -m tests.long soak fuzz`.

Each module has a `main()` that prints a report and returns whether everything held.
"""
