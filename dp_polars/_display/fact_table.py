"""Things that read as a table of names and texts: as text and as HTML, from the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from dp_polars._display.text import escaped

Rows = Sequence[tuple[str, str]]
"""A name and a text, row by row."""


class AsTable:
    """Something that reads as a table. It says its `rows`; `str`, `repr` and a notebook's view follow from them.

    A dataclass that inherits this is decorated with `repr=False`, or it would get another `repr`.
    """

    __slots__ = ()

    def rows(self) -> list[tuple[str, str]]:
        """Return what there is to say, in order: names and texts."""
        raise NotImplementedError

    def __str__(self) -> str:
        return table_text(self.rows())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from dp_polars._display.html import plan_html, whole

        return whole(plan_html(self.rows()))


def table_text(rows: Rows) -> str:
    """Return rows of a name and a text, aligned."""
    shown = [(escaped(name), escaped(text)) for name, text in rows]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in shown)
