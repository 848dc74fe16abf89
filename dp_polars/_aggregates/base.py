"""The base class of all aggregates, their registry, and the noisy numbers that answers are computed from.

An aggregate is one class. It declares its names in Python and SQL, the values that it reads, how a unit's extra rows
are treated, what it needs to know about a group (`needs`), and how noisy numbers become an answer (`estimate`). It
never sees a row or an exact number. `dp.connect`, `dp.register` and `docs/reference/aggregates.md` find all
aggregates in the registry.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, Literal, NoReturn, ParamSpec, Protocol, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._aggregates.needs import Need
from dp_polars._aggregates.values import Bounds, Value, auto_bounds, is_number, stored_bounds
from dp_polars._expressions.tree import CheckedExpression
from dp_polars._numbers import Number, positive
from dp_polars.errors import InvalidParameterError

ExpressionLike = pl.Expr | str
Ends = tuple[pl.Series, pl.Series]
"""The lower and the upper end of an interval in each group."""
Floats = NDArray[np.float64]


class RowRule(Enum):
    """What happens to the rows of a unit beyond the cap on its rows in a group."""

    SCALE = "the unit's sum is scaled down to the cap"
    KEEP = "as many rows as the cap allows are kept, chosen by a hash"
    ONCE = "the unit counts once, however many rows it has"
    CLIP_TOTAL = "the unit's total is clipped; there is no cap on rows"


class Shape(Enum):
    """How the answer depends on the noisy numbers. It decides which interval and which expected error are known."""

    LINEAR = "the answer is one noisy number"
    RATIO = "the answer is a noisy sum divided by a noisy count"
    SMOOTH = "the answer is another function of several noisy sums and a noisy count"
    RANK = "the answer is a value that the exponential mechanism chose"


class Noisy(Protocol):
    """The noisy numbers of one aggregate, with one entry per group. Values are in stored units."""

    @property
    def confidence(self) -> float | None:
        """The confidence of the intervals that were asked for, or None."""
        ...

    @property
    def nonnegative(self) -> bool:
        """Whether negative answers are shown as 0."""
        ...

    def number(self) -> pl.Series:
        """Return the only noisy number, in the type of the answer."""
        ...

    def count(self) -> pl.Series:
        """Return the noisy number of rows."""
        ...

    def total(self) -> pl.Series:
        """Return the noisy sum of the value."""
        ...

    def rows(self) -> pl.Series:
        """Return the noisy number of rows, at least 1."""
        ...

    def average(self, product: str) -> pl.Series:
        """Return the noisy mean of a product of values, each measured from its centre."""
        ...

    def centre(self, letter: str) -> float:
        """Return the centre that a value is measured from."""
        ...

    def chosen(self, quantile: Fraction) -> pl.Series:
        """Return the value that was chosen for a quantile."""
        ...

    def bins(self) -> tuple[pl.Series, int]:
        """Return the noisy counts of all bins, group after group, and the error that each stays within."""
        ...


class Limits(Protocol):
    """Confidence limits for the noisy numbers of one aggregate, with one entry per group. Values are in stored units.

    They are limits for exact numbers after caps and bounds, and hold with the confidence that was asked for.
    """

    def number(self) -> Ends:
        """Return the limits of the only number, in the type of the answer."""
        ...

    def count(self) -> Ends:
        """Return the limits of the number of rows."""
        ...

    def total(self) -> Ends:
        """Return the limits of the sum of the value."""
        ...

    def mean(self) -> Ends:
        """Return the limits of the mean of the value, within its bounds."""
        ...

    def centre(self, letter: str) -> float:
        """Return the centre that a value is measured from."""
        ...

    def sums(self, *products: str) -> dict[str, tuple[Floats, Floats]]:
        """Return limits of the number of rows ("rows") and of sums of products about the centres.

        All of them hold at once with the confidence that was asked for.
        """
        ...

    def rank_error(self) -> pl.Series:
        """Return how many rows the rank of the only chosen value may be off by, at most."""
        ...

    def ranks(self, quantile: Fraction) -> Ends:
        """Return the limits of the rank of the value that was chosen for a quantile, as fractions of the rows."""
        ...

    def chosen(self, quantile: Fraction) -> Ends:
        """Return the ends that were chosen for the interval of a quantile, in the type of its value."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class AggregateCall:
    """An aggregate as a user wrote it: `dp.count()`, `dp.sum("amount", bounds=(0, 100))` and so on.

    Nothing is checked until the call is used on a frame. If it is given to Polars, as in
    `df.group_by("region").agg(dp.count())` without `.dp`, the error says what to write.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.sum("amount", bounds=(0, 100), weight=2).kind
    'sum'
    >>> dp.count().alias("n")
    dp.count().alias('n')
    """

    aggregate: type[Aggregate]
    columns: tuple[ExpressionLike, ...] = ()
    bounds: tuple[Bounds, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: Number = 1
    name: str | None = None
    """The name of the answer, if `alias` gave it one."""

    @property
    def kind(self) -> str:
        """The name of the aggregate."""
        return self.aggregate.kind

    def alias(self, name: str) -> AggregateCall:
        """Return the same aggregate, whose answer has this name."""
        return AggregateCall(self.aggregate, self.columns, self.bounds, self.options, self.weight, name)

    def __repr__(self) -> str:
        given = [*map(_written, self.columns)]
        if any(pair is not None for pair in self.bounds):
            given.append(f"bounds={self.bounds[0] if len(self.bounds) == 1 else self.bounds!r}")
        given += [f"{name}={value!r}" for name, value in self.options.items() if value != self.aggregate.options[name]]
        given += [] if self.weight == 1 else [f"weight={self.weight}"]
        named = "" if self.name is None else f".alias({self.name!r})"
        return f"dp.{self.kind}({', '.join(given)}){named}"

    # Polars only checks whether an argument is an instance of pl.Expr. A call pretends to be one, so that a helpful
    # error is raised when Polars, or this library's own parser, reads its content.

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return pl.Expr

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.aggregate, self.columns, self.bounds, self.options, self.weight, self.name)
        return AggregateCall, fields  # by default, pickle would rely on __class__

    @property
    def _pyexpr(self) -> NoReturn:
        raise self._misplaced()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(pl.Expr, name):
            raise AttributeError(f"{self!r} has no attribute {name}.", name=name, obj=self)
        raise self._misplaced()

    def _misplaced(self) -> InvalidParameterError:
        return InvalidParameterError(
            f"{self!r} is a private aggregate: Polars can't compute it, and it can't be part of an expression. On a "
            f"plain frame, .dp is missing: write df.dp.group_by('region').agg(answer={self!r}, epsilon=0.1). To "
            "calculate with an answer, release it first.",
            code="not-private",
        )


Arguments = ParamSpec("Arguments")


def aggregate_function(function: Callable[Arguments, AggregateCall]) -> Callable[Arguments, AggregateCall]:
    """Decorate a function such as `dp.count` so that an option it doesn't take is refused with a helpful message."""
    known = list(signature(function).parameters)

    @wraps(function)
    def checked_function(*given: Arguments.args, **named: Arguments.kwargs) -> AggregateCall:
        unknown = [name for name in named if name not in known]
        if unknown:
            name, kind = unknown[0], function.__name__
            near = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise InvalidParameterError(
                f"dp.{kind} has no argument {name}.{hint} It takes {', '.join(known)}. Options of the whole "
                "question (spend, caps, keys, confidence and so on) are arguments of agg: "
                f"df.dp.group_by('region').agg(answer=dp.{kind}(...), {'epsilon' if near else name}=...).",
                code="unknown-option",
            )
        return function(*given, **named)

    return checked_function


def _written(column: ExpressionLike) -> str:
    return repr(column) if isinstance(column, str) else str(column)


_MOST_DIGITS = 24  # digits after the point of decimals whose bounds can be estimated

REGISTRY: dict[str, type[Aggregate]] = {}
"""Every aggregate by its name."""


@dataclass(frozen=True, kw_only=True)
class Aggregate(ABC):
    """One aggregate of a query: checked, with its values and options.

    Attributes
    ----------
    name
        The name of its column in the answer.
    values
        The values that it reads.
    weight
        Its share of the spend, relative to the other aggregates of the query.
    """

    kind: ClassVar[str]
    """The name of the aggregate in Python."""
    summary: ClassVar[str]
    """What it computes, for the documentation."""
    sql_names: ClassVar[tuple[str, ...]]
    """Its names in SQL. The default is `dp_` followed by `kind`."""
    plain_sql_names: ClassVar[Mapping[str, str]] = {}
    """Its names in plain SQL, which a policy allows, each with the private SQL that it means. x and y stand for the
    first and the second argument."""
    columns: ClassVar[tuple[str, ...]] = ("column",)
    """The names of the arguments that are columns."""
    columns_optional: ClassVar[bool] = False
    """Whether the columns may be left out."""
    bounded: ClassVar[bool] = True
    """Whether its values are clipped to bounds."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Its own options and their defaults."""
    sql_positional: ClassVar[tuple[str, ...]] = ()
    """The options that SQL takes by position, between the columns and the bounds."""
    sql_usage: ClassVar[str | None] = None
    """An example of a call in SQL, for messages. None stands for a call with all columns and their bounds."""
    sql_type: ClassVar[str] = "DOUBLE"
    """The type that the functions of `dp.register` return."""
    takes_times: ClassVar[bool] = False
    """Whether its columns may hold dates and times."""
    shape: ClassVar[Shape] = Shape.LINEAR
    rows_beyond_the_cap: ClassVar[RowRule] = RowRule.SCALE
    hidden: ClassVar[bool] = False
    """Whether it is only asked for by an option of another question, and has no name in Python and SQL."""
    unfolds: ClassVar[Literal["rows", "columns"] | None] = None
    """Whether an answer of several numbers becomes rows or columns of its own when it is asked for alone."""

    name: str
    values: tuple[Value, ...] = ()
    weight: Fraction = Fraction(1)

    @classmethod
    def usage(cls, sql_name: str) -> str:
        """Return an example of a call in SQL."""
        if cls.sql_usage is not None:
            return cls.sql_usage
        columns = ["x", "y"][: len(cls.columns)]
        pairs = [["0", "100"], ["0", "1", "0", "100"]][len(columns) - 1] if cls.bounded and columns else []
        return f"{sql_name}({', '.join([*columns, *pairs])})"

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "kind" in cls.__dict__ and not cls.hidden:
            if cls.kind in REGISTRY:
                raise ValueError(f"there are two aggregates named {cls.kind}")
            if "sql_names" not in cls.__dict__:
                cls.sql_names = (f"dp_{cls.kind}",)
            REGISTRY[cls.kind] = cls

    # ------------------------------------------------------------------ from a call

    @classmethod
    def call(cls, *columns: ExpressionLike, bounds: Any = None, weight: Number = 1, **options: Any) -> AggregateCall:
        """Return a call of this aggregate. Two columns take a pair of bounds each."""
        pairs: tuple[Any, ...] = ()
        if cls.bounded:
            # A wrong number of pairs is refused later.
            one_pair = len(cls.columns) == 1 or not isinstance(bounds, Sequence)
            pairs = (None, None) if len(cls.columns) == 2 and bounds is None else (bounds,) if one_pair else bounds
        return AggregateCall(cls, columns, pairs, {**cls.options, **options}, weight)

    @classmethod
    def parse(cls, call: AggregateCall, name: str, values: tuple[Value, ...]) -> Self:
        """Return the aggregate that a call means, with its options checked."""
        own_fields = cls.checked_options(call, values)
        return cls(name=name, values=values, weight=positive(call.weight, "weight"), **own_fields)

    @classmethod
    def checked_options(cls, call: AggregateCall, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the fields that follow from the aggregate's own options, or explain what an option takes."""
        return {}

    @classmethod
    def prepared(cls, checked: CheckedExpression, bounds: Bounds) -> CheckedExpression:
        """Return the expression to aggregate: the one that was given, unless a subclass transforms it."""
        return checked

    @classmethod
    def value(
        cls, checked: CheckedExpression, bounds: Bounds, call: AggregateCall, *, can_estimate: bool = True
    ) -> Value:
        """Return a value with its bounds, or explain which types and bounds this aggregate takes."""
        name, dtype = checked.name, checked.dtype
        if not cls.bounded:
            return Value(name=name, expression=checked.canonical, dtype=dtype)
        cls.check_type(name, dtype)
        if isinstance(bounds, str) and bounds == "auto":
            cls.check_auto(name, dtype, call)
            return Value(name=name, expression=checked.canonical, dtype=dtype, bounds=auto_bounds(dtype), auto=True)
        pairs = "(0, 100)" if len(cls.columns) == 1 else "((0, 1), (0, 100)), a pair for each column"
        given = stored_bounds(bounds, name, dtype, cls.kind, can_estimate=can_estimate, example=pairs)
        return Value(name=name, expression=checked.canonical, dtype=dtype, bounds=given)

    @classmethod
    def check_type(cls, name: str, dtype: pl.DataType) -> None:
        """Refuse a column of a type that this aggregate doesn't take."""
        if not is_number(dtype) and not (cls.takes_times and dtype.is_temporal()):
            types = "integers, floats, decimals or times" if cls.takes_times else "integers, floats or decimals"
            raise InvalidParameterError(
                f"{name} has the type {dtype}, but {cls.kind} needs {types}. Cast the column first."
            )

    @classmethod
    def check_auto(cls, name: str, dtype: pl.DataType, call: AggregateCall) -> None:
        """Refuse bounds="auto" where bounds can't be estimated."""
        if dtype.is_temporal():
            raise InvalidParameterError(f"The bounds of dates and times ({name}) can't be estimated. Give them.")
        if isinstance(dtype, pl.Decimal) and dtype.scale > _MOST_DIGITS:
            raise InvalidParameterError(
                f"The bounds of decimals with more than {_MOST_DIGITS} digits after the point ({name}) can't be "
                "estimated. Give them, or cast the column."
            )

    @classmethod
    def default_name(cls, columns: tuple[str, ...]) -> str:
        """Return the name of the answer if none is given: that of its only column, or else that of the aggregate."""
        return columns[0] if len(columns) == 1 else cls.kind

    # ------------------------------------------------------------------ what it needs

    @property
    def row_rule(self) -> RowRule:
        """What happens to the rows of a unit beyond the cap, with the options of this aggregate."""
        return self.rows_beyond_the_cap

    @abstractmethod
    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group, with the share of its spend for each need."""

    # ------------------------------------------------------------------ the answer

    @property
    def answer_type(self) -> pl.DataType:
        """The type of the answer."""
        return pl.Float64()

    @property
    def unit(self) -> Fraction:
        """The value of one stored unit of a linear answer."""
        return Fraction(1)

    def beside(self, others: Sequence[Aggregate], confidence: float | None) -> Self:
        """Return the aggregate, adjusted to the other aggregates of its question and to the confidence of intervals.

        The confidence is None if no intervals were asked for.
        """
        return self

    def interval_schema(self) -> dict[str, pl.DataType]:
        """Return the columns of the interval for the privacy noise. There are none if no interval is known."""
        return dict.fromkeys((f"{self.name}_low", f"{self.name}_high"), self.answer_type)

    def schema(self, *, interval: bool) -> dict[str, pl.DataType]:
        """Return the columns of the answer when it stands beside other answers."""
        return {self.name: self.answer_type, **(self.interval_schema() if interval else {})}

    def unfolded_schema(self, *, interval: bool) -> dict[str, pl.DataType]:
        """Return the columns of the answer when it is asked for alone."""
        return self.schema(interval=interval)

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the answer of each group, computed from noisy numbers only."""
        return noisy.number()

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the interval in each group."""
        return limits.number()

    def interval(self, limits: Limits) -> dict[str, pl.Series] | None:
        """Return the columns of the interval, or None if they are the two `ends`, widened to contain the answer."""
        return None

    def error_in_words(self, error: str) -> str | None:
        """Describe the expected error in a group of n rows, given the error of its sum divided by n, as text."""
        return None

    def title(self) -> str:
        """Return a short description of the aggregate."""
        names = " and ".join(value.name for value in self.values)
        return f"{self.kind} of {names}" if names else self.kind
