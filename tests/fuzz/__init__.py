"""Fuzzers of the two expression parsers and of whole SQL statements.

`grammar_*` make texts from a source of randomness, which Hypothesis drives and shrinks. `child` runs one text after
another in a process of its own, whose death and silence are seen, and `oracles` say what must hold for each.
"""
