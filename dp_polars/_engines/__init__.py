"""Engines: each runs a bounded aggregation and returns exact integers per group, and does nothing else.

No engine knows epsilon, a mechanism or a ledger. `request` is what they are asked, `bounding` the part they share.
"""
