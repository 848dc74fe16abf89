"""Audits: attempts to refute the guarantee of a question, on made-up data.

`audit` is `dp.audit`, the way from a question to a verdict. `neighbours` checks the two inputs; `copies` draws the
noise of a query very often at once, through the library's own noise path; `samples` is the answers of all runs;
`events` learns what tells the inputs apart; `limits` are the confidence limits and the trade-off curve of a Gaussian;
`result` is what was found.
"""
