"""What to write instead of a Polars aggregate, which would show private values without noise."""

from __future__ import annotations

import io
import json
from typing import Any

import polars as pl

from dp_polars.errors import InvalidParameterError

_ALIKE = {
    "Sum": "sum", "Mean": "mean", "Median": "median", "Std": "std", "Var": "var", "Min": "min", "Max": "max",
    "Quantile": "quantile", "NUnique": "n_unique", "Count": "count",
}  # fmt: skip
"""The private aggregates for those of Polars, by the names in its JSON."""
_BOUNDED = ("sum", "mean", "median", "std", "var", "min", "max", "quantile")


def instead_of(given: Any, name: str | None = None) -> InvalidParameterError:
    """Return the error for something that is not a private aggregate, with the aggregate to use instead.

    >>> print(instead_of(pl.col("km").mean(), "typical"))
    agg takes private aggregates, and col("km").mean() would show ... Write typical=dp.mean('km', bounds=...
    """
    if not isinstance(given, pl.Expr):
        return InvalidParameterError(
            f"agg takes dp.count(), dp.sum(...) and so on, with or without a name, but it got {type(given).__name__}."
        )
    said = f"agg takes private aggregates, and {_shown(given)} would show private values without noise."
    call = _call_of(given)
    if call is None:
        return InvalidParameterError(
            f"{said} Write n=dp.count(), total=dp.sum('x', bounds=(0, 100)) or another aggregate of dp. Calculate with "
            "columns inside the aggregate, dp.sum(pl.col('x') * 2, ...), and with answers after the release."
        )
    named = call if name is None else f"{name}={call}"
    if "bounds=" in call:
        named += ', with bounds that you choose without looking at the data, or bounds="auto"'
    return InvalidParameterError(f"{said} Write {named}.")


def _call_of(expr: pl.Expr) -> str | None:
    """Return the private aggregate that is like an aggregate of Polars, or None if there is none."""
    try:
        tree = json.loads(expr.meta.undo_aliases().meta.serialize(format="json"))
        kind, inner = _aggregate(tree)
        if kind == "Len":
            return "dp.count()"
        if kind not in _ALIKE:
            return None
        alike = _ALIKE[kind]
        column = repr(inner["Column"]) if isinstance(inner, dict) and set(inner) == {"Column"} else _of(inner)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError, KeyError, IndexError):
        return None
    more = [column, *([_level(tree)] if alike == "quantile" else [])]
    return f"dp.{alike}({', '.join([*more, *(['bounds=(low, high)'] if alike in _BOUNDED else [])])})"


def _aggregate(tree: Any) -> tuple[str, Any]:
    """Return the name of the aggregate in a Polars tree, and what it aggregates."""
    if tree == "Len":
        return "Len", None
    ((kind, body),) = tree.items()
    if kind == "Agg":
        ((name, inner),) = body.items()
        if isinstance(inner, list):  # Var and Std come with their ddof
            inner = inner[0]
        if isinstance(inner, dict) and "input" in inner:
            inner = inner["input"]
        return name, inner["expr"] if isinstance(inner, dict) and "expr" in inner else inner
    if kind == "Function":
        function = body["function"]
        name = function if isinstance(function, str) else next(iter(function))
        if name == "Agg":
            name = function["Agg"] if isinstance(function["Agg"], str) else next(iter(function["Agg"]))
        return name, body["input"][0]
    return kind, None


def _level(tree: Any) -> str:
    """Return the level of a quantile, or the median's if it is not a plain number."""
    try:
        return str(tree["Function"]["input"][1]["Literal"]["Dyn"]["Float"])
    except (KeyError, IndexError, TypeError):
        return "0.5"


def _of(tree: Any) -> str:
    return _shown(pl.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json"))


def _shown(expr: pl.Expr) -> str:
    """Return the text of an expression in one line, shortened."""
    text = " ".join(str(expr).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
