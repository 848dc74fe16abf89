"""The values of an aggregate: a checked expression, its type and its bounds.

Times and decimals are handled as the integers that they are stored as, and so are their bounds.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import polars as pl

from dp_polars._numbers import exact
from dp_polars.errors import InvalidParameterError

Bounds = tuple[Any, Any] | Literal["auto"] | None
"""The smallest and the largest value that counts: numbers, or what the column holds (dates, times, decimals)."""

AUTO_RANGE = (-(10**12), 10**12)
"""The range in which bounds are looked for when they are estimated."""

_LARGEST_STORED = 2**62  # for times and decimals, whose bounds are stored integers
_LARGEST_NUMBER = 10**15
_EXAMPLES = {
    pl.Date: "datetime.date(2020, 1, 1), datetime.date(2030, 1, 1)",
    pl.Datetime: "datetime.datetime(2020, 1, 1), datetime.datetime(2030, 1, 1)",
    pl.Time: "datetime.time(8), datetime.time(18)",
    pl.Duration: "datetime.timedelta(0), datetime.timedelta(days=7)",
    pl.Boolean: "0, 1",
}


@dataclass(frozen=True, kw_only=True)
class Value:
    """An expression that an aggregate reads.

    Attributes
    ----------
    name
        The name of its column.
    expression
        The expression as canonical text.
    dtype
        Its type.
    bounds
        The range to which it is clipped, in stored numbers; None if it isn't used as a number.
    auto
        Whether the bounds are to be estimated. `bounds` is then the range in which they are looked for.
    bounds_rule
        Where the bounds came from if the call does not give them, in words.
    """

    name: str
    expression: str
    dtype: pl.DataType
    bounds: tuple[Fraction, Fraction] | None = None
    auto: bool = False
    bounds_rule: str = ""

    @property
    def integers(self) -> bool:
        """Whether the stored values are integers."""
        return not self.dtype.is_float()

    @property
    def unit(self) -> Fraction:
        """The value of one stored unit: 10**-scale for decimals, 1 otherwise."""
        return Fraction(1, 10**self.dtype.scale) if isinstance(self.dtype, pl.Decimal) else Fraction(1)

    @property
    def lower(self) -> Fraction:
        """The lower bound."""
        return self._bounds()[0]

    @property
    def upper(self) -> Fraction:
        """The upper bound."""
        return self._bounds()[1]

    @property
    def answer_type(self) -> pl.DataType:
        """The type of an answer that is one of the values, or a sum of them: integers stay integers."""
        if self.dtype.is_integer() or self.dtype == pl.Boolean:
            return pl.Int64()
        if self.dtype.is_float():
            return pl.Float64()
        return pl.Decimal(38, self.dtype.scale) if isinstance(self.dtype, pl.Decimal) else self.dtype

    def _bounds(self) -> tuple[Fraction, Fraction]:
        if self.bounds is None:
            raise ValueError("this value has no bounds")
        return self.bounds


def is_number(dtype: pl.DataType) -> bool:
    """Whether a type holds numbers that an aggregate can add up."""
    if dtype in (pl.Int128, pl.UInt128):
        return False
    return dtype.is_integer() or dtype.is_float() or dtype.is_decimal() or dtype == pl.Boolean


class MissingBoundsError(InvalidParameterError):
    """An aggregate needs bounds for a value, and the question gives none.

    Attributes
    ----------
    name
        The value that has no bounds.
    bounds
        Example bounds, written as an option of a call.
    """

    def __init__(self, kind: str, name: str, bounds: str, estimate: str) -> None:
        self.name, self.bounds = name, bounds
        self._kind, self._estimate = kind, estimate
        super().__init__(self._text(name, f"Say {bounds}"), code="bounds-missing")

    def rename(self, name: str, advice: str) -> None:
        """Name the value as its author wrote it, and say what to write. Text that was added to the message stays."""
        added = self.args[0].removeprefix(self._text(self.name, f"Say {self.bounds}"))
        self.args = (self._text(name, advice) + added,)

    def _text(self, name: str, advice: str) -> str:
        return (
            f"{self._kind} needs bounds for {name}: values outside are clipped, and the bounds decide the noise. "
            f"{advice}, chosen without looking at the data{self._estimate}."
        )


def stored_bounds(
    given: Any, name: str, dtype: pl.DataType, kind: str, *, can_estimate: bool, example: str = "(0, 100)"
) -> tuple[Fraction, Fraction]:
    """Return the bounds of a column as stored numbers, or raise an error that explains what bounds are for.

    `example` shows bounds of numbers that this kind of aggregate takes.
    """
    if given is None:
        example = f"({_EXAMPLES[dtype.base_type()]})" if dtype.base_type() in _EXAMPLES else example
        estimate = "" if dtype.is_temporal() or not can_estimate else ', or bounds="auto" to estimate them privately'
        raise MissingBoundsError(kind, name, f"bounds={example}", estimate)
    if not isinstance(given, tuple | list) or len(given) != 2 or None in given:
        raise InvalidParameterError(
            "bounds= takes a pair, the smallest and the largest value that counts: bounds=(0, 100).",
            code="invalid-bounds",
        )
    lower, upper = (stored_number(bound, f"bounds[{place}]", name, dtype) for place, bound in enumerate(given))
    if not lower < upper:
        raise InvalidParameterError("bounds=(lower, upper) needs lower < upper.", code="invalid-bounds")
    largest = max(abs(lower), abs(upper))
    is_stored = not dtype.is_float() and not dtype.is_integer()
    if largest > (_LARGEST_STORED if is_stored else _LARGEST_NUMBER):
        raise InvalidParameterError(
            f"bounds= for {name} ({dtype}) must be at most 2**62 from 0 in the column's own unit, such as the last "
            "digit of a decimal."
            if is_stored
            else "bounds= must lie between -1e15 and 1e15.",
            code="invalid-bounds",
        )
    if largest <= Fraction(1, 10**100):
        raise InvalidParameterError(
            "bounds= are too close to 0: at least one of them must be further from 0 than 1e-100.",
            code="invalid-bounds",
        )
    return lower, upper


def auto_bounds(dtype: pl.DataType) -> tuple[Fraction, Fraction]:
    """Return the range in which bounds are looked for, as stored numbers."""
    scale = 10**dtype.scale if isinstance(dtype, pl.Decimal) else 1
    return Fraction(AUTO_RANGE[0] * scale), Fraction(AUTO_RANGE[1] * scale)


def stored_number(given: Any, what: str, name: str, dtype: pl.DataType) -> Fraction:
    """Return a number, a date or a time as the number that a column of this type stores."""
    if dtype.is_temporal():
        try:
            finer = isinstance(given, datetime.datetime) and dtype == pl.Date
            if finer or isinstance(given, int | float | str | Decimal):
                raise TypeError
            stored = pl.Series([given], dtype=dtype, strict=True).to_physical().item()
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            raise InvalidParameterError(
                f"{what} must have the type of {name}, {dtype}, as in ({_EXAMPLES[dtype.base_type()]})."
            ) from None
        return Fraction(stored)
    if isinstance(given, datetime.date | datetime.time | datetime.timedelta):
        raise InvalidParameterError(f"{what} must be a number, because {name} has the type {dtype}.")
    number = exact(given, what)
    return number * 10**dtype.scale if isinstance(dtype, pl.Decimal) else number
