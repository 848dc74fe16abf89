"""Fuzzers of the two expression parsers, of whole SQL statements, of registered functions, and of pipelines in Polars.

`grammar_*` make texts from a source of randomness, which Hypothesis drives and shrinks. `child` runs one text after
another in a process of its own, whose death and silence are seen. `oracles` say what must hold for an expression, and
`neighbours` what must hold for a question about `private_rows`.
"""
