"""A first draft of a policy: from the schemas of files alone, or from a private profile with a stated spend.

From schemas alone, no row is looked at, so the draft tells nothing. A profile is a question like any other. It is
charged to the ledger of the drafted policy before rows are read, so what it spends is part of the policy's promise.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from dp_polars._numbers import exact
from dp_polars._profile.profile import TableProfile
from dp_polars._session.session import Session
from dp_polars._session.terms import ROW
from dp_polars._sql.catalog import Database
from dp_polars._sql.connection import GuardedConnection
from dp_polars._sql.files import header_names, is_text, open_file
from dp_polars.errors import InvalidParameterError

_HEAD = """\
# A first draft, made from {made}. Go through every line with a question mark.
# Check it with: dp-polars policy check FILE

unit = {unit}  # who is protected? The column that identifies a person.{others}

[budget]
epsilon = {epsilon}  # how much may all answers together tell? Most choose 0.1 to 3.
delta = {delta}  # far below 1 / (number of people); it lets keys be discovered.
queries = {queries}  # for how many questions?
ledger = {ledger}
"""
_PROFILED = """\
# {spent:.3g} of this budget is spent: a private profile suggested the caps and bounds below. The ledger has the charge,
# so unit, epsilon and delta can't be changed any more. See: dp-polars budget {ledger}
"""
_QUERIES = 20


@dataclass(frozen=True)
class ProfileSpend:
    """What a profile for a draft may spend: a share of the budget that the drafted policy will have, in its ledger."""

    epsilon: Any
    delta: Any
    share: Any
    ledger: str
    unit: str | None = None


def draft_policy(paths: Sequence[str], folder: str = ".", profile: ProfileSpend | None = None) -> str:
    """Return a policy for files, to be reviewed by their owner. Paths are written relative to a folder.

    Parameters
    ----------
    paths
        The files, folders or patterns of the tables.
    folder
        The folder in which the policy will lie.
    profile
        Profile the tables privately for this spend; None looks at no row.
    """
    schemas: dict[str, tuple[str, dict[str, str]]] = {}
    for path in paths:
        name = re.sub(r"\W+", "_", os.path.basename(os.path.abspath(path)).split(".")[0]).strip("_") or "table"
        if not name.isascii() or name[0].isdigit() or name in schemas:
            raise InvalidParameterError(
                f"{path} gives no new plain name for a table. Rename the file, or add it by hand."
            )
        schemas[name] = (os.path.relpath(path, folder), _types(name, path))
    likely = _likely_units([types for _, types in schemas.values()])
    if profile is not None and profile.unit is None and len(likely) > 1:
        raise InvalidParameterError(
            "A profile fixes who is protected, because its charge stands in the ledger. Is it "
            f"{' or '.join(likely)}? Say --unit {likely[0]}, for example."
        )
    unit = (profile.unit if profile else None) or next(iter(likely), None)
    profiles: dict[str, TableProfile] = {}
    head = {"made": "the names and types of columns alone", "epsilon": "1.0", "delta": "1e-6", "ledger": '"budget.db"'}
    if profile is not None:
        profiles, spent = _profiles(schemas, unit, folder, profile)
        head = {
            "made": "names, types and a private profile",
            "epsilon": str(profile.epsilon),
            "delta": str(profile.delta),
            "ledger": json.dumps(os.path.relpath(profile.ledger, folder)),
        }
    others = f" Or is it {' or '.join(map(_key, likely[1:]))}?" if profile is None and likely[1:] else ""
    lines = [_HEAD.format(unit=json.dumps(unit or "?"), queries=_QUERIES, others=others, **head)]
    if profile is not None:
        lines.append(_PROFILED.format(spent=spent, ledger=profile.ledger))
    for name, (path, types) in schemas.items():
        lines += [f"[tables.{name}]", f"source = {json.dumps(path)}", "public = false  # are these rows about nobody?"]
        if is_text(os.path.join(folder, path)):
            listed = ", ".join(f'{_key(column)} = "VARCHAR"' for column in types)
            lines.append(f"types = {{ {listed} }}  # which columns are numbers (BIGINT, DOUBLE) or dates (DATE)?")
        if unit is not None and unit not in types:
            lines += _path_to(unit, name, schemas)
        found = profiles.get(name)
        lines.append("max_groups = 3  # in how many groups may one person count?")
        if found is not None and found.max_rows_per_group is not None and found.reliable:
            lines.append(f"max_rows_per_group = {found.max_rows_per_group}  # from the profile{_doubt(found)}")
        else:
            lines.append("max_rows_per_group = 10  # with how many rows in each?")
        lines += ["", f"[tables.{name}.columns]"]
        for column, kind in types.items():
            if column == unit or kind == "other" or _is_id(column):
                continue
            said, key = _RULES[kind], _key(column)
            if found is not None and column in found.bounds:
                lower, upper = (_toml_number(end) for end in found.bounds[column])
                said = f"bounds = [{lower}, {upper}]  # from the profile{_doubt(found)}"
                if found.reliable:  # otherwise noise would become a rule unseen
                    lines.append(f"{key}.{said}")
                    continue
            lines.append(f"# {key}.{said}  Or: {key}.ask = false")
        lines.append("")
    return "\n".join(lines)


def _profiles(
    schemas: Mapping[str, tuple[str, dict[str, str]]], unit: str | None, folder: str, profile: ProfileSpend
) -> tuple[dict[str, TableProfile], float]:
    """Return private profiles of the tables that have the unit and typed columns, and the share that is spent now."""
    if unit is None:
        raise InvalidParameterError("A profile protects people: say which column identifies them with --unit COLUMN.")
    asked = {
        name: [column for column, kind in types.items() if kind == "number" and column != unit and not _is_id(column)]
        for name, (path, types) in schemas.items()
        if unit in types and not is_text(os.path.join(folder, path))
    }
    if not asked:
        raise InvalidParameterError(
            f"No file with types has the column {unit}, so there is nothing to profile. CSV files have no types: leave "
            "--profile out, declare them in the draft, and profile later with SUMMARIZE."
        )
    part = exact(profile.share, "share") / len(asked)
    session = Session(epsilon=profile.epsilon, delta=profile.delta, unit=unit, queries=_QUERIES, ledger=profile.ledger)
    try:
        connection = GuardedConnection(Database(duckdb.connect()), session, owns=True)
        found = {}
        for name, columns in asked.items():
            connection.register(name, os.path.join(folder, schemas[name][0]))
            connection.sql(f"SUMMARIZE {name}", columns=columns, share=part)
            (release,) = connection._paid
            found[name] = TableProfile(release)
        return found, session.spent.share
    finally:
        session.close()


def _doubt(profile: TableProfile) -> str:
    return "?" if profile.reliable else ", which is not reliable: more noise than people?"


def _is_id(column: str) -> bool:
    return re.search(r"(^|_)id$", column, re.IGNORECASE) is not None


def _toml_number(number: Any) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def _types(name: str, path: str) -> dict[str, str]:
    """Return whether each column is a number, a text or something else. Of a CSV file only the header is looked at."""
    if is_text(path):
        return dict.fromkeys(header_names(name, path), "text")
    schema = open_file(name, path, None, Session(epsilon=1, unit=ROW)).schema()
    return {column: _kind(dtype) for column, dtype in schema.items()}


_RULES = {
    "number": "bounds = [0, 100]  # which values count?",
    "date": "bounds = [2026-01-01, 2026-12-31]  # which days count?",
    "text": 'keys = ["?"]  # public values?',
}


def _path_to(unit: str, name: str, schemas: Mapping[str, tuple[str, dict[str, str]]]) -> list[str]:
    """Return lines on how a table without the unit gets it: a column with another name, or the path through a table."""
    mine = schemas[name][1]
    for other, (_, types) in schemas.items():
        if unit not in types:
            continue
        pairs = {column: column for column in mine if column in types and _is_id(column)}
        if not pairs:  # items.order is probably orders.order_id
            pairs = {column: f"{column}_id" for column in mine if f"{column}_id" in types}
        if len(pairs) == 1:
            ((here, there),) = pairs.items()
            on = json.dumps(here) if here == there else f"{{ {_key(here)} = {json.dumps(there)} }}"
            return [
                f'# unit = {{ {_key(unit)} = "?" }}  # does a column tell who it is? Otherwise it is the path below',
                f'through = "{other}"  # does each row belong to the {_key(unit)} of its row in {other}?',
                f"on = {on}",
                f"# unique = true  # is it your word that no two rows of {other} have the same {_key(there)}?",
            ]
    return [
        f'# unit = {{ {_key(unit)} = "?" }}  # or the path to it: through = "?", on = "?", unique = true',
        '# on = { here = "there" } if the column has another name in the other table',
    ]


def _kind(dtype: pl.DataType) -> str:
    if dtype.is_numeric():
        return "number"
    if dtype == pl.Date:
        return "date"
    return "text" if dtype in (pl.String, pl.Categorical) else "other"


def _likely_units(tables: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the columns that may identify people, the likeliest first. They hold numbers or texts.

    Among the columns with a name for people, those that end with id come first, then those that more tables have.
    """

    def rank(name: str) -> tuple[bool, int, str]:
        return not _is_id(name), -sum(name in types for types in tables), name

    return sorted(
        {name for types in tables for name, kind in types.items() if kind != "other" and _PEOPLE.fullmatch(name)},
        key=rank,
    )


_PEOPLE = re.compile(
    r"(user|customer|person|patient|client|member|account|visitor|employee|student|rider|driver|guest|passenger|"
    r"subscriber|participant|respondent|household|citizen|resident|worker|donor|author|player|buyer|shopper|subject|"
    r"cust|uid|pid|people|individual|consumer|borrower|tenant|voter|citizen|teacher|pupil|applicant|contact|device)s?"
    r"[ _-]?(id|key|no|nr|number|code|uuid|hash)?",
    re.IGNORECASE,
)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
