"""Candidates chosen by their scores, in each group; and the frame that people get of them."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.request import Exact
from dp_polars._plan.plan import Choosing, Limited, Plan
from dp_polars._plan.query import Query, Selection
from dp_polars._sampling import BitSource
from dp_polars.mechanisms.selection import peel

RANK = "rank"
"""The column that says which of several choices a row is: 1 for the first."""

Numbers = NDArray[np.int64]


def choose_candidates(exact: Exact, plan: Plan, choosing: Choosing, source: BitSource) -> pl.DataFrame:
    """Return the key columns of chosen candidates and their rank in their group. Scores are dropped here."""
    starts = _starts(exact.groups, len(plan.query.keys) - 1)
    rows, ranks = choose_rows(exact.groups[plan.parts[0].name].to_numpy(), starts, plan, choosing, source)
    keys = exact.groups.select([f"key{i}" for i in range(len(plan.query.keys))])
    return keys[rows].with_columns(pl.Series(RANK, ranks, dtype=pl.Int64))


def choose_rows(
    scores: Numbers, starts: Numbers, plan: Plan, choosing: Choosing, source: BitSource
) -> tuple[Numbers, Numbers]:
    """Return the rows of chosen candidates, and their rank in their group; a group begins at each of `starts`.

    Groups with the same number of candidates are chosen from together.
    """
    selection = plan.query.selection
    if selection is None:
        raise ValueError("a plan without a choice")
    scores = scores if selection.largest else -scores
    sizes = np.append(starts[1:], len(scores)) - starts
    groups: list[Numbers] = []
    rows: list[Numbers] = []
    ranks: list[Numbers] = []
    for size in np.unique(sizes[sizes > 0]).tolist():
        alike = np.flatnonzero(sizes == size)
        table = scores[starts[alike][:, None] + np.arange(size)]
        if choosing.limited is None:
            chosen = peel(table, selection.k, choosing.rate, source, flips=choosing.flips)
        else:
            chosen = _limited(table, selection.k, choosing, choosing.limited, source)
        place, rank = np.nonzero(chosen >= 0)
        groups.append(alike[place])
        rows.append(starts[alike][place] + chosen[place, rank])
        ranks.append(rank + 1)
    if not groups:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(np.concatenate(groups), kind="stable")
    return np.concatenate(rows)[order], np.concatenate(ranks)[order]


def _limited(scores: Numbers, k: int, choosing: Choosing, limit: Limited, source: BitSource) -> Numbers:
    """Return the candidates that are chosen before nobody is, and -1 after that, row by row.

    Ties are broken by the order of their values.
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, : limit.most + 1]
    ranked = np.take_along_axis(scores, order, axis=1)
    positive = (ranked > 0).sum(axis=1)
    width = min(k, order.shape[1])  # if nobody competes with all of these, whoever is last comes after nobody
    found = np.full((len(scores), width), -1, np.int64)
    for number in np.unique(positive).tolist():
        alike = np.flatnonzero(positive == number)
        nobody = min(number, limit.most)
        following = ranked[alike, limit.most] if number > limit.most else np.zeros(len(alike), np.int64)
        competing = np.column_stack([ranked[alike, :nobody], following + limit.gap])
        chosen = peel(competing, k, choosing.rate, source, flips=choosing.flips)[:, :width]
        before = np.cumsum(chosen == nobody, axis=1) == 0
        places = np.take_along_axis(order[alike], np.minimum(chosen, order.shape[1] - 1), axis=1)
        found[alike, : chosen.shape[1]] = np.where(before, places, -1)
    return found


def _starts(table: pl.DataFrame, keys: int) -> Numbers:
    """Return where the rows of each group of the first keys begin: they stand together."""
    if not keys:
        return np.zeros(1, np.int64)
    same = pl.all_horizontal(pl.col(f"key{i}").eq_missing(pl.col(f"key{i}").shift()) for i in range(keys))
    new = table.select(new=~same).to_series().to_numpy().copy()
    new[:1] = True
    return np.flatnonzero(new)


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
