"""The terms of a session: its budget, who is protected, and against which change. Also its defaults for queries."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal, get_args

from dp_polars._numbers import Number, count_of, delta_of, epsilon_of, positive
from dp_polars.errors import DPWarning, InvalidParameterError
from dp_polars.theory import approximate_to_zcdp

Adjacency = Literal["add_remove", "replace"]
Measure = Literal["pure", "approximate", "zcdp"]
Cap = int | Literal["auto"] | None
Account = Literal["epsilon", "rho"]
"""One of the two sums that an approximate session may stay within."""

_LARGE_EPSILON = 10
_LARGE_DELTA = Fraction(1, 10**5)


class _Row:
    """The type of `dp.ROW`, the unit for data in which every row belongs to a different person."""

    def __repr__(self) -> str:
        return "dp.ROW"

    def __reduce__(self) -> str:
        return "ROW"


ROW: Final = _Row()
"""The unit of privacy is a row: every row belongs to a different person."""

Unit = tuple[str, ...] | _Row
UnitWords = str | Sequence[str] | Mapping[str, str] | _Row | None
"""The forms in which a user may give the unit of a table."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms that a session was opened with. A ledger keeps its terms and refuses any others.

    `delta` has three parts, which are fixed when the session is opened: `conversion_delta` for zCDP accounting,
    `native_delta` for key discovery and (epsilon, delta) mechanisms, and `gaussian_delta` for Gaussian releases that
    are accounted by their epsilon.

    Examples
    --------
    >>> import dp_polars as dp
    >>> terms = dp.Session(epsilon=1.0, delta=1e-6, unit="user").terms
    >>> terms.measure, float(terms.native_delta), round(float(terms.rho_allowed), 4)
    ('approximate', 2.5e-07, 0.0229)
    """

    measure: Measure
    epsilon: Fraction | None
    rho: Fraction | None
    conversion_delta: Fraction
    native_delta: Fraction
    gaussian_delta: Fraction
    unit: Unit
    adjacency: Adjacency
    group_size: int
    unit_note: str = field(default="", compare=False)
    """What a plan says about a table whose unit differs from the agreed one. It is not part of the terms."""
    share_account: Account | None = field(default=None, compare=False)
    """The account of an approximate session in which shares are counted; None means rho. Not part of the terms."""

    @property
    def delta(self) -> Fraction:
        """The whole delta."""
        return self.conversion_delta + self.native_delta + self.gaussian_delta

    @cached_property
    def rho_allowed(self) -> Fraction:
        """The rho that all releases may sum to: the agreed rho, or what (epsilon, conversion_delta) converts to."""
        if self.rho is not None:
            return self.rho
        if self.measure == "pure" or self.epsilon is None:
            return Fraction(0)
        return Fraction(approximate_to_zcdp(self.epsilon, self.conversion_delta))

    def to_json(self) -> str:
        """Return the terms as exact text for the ledger."""
        plain = {name: str(x) if isinstance(x, Fraction) else x for name, x in asdict(self).items()}
        plain["unit"] = None if isinstance(self.unit, _Row) else list(self.unit)
        del plain["unit_note"], plain["share_account"]
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Return the terms that `to_json` wrote."""
        plain: dict[str, Any] = json.loads(text)
        for name in ("epsilon", "rho", "conversion_delta", "native_delta", "gaussian_delta"):
            plain[name] = None if plain[name] is None else Fraction(plain[name])
        plain["unit"] = ROW if plain["unit"] is None else tuple(plain["unit"])
        return cls(**plain)

    def differences(self, other: Terms) -> list[str]:
        """Return a phrase for each part in which `other` differs from these terms."""
        mine, theirs = self.described(), other.described()
        return [f"{name} is {mine[name]}, not {theirs[name]}" for name in mine if mine[name] != theirs[name]]

    def described(self) -> dict[str, str]:
        """Return each part of the terms as text, by its name."""
        unit = repr(self.unit) if isinstance(self.unit, _Row) else ", ".join(self.unit)
        return {
            "epsilon": _shown(self.epsilon),
            "delta": _shown(self.delta),
            "rho": _shown(self.rho),
            "split of delta": f"{_shown(self.conversion_delta)} for conversion, {_shown(self.native_delta)} for "
            f"keys, {_shown(self.gaussian_delta)} for Gaussians"
            if self.delta
            else "none",
            "unit": unit,
            "adjacency": self.adjacency,
            "group_size": str(self.group_size),
        }


def agree(
    *,
    epsilon: Number | None,
    delta: Number | None,
    rho: Number | None,
    unit: str | Sequence[str] | _Row | None,
    adjacency: Adjacency,
    group_size: int,
    key_delta: Number | None,
) -> Terms:
    """Return the terms for the arguments of a session, or say which argument is missing or wrong."""
    if (epsilon is None) == (rho is None):
        raise InvalidParameterError(
            "A session needs a budget: epsilon= alone (pure), epsilon= with delta= (approximate), or rho= (zCDP; add "
            "delta= to discover keys), but not both epsilon= and rho=. To open an existing ledger with its own terms, "
            "write Session.from_ledger(path).",
            code="budget-missing",
        )
    if adjacency not in get_args(Adjacency):
        raise InvalidParameterError(f"adjacency must be 'add_remove' or 'replace', got {adjacency!r}.")
    total = Fraction(0) if delta is None else delta_of(delta, zero=True)
    measure: Measure = "zcdp" if rho is not None else "approximate" if total else "pure"
    if key_delta is not None and measure != "approximate":
        raise InvalidParameterError(
            "key_delta is a part of an approximate session's delta: give epsilon= and delta= with it."
        )
    conversion, native, gaussian = (
        _split(total, key_delta) if measure == "approximate" else (Fraction(0), total, Fraction(0))
    )
    terms = Terms(
        measure=measure,
        epsilon=None if epsilon is None else epsilon_of(epsilon),
        rho=None if rho is None else positive(rho, "rho"),
        conversion_delta=conversion,
        native_delta=native,
        gaussian_delta=gaussian,
        unit=read_unit(unit),
        adjacency=adjacency,
        group_size=count_of(group_size, "group_size"),
    )
    _warn(terms)
    return terms


def _split(total: Fraction, key_delta: Number | None) -> tuple[Fraction, Fraction, Fraction]:
    """Split delta into its parts for conversion, keys and Gaussians: a half, a quarter and a quarter.

    A given `key_delta` is taken first, and the rest is split two to one.
    """
    native = total / 4 if key_delta is None else delta_of(key_delta, "key_delta", zero=True)
    if native >= total:
        raise InvalidParameterError(f"key_delta must be smaller than delta, got {key_delta} of {float(total):g}.")
    return (total - native) * 2 / 3, native, (total - native) / 3


def read_unit(unit: Any) -> Unit:
    """Return the unit that a user gave: column names, or `dp.ROW`."""
    if isinstance(unit, _Row):
        return unit
    columns = (unit,) if isinstance(unit, str) else tuple(unit) if isinstance(unit, list | tuple) else ()
    if not columns or not all(isinstance(name, str) and name for name in columns):
        raise InvalidParameterError(
            "unit= says who is protected: the name of the column that identifies a person, a list of columns, or "
            "dp.ROW if every row belongs to a different person.",
            code="unit-missing",
        )
    if len(set(columns)) != len(columns):
        raise InvalidParameterError("unit= names a column twice.")
    return columns


@dataclass(frozen=True)
class TableUnit:
    """Who is protected in one table.

    Attributes
    ----------
    columns
        The unit columns by their names in the table; empty if every row is a unit.
    relation
        How the unit relates to the session's. "agreed": it is the same. "renamed": only the names differ. "coarser":
        one unit here is several of the session's, so protecting it protects each of them. "weaker": it may protect
        less, and the owner allowed that.
    note
        What the plan and the ledger say about the unit; empty if it is the agreed one.
    """

    columns: tuple[str, ...]
    relation: Literal["agreed", "renamed", "coarser", "weaker"]
    note: str = ""


def table_unit(agreed: Unit, given: UnitWords, *, weaker: bool = False, table_columns: Iterable[str] = ()) -> TableUnit:
    """Return the unit of a table in a session, or refuse a unit that may protect less than was agreed.

    Parameters
    ----------
    agreed
        The session's unit.
    given
        What the user said about this table: nothing, column names, `dp.ROW`, or a mapping from the session's columns
        to those of the table.
    weaker
        The owner's permission to use a unit that is neither the session's, nor a renaming of it, nor coarser.
    table_columns
        The columns of the table, if they are known. If the table has the session's unit column, no other column can be
        declared to be it: the other column could tell rows of one unit apart.

    Examples
    --------
    >>> table_unit(("user", "day"), {"user": "customer"}).relation
    'coarser'
    """
    agreed_columns = () if isinstance(agreed, _Row) else agreed
    if given is None:
        return TableUnit(agreed_columns, "agreed")
    names = _renamed(given) if isinstance(given, Mapping) else None
    unit = read_unit(list(names.values()) if names is not None else given)
    columns = () if isinstance(unit, _Row) else unit
    means = set(names) if names is not None else set(columns)
    there = {column.lower() for column in table_columns}
    if names is not None and not weaker:
        for name, here in names.items():
            if name in agreed_columns and name != here and name.lower() in there:
                raise InvalidParameterError(
                    f"unit={{{name!r}: {here!r}}} says that this table calls {name} {here}, but it has a column {name} "
                    "of its own, which says who is protected. Another column may tell the rows of one unit apart, and "
                    "then the agreed guarantee would not hold. Leave unit= out. Only the owner of the data may accept "
                    "less protection: weaker_unit=True.",
                    code="unit-may-protect-less",
                )
    if columns and not agreed_columns and names is None:
        return TableUnit(columns, "coarser", f"coarser than every row by itself: {_DOUBLED}")
    if columns and means and means <= set(agreed_columns) and not (weaker and _hidden(names, there)):
        called = ", ".join(
            f"{name} is {names[name]} here" for name in agreed_columns if names is not None and name in names
        )
        if means < set(agreed_columns):
            finer = f"coarser than {', '.join(agreed_columns)}: {_DOUBLED}"
            return TableUnit(columns, "coarser", f"{called}; {finer}" if called else finer)
        return TableUnit(columns, "renamed" if called else "agreed", called)
    if not columns and not agreed_columns:
        return TableUnit((), "agreed")
    shown, protected = ", ".join(columns) or "dp.ROW", ", ".join(agreed_columns) or "every row"
    if weaker:
        return TableUnit(columns, "weaker", f"may protect less than {protected}: allowed by the owner")
    first = agreed_columns[0] if agreed_columns else ""
    raise InvalidParameterError(
        f"The session protects {protected}, but unit={shown} for this table may protect less, so the agreed guarantee "
        "would not hold. If the column only has another name here, say which column is which: "
        f"unit={{{first or 'column'!r}: {(columns[0] if columns else first)!r}}}. A coarser unit names only some of "
        "the session's columns. Only the owner of the data may accept less protection: weaker_unit=True.",
        code="unit-may-protect-less",
    )


def table_terms(terms: Terms, unit: TableUnit) -> Terms:
    """Return the terms for a table's queries. With a coarser unit, twice as many units are protected together.

    One unit of the session may change only some of the rows of a coarser unit. To neighbours of the coarser unit that
    is two changes: its old rows vanish and its new rows appear (or two units are replaced). With caps, two changes can
    move an answer twice as far as one, because an unchanged row may be kept in place of a row that is gone.
    """
    if unit.relation == "agreed":
        return terms
    times = 2 if unit.relation == "coarser" else 1
    return replace(terms, group_size=terms.group_size * times, unit_note=unit.note)


_DOUBLED = "two are protected together, because only some of its rows may change"


def _hidden(names: Mapping[str, str] | None, there: set[str]) -> bool:
    """Return whether a renaming ignores a column that has the name of the session's unit."""
    return names is not None and any(name != here and name.lower() in there for name, here in names.items())


def _renamed(given: Mapping[str, str]) -> dict[str, str]:
    names = dict(given)
    if not names or not all(isinstance(column, str) and column for pair in names.items() for column in pair):
        raise InvalidParameterError(
            "unit= as a mapping goes from the session's column to the table's: unit={'user_id': 'customer_id'}."
        )
    return names


def _warn(terms: Terms) -> None:
    if terms.epsilon is not None and terms.epsilon > _LARGE_EPSILON:
        warnings.warn(
            f"epsilon={float(terms.epsilon):g} is above {_LARGE_EPSILON}: an attacker's odds may change by a factor of "
            "more than 20,000. Most releases use 0.1 to 3.",
            DPWarning,
            stacklevel=4,
        )
    if terms.delta > _LARGE_DELTA:
        warnings.warn(
            f"delta={float(terms.delta):g} is not far below one over the number of people in typical data, so it "
            "permits publishing some of them outright. Use 1e-6 or less, well below 1 / (number of units).",
            DPWarning,
            stacklevel=4,
        )


def _shown(number: Fraction | None) -> str:
    return "none" if number is None else f"{float(number):.12g}"


@dataclass(frozen=True)
class Defaults:
    """What a session uses for arguments that a query leaves out. Defaults are not part of the terms."""

    per_unit: tuple[str, ...] = ()
    max_groups: Cap = None
    max_rows_per_group: Cap = None
    max_rows: Cap = None
    queries: int | None = None
    account: Account | None = None
    """The account in which shares are counted, chosen when the session was opened (see `accounts`)."""

    def to_json(self) -> str:
        """Return the defaults as text for the ledger."""
        return json.dumps(vars(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Defaults:
        """Return the defaults that `to_json` wrote."""
        plain = json.loads(text)
        return cls(**{**plain, "per_unit": tuple(plain["per_unit"])})


def read_defaults(
    *, per_unit: str | Sequence[str], max_groups: Cap, max_rows_per_group: Cap, max_rows: Cap, queries: int | None
) -> Defaults:
    """Return the defaults for the arguments of a session."""
    names = (per_unit,) if isinstance(per_unit, str) else tuple(per_unit)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidParameterError("per_unit= must list the names of the columns that are constant for each unit.")
    return Defaults(
        per_unit=names,
        max_groups=_cap(max_groups, "max_groups"),
        max_rows_per_group=_cap(max_rows_per_group, "max_rows_per_group"),
        max_rows=_cap(max_rows, "max_rows"),
        queries=None if queries is None else count_of(queries, "queries"),
    )


def _cap(cap: Cap, name: str) -> Cap:
    return cap if cap is None or cap == "auto" else count_of(cap, name)
