"""Parts that all SQL texts of this engine share: rows as a text, salted hashes, and floats in one form."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from dp_polars._engines.rows import Source
from dp_polars._engines.spark.lowering import call
from dp_polars._engines.spark.types import BIGINT, literal

Hash = Callable[[Sequence[str]], str]
"""Returns the text of a 64-bit hash of columns."""


def salted(salt: Sequence[int]) -> Hash:
    """Return Spark's 64-bit hash with a secret salt."""
    words = [literal(word, BIGINT) for word in salt]
    return lambda columns: call("xxhash64", *words, *columns)


def fresh_hash() -> Hash:
    """Return a hash with a new secret salt, drawn on the driver."""
    return salted([secrets.randbits(63) for _ in range(2)])


@dataclass
class Named:
    """What a text names in braces, and the common tables that it names otherwise. All parts of a text share it."""

    sources: dict[str, Source] = field(default_factory=dict)
    """The sources of private rows. The first one is called `rows`."""
    public: dict[str, pl.DataFrame] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    """The texts of common tables, in an order in which each uses only those before it."""

    def source(self, source: Source) -> str:
        """Return the name of a source, the same whenever it is read."""
        for name, known in self.sources.items():
            if known is source:
                return name
        name = f"rows{len(self.sources) or ''}"
        self.sources[name] = source
        return name

    def table(self, text: str) -> str:
        """Return the name of a new common table."""
        name = f"table{len(self.tables)}"
        self.tables[name] = text
        return name


@dataclass
class RowsText:
    """Rows as a SQL text: how their columns are called there, and what it names."""

    text: str
    columns: dict[str, str]
    named: Named
    sizes: dict[str, int] = field(default_factory=dict)
    """The lengths of the texts of columns if everything in them were written out."""

    @property
    def public(self) -> Mapping[str, pl.DataFrame]:
        """The public frames that the text joins."""
        return self.named.public


def select(columns: Sequence[str], source: str, rest: str = "") -> str:
    """Return a SELECT. All names in it are our own."""
    return f"SELECT {', '.join(columns)} FROM {source}{rest}"  # noqa: S608 - names are our own


def with_tables(tables: Mapping[str, str], text: str) -> str:
    """Return a text with common tables before it."""
    listed = ", ".join(f"{name} AS ({own})" for name, own in tables.items())
    return f"WITH {listed} {text}" if listed else text


def one_form(column: str, dtype: pl.DataType) -> str:
    """Return a column in which equal floats have equal bytes. Its NaN are alike already: see `types.one_nan`.

    The square of each zero is the positive one. A constant would say the same, but see `types.false_in_each_row`.
    """
    return f"CASE WHEN {column} = 0 THEN {column} * {column} ELSE {column} END" if dtype.is_float() else column
