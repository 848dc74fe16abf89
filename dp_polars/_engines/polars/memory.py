"""Upper bounds on the memory that expressions need for a batch, before it is used.

A process that runs out of memory is killed, which would reveal that somebody's rows are in the data. So batches are
halved until these bounds fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from dp_polars._expressions.tree import Apply, Column, Constant, Expression, walk
from dp_polars._expressions.types import MOST_INSERTED, MOST_TEXT


def makes_texts(expression: Expression) -> bool:
    """Return whether an expression computes texts, rather than only naming a column or a constant."""
    return isinstance(expression, Apply) and any(
        _is_text(one.dtype) for one in walk(expression) if isinstance(one, Apply)
    )


_CHOOSE = frozenset({"case", "coalesce", "map_values", "least", "greatest"})
"""Operations that return one of their texts unchanged."""


def cuts_texts(expression: Expression) -> bool:
    """Return whether an expression makes new texts, which may be slices of longer ones."""
    return isinstance(expression, Apply) and any(
        _is_text(one.dtype) and one.operation not in _CHOOSE for one in walk(expression) if isinstance(one, Apply)
    )


def _is_text(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.List(pl.String))


def text_bytes(column: pl.Series) -> int:
    """Return the bytes of a column's texts. Each element of a list also counts for a separator."""
    if isinstance(column.dtype, pl.List) and column.dtype.inner == pl.String:
        column = column.explode(empty_as_null=False)
        return text_bytes(column) + 4 * MOST_INSERTED * len(column)
    total: Any = column.str.len_bytes().sum() if column.dtype == pl.String else 0
    return int(total or 0)


def own_copy(texts: pl.Series) -> pl.Series:
    """Return a copy of sliced texts. Without it, the parts that were cut off would stay in memory."""
    return pl.Series(texts.name, texts.alias("").to_arrow(compat_level=pl.CompatLevel.oldest())).cast(pl.String)


_GROWTH = {
    "lower": 3, "upper": 3, "title": 3, "split": 17, "split_part": 17, "list_join": 1, "concat": 1, "replace": 1,
    "pad_start": 1, "pad_end": 1, "zfill": 1, "format_time": 1, "cast": 1,
}  # fmt: skip
"""Operations whose texts may be larger than their input, and by which factor; see `Sizes`."""

_CUT = {*_GROWTH, "extract", "json_text"}
"""Operations whose texts are cut."""

_WRITTEN = 64  # bytes of a number or a date written as text


class Sizes:
    """An upper bound on the bytes of texts in expressions, given the number of rows and the bytes of each column."""

    def __init__(self, height: int, columns: Mapping[str, int]) -> None:
        self._height, self._columns = height, columns
        self.total = sum(columns.values())

    def of(self, node: Expression) -> int:
        """Return the bytes of an expression's texts, and add those of intermediate texts to the total."""
        if isinstance(node, Column):
            return self._columns[node.name]
        if isinstance(node, Constant):
            return len(node.value.encode()) * self._height if isinstance(node.value, str) else 0
        read, most = sum(self.of(argument) for argument in node.arguments), 4 * MOST_TEXT * self._height
        if node.operation not in _GROWTH:
            made = read + self._longest(node) * self._height
        else:
            # Texts are cut before they can grow. The elements of a list are not cut, only the text made of them.
            short = read if node.operation == "list_join" else min(read, most * len(node.arguments))
            made = _GROWTH[node.operation] * short + self._more(node, min(read, most))
        made = made if _is_text(node.dtype) else 0
        self.total += made
        return min(made, most) if node.dtype == pl.String and node.operation in _CUT else made

    def _longest(self, node: Apply) -> int:
        """Return the length of the longest constant that may replace a value."""
        if node.operation != "map_values":
            return 0
        return max((len(one.encode()) for one in node.parameter("new").value if isinstance(one, str)), default=0)

    def _more(self, node: Apply, read: int) -> int:
        """Return the bytes that an operation adds to the texts that it reads."""
        match node.operation:
            case "concat":
                return 4 * len(node.parameter("separator")) * len(node.arguments) * self._height
            case "replace":  # possibly between any two characters, with at most four groups of the text
                each = 4 * len(node.parameter("value"))
                if node.parameter("n") == 1:
                    return each * self._height + 4 * read
                return each * (read + self._height) + 4 * read
            case "pad_start" | "pad_end" | "zfill":
                return int(4 * node.parameter("length") * self._height)
            case "format_time":
                return 20 * len(node.parameter("format")) * self._height
        return _WRITTEN * self._height if node.operation == "cast" else 0
