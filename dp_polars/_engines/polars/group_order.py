"""The order in which units keep their groups: a salted hash of the values of unit and key, never of codes.

In general, it is computed from the values of every row. Where units and groups are exact numbers, it is computed from
these, with a table of the hashes of keys. If rows then fit into a shorter word without it, it is computed after they
are sorted, once for all rows of a group, and otherwise before that, for every row. All ways hash the same values with
the same salts, so they give the same order. What one unit can change: the order of its own groups, since nothing else
enters the hash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from dp_polars._engines.bounding import ORDER_BITS
from dp_polars._engines.bounding.blocks import AnyWords, Numbers
from dp_polars._engines.polars.codes import Codes, Salts, Words, hash_name, hashed
from dp_polars._engines.polars.units import MIXER, IntegerUnits, UnitCoder, combined
from dp_polars._engines.request import BoundedRequest

_MOST_KEYS = 1 << 18  # discovered keys whose hashes are kept in a table; more would not fit into the cache


def order_of(units: Words, keys: Words | None) -> Words:
    """Return the place of groups in the order of their units, from the hashes of units and keys."""
    order = units * MIXER if keys is None else units ^ keys
    if keys is not None:
        order *= MIXER
    order >>= np.uint64(64 - ORDER_BITS)
    return order


@dataclass(frozen=True, repr=False, eq=False)
class GroupOrder:
    """The order of groups whose units and keys are given by their numbers.

    Attributes
    ----------
    units
        Returns the hashes of units.
    keys
        The hash of each combination of the leading keys; None if there are none.
    inner
        How many groups share a combination.
    """

    units: Callable[[AnyWords], Words]
    keys: Words | None
    inner: int

    def __call__(self, units: AnyWords, number: Numbers, group: Numbers) -> Words:
        """Return the place of each group in the order of its unit. `number` gives the place of that unit in `units`."""
        return self._of(self.units(units).take(number), group)  # each unit is hashed once, not once for each group

    def of_rows(self, units: Words, group: Numbers) -> Words:
        """Return the place of each row's group in the order of the row's unit. Rows without a group get any place."""
        return self._of(self.units(units), group)

    def _of(self, hashes: Words, group: Numbers) -> Words:
        if self.keys is None:
            return order_of(hashes, None)
        places = group // self.inner if self.inner > 1 else group
        return order_of(hashes, self.keys.take(places, mode="clip"))  # a row without a group has a number below 0


def group_order(
    units: UnitCoder, codes: Sequence[Codes], request: BoundedRequest, types: Mapping[str, pl.DataType], salts: Salts
) -> GroupOrder | None:
    """Return the order of groups from their numbers, or None if it has to be computed from the rows themselves.

    `types` are those of the key columns before they were replaced by codes.
    """
    if not isinstance(units, IntegerUnits):
        return None
    names = [f"key{place}" for place in range(request.leading)]
    unit_hashes = units.hashes(salts)
    if not names:
        return GroupOrder(unit_hashes, None, 1)
    if request.domain is not None:
        if not request.domain.height or any(request.domain.schema[name] != types[name] for name in names):
            return None
        hashes = request.domain.select(hashed(name, types[name], salts) for name in names)
        return GroupOrder(unit_hashes, combined(hashes, [hash_name(name) for name in names]), 1)
    leading = codes[: request.leading]
    if not 0 < (size := math.prod(code.size for code in leading)) <= _MOST_KEYS:
        return None
    rest, found = np.arange(size), {}
    for name, code in zip(reversed(names), reversed(leading), strict=True):
        rest, own = np.divmod(rest, code.size)
        values = code.decode(np.arange(code.size)).alias(name).to_frame()
        if values.schema[name] != types[name]:
            return None
        found[hash_name(name)] = values.select(hashed(name, types[name], salts)).to_series().gather(own)
    inner = math.prod(code.size for code in codes[request.leading :])
    return GroupOrder(unit_hashes, combined(pl.DataFrame(found), [hash_name(name) for name in names]), inner)
