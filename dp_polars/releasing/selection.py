"""Candidates chosen by their scores, in each group; and the frame that people get of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars.engines.request import Exact
from dp_polars.mechanisms.selection import peel
from dp_polars.planning.plan import Choosing, Limited, Plan
from dp_polars.planning.query import Query, Selection
from dp_polars.sampling import BitSource

RANK = "rank"
"""The column that says which of several choices a row is: 1 for the first."""

Numbers = NDArray[np.int64]


def choose_candidates(exact: Exact, plan: Plan, choosing: Choosing, source: BitSource) -> pl.DataFrame:
    """Return the key columns of chosen candidates and their rank in their group. Scores are dropped here."""
    selection = plan.query.selection
    if selection is None:
        raise ValueError("a plan without a choice")
    scores = exact.groups[plan.parts[0].name].to_numpy()
    scores = scores if selection.largest else -scores
    rows: list[int] = []
    ranks: list[int] = []
    for start, end in _groups(exact.groups, len(plan.query.keys) - 1):
        own = scores[start:end]
        if choosing.limited is None:
            chosen = peel(own, selection.k, choosing.rate, source, flips=choosing.flips)
        else:
            chosen = _limited(own, selection.k, choosing, choosing.limited, source)
        rows += [start + place for place in chosen]
        ranks += range(1, len(chosen) + 1)
    keys = exact.groups.select([f"key{i}" for i in range(len(plan.query.keys))])
    return keys[rows].with_columns(pl.Series(RANK, ranks, dtype=pl.Int64))


def _limited(scores: Numbers, k: int, choosing: Choosing, limit: Limited, source: BitSource) -> list[int]:
    """Return the candidates that are chosen before nobody is. Ties are broken by the order of their values."""
    best = np.argsort(-scores, kind="stable")[: limit.most + 1]
    best = best[scores[best] > 0]
    following = int(scores[best[limit.most]]) if len(best) > limit.most else 0
    best = best[: limit.most]
    competing = np.append(scores[best], following + limit.gap)
    chosen = peel(competing, k, choosing.rate, source, flips=choosing.flips)
    nobody = len(best)
    before = chosen.index(nobody) if nobody in chosen else len(chosen)
    return [int(best[place]) for place in chosen[:before]]


def _groups(table: pl.DataFrame, keys: int) -> Iterator[tuple[int, int]]:
    """Yield where the rows of each group of the first keys begin and end: they stand together."""
    if not keys:
        yield 0, table.height
        return
    same = pl.all_horizontal(pl.col(f"key{i}").eq_missing(pl.col(f"key{i}").shift()) for i in range(keys))
    new = table.select(new=~same).to_series().to_numpy().copy()
    new[:1] = True
    starts = np.flatnonzero(new)
    yield from zip(starts.tolist(), np.append(starts[1:], table.height)[: len(starts)].tolist(), strict=True)


def choice_schema(query: Query, selection: Selection) -> dict[str, pl.DataType]:
    """Return the names and types of released choices."""
    *by, column = query.keys
    schema: dict[str, pl.DataType] = {key.name: key.dtype for key in by}
    if selection.kind == "top_k" and query.unfolded:
        schema[RANK] = pl.Int64()
    several = selection.kind == "top_k" and not query.unfolded
    schema[column.name] = pl.List(column.dtype) if several else column.dtype
    return schema


def present_choices(chosen: pl.DataFrame, query: Query, selection: Selection) -> pl.DataFrame:
    """Return the released frame: a row for each choice, or one for each group with the list of them."""
    schema = choice_schema(query, selection)
    chosen = chosen if selection.kind == "top_k" and query.unfolded else chosen.drop(RANK)
    named = chosen.rename({f"key{i}": key.name for i, key in enumerate(query.keys)})
    if selection.kind == "top_k" and not query.unfolded:
        *by, column = (key.name for key in query.keys)
        listed = pl.col(column).implode()
        named = named.group_by(by, maintain_order=True).agg(column) if by else named.select(listed)
    return named.select(list(schema)).cast(dict(schema))  # type: ignore[arg-type]
