"""Unit-wise steps as SQL, where Spark has an exact equivalent: the rows are those of Polars, to the last bit.

What one unit can change: every GROUP BY and every window below has the partition columns of its step, and `with_units`
has made sure that the unit is among them. So a row depends on rows of its own unit alone, and

- whatever depends on an order is sorted by the columns of the user and then by all others, so only equal rows tie;
- nothing adds up floats, whose sum depends on how Spark splits the rows. These functions are refused by name;
- integers are added up as DECIMAL(38, 0), which holds the sum of more rows than a table has, so no sum wraps or fails;
- floats are brought to one form first, so that equal ones are equal everywhere.

A step gives its columns new names (`s0`, `s1`, ...), as if its rows were a source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from dp_polars._engines.rows import PrivateRows, WithColumns
from dp_polars._engines.spark.lowering import NotInSpark, call
from dp_polars._engines.spark.texts import Hash, Named, RowsText, fresh_hash, one_form, select
from dp_polars._engines.spark.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    LEAST,
    MOST,
    STRING,
    WIDE,
    false_in_each_row,
    literal,
    stored_type,
)
from dp_polars._engines.unit_steps import (
    KEPT_IN_JOIN,
    MOST_PAIRS,
    AddWindows,
    GroupRows,
    JoinRows,
    KeepFirst,
    LabelRows,
    StackRows,
    UnitRows,
    unique_columns,
)
from dp_polars._expressions.tree import Apply
from dp_polars._expressions.types import kind_of
from dp_polars._expressions.unit_functions import UNIT_FUNCTIONS, SortColumn, UnitValue, WindowFrame

_MOST_PLACE = (1 << 31) - 1  # largest place that Spark's windows count to
_MOST_CATEGORIES = 2_000
_MOST_DIGITS = 25  # of decimals that are added up: the sum of 10**13 of them still fits into 38 digits
_SHORT = (pl.Int8, pl.Int16, pl.UInt8, pl.UInt16, pl.Boolean)  # the sum of 2**42 of them fits into 64 bits
_ADDS_UP = ("sum", "mean", "cum_sum", "frame_sum")
_NO_SUM_OF_DECIMALS = (
    " for decimals within a unit that become floats first, as in a mean, because a sum of floats depends on how Spark "
    "splits the rows; it has one for integers, such as CAST(amount * 100 AS BIGINT) as a column of the Spark table"
)
_INFINITE = literal(math.inf, DOUBLE)
_SO_FAR = WindowFrame(None, 0)
_JOINS = {"inner": "INNER JOIN", "left": "LEFT JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}


@dataclass
class _StepInput:
    """The rows before a step: a text, and the name and the type of each column there."""

    text: str
    columns: dict[str, str]
    schema: Mapping[str, pl.DataType]

    def names(self, names: Sequence[str]) -> list[str]:
        return [self.columns[name] for name in names]

    def partition(self, names: Sequence[str]) -> str:
        return ", ".join(self.names(names))

    def sorted_by(
        self, order: Sequence[SortColumn], ties: Sequence[str], without: Sequence[str] = (), *, back: bool = False
    ) -> str:
        """Return what rows are sorted by: an order, and then other columns, from the last row to the first if `back`.

        Columns that rows are partitioned by come last, if there are no others: Spark wants at least one.
        """
        first = {one.name for one in order}
        rest = [SortColumn(name) for name in ties if name not in first and name not in without]
        listed = [*order, *rest] or [SortColumn(name) for name in without[:1]]
        return ", ".join(self._sorted(one, back=back) for one in listed)

    def _sorted(self, one: SortColumn, *, back: bool) -> str:
        down, last = one.descending != back, one.nulls_last != back
        place = _place(self.columns[one.name], self.schema[one.name])
        return f"{place} {'DESC' if down else 'ASC'} NULLS {'LAST' if last else 'FIRST'}"


def _place(column: str, dtype: pl.DataType) -> str:
    """Return what a column is sorted by. Categories of an Enum are sorted by their places, as in Polars."""
    if not isinstance(dtype, pl.Enum):
        return column
    if len(dtype.categories) > _MOST_CATEGORIES:
        raise NotInSpark("sorting by an Enum", f" of more than {_MOST_CATEGORIES:,} categories")
    pairs = (f"WHEN {column} = {literal(text, STRING)} THEN {place}L" for place, text in enumerate(dtype.categories))
    return f"CASE {' '.join(pairs)} END" if len(dtype.categories) else "0L"


def _read(found: RowsText, schema: pl.Schema, letter: str) -> _StepInput:
    """Return the rows before a step. Equal floats get equal bytes."""
    for name, dtype in schema.items():
        if stored_type(dtype) is None:
            raise NotInSpark(name, f" for the type {dtype}")
    columns = {name: f"{letter}{place}" for place, name in enumerate(schema)}
    listed = [f"{one_form(found.columns[name], schema[name])} AS {own}" for name, own in columns.items()]
    return _StepInput(select(["here", *listed], f"({found.text})"), columns, schema)


def after_step(source: UnitRows, inputs: Sequence[RowsText], choice: Hash | None = None) -> RowsText:
    """Return rows after a unit-wise step, or refuse a step that has no exact equivalent in Spark.

    `choice` is the salted hash that chooses rows of units whose rows would make too many pairs in a join.
    """
    rows = [
        _read(found, one.schema, letter)
        for found, one, letter in zip(inputs, source.inputs, "ab" * len(inputs), strict=False)
    ]
    named, step = inputs[0].named, source.step
    if isinstance(step, GroupRows | AddWindows):
        for _, value in step.columns:
            if value.function in _ADDS_UP and _was_decimal(source.inputs[0], value.column):
                raise NotInSpark(value.function, _NO_SUM_OF_DECIMALS)
    match step:
        case GroupRows():
            text = _grouped(rows[0], step)
        case AddWindows():
            text = _with_windows(rows[0], step, source.schema)
        case KeepFirst():
            text = _first_rows(rows[0], step)
        case JoinRows():
            keys = unique_columns(source.inputs[1])
            unique = keys is not None and keys <= {theirs for _, theirs in step.on}
            text = _joined(rows[0], rows[1], step, named, None if unique else choice or fresh_hash())
        case LabelRows():
            text = _labelled(rows[0], rows[1], step)
        case StackRows():
            text = " UNION ALL ".join(_output(one, one.columns, list(source.schema)) for one in rows)
        case _:
            raise NotInSpark("unnest")
    columns = {name: f"s{place}" for place, name in enumerate(source.schema)}
    return RowsText(text, columns, named, {own: len(own) for own in columns.values()})


def _was_decimal(rows: PrivateRows, name: str | None) -> bool:
    """Return whether a column is a decimal that was made a float. SQL's mean of a decimal is the mean of such a column.

    With FILTER, it is a CASE of that float and null.
    """
    made = {own: text for step in rows.steps if isinstance(step, WithColumns) for own, text in step.columns}
    found = made.get(name or "")
    branches = found.arguments if isinstance(found, Apply) and found.operation == "case" else (found,)
    casts = [one for one in branches if isinstance(one, Apply) and one.operation == "cast" and one.dtype.is_float()]
    return any(kind_of(one.arguments[0].dtype) == "decimal" for one in casts)


def _output(rows: _StepInput, texts: Mapping[str, str], names: Sequence[str], rest: str = "") -> str:
    """Return the SELECT that ends a step: its columns by their places."""
    listed = [f"{texts[name]} AS s{place}" for place, name in enumerate(names)]
    return select(["here", *listed], f"({rows.text})", rest)


def _here(rows: _StepInput, names: Sequence[str]) -> str:
    """Return a condition that is false in each row. See `types.false_in_each_row`."""
    for name in names:
        return false_in_each_row(rows.columns[name], stored_type(rows.schema[name]) or BIGINT)
    return "FALSE"


# ---------------------------------------------------------------------- functions


@dataclass
class _StepColumns:
    """Columns of two SELECTs inside each other, each text once: places of rows, and functions of several rows."""

    rows: _StepInput
    partition: str
    over: bool
    """Whether functions are windows. Otherwise they are aggregates of a GROUP BY."""
    places: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    def place(self, text: str) -> str:
        return self.places.setdefault(text, f"r{len(self.places)}")

    def function(self, text: str, window: str | None = None) -> str:
        """Return the column of an aggregate over all rows of a group, or of a window that is given."""
        own = f"PARTITION BY {self.partition}" if window is None else window
        text = f"{text} OVER ({own})" if self.over or window is not None else text
        return self.functions.setdefault(text, f"f{len(self.functions)}")


def _grouped(rows: _StepInput, step: GroupRows) -> str:
    parts = _StepColumns(rows, rows.partition(step.keys), over=False)
    texts = {name: _of_group(parts, value) for name, value in step.columns}
    placed = select(["*", *_listed(parts.places)], f"({rows.text})")
    keys = rows.names(step.keys)
    text = select([*keys, *_listed(parts.functions)], f"({placed})", f" GROUP BY {parts.partition}" if keys else "")
    columns = [f"{one} AS s{place}" for place, one in enumerate([*keys, *(texts[name] for name, _ in step.columns)])]
    return select([f"{_here(rows, step.keys)} AS here", *columns], f"({text})")


def _with_windows(rows: _StepInput, step: AddWindows, schema: pl.Schema) -> str:
    parts = _StepColumns(rows, rows.partition(step.partition), over=True)
    texts = dict(rows.columns)
    for name, value in step.columns:
        is_window = UNIT_FUNCTIONS[value.function].window
        texts[name] = _of_row(parts, value, step.partition) if is_window else _of_group(parts, value)
    placed = select(["*", *_listed(parts.places)], f"({rows.text})")
    made = select(["*", *_listed(parts.functions)], f"({placed})")
    return _output(_StepInput(made, rows.columns, rows.schema), texts, list(schema))


def _listed(columns: Mapping[str, str]) -> list[str]:
    return [f"{text} AS {name}" for text, name in columns.items()]


def _argument(rows: _StepInput, value: UnitValue) -> tuple[str, pl.DataType]:
    if value.column is None:
        return "0L", pl.Null()
    return rows.columns[value.column], rows.schema[value.column]


def _of_group(parts: _StepColumns, value: UnitValue) -> str:
    """Return a function of all rows of a group, or refuse it."""
    x, dtype = _argument(parts.rows, value)
    match value.function:
        case "len":
            return parts.function(call("count", "*"))
        case "n_unique" | "n_values" if parts.over:  # Spark has no windows of distinct values
            order = parts.rows.sorted_by([SortColumn(value.column or "")], ())
            rank = parts.place(f"{call('dense_rank')} OVER (PARTITION BY {parts.partition} ORDER BY {order})")
            number = f"CAST({parts.function(call('max', rank))} AS BIGINT)"
            null = parts.function(call("max", f"CASE WHEN {x} IS NULL THEN 1L ELSE 0L END"))
            return number if value.function == "n_unique" else f"({number} - {null})"
        case "n_unique" | "n_values":
            number = parts.function(call("count", f"DISTINCT {x}"))
            null = parts.function(call("max", f"CASE WHEN {x} IS NULL THEN 1L ELSE 0L END"))
            return f"({number} + {null})" if value.function == "n_unique" else number
        case "mean":
            total, count = parts.function(_total(value, x, dtype)), parts.function(call("count", x))
            return f"(CAST({total} AS DOUBLE) / CAST(CASE WHEN {count} > 0 THEN {count} END AS DOUBLE))"
        case "first" | "last":
            ends = parts.rows.sorted_by(value.order, [value.column or ""], back=value.function == "last")
            window = f"PARTITION BY {parts.partition} ORDER BY {ends}"
            if parts.over:
                return parts.function(call("first_value", x), f"{window} {_rows_between(_SO_FAR)}")
            place = parts.place(f"{call('row_number')} OVER ({window})")
            only = f"CASE WHEN {place} = 1 THEN {x} END"
            return (
                _float_extreme("max", only, parts.function) if dtype.is_float() else parts.function(call("max", only))
            )
    return _summary(value, x, dtype, parts.function)


def _summary(value: UnitValue, x: str, dtype: pl.DataType, function: Callable[[str], str]) -> str:
    """Return a count, a sum or an extreme of some rows, or refuse the function."""
    name = value.function.removeprefix("frame_").removeprefix("cum_")
    match name:
        case "count":
            return function(call("count", x))
        case "sum":
            return _whole(function(_total(value, x, dtype)), value.dtype, dtype)
        case "min" | "max" if kind_of(dtype) != "enum":
            if not dtype.is_float():
                return function(call(name, x))
            return _float_extreme(name, f"CASE WHEN {x} <= {_INFINITE} THEN {x} END", function)
        case "any" | "all":
            found = function(call("max" if name == "any" else "min", x))
            return f"CASE WHEN {found} IS NULL THEN {literal(name == 'all', BOOLEAN)} ELSE {found} END"
    raise NotInSpark(value.function, f" within a unit for the type {dtype}")


def _float_extreme(name: str, x: str, function: Callable[[str], str]) -> str:
    """Return the smallest or largest of floats, where NaN is the largest one.

    Sail takes the largest of some infinite numbers for a finite one, so these are looked for by themselves.
    """
    minus = literal(-math.inf, DOUBLE)
    finite = function(call(name, f"CASE WHEN {x} > {minus} AND {x} < {_INFINITE} THEN {x} END"))
    tests = {literal(math.nan, DOUBLE): f"> {_INFINITE}", _INFINITE: f"= {_INFINITE}", minus: f"= {minus}"}
    found = [
        f"WHEN {function(call('max', f'CASE WHEN {x} {test} THEN 1L ELSE 0L END'))} = 1L THEN {value}"
        for value, test in tests.items()
    ]
    inner = f"WHEN {finite} IS NOT NULL THEN {finite}"
    nan, high, low = found
    ordered = [nan, high, inner, low] if name == "max" else [low, inner, high, nan]
    return f"CASE {' '.join(ordered)} END"


def _total(value: UnitValue, x: str, dtype: pl.DataType) -> str:
    """Return the exact sum of whole numbers, which is null if there are none."""
    if dtype.is_float():
        raise NotInSpark(
            value.function,
            " for floats within a unit, because a sum of floats depends on how Spark splits the rows; it has one for "
            f"{'integers' if value.function == 'mean' else 'integers and decimals'}, such as "
            "(pl.col('amount') * 100 + 0.5).floor().cast(pl.Int64)",
        )
    if isinstance(dtype, pl.Decimal) and (dtype.precision or 38) > _MOST_DIGITS:
        raise NotInSpark(value.function, f" within a unit for decimals of more than {_MOST_DIGITS} digits")
    number = f"CASE WHEN {x} THEN 1L WHEN NOT {x} THEN 0L END" if dtype == pl.Boolean else x
    return call("sum", number if dtype in _SHORT else f"CAST({number} AS DECIMAL(28, 0))")


def _whole(total: str, dtype: pl.DataType, given: pl.DataType) -> str:
    """Return a sum in the type of a result. It is 0 for no values, and null if it does not fit into 64 bits."""
    if given in _SHORT:
        return call("coalesce", total, "0L")
    if stored_type(dtype) == WIDE:
        return call("coalesce", total, literal(0, WIDE))
    fits = f"{total} >= {literal(LEAST, WIDE)} AND {total} <= {literal(MOST, WIDE)}"
    return f"CAST(CASE WHEN {total} IS NULL THEN {literal(0, WIDE)} WHEN {fits} THEN {total} END AS BIGINT)"


# ---------------------------------------------------------------------- windows


def _of_row(parts: _StepColumns, value: UnitValue, partition: Sequence[str]) -> str:
    """Return a function of a row and of others of its group, or refuse it."""
    rows = parts.rows
    x, dtype = _argument(rows, value)
    order = rows.sorted_by(value.order, list(rows.columns), partition)
    window = f"PARTITION BY {parts.partition} ORDER BY {order}"
    match value.function:
        case "row_number":  # Spark's own function counts in 32 bits
            return parts.function(call("count", "*"), f"{window} {_rows_between(_SO_FAR)}")
        case "rank" | "dense_rank":
            given = rows.sorted_by(value.order, ())
            own = parts.function(call(value.function), f"PARTITION BY {parts.partition} ORDER BY {given}")
            return f"CAST({own} AS BIGINT)"
        case "shift":
            if abs(value.offset) > _MOST_PLACE:
                raise NotInSpark("shift", f" by more than {_MOST_PLACE:,} rows")
            kind = "lag" if value.offset > 0 else "lead"
            return parts.function(call(kind, x, str(abs(value.offset))), window) if value.offset else x
        case "cum_count":
            return parts.function(call("count", x), f"{window} {_rows_between(_SO_FAR)}")
        case "cum_sum" | "cum_min" | "cum_max":
            so_far = f"{window} {_rows_between(_SO_FAR)}"
            found = _summary(value, x, dtype, lambda text: parts.function(text, so_far))
            if dtype.is_float():  # NaN changes nothing, and is what there is before the first number
                found = call("coalesce", found, literal(math.nan, DOUBLE))
            return f"CASE WHEN {x} IS NOT NULL THEN {found} END"
    start, end, by_value = value.frame or WindowFrame(None, None)
    if by_value:
        raise NotInSpark(value.function, " for a frame by RANGE")
    if any(abs(one) > _MOST_PLACE for one in (start, end) if one is not None):
        raise NotInSpark(value.function, f" for more than {_MOST_PLACE:,} rows")
    if start is not None and end is not None and start > end:
        raise NotInSpark(value.function, " for a frame that ends before it starts")
    back = False
    if end is None and start is not None:  # Spark would add up all rows that follow, for each row anew
        end = -start
        start, back = None, True
        order = rows.sorted_by(value.order, list(rows.columns), partition, back=True)
    framed = f"PARTITION BY {parts.partition} ORDER BY {order} {_rows_between(WindowFrame(start, end))}"
    if value.function in ("frame_first", "frame_last"):
        kind = "first_value" if (value.function == "frame_first") != back else "last_value"
        return parts.function(call(kind, x), framed)
    return _summary(value, x, dtype, lambda text: parts.function(text, framed))


def _rows_between(frame: WindowFrame) -> str:
    start, end, _ = frame
    first = "UNBOUNDED PRECEDING" if start is None else _bound(start)
    return f"ROWS BETWEEN {first} AND {'UNBOUNDED FOLLOWING' if end is None else _bound(end)}"


def _bound(place: int) -> str:
    return f"{abs(place)} {'PRECEDING' if place < 0 else 'FOLLOWING'}" if place else "CURRENT ROW"


# ---------------------------------------------------------------------- first rows


def _first_rows(rows: _StepInput, step: KeepFirst) -> str:
    names = list(rows.columns)
    if set(step.partition) == set(names) and step.rows == 1 and not step.offset:
        columns = list(rows.columns.values())
        distinct = f"SELECT DISTINCT {', '.join(columns)} FROM ({rows.text})"  # noqa: S608
        listed = [f"{own} AS s{place}" for place, own in enumerate(columns)]
        return select([f"{_here(rows, names)} AS here", *listed], f"({distinct})")
    order = rows.sorted_by(step.order, names, step.partition)
    place = f"{call('row_number')} OVER (PARTITION BY {rows.partition(step.partition)} ORDER BY {order}) AS place"
    placed = _StepInput(select(["*", place], f"({rows.text})"), rows.columns, rows.schema)
    most = min(step.offset + step.rows, _MOST_PLACE)
    after = f" AND place > {min(step.offset, _MOST_PLACE)}" if step.offset else ""
    return _output(placed, rows.columns, names, f" WHERE place <= {most}{after}")


# ---------------------------------------------------------------------- joins


def _joined(first: _StepInput, second: _StepInput, step: JoinRows, named: Named, choice: Hash | None) -> str:
    """Return the rows of a join. Without a `choice`, steps make sure that keys of the second table are unique."""
    mine, theirs = first.names([one for one, _ in step.on]), second.names([one for _, one in step.on])
    here, there = f"({first.text})", f"({second.text})"
    if step.how in ("inner", "left") and choice is not None:
        here, there = named.table(first.text), named.table(second.text)
        unit = list(step.unit) or [one for one, _ in step.on]
        owner, other = first.names(unit), second.names([dict(step.on)[name] for name in unit])
        heavy = named.table(_heavy_units(here, there, mine, theirs, owner))
        here = named.table(_some_rows(first, here, heavy, owner, owner, choice))
        there = named.table(_some_rows(second, there, heavy, other, owner, choice))
    listed = [f"l.{own}" for own in first.columns.values()]
    if step.how in ("inner", "left"):
        listed += [f"r.{second.columns[own]}" for own, _ in step.columns]
    columns = [f"{text} AS s{place}" for place, text in enumerate(listed)]
    on = " AND ".join(f"l.{one} = r.{two}" for one, two in zip(mine, theirs, strict=True))
    return select(["l.here AS here", *columns], f"{here} l {_JOINS[step.how]} {there} r", f" ON {on}")


def _heavy_units(here: str, there: str, mine: Sequence[str], theirs: Sequence[str], unit: Sequence[str]) -> str:
    """Return the units whose rows would make more pairs than are allowed, and more than they have rows."""
    counts = [
        select([*keys, f"CAST({call('count', '*')} AS DOUBLE) AS {name}"], table, f" GROUP BY {', '.join(keys)}")
        for keys, table, name in ((mine, here, "n"), (theirs, there, "m"))
    ]
    on = " AND ".join(f"{one} = {two}" for one, two in zip(mine, theirs, strict=True))
    sums = [f"{call('sum', 'n * m')} AS pairs", f"{call('sum', 'n + m')} AS size"]
    units = ", ".join(unit)
    per_unit = select([units, *sums], f"({counts[0]}) INNER JOIN ({counts[1]}) ON {on}", f" GROUP BY {units}")
    return select([units], f"({per_unit})", f" WHERE pairs > {MOST_PAIRS} AND pairs > size")


def _some_rows(rows: _StepInput, table: str, heavy: str, own: Sequence[str], unit: Sequence[str], choice: Hash) -> str:
    """Return the rows of one side of a join, and only some of those of heavy units, chosen by salted hashes."""
    names = ["here", *rows.columns.values()]
    all_names, plain = [f"l.{one} AS {one}" for one in names], ", ".join(names)
    on = " AND ".join(f"l.{one} = h.{two}" for one, two in zip(own, unit, strict=True))
    others = select(all_names, f"{table} l LEFT ANTI JOIN {heavy} h", f" ON {on}")
    many = select(all_names, f"{table} l LEFT SEMI JOIN {heavy} h", f" ON {on}")
    hashed = select([plain, f"{choice([*rows.columns.values(), 'here'])} AS hash"], f"({many})")
    order = f"hash, {rows.sorted_by((), list(rows.columns))}"
    place = f"{call('row_number')} OVER (PARTITION BY {', '.join(own)} ORDER BY {order}) AS place"
    kept = select([plain], f"({select([plain, place], f'({hashed})')})", f" WHERE place <= {KEPT_IN_JOIN}")
    return f"{others} UNION ALL {kept}"


def _labelled(first: _StepInput, second: _StepInput, step: LabelRows) -> str:
    """Return the rows of a table with the units of another one, the smallest one if a key has several there."""
    keys, units = second.names([theirs for _, theirs in step.on]), second.names([own for own, _ in step.unit])
    there = " AND ".join(f"{one} IS NOT NULL" for one in [*keys, *units])
    order = second.sorted_by([SortColumn(own) for own, _ in step.unit], ())
    place = f"{call('row_number')} OVER (PARTITION BY {', '.join(keys)} ORDER BY {order}) AS place"
    placed = select([*keys, *units, place], f"({second.text})", f" WHERE {there}")
    labels = select([*keys, *units], f"({placed})", " WHERE place = 1")
    on = " AND ".join(f"l.{first.columns[mine]} = r.{one}" for (mine, _), one in zip(step.on, keys, strict=True))
    listed = [*(f"l.{own}" for own in first.columns.values()), *(f"r.{own}" for own in units)]
    columns = [f"{text} AS s{place}" for place, text in enumerate(listed)]
    return select(["l.here AS here", *columns], f"({first.text}) l INNER JOIN ({labels}) r", f" ON {on}")
