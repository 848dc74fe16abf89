"""Expressions as people write them, for labels and plans: `value > 10 and region in ['a', 'b']`.

The text is made from the canonical form of a tree, which holds what the analyst wrote and no private value. It is for
reading only: two different expressions may read alike, so nothing is identified by it.
"""

from __future__ import annotations

import json
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dp_polars._expressions.operations import OPERATIONS
from dp_polars._expressions.types import TICKS

_BETWEEN = {
    "or": ("or", 1), "xor": ("xor", 1), "and": ("and", 2), "eq": ("==", 4), "ne": ("!=", 4), "lt": ("<", 4),
    "le": ("<=", 4), "gt": (">", 4), "ge": (">=", 4), "bit_or": ("|", 5), "bit_xor": ("^", 5), "bit_and": ("&", 5),
    "add": ("+", 6), "sub": ("-", 6), "mul": ("*", 7), "div": ("/", 7), "floordiv": ("//", 7), "mod": ("%", 7),
    "pow": ("**", 9),
}  # fmt: skip
"""Operators that stand between their arguments, and how strongly they bind."""
_CHAINED = ("and", "or", "add", "mul")
_NOT, _ATOM = 3, 10
_AFTER = {"is_null": "is null", "is_not_null": "is not null"}


def readable(canonical: str) -> str:
    """Return the text of an expression that is given in its canonical form.

    >>> import polars as pl
    >>> from dp_polars._expressions.check import check_expression
    >>> schema = pl.Schema({"km": pl.Int64, "day": pl.Date, "city": pl.String})
    >>> long = (pl.col("km") > 2) & (pl.col("day") < pl.date(2024, 2, 1)) & ~pl.col("city").is_in(["a", "b"])
    >>> print(readable(check_expression(long, schema=schema, what="filter").canonical))
    km > 2 and day < 2024-02-01 and not city in ['a', 'b']
    """
    return _text(json.loads(canonical))[0]


def _text(node: Any) -> tuple[str, int]:
    """Return the text of a node, and how strongly its outermost operator binds."""
    if not isinstance(node, dict):
        return _literal(node, ""), _ATOM
    if "column" in node:
        return str(node["column"]), _ATOM
    if "constant" in node:
        return _literal(node["constant"], node["type"]), _ATOM
    name, given, settings = node["apply"], node["to"], dict(node["with"])
    if name in _BETWEEN:
        sign, bond = _BETWEEN[name]
        inner = [
            _parenthesised(argument, bond + (place > 0 and name not in _CHAINED))
            for place, argument in enumerate(given)
        ]
        return f" {sign} ".join(inner), bond
    if name == "not":
        return f"not {_parenthesised(given[0], _NOT)}", _NOT
    if name == "neg":
        return f"-{_parenthesised(given[0], 8)}", 8
    if name in _AFTER:
        return f"{_parenthesised(given[0], 5)} {_AFTER[name]}", 4
    if name == "is_in" and isinstance(settings.get("values"), dict):
        return f"{_parenthesised(given[0], 5)} in {_text(settings['values'])[0]}", 4
    if name == "case":
        pairs = [
            f"when {_text(when)[0]} then {_text(then)[0]}" for when, then in zip(given[:-1:2], given[1::2], strict=True)
        ]
        return f"({' '.join(pairs)} otherwise {_text(given[-1])[0]})", _ATOM
    spoken = OPERATIONS[name].spoken if name in OPERATIONS else name
    if name == "cast":
        return f"cast({_text(given[0])[0]}, {settings['to']})", _ATOM
    if name == "date_part":
        spoken = str(settings.pop("part"))
    inside = [_text(argument)[0] for argument in given]
    inside += [_text(value)[0] for value in settings.values() if not isinstance(value, bool) and value is not None]
    return f"{spoken.rpartition('.')[2]}({', '.join(inside)})", _ATOM


def _parenthesised(node: Any, least: int) -> str:
    """Return the text of an argument, in parentheses if it binds less than its operator needs."""
    text, bond = _text(node)
    return text if bond >= least else f"({text})"


def _literal(value: Any, kind: str) -> str:
    """Return a constant that is given as stored, in the form that people write."""
    if isinstance(value, list) and len(value) == 2 and value[0] == "list":
        inner = kind[5:-1] if kind.startswith("List[") else ""
        return f"[{', '.join(_literal(item, inner) for item in value[1])}]"
    if isinstance(value, list) and len(value) == 2 and value[0] == "float":
        return f"{float.fromhex(value[1]):.15g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return _number(value, kind)
    return repr(value) if isinstance(value, str) else str(value)


def _number(value: int, kind: str) -> str:
    """Return a stored integer in the form of its type: a date, a time, a decimal or the integer itself."""
    scale = re.match(r"Decimal\(.*scale=(\d+)", kind)
    unit = re.match(r"(?:Datetime|Duration)\(time_unit='(..)'", kind)
    try:
        if kind == "Date":
            return str(date(1970, 1, 1) + timedelta(days=value))
        if kind == "Time":
            return str((datetime(1970, 1, 1) + timedelta(microseconds=value / 1000)).time())
        if scale:
            return str(Decimal(value).scaleb(-int(scale[1])))
        if unit:
            seconds = Fraction(value, TICKS[unit[1]])
            length = timedelta(seconds=int(seconds // 1), microseconds=int(seconds % 1 * 10**6))
            return str(length) if kind.startswith("Duration") else str(datetime(1970, 1, 1) + length)
    except OverflowError:  # a date that Python doesn't have
        pass
    return str(value)
