"""Read text files with columns (CSV, TSV), in a way that no line can make fail or can change for other lines.

A field is quoted if a quotation mark opens it and another one closes it right before a separator or the end of a line.
A quoted field may contain separators, line breaks and doubled quotation marks. Any other quotation mark is an ordinary
character. A record with fewer fields than the header is filled with nulls, and fields beyond the header are dropped.

A text that can't be read as the type of its column becomes null. Inferred types are read in the same way as declared
ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from dp_polars._sql.types import TEXT, declared_type

SEPARATORS = (",", ";", "\t", "|")
"""The characters that may separate fields."""

_FIELDS = {
    separator: re.compile(rf'"([^"]*+(?:""[^"]*+)*+)"({sign}|\r?\n|\r?\Z)|([^{separator}\n]*+)({sign}|\n|\Z)')
    for separator, sign in ((character, re.escape(character)) for character in SEPARATORS)
}
"""A field and its end, by separator. The groups are a quoted field and its end, or another field and its end."""

_INFERRED = ("BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")
"""The types that are tried for a column, in this order. If none fits, the column is text."""


def separator_of(content: bytes, usual: str) -> str:
    """Return the character that separates the fields of a file: the one that splits the header into the most names.

    Only the first line is looked at. It names the columns and is public, and no other line may decide how lines are
    read. The usual character wins if another one splits the header into as many names, and a tab wins if it is the
    usual one and occurs at all.
    """
    bare = re.sub(rb'"[^"]*"', b"", content.partition(b"\n")[0])  # characters inside quotes belong to a name
    found = {sign: bare.count(sign.encode()) for sign in (usual, *SEPARATORS)}
    return usual if usual == "\t" and found[usual] else max(found, key=lambda sign: found[sign])


def header_of(content: bytes, separator: str) -> list[str]:
    """Return the fields of the first record. An empty file has none."""
    first = next(_records(_clean(content).decode(), separator), [])
    return [field or "" for field in first]


def texts_of(content: bytes, separator: str) -> pl.DataFrame:
    """Read all records after the header as texts. Empty fields are null."""
    clean = _clean(content)
    read = _quick if is_regular(clean, separator) else _slow
    return read(clean, separator, header_of(clean, separator))


def is_regular(content: bytes, separator: str) -> bool:
    """Return whether Polars reads the content as this module defines it.

    It does if every quotation mark opens or closes a field or is doubled, and if carriage returns outside of quotes
    occur only before line feeds.
    """
    signs = np.frombuffer(content, np.uint8)
    marks = np.flatnonzero(signs == ord('"'))
    if marks.size % 2:
        return False
    padded = np.concatenate([np.frombuffer(b"\n", np.uint8), signs, np.frombuffer(b"\n\n", np.uint8)])
    before, after, second = (padded[marks + shift] for shift in (0, 2, 3))
    ends = [ord(separator), ord("\n"), ord('"')]
    opening = np.isin(before[::2], ends)
    closing = np.isin(after, ends) | ((after == ord("\r")) & (second == ord("\n")))
    returns = np.flatnonzero(signs == ord("\r"))
    alone = returns[padded[returns + 2] != ord("\n")]
    return bool(opening.all() and closing[1::2].all() and (np.searchsorted(marks, alone) % 2).all())


def _clean(content: bytes) -> bytes:
    """Return the content as valid UTF-8 without a byte order mark. Invalid bytes become the replacement character."""
    bare = content.removeprefix(b"\xef\xbb\xbf")
    try:
        bare.decode()
    except UnicodeDecodeError:
        return bare.decode(errors="replace").encode()
    return bare


def _quick(content: bytes, separator: str, names: list[str]) -> pl.DataFrame:
    """Read regular content with Polars. `_slow` is the reference, and the tests compare the two."""
    try:
        frame = pl.read_csv(content, separator=separator, infer_schema=False, truncate_ragged_lines=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return _slow(content, separator, names)
    if frame.width != len(names):
        return _slow(content, separator, names)
    return frame.rename(dict(zip(frame.columns, names, strict=True)))


def _slow(content: bytes, separator: str, names: list[str]) -> pl.DataFrame:
    records = _records(content.decode(), separator)
    next(records, None)
    width = len(names)
    rows = [(record + [None] * (width - len(record)))[:width] for record in records]
    columns = list(zip(*rows, strict=True)) if rows else [()] * width
    return pl.DataFrame([pl.Series(name, values, pl.String) for name, values in zip(names, columns, strict=True)])


def _records(text: str, separator: str) -> Iterator[list[str | None]]:
    place = 0
    while place < len(text):
        end = text.find("\n", place)
        line = text[place : end if end >= 0 else len(text)]
        if '"' in line:
            record, place = _record(text, place, separator)
            yield record
        else:
            yield [field or None for field in line.removesuffix("\r").split(separator)]
            place += len(line) + 1


def _record(text: str, place: int, separator: str) -> tuple[list[str | None], int]:
    """Return the record that begins at a position of a text, and the position of the next record."""
    record: list[str | None] = []
    pattern = _FIELDS[separator]
    while found := pattern.match(text, place):
        quoted, end_of_quoted, plain, end_of_plain = found.groups()
        place = found.end()
        if quoted is not None:
            record.append(quoted.replace('""', '"'))
        elif end_of_plain == separator:
            record.append(plain or None)
        else:
            record.append(plain.removesuffix("\r") or None)
        if separator not in (end_of_quoted, end_of_plain):
            break
    return record, place


# ---------------------------------------------------------------------- types


def complete_types(columns: list[str], types: Mapping[str, str]) -> dict[str, str]:
    """Return the standard name of every column's type. Columns without a declared type are text."""
    return {name: declared_type(types[name])[0] if name in types else TEXT for name in columns}


def inferred(texts: pl.DataFrame) -> dict[str, str]:
    """Return for each column the first type as which all its texts can be read. This looks at all rows."""
    return {name: _inferred(texts, name) for name in texts.columns}


def typed(texts: pl.DataFrame, types: Mapping[str, str]) -> pl.DataFrame:
    """Convert the columns of a frame of texts to their types. A text that can't be converted becomes null."""
    return texts.select(
        _reading(pl.col(name), declared_type(types.get(name, TEXT))[1]).alias(name) for name in texts.columns
    )


def _inferred(texts: pl.DataFrame, name: str) -> str:
    nulls = texts[name].null_count()
    if nulls < texts.height:
        for kind in _INFERRED:
            if texts.select(_reading(pl.col(name), declared_type(kind)[1]).is_null().sum()).item() == nulls:
                return kind
    return TEXT


def _reading(text: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Return an expression that reads a text as a type, and gives null if it can't."""
    if kind == pl.Boolean:
        lower = text.str.to_lowercase()
        return pl.when(lower == "true").then(True).when(lower == "false").then(False)
    if kind == pl.Date:
        return text.str.to_date("%Y-%m-%d", strict=False)
    if kind == pl.Time:
        return text.str.to_time("%H:%M:%S%.f", strict=False)
    if kind == pl.Datetime:
        forms = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f")
        moments = [text.str.to_datetime(form, strict=False, time_unit="us") for form in forms]
        return pl.coalesce(*moments, text.str.to_date("%Y-%m-%d", strict=False).cast(kind))
    return text if kind == pl.String else text.cast(kind, strict=False)
