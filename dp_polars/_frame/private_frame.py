"""`PrivateFrame`, which is `df.dp` and `lf.dp`: checked transformations of private rows, and questions to them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from typing import Any, Concatenate, Generic, Literal, NoReturn, ParamSpec, TypeVar, overload

import polars as pl

from dp_polars._aggregates.base import AggregateCall
from dp_polars._choices.methods import Choices
from dp_polars._display.completion import PublicNames
from dp_polars._display.text import escaped
from dp_polars._engines.polars.file_plans import infers_types
from dp_polars._engines.polars.held_frame import HeldFrame
from dp_polars._engines.polars.scan import held_rows, lazy_rows, polars_rows
from dp_polars._engines.registry import source_identity
from dp_polars._engines.rows import OWN, PrivateRows, check_names, is_unicode
from dp_polars._engines.spark.source import SparkFrame, SparkSource, is_spark_frame
from dp_polars._engines.unit_steps import (
    AddWindows,
    GroupRows,
    JoinRows,
    KeepFirst,
    StackRows,
    UnitStep,
    UnnestRows,
    check_lookups,
    constant_columns,
    described_step,
    first_sources,
    has_unit_steps,
    unique_columns,
    unit_rows,
    with_units,
)
from dp_polars._expressions import Column, Constant, Expression, apply, canonical
from dp_polars._expressions.check import CheckedExpression, check_expression, check_expressions
from dp_polars._expressions.unit_expressions import UnitExpressions
from dp_polars._expressions.unit_functions import SortColumn
from dp_polars._frame.asked import asked_steps
from dp_polars._frame.behaviour import Behaviour
from dp_polars._frame.methods import Grouped, Questions, unit_wise_expressions
from dp_polars._frame.options import AnyOptions, ExpressionLike, PublicKeys, RowsStayPrivate, refuse_private
from dp_polars._frame.preview import Preview
from dp_polars._frame.question import Origin, Question, View, no_panics, planned
from dp_polars._frame.table_rules import Rules
from dp_polars._local.methods import Responses
from dp_polars._many.methods import ManyQueries
from dp_polars._many.online_queries import OnlineQueries
from dp_polars._many.synthesis import Synthesis
from dp_polars._numbers import Number, count_of, flag_of
from dp_polars._plan.base import BasePlan
from dp_polars._plan.digest import public_digest
from dp_polars._plan.query import Cap, MechanismChoice
from dp_polars._profile.methods import Profiling
from dp_polars._profile.profile import TableProfile
from dp_polars._release.charge import Identity
from dp_polars._session.session import Session, current_session
from dp_polars._session.terms import ROW, TableUnit, UnitWords, table_unit
from dp_polars._streams.stream import Stream, Streams
from dp_polars.errors import InvalidParameterError

JoinHow = Literal["inner", "left", "semi", "anti"]
DTypeLike = pl.DataType | type[Any]
Columns = str | pl.Expr | Iterable[str | pl.Expr]
"""Columns by name or by selector."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


Frame = TypeVar("Frame", bound=pl.DataFrame | pl.LazyFrame)


class PrivateFrame(
    Questions[Frame],
    Choices[Frame],
    Streams[Stream],
    ManyQueries[OnlineQueries, Synthesis],
    Responses[Frame],
    Profiling[TableProfile],
    Behaviour[Frame],
    PublicNames,
    RowsStayPrivate,
    Generic[Frame],
):
    """A frame whose rows stay private: it can be transformed and asked questions, but not seen.

    The guarantee is about the rows of the frame that `.dp` was called on. What happened to it before is up to the
    caller. Transformations are checked: each row of the result depends on one row of the frame, or after a step within
    a unit on the rows of one unit.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> visits = pl.DataFrame({"user": range(4_000), "km": [1, 2, 3, 40] * 1_000, "city": ["a", "b"] * 2_000})
    >>> cities = pl.DataFrame({"city": ["a", "b"], "land": ["x", "y"]})
    >>> far = dp.private(visits, session).filter(pl.col("km") > 2).join(cities, on="city")
    >>> far.with_columns(miles=pl.col("km") / 1.6).drop("city").rename({"land": "country"}).select("miles", "country")
    <dp.PrivateFrame with user, miles, country>
    >>> round(far.count(epsilon=0.5).item(), -3), far.preview.count(epsilon=0.5).cost
    (2000, <dp.Cost epsilon 0.5, rho 0.122459>)
    """

    @no_panics
    def __init__(
        self,
        frame: Frame | SparkFrame,
        *,
        session: Session | None = None,
        unit: UnitWords = None,
        name: str | None = None,
        data_version: str | None = None,
        weaker_unit: bool = False,
    ) -> None:
        if isinstance(frame, pl.LazyFrame) and infers_types(frame):
            raise InvalidParameterError(
                "This frame scans a text file, and its lines decide the types of the columns: one person's value could "
                "change a type, which a free preview shows. Declare the types with pl.scan_csv(path, schema={...}), "
                "read all columns as text with infer_schema=False, or scan a Parquet file. Joins with frames in memory "
                "and Python functions come after .dp, because they hide whether the types are declared.",
                code="column-types-missing",
            )
        self._origin: object = frame
        if isinstance(frame, pl.DataFrame):
            check_names(frame.columns)
            held = HeldFrame(frame)
            self._rows, self._origin = held_rows(held), held.state
        elif isinstance(frame, pl.LazyFrame):
            self._rows = polars_rows(frame)
        elif is_spark_frame(frame):
            self._rows = PrivateRows(SparkSource(frame))
        else:
            raise InvalidParameterError(
                f"A DataFrame or LazyFrame of Polars, or a DataFrame of Spark, can be made private, and this is a "
                f"{type(frame).__name__}."
            )
        check_names(self._rows.source_schema)
        _check_reserved(self._rows.source_schema)
        self._table_columns = tuple(self._rows.source_schema)
        self._partners: tuple[tuple[PrivateFrame[Any], dict[str, str] | None], ...] = ()
        self._session = session
        self._unit, self._weaker_unit = unit, weaker_unit is True  # `private` checks that it is a flag
        self._unit_of(session)  # raises an error if it is not a unit
        self._name, self._data_version = name, data_version
        self._steps: tuple[str, ...] = ()
        self._made: frozenset[str] = frozenset()
        self._unchecked = False
        self._rules: Rules = ()
        self._named: Identity | None = None

    @classmethod
    def _of_policy(
        cls, rows: PrivateRows, rules: Rules, session: Session, unit: UnitWords, identity: Identity
    ) -> PrivateFrame[pl.DataFrame]:
        """Return the rows of a policy's table. `rules` are those of the table, and `identity` names the rows."""
        frame: PrivateFrame[pl.DataFrame] = PrivateFrame(pl.DataFrame(schema=rows.schema), session=session, unit=unit)
        frame._rows, frame._rules, frame._named = rows, rules, identity
        return frame

    # ------------------------------------------------------------------ what is public about the rows

    @property
    def columns(self) -> list[str]:
        """The names of the columns, which are public.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> pl.DataFrame({"user": [1, 2], "km": [1.5, None]}).dp.with_columns(far=pl.col("km") > 2).columns
        ['user', 'km', 'far']
        """
        return self._rows.schema.names()

    @property
    def schema(self) -> pl.Schema:
        """The names and types of the columns, which are public.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> pl.DataFrame({"user": [1, 2], "km": [1.5, None]}).dp.schema
        Schema([('user', Int64), ('km', Float64)])
        """
        return pl.Schema(self._rows.schema)

    # ------------------------------------------------------------------ transformations

    @no_panics
    def filter(
        self, *predicates: pl.Expr | Sequence[pl.Expr], unchecked: bool = False, **constraints: Any
    ) -> PrivateFrame[Frame]:
        """Keep the rows for which every predicate is true and columns have the values of the constraints.

        `unchecked=True` skips the check: the user then vouches that the predicates are row-wise and never fail.
        """
        equal = [pl.col(name) == value for name, value in constraints.items()]
        given = [
            *(
                item
                for predicate in predicates
                for item in (predicate if isinstance(predicate, list | tuple) else [predicate])
            ),
            *equal,
        ]
        if flag_of(unchecked, "unchecked"):
            return self._after_unchecked(self._in_polars().filter(given), "filter")
        frame, checked = self._with_windows(given, {}, "filter")
        rows = frame._rows
        for expression in checked:
            rows = rows.filter(expression.tree)
        rows = rows if frame is self else rows.keep(self._rows.schema)
        return frame._after(rows, "filter", [item.canonical for item in checked])

    @no_panics
    def with_columns(self, *expressions: ExpressionLike, unchecked: bool = False, **named: Any) -> PrivateFrame[Frame]:
        """Add or replace columns. The unit column can't be replaced."""
        if flag_of(unchecked, "unchecked"):
            return self._with_unchecked(expressions, named)
        frame, found = self._with_windows(expressions, named, "with_columns")
        checked = {item.name: item for item in found}
        self._keep_unit(set(checked), "replace")
        rows = frame._rows.make({name: item.tree for name, item in checked.items()})
        rows = rows if frame is self else rows.keep(dict.fromkeys([*self._rows.schema, *checked]))
        check_names(rows.schema)
        texts = {name: item.canonical for name, item in checked.items()}
        return frame._after(rows, "with_columns", texts, made=checked)

    @no_panics
    def select(self, *expressions: ExpressionLike, unchecked: bool = False, **named: Any) -> PrivateFrame[Frame]:
        """Keep these columns. The unit column always stays."""
        if flag_of(unchecked, "unchecked"):
            made = self._with_unchecked(expressions, named)
            listed = [item for given in expressions for item in (given if isinstance(given, list | tuple) else [given])]
            names = [item if isinstance(item, str) else item.meta.output_name() for item in listed]
            units = [name for name in self._unit_columns() if name not in (*names, *named)]
            return made.select(*units, *names, *named)
        frame, found = self._with_windows(expressions, named, "select")
        checked = {item.name: item for item in found}
        changed = [name for name, item in checked.items() if item.tree != self._plain(name)]
        self._keep_unit(set(changed), "replace")
        schema = self._rows.schema
        kept = {name: Column(name, schema[name]) for name in self._unit_columns() if name in schema}
        rows = frame._rows.make({**kept, **{name: item.tree for name, item in checked.items()}}, keep=False)
        check_names(rows.schema)
        texts = {name: item.canonical for name, item in checked.items()}
        return frame._after(rows, "select", texts, made=changed)

    @no_panics
    def drop(self, *columns: Columns) -> PrivateFrame[Frame]:
        """Drop these columns, which are given by name or by selector. The unit column can't be dropped."""
        names = self._selected(columns)
        self._keep_unit(set(names), "drop")
        kept = [name for name in self._rows.schema if name not in names]
        return self._after(self._rows.keep(kept), "drop", names)

    @no_panics
    def rename(self, mapping: dict[str, str]) -> PrivateFrame[Frame]:
        """Rename columns. The unit column keeps its name."""
        names = [*mapping, *mapping.values()] if isinstance(mapping, Mapping) else [None]
        if not all(isinstance(name, str) for name in names):
            raise InvalidParameterError("rename takes a mapping from old names to new ones: rename({'km': 'miles'}).")
        self._known(mapping)
        self._keep_unit({*mapping, *mapping.values()}, "rename")
        schema = self._rows.schema
        renamed = [mapping.get(name, name) for name in schema]
        if len(set(renamed)) < len(renamed):
            raise InvalidParameterError("rename would give two columns the same name.")
        rows = self._rows.make(
            {new: Column(old, schema[old]) for old, new in zip(schema, renamed, strict=True)}, keep=False
        )
        check_names(rows.schema)
        return self._after(rows, "rename", mapping, made=[*mapping, *mapping.values()])

    @no_panics
    def drop_nulls(self, subset: Columns | None = None) -> PrivateFrame[Frame]:
        """Drop the rows that have a null in one of these columns, or in any column. It is a filter.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = dp.private(pl.DataFrame({"km": [2, None] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(visits.drop_nulls("km").count(epsilon=0.5).item(), -3)
        5000
        """
        names = self.columns if subset is None else self._selected(subset)
        return self.filter(*(pl.col(name).is_not_null() for name in names)) if names else self

    @no_panics
    def fill_null(
        self,
        value: Any = None,
        strategy: Literal["zero", "one"] | None = None,
        *,
        matches_supertype: bool = True,
    ) -> PrivateFrame[Frame]:
        """Replace nulls by a value, in the columns whose type it fits. The unit column stays as it is.

        Parameters
        ----------
        value
            A public constant, or a row-wise expression, which then fills every column. As in Polars, a number fills
            all columns of numbers, a text all columns of texts and categories, a date all dates, and so on.
        strategy
            "zero" or "one", instead of a value. The other strategies of Polars read other rows, so they are refused.
        matches_supertype
            Whether a number fills columns of all numeric types, and not only Int64 or Float64.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = dp.private(pl.DataFrame({"km": [2, None] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(visits.fill_null(4).sum("km", bounds=(0, 10), epsilon=0.5).item(), -4)
        30000
        """
        if (value is None) == (strategy is None):
            raise InvalidParameterError("fill_null takes a value or a strategy: fill_null(0).")
        if strategy is not None:
            if strategy not in ("zero", "one"):
                raise InvalidParameterError(
                    f"fill_null(strategy={strategy!r}) fills a row from other rows, so one person's rows would change "
                    "another's. Give a public value: fill_null(0)."
                )
            value = int(strategy == "one")
        kinds = _filled_types(value, matches_supertype=flag_of(matches_supertype, "matches_supertype"))
        try:
            units, filled = self._unit_columns(), value if isinstance(value, pl.Expr) else pl.lit(value)
        except TypeError:
            raise InvalidParameterError(
                f"fill_null takes a public constant or a row-wise expression, not a {type(value).__name__}."
            ) from None
        names = [
            name
            for name, dtype in self._rows.schema.items()
            if name not in units and (kinds is None or any(dtype == kind for kind in kinds))
        ]
        return self.with_columns(*(pl.col(name).fill_null(filled) for name in names)) if names else self

    @no_panics
    def cast(self, dtypes: Mapping[Any, DTypeLike] | DTypeLike, *, strict: bool = True) -> PrivateFrame[Frame]:
        """Convert columns to other types. A value that the new type can't hold becomes null.

        Parameters
        ----------
        dtypes
            A mapping from columns (names, selectors or types) to types, or one type for all columns but the unit.
        strict
            Makes no difference here, since whether a query fails must not depend on a private value.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = dp.private(pl.DataFrame({"km": ["2", "4", "?"] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(visits.cast({"km": pl.Int64}).sum("km", bounds=(0, 10), epsilon=0.5).item(), -4)
        30000
        """
        flag_of(strict, "strict")
        units = self._unit_columns()
        if not isinstance(dtypes, Mapping):
            targets = {name: dtypes for name in self.columns if name not in units}
        else:
            targets = {name: kind for given, kind in dtypes.items() for name in self._selected(given)}
        try:
            casts = {name: pl.col(name).cast(kind) for name, kind in targets.items()}
        except (TypeError, pl.exceptions.PolarsError):
            raise InvalidParameterError("cast takes types of Polars or Python: cast({'km': pl.Int64}).") from None
        checked = self._checked_columns([], casts, "cast")
        changed = [name for name, item in checked.items() if item.tree != self._plain(name)]
        return self.with_columns(*(casts[name] for name in changed)) if changed else self

    @no_panics
    def unnest(
        self, columns: Columns | None = None, *more_columns: Any, separator: str | None = None
    ) -> PrivateFrame[Frame]:
        """Put the fields of struct columns in their place, as columns of their own.

        Parameters
        ----------
        columns, *more_columns
            Struct columns: names or selectors. By default, all struct columns.
        separator
            If given, a field is named after its column and itself, with this text in between.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": [1, 2], "trip": [{"km": 3, "by": "car"}, None], "day": [1, 1]})
        >>> visits.dp.unnest("trip").columns, visits.dp.unnest("trip", separator="_").columns
        (['user', 'km', 'by', 'day'], ['user', 'trip_km', 'trip_by', 'day'])
        """
        schema = self._rows.schema
        given = [] if columns is None else [columns, *more_columns]
        names = [name for item in given for name in self._selected(item)]
        if columns is None:
            names = [name for name, dtype in schema.items() if isinstance(dtype, pl.Struct)]
        plain = [name for name in names if not isinstance(schema[name], pl.Struct)]
        if plain:
            raise InvalidParameterError(f"unnest takes struct columns, and {plain[0]} has the type {schema[plain[0]]}.")
        self._keep_unit(set(names), "replace")
        made: list[tuple[str, Expression]] = []
        for name, dtype in schema.items():
            whole, prefix = Column(name, dtype), "" if separator is None else f"{name}{separator}"
            if isinstance(dtype, pl.Struct) and name in names:
                fields = [field.name for field in dtype.fields]
                made += [(f"{prefix}{field}", apply("struct_field", whole, name=field)) for field in fields]
            else:
                made.append((name, whole))
        twice = sorted({name for name, _ in made if sum(name == other for other, _ in made) > 1})
        if twice:
            raise InvalidParameterError(
                f"unnest would give two columns the name {twice[0]}. Say separator='_', or rename one of them first."
            )
        self._keep_unit({name for name, expression in made if not isinstance(expression, Column)}, "replace")
        rows = self._rows.make(dict(made), keep=False)
        check_names(rows.schema)
        new = [name for name, expression in made if not isinstance(expression, Column)]
        return self._after(rows, "select", {name: canonical(expression) for name, expression in made}, made=new)

    def pipe(
        self,
        function: Callable[Concatenate[PrivateFrame[Frame], Given], Result],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Result:
        """Call a function with this frame as its first argument so that your own steps can be chained.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> def far(trips, least):
        ...     return trips.filter(pl.col("km") >= least)
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(trips.pipe(far, 3).count(epsilon=0.5).item(), -3)
        5000
        """
        return function(self, *args, **kwargs)

    @no_panics
    def join(
        self,
        other: pl.DataFrame | pl.LazyFrame | PrivateFrame[Any],
        on: str | Sequence[str] | None = None,
        how: JoinHow = "inner",
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        suffix: str = "_right",
        public: bool = False,
    ) -> PrivateFrame[Frame]:
        """Join a private frame on the unit, or a public frame by equal keys.

        The keys of a public frame must be unique, so no private row is multiplied.

        Parameters
        ----------
        other
            The other frame. It is private if it was made so, with `.dp` or `dp.private`. A public LazyFrame is
            collected once, at this call.
        on
            The names of the keys, if they are the same in both frames.
        how
            "inner" and "semi" drop rows without a match, "anti" drops rows with a match, and "left" keeps all rows.
        left_on, right_on
            The names of the keys in the private and in the public frame, instead of `on`. The result has those of the
            private frame, as in Polars.
        suffix
            The text that is added to the name of a column of the other frame that this frame has too.
        public
            Says that the other frame is public. A public frame that is joined on the unit, or on a column that is
            computed from the unit, needs `public=True`, because its rows look as if they were about the same people.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": [1, 2], "city": ["a", "b"]})
        >>> places = pl.LazyFrame({"name": ["a", "b"], "land": ["x", "y"]})
        >>> visits.dp.join(places, left_on="city", right_on="name").columns
        ['user', 'city', 'land']
        """
        if how not in ("inner", "left", "semi", "anti"):
            raise InvalidParameterError(f"A private frame joins by 'inner', 'left', 'semi' or 'anti', not {how!r}.")
        mine, theirs = _join_keys(on, left_on, right_on)
        self._known(mine)
        said_public = flag_of(public, "public")
        if isinstance(other, PrivateFrame) and not said_public:
            return self._join_private(other, mine, theirs, how, suffix)
        refuse_private(other, "join(..., public=True)" if said_public else "join")
        if not isinstance(other, pl.DataFrame | pl.LazyFrame):
            raise InvalidParameterError(f"join takes a public DataFrame or LazyFrame, got {type(other).__name__}.")
        return self._join_public(other.lazy().collect(), mine, theirs, how, suffix, said_public=said_public)

    def _join_public(
        self, public: pl.DataFrame, mine: list[str], theirs: list[str], how: JoinHow, suffix: str, *, said_public: bool
    ) -> PrivateFrame[Frame]:
        """Look up public rows by equal keys."""
        absent = [name for name in theirs if name not in public.columns]
        if absent:
            raise InvalidParameterError(
                f"The public frame has no column {', '.join(absent)}; it has {', '.join(public.columns)}. If the key "
                "has another name there, say left_on= and right_on=.",
                code="unknown-column",
            )
        added = {n: n if n not in self._rows.schema else n + suffix for n in public.columns if n not in theirs}
        if how in ("semi", "anti"):
            added = {}
        taken = sorted(set(added.values()) & set(self._rows.schema))
        if taken or len(set(added.values())) < len(added):
            raise InvalidParameterError(
                f"The join would add {', '.join(taken) or 'a column twice'}, but the frame has such a column already. "
                "Choose another suffix=, or rename the column of the public frame."
            )
        self._keep_unit(set(added.values()), "replace")
        public = public.with_columns(pl.col(pl.Categorical).cast(pl.String))
        schema = self._rows.schema
        texts = {name: apply("cast", Column(name, schema[name]), to=pl.String())
                 for name in mine if schema[name] == pl.Categorical}  # fmt: skip
        rows = self._rows.make(texts) if texts else self._rows
        pairs = list(zip(mine, theirs, strict=True))
        rows = rows.lookup(public, on=pairs, how=how, columns=added, said_public=said_public)
        check_lookups(rows, self._unit_columns())  # a question checks it again, for the session that pays
        check_names(rows.schema)
        # Public rows are part of the question, so their digest may be stored with it.
        step = {"on": mine if mine == theirs else pairs, "how": how, "suffix": suffix, "public": public_digest(public)}
        return self._after(rows, "join", step, made=added.values())

    # ------------------------------------------------------------------ steps within a unit

    def group_by(
        self, *keys: ExpressionLike | Iterable[ExpressionLike], **named: ExpressionLike
    ) -> PrivateGroups[Frame]:
        """Group the frame, for several private aggregates at once, or for steps within a unit.

        `agg` with aggregates of dp releases an answer for each group. With the unit among the keys, `agg` with
        expressions of Polars gives a private frame again: one row for each unit and each value of the other keys.

        Parameters
        ----------
        *keys
            Names or row-wise expressions, or lists of them.
        **named
            Row-wise expressions with the names of their keys. The keys of an answer are always sorted.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> orders = pl.DataFrame({"user": [i % 3_000 for i in range(9_000)], "city": ["a", "b", "c"] * 3_000})
        >>> private = dp.private(orders, dp.Session(epsilon=1.0, unit="user", max_rows_per_group=5))
        >>> private.group_by("city").agg(n=dp.count(), keys=["a", "b", "c"], epsilon=0.2).columns
        ['city', 'n']
        >>> buyers = private.group_by("user").agg(orders=pl.len())  # one row per user
        >>> round(buyers.filter(pl.col("orders") >= 3).count(epsilon=0.2).item(), -3)
        3000
        """
        return PrivateGroups(self, super().group_by(*keys, **named).keys)

    @no_panics
    def unique(self, subset: Columns | None = None) -> PrivateFrame[Frame]:
        """Keep one row of those that have the same values in these columns, or in all columns.

        The unit must be among the columns. Which row is kept depends on the values of the rows alone: it is the
        smallest one, compared column by column.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": [i % 3_000 for i in range(9_000)], "city": "a"})
        >>> private = dp.private(visits, dp.Session(epsilon=1.0, unit="user"))
        >>> round(private.unique(["user", "city"]).count("city", keys=["a"], epsilon=0.5)["count"].item(), -3)
        3000
        """
        names = self.columns if subset is None else self._selected(subset)
        return self._after_unit_step(KeepFirst(tuple(names), (), 1), "unique")

    @no_panics
    def explode(self, column: str, *, max_rows: int = 100) -> PrivateFrame[Frame]:
        """Make a row of each element of a list, for the first `max_rows` elements of each list.

        The other columns are repeated. A list that is empty or null gives no row, other than in Polars. What one unit
        can change: a row of a unit becomes rows of that unit, and how many they are is capped by the question like all
        rows of a unit.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> posts = pl.DataFrame({"user": range(3_000), "tags": [["red", "blue"], [], ["red"]] * 1_000})
        >>> private = dp.private(posts, dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1))
        >>> found = private.explode("tags", max_rows=5).count("tags", keys=["blue", "red"], epsilon=0.5)
        >>> [round(n, -2) for n in found["count"]]
        [1000, 2000]
        """
        most = count_of(max_rows, "max_rows")
        if most > _MOST_ELEMENTS:
            raise InvalidParameterError(f"explode makes at most {_MOST_ELEMENTS:,} rows of one row: max_rows=100.")
        self._known([column])
        self._keep_unit({column}, "explode")
        step = UnnestRows(column, f"{OWN}element", most)
        rows = self._unit_step(step, self._rows)
        names = {name: step.name if name == column else name for name in self._rows.schema}
        elements = rows.make({name: Column(own, rows.schema[own]) for name, own in names.items()}, keep=False)
        return self._after(elements, "explode", described_step(step), made=[column])

    @no_panics
    def rolling(
        self,
        index_column: str,
        *,
        period: str | timedelta,
        offset: str | timedelta | None = None,
        closed: Literal["left", "right", "both", "none"] = "right",
        group_by: Columns,
    ) -> PrivateRolling[Frame]:
        """Look at the rows of a unit around each row, for example those of the seven days before it.

        Parameters
        ----------
        index_column
            A Date, a Datetime, or whole numbers.
        period
            The length of each window: "7d" for dates, "12h" for times, "3i" for whole numbers.
        offset
            Where each window starts, counted from the row. The default is one period before.
        closed
            Which ends of a window belong to it.
        group_by
            The columns by which rows are combined. The unit must be among them.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> from datetime import date, timedelta
        >>> days = [date(2024, 1, 1) + timedelta(days=4 * (i % 3)) for i in range(9_000)]
        >>> orders = pl.DataFrame({"user": [i // 3 for i in range(9_000)], "day": days})
        >>> private = dp.private(orders, dp.Session(epsilon=1.0, unit="user", max_rows_per_group=3))
        >>> week = private.rolling("day", period="7d", group_by="user").agg(orders=pl.len())
        >>> round(week.filter(pl.col("orders") == 2).count(epsilon=0.5).item(), -3)
        6000
        """
        names = self._selected(group_by)
        self._known([index_column])
        return PrivateRolling(self, names, index_column, {"period": period, "offset": offset, "closed": closed})

    @no_panics
    def arms(self, parts: int = 2, *, salt: str = "", name: str = "arm") -> PrivateFrame[Frame]:
        """Add the arm of an experiment that each unit belongs to: a number from 0 to `parts` - 1, made by md5.

        A unit has one arm, so counts by it need no cap. The same unit has the same arm everywhere, in SQL as
        `md5_number_lower(concat('salt', unit)) % parts`.

        Parameters
        ----------
        parts
            How many arms there are.
        salt
            A text that stands before the unit, so that the arms of two experiments have nothing to do with each other.
        name
            The name of the new column.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> orders = pl.DataFrame({"user": [i // 3 for i in range(9_000)]})
        >>> private = dp.private(orders, dp.Session(epsilon=1.0, unit="user"))
        >>> users = private.arms(2, salt="free shipping").count_units("arm", keys=[0, 1], epsilon=0.5)
        >>> [round(n, -2) for n in users["count_units"]]
        [1500, 1500]
        """
        unit = self._known_unit("arms")
        if not isinstance(salt, str) or not isinstance(name, str) or name in unit:
            raise InvalidParameterError("salt= and name= are texts, and the new column can't be the unit.")
        if not is_unicode(salt):
            raise InvalidParameterError("salt= must be valid Unicode, but it has half of a surrogate pair.")
        schema = self._rows.schema
        texts: list[Expression] = [Constant(salt, pl.String())] if salt else []
        texts += [Column(column, schema[column]) for column in unit]
        arm = apply("md5_share", apply("concat", *texts, separator="" if len(unit) == 1 else "|"), parts=parts)
        rows = self._rows.make({name: arm})
        check_names(rows.schema)
        return self._after(rows, "with_columns", _texts({name: arm}), made=[name])

    def _itself(self) -> PrivateFrame[Frame]:
        return self

    def _grouped_rows(self, keys: Sequence[ExpressionLike], expressions: Sequence[Any], named: dict[str, Any]) -> Any:
        """Return one row for each unit and each value of the other keys, with functions of their rows."""
        names, frame = self._with_keys(keys)
        reading = UnitExpressions(frame._rows.schema, "agg", names)
        listed = [expression for item in expressions for expression in reading.read(item)]
        listed += [replace(expression, name=name) for name, item in named.items() for expression in reading.read(item)]
        taken = [*names, *(expression.name for expression in listed)]
        if len(set(taken)) < len(taken):
            raise InvalidParameterError("group_by(...).agg(...) would give two columns the same name. Rename one.")
        rows = frame._rows.make(reading.arguments) if reading.arguments else frame._rows
        step = GroupRows(tuple(names), tuple(reading.values[tuple(names)].items()))
        rows = self._unit_step(step, rows)
        schema = rows.schema
        kept = {name: Column(name, schema[name]) for name in names}
        rows = rows.make({**kept, **{expression.name: expression.tree for expression in listed}}, keep=False)
        check_names(rows.schema)
        detail = [
            _texts(reading.arguments),
            described_step(step),
            {expression.name: expression.canonical for expression in listed},
        ]
        return frame._after(rows, "group_by within units", detail, made=[expression.name for expression in listed])

    def _first_rows(
        self, keys: Sequence[ExpressionLike], rows: int, order_by: Any, *, descending: bool | Sequence[bool]
    ) -> PrivateFrame[Frame]:
        names, frame = self._with_keys(keys)
        order = frame._selected(order_by)
        down = [flag_of(flag, "descending") for flag in ([descending] if isinstance(descending, bool) else descending)]
        if len(down) not in (1, len(order)):
            raise InvalidParameterError("descending= takes one flag, or one for each column of order_by=.")
        down = down * len(order) if len(down) == 1 else down
        sort = tuple(SortColumn(name, flag, nulls_last=True) for name, flag in zip(order, down, strict=True))
        step = KeepFirst(tuple(names), sort, count_of(rows, "the number of rows"))
        return frame._after_unit_step(step, "head within units")

    def _with_keys(self, keys: Sequence[ExpressionLike]) -> tuple[list[str], PrivateFrame[Frame]]:
        """Return the names of grouping keys, and the frame with a column for each key that is an expression."""
        checked = [expression for key in keys for expression in self._check_all(key, "group_by")]
        made: dict[str, Expression] = {}
        for expression in checked:
            if expression.tree != self._plain(expression.name):
                made[expression.name] = expression.tree
        self._keep_unit(set(made), "replace")
        names = [expression.name for expression in checked]
        if len(set(names)) < len(names):
            raise InvalidParameterError("group_by has two keys with the same name. Give one of them an alias.")
        if not made:
            return names, self
        texts = {name: canonical(tree) for name, tree in made.items()}
        return names, self._after(self._rows.make(made), "with_columns", texts, made=made)

    def _with_windows(
        self, expressions: Sequence[Any], named: dict[str, Any], what: str
    ) -> tuple[PrivateFrame[Frame], list[CheckedExpression]]:
        """Return checked expressions, and the frame with the columns of windows within a unit that they read."""
        reading = UnitExpressions(self._rows.schema, what)
        listed = [item for given in expressions for item in (given if isinstance(given, list | tuple) else [given])]
        checked = [expression for item in listed for expression in reading.read(item)]
        for name, item in named.items():
            found = reading.read(item)
            if len(found) != 1:
                check_expression(item, schema=self._schema(), what=what)  # says that one expression is needed
            checked += [replace(expression, name=name) for expression in found]
        if not reading.values:
            return self, checked
        rows = self._rows.make(reading.arguments) if reading.arguments else self._rows
        steps = [AddWindows(partition, tuple(values.items())) for partition, values in reading.values.items()]
        for step in steps:
            rows = self._unit_step(step, rows)
        detail = [_texts(reading.arguments), [described_step(step) for step in steps]]
        return self._after(rows, "over", detail), checked

    def _join_private(
        self, other: PrivateFrame[Any], mine: list[str], theirs: list[str], how: JoinHow, suffix: str
    ) -> PrivateFrame[Frame]:
        """Join two private frames on their units, and perhaps on more columns."""
        if not set(self._unit_columns()) <= set(mine):
            refuse_private(other, f"A join by {', '.join(mine)}")
        other._known(theirs)
        taken = set(self._rows.schema)
        added = {name: name if name not in taken else name + suffix for name in other.columns if name not in theirs}
        added = {} if how in ("semi", "anti") else added
        clash = sorted(set(added.values()) & taken)
        if clash or len(set(added.values())) < len(added):
            raise InvalidParameterError(
                f"The join would add {', '.join(clash) or 'a column twice'}, but the frame has such a column already. "
                "Choose another suffix=, or rename the column of the other frame."
            )
        self._keep_unit(set(added.values()), "replace")
        pairs = tuple(zip(mine, theirs, strict=True))
        step = JoinRows(pairs, how, tuple(added.items()))
        rows = self._unit_step(step, self._rows, other._rows)
        check_names(rows.schema)
        detail = [described_step(step), [json.loads(text) for text in other._steps]]
        after = self._after(rows, "join within units", detail, made=added.values())
        return after._beside(other, dict(pairs))

    def _beside(self, other: PrivateFrame[Any], pairs: dict[str, str] | None) -> PrivateFrame[Frame]:
        """Remember another private frame whose rows this one uses. `pairs` are the keys of a join with it."""
        self._partners = (*self._partners, (other, pairs))
        self._unchecked = self._unchecked or other._unchecked
        return self

    def _after_unit_step(self, step: UnitStep, kind: str) -> PrivateFrame[Frame]:
        return self._after(self._unit_step(step, self._rows), kind, described_step(step))

    def _unit_step(self, step: UnitStep, *inputs: PrivateRows) -> PrivateRows:
        rows = unit_rows(step, *inputs)
        session = self._session or current_session()
        if session is not None:  # otherwise the question will find out
            with_units(rows, self._unit_of(session).columns)
        return rows

    @property
    def preview(self) -> Preview:
        """The same methods, which return their plan: what a question would do and cost. Nothing is spent."""
        return Preview(self._view)

    # ------------------------------------------------------------------ questions

    @no_panics
    def _resolve(self, options: AnyOptions, question: Callable[[View], Question[BasePlan]]) -> Any:
        """Answer a question: charge its price, read the rows and release."""
        session = options.get("session") or self._session or current_session()
        if not isinstance(session, Session):
            return planned(question, self._view(options)).answer(self._source())
        kind = question.__name__.strip("<>")
        table = ", ".join(rules.table for _, rules in self._rules) or self._name or "a frame"
        steps = f"{asked_steps(self._steps)}: " if self._steps and session.analyst_name is not None else ""
        with session._asking(f"{kind} of {table}, refused while planning", steps=steps):
            return planned(question, self._view(options, session)).answer(self._source())

    def _source(self) -> Origin:
        """Return the frame as its owner named it, by which stored releases are found."""
        others = tuple(other._source() for other, _ in self._partners)
        return Origin(self._origin, self._name, self._data_version, others, self._named)

    @no_panics
    def _view(
        self,
        options: AnyOptions,
        session: Session | None = None,
        spend: Mapping[str, Number] | None = None,
        if_rows: int | None = None,
    ) -> View:
        """Return what a question sees of this frame, or raise an error that says why it can't be asked.

        `session` pays, if it is known already. `spend` replaces the spend of the call, and `if_rows` stands in for a
        size of groups that it doesn't name.
        """
        session = session or self._paying(options)
        table = self._unit_of(session)
        unit = table.columns
        missing = [name for name in unit if name not in self._schema()]
        if missing:
            raise InvalidParameterError(
                f"The session protects units by {', '.join(missing)} (unit=), which this frame doesn't have; it has "
                f"{', '.join(self._schema())}. If the column has another name here, say dp.private(frame, "
                f"unit={{{missing[0]!r}: 'the column here'}}). If another frame knows it, as orders know the customer "
                "of their line items, join that column to this frame before .dp."
            )
        self._own_unit(unit)
        self._check_partners(session, table)
        rows = with_units(self._rows, unit)
        # After an unchecked step, nobody knows what a column of the source became, and a step within a unit changes
        # how many rows a unit has.
        sources = None if self._unchecked or has_unit_steps(rows) else self._sources
        return View(
            rows,
            self._steps,
            self._unchecked,
            unit,
            session,
            table,
            spend,
            sources,
            if_rows,
            unit_functions=tuple(sorted(constant_columns(rows, unit))),
            unique=unique_columns(rows),
            rules=self._all_rules(session),
        )

    def _all_rules(self, session: Session) -> Rules:
        """Return the rules of all policies behind the rows, or refuse a session that is not the policy's."""
        rules = (*self._rules, *(rule for other, _ in self._partners for rule in other._all_rules(session)))
        if any(rule.session is not session for _, rule in rules):
            raise InvalidParameterError(
                "The policy of this table says which session pays for its questions, so they take no other session.",
                code="not-in-policy",
            )
        return rules

    def _check_partners(self, session: Session, table: TableUnit) -> None:
        """Refuse rows of another private frame whose unit is not the same, or for which another session pays."""
        for other, pairs in self._partners:
            if other._session is not None and other._session not in (session, self._session):
                raise InvalidParameterError(
                    "Two private frames are combined, and each of them has a session of its own. One session would pay "
                    "for the rows of both, and the budget of the other would not know. Make both frames private with "
                    "the session that pays: dp.private(frame, session)."
                )
            theirs = other._unit_of(session)
            if pairs is not None and not set(table.columns) <= pairs.keys():  # `join` knew no session
                refuse_private(other, f"A join by {', '.join(pairs)}")
            wanted = tuple(name if pairs is None else pairs[name] for name in table.columns)
            same = theirs.columns == wanted and {table.relation, theirs.relation} <= {"agreed", "renamed"}
            if not same:
                raise InvalidParameterError(
                    f"Two private frames are combined by {', '.join(wanted)}, but the unit of the second one is "
                    f"{', '.join(theirs.columns) or 'a row'}. Private frames are combined on the "
                    "session's unit, in both of them. If the column has another name in one of them, say "
                    f"dp.private(frame, session, unit={{{table.columns[0]!r}: 'its name there'}}).",
                    code="unit-step-without-unit",
                )
            other._own_unit(theirs.columns)
            other._check_partners(session, theirs)

    def _sources(self) -> tuple[bytes, ...]:
        return (
            (self._source().identity(),)
            if self._named
            else (source_identity(self._origin, self._name, self._data_version),)
        )

    def _paying(self, options: AnyOptions) -> Session:
        session = options.get("session") or self._session or current_session()
        if session is None:
            raise InvalidParameterError(
                "No session pays for this question. Ask inside `with session:`, call dp.set_session(session) once, or "
                "pass session=; a session is dp.Session(epsilon=1.0, unit='user_id')."
            )
        if not isinstance(session, Session):
            raise InvalidParameterError(f"session= must be a dp.Session, not a {type(session).__name__}.")
        return session

    def _unit_of(self, session: Session | None) -> TableUnit:
        """Return who is protected in this table: the session's unit, or this table's own unit."""
        agreed = session.terms.unit if session is not None else ROW
        weaker = self._weaker_unit or session is None
        return table_unit(agreed, self._unit, weaker=weaker, table_columns=self._table_columns)

    def _unit_columns(self) -> tuple[str, ...]:
        """Return the unit columns that are known before a question: those of the current session."""
        return self._unit_of(self._session or current_session()).columns

    def _own_unit(self, unit: tuple[str, ...]) -> None:
        """Refuse a unit column that a step made. Whichever session pays, units must come from the original frame."""
        made = self._made & set(unit)
        if made:
            raise InvalidParameterError(
                f"{', '.join(sorted(made))} says who is protected, but a step of this private frame made it. "
                "Prepare it before .dp."
            )

    # ------------------------------------------------------------------ checks

    def _schema(self) -> pl.Schema:
        return self._rows.schema

    def _check_all(self, expression: Any, what: str) -> tuple[CheckedExpression, ...]:
        """Return the checked expressions that an expression with selectors expands to."""
        return check_expressions(expression, schema=self._schema(), what=what)

    def _checked_columns(
        self, expressions: Sequence[Any], named: dict[str, Any], what: str
    ) -> dict[str, CheckedExpression]:
        checked = {}
        for given in expressions:
            for item in given if isinstance(given, list | tuple) else [given]:
                checked.update({expression.name: expression for expression in self._check_all(item, what)})
        for name, item in named.items():
            checked[name] = check_expression(item, schema=self._schema(), what=what)
        return checked

    def _with_unchecked(self, expressions: Sequence[Any], named: dict[str, Any]) -> PrivateFrame[Frame]:
        """Add columns that nobody checked: the user vouches that they are row-wise and never fail."""
        rows = self._in_polars().with_columns(*expressions, **named)
        before, after = self._schema(), rows.collect_schema()
        listed = [item for given in expressions for item in (given if isinstance(given, list | tuple) else [given])]
        touched = {
            item if isinstance(item, str) else item.meta.output_name(raise_if_undetermined=False) for item in listed
        }
        made = {name for name in (*touched, *named) if name is not None} | (set(after) - set(before))
        self._keep_unit(made, "replace")
        return self._after_unchecked(rows, "with_columns", made)

    def _in_polars(self) -> pl.LazyFrame:
        """Return the rows as a plan of Polars, for steps that nobody checks."""
        if self._rules:
            raise InvalidParameterError(
                "unchecked=True skips the check of a step, which the policy of this table does not allow. Use checked "
                "expressions, or prepare the column in the table.",
                code="not-in-policy",
            )
        if _is_spark(self._rows):
            raise InvalidParameterError(
                "unchecked=True hands an expression to Polars as it is, and the rows of this frame are in Spark. "
                "Compute the column in Spark before dp.private."
            )
        if has_unit_steps(self._rows):
            raise InvalidParameterError(
                "unchecked=True can't follow a step within a unit, because it would no longer be known whose rows were "
                "combined. Put the unchecked step first."
            )
        return lazy_rows(self._rows)

    def _known(self, columns: Any) -> None:
        missing = [name for name in columns if name not in self._schema()]
        if missing:
            raise InvalidParameterError(
                f"The frame has no column {', '.join(missing)}; it has {', '.join(self._schema())}.",
                code="unknown-column",
            )

    def _selected(self, given: Any) -> list[str]:
        """Return the columns that names, selectors, types or a list of them stand for."""
        if isinstance(given, str):
            self._known([given])
            return [given]
        if isinstance(given, pl.Expr):
            checked = self._check_all(given, "the selection of columns")
            if any(expression.tree != self._plain(expression.name) for expression in checked):
                raise InvalidParameterError("Columns are given by name or by selector, not as expressions.")
            return [expression.name for expression in checked]
        if isinstance(given, pl.DataType) or (isinstance(given, type) and issubclass(given, pl.DataType)):
            return [name for name, dtype in self._rows.schema.items() if dtype == given]
        if not isinstance(given, Iterable):
            raise InvalidParameterError("Columns are given by name or by selector, or as a list of them.")
        return list(dict.fromkeys(name for item in given for name in self._selected(item)))

    def _keep_unit(self, touched: set[str], what: str) -> None:
        hit = touched & set(self._unit_columns())
        if hit:
            raise InvalidParameterError(
                f"{', '.join(sorted(hit))} says who is protected; a private frame can't {what} it."
            )

    def _plain(self, name: str) -> Column | None:
        dtype = self._rows.schema.get(name)
        return None if dtype is None else Column(name, dtype)

    def _after(self, rows: PrivateRows, kind: str, detail: Any, *, made: Iterable[str] = ()) -> PrivateFrame[Frame]:
        made = frozenset(made)
        _check_reserved(made)
        after: PrivateFrame[Frame] = PrivateFrame.__new__(PrivateFrame)
        after.__dict__.update(self.__dict__)
        after._rows = rows
        after._steps = (*self._steps, json.dumps([kind, detail], sort_keys=True))
        after._made = self._made.union(made)
        return after

    def _after_unchecked(self, rows: pl.LazyFrame, kind: str, made: Iterable[str] = ()) -> PrivateFrame[Frame]:
        """Return the frame after a step that nobody checked. The step has a random name, since it may have no text."""
        after = self._after(polars_rows(rows), kind, secrets.token_hex(16), made=made)
        after._unchecked = True
        return after

    def __repr__(self) -> str:
        return f"<dp.PrivateFrame with {escaped(', '.join(self._rows.schema))}>"

    def __reduce__(self) -> NoReturn:
        raise InvalidParameterError(
            "A private frame can't be copied or pickled: the copy would hold the rows. Pass on what was released, or "
            "make the frame private where it is asked."
        )


class PrivateGroups(Grouped[Frame]):
    """A private frame with its grouping keys: for private aggregates, and for steps within a unit."""

    def __init__(self, frame: PrivateFrame[Frame], keys: list[ExpressionLike]) -> None:
        super().__init__(frame, keys)
        self._frame = frame

    @overload
    def agg(self, *asked: pl.Expr | Iterable[pl.Expr], **words: pl.Expr) -> PrivateFrame[Frame]: ...

    @overload
    def agg(
        self, *asked: AggregateCall | Iterable[AggregateCall],
        epsilon: Number | None = ..., share: Number | None = ..., rho: Number | None = ...,
        within: Number | None = ..., delta: Number | None = ..., mechanism: MechanismChoice | None = ...,
        keys: PublicKeys | None = ..., max_groups: Cap | None = ..., max_rows_per_group: Cap | None = ...,
        max_rows: Cap | None = ..., min_units: int = ..., confidence: float | None = ..., if_rows: int | None = ...,
        nonnegative: bool = ..., rollup: bool = ..., cut: bool = ..., fresh: bool = ..., label: str | None = ...,
        session: Session | None = ...,
        **named: AggregateCall,
    ) -> Frame: ...  # fmt: skip

    @overload
    def agg(self, *asked: AggregateCall | Iterable[AggregateCall], **words: Any) -> Frame: ...

    @no_panics
    def agg(self, *asked: Any, **words: Any) -> Any:
        """Answer private aggregates, or combine the rows of each unit.

        With aggregates of dp (`dp.count()`, `dp.sum(...)`) this releases an answer for each group: see `Grouped.agg`.
        With expressions of Polars and the unit among the keys it returns a private frame with one row for each unit
        and each value of the other keys. Rows are counted (`pl.len()`), columns summed up and so on; `first` and
        `last` need an order, `pl.col("item").sort_by("day").first()`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> orders = pl.DataFrame({"user": [i % 3_000 for i in range(9_000)], "paid": [10.0, 20.0, 60.0] * 3_000})
        >>> private = dp.private(orders, dp.Session(epsilon=1.0, unit="user"))
        >>> totals = private.group_by("user").agg(total=pl.col("paid").sum(), dearest=pl.col("paid").max())
        >>> totals.columns
        ['user', 'total', 'dearest']
        >>> round(totals.mean("total", bounds=(0, 200), epsilon=0.5).item(), -1)
        90.0
        """
        unit = self._frame._unit_columns()
        names = {key if isinstance(key, str) else key.meta.output_name() for key in self._keys}
        found = unit_wise_expressions(asked, words) if unit and set(unit) <= names else None
        if found is None:
            return super().agg(*asked, **words)
        return self._frame._grouped_rows(self._keys, *found)

    @no_panics
    def head(self, n: int = 5, *, order_by: Columns, descending: bool | Sequence[bool] = False) -> PrivateFrame[Frame]:
        """Keep the first rows of each group, in an order. The unit must be among the keys.

        Rows that tie are sorted by all other columns, so the choice never depends on how rows are stored. Nulls come
        last.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> orders = pl.DataFrame({"user": [i % 3_000 for i in range(9_000)], "day": range(9_000)})
        >>> private = dp.private(orders, dp.Session(epsilon=1.0, unit="user"))
        >>> first = private.group_by("user").head(1, order_by="day")
        >>> round(first.count(epsilon=0.5).item(), -3)
        3000
        """
        return self._frame._first_rows(self._keys, n, order_by, descending=descending)

    @no_panics
    def tail(self, n: int = 5, *, order_by: Columns, descending: bool | Sequence[bool] = False) -> PrivateFrame[Frame]:
        """Keep the last rows of each group, in an order: `head` with the order reversed."""
        flags = [descending] if isinstance(descending, bool) else list(descending)
        return self._frame._first_rows(self._keys, n, order_by, descending=[not flag for flag in flags])


class PrivateRolling(Generic[Frame]):
    """A private frame with a window around each row, in which `agg` combines the rows of a unit."""

    def __init__(self, frame: PrivateFrame[Frame], names: list[str], index: str, window: dict[str, Any]) -> None:
        self._frame, self._names, self._index, self._window = frame, names, index, window

    @no_panics
    def agg(self, *expressions: pl.Expr | Iterable[pl.Expr], **named: pl.Expr) -> PrivateFrame[Frame]:
        """Return a row for each row, with its group, its index and functions of the rows in its window.

        The functions are `pl.len()`, `sum`, `mean`, `min`, `max`, `count`, `first` and `last`.
        """
        listed: list[Any] = []
        for given in expressions:
            listed += [given] if isinstance(given, pl.Expr) or not isinstance(given, Iterable) else [*given]
        if not all(isinstance(given, pl.Expr) for given in (*listed, *named.values())):
            raise InvalidParameterError("rolling(...).agg takes expressions of Polars, such as pl.len().")
        listed += [expression.alias(name) for name, expression in named.items()]
        rolled = [expression.rolling(self._index, **self._window).over(self._names) for expression in listed]
        return self._frame.select(*dict.fromkeys([*self._names, self._index]), *rolled)


def concat(frames: Iterable[PrivateFrame[Frame]]) -> PrivateFrame[Frame]:
    """Concatenate the rows of private frames, which need the same columns and the same unit.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=2)
    >>> one, two = (dp.private(pl.DataFrame({"user": range(5_000)}), session) for _ in range(2))
    >>> round(dp.concat([one, two]).count(epsilon=0.5).item(), -3)
    10000
    """
    listed = list(frames)
    if not listed or not all(isinstance(frame, PrivateFrame) for frame in listed):
        raise InvalidParameterError("dp.concat takes a list of private frames; pl.concat is for public ones.")
    first, *others = listed
    if any(set(other.columns) != set(first.columns) for other in others):
        raise InvalidParameterError(
            "dp.concat takes private frames with the same columns and types. Select and rename columns first."
        )
    step = StackRows()
    rows = first._unit_step(step, first._rows, *(other._rows.keep(first.columns) for other in others))
    steps = [[json.loads(text) for text in other._steps] for other in others]
    after = first._after(rows, "concat", [described_step(step), steps])
    for other in others:
        after = after._beside(other, None)
    return after


def _check_reserved(names: Iterable[str]) -> None:
    """Refuse names of a user's columns that engines use for their own, so that no step finds both."""
    if any(name.startswith(OWN) for name in names):
        raise InvalidParameterError(
            "Column names that begin with a null character are reserved for dp_polars; rename yours."
        )


def _is_spark(rows: PrivateRows) -> bool:
    return any(isinstance(source, SparkSource) for source in first_sources(rows))


def _texts(trees: Mapping[str, Expression]) -> dict[str, str]:
    return {name: canonical(tree) for name, tree in trees.items()}


def _join_keys(on: Any, left_on: Any, right_on: Any) -> tuple[list[str], list[str]]:
    """Return the names of a join's keys in the private and in the public frame."""
    if on is not None and (left_on is not None or right_on is not None):
        raise InvalidParameterError("A join takes on=, or left_on= and right_on=, not both.")
    if on is None and (left_on is None or right_on is None):
        raise InvalidParameterError("A join needs keys: on=, or left_on= and right_on= if they have different names.")
    given = (on, on) if on is not None else (left_on, right_on)
    mine, theirs = (list[Any](side if isinstance(side, list | tuple) else [side]) for side in given)
    if not mine or not all(isinstance(name, str) for name in (*mine, *theirs)):
        raise InvalidParameterError(
            "The keys of a join are names of columns. Compute a key first: with_columns(key=...).join(..., on='key')."
        )
    if len(mine) != len(theirs):
        raise InvalidParameterError(f"left_on= has {len(mine)} keys and right_on= has {len(theirs)}.")
    return mine, theirs


_MOST_ELEMENTS = 10_000  # rows that one row may become

_NUMBERS = (
    pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32,
    pl.Float64, pl.Decimal,
)  # fmt: skip


def _filled_types(value: Any, *, matches_supertype: bool) -> tuple[type[pl.DataType], ...] | None:
    """Return the types of the columns that `fill_null` fills with a value, as in Polars; None stands for all."""
    if isinstance(value, bool):
        return (pl.Boolean,)
    if isinstance(value, int | float):
        return _NUMBERS if matches_supertype else (pl.Int64,) if isinstance(value, int) else (pl.Float64,)
    if isinstance(value, str):
        return (pl.String, pl.Categorical)
    kinds = ((datetime, pl.Datetime), (timedelta, pl.Duration), (date, pl.Date), (time, pl.Time))
    return next(((kind,) for python, kind in kinds if isinstance(value, python)), None)


@overload
def private(
    frame: Frame,
    session: Session | None = None,
    unit: UnitWords = None,
    name: str | None = None,
    data_version: str | None = None,
    weaker_unit: bool = False,
) -> PrivateFrame[Frame]: ...


@overload
def private(
    frame: SparkFrame,
    session: Session | None = None,
    unit: UnitWords = None,
    name: str | None = None,
    data_version: str | None = None,
    weaker_unit: bool = False,
) -> PrivateFrame[pl.DataFrame]: ...


def private(
    frame: Any,
    session: Session | None = None,
    unit: UnitWords = None,
    name: str | None = None,
    data_version: str | None = None,
    weaker_unit: bool = False,
) -> PrivateFrame[Any]:
    """Make a frame private. This is `df.dp` with options, in a form that editors and type checkers understand.

    Parameters
    ----------
    frame
        A DataFrame or LazyFrame of Polars, or a DataFrame of Spark.
    session
        The session that pays. The default is the current one.
    unit
        The unit of this table, if it differs from the session's. Use a mapping if the columns have other names here,
        `{"user_id": "customer_id"}`, or some of the session's columns for a coarser unit, which doubles the noise.
    name, data_version
        If both are given, releases are found again by them in every process, until the version changes.
    weaker_unit
        Allows any other `unit`, which may protect less than the session promises. The owner of the data vouches for
        this, and the plan and the ledger repeat it.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = dp.private(pl.DataFrame({"user": [1, 2]}), session=dp.Session(epsilon=1.0, unit="user"))
    >>> visits.count_units(epsilon=0.5).columns
    ['count_units']
    """
    return PrivateFrame(
        frame,
        session=session,
        unit=unit,
        name=name,
        data_version=data_version,
        weaker_unit=flag_of(weaker_unit, "weaker_unit"),
    )


def register_namespace() -> None:
    """Register the namespace `dp` for DataFrame and LazyFrame."""
    for kind, register in (
        (pl.DataFrame, pl.api.register_dataframe_namespace),
        (pl.LazyFrame, pl.api.register_lazyframe_namespace),
    ):
        register("dp")(PrivateFrame)
        setattr(kind, "dp", _Namespace())  # noqa: B010 - an attribute of a class of Polars


class _Namespace:
    """Make a new private frame whenever `.dp` is read.

    Polars would keep the first one with the frame. After a change in place (`df.insert_column(...)`) it would still ask
    the old rows.
    """

    def __get__(self, frame: Frame | None, kind: type[Frame]) -> PrivateFrame[Frame] | type[PrivateFrame[Frame]]:
        return PrivateFrame if frame is None else PrivateFrame(frame)

    def __set__(self, frame: Frame, value: object) -> NoReturn:
        raise AttributeError("dp")
