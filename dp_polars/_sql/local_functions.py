"""The local model on a user's own connection: responses of single values, and the frequencies behind them.

None of it is charged: a value is randomized where it stands, by who holds the connection; `df.dp.randomized_response`
is the one with a session.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import polars as pl

from dp_polars._numbers import epsilon_of
from dp_polars._sampling import SYSTEM_BITS
from dp_polars._sql.syntax_tree import fold
from dp_polars._sql.templates import sql_text
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.frequencies import estimate_frequencies
from dp_polars.mechanisms.randomized_response import Channel

NAMES = ("dp_randomized_response", "dp_respond", "dp_frequencies")
"""The Python functions that this module puts on a connection."""

_BOOLEANS = [False, True, None]


def put_local(connection: Any) -> None:
    """Put `dp_randomized_response` and `dp.dp_estimate_frequencies` on a connection that has the catalog dp."""
    varying: dict[str, Any] = {"side_effects": True, "null_handling": "special", "type": "arrow"}
    # Volatile: DuckDB neither folds a call of constants nor calls once for several rows.
    connection.create_function(NAMES[0], _respond_boolean, ["BOOLEAN", "DOUBLE"], "BOOLEAN", **varying)
    connection.create_function(NAMES[1], _respond_place, ["INTEGER", "INTEGER", "DOUBLE"], "INTEGER", **varying)
    connection.create_function(NAMES[2], _frequencies, ["VARCHAR"], "VARCHAR", side_effects=True)
    connection.execute(sql_text("randomized_response"))
    connection.execute(sql_text("frequencies").format(names=sql_text("names")))


def _respond_boolean(values: Any, epsilons: Any) -> Any:
    """Return responses to a column of bools, of which null is a category: whether one has answered is private too."""
    codes = np.array([_BOOLEANS.index(value) for value in values.to_pylist()], np.int64)
    answers = _responses(codes, np.full(len(codes), len(_BOOLEANS)), epsilons)
    return pl.Series([_BOOLEANS[code] for code in answers.tolist()], dtype=pl.Boolean).to_arrow()


def _respond_place(places: Any, sizes: Any, epsilons: Any) -> Any:
    """Return responses to places among categories, from 1; null is a value that is none of them."""
    sizes = np.array([size or 0 for size in sizes.to_pylist()], np.int64)
    if (sizes < 2).any():
        raise InvalidParameterError("categories must be at least two different values: [..., ...].")
    codes = np.array([0 if place is None else place for place in places.to_pylist()], np.int64) - 1
    return pl.Series(_responses(codes, sizes, epsilons) + 1).cast(pl.Int32).to_arrow()


def _responses(codes: Any, sizes: Any, epsilons: Any) -> Any:
    losses = epsilons.to_pylist()
    if any(loss is None for loss in losses):
        raise InvalidParameterError("dp_randomized_response needs an epsilon for every row.")
    answers = np.empty(len(codes), np.int64)
    given = np.array(losses, np.float64)
    for size, loss in sorted(set(zip(sizes.tolist(), losses, strict=True))):
        rows = (sizes == size) & (given == loss)
        channel = Channel(size=size, epsilon=epsilon_of(loss))
        answers[rows] = channel.respond_to_any(codes[rows], SYSTEM_BITS)
    return answers


def _frequencies(words: str) -> str:
    """Return estimates as JSON, from the counts of responses by group; values are texts as DuckDB writes them."""
    said = json.loads(words, parse_float=str)
    rows, by = said["rows"] or [], [fold(name) for name in dict.fromkeys(said["by"])]
    names = {fold(name): name for row in rows[:1] for name in row}
    missing = [name for name in by if rows and name not in names]
    if missing:
        raise InvalidParameterError(f"by := names columns of the table, and {', '.join(missing)} is none of them.")
    columns = {name: [_text(row[names[name]]) for row in rows] for name in by}
    kinds = {**dict.fromkeys(by, pl.String), "dp_response": pl.String}
    texts = pl.DataFrame({**columns, "dp_response": [_text(row["dp_response"]) for row in rows]}, schema=kinds)
    counts = [row["dp_responses"] for row in rows]
    responses = texts[np.repeat(np.arange(len(rows)), counts)]
    frame = estimate_frequencies(
        responses,
        "dp_response",
        by=by or None,
        epsilon=_number(said["epsilon"]),
        resample=_number(said["resample"]),
        categories=_categories(said["categories"], said["type"]),
        confidence=_number(said["confidence"]),
        nonnegative=said["nonnegative"] or False,
    )
    frame = frame.rename({"category": "dp_response", **{name: names[name] for name in by}})
    return json.dumps([{name: _text(value) for name, value in row.items()} for row in frame.to_dicts()])


def _categories(given: Any, kind: str) -> Any:
    """Return categories as DuckDB writes values of the column's type; of BOOLEAN and ENUM all and null."""
    if given is None:
        values = enum_values(kind)
        return ["false", "true", None] if kind == "BOOLEAN" else None if values is None else [*values, None]
    if not isinstance(given, list):
        raise InvalidParameterError("categories is a list: categories := ['a', 'b'].")
    texts = f"SELECT CAST(CAST(unnest($texts::VARCHAR[]) AS {kind}) AS VARCHAR)"
    try:
        rows = duckdb.connect(":memory:").execute(texts, {"texts": [_text(value) for value in given]}).fetchall()
    except duckdb.Error:
        raise InvalidParameterError(f"categories can't be read as {kind}.") from None
    return [row[0] for row in rows]


def enum_values(kind: str) -> list[str] | None:
    """Return the values of an ENUM type by its name as DuckDB writes it; None for any other type."""
    if not kind.upper().startswith("ENUM("):
        return None
    rows = duckdb.connect(":memory:").execute(f"SELECT unnest(enum_range(NULL::{kind}))::VARCHAR").fetchall()
    return [row[0] for row in rows]


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _number(value: Any) -> Fraction | None:
    try:
        return None if value is None else Fraction(str(value))
    except ValueError:
        raise InvalidParameterError("epsilon, resample and confidence are numbers.") from None
