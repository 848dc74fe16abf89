"""Objects that read as a table of facts, such as plans: as text and as HTML, from the same rows."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dp_polars._display.html import FactRows, facts, whole
from dp_polars._display.text import escaped


class AsTable(ABC):
    """An object that reads as a table. Its `rows` determine `str`, `repr` and the view in a notebook.

    A dataclass that inherits from this class must set `repr=False`, or it would get a `repr` of its own.
    """

    __slots__ = ()

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """Return the facts in order, each with its name and its text."""

    def __str__(self) -> str:
        return table_text(self.rows())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return whole(facts(self.rows()))


def table_text(rows: FactRows) -> str:
    """Return a fact table as aligned text."""
    shown = [(escaped(name), escaped(text)) for name, text in rows]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in shown)
