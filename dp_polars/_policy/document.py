"""The text of a policy as frozen values. All mistakes are collected, each with its line and what to write instead."""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from dp_polars._aggregates.base import REGISTRY
from dp_polars._numbers import MAX_MAGNITUDE
from dp_polars._policy.lines import Path, key_lines
from dp_polars._session.periods import NAME
from dp_polars._session.session import check_name
from dp_polars.errors import InvalidParameterError, PolicyError, PolicyProblem

OTHER_QUESTIONS = (
    "noisy_max", "noisy_min", "top_k", "select_best", "stream", "online_queries", "synthesize", "randomized_response",
    "profile",
)  # fmt: skip
"""The questions that are not aggregates, by the names that a policy may allow."""

_BUDGET = ("epsilon", "delta", "rho", "key_delta", "adjacency", "group_size", "queries", "ledger", "per_unit",
           "smallest_share", "largest_share", "overcommit", "periods")  # fmt: skip
_TABLE = ("source", "table", "types", "public", "unit", "through", "on", "unique", "data_version", "max_groups",
          "max_rows_per_group", "max_rows", "columns")  # fmt: skip
_COLUMN = ("bounds", "keys", "ask")
_TOP = ("unit", "folders", "questions", "budget", "analysts", "tables")
_LARGEST = 1_000_000  # characters of a policy
_MOST_KEYS = 100_000
_MOST_LINES = 2_000  # of a text that is no TOML, in which the line is looked for
_DIGITS_BEFORE, _DIGITS_AFTER = 18, 100


@dataclass(frozen=True)
class KeyColumn:
    """Public keys that stand in a column of a public table."""

    table: str
    column: str


Keys = tuple[Any, ...] | KeyColumn | Literal["enum"]


@dataclass(frozen=True)
class ColumnPolicy:
    """What a policy says about a column."""

    bounds: tuple[Any, Any] | Literal["auto"] | None = None
    keys: Keys | None = None
    ask: bool = True


@dataclass(frozen=True)
class TablePolicy:
    """What a policy says about a table."""

    name: str
    source: str
    public: bool
    table: str | None = None
    types: Mapping[str, str] | None = None
    unit: Any = None
    through: str | None = None
    on: Mapping[str, str] | None = None
    unique: bool = False
    data_version: str | None = None
    caps: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, ColumnPolicy] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A policy as it was written, after all checks that need no file."""

    unit: Any
    terms: Mapping[str, Any]
    ledger: str | None
    folders: tuple[str, ...]
    questions: frozenset[str] | None
    smallest: Fraction | None
    largest: Fraction | None
    tables: Mapping[str, TablePolicy]
    lines: Mapping[Path, int]
    analysts: Mapping[str, Fraction] | None = None
    """The share of each analyst; None if anybody may ask within the whole budget."""
    periods: tuple[str, ...] = ()
    """The periods so far, the last of which is open. Each is a promise of its own, with a ledger of its own."""

    def ledger_of(self, period: str) -> str:
        """Return the path of a period's ledger: "budget.2026-11.db" beside the "budget.db" that the policy names."""
        stem, suffix = os.path.splitext(self.ledger or "")
        return f"{stem}.{period}{suffix}"

    @property
    def open_ledger(self) -> str | None:
        """The path of the ledger that pays now."""
        return self.ledger_of(self.periods[-1]) if self.periods and self.ledger else self.ledger

    def line(self, *path: str) -> int:
        """Return the line of a key, or of the innermost table around it that is written."""
        return line_of(self.lines, path)


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line of a key, or of the innermost table around it that is written; 0 if there is none."""
    return next((lines[path[:size]] for size in range(len(path), 0, -1) if path[:size] in lines), 0)


def read_document(text: str, name: str) -> Document:
    """Return a policy, or raise a `PolicyError` with every mistake in its text."""
    if len(text) > _LARGEST:
        raise PolicyError(
            name, [PolicyProblem(0, f"It has {len(text):,} characters; a policy has at most {_LARGEST:,}.")]
        )
    try:
        plain = tomllib.loads(text, parse_float=Decimal)
        lines = key_lines(text)
    except tomllib.TOMLDecodeError as error:
        line = _broken_line(text)
        problem = PolicyProblem(line, f"This is not TOML, or a key occurs twice: {error}.")
        raise PolicyError(name, [problem]) from None
    except (ValueError, RecursionError, ArithmeticError):
        raise PolicyError(
            name, [PolicyProblem(0, "A number has thousands of digits, or arrays are nested too deeply.")]
        ) from None
    reader = _PolicyReader(plain, lines)
    document = reader.document()
    if reader.problems or document is None:
        raise PolicyError(name, reader.problems)
    return document


def _broken_line(text: str) -> int:
    """Return the line on which the first value or header begins that is not TOML; 0 if the text is too long to tell.

    It is the line after the longest beginning of the text that is TOML by itself.
    """
    lines = text.splitlines(keepends=True)
    if len(lines) > _MOST_LINES:
        return 0
    good = 0
    for size in range(1, len(lines)):
        with suppress(tomllib.TOMLDecodeError):
            tomllib.loads("".join(lines[:size]), parse_float=Decimal)
            good = size
    return good + 1


class _PolicyReader:
    """Reads the parts of a policy and notes mistakes, so that all of them are reported at once."""

    def __init__(self, plain: dict[str, Any], lines: Mapping[Path, int]) -> None:
        self._plain, self._lines = plain, lines
        self.problems: list[PolicyProblem] = []

    def _wrong(self, path: Path, text: str) -> None:
        # What is missing belongs to the header of its table, and what has no table to the top of the policy.
        self.problems.append(PolicyProblem(line_of(self._lines, path) or 1, text))

    # ------------------------------------------------------------------ pieces

    def _known(self, given: Mapping[str, Any], known: Sequence[str], path: Path, where: str) -> None:
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"Did you mean {near[0]}?" if near else f"It may have {', '.join(known)}."
                self._wrong((*path, name), f"{where} has no key {_shown(name)}. {hint}")

    def _section(self, given: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
        value = given.get(name, {})
        if isinstance(value, dict):
            return value
        self._wrong((*path, name), f"{name} must be a table: [{'.'.join((*path, name))}].")
        return {}

    def _text(self, given: Mapping[str, Any], name: str, path: Path, example: str) -> str | None:
        value = given.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            self._wrong((*path, name), f'{name} must be a text. Write {name} = "{example}".')
            return None
        return value

    def _flag(self, given: Mapping[str, Any], name: str, path: Path, *, otherwise: bool) -> bool:
        value = given.get(name, otherwise)
        if not isinstance(value, bool):
            self._wrong((*path, name), f"{name} must be true or false.")
            return otherwise
        return value

    def _texts(self, given: Mapping[str, Any], name: str, path: Path, example: str) -> tuple[str, ...]:
        value = given.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            self._wrong((*path, name), f"{name} must be a list of texts. Write {name} = {example}.")
            return ()
        return tuple(value)

    def _number(self, value: Any, path: Path, example: str) -> Fraction | None:
        """Return an exact number that is finite and not absurdly large."""
        name = path[-1]
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            self._wrong(path, f"{name} must be a number. Write {name} = {example}.")
        elif isinstance(value, Decimal) and not value.is_finite():
            self._wrong(path, f"{name} must be finite. Write {name} = {example}.")
        elif isinstance(value, int) and abs(value) > MAX_MAGNITUDE:
            self._wrong(path, f"{name} is too large. Write {name} = {example}.")
        elif isinstance(value, Decimal) and value and not -_DIGITS_AFTER <= value.adjusted() < _DIGITS_BEFORE:
            self._wrong(path, f"{name} is too large or too close to 0. Write {name} = {example}.")
        else:
            return Fraction(value)
        return None

    def _share(self, given: Mapping[str, Any], path: Path) -> Fraction | None:
        name = path[-1]
        if name not in given:
            return None
        found = self._number(given[name], path, "0.05")
        if found is not None and not 0 < found <= 1:
            self._wrong(path, f"{_shown(name)} is a part of the budget, between 0 and 1. Write {_shown(name)} = 0.05.")
            return None
        return found

    def _analysts(self, budget: Mapping[str, Any]) -> dict[str, Fraction] | None:
        overcommit = self._flag(budget, "overcommit", ("budget",), otherwise=False)
        if "analysts" not in self._plain:
            return None
        section = self._section(self._plain, "analysts", ())
        shares = {}
        for name in section:
            share = self._share(section, ("analysts", name))
            try:
                check_name(name)
            except InvalidParameterError as error:
                self._wrong(("analysts", name), str(error))
            if _mixes_scripts(name):
                self._wrong(("analysts", name), f"{_shown(name)} mixes letters of scripts that look alike. Rename it.")
            if share is not None:
                shares[name] = share
        self._collisions(list(section), ("analysts",), "analysts")
        total = sum(shares.values())
        if total > 1 and not overcommit:
            self._wrong(
                ("analysts",),
                f"The shares of the analysts sum to {float(total):.4g}, so not everybody could use all of theirs. If "
                "this is intended, write overcommit = true in [budget].",
            )
        return shares

    def _unit(self, value: Any, path: Path) -> Any:
        names = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else [value]
        if not names or not all(isinstance(one, str) and one for one in names):
            self._wrong(path, 'unit must name the column that tells who is protected. Write unit = "customer_id".')
            return None
        return value

    # ------------------------------------------------------------------ the whole

    def document(self) -> Document | None:
        plain = self._plain
        self._known(plain, _TOP, (), "The policy")
        if "unit" not in plain:
            self._wrong(("unit",), 'Who is protected? Write unit = "customer_id" above the first [table], or "row".')
        unit = self._unit(plain.get("unit", "row"), ("unit",))
        if isinstance(unit, dict):
            self._wrong(("unit",), "The unit of the policy is a column or a list of columns.")
        budget = self._section(plain, "budget", ())
        if "budget" not in plain:
            self._wrong(("budget",), "What may be spent? Write [budget] with epsilon = 1.0 and delta = 1e-6.")
        self._known(budget, _BUDGET, ("budget",), "[budget]")
        if "budget" in plain and set(budget) <= set(_BUDGET) - {"epsilon", "rho"}:  # an unknown key may mean it
            self._wrong(("budget",), "[budget] needs a budget. Write epsilon = 1.0, and delta = 1e-6 to discover keys.")
        terms = self._terms(budget)
        smallest = self._share(budget, ("budget", "smallest_share"))
        largest = self._share(budget, ("budget", "largest_share"))
        analysts = self._analysts(budget)
        if smallest is not None and largest is not None and smallest > largest:
            self._wrong(("budget", "smallest_share"), "smallest_share is above largest_share: nothing could be asked.")
        ledger = self._text(budget, "ledger", ("budget",), "budget.db")
        periods = self._periods(budget, ledger)
        folders = self._texts(plain, "folders", (), '["/data"]')
        questions = self._questions() if "questions" in plain else None
        tables = {name: self._table(name, own) for name, own in self._section(plain, "tables", ()).items()}
        if not tables:
            self._wrong(("tables",), 'There is no table. Write [tables.orders] with source = "orders.parquet".')
        self._collisions(list(tables), ("tables",), "tables")
        self._paths({name: one for name, one in tables.items() if one is not None})
        if self.problems:
            return None
        known = {name: one for name, one in tables.items() if one is not None}
        return Document(
            unit, terms, ledger, folders, questions, smallest, largest, known, self._lines, analysts, periods
        )

    def _periods(self, budget: Mapping[str, Any], ledger: str | None) -> tuple[str, ...]:
        path = ("budget", "periods")
        periods = self._texts(budget, "periods", ("budget",), '["2026-11"]')
        if "periods" in budget and not budget["periods"]:
            self._wrong(path, 'periods lists every period so far, the open one last. Write periods = ["2026-11"].')
        for name in periods:
            if NAME.fullmatch(name) is None:
                text = "is no name of a period: use letters from a to z, digits, - and _, at most 40"
                self._wrong(path, f"{_shown(name)} {text}.")
        if len({name.casefold() for name in periods}) < len(periods):
            self._wrong(path, "periods names a period twice. Each period is a new promise.")
        if periods and (ledger is None or not os.path.splitext(ledger)[1]):
            self._wrong(path, 'Each period has a ledger beside the named one. Write ledger = "budget.db".')
        return periods

    def _terms(self, budget: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, example in (("epsilon", "1.0"), ("delta", "1e-6"), ("rho", "0.02"), ("key_delta", "1e-7")):
            if name in budget:
                found[name] = self._number(budget[name], ("budget", name), example)
        for name in ("group_size", "queries"):
            if name in budget:
                found[name] = self._count(budget[name], ("budget", name), "20")
        if "adjacency" in budget:
            found["adjacency"] = self._text(budget, "adjacency", ("budget",), "add_remove")
        if "per_unit" in budget:
            found["per_unit"] = self._texts(budget, "per_unit", ("budget",), '["country"]')
        return {name: value for name, value in found.items() if value is not None}

    def _count(self, value: Any, path: Path, example: str) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
            self._wrong(path, f"{path[-1]} must be a whole number from 1 to a billion. Write {path[-1]} = {example}.")
            return None
        return value

    def _questions(self) -> frozenset[str]:
        known = [*REGISTRY, *OTHER_QUESTIONS]
        found = self._texts(self._plain, "questions", (), '["count", "mean"]')
        for name in found:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
                self._wrong(("questions",), f"There is no question {_shown(name)}. {hint}")
        if not found:
            self._wrong(("questions",), 'questions must list what may be asked. Write questions = ["count", "mean"].')
        return frozenset(found)

    # ------------------------------------------------------------------ tables

    def _table(self, name: str, given: Any) -> TablePolicy | None:
        path: Path = ("tables", name)
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None or name.lower().startswith("dp_"):
            self._wrong(
                path,
                f"{_shown(name)} can't be the name of a table: use letters from a to z, digits and underscores, not a "
                "look-alike letter of another script, and nothing that begins with dp_.",
            )
        if not isinstance(given, dict):
            self._wrong(path, f"{name} must be a table: [tables.{name}].")
            return None
        self._known(given, _TABLE, path, f"[tables.{name}]")
        source = self._text(given, "source", path, f"{name}.parquet")
        if "source" not in given:
            self._wrong(path, f'Where are the rows of {name}? Write source = "{name}.parquet".')
        if "public" not in given:
            self._wrong(path, f"Are the rows of {name} private? Write public = false, or public = true.")
        public = self._flag(given, "public", path, otherwise=False)
        on = self._on(given, path)
        through = self._text(given, "through", path, "orders")
        if (through is None) != (on is None) or (through is not None and "unit" in given):
            self._wrong(
                (*path, "through" if "through" in given else "on"),
                'The path to the unit is through = "orders" with on = "order_id", in place of unit.',
            )
        columns = self._columns(name, given, path)
        private_only = ("unit", "through", "on", "unique", "max_groups", "max_rows_per_group", "max_rows")
        for key in private_only if public else ():
            if key in given:
                self._wrong((*path, key), f"{name} is public, so {key} means nothing there. Leave it out.")
        for own in columns if public else ():
            self._wrong((*path, "columns", own), f"{name} is public, so its columns need no rules. Leave them out.")
        types = self._types(given, path)
        caps = {}
        for cap in ("max_groups", "max_rows_per_group", "max_rows"):
            if cap in given:
                auto = given[cap] == "auto"
                caps[cap] = "auto" if auto else self._count(given[cap], (*path, cap), '3, or "auto" to estimate it')
        return TablePolicy(
            name=name, source=source or "", public=public, table=self._text(given, "table", path, "main.orders"),
            types=types, unit=self._unit(given["unit"], (*path, "unit")) if "unit" in given else None,
            through=through, on=on, unique=self._flag(given, "unique", path, otherwise=False),
            data_version=self._text(given, "data_version", path, "2026-11"), caps=caps, columns=columns,
        )  # fmt: skip

    def _on(self, given: Mapping[str, Any], path: Path) -> dict[str, str] | None:
        value = given.get("on")
        if value is None:
            return None
        pairs = value if isinstance(value, dict) else None
        if isinstance(value, str):
            pairs = {value: value}
        elif isinstance(value, list) and all(isinstance(one, str) for one in value):
            pairs = {one: one for one in value}
        if not pairs or not all(isinstance(one, str) and one for one in pairs.values()):
            self._wrong((*path, "on"), 'on names the columns that both tables share. Write on = "order_id".')
            return {}
        return dict(pairs)

    def _types(self, given: Mapping[str, Any], path: Path) -> dict[str, str] | None:
        if "types" not in given:
            return None
        types = given["types"]
        if not isinstance(types, dict) or not all(isinstance(one, str) for one in types.values()):
            self._wrong((*path, "types"), 'types gives SQL types by column. Write types = { total = "DOUBLE" }.')
            return {}
        return dict(types)

    def _columns(self, name: str, given: Mapping[str, Any], path: Path) -> dict[str, ColumnPolicy]:
        path, found = (*path, "columns"), {}
        section = self._section(given, "columns", path[:-1])
        for column, own in section.items():
            where = f"[tables.{name}.columns.{column}]"
            if _mixes_scripts(column):
                self._wrong((*path, column), f"{_shown(column)} mixes letters of scripts that look alike. Rename it.")
            if not isinstance(own, dict):
                self._wrong((*path, column), f"{column} must be a table: {where}.")
                continue
            self._known(own, _COLUMN, (*path, column), where)
            ask = self._flag(own, "ask", (*path, column), otherwise=True)
            if not ask and len(own) > 1:
                self._wrong((*path, column), f"{column} may not be asked, so bounds and keys mean nothing there.")
            bounds = self._bounds(own["bounds"], (*path, column, "bounds")) if "bounds" in own else None
            keys = self._keys(own["keys"], (*path, column, "keys")) if "keys" in own else None
            found[column] = ColumnPolicy(bounds, keys, ask)
        self._collisions(list(section), path, "columns")
        return found

    def _bounds(self, value: Any, path: Path) -> tuple[Any, Any] | Literal["auto"] | None:
        if value == "auto":
            return "auto"
        example = 'Write bounds = [0, 100]: the smallest and the largest value that counts; or "auto" to estimate them.'
        if not isinstance(value, list) or len(value) != 2:
            self._wrong(path, f"bounds must be a pair. {example}")
            return None
        if all(isinstance(one, date | datetime | time) for one in value):
            ends: list[Any] = value
        else:
            numbers = [self._number(one, path, "[0, 100]") for one in value]
            if None in numbers:
                return None
            ends = [_plain(one) for one in value]
        try:
            rising = ends[0] < ends[1]
        except TypeError:  # a date and a time
            rising = False
        if not rising:
            self._wrong(path, f"The first bound must be below the second. {example}")
            return None
        return ends[0], ends[1]

    def _keys(self, value: Any, path: Path) -> Keys | None:
        if value == "enum":
            return "enum"
        if isinstance(value, dict) and set(value) == {"table", "column"}:
            if all(isinstance(one, str) for one in value.values()):
                return KeyColumn(value["table"], value["column"])
        elif isinstance(value, list) and value and len(value) <= _MOST_KEYS:
            simple = all(isinstance(one, str | int | bool | date | datetime) for one in value)
            if simple and len({type(one) for one in value}) == 1:
                if len(set(value)) < len(value):
                    self._wrong(path, "keys lists a value twice.")
                return tuple(value)
        self._wrong(
            path,
            'keys must list public values of one type, keys = ["a", "b"], or name a column of a public table, '
            'keys = { table = "regions", column = "code" }, or be "enum" for a column whose type lists its values.',
        )
        return None

    def _collisions(self, names: Sequence[str], path: Path, what: str) -> None:
        """Refuse names that SQL or a reader can't tell apart."""
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(folded(name), name)
            if other != name:
                self._wrong(
                    (*path, name), f"The {what} {_shown(other)} and {_shown(name)} shadow each other: SQL ignores case."
                )

    def _paths(self, tables: Mapping[str, TablePolicy]) -> None:
        """Check that paths to the unit and columns of keys lead to tables of the right kind."""
        for name, table in tables.items():
            path: Path = ("tables", name)
            if table.through is not None:
                other = tables.get(table.through)
                if other is None or other.public or other is table:
                    near = _near(table.through, [one for one in tables if not tables[one].public and one != name])
                    self._wrong((*path, "through"), f"There is no private table {_shown(table.through)}.{near}")
            for column, own in table.columns.items():
                if isinstance(own.keys, KeyColumn) and not getattr(tables.get(own.keys.table), "public", False):
                    near = _near(own.keys.table, [one for one in tables if tables[one].public])
                    self._wrong(
                        (*path, "columns", column, "keys"), f"There is no public table {_shown(own.keys.table)}.{near}"
                    )
                if not own.ask and column in (table.on or {}):
                    self._wrong((*path, "columns", column), f"{column} is the path to the unit. Leave ask = false out.")


def folded(name: str) -> str:
    """Return a name as SQL and readers compare it: without case, and with compatible letters made equal."""
    return unicodedata.normalize("NFKC", name).casefold()


def _mixes_scripts(name: str) -> bool:
    scripts = {unicodedata.name(sign, "").split(" ")[0] for sign in name if sign.isalpha()}
    return len(scripts & {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}) > 1


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" Did you mean {near[0]}?" if near else f" There are {', '.join(known) or 'none'}."


def _plain(number: int | Decimal) -> int | float:
    if isinstance(number, int):
        return number
    found = float(number)
    return found if math.isfinite(found) else 0.0


def _shown(name: str) -> str:
    """Return a name, followed by its ASCII escapes if it has other characters, so that look-alikes are recognised."""
    return name if name.isascii() and name.isprintable() else f"{name!r} ({name!a})"
