"""A first draft of a policy, from the schemas of files alone. No row is looked at, so the draft tells nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence

import polars as pl

from dp_polars._session.session import Session
from dp_polars._session.terms import ROW
from dp_polars._sql.files import TEXT, ending_of, files_at, header_names, open_file
from dp_polars.errors import InvalidParameterError

_HEAD = """\
# A first draft, made from the names and types of columns alone. Go through every line with a question mark.
# Check it with: dp-polars policy check FILE

unit = {unit}  # who is protected? The column that identifies a person.

[budget]
epsilon = 1.0  # how much may all answers together tell? Most choose 0.1 to 3.
delta = 1e-6  # far below 1 / (number of people); it lets keys be discovered.
queries = 20  # for how many questions?
ledger = "budget.db"
"""


def draft_policy(paths: Sequence[str], folder: str = ".") -> str:
    """Return a policy for files, to be reviewed by their owner. Paths are written relative to a folder."""
    schemas: dict[str, tuple[str, dict[str, str]]] = {}
    for path in paths:
        name = re.sub(r"\W+", "_", os.path.basename(os.path.abspath(path)).split(".")[0]).strip("_") or "table"
        if not name.isascii() or name[0].isdigit() or name in schemas:
            raise InvalidParameterError(
                f"{path} gives no new plain name for a table. Rename the file, or add it by hand."
            )
        schemas[name] = (os.path.relpath(path, folder), _types(name, path))
    unit = _likely_unit([set(types) for _, types in schemas.values()])
    lines = [_HEAD.format(unit=json.dumps(unit or "?"))]
    for name, (path, types) in schemas.items():
        lines += [f"[tables.{name}]", f"source = {json.dumps(path)}", "public = false  # are these rows about nobody?"]
        if ending_of(files_at(os.path.join(folder, path))[0]) in TEXT:
            listed = ", ".join(f'{_key(column)} = "VARCHAR"' for column in types)
            lines.append(f"types = {{ {listed} }}  # which columns are numbers (BIGINT, DOUBLE) or dates (DATE)?")
        if unit is not None and unit not in types:
            lines.append(f'# unit = {{ {unit} = "?" }}  # or the path to it: through = "?", on = "?", unique = true')
        lines.append("max_groups = 3  # in how many groups may one person count?")
        lines.append("max_rows_per_group = 10  # with how many rows in each?")
        lines.append("")
        for column, kind in types.items():
            if column == unit or kind == "other":
                continue
            rule = "bounds = [0, 100]  # which values count?" if kind == "number" else 'keys = ["?"]  # public values?'
            lines += [f"# [tables.{name}.columns.{_key(column)}]", f"# {rule}  Or: ask = false", ""]
    return "\n".join(lines)


def _types(name: str, path: str) -> dict[str, str]:
    """Return whether each column is a number, a text or something else. Of a CSV file only the header is looked at."""
    if ending_of(files_at(path)[0]) in TEXT:
        return dict.fromkeys(header_names(name, path), "text")
    schema = open_file(name, path, None, Session(epsilon=1, unit=ROW)).schema()
    return {column: _kind(dtype) for column, dtype in schema.items()}


def _kind(dtype: pl.DataType) -> str:
    if dtype.is_numeric():
        return "number"
    return "text" if dtype in (pl.String, pl.Categorical) else "other"


def _likely_unit(columns: Sequence[set[str]]) -> str | None:
    """Return the column that most tables have and that is called like an identifier of people, if there is one."""
    people = re.compile(r"(user|customer|person|patient|client|member|account|visitor|employee|student)s?(_?id)?", re.I)
    names = sorted({name for one in columns for name in one if people.fullmatch(name)})
    return max(names, key=lambda name: sum(name in one for one in columns), default=None)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
