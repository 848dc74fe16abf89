"""Answers on stdout or in a file: a table to look at, or CSV, JSON, JSON lines and Parquet for programs.

A key may hold what a terminal takes for a command. A table and everything on stderr have such characters escaped,
wherever they go. The other formats are data: JSON has escapes of its own, and CSV is escaped only if stdout is a
terminal; in a file or a pipe it is what was released, letter for letter.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from typing import Any, Literal

import polars as pl

from dp_polars._cli.exit_codes import FileProblem
from dp_polars._display.text import escaped, escaped_frame

Format = Literal["table", "csv", "json", "jsonl", "parquet"]
FORMATS: tuple[Format, ...] = ("table", "csv", "json", "jsonl", "parquet")

_MOST_ROWS = 200
_WIDE = 10_000  # characters, where nobody looks through a window


def add_output(parser: argparse.ArgumentParser) -> None:
    """Let a command have --format and --output."""
    group = parser.add_argument_group("the answer")
    group.add_argument(
        "--format", choices=FORMATS,
        help="how it is written (a table; with --output by the file's ending). Control characters are escaped in a "
        "table, and in CSV that goes to a terminal",
    )  # fmt: skip
    group.add_argument("--output", metavar="FILE", help="where to, instead of stdout")


def check_output(parser: argparse.ArgumentParser, options: argparse.Namespace, used: list[str]) -> None:
    """Settle the format, and see that the answer can be written before it is paid for."""
    path = options.output
    if options.format is None:
        ending = os.path.splitext(path or "")[1].lower().lstrip(".").replace("ndjson", "jsonl")
        options.format = ending if ending in FORMATS else "table"
    if path is None:
        if options.format == "parquet" and sys.stdout.isatty():
            parser.error("Parquet is no text for a terminal: say --output FILE, or send stdout to a file")
        return
    if any(_same(path, one) for one in used):
        parser.error(f"--output {path} would overwrite a file that is read")
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise FileProblem(f"{path} can't be written. Nothing was asked.")


def _same(path: str, other: str) -> bool:
    """Whether two paths are one file, or will be: a new ledger is not there yet."""
    there = os.path.exists(path) and os.path.exists(other)
    return os.path.samefile(path, other) if there else os.path.realpath(path) == os.path.realpath(other)


def write(frame: pl.DataFrame, options: argparse.Namespace) -> None:
    """Write an answer."""
    if options.output is None:
        show(encoded(frame, options.format, table_width()), data=options.format not in ("table", "parquet"))
        return
    try:
        with open(options.output, "wb") as file:
            file.write(encoded(frame, options.format, _WIDE))
    except OSError as error:
        raise FileProblem(
            f"{options.output} can't be written: {error.strerror}. With a ledger the answer is stored: ask again with "
            "another --output, at no cost."
        ) from None


def show(content: bytes, *, data: bool = False) -> None:
    """Write to stdout, in UTF-8 whatever the system's habit: an answer that is paid for must not fail there.

    What is data is escaped for a terminal; what is text to look at was escaped when it was made.
    """
    if data and sys.stdout.isatty():
        content = escaped(content.decode(), keep="\n").encode()
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def encoded(frame: pl.DataFrame, form: Format, width: int) -> bytes:
    """Return an answer in a format."""
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
    """Return JSON in which everything that a terminal may obey is written as JSON's own escape."""
    text = json.dumps(_finite(value), default=_plain, ensure_ascii=False, allow_nan=False, indent=indent)
    return escaped(text, keep="\n", form="json")


def _table(frame: pl.DataFrame, width: int) -> str:
    """Return a table of at most so many rows, and of the columns that fit; says on stderr what is left out."""
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
    """Return the first columns that a window has room for; at least one."""
    room, fitting = width - 1, list[str]()
    for name in frame.columns:
        cells = [str(value) for value in frame[name].to_list()]
        room -= min(max(map(len, [name, *cells])), 60) + 3
        if fitting and room < 0:
            break
        fitting.append(name)
    return fitting


def table_width() -> int:
    """Return how wide the window is."""
    try:
        said = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        said = 0
    if said > 0:
        return said
    return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDE if sys.stdout.isatty() else _WIDE


def _finite(value: Any) -> Any:
    """Return a value with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {name: _finite(own) for name, own in value.items()}
    return [_finite(own) for own in value] if isinstance(value, list) else value


def _json_or_null(value: Any) -> str | None:
    return None if value is None else json_text(value)


def _plain(value: Any) -> Any:
    """Return dates, decimals and the like as JSON has them."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
