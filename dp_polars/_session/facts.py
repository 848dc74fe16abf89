"""Facts about the data that are public by their owner's word, recorded in the ledger so that no row changes them."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """Something about the data that is public by the owner's word; it was recorded once and stays.

    Attributes
    ----------
    kind, subject, value
        What kind of fact it is, what it is about and what it says. The types of a text file's columns are "column
        types" of its path: pairs of a column and a type, in JSON.
    recorded_at
        When.

    Examples
    --------
    >>> import dp_polars as dp
    >>> print(dp.Fact("column types", "/data/visits.csv", '[["user_id", "BIGINT"]]', "2026-03-01T09:05:59+00:00"))
    column types of /data/visits.csv: user_id BIGINT
    """

    kind: str
    subject: str
    value: str
    recorded_at: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.subject}: {', '.join(' '.join(pair) for pair in json.loads(self.value))}"
