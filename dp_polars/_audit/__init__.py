"""Audits: attempts to refute the guarantee of a question on made-up data.

- `audit`: `dp.audit`, from a question and two neighbouring inputs to a verdict.
- `copies`: draws the noise of one query very often at once, through the library's own noise path.
- `samples`: the answers of all runs as a table.
- `events`: learns which event tells the inputs apart, and judges it.
- `limits`: confidence limits of a probability, and the trade-off curve of a Gaussian.
- `result`: what was found, as numbers, a table and a chart.

May import: everything that answers queries (sessions, plans, releases), `theory`, `_display`. Never: a mechanism or
noise of its own, because an audit must run the code that real releases run.
"""
