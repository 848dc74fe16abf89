"""What was agreed when a session was opened: how much may be lost, whom it protects, against what change."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal, get_args

from dp_polars._numbers import Number, count_of, delta_of, epsilon_of, positive
from dp_polars.errors import DPWarning, InvalidParameterError
from dp_polars.theory import approximate_to_zcdp

Adjacency = Literal["add_remove", "replace"]
Measure = Literal["pure", "approximate", "zcdp"]

_LARGE_EPSILON = 10
_LARGE_DELTA = Fraction(1, 10**5)


class _Row:
    """The type of `dp.ROW`, the unit for data in which every row is another person."""

    def __repr__(self) -> str:
        return "dp.ROW"

    def __reduce__(self) -> str:
        return "ROW"


ROW: Final = _Row()
"""The unit of privacy is a row: every row is another person."""

Unit = tuple[str, ...] | _Row
UnitWords = str | Sequence[str] | Mapping[str, str] | _Row | None
"""How a user says the unit of a table."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The agreement behind a session. Every ledger keeps its own and refuses others.

    `delta` is spent in three parts, fixed at opening: `conversion_delta` for concentrated accounting,
    `native_delta` for key discovery and (epsilon, delta) mechanisms, `gaussian_delta` for Gaussian releases counted by
    their epsilon.

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
    """What a plan says of a table whose unit is not called or not the same as the agreed one. Not agreed itself."""

    @property
    def delta(self) -> Fraction:
        """The whole delta."""
        return self.conversion_delta + self.native_delta + self.gaussian_delta

    @cached_property
    def rho_allowed(self) -> Fraction:
        """The rho that all releases may sum to: agreed, or what (epsilon, conversion_delta) converts to."""
        if self.rho is not None:
            return self.rho
        if self.measure == "pure" or self.epsilon is None:
            return Fraction(0)
        return Fraction(approximate_to_zcdp(self.epsilon, self.conversion_delta))

    def to_json(self) -> str:
        """Return the terms as text for the ledger, exact."""
        plain = {name: str(x) if isinstance(x, Fraction) else x for name, x in asdict(self).items()}
        plain["unit"] = None if isinstance(self.unit, _Row) else list(self.unit)
        del plain["unit_note"]
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
        """Return in words how `other` differs from these terms."""
        mine, theirs = self.described(), other.described()
        return [f"{name} is {mine[name]}, not {theirs[name]}" for name in mine if mine[name] != theirs[name]]

    def described(self) -> dict[str, str]:
        """Return each part of the agreement by its name, as text."""
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
    """Return the terms that a user's words mean, or say what is missing."""
    if (epsilon is None) == (rho is None):
        raise InvalidParameterError(
            "A session needs its budget: epsilon= alone (pure), epsilon= with delta= (approximate), or rho= (zCDP, "
            "with delta= if keys are to be discovered), and not both epsilon and rho. To open an existing ledger with "
            "its own terms: Session.from_ledger(path)."
        )
    if adjacency not in get_args(Adjacency):
        raise InvalidParameterError(f"adjacency must be 'add_remove' or 'replace', got {adjacency!r}.")
    total = Fraction(0) if delta is None else delta_of(delta, zero=True)
    measure: Measure = "zcdp" if rho is not None else "approximate" if total else "pure"
    if key_delta is not None and measure != "approximate":
        raise InvalidParameterError("key_delta is a part of an approximate session's delta; pass epsilon= and delta=.")
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
    """Return (conversion, native, gaussian): half, a quarter, a quarter, or key_delta and the rest two to one."""
    native = total / 4 if key_delta is None else delta_of(key_delta, "key_delta", zero=True)
    if native >= total:
        raise InvalidParameterError(f"key_delta must be smaller than delta, got {key_delta} of {float(total):g}.")
    return (total - native) * 2 / 3, native, (total - native) / 3


def read_unit(unit: Any) -> Unit:
    """Return the unit that a user's words mean: column names, or every row."""
    if isinstance(unit, _Row):
        return unit
    columns = (unit,) if isinstance(unit, str) else tuple(unit) if isinstance(unit, list | tuple) else ()
    if not columns or not all(isinstance(name, str) and name for name in columns):
        raise InvalidParameterError(
            "unit= says who is protected: the name of the column that identifies a person, a list of columns, or "
            "dp.ROW if every row is another person."
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
        The unit columns as the table has them; none if every row is a unit.
    relation
        To the session's unit: "agreed" (the same), "renamed", "coarser" (one unit here is several of the session's, so
        that whoever is protected here is protected there) or "weaker" (by the owner's word alone).
    note
        What the plan and the ledger say about it; empty if it is the agreed unit.
    """

    columns: tuple[str, ...]
    relation: Literal["agreed", "renamed", "coarser", "weaker"]
    note: str = ""


def table_unit(agreed: Unit, given: UnitWords, *, weaker: bool = False) -> TableUnit:
    """Return the unit of a table in a session, or refuse one that protects less than was agreed.

    Parameters
    ----------
    agreed
        The session's unit.
    given
        What the user said of this table: nothing, column names, `dp.ROW`, or a mapping from the session's columns to
        those of the table.
    weaker
        The owner's word that a unit may be used which is neither the session's, nor a renaming, nor coarser.

    Examples
    --------
    >>> table_unit(("user", "day"), {"user": "customer"}).relation
    'coarser'
    """
    own = () if isinstance(agreed, _Row) else agreed
    if given is None:
        return TableUnit(own, "agreed")
    names = _renamed(given) if isinstance(given, Mapping) else None
    unit = read_unit(list(names.values()) if names is not None else given)
    columns = () if isinstance(unit, _Row) else unit
    means = set(names) if names is not None else set(columns)
    if columns and not own and names is None:
        return TableUnit(columns, "coarser", f"coarser than every row by itself: {_DOUBLED}")
    if columns and means and means <= set(own):
        called = ", ".join(f"{name} is {names[name]} here" for name in own if names is not None and name in names)
        if means < set(own):
            finer = f"coarser than {', '.join(own)}: {_DOUBLED}"
            return TableUnit(columns, "coarser", f"{called}; {finer}" if called else finer)
        return TableUnit(columns, "renamed" if called else "agreed", called)
    if not columns and not own:
        return TableUnit((), "agreed")
    shown, protected = ", ".join(columns) or "dp.ROW", ", ".join(own) or "every row"
    if weaker:
        return TableUnit(columns, "weaker", f"instead of {protected}, which may protect less: the owner's word")
    first = own[0] if own else ""
    raise InvalidParameterError(
        f"The session protects {protected}, and unit={shown} of this table may protect less, so what was agreed would "
        "not hold. If it is only called otherwise here, say which column is which: "
        f"unit={{{first or 'column'!r}: {(columns[0] if columns else first)!r}}}. A coarser unit names some of the "
        "session's columns. Only the owner of the data can say that less is enough: weaker_unit=True."
    )


def table_terms(terms: Terms, unit: TableUnit) -> Terms:
    """Return the terms under which a table is asked: of a coarser unit twice as many are protected together.

    The session's unit may change a part of a coarser unit's rows. That is not a neighbour in terms of the coarser unit:
    its old rows vanish and its new rows appear (or two units are replaced), which are two changes. With caps they can
    move an answer twice as far as one: an unchanged row may be kept instead of one that is gone.
    """
    if unit.relation == "agreed":
        return terms
    times = 2 if unit.relation == "coarser" else 1
    return replace(terms, group_size=terms.group_size * times, unit_note=unit.note)


_DOUBLED = "two at a time, because a part of its rows may change"


def _renamed(given: Mapping[str, str]) -> dict[str, str]:
    names = dict(given)
    if not names or not all(isinstance(one, str) and one for pair in names.items() for one in pair):
        raise InvalidParameterError("unit= as a mapping names columns: unit={'user_id': 'customer_id'}.")
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
            f"delta={float(terms.delta):g} is not far below one over the number of people in usual data: it allows to "
            "publish some of them outright. Use 1e-6 or less, well below 1 / (number of units).",
            DPWarning,
            stacklevel=4,
        )


def _shown(number: Fraction | None) -> str:
    return "none" if number is None else f"{float(number):.12g}"
