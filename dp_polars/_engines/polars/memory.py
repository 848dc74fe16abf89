"""How much memory rows need at most, before it is used: of texts that are made, and of public values that are found.

Memory that runs out ends the process, and tells that somebody's rows are there. So `rows` halves what it computes until
these upper bounds fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._expressions.tree import Apply, Column, Constant, Expression, walk
from dp_polars._expressions.types import MOST_INSERTED, MOST_TEXT


def makes_texts(expression: Expression) -> bool:
    """Whether an expression makes texts that are not those of a column or a constant."""
    return any(isinstance(one, Apply) and _is_text(one.dtype) for one in walk(expression))


_CHOOSE = frozenset({"case", "coalesce", "map_values", "least", "greatest"})
"""Operations that give texts which are there already."""


def cuts_texts(expression: Expression) -> bool:
    """Whether an expression makes new texts, so that parts of longer ones may be among them."""
    return any(
        isinstance(one, Apply) and _is_text(one.dtype) and one.operation not in _CHOOSE for one in walk(expression)
    )


def _is_text(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.List(pl.String))


def text_bytes(column: pl.Series) -> int:
    """Return how many bytes the texts of a column have; an element of a list counts for a separator, too."""
    if isinstance(column.dtype, pl.List) and column.dtype.inner == pl.String:
        column = column.explode(empty_as_null=False)
        return text_bytes(column) + 4 * MOST_INSERTED * len(column)
    total: Any = column.str.len_bytes().sum() if column.dtype == pl.String else 0
    return int(total or 0)


def own_copy(texts: pl.Series) -> pl.Series:
    """Return a copy of texts that were cut: as they are, they would keep what was cut off in the memory."""
    return pl.Series(texts.name, texts.to_arrow(compat_level=pl.CompatLevel.oldest())).cast(pl.String)


_GROWTH = {
    "lower": 3, "upper": 3, "title": 3, "split": 17, "split_part": 17, "list_join": 1, "concat": 1, "replace": 1,
    "pad_start": 1, "pad_end": 1, "zfill": 1, "format_time": 1, "cast": 1,
}  # fmt: skip
"""Operations that make texts which are larger than what they read, and how many times as large; see `Sizes`."""

_WRITTEN = 64  # bytes of a number or a date as a text


class Sizes:
    """An upper bound of the bytes that the texts of expressions need, for so many rows with columns of such sizes."""

    def __init__(self, height: int, columns: Mapping[str, int]) -> None:
        self._height, self._columns = height, columns
        self.total = sum(columns.values())

    def of(self, node: Expression) -> int:
        """Return the size of a text that an expression gives, and add what it needs on the way to the total."""
        if isinstance(node, Column):
            return self._columns[node.name]
        if isinstance(node, Constant):
            return len(node.value.encode()) * self._height if isinstance(node.value, str) else 0
        read, most = sum(self.of(one) for one in node.arguments), 4 * MOST_TEXT * self._height
        if node.operation not in _GROWTH:
            made = read + self._longest(node) * self._height
        else:
            # Texts are cut before they grow; the parts of a list are not, only what is made of them.
            short = read if node.operation == "list_join" else min(read, most * len(node.arguments))
            made = _GROWTH[node.operation] * short + self._more(node, min(read, most))
        made = made if _is_text(node.dtype) else 0
        self.total += made
        return min(made, most) if node.dtype == pl.String else made

    def _longest(self, node: Apply) -> int:
        """Return the length of the longest constant that may stand in the place of a value."""
        if node.operation != "map_values":
            return 0
        return max((len(one.encode()) for one in node.parameter("new").value if isinstance(one, str)), default=0)

    def _more(self, node: Apply, read: int) -> int:
        """Return what is added to the texts that were read."""
        match node.operation:
            case "concat":
                return 4 * len(node.parameter("separator")) * len(node.arguments) * self._height
            case "replace":  # in each place between two characters, with at most four groups of the text
                each = 4 * len(node.parameter("value"))
                if node.parameter("n") == 1:
                    return each * self._height + 4 * read
                return each * (read + self._height) + 4 * read
            case "pad_start" | "pad_end" | "zfill":
                return int(4 * node.parameter("length") * self._height)
            case "format_time":
                return 20 * len(node.parameter("format")) * self._height
        return _WRITTEN * self._height if node.operation == "cast" else 0


def largest_value(column: pl.Series) -> int:
    """Return how many characters and elements the largest value of a column has."""
    return int(_sizes_of(column).max(initial=0))


def _sizes_of(column: pl.Series) -> NDArray[np.int64]:
    dtype = column.dtype
    if dtype == pl.String or dtype == pl.Binary:
        sizes = column.str.len_chars() if dtype == pl.String else column.bin.size()
        return sizes.fill_null(0).cast(pl.Int64).to_numpy()
    if isinstance(dtype, pl.Struct):
        fields = [_sizes_of(column.struct.field(field.name)) for field in dtype.fields]
        return np.sum(fields, axis=0, dtype=np.int64) if fields else np.ones(len(column), np.int64)
    if isinstance(dtype, pl.Array):
        return _sizes_of(column.cast(pl.List(dtype.inner)))
    if not isinstance(dtype, pl.List):
        return np.ones(len(column), np.int64)
    lengths = column.list.len().fill_null(0).cast(pl.Int64).to_numpy()
    inner = _sizes_of(column.filter(pl.Series(lengths > 0)).explode(empty_as_null=False))
    ends: NDArray[np.int64] = np.cumsum(np.append(0, inner))
    starts = np.cumsum(lengths) - lengths
    whole: NDArray[np.int64] = lengths + ends[starts + lengths] - ends[starts]
    return whole
