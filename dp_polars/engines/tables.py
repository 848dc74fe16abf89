"""The sums of several lanes as one table."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def side_by_side(tables: Sequence[pl.DataFrame], domain: pl.DataFrame | None, keys: Sequence[str]) -> pl.DataFrame:
    """Return the sums of lanes for every public key, or every group that occurs, sorted; 0 where a lane has nobody.

    Each table has the keys, sums of its own names, and `runs`, how many units a group has; these are added up.
    """
    numbered = [table.rename({"runs": f"runs {place}"}) for place, table in enumerate(tables)]
    together = pl.sum_horizontal("^runs .*$").alias("runs")
    if not keys:
        columns = pl.DataFrame([column for table in numbered for column in table.get_columns()])
        return columns.with_columns(together).drop("^runs .*$")
    if domain is not None:
        groups = domain
    else:
        groups = pl.concat([table.filter(pl.col("runs") > 0).select(keys) for table in tables]).unique().sort(keys)
    for table in numbered:
        groups = groups.join(table, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return groups.with_columns(pl.exclude(keys).fill_null(0)).with_columns(together).drop("^runs .*$")
