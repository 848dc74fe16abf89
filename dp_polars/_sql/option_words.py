"""Messages about options as people write them in SQL: `bounds := (0, 100)` where Python has `bounds=(0, 100)`."""

from __future__ import annotations

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

    return _OPTION.sub(written, text)
