"""Messages about options as people write them in SQL: `bounds := (0, 100)` where Python has `bounds=(0, 100)`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager

from dp_polars._sql.aggregate_calls import SQL_OPTIONS
from dp_polars.errors import InvalidParameterError

_OPTION = re.compile(rf"\b({'|'.join(sorted(SQL_OPTIONS))})=(?!=)(\"[^\"]*\"|'[^']*')?(?=(\S?))")


@contextmanager
def in_sql(given: Container[str] = ()) -> Iterator[None]:
    """Rewrite the message of an error about options, except for options that were `given` in Python."""
    try:
        yield
    except InvalidParameterError as error:
        (text,) = error.args
        changed = in_sql_words(text, given)
        if changed != text:
            error.args = (changed,)
        raise


def in_sql_words(text: str, given: Container[str] = ()) -> str:
    """Return a message with its options as SQL writes them.

    >>> in_sql_words('Say bounds=(0, 100), or bounds="auto". With epsilon= or share=, leave within= out.')
    "Say bounds := (0, 100), or bounds := 'auto'. With epsilon or share, leave within out."
    """

    def written(found: re.Match[str]) -> str:
        name, quoted, then = found.groups()
        if name in given:
            return found[0]
        if quoted is not None:
            return f"{name} := '{quoted[1:-1]}'"
        return name if then in ("", ",", ".", ";", ":", ")", "?") else f"{name} := "

    return _OPTION.sub(written, _PYTHON_TIME.sub(_sql_time, text))


_PYTHON_TIME = re.compile(r"datetime\.(date|datetime|time)\(([0-9, ]*)\)")


def _sql_time(found: re.Match[str]) -> str:
    """Write a date or a time of Python as SQL does.

    >>> _sql_time(_PYTHON_TIME.match("datetime.date(2020, 1, 1)"))
    "DATE '2020-01-01'"
    """
    kind, numbers = found[1], [int(number) for number in found[2].split(",")]
    if kind == "time":
        return f"TIME '{datetime.time(numbers[0])}'"
    year, month, day, *_ = numbers
    return f"{'DATE' if kind == 'date' else 'TIMESTAMP'} '{datetime.date(year, month, day)}'"
