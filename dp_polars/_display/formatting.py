"""Numbers, times and labels as people read them."""

from __future__ import annotations

import math
from datetime import datetime


def percent(share: float) -> str:
    """Return a share in percent; what is little but not nothing does not read as 0.

    >>> percent(0.48), percent(0.00001), percent(0)
    ('48.0 %', '<0.1 %', '0.0 %')
    """
    if not math.isfinite(share):
        return "no bound"
    return "<0.1 %" if 0 < share < 0.0005 else f"{share * 100:.1f} %"


def moment(stamp: str | None) -> str:
    """Return a time of the ledger, which is in UTC, to the minute.

    >>> moment("2026-03-01T09:05:59+00:00")
    '2026-03-01 09:05 UTC'
    """
    if stamp is None:
        return "not yet"
    try:
        return datetime.fromisoformat(stamp).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return stamp


def one_line(text: str, most: int) -> str:
    r"""Return a text in one line of a terminal, without control characters, cut if it is too long.

    >>> one_line("count by\nregion", 80), one_line("abcdefgh", 6)
    ('count by region', 'abc...')
    """
    clean = "".join(sign if sign.isprintable() else " " for sign in text)
    return clean if len(clean) <= most else clean[: most - 3] + "..."
