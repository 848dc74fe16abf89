"""Sums of a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import polars as pl

from dp_polars._aggregates.base import (
    Aggregate,
    AggregateCall,
    Ends,
    ExpressionLike,
    Limits,
    Noisy,
    RowRule,
    aggregate_function,
)
from dp_polars._aggregates.needs import Need, Total, UnitTotal
from dp_polars._aggregates.values import Bounds, Value
from dp_polars._numbers import Number
from dp_polars.errors import InvalidParameterError


@dataclass(frozen=True, kw_only=True)
class Sum(Aggregate):
    """The sum of a column that is clipped in each row, or once for each unit (`per="unit"`)."""

    kind: ClassVar = "sum"
    plain_sql_names: ClassVar[Mapping[str, str]] = {"sum": "dp_sum(x)"}
    summary: ClassVar = 'sum of values clipped to bounds, or of unit totals clipped to bounds (`per="unit"`)'
    options: ClassVar[Mapping[str, Any]] = {"per": "row"}
    takes_times: ClassVar = True

    per: Literal["row", "unit"] = "row"

    @classmethod
    def checked_options(cls, call: AggregateCall, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the fields that follow from the aggregate's own options."""
        per = call.options["per"]
        if per not in ("row", "unit"):
            raise InvalidParameterError(f"per= must be 'row' or 'unit', got {per!r}.")
        return {"per": per}

    @classmethod
    def check_type(cls, name: str, dtype: pl.DataType) -> None:
        """Refuse a column of a type that can't be summed."""
        super().check_type(name, dtype)
        if dtype.is_temporal() and dtype != pl.Duration:
            raise InvalidParameterError(
                f"{name} has the type {dtype}. Points in time have no sum; only durations can be added up."
            )

    @classmethod
    def check_auto(cls, name: str, dtype: pl.DataType, call: AggregateCall) -> None:
        """Refuse bounds="auto" where bounds can't be estimated."""
        super().check_auto(name, dtype, call)
        if call.options["per"] == "unit":
            raise InvalidParameterError(
                "bounds='auto' estimates bounds of rows, but per='unit' clips the total of each unit. Give the bounds."
            )

    @property
    def row_rule(self) -> RowRule:
        """What happens to the rows of a unit beyond the cap."""
        return RowRule.CLIP_TOTAL if self.per == "unit" else self.rows_beyond_the_cap

    @property
    def answer_type(self) -> pl.DataType:
        """The type of the answer."""
        return self.values[0].answer_type

    @property
    def unit(self) -> Fraction:
        """The value of one stored unit of the answer."""
        return self.values[0].unit

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group."""
        (value,) = self.values
        return (UnitTotal(value=value) if self.per == "unit" else Total(value=value),)

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the sum of each group."""
        return noisy.total()

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the interval of each group's sum."""
        return limits.total()


@aggregate_function
def sum(
    column: ExpressionLike, *, bounds: Bounds = None, per: Literal["row", "unit"] = "row", weight: Number = 1
) -> AggregateCall:
    """Add up a column whose values are clipped to `bounds`. With `per="unit"` each unit's total is clipped instead.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(total=dp.sum("km", bounds=(0, 10)), epsilon=0.5).columns
    ['total']
    """
    return Sum.call(column, bounds=bounds, per=per, weight=weight)
