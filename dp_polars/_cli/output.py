"""Answers on stdout or in a file: tables for people, or CSV, JSON, JSON lines and Parquet for programs.

A key may contain characters that a terminal takes for a command. In tables and on stderr they are always escaped. The
other formats are data: JSON has its own escapes, and CSV is escaped only if stdout is a terminal. In a file or a pipe,
CSV is exactly what was released.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import io
import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal

import polars as pl

from dp_polars._cli.exit_codes import FileProblem
from dp_polars._display.text import escaped, escaped_frame
from dp_polars._sql.files import is_several

Format = Literal["table", "csv", "json", "jsonl", "parquet"]
FORMATS: tuple[Format, ...] = ("table", "csv", "json", "jsonl", "parquet")

_FORMAT_OF: dict[str, Format] = {
    "": "table", ".txt": "table", ".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
"""The format of a file by the extension of its name."""

_MOST_ROWS = 200
_WIDE = 10_000  # characters, where there is no window to fit
_PATIENCE = 1.0  # seconds before the elapsed time is shown
_EVERY = 0.25  # seconds between two updates of the elapsed time


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add --format and --output to the arguments of a command."""
    group = parser.add_argument_group("the answer")
    group.add_argument(
        "--format", choices=FORMATS,
        help="the format; by default a table, or with --output what the file's extension says. Control characters are "
        "escaped in tables, and in CSV that goes to a terminal",
    )  # fmt: skip
    group.add_argument("--output", metavar="FILE", help="the file to write, instead of stdout")


def check_output(parser: argparse.ArgumentParser, options: argparse.Namespace, used: list[str]) -> None:
    """Choose the format, and check that the answer can be written before it is paid for."""
    path = options.output
    if options.format is None:
        ending = os.path.splitext(path or "")[1].lower()
        options.format = _FORMAT_OF.get(ending)
        if options.format is None:
            parser.error(
                f"--output {path}: no format is known for the extension {ending}. Use one of "
                f"{', '.join(ending for ending in _FORMAT_OF if ending)}, or give --format"
            )
    if path is None:
        if options.format == "parquet" and sys.stdout.isatty():
            parser.error("Parquet is binary: give --output FILE, or redirect stdout to a file")
        return
    if any(_same(path, file) for file in used):
        parser.error(f"--output {path} would overwrite a file that the command reads")
    if any(_would_be_read(path, file) for file in used):
        parser.error(f"--output {path} would become a part of the table that the command reads: write it elsewhere")
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise FileProblem(f"{path} can't be written. Nothing was run or charged.")


def _would_be_read(path: str, used: str) -> bool:
    """Return whether a new file would belong to a folder or a pattern that is read."""
    if os.path.isdir(used):
        return os.path.realpath(os.path.dirname(os.path.abspath(path))) == os.path.realpath(used)
    return is_several(used) and fnmatch.fnmatch(os.path.abspath(path), os.path.abspath(used))


def _same(path: str, other: str) -> bool:
    """Return whether two paths are the same file, or will be once a new ledger is created."""
    there = os.path.exists(path) and os.path.exists(other)
    return os.path.samefile(path, other) if there else os.path.realpath(path) == os.path.realpath(other)


def write(frame: pl.DataFrame, options: argparse.Namespace) -> None:
    """Write an answer to stdout or to a file."""
    if options.output is None:
        show(encoded(frame, options.format, table_width()), data=options.format not in ("table", "parquet"))
        return
    try:
        with open(options.output, "wb") as file:
            file.write(encoded(frame, options.format, _WIDE))
    except OSError as error:
        raise FileProblem(
            f"{options.output} can't be written: {error.strerror}. If there is a ledger, it has the answer: run the "
            "command again with another --output at no cost."
        ) from None


def show(content: bytes, *, data: bool = False) -> None:
    """Write to stdout, always in UTF-8: an answer that was paid for must not fail because of the system's encoding.

    Data are escaped here if stdout is a terminal. Text for people was escaped when it was made.
    """
    if data and sys.stdout.isatty():
        content = escaped(content.decode(), keep="\n").encode()
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def encoded(frame: pl.DataFrame, form: Format, width: int) -> bytes:
    """Return an answer in a format, as bytes."""
    target = io.BytesIO()
    if form == "parquet":
        frame.write_parquet(target)
    elif form == "csv":
        nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
        texts = [pl.Series(name, map(_json_or_null, frame[name].to_list()), pl.String) for name in nested]
        frame.with_columns(texts).write_csv(target)
    elif form in ("json", "jsonl"):
        rows = [json_text(row) for row in frame.to_dicts()]
        inside = ",\n".join(rows)
        target.write((f"[{inside}]\n" if form == "json" else "".join(f"{row}\n" for row in rows)).encode())
    else:
        target.write((_table(frame, width) + "\n").encode())
    return target.getvalue()


def json_text(value: Any, indent: int | None = None) -> str:
    """Return JSON in which control characters are written as JSON's own escapes."""
    return escaped(_json(value, indent, ""), keep="\n", form="json")


def _json(value: Any, indent: int | None, margin: str) -> str:
    """Return a value as JSON. Decimals keep all their digits, which the standard library can't write as a number."""
    inner = margin if indent is None else margin + " " * indent
    match value:
        case dict():
            parts = [f"{_json(str(name), None, '')}: {_json(item, indent, inner)}" for name, item in value.items()]
            return _bracketed("{}", parts, indent, inner, margin)
        case list() | tuple():
            return _bracketed("[]", [_json(item, indent, inner) for item in value], indent, inner, margin)
        case float() | Decimal():
            return "null" if not math.isfinite(value) else repr(value) if isinstance(value, float) else f"{value:f}"
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _bracketed(signs: str, parts: list[str], indent: int | None, inner: str, margin: str) -> str:
    if indent is None or not parts:
        return f"{signs[0]}{', '.join(parts)}{signs[1]}"
    return f"{signs[0]}\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}{signs[1]}"


def _table(frame: pl.DataFrame, width: int) -> str:
    """Return a table of the first rows and of the columns that fit, and print on stderr what is left out."""
    shown = escaped_frame(frame.head(_MOST_ROWS))
    columns = _fitting(shown, width)
    left = []
    if shown.height < frame.height:
        left.append(f"{frame.height - shown.height:,} of {frame.height:,} rows")
    if len(columns) < frame.width:
        left.append(f"{frame.width - len(columns)} of {frame.width} columns")
    if left:
        print(f"left out: {' and '.join(left)}; --format csv gives all", file=sys.stderr)
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=width, fmt_str_lengths=60, tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True, fmt_table_cell_list_len=20, float_precision=None,
    ):  # fmt: skip
        return escaped(str(shown.select(columns)), keep="\n")


def _fitting(frame: pl.DataFrame, width: int) -> list[str]:
    """Return the first columns that fit the width, at least one."""
    room, fitting = width - 1, list[str]()
    for name in frame.columns:
        cells = [str(value) for value in frame[name].to_list()]
        room -= min(max(map(len, [name, *cells])), 60) + 3
        if fitting and room < 0:
            break
        fitting.append(name)
    return fitting


def table_width() -> int:
    """Return the width of the terminal in characters."""
    try:
        given = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        given = 0
    if given > 0:
        return given
    return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDE if sys.stdout.isatty() else _WIDE


def _json_or_null(value: Any) -> str | None:
    return None if value is None else json_text(value)


def _plain(value: Any) -> Any:
    """Return dates, bytes and the like in a form that JSON has."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


@contextlib.contextmanager
def elapsed(doing: str) -> Iterator[None]:
    """Show on stderr how long the block has been running, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    done, start = threading.Event(), time.monotonic()

    def show_time() -> None:
        shown = False
        wait = _PATIENCE
        while not done.wait(wait):
            print(f"\r\x1b[K{doing} ... {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
            shown, wait = True, _EVERY
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show_time, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
