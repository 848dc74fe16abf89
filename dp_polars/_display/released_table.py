"""Released frames as tables that people read: keys as plain text on the left, numbers with thousands separators."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from dp_polars._display.html import columns, escape, number_cell
from dp_polars._display.text import amount, escaped

MOST_ROWS = 200
"""The most rows that a table shows."""
_WIDTH = 150  # characters of a line in a terminal
_MOST_TEXT = 60  # characters of a cell
_DIGITS = 6
# Characters that have a meaning in Markdown. An underscore within a word has none.
_IN_MARKDOWN = re.compile(r"[\\`*{}\[\]#|~$!]|(?<!\w)_|_(?!\w)")


@dataclass(frozen=True)
class ReleasedTable:
    """The cells of a released frame as text, the number of rows that are left out, and which columns are numbers."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[bool, ...]
    left_out: int

    def text(self) -> str:
        """Return the table for a terminal. Columns that don't fit are left out, and the last line says so."""
        cells = [[_shortened(cell) for cell in row] for row in (self.names, *self.rows)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(self.names))]
        fit = _that_fit(widths)
        lines = [self._line(row[:fit], widths) for row in cells]
        lines.insert(1, "  ".join("-" * width for width in widths[:fit]))
        return "\n".join([*lines, *self._rest(len(self.names) - fit)])

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        aligned = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, self.numbers, strict=False)
        ]
        return "  ".join(aligned).rstrip()

    def _rest(self, columns_left_out: int = 0) -> list[str]:
        parts = [(self.left_out, "row"), (columns_left_out, "column")]
        said = [f"{number:,} more {what}{'' if number == 1 else 's'}" for number, what in parts if number]
        return [f"... {' and '.join(said)}: see release.frame"] if said else []

    def html(self) -> str:
        """Return the table as HTML."""
        cells = [
            [
                number_cell(cell) if number else f"<td>{escape(cell)}</td>"
                for cell, number in zip(row, self.numbers, strict=True)
            ]
            for row in self.rows
        ]
        rest = "".join(f'<div class="dp-polars-quiet">{escape(line)}</div>' for line in self._rest())
        return columns("released frame", self.names, cells, numbers=self.numbers) + rest

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [
            "| " + " | ".join(map(in_markdown, self.names)) + " |",
            "|" + "|".join("--:" if number else ":--" for number in self.numbers) + "|",
            *("| " + " | ".join(map(in_markdown, row)) + " |" for row in self.rows),
        ]
        return "\n".join([*lines, *(f"\n{line}" for line in self._rest())])


def released_table(frame: pl.DataFrame, keys: Collection[str], *, most: int = MOST_ROWS) -> ReleasedTable:
    """Return the cells of a released frame. Numbers among `keys`, such as years, get no thousands separators.

    >>> frame = pl.DataFrame({"year": [2013, 2014], "flights": [336776, 1200], "mean": [12.63907, None]})
    >>> print(released_table(frame, {"year"}).text())
    year  flights     mean
    ----  -------  -------
    2013  336,776  12.6391
    2014    1,200     null
    """
    shown = frame.head(most)
    cells = [[_cell(value, name in keys) for value in shown[name].to_list()] for name in frame.columns]
    names = [escaped(name) for name in frame.columns]
    if len(set(names)) < len(names):  # number the columns if two names now read alike
        names = [f"{name} ({place})" for place, name in enumerate(names, 1)]
    numbers = tuple(dtype.is_numeric() and name not in keys for name, dtype in frame.schema.items())
    return ReleasedTable(tuple(names), tuple(zip(*cells, strict=True)), numbers, max(0, frame.height - most))


def _cell(value: Any, key: bool) -> str:
    """Return a value as text, with its control characters written out."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value) if key else f"{value:,}"
    if isinstance(value, float):
        return (
            f"{value:g}" if key else amount(value, max(_DIGITS, len(str(int(abs(value)))) if abs(value) < 1e15 else 0))
        )
    if isinstance(value, timedelta):
        return str(value)
    return escaped(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."


def _that_fit(widths: Sequence[int]) -> int:
    """Return how many columns fit into a line; at least one."""
    total = 0
    for place, width in enumerate(widths):
        total += width + 2 * (place > 0)
        if total > _WIDTH and place:
            return place
    return len(widths)


def in_markdown(text: str) -> str:
    """Escape the characters that have a meaning in Markdown or HTML."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _IN_MARKDOWN.sub(r"\\\g<0>", plain)
