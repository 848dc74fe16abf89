"""Codes of texts that are learned while rows are read, so that texts are read only once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.codes import Salts, TableCodes, hash_name, hashed, owned, plain_form
from dp_polars._engines.polars.hash_table import HashTable

MOST_VALUES = 1 << 20
"""Different values of a column above which another way to number them is faster and takes less memory."""


class TooManyValuesError(Exception):
    """A column has more than `MOST_VALUES` different values."""


class GrowingCodes:
    """Codes of one column, in the order in which values are met. Several threads may ask for codes at the same time.

    A code is exact: each row is compared with the value that its code stands for. `HashCollisionError` is raised if two
    values share a hash.
    """

    def __init__(self, name: str, dtype: pl.DataType, salts: Salts) -> None:
        self._name, self._dtype = name, dtype
        self._value = plain_form(pl.col(name), dtype)
        self.columns = [self._value.alias(f"{name}_value"), hashed(name, dtype, salts)]
        """The columns that a batch must have. They are made once, since all rows must be hashed with the same salt."""
        self._table, self._lock = HashTable(), threading.Lock()
        self._found = [pl.Series(name, [], dtype=dtype).to_frame().select(self._value).to_series()]
        self._known = self._codes(complete=False)

    @staticmethod
    def suit(dtype: pl.DataType) -> bool:
        """Return whether the values of a type are worth being replaced by codes."""
        return dtype in (pl.String, pl.Categorical, pl.Enum)

    def numbers(self, batch: pl.DataFrame) -> NDArray[np.int32]:
        """Return the code of each row."""
        numbers = self._known.numbers(batch)
        if numbers.min(initial=0) < 0:
            numbers = self._learned(batch).numbers(batch)
        return numbers.astype(np.int32)

    def _learned(self, batch: pl.DataFrame) -> TableCodes:
        """Return codes for all values of a batch."""
        with self._lock:
            # Another thread may have added some of the hashes. Their values stand in the order of adding all the same.
            first = self._table.add(batch[hash_name(self._name)].to_numpy())
            if len(first):
                self._found.append(owned(batch[f"{self._name}_value"].gather(first)))
                if sum(map(len, self._found)) > MOST_VALUES:
                    raise TooManyValuesError
                self._known = self._codes(complete=False)
            return self._codes(complete=True)

    def _codes(self, *, complete: bool) -> TableCodes:
        self._found = [pl.concat(self._found, rechunk=True)]
        return TableCodes(self._found[0].alias(self._name), self._dtype, self._table, open_=not complete)

    def in_order(self) -> tuple[pl.Series, NDArray[Any]]:
        """Return all values in their own order, null first, and the place in this order that each code stands for."""
        return in_order(self._found[0].alias(self._name))


def in_order(values: pl.Series) -> tuple[pl.Series, NDArray[Any]]:
    """Return distinct values in their own order, null first, and the place of each value in this order."""
    order = values.arg_sort(nulls_last=False).to_numpy()
    kind = np.uint8 if len(order) <= 1 << 8 else np.uint16 if len(order) <= 1 << 16 else np.uint32
    places = np.empty(len(order), kind)
    places[order] = np.arange(len(order))
    return values.gather(order), places
