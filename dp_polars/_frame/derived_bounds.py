"""Bounds of a calculation, derived from the bounds that a policy gives its columns.

They follow from the policy's text and the constants of the expression, never from rows. Values are clipped to them like
to any others, so the guarantee doesn't depend on this arithmetic: wrong bounds would cut off more, or add more noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, Literal

import polars as pl

from dp_polars._expressions.tree import Apply, Column, Constant, Expression

ValueRange = tuple[Fraction, Fraction]
KnownRange = ValueRange | Literal["auto", "null"] | None
"""The range of an expression; "auto" if a column in it has estimated bounds, "null" for a constant without a value."""

_LARGEST, _SMALLEST = Fraction(10**15), Fraction(1, 10**90)


def derived_bounds(tree: Expression, bounds_of: Callable[[Column], Any]) -> tuple[Any, Any] | Literal["auto"] | None:
    """Return bounds of a calculation, or None if they don't follow from those of its columns.

    `bounds_of` gives the bounds of a column: a pair of numbers, "auto", or None.
    """
    found = _range(tree, bounds_of)
    if found is None or found == "null":
        return None
    if isinstance(found, str):
        return "auto"
    lower, upper = found
    if lower == upper:  # a constant
        lower, upper = min(lower, Fraction(0)), max(upper, Fraction(0))
    scale = 10**tree.dtype.scale if isinstance(tree.dtype, pl.Decimal) else 1
    if not tree.dtype.is_float():
        lower, upper = Fraction(math.floor(lower * scale), scale), Fraction(math.ceil(upper * scale), scale)
    largest = max(abs(lower), abs(upper))
    return (lower, upper) if lower < upper and _SMALLEST < largest <= _LARGEST else None


def _range(tree: Expression, bounds_of: Callable[[Column], Any]) -> KnownRange:
    if isinstance(tree, Constant):
        return _of_constant(tree)
    if tree.dtype == pl.Boolean:
        return Fraction(0), Fraction(1)
    if isinstance(tree, Column):
        given = bounds_of(tree)
        if given is None:
            return None
        if given == "auto":
            return "auto"
        numbers = all(isinstance(end, int | float | Fraction) for end in given)  # not dates or times
        return (Fraction(given[0]), Fraction(given[1])) if numbers and tree.dtype.is_numeric() else None
    if not tree.dtype.is_numeric() or tree.operation not in _RANGES:
        return None
    parts = tree.arguments
    if tree.operation == "case":  # condition, value, condition, value, ..., the value otherwise
        parts = (*parts[1::2], *(parts[-1:] if len(parts) % 2 else ()))
    found = [_range(part, bounds_of) for part in parts]
    if None in found:
        return None
    known = [ends for ends in found if ends != "null"]
    if len(known) < len(found) and tree.operation not in ("case", "coalesce", "least", "greatest"):
        return "null"
    if not known:
        return "null"
    if "auto" in known:
        return "auto"
    constants = [isinstance(part, Constant) for part, ends in zip(parts, found, strict=True) if ends != "null"]
    return _RANGES[tree.operation](known, constants, tree)  # type: ignore[arg-type]


def _of_constant(constant: Constant) -> KnownRange:
    value = constant.value
    if value is None:
        return "null"
    if not isinstance(value, bool | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if not (constant.dtype.is_numeric() or constant.dtype == pl.Boolean):
        return None
    scale = 10**constant.dtype.scale if isinstance(constant.dtype, pl.Decimal) else 1
    return Fraction(value) / scale, Fraction(value) / scale


# ---------------------------------------------------------------------- the operations that keep a range

ValueRanges = Sequence[ValueRange]


def _hull(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange:
    return min(lower for lower, _ in ranges), max(upper for _, upper in ranges)


def _sum(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange:
    return sum((lower for lower, _ in ranges), Fraction(0)), sum((upper for _, upper in ranges), Fraction(0))


def _difference(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange:
    (first_lower, first_upper), (lower, upper) = ranges
    return first_lower - upper, first_upper - lower


def _product(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange:
    ends = [first * second for first, second in product(*ranges)]
    return min(ends), max(ends)


def _quotient(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange | None:
    lower, upper = ranges[1]
    if lower != upper or not lower:
        return None  # a divisor near 0 makes any value
    return _product([ranges[0], (1 / lower, 1 / lower)], constants, tree)


def _negative(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange:
    ((lower, upper),) = ranges
    return -upper, -lower


def _magnitude(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange:
    ((lower, upper),) = ranges
    return (Fraction(0) if lower < 0 < upper else min(abs(lower), abs(upper))), max(abs(lower), abs(upper))


def _rounded(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange:
    ((lower, upper),) = ranges
    step = Fraction(10) ** -int(dict(tree.parameters).get("digits", 0))
    return math.floor(lower / step) * step, math.ceil(upper / step) * step


def _least(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange:
    # A null argument is left out, so only constants limit the least value from above in every row.
    ends = [upper for (_, upper), always in zip(ranges, constants, strict=True) if always]
    lower, upper = _hull(ranges, constants, tree)
    return lower, min([upper, *ends])


def _greatest(ranges: ValueRanges, constants: Sequence[bool], tree: Apply) -> ValueRange:
    ends = [lower for (lower, _), always in zip(ranges, constants, strict=True) if always]
    lower, upper = _hull(ranges, constants, tree)
    return max([lower, *ends]), upper


_RANGES: Mapping[str, Callable[[ValueRanges, Sequence[bool], Apply], ValueRange | None]] = {
    "abs": _magnitude, "add": _sum, "case": _hull, "cast": _hull, "ceil": _rounded, "coalesce": _hull,
    "div": _quotient, "floor": _rounded, "greatest": _greatest, "least": _least, "mul": _product, "neg": _negative,
    "round": _rounded, "sub": _difference, "trunc": _rounded,
}  # fmt: skip
