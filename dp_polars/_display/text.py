"""Numbers, times and labels as people read them, with the control characters of data made harmless.

A released key is whatever somebody typed. In a terminal its control characters could move the cursor over other
numbers, rename the window or hide a line, and controls of the writing direction can do similar things in a browser.
They are therefore written out as escapes. Data that go to a file or a pipe are left as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import polars as pl

# C0 and C1 controls and delete, line and paragraph separators, controls of the writing direction; then surrogates.
_CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_PATTERN = re.compile(f"[{_CONTROLS}\ud800-\udfff]")
_POLARS_PATTERN = "[" + re.sub(r"\\u(.{4})", r"\\x{\1}", _CONTROLS) + "]"


def escaped(text: str, *, keep: str = "", form: Literal["python", "json"] = "python") -> str:
    r"""Return a text with its control characters written out as escapes, except those in `keep`.

    >>> print(escaped("red\x1b[31m\n"), escaped("one\ntwo\x9b", keep="\n", form="json"))
    red\x1b[31m\n one
    two\u009b
    """

    def written(found: re.Match[str]) -> str:
        sign = found[0]
        if sign in keep:
            return sign
        return f"\\u{ord(sign):04x}" if form == "json" else sign.encode("unicode_escape").decode("ascii")

    return _PATTERN.sub(written, text)


def escaped_frame(frame: pl.DataFrame) -> pl.DataFrame:
    r"""Return a frame for display, with the control characters in its names and texts written out.

    >>> escaped_frame(pl.DataFrame({"a\t": ["\x1b[2J", "b"]})).to_dict(as_series=False)
    {'a\\t': ['\\x1b[2J', 'b']}
    """
    names = [escaped(name) for name in frame.columns]
    if len(set(names)) < len(names):  # number the columns if two names now read alike
        names = [f"{name} ({place})" for place, name in enumerate(names, 1)]
    return pl.DataFrame([_shown(column).alias(name) for column, name in zip(frame, names, strict=True)])


def _shown(column: pl.Series) -> pl.Series:
    if not _has_controls(column):
        return column
    return pl.Series(column.name, [_plain(value) for value in column.to_list()], dtype=_plain_type(column.dtype))


def _has_controls(column: pl.Series) -> bool:
    dtype = column.dtype
    if isinstance(dtype, pl.Struct):
        return any(_has_controls(column.struct.field(field.name)) for field in dtype.fields)
    if isinstance(dtype, pl.Array):
        return _has_controls(column.cast(pl.List(dtype.inner)))
    if isinstance(dtype, pl.List):
        return _has_controls(column.explode(empty_as_null=False))
    if dtype in (pl.Categorical, pl.Enum):
        column = column.unique().cast(pl.String)
    return column.dtype == pl.String and bool(column.str.contains(_POLARS_PATTERN).any())


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def _plain_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type with Categorical and Enum replaced by String, which can hold escaped text."""
    if isinstance(dtype, pl.List | pl.Array):
        return pl.List(_plain_type(dtype.inner))  # type: ignore[arg-type]
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _plain_type(field.dtype) for field in dtype.fields})  # type: ignore[arg-type]
    return pl.String() if dtype in (pl.Categorical, pl.Enum) else dtype


def percent(share: float) -> str:
    """Return a share in percent and three digits. A share below 1 does not read as 100 %.

    >>> percent(0.48), percent(0.039), percent(0.00001), percent(0), percent(0.9999), percent(12.3456)
    ('48 %', '3.9 %', '0.001 %', '0 %', '>99.9 %', '1,235 %')
    """
    if not math.isfinite(share):
        return "no bound"
    if share >= 10:
        return f"{share * 100:,.0f} %"
    if 0 < share < 1e-6:
        return "<0.0001 %"
    return ">99.9 %" if 0.9995 <= share < 1 - 1e-12 else f"{share * 100:.3g} %"


def amount(number: float, digits: int = 4) -> str:
    """Return a number with this many digits, thousands separators and no exponent, unless it is tiny or huge.

    >>> amount(17970.4), amount(6.4951), amount(0.02), amount(2e-7), amount(1234567.0, 6), amount(-45)
    ('17,970', '6.495', '0.02', '2e-07', '1,234,570', '-45')
    """
    if not math.isfinite(number) or number == 0 or not 1e-4 <= abs(number) < 1e15:
        return f"{number:.{digits}g}"
    decimals = digits - 1 - math.floor(math.log10(abs(number)))
    rounded = f"{round(number, decimals):,.{max(decimals, 0)}f}"
    return rounded.rstrip("0").rstrip(".") if "." in rounded else rounded


def listed(texts: Sequence[str]) -> str:
    """Return several texts as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *others, last = texts
    return f"{', '.join(others)}{' and ' if others else ''}{last}"


def budget_text(part: float) -> str:
    """Return a part of a session's budget in words. All texts about a budget lead with it.

    >>> budget_text(0.2), budget_text(1)
    ('20 % of the budget', 'all of the budget')
    """
    if not math.isfinite(part):
        return "more than all of the budget"
    return "all of the budget" if abs(part - 1) < 1e-12 else f"{percent(part)} of the budget"


def refused_parts(requested: float, left: float) -> tuple[str, str]:
    """Return the part that a refused release would use and the part that is left, with digits that tell them apart.

    >>> refused_parts(0.3, 0.2), refused_parts(0.2000001, 0.2)
    (('30 % of the budget', '20 % of the budget'), ('20.00001 % of the budget', '20 % of the budget'))
    """
    if budget_text(requested) != budget_text(left):
        return budget_text(requested), budget_text(left)
    return f"{requested * 100:.12g} % of the budget", f"{left * 100:.12g} % of the budget"


def moment(stamp: str | None) -> str:
    """Return a timestamp of the ledger, which is in UTC, to the minute.

    >>> moment("2026-03-01T09:05:59+00:00")
    '2026-03-01 09:05 UTC'
    """
    if stamp is None:
        return "not yet"
    try:
        return datetime.fromisoformat(stamp).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return stamp


def one_line(text: str, most: int) -> str:
    r"""Return a text as one line without control characters, shortened to `most` characters.

    >>> one_line("count by\nregion", 80), one_line("abcdefgh", 6)
    ('count by region', 'abc...')
    """
    clean = "".join(sign if sign.isprintable() else " " for sign in text)
    return clean if len(clean) <= most else clean[: most - 3] + "..."
