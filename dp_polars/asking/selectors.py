"""Spell out selectors, wildcards and patterns as the columns they stand for, the way Polars does it.

The result is compared with Polars' own names and types; where they differ the selector is refused.
"""

from __future__ import annotations

import io
import json
from typing import Any

import polars as pl

from dp_polars.asking.outline import Question, Tree
from dp_polars.asking.refusals import SELECTOR

_SPREADING = ("AsStruct", "Coalesce", "MinHorizontal", "MaxHorizontal", "SumHorizontal", "MeanHorizontal")
_SPREADING_IN = {"Boolean": ("AnyHorizontal", "AllHorizontal"), "StringExpr": ("ConcatHorizontal",)}


def read(tree: Tree) -> pl.Expr:
    """Return the expression that Polars reads from its own JSON."""
    return pl.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")


def spelled_out(tree: Tree, text: str, question: Question) -> list[Tree]:
    """Return the trees that this one stands for, one for each output column."""
    if '"Selector"' not in text:
        return [tree]
    frame = pl.LazyFrame(schema=question.schema)
    try:
        trees = _expand(tree, frame)
        faithful = frame.select(map(read, trees)).collect_schema() == frame.select(read(tree)).collect_schema()
    except (pl.exceptions.PolarsError, ValueError):
        faithful, trees = False, []
    if not trees or not faithful:
        raise question.refuse("a selector", SELECTOR)
    return trees


def _expand(tree: Any, frame: pl.LazyFrame) -> list[Any]:
    """Return what a part of the tree becomes for each output column; one entry if it is the same for all."""
    if isinstance(tree, list):
        return _side_by_side([_expand(part, frame) for part in tree])
    if not isinstance(tree, dict):
        return [tree]
    if tree.keys() == {"Selector"}:
        return [{"Column": name} for name in frame.select(read(tree)).collect_schema().names()]
    if tree.keys() == {"Literal"}:
        return [tree]
    if tree.keys() == {"input", "function"} and _spreads(tree["function"]):
        spread = [part for given in tree["input"] for part in _expand(given, frame)]
        return [{"input": spread, "function": tree["function"]}]
    keys = list(tree)
    values = _side_by_side([_expand(tree[key], frame) for key in keys])
    return [dict(zip(keys, value, strict=True)) for value in values]


def _side_by_side(columns: list[list[Any]]) -> list[list[Any]]:
    count = max((len(column) for column in columns), default=1)
    if not all(len(column) in (1, count) for column in columns):
        raise ValueError("selectors of different lengths")
    return [[column[i if len(column) > 1 else 0] for column in columns] for i in range(count)]


def _spreads(function: Any) -> bool:
    name, body = (function, None) if isinstance(function, str) else next(iter(function.items()))
    inner = body if isinstance(body, str) else next(iter(body), "") if isinstance(body, dict) else ""
    return name in _SPREADING or inner in _SPREADING_IN.get(name, ())
