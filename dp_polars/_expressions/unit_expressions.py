"""Polars expressions with functions of the rows of one unit: `pl.col("x").sum()` in a group, `.over("user")` elsewhere.

Each such function becomes a column that a unit-wise step computes, and its arguments become columns that are made
before that step. What is left is a row-wise expression over these columns, which is checked like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dp_polars._expressions.check import CheckedExpression, check_tree
from dp_polars._expressions.from_polars import ReadNode, Tree, named, parse, read_node
from dp_polars._expressions.messages import UNKNOWN, Reason, Refused, spoken
from dp_polars._expressions.operations import apply
from dp_polars._expressions.tree import Column, Constant, Expression
from dp_polars._expressions.unit_functions import SortColumn, UnitValue, WindowFrame, unit_value

_OWN = "\0"

_NOT_AGGREGATED = Reason(
    "is not aggregated",
    "A group of several rows gets one value.",
    "Say which one: pl.col('x').sum(), .max(), .n_unique(), or .sort_by('day').first().",
)

_ORDERED = Reason(
    "is not supported within a unit",
    "How rows are stored must not matter, so an order needs columns to sort by.",
    "Use pl.col('x').sort_by('day').first() or .last(), .min() or .max(). For later rows, number them with "
    "pl.int_range(pl.len()).over(unit, order_by='day'), or keep some with group_by(unit).head(2, order_by='day').",
)
_ORDERED_NODES = {"Sort", "SortBy", "Slice", "Gather"}

_AGGREGATES = {
    "Sum": "sum", "Mean": "mean", "Median": "median", "Min": "min", "Max": "max", "NUnique": "n_unique",
    "Count": "count", "First": "first", "Last": "last", "Var": "variance", "Std": "variance",
}  # fmt: skip
_RUNNING = {"CumSum": "cum_sum", "CumCount": "cum_count", "CumMin": "cum_min", "CumMax": "cum_max"}
_ROLLING = {"Sum": "frame_sum", "Mean": "frame_sum", "Min": "frame_min", "Max": "frame_max"}
_OF_FRAMES = _ROLLING | {"Count": "frame_count", "First": "frame_first", "Last": "frame_last"}
_RANKS = {"Min": "rank", "Dense": "dense_rank", "Ordinal": "row_number"}


_NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000}


@dataclass(frozen=True)
class _Window:
    """The rows that a function looks at: those with equal partition columns, perhaps in an order."""

    partition: tuple[str, ...]
    order: tuple[SortColumn, ...]
    frame: WindowFrame | None = None
    """The rows around each row, if the function does not look at all of them."""


class UnitExpressions:
    """Read expressions, and collect the columns that a unit-wise step must compute for them.

    Attributes
    ----------
    arguments
        Columns to make before the step.
    values
        The functions to compute, by the name of their column, for each partition.
    """

    def __init__(self, schema: pl.Schema, what: str, keys: Sequence[str] | None = None) -> None:
        self._given, self._what = schema, what
        self._group = None if keys is None else _Window(tuple(keys), ())
        self.arguments: dict[str, Expression] = {}
        self.values: dict[tuple[str, ...], dict[str, UnitValue]] = {} if keys is None else {tuple(keys): {}}

    @property
    def schema(self) -> pl.Schema:
        """The columns that the row-wise rest of the expressions may read."""
        made = {name: value.dtype for values in self.values.values() for name, value in values.items()}
        return pl.Schema({**self._given, **made})

    def read(self, expr: Any) -> tuple[CheckedExpression, ...]:
        """Return the expressions that an expression stands for, over the columns that the step computes."""
        node: ReadNode = self._outside if self._group is None else self._inside(self._group)
        parsed = parse(expr, schema=self._given, what=self._what, node=node)
        found = tuple(CheckedExpression(expression.tree, expression.name) for expression in parsed)
        for expression in found:
            check_tree(expression, self.schema, self._what)
        return found

    # ------------------------------------------------------------------ nodes

    def _outside(self, tree: Tree) -> Expression | None:
        """Read a window of a row-wise expression."""
        name, body = named(tree)
        if name != "Over":
            return None
        match body:
            case {"function": function, "partition_by": list(parts), "order_by": order, "mapping": "GroupsToRows"}:
                if len(body) == 4:
                    partition = tuple(self._column(self._row_wise(part)) for part in parts)
                    window = _Window(partition, () if order is None else self._order_of_window(order))
                    return read_node(function, self._given, self._what, self._inside(window))
        raise Refused("over", UNKNOWN)

    def _inside(self, window: _Window) -> ReadNode:
        grouped = window is self._group

        def node(tree: Tree) -> Expression | None:
            name, body = named(tree)
            _check_order(name)
            match name, body:
                case "Column", str() if grouped or window.frame is not None:
                    raise Refused(f"pl.col({body!r})", _NOT_AGGREGATED)
                case "Len", None if window.frame is not None:
                    return self._of_frame(window, "Count", Constant(True, pl.Boolean()))
                case "Agg", dict() if window.frame is not None:
                    return self._aggregate_of_frame(window, body)
                case _, dict() if window.frame is not None and name == "Function":
                    return None  # it is computed row by row
                case "Len", None:
                    return self._value(window, "len", None)
                case "Rolling", {"function": function, "index_column": index, "period": dict(period), **more} if (
                    len(body) == 5 and not grouped
                ):
                    return self._rolling_window(window, function, index, period, more)
                case "Agg", dict() | str():
                    return self._aggregate(window, body)
                case "Function", {"input": list(inputs), "function": function} if len(body) == 2:
                    return self._function(window, inputs, function, grouped=grouped)
            return None

        return node

    def _aggregate(self, window: _Window, body: Any) -> Expression:
        kind, inner = named(body)
        function = _AGGREGATES.get(kind)
        if function is None:
            raise Refused(spoken(f"Agg.{kind}"), UNKNOWN)
        order = window.order
        nulls_too = False
        if kind in ("Min", "Max", "Count"):
            flag = "include_nulls" if kind == "Count" else "propagate_nans"
            if not isinstance(inner, dict) or set(inner) != {"input", flag} or (inner[flag] and kind != "Count"):
                raise Refused(spoken(f"Agg.{kind}"), UNKNOWN)
            inner, nulls_too = inner["input"], bool(inner[flag])
        if kind in ("Var", "Std"):
            match inner:
                case [one, 0 | 1 as fewer]:
                    inner, function = one, "variance" if fewer else "variance_pop"
                case _:
                    raise Refused(
                        spoken(f"Agg.{kind}"),
                        Reason("does not support this ddof", "The sum of squares is divided by n or n - 1.",
                               "Write ddof=0 or ddof=1."),
                    )  # fmt: skip
        if kind in ("First", "Last"):
            inner, order = self._sorted(inner, order)
        value, filtered = self._argument(inner)
        if nulls_too:  # the number of rows, whether they are null or not
            if filtered is None:
                return self._value(window, "len", None)
            value = apply("case", filtered, Constant(True, pl.Boolean()), Constant(None, pl.Boolean()))
        elif kind == "NUnique" and _is_without_nulls(inner):
            function = "n_values"
        elif filtered is not None and kind in ("First", "Last", "NUnique"):
            raise Refused(
                f"filter or drop_nulls before {spoken(f'Agg.{kind}')}",
                Reason(
                    "can't be distinguished from null values",
                    "Rows that are dropped inside an expression count as null here.",
                    "Filter the frame first, or use drop_nulls().n_unique(), .min() or .max().",
                ),
            )
        made = self._value(window, function, value, order=order if kind in ("First", "Last") else ())
        return apply("sqrt", made) if kind == "Std" else made

    def _function(self, window: _Window, inputs: list[Tree], function: Tree, *, grouped: bool) -> Expression | None:
        path, options = named(function)
        match path, options:
            case "Boolean", {"Any": {"ignore_nulls": True}} | {"All": {"ignore_nulls": True}}:
                value, _ = self._argument(inputs[0])
                return self._value(window, next(iter(options)).lower(), value)
            case "NullCount", None:
                value = self._row_wise(inputs[0])
                missing = apply("case", apply("is_null", value), Constant(True, pl.Boolean()),
                                Constant(None, pl.Boolean()))  # fmt: skip
                return self._value(window, "count", missing)
            case "MinBy" | "MaxBy", None:
                value, by = (self._row_wise(part) for part in inputs)
                value = apply("case", apply("is_not_null", by), value, Constant(None, value.dtype))
                if by.dtype.is_float():  # NaN is neither the smallest nor the largest number
                    by = apply("case", apply("is_nan", by), Constant(None, by.dtype), by)
                order = (SortColumn(self._column(by), path == "MaxBy", nulls_last=True),)
                return self._value(window, "first", value, order=order)
            case "Quantile", {"method": "Linear"}:
                value, _ = self._argument(inputs[0])
                level = self._row_wise(inputs[1])
                if not isinstance(level, Constant) or not isinstance(level.value, int | float):
                    raise Refused("quantile", Reason("needs a constant", "It must be public.", "Write quantile(0.9)."))
                return self._value(window, "quantile", value, parameter=float(level.value))
            case "Quantile", _:
                raise Refused(
                    "quantile",
                    Reason("supports only linear interpolation within a unit", "It lies between two values.",
                           "Write quantile(0.9, interpolation='linear')."),
                )  # fmt: skip
        if grouped:
            return None
        match path, options:
            case "RollingExpr", {"function": str(rolled), "options": dict(rolling)} if rolled in _ROLLING:
                return self._rolling(window, inputs, rolled, rolling)
            case "RollingExprBy", {"function_by": str(rolled), "options": dict(rolling)} if (
                rolled := rolled.removesuffix("By")
            ) in _ROLLING:
                return self._rolling_by(window, inputs, rolled, rolling)
            case "RollingExpr" | "RollingExprBy", _:
                raise Refused(
                    "this rolling function",
                    Reason(
                        "is not computed within a unit",
                        "Windows of some rows around each row have sums, means, counts and extremes.",
                        "The rolling functions are those of sum, mean, min and max, and of a count by .rolling(...).",
                    ),
                )
            case "Shift", None:
                offset = _offset(self._row_wise(inputs[1]))
                return self._value(window, "shift", self._row_wise(inputs[0]), order=window.order, offset=offset)
            case "ShiftAndFill", None:
                return self._filled(window, inputs)
            case "Diff", "Ignore":
                value, offset = self._row_wise(inputs[0]), _offset(self._row_wise(inputs[1]))
                before = self._value(window, "shift", value, order=window.order, offset=offset)
                return apply("sub", value, before)
            case (("CumSum" | "CumCount" | "CumMin" | "CumMax"), {"reverse": False}):
                return self._value(window, _RUNNING[path], self._row_wise(inputs[0]), order=window.order)
            case "Rank", {"options": {"method": str(method), "descending": bool(descending)}, "seed": None}:
                return self._rank(window, inputs, method, descending=descending)
            case "Range", {"IntRange": {"step": 1, "dtype": {"Literal": "Int64"}}} if inputs[1:] == ["Len"]:
                if inputs[0] == {"Literal": {"Dyn": {"Int": 0}}}:
                    number = self._value(window, "row_number", None, order=window.order)
                    return apply("sub", number, Constant(1, pl.Int64()))
        return None

    def _rolling(self, window: _Window, inputs: list[Tree], rolled: str, options: dict[str, Any]) -> Expression:
        """Return a function of the last rows up to each row, which is null if too few of them have a value."""
        match options:
            case {"window_size": int(size), "min_periods": int(least), "weights": None, "center": False}:
                value = self._row_wise(inputs[0])
                frame = WindowFrame(1 - size, 0)
                count = self._value(window, "frame_count", value, order=window.order, frame=frame)
                made: Expression = self._value(window, _ROLLING[rolled], value, order=window.order, frame=frame)
                made = apply("div", made, count) if rolled == "Mean" else made
                enough = apply("ge", count, Constant(max(least, 1), pl.Int64()))
                return apply("case", enough, made, Constant(None, made.dtype))
        raise Refused(
            f"rolling_{rolled.lower()}",
            Reason("does not support weights or center=True within a unit", "It looks at the last rows.",
                   "Leave these options out."),
        )  # fmt: skip

    def _rolling_by(self, window: _Window, inputs: list[Tree], rolled: str, options: dict[str, Any]) -> Expression:
        """Return a function of the rows up to a distance from each row, which is null if too few have a value."""
        match options:
            case {"window_size": dict(size), "min_periods": int(least), "closed_window": str(closed), **_more}:
                value, by = self._row_wise(inputs[0]), self._row_wise(inputs[1])
                length = _distance(size, by.dtype, f"rolling_{rolled.lower()}_by")
                framed = self._by_distance(window, by, -length, length, closed)
                made = self._of_frame(framed, rolled, value)
                if least < 1:
                    return made
                enough = apply("ge", self._of_frame(framed, "Count", value), Constant(least, pl.Int64()))
                return apply("case", enough, made, Constant(None, made.dtype))
        raise Refused(f"rolling_{rolled.lower()}_by", UNKNOWN)

    def _rolling_window(
        self, window: _Window, function: Tree, index: Tree, period: dict[Any, Any], more: dict[Any, Any]
    ) -> Expression:
        """Return functions of the rows up to a distance from each row: `pl.col("x").sum().rolling("day", ...)`."""
        match more:
            case {"offset": dict(offset), "closed_window": str(closed)}:
                by = self._row_wise(index)
                length, away = (_distance(span, by.dtype, "rolling") for span in (period, offset))
                framed = self._by_distance(window, by, away, length, closed)
                return read_node(function, self._given, self._what, self._inside(framed))
        raise Refused("rolling", UNKNOWN)

    def _by_distance(self, window: _Window, by: Expression, start: int, length: int, closed: str) -> _Window:
        """Return a window of the rows whose value is between two distances from that of a row."""
        if length < 1:
            raise Refused("rolling", Reason("needs a positive period", "A window has a length.", "Write period='7d'."))
        first = start if closed in ("Left", "Both") else start + 1
        last = start + length if closed in ("Right", "Both") else start + length - 1
        frame = WindowFrame(first, last, by_value=True)
        return _Window(window.partition, (SortColumn(self._column(by)),), frame)

    def _aggregate_of_frame(self, window: _Window, body: dict[str, Any]) -> Expression:
        kind, inner = named(body)
        if isinstance(inner, dict) and kind in ("Min", "Max", "Count") and "input" in inner:
            flag = inner.get("include_nulls" if kind == "Count" else "propagate_nans")
            if len(inner) == 2 and (not flag or kind == "Count"):
                return self._of_frame(
                    window, kind, Constant(True, pl.Boolean()) if flag else self._row_wise(inner["input"])
                )
        if kind not in _OF_FRAMES or (isinstance(inner, dict) and "input" in inner):
            raise Refused(
                spoken(f"Agg.{kind}"),
                Reason(
                    "is not computed over rolling windows",
                    "A window of some rows around each row has a sum, a mean, a count, extremes, and ends.",
                    "Use sum, mean, min, max, count, first, last or pl.len().",
                ),
            )
        return self._of_frame(window, kind, self._row_wise(inner))

    def _of_frame(self, window: _Window, kind: str, value: Expression) -> Expression:
        """Return a function of the rows in the frame of a window."""

        def made(function: str) -> Column:
            return self._value(window, function, value, order=window.order, frame=window.frame)

        if kind != "Mean":
            return made(_OF_FRAMES[kind])
        count = made("frame_count")
        mean = apply("div", made("frame_sum"), count)
        return apply("case", apply("gt", count, Constant(0, pl.Int64())), mean, Constant(None, mean.dtype))

    def _filled(self, window: _Window, inputs: list[Tree]) -> Expression:
        """Return a shift with a constant for the rows that have no row to take a value from."""
        value, offset = self._row_wise(inputs[0]), _offset(self._row_wise(inputs[1]))
        shifted = self._value(window, "shift", value, order=window.order, offset=offset)
        number = self._value(window, "row_number", None, order=window.order)
        if offset >= 0:
            inside = apply("gt", number, Constant(offset, pl.Int64()))
        else:
            size = self._value(window, "len", None)
            inside = apply("le", number, apply("add", size, Constant(offset, pl.Int64())))
        return apply("case", inside, shifted, self._row_wise(inputs[2]))

    def _rank(self, window: _Window, inputs: list[Tree], method: str, *, descending: bool) -> Expression:
        if method not in _RANKS:
            raise Refused(
                f"rank({method.lower()!r})",
                Reason(
                    "is not supported within a unit",
                    "Ranks are whole numbers here.",
                    "Use 'min', 'dense' or 'ordinal'.",
                ),
            )
        value = self._row_wise(inputs[0])
        order = (SortColumn(self._column(value), descending, nulls_last=True),)  # so nulls don't count
        rank = self._value(window, _RANKS[method], None, order=order)
        return apply("case", apply("is_not_null", value), rank, Constant(None, pl.Int64()))

    # ------------------------------------------------------------------ arguments

    def _row_wise(self, tree: Tree) -> Expression:
        return read_node(tree, self._given, self._what)

    def _argument(self, tree: Tree) -> tuple[Expression, Expression | None]:
        """Return the argument of an aggregate, which is null where a filter drops the row, and the filter."""
        name, body = named(tree)
        _check_order(name)
        match name, body:
            case "Filter", {"input": inner, "by": condition} if len(body) == 2:
                value, before = self._argument(inner)
                wanted = self._row_wise(condition)
                wanted = wanted if before is None else apply("and", before, wanted)
                return apply("case", wanted, value, Constant(None, value.dtype)), wanted
            case "Function", {"input": [inner], "function": "DropNulls"} if len(body) == 2:
                value, _ = self._argument(inner)
                return value, apply("is_not_null", value)
        return self._row_wise(tree), None

    def _sorted(self, tree: Tree, order: tuple[SortColumn, ...]) -> tuple[Tree, tuple[SortColumn, ...]]:
        """Return what is sorted and by what, if a tree is sorted."""
        name, body = named(tree)
        match name, body:
            case "SortBy", {"expr": inner, "by": list(by), "sort_options": dict(options)} if len(body) == 3:
                return inner, self._order(by, options)
        return tree, order

    def _order(self, by: Sequence[Tree], options: dict[str, Any]) -> tuple[SortColumn, ...]:
        descending, last = (_each(options.get(name), len(by)) for name in ("descending", "nulls_last"))
        return tuple(
            SortColumn(self._column(self._row_wise(part)), down, nulls)
            for part, down, nulls in zip(by, descending, last, strict=True)
        )

    def _order_of_window(self, order: Any) -> tuple[SortColumn, ...]:
        match order:
            case [{"Function": {"input": list(by), "function": {"RowEncode": {"Ordered": dict(options)}}}}, dict()]:
                return self._order(by, options)
            case [tree, dict(options)]:
                return self._order([tree], options)
        raise Refused("over(order_by=...)", UNKNOWN)

    def _column(self, value: Expression) -> str:
        """Return the name of the column that holds a row-wise expression."""
        if isinstance(value, Column):
            return value.name
        if value.dtype == pl.Categorical:  # the order of categories depends on other rows
            value = apply("cast", value, to=pl.String())
        for name, other in self.arguments.items():
            if other == value:
                return name
        name = f"{_OWN}argument {len(self.arguments)}"
        self.arguments[name] = value
        check_tree(CheckedExpression(value, name), self._given, self._what)
        return name

    def _value(
        self,
        window: _Window,
        function: str,
        argument: Expression | None,
        *,
        order: tuple[SortColumn, ...] = (),
        offset: int = 0,
        parameter: float | None = None,
        frame: WindowFrame | None = None,
    ) -> Column:
        """Return the column of a function, which the step will compute."""
        if argument is not None and argument.dtype == pl.Categorical:
            argument = apply("cast", argument, to=pl.String())
        column = None if argument is None else self._column(argument)
        schema = pl.Schema(
            {**self._given, **{name: argument_tree.dtype for name, argument_tree in self.arguments.items()}}
        )
        made = unit_value(function, column, schema, order=order, offset=offset, parameter=parameter, frame=frame)
        values = self.values.setdefault(window.partition, {})
        for name, other in values.items():
            if other == made:
                return Column(name, made.dtype)
        name = f"{_OWN}value {sum(map(len, self.values.values()))}"
        values[name] = made
        return Column(name, made.dtype)


def _distance(given: dict[str, Any], dtype: pl.DataType, what: str) -> int:
    """Return a span of Polars in the unit in which values of a type are stored: days, parts of a second, or 1."""
    match given:
        case {"months": 0, "weeks": int(weeks), "days": int(days), "nsecs": int(nsecs), "negative": bool(back), **more}:
            days += 7 * weeks
            zoned = isinstance(dtype, pl.Datetime) and dtype.time_zone not in (None, "UTC")
            found = None
            if more.get("parsed_int"):
                found = nsecs if dtype.is_integer() else None
            elif dtype == pl.Date:
                found = days if not nsecs else None
            elif isinstance(dtype, pl.Datetime) and not (zoned and days):  # days of a zone differ in length
                parts, rest = divmod(days * 86_400_000_000_000 + nsecs, _NANOSECONDS[dtype.time_unit])
                found = parts if not rest else None
            if found is not None and found < 1 << 62:
                return -found if back else found
    raise Refused(
        what,
        Reason(
            f"needs a span with a fixed length for values of type {dtype}",
            "Months differ in length, and so do the days of a time zone.",
            "Write '7d' for dates, '12h' for times, and '3i' for whole numbers.",
        ),
    )


def _is_without_nulls(tree: Tree) -> bool:
    name, body = named(tree)
    return name == "Function" and isinstance(body, dict) and body.get("function") == "DropNulls"


def _check_order(name: str) -> None:
    """Refuse nodes that take rows by their position, and say how to order rows within a unit."""
    if name in _ORDERED_NODES:
        raise Refused(spoken(name), _ORDERED)


def _offset(value: Expression) -> int:
    if not isinstance(value, Constant) or not isinstance(value.value, int) or abs(value.value) > 1_000_000:
        raise Refused(
            "shift",
            Reason("needs a constant", "Rows are shifted by a whole number up to a million.", "Write shift(1)."),
        )
    return value.value


def _each(given: Any, size: int) -> list[bool]:
    """Return one flag per column, where Polars writes one for all of them or a list."""
    listed = [given] if isinstance(given, bool) else list(given or [False])
    return listed * size if len(listed) == 1 else listed
