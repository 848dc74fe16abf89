"""What all charts share: Altair, imported when it is needed, and values in a form that charts can hold."""

from __future__ import annotations

import importlib
import math
import textwrap
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from dp_polars.errors import DPError

BLUE, RED, GREY = "#3b6ea8", "#a3351f", "#6b7480"
WIDTH = 420

ChartRow = dict[str, Any]


def altair() -> Any:
    """Return the module Altair, or raise an error that says how to install it."""
    try:
        return importlib.import_module("altair")
    except ImportError:
        raise DPError("Charts need Altair, which is not installed: pip install 'dp-polars[plot]'.") from None


def inline(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return rows as data that is stored in the chart itself."""
    return altair().InlineData(values=[{name: plain(value) for name, value in row.items()} for row in rows])


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it, with None for NaN and infinity."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | str):
        return value
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, date):
        return f"{value.isoformat()}T00:00:00"  # a browser reads a date without a time as midnight in UTC
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def title(text: str, *below: str) -> Any:
    """Return the title of a chart, with grey lines below it."""
    lines = [line for text in below if text for line in textwrap.wrap(text, 90)]
    return altair().TitleParams(text=textwrap.wrap(text, 70), subtitle=lines, anchor="start", subtitleColor=GREY)


def number(field: str, name: str, **words: Any) -> Any:
    """Return a tooltip that shows a number."""
    return altair().Tooltip(field=field, type="quantitative", title=name, format=",.6~g", **words)


def label(field: str, name: str) -> Any:
    """Return a tooltip that shows a text."""
    return altair().Tooltip(field=field, type="nominal", title=name)
