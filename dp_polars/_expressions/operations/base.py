"""What all operations share: the table, the one way to apply an operation, and conversions to the types it works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from dp_polars._expressions.constants import converted, fits, in_units_of
from dp_polars._expressions.messages import Reason, Refused
from dp_polars._expressions.tree import Apply, Constant, Expression
from dp_polars._expressions.types import (
    CALENDAR,
    MOST_ARGUMENTS,
    MOST_DEPTH,
    MOST_LITERAL,
    MOST_NODES,
    MOST_TEXT,
    NUMBERS,
    TEXTS,
    TICKS,
    kind_of,
)

INT, FLOAT, TEXT, TRUTH = pl.Int64(), pl.Float64(), pl.String(), pl.Boolean()

Build = Callable[..., Expression]

CUT = f"It reads and returns at most {MOST_TEXT:,} characters, so no text grows without limit."
"""The reason why operations that may make texts longer never fail."""


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes
    ----------
    name
        The name of the operation in trees.
    spoken
        What messages call it.
    build
        Checks arguments and parameters, and returns the tree.
    reason
        Why the operation never fails.
    arity
        The number of arguments. For operations with any number of arguments, the number that is tested.
    samples
        The parameters that it is tested with.
    """

    name: str
    spoken: str
    build: Build
    reason: str
    arity: int
    samples: tuple[dict[str, Any], ...]


OPERATIONS: dict[str, Operation] = {}


def operation(
    name: str, reason: str, *, spoken: str = "", arity: int = 1, samples: Sequence[dict[str, Any]] = ({},)
) -> Callable[[Build], Build]:
    """Return a decorator that enters an operation into the table."""

    def register(build: Build) -> Build:
        OPERATIONS[name] = Operation(name, spoken or name, build, reason, arity, tuple(samples))
        return build

    return register


def apply(name: str, /, *arguments: Expression, **parameters: Any) -> Expression:
    """Return an operation applied to expressions, after converting them to the types that it works on.

    Parameters
    ----------
    name
        One of `OPERATIONS`.
    *arguments
        The arguments of the operation.
    **parameters
        Public settings that are not values of rows, such as patterns, formats and digits.

    Raises
    ------
    ExpressionNotAllowed
        If the operation does not accept these types or parameters.

    Examples
    --------
    >>> import polars as pl
    >>> from dp_polars._expressions import Column
    >>> apply("date_part", Column("day", pl.Date()), part="year").dtype
    Int64
    """
    operation = OPERATIONS[name]
    if len(arguments) > MOST_ARGUMENTS and name != "case":
        raise Refused(
            operation.spoken, Reason(f"has more than {MOST_ARGUMENTS} arguments", _GROWS, "Use fewer at a time.")
        )
    for argument in arguments:
        if kind_of(argument.dtype) == "other":
            raise wrong_type(operation.spoken, argument)
    return _small(operation.build(*(_read(argument) for argument in arguments), **parameters), operation.spoken)


def _read(value: Expression) -> Expression:
    """Return a category as its text. The code of a category depends on other rows."""
    return make("cast", (value,), TEXT, to=TEXT) if kind_of(value.dtype) == "categorical" else value


def _small(made: Expression, spoken: str) -> Expression:
    if isinstance(made, Apply) and (made.depth > MOST_DEPTH or made.size > MOST_NODES):
        raise Refused(
            spoken,
            Reason(
                "is nested too deeply" if made.depth > MOST_DEPTH else "is part of too long an expression",
                f"Expressions may be nested {MOST_DEPTH} deep and have {MOST_NODES:,} steps in all.",
                "Split it over two `with_columns`, or use `is_in([...])` and `replace_strict(..., default=...)` for "
                "long choices.",
            ),
        )
    return made


def make(name: str, arguments: Sequence[Expression], dtype: pl.DataType, /, **parameters: Any) -> Apply:
    """Return the node of an operation. Its arguments must have been checked and converted before."""
    return Apply(name, tuple(arguments), tuple(sorted(parameters.items())), dtype)


# ---------------------------------------------------------------------- messages

_LEAKS = "Whether a query fails must not reveal anything about a person's value."
_GROWS = "If the memory ran out because of one person's row, the failure would reveal that the person is in the data."


def wrong_type(spoken: str, *given: Expression, fix: str = "") -> Refused:
    """Return the refusal of types that an operation does not accept."""
    shown = " and ".join(dict.fromkeys(str(argument.dtype) for argument in given))
    advice = fix or "Cast its arguments to types that it accepts first."
    why = "Operations on private rows accept only types on which they never fail."
    return Refused(spoken, Reason(f"does not accept {shown}", why, advice))


def bad(spoken: str, does: str, fix: str) -> Refused:
    """Return the refusal of arguments or parameters on which an operation could fail."""
    return Refused(spoken, Reason(does, _LEAKS, fix))


# ---------------------------------------------------------------------- types


def as_number(value: Expression, spoken: str) -> Expression:
    """Return a number as Int64 or Float64. Constants are converted exactly."""
    kind = kind_of(value.dtype)
    if kind == "null":
        return Constant(None, INT)
    if kind not in NUMBERS:
        raise wrong_type(spoken, value)
    if kind in ("float", "decimal"):
        return as_type(value, FLOAT)
    return as_type(value, INT)


def as_type(value: Expression, dtype: pl.DataType) -> Expression:
    """Return an expression converted to a type. Constants are converted exactly."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Constant):
        found = fits(value, dtype)
        if found is not None:
            return found
        if dtype == FLOAT and isinstance(value.dtype, pl.Decimal):  # such as 0.1 in SQL: use the nearest float
            return Constant(float(Fraction(value.value, 10**value.dtype.scale)), dtype)
        if dtype == INT and isinstance(value.value, bool):
            return Constant(int(value.value), dtype)
        return converted(value, dtype)
    return make("cast", (value,), dtype, to=dtype)


def common_numbers(given: Sequence[Expression], spoken: str) -> tuple[list[Expression], pl.DataType]:
    """Return numbers in a common type: Float64 if one of them is a float or a decimal, otherwise Int64."""
    found = [as_number(value, spoken) for value in given]
    dtype = FLOAT if any(value.dtype == FLOAT for value in found) else INT
    return [as_type(value, dtype) for value in found], dtype


def as_float(value: Expression, spoken: str) -> Expression:
    """Return a number as Float64."""
    return as_type(as_number(value, spoken), FLOAT)


def as_text(value: Expression, spoken: str) -> Expression:
    """Return a text, category or Enum as String."""
    if kind_of(value.dtype) == "null":
        return Constant(None, TEXT)
    if kind_of(value.dtype) not in TEXTS:
        raise wrong_type(spoken, value, fix="It accepts texts; cast to pl.String first.")
    if isinstance(value, Constant):
        return Constant(value.value, TEXT)
    return as_type(value, TEXT)


def as_condition(value: Expression, spoken: str) -> Expression:
    """Return a condition, or refuse another type."""
    if kind_of(value.dtype) == "null":
        return Constant(None, TRUTH)
    if value.dtype != TRUTH:
        raise wrong_type(spoken, value, fix="It accepts conditions: expressions that are true or false in each row.")
    return value


def common_type(given: Sequence[Expression], spoken: str) -> list[Expression]:
    """Return values in a common type that can hold all of them."""
    held = [value for value in given if not isinstance(value, Constant)]
    kinds = {kind_of(value.dtype) for value in given} - {"null"}
    types = list(dict.fromkeys(value.dtype for value in held if kind_of(value.dtype) != "null"))
    if not kinds:
        return list(given)
    if not types:
        types = list(dict.fromkeys(value.dtype for value in given if kind_of(value.dtype) != "null"))
    if len(types) == 1 and (found := _all_fit(given, types[0])) is not None:
        return found
    if kinds <= {"boolean"}:
        target: pl.DataType = TRUTH
    elif kinds <= {"integer", "boolean"}:
        target = INT
    elif kinds <= NUMBERS:
        target = FLOAT
    elif kinds <= TEXTS:
        return [as_text(value, spoken) for value in given]
    elif kinds <= CALENDAR:
        target = _latest(given, spoken)
    else:
        raise wrong_type(spoken, *given, fix="Cast them to one type first, for example with `.cast(pl.Float64)`.")
    return [Constant(None, target) if kind_of(value.dtype) == "null" else as_type(value, target) for value in given]


def _all_fit(given: Sequence[Expression], dtype: pl.DataType) -> list[Expression] | None:
    found: list[Expression] = []
    for value in given:
        fitting = fits(value, dtype) if isinstance(value, Constant) else value if value.dtype == dtype else None
        if fitting is None and kind_of(value.dtype) == "null":
            fitting = Constant(None, dtype)
        if fitting is None:
            return None
        found.append(fitting)
    return found


def _latest(given: Sequence[Expression], spoken: str) -> pl.DataType:
    """Return a type that can hold all of these dates and datetimes."""
    types = list(dict.fromkeys(value.dtype for value in given if isinstance(value.dtype, pl.Datetime)))
    zones = {dtype.time_zone for dtype in types if isinstance(dtype, pl.Datetime)}
    if len(zones) > 1 or (zones != {None} and len(types) > 1):
        raise wrong_type(spoken, *given, fix="Bring them to one time zone with `dt.convert_time_zone` first.")
    units = sorted((dtype.time_unit for dtype in types if isinstance(dtype, pl.Datetime)), key=lambda unit: TICKS[unit])
    zone = next(iter(zones), None)
    if zone is not None and any(kind_of(value.dtype) == "date" for value in given):
        raise wrong_type(spoken, *given, fix="Compare dates with `dt.date()` of the datetime.")
    return pl.Datetime(units[0], zone) if units else pl.Date()


def stored_integer(value: Expression) -> Expression:
    """Return a time or duration as the integer that it is stored as."""
    return Constant(value.value, INT) if isinstance(value, Constant) else make("cast", (value,), INT, to=INT)


def comparable(value: Constant, dtype: pl.DataType) -> bool:
    """Return whether a constant can be compared with values of a type."""
    if kind_of(dtype) in TEXTS:
        return isinstance(value.value, str)
    if dtype == TRUTH:
        return isinstance(value.value, bool)
    return in_units_of(value, dtype) is not None


# ---------------------------------------------------------------------- parameters


def check_integer(value: Any, low: int, high: int, spoken: str, what: str) -> int:
    """Return a parameter that must be an integer in a range, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad(spoken, f"needs {what} between {low:,} and {high:,}", "Write an integer in that range.")
    return value


def check_text(value: Any, spoken: str, what: str, most: int = MOST_LITERAL) -> str:
    """Return a parameter that must be a short constant text, or refuse it."""
    if not isinstance(value, str) or len(value) > most:
        raise bad(
            spoken, f"needs {what} that is a constant text of up to {most:,} characters", "Write a Python string."
        )
    return value
