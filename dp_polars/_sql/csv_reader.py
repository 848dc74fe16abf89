"""Text with columns (CSV, TSV) as a frame of texts. No line makes it fail, and none says how others are read.

A field is quoted if a quotation mark opens it and another closes it right before a separator or the end of a line; then
it may have separators, line breaks and doubled quotation marks in it. Any other quotation mark is a letter like others.
A record with fewer fields than the header has nulls, and what a record has beyond the header is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

_FIELDS = {
    separator: re.compile(rf'"([^"]*+(?:""[^"]*+)*+)"({separator}|\r?\n|\r?\Z)|([^{separator}\n]*+)({separator}|\n|\Z)')
    for separator in (",", "\t")
}
"""A field and what ends it, by the separator: groups for a quoted field and its end, and for another and its end."""


def header_of(content: bytes, separator: str) -> list[str]:
    """Return the fields of the first record; none of an empty file."""
    first = next(_records(_clean(content).decode(), separator), [])
    return [field or "" for field in first]


def texts_of(content: bytes, separator: str) -> pl.DataFrame:
    """Return all records but the first, which names the columns, as texts; an empty field is null."""
    clean = _clean(content)
    read = _quick if is_regular(clean, separator) else _slow
    return read(clean, separator, header_of(clean, separator))


def is_regular(content: bytes, separator: str) -> bool:
    """Whether all quotation marks open or close a field or are doubled, and lines end as usual: engines agree then."""
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
    """Return content as valid UTF-8 without a mark of byte order; other bytes count as an unknown character."""
    bare = content.removeprefix(b"\xef\xbb\xbf")
    try:
        bare.decode()
    except UnicodeDecodeError:
        return bare.decode(errors="replace").encode()
    return bare


def _quick(content: bytes, separator: str, names: list[str]) -> pl.DataFrame:
    """Read what every engine reads alike. `_slow` says what is meant, and the tests compare the two."""
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
    return pl.DataFrame([pl.Series(name, own, pl.String) for name, own in zip(names, columns, strict=True)])


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
    """Return the record at a place in a text, and the place of the next."""
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
