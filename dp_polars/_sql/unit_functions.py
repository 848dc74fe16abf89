"""Translate SQL aggregates and windows over the rows of one unit into the functions of unit-wise steps.

`count(*)` in a SELECT that groups by the unit looks at rows of one unit only, and so does `row_number() OVER (PARTITION
BY user_id ORDER BY day)`. Which rows these are is checked in `unit_steps`; here a call gets its meaning, or is refused.
The meaning of a call is an expression over columns that the step computes. For example, SQL's sum of nothing is null,
whereas the step's is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import polars as pl

from dp_polars._expressions import Column, Constant, Expression, apply
from dp_polars._expressions.messages import Refused
from dp_polars._expressions.types import TICKS, kind_of
from dp_polars._expressions.unit_functions import SortColumn, UnitValue, WindowFrame, has_distances, unit_value
from dp_polars._sql.expressions import Interval, Reader
from dp_polars._sql.scope import unused_name
from dp_polars._sql.syntax_tree import Node, arguments, fold

_INT, _FLOAT, _TRUTH = pl.Int64(), pl.Float64(), pl.Boolean()
_ORDERS = {"ORDER_DEFAULT": False, "ASCENDING": False, "DESCENDING": True}
_NULLS = {"ORDER_DEFAULT": True, "NULLS LAST": True, "NULLS FIRST": False}  # DuckDB's default is last, either way
_WHOLE, _RUNNING, _ROWS = "whole", "running", "rows"
_FRAMES = {
    ("UNBOUNDED_PRECEDING", "UNBOUNDED_FOLLOWING"): _WHOLE,
    ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"): _RUNNING,
}
_ENDS_OF_RANGES = ("UNBOUNDED_PRECEDING", "UNBOUNDED_FOLLOWING", "CURRENT_ROW_RANGE", "EXPR_PRECEDING_RANGE",
                   "EXPR_FOLLOWING_RANGE")  # fmt: skip
_ENDS_OF_ROWS = ("UNBOUNDED_PRECEDING", "UNBOUNDED_FOLLOWING", "CURRENT_ROW_ROWS", "EXPR_PRECEDING_ROWS",
                 "EXPR_FOLLOWING_ROWS")  # fmt: skip
_MOST_OFFSET = 1_000_000
_DAY = 86_400_000_000  # microseconds
_CALL_PARTS = frozenset(
    {
        "class", "type", "alias", "function_name", "schema", "filter", "order_bys", "distinct", "is_operator",
        "arguments", "qualified_name", "query_location", "query_location_length",
    }
)  # fmt: skip
_WINDOW_PARTS = frozenset(
    {
        "class", "type", "alias", "function_name", "schema", "filter_expr", "distinct", "arguments", "qualified_name",
        "query_location", "query_location_length", "partitions", "orders", "start", "end", "exclude_clause",
        "start_expr", "end_expr",
    }
)  # fmt: skip

RANKS = ("row_number", "rank", "dense_rank")
SHIFTS = ("lag", "lead")
_ENDS = ("first_value", "first", "last_value", "last")
_SHARES = ("percent_rank", "cume_dist", "ntile")


@dataclass
class UnitCalls:
    """The calls of one step: the columns that they read, and the functions that the step computes.

    Attributes
    ----------
    given
        The names and types of the columns before the step.
    arguments
        Columns to make before the step.
    values
        The functions that the step computes, by the names of their columns.
    """

    reader: Reader
    given: Mapping[str, pl.DataType]
    arguments: dict[str, Expression] = field(default_factory=dict)
    values: dict[str, UnitValue] = field(default_factory=dict)

    def column(self, tree: Expression, shown: str = "argument") -> str:
        """Return the name of the column that holds an expression before the step. A new column is called `shown`."""
        if tree.dtype == pl.Categorical:  # the order of categories depends on other rows
            tree = apply("cast", tree, to=pl.String())
        if isinstance(tree, Column):
            return tree.name
        for name, other in self.arguments.items():
            if other == tree:
                return name
        name = unused_name(shown, [*self.given, *self.arguments, *self.values])
        self.arguments[name] = tree
        return name

    def value(
        self,
        function: str,
        tree: Expression | None,
        order: tuple[SortColumn, ...] = (),
        offset: int = 0,
        *,
        parameter: float | str | None = None,
        frame: WindowFrame | None = None,
    ) -> Column:
        """Return the column of a function, which the step will compute."""
        own = None if tree is None else self.column(tree)
        schema = pl.Schema({**self.given, **{name: one.dtype for name, one in self.arguments.items()}})
        made = unit_value(function, own, schema, order=order, offset=offset, parameter=parameter, frame=frame)
        for name, other in self.values.items():
            if other == made:
                return Column(name, made.dtype)
        name = unused_name(function, [*self.given, *self.arguments, *self.values])
        self.values[name] = made
        return Column(name, made.dtype)

    def order(self, orders: list[Node]) -> tuple[SortColumn, ...]:
        """Return the columns that an ORDER BY sorts by."""
        found = []
        for one in orders:
            if one["type"] not in _ORDERS or one["null_order"] not in _NULLS:
                raise self.reader.refuse(one["expression"], "This order is not supported; write ASC or DESC.")
            name = self.column(self.reader.checked(one["expression"]))
            found.append(SortColumn(name, _ORDERS[one["type"]], _NULLS[one["null_order"]]))
        return tuple(found)

    # ------------------------------------------------------------------ aggregates

    def aggregate(self, node: Node) -> Expression:
        """Return the meaning of an aggregate over the rows of a group."""
        name = fold(node["function_name"])
        self._check_parts(node, _CALL_PARTS)
        orders = (node.get("order_bys") or {}).get("orders") or []
        if orders and name not in _ORDERED:
            orders = []  # the order makes no difference
        try:
            return AGGREGATES[name](self, node, node.get("filter"), self.order(orders))
        except Refused as error:
            raise self._refused(node, error) from None

    def _refused(self, node: Node, error: Refused) -> Exception:
        return self.reader.refuse(node, f"{fold(node['function_name'])} {error.reason.does}. {error.reason.why}")

    def _check_parts(self, node: Node, known: frozenset[str]) -> None:
        name = fold(node["function_name"])
        unknown = [part for part, own in node.items() if own and part not in known]
        if unknown or node.get("schema") not in ("", "main", None):
            raise self.reader.refuse(
                node, f"{name} with {', '.join(unknown or ['a schema']).replace('_', ' ')} is not supported here."
            )
        if any(said for said, _ in arguments(node)):
            raise self.reader.refuse(node, f"{name} takes its arguments by position, not by name.")

    def given_to(self, node: Node, least: int, most: int | None = None) -> list[Expression]:
        """Return the arguments of a call, whose number is checked."""
        nodes = [child for _, child in arguments(node)]
        most = least if most is None else most
        if not least <= len(nodes) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self.reader.refuse(
                node, f"{fold(node['function_name'])} takes {wanted} arguments here, not {len(nodes)}."
            )
        return [self.reader.checked(one) for one in nodes]

    def kept(self, tree: Expression, condition: Node | None) -> Expression:
        """Return an argument that is null where FILTER leaves the row out."""
        if condition is None:
            return tree
        return apply("case", self.reader.condition(condition), tree, Constant(None, tree.dtype))

    # ------------------------------------------------------------------ windows

    def window(self, node: Node) -> tuple[Expression, Expression | None]:
        """Return the meaning of a window function, and what is computed of rows that tie, if it is about these.

        The second expression is None, or a column that holds the value of a single row, of which the last one among
        the rows that tie in the order counts.
        """
        name = fold(node["function_name"])
        self._check_parts(node, _WINDOW_PARTS)
        order = self.order(node["orders"])
        frame, ends = self._frame(node, order)
        try:
            if name in RANKS:
                self.given_to(node, 0)
                return self.value(name, None, order), None
            if name in SHIFTS:
                return self._shifted(node, name, order), None
            if name in _SHARES:
                own = self._share(node, name, order)
                return own, own if name == "cume_dist" else None
            if name in _ENDS:
                return self._end(node, name, frame, ends, order), None
            if name in AGGREGATES and frame != _ROWS and (frame == _WHOLE or not order):
                if name in ("arg_min", "arg_max", "min_by", "max_by", "any_value"):
                    raise self.reader.refuse(node, f"{name} is not supported as a window; use first_value.")
                return AGGREGATES[name](self, node, node.get("filter_expr"), ()), None
            if name in _IN_FRAMES:
                own = self._in_frame(node, name, ends, order)
                return own, own if frame == _RUNNING else None
        except Refused as error:
            raise self._refused(node, error) from None
        known = ", ".join([*RANKS, *SHIFTS, *_SHARES, "first_value", "last_value", *_IN_FRAMES])
        raise self.reader.refuse(
            node,
            f"{name} is not supported as a window in this form. Use {known}; without ORDER BY, all aggregates that "
            "GROUP BY has.",
        )

    def _frame(self, node: Node, order: tuple[SortColumn, ...]) -> tuple[str, WindowFrame]:
        """Return which kind of frame a window has, and the rows that it begins and ends with."""
        start, end = node["start"], node["end"]
        if node.get("exclude_clause") != "NO_OTHER":
            raise self.reader.refuse(
                node,
                "EXCLUDE is not supported in a frame. Subtract the value of the row itself from that of the frame.",
            )
        if (start, end) in _FRAMES:
            return _FRAMES[start, end], WindowFrame(None, 0)
        if start in _ENDS_OF_RANGES and end in _ENDS_OF_RANGES:
            edges = [self._distance(node, one, node.get(f"{name}_expr"), order)
                     for name, one in (("start", start), ("end", end))]  # fmt: skip
            return _ROWS, WindowFrame(edges[0], edges[1], by_value=True)
        if start not in _ENDS_OF_ROWS or end not in _ENDS_OF_ROWS:
            raise self.reader.refuse(
                node,
                "Frames by GROUPS, or by ROWS at one end and RANGE at the other, are not supported. Say ROWS BETWEEN 6 "
                "PRECEDING AND CURRENT ROW, or RANGE BETWEEN INTERVAL 6 DAYS PRECEDING AND CURRENT ROW.",
            )
        return _ROWS, WindowFrame(self._edge(start, node.get("start_expr")), self._edge(end, node.get("end_expr")))

    def _distance(self, node: Node, kind: str, given: Node | None, order: tuple[SortColumn, ...]) -> int | None:
        """Return the end of a frame as a distance from the row's own value, in the unit in which values are stored."""
        if kind.startswith("UNBOUNDED") or given is None:
            return None if kind.startswith("UNBOUNDED") else 0
        schema = {**self.given, **{name: one.dtype for name, one in self.arguments.items()}}
        dtype = schema[order[0].name] if len(order) == 1 else None
        if dtype is None or not has_distances(dtype):
            raise self.reader.refuse(
                node,
                "A frame by RANGE needs ORDER BY with one column, of dates, timestamps or whole numbers. Count rows "
                "with ROWS BETWEEN 6 PRECEDING AND CURRENT ROW.",
            )
        span = self.reader.any(given)
        if dtype.is_integer():
            distance = self.reader.whole(given, "The distance of a frame by RANGE", low=0, high=1 << 62)
        elif not isinstance(span, Interval) or span.months or (span.days and getattr(dtype, "time_zone", None)):
            raise self.reader.refuse(
                node,
                "The distance of a frame by RANGE is an INTERVAL of a fixed length here: of days or less, and of hours "
                "or less if timestamps have a time zone. A month has no fixed length.",
            )
        else:
            length = span.days * _DAY + span.microseconds
            if not 0 <= length <= 1 << 62:
                raise self.reader.refuse(node, "The distance of a frame by RANGE must not be negative.")
            # Between dates, whole days count; timestamps have parts of a second.
            distance = length // _DAY if dtype == pl.Date else _ticks(length, dtype)
        return -distance if kind == "EXPR_PRECEDING_RANGE" else distance

    def _edge(self, kind: str, distance: Node | None) -> int | None:
        """Return the place of a frame's first or last row, counted from the current row."""
        if distance is None:
            return None if kind.startswith("UNBOUNDED") else 0
        rows = self.reader.whole(distance, "The number of rows of a frame", low=0, high=_MOST_OFFSET)
        return -rows if kind == "EXPR_PRECEDING_ROWS" else rows

    def _share(self, node: Node, name: str, order: tuple[SortColumn, ...]) -> Expression:
        """Return a rank as a share of the rows of the partition, or the number of the part that a row falls into."""
        size, one = self.value("len", None), Constant(1, _INT)
        if name == "percent_rank":
            self.given_to(node, 0)
            before = apply("sub", self.value("rank", None, order), one)
            share = apply("div", before, apply("sub", size, one))
            return apply("case", apply("gt", size, one), share, Constant(0.0, _FLOAT))
        number = self.value("row_number", None, order)
        if name == "cume_dist":
            self.given_to(node, 0)
            return apply("div", number, size)
        nodes = [child for _, child in arguments(node)]
        self.given_to(node, 1)
        parts = Constant(self.reader.whole(nodes[0], "The number of parts", low=1, high=_MOST_OFFSET), _INT)
        least, more = apply("floordiv", size, parts), apply("mod", size, parts)
        longer = apply("mul", more, apply("add", least, one))  # the first parts have one row more
        place = apply("sub", number, one)
        among_first = apply("floordiv", place, apply("add", least, one))
        among_rest = apply("add", more, apply("floordiv", apply("sub", place, longer), least))
        return apply("add", apply("case", apply("lt", place, longer), among_first, among_rest), one)

    def _shifted(self, node: Node, name: str, order: tuple[SortColumn, ...]) -> Expression:
        nodes = [child for _, child in arguments(node)]
        offset = self.reader.whole(nodes[1], "The number of rows", low=0, high=1_000_000) if len(nodes) > 1 else 1
        own = self.reader.checked(nodes[0]) if nodes else self.given_to(node, 1, 3)[0]
        offset = offset if name == "lag" else -offset
        shifted = self.value("shift", own, order, offset)
        if len(nodes) < 3:
            return shifted
        number = self.value("row_number", None, order)
        if offset >= 0:
            inside = apply("gt", number, Constant(offset, _INT))
        else:
            inside = apply("le", number, apply("add", self.value("len", None), Constant(offset, _INT)))
        return apply("case", inside, shifted, *self.reader.values(nodes[2:]))

    def _end(self, node: Node, name: str, frame: str, ends: WindowFrame, order: tuple[SortColumn, ...]) -> Expression:
        (own,) = self.given_to(node, 1)
        if node.get("filter_expr"):
            raise self.reader.refuse(node, f"{name} with FILTER is not supported; filter in a subquery.")
        if frame == _ROWS:
            return self.value("frame_first" if name.startswith("first") else "frame_last", own, order, frame=ends)
        if name in ("last_value", "last") and frame != _WHOLE:
            raise self.reader.refuse(
                node,
                f"{name} with this frame ends at the current row, so it is the value of the row itself. Say ROWS "
                "BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING, or first_value with the order reversed.",
            )
        return self.value("first" if name.startswith("first") else "last", own, order)

    def _in_frame(self, node: Node, name: str, ends: WindowFrame, order: tuple[SortColumn, ...]) -> Expression:
        """Return an aggregate of the rows of a frame."""
        if node.get("distinct") and name not in ("min", "max"):
            raise self.reader.refuse(node, f"{name}(DISTINCT ...) of a frame is not supported.")
        condition = node.get("filter_expr")
        if name in ("count", "count_star"):
            return self.value("frame_count", _counted(self, node, condition), order, frame=ends)
        (own,) = self.given_to(node, 1)
        if name in ("min", "max"):
            return self.value(f"frame_{name}", self.kept(own, condition), order, frame=ends)
        own = self.kept(own if name == "sum" else _as_number(own), condition)
        count = self.value("frame_count", own, order, frame=ends)
        total = self.value("frame_sum", own, order, frame=ends)
        total_or_null = apply("case", apply("gt", count, Constant(0, _INT)), total, Constant(None, total.dtype))
        return total_or_null if name == "sum" else apply("div", total_or_null, count)


def _ticks(microseconds: int, dtype: pl.DataType) -> int:
    """Return a distance in the unit of a timestamp. Parts of that unit make no difference, as values have none."""
    ticks = TICKS[dtype.time_unit] if isinstance(dtype, pl.Datetime) else 1
    return min(microseconds * ticks // 1_000_000, (1 << 63) - 1)


_IN_FRAMES = ("count", "count_star", "sum", "avg", "mean", "min", "max")


def _as_number(own: Expression) -> Expression:
    """Return a decimal as a float. Other values stay as they are."""
    return apply("cast", own, to=_FLOAT) if kind_of(own.dtype) in ("decimal", "wide") else own


def _counted(calls: UnitCalls, node: Node, condition: Node | None) -> Expression:
    """Return an expression that is not null in the rows that a count is about."""
    nodes = [child for _, child in arguments(node)]
    starred = not nodes or nodes[0]["class"] == "STAR"
    own: Expression = Constant(True, _TRUTH) if starred else calls.given_to(node, 1)[0]
    if kind_of(own.dtype) in ("list", "array", "struct", "other"):
        own = apply("is_not_null", own)
        own = apply("case", own, Constant(True, _TRUTH), Constant(None, _TRUTH))
    return calls.kept(own, condition)


# ---------------------------------------------------------------------- aggregates

_UnitCall = Callable[[UnitCalls, Node, Node | None, tuple[SortColumn, ...]], Expression]


def _count(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    nodes = [child for _, child in arguments(node)]
    if node.get("distinct"):
        (own,) = calls.given_to(node, 1)
        return calls.value("n_values", calls.kept(own, condition))
    if condition is None and (not nodes or nodes[0]["class"] == "STAR"):
        return calls.value("len", None)
    return calls.value("count", _counted(calls, node, condition))


def _count_if(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    (own,) = calls.given_to(node, 1)
    true = apply("case", own, Constant(True, _TRUTH), Constant(None, _TRUTH))
    return calls.value("count", calls.kept(true, condition))


def _sum(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    own = calls.kept(_not_distinct(calls, node), condition)
    return _or_null(calls, own, calls.value("sum", own))


def _or_null(calls: UnitCalls, own: Expression, total: Column) -> Expression:
    """Return a value of a group, or null if the group has no value that is not null."""
    some = apply("gt", calls.value("count", own), Constant(0, _INT))
    return apply("case", some, total, Constant(None, total.dtype))


def _not_distinct(calls: UnitCalls, node: Node) -> Expression:
    if node.get("distinct"):
        name = fold(node["function_name"])
        raise calls.reader.refuse(node, f"{name}(DISTINCT ...) is not supported here; select DISTINCT rows first.")
    return calls.given_to(node, 1)[0]


def _mean(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    return calls.value("mean", calls.kept(_as_number(_not_distinct(calls, node)), condition))


def _median(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    return calls.value("median", calls.kept(_as_number(_not_distinct(calls, node)), condition))


def _variance(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    """Return a variance, or its root, of a sample or of all values."""
    name = fold(node["function_name"])
    own = calls.kept(_as_number(_not_distinct(calls, node)), condition)
    variance = calls.value("variance_pop" if name.endswith("_pop") or name == "sem" else "variance", own)
    if name.startswith("var"):
        return variance
    root = apply("sqrt", variance)
    return apply("div", root, apply("sqrt", calls.value("count", own))) if name == "sem" else root


def _quantile(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    """Return a quantile: a value of a row, or one between the values of two rows."""
    name = fold(node["function_name"])
    nodes = [child for _, child in arguments(node)]
    own, _ = calls.given_to(node, 2)
    level = calls.reader.literal(nodes[1], "The share of a quantile")
    if node.get("distinct") or isinstance(level, bool) or not isinstance(level, int | float | Decimal):
        raise calls.reader.refuse(node, f"{name} takes a column and one share, such as {name}(x, 0.9).")
    if name == "quantile_cont":
        return calls.value("quantile", calls.kept(_as_number(own), condition), parameter=float(level))
    return calls.value("quantile_value", calls.kept(own, condition), parameter=float(level))


def _mode(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    return calls.value("mode", calls.kept(_not_distinct(calls, node), condition))


def _geometric_mean(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    logs = apply("log", apply("cast", _not_distinct(calls, node), to=_FLOAT))
    return apply("exp", calls.value("mean", calls.kept(logs, condition)))


def _joined_texts(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    """Return the texts of a group, concatenated in an order."""
    name = fold(node["function_name"])
    nodes = [child for _, child in arguments(node)]
    if node.get("distinct"):
        raise calls.reader.refuse(node, f"{name}(DISTINCT ...) is not supported here; select DISTINCT rows first.")
    if not order:
        raise calls.reader.refuse(
            node,
            f"{name} depends on the order of the rows, and the order in which they are stored may depend on other "
            f"people's rows. Say what to sort by: {name}(x, ',' ORDER BY day).",
        )
    own = calls.kept(apply("cast", calls.given_to(node, 1, 2)[0], to=pl.String()), condition)
    separator = calls.reader.text(nodes[1], "The separator") if len(nodes) > 1 else ","
    return _or_null(calls, own, calls.value("join", own, order, parameter=separator))


def _least(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    (own,) = calls.given_to(node, 1)  # DISTINCT makes no difference
    return calls.value(fold(node["function_name"]), calls.kept(own, condition))


def _truth(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    own = calls.kept(calls.given_to(node, 1)[0], condition)
    function = "any" if fold(node["function_name"]) == "bool_or" else "all"
    return _or_null(calls, own, calls.value(function, own))


def _end_by(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    """Return the value of a column in the row with the smallest or largest value of another one.

    Rows in which either is null are left out, as in DuckDB.
    """
    own, by = calls.given_to(node, 2)
    own = calls.kept(own, condition)
    value = apply("case", apply("is_not_null", by), own, Constant(None, own.dtype))
    place = apply("case", apply("is_not_null", own), by, Constant(None, by.dtype))
    down = fold(node["function_name"]) in ("arg_max", "max_by")
    return calls.value("first", value, (SortColumn(calls.column(place), down, nulls_last=True),))


def _first(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    name = fold(node["function_name"])
    own = _not_distinct(calls, node)
    if condition is not None:
        raise calls.reader.refuse(node, f"{name} with FILTER is not supported here; use arg_min(x, day) with FILTER.")
    if not order:
        raise calls.reader.refuse(
            node,
            f"{name} depends on the order of the rows, and the order in which they are stored may depend on other "
            f"people's rows. Say what to sort by: {name}(x ORDER BY day).",
        )
    return calls.value(name, own, order)


def _any_value(calls: UnitCalls, node: Node, condition: Node | None, order: tuple[SortColumn, ...]) -> Expression:
    """Return a value that is not null: the first one in an order, or the smallest one without an order."""
    own = calls.kept(_not_distinct(calls, node), condition)
    if not order:
        return calls.value("min", own)
    missing = SortColumn(calls.column(apply("is_null", own)))
    return calls.value("first", own, (missing, *order))


_VARIANCES = ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop", "sem")
_TEXT_JOINS = ("string_agg", "group_concat", "listagg")
_ORDERED = ("first", "last", "any_value", "arg_min", "arg_max", *_TEXT_JOINS)
"""Aggregates whose value depends on an ORDER BY inside the call."""

AGGREGATES: dict[str, _UnitCall] = {
    "count": _count, "count_star": _count, "count_if": _count_if, "countif": _count_if, "sum": _sum, "avg": _mean,
    "mean": _mean, "median": _median, "min": _least, "max": _least, "bool_or": _truth, "bool_and": _truth,
    "arg_min": _end_by, "arg_max": _end_by, "min_by": _end_by, "max_by": _end_by, "first": _first, "last": _first,
    "any_value": _any_value, **dict.fromkeys(_VARIANCES, _variance), "quantile_cont": _quantile,
    "quantile_disc": _quantile, "quantile": _quantile, "mode": _mode, "geomean": _geometric_mean,
    "geometric_mean": _geometric_mean, **dict.fromkeys(("fsum", "sumkahan", "kahan_sum"), _sum), "favg": _mean,
    **dict.fromkeys(_TEXT_JOINS, _joined_texts),
}  # fmt: skip
"""The aggregates that may combine the rows of one unit, by their names in SQL."""
