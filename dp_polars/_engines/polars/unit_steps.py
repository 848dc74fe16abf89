"""Unit-wise steps, computed in memory: the rows of their inputs are read, combined and held until they are bounded.

What one unit can change: every function below gives a group of rows a result that depends on the rows of that group
alone, in whichever order they come. Where Polars does not promise that, it is not asked: floats are split into integers
before they are added up, because Polars adds up parts that depend on where other rows end; values that depend on an
order are taken from rows that are sorted by all their columns; integers are added up in 128 bits.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.codes import Salts, plain_form
from dp_polars._engines.polars.held_frame import HeldFrame
from dp_polars._engines.polars.program import RowCountError
from dp_polars._engines.polars.scan import collect, held_rows, needed_columns, scan_rows
from dp_polars._engines.polars.units import combined
from dp_polars._engines.polars.value_codes import one_form
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.unit_steps import (
    KEPT_IN_JOIN,
    MOST_PAIRS,
    OWN_IN_STEPS,
    AddWindows,
    GroupRows,
    JoinRows,
    KeepFirst,
    LabelRows,
    StackRows,
    UnitRows,
    UnnestRows,
    unique_columns,
)
from dp_polars._expressions.types import MOST_TEXT
from dp_polars._expressions.unit_functions import (
    UNIT_FUNCTIONS,
    SortColumn,
    UnitValue,
    WindowFrame,
    is_sortable,
    share_of,
)

_BITS = 32  # of a digit of a float: the sum of 2**31 digits still fits into 64 bits
_SLICE = 1 << 16  # rows that are looked up at a time
_LONG = 256  # rows of a group from which it is added up by itself
_MOST_SUMMED_DIGITS = 28  # the sum of 10**10 decimals of this many digits still fits into 128 bits
_HALF = 2**64
_MOST_DECIMAL = 10**38 - 1
_NAMES = (
    "group",
    "first",
    "place",
    "size",
    "pairs",
    "hash",
    "power",
    "digit",
    "mean",
    "square",
    "count",
    "high",
    "low",
)
_GROUP, _FIRST, _PLACE, _SIZE, _PAIRS, _HASH, _POWER, _DIGIT, _MEAN, _SQUARE, _COUNT, _HIGH, _LOW = (
    f"{OWN_IN_STEPS}{name}" for name in _NAMES
)
_VARIANCES = {"variance": 1, "variance_pop": 0}
"""How many values less than there are a variance is divided by."""


def without_unit_steps(rows: PrivateRows, parts: int = 1) -> PrivateRows:
    """Compute the unit-wise steps of rows, and return the same rows in memory, with the row-wise steps that follow.

    With several `parts`, the rows before the last step are read once per part, and only some of its groups are computed
    at a time. The result is the same.
    """
    source = rows.source
    if not isinstance(source, UnitRows):
        return rows
    wanted = [name for name in source.schema if name in needed_columns(rows)] or list(source.schema)[:1]
    if parts == 1 or isinstance(source.step, StackRows | UnnestRows):
        frame = _computed(source, wanted, None)
    else:
        salts = Salts(lambda: secrets.randbits(64))
        frame = pl.concat(_computed(source, wanted, _GroupsPart(salts, part, parts)) for part in range(parts))
    return PrivateRows(held_rows(HeldFrame(frame)).source, rows.steps)


@dataclass(frozen=True, repr=False)
class _GroupsPart:
    """Some of the groups of a step. A hash of the partition columns decides, so a group is in one part as a whole."""

    salts: Salts
    part: int
    parts: int

    def of(self, names: Sequence[str], schema: pl.Schema) -> Callable[[pl.DataFrame], pl.DataFrame]:
        """Return a function that picks the rows of this part. Both sides of a join count columns by their place."""
        hashes = [
            plain_form(pl.col(name), schema[name]).hash(self.salts.of(f"part {place}")).alias(name)
            for place, name in enumerate(names)
        ]

        def picked(batch: pl.DataFrame) -> pl.DataFrame:
            words = combined(batch.select(hashes), names)
            return batch.filter(pl.Series(words % np.uint64(self.parts) == np.uint64(self.part)))

        return picked


def _computed(source: UnitRows, wanted: Sequence[str], part: _GroupsPart | None) -> pl.DataFrame:
    """Return the columns that are wanted of the rows after a step, for some of its groups or for all."""
    step = source.step
    match step:
        case GroupRows():
            values = [(name, one) for name, one in step.columns if name in wanted]
            named = {*step.keys, *_read_by(one for _, one in values)}
            return _grouped(_read(source.inputs[0], named, step.keys, part), step.keys, values)
        case AddWindows():
            values = [(name, one) for name, one in step.columns if name in wanted]
            named = {*step.partition, *wanted, *_read_by(one for _, one in values)}
            # Rows that tie are sorted by all columns, whichever of them are wanted.
            everything = any(one.order for _, one in values)
            read = _read(source.inputs[0], None if everything else named, step.partition, part)
            return _with_windows(read, step.partition, values).select(wanted)
        case KeepFirst():
            return _first_rows(_read(source.inputs[0], None, step.partition, part), step).select(wanted)
        case JoinRows():
            mine, theirs = [own for own, _ in step.on], [own for _, own in step.on]
            # A unit is in one part as a whole, because its pairs are limited together.
            unit = list(step.unit or mine)
            other = [dict(step.on)[name] for name in unit]
            first = _read(source.inputs[0], {*wanted, *mine}, unit, part)
            taken = {own: name for own, name in step.columns if name in wanted}
            second = _read(source.inputs[1], {*taken, *theirs}, other, part)
            keys = unique_columns(source.inputs[1])
            unique = keys is not None and keys <= set(theirs)
            return _joined(first, second, step, taken, unique=unique).select(wanted)
        case LabelRows():
            mine, theirs = [own for own, _ in step.on], [own for _, own in step.on]
            named = {*wanted, *mine} - {name for _, name in step.unit}
            first = _read(source.inputs[0], named, mine, part)
            second = _read(source.inputs[1], {*theirs, *(own for own, _ in step.unit)}, theirs, part)
            return _labelled(first, second, step).select(wanted)
        case UnnestRows():
            read = _read(source.inputs[0], {*wanted, step.column, *step.unit} - {step.name})
            return _unnested(read, step, [name for name in wanted if name != step.name]).select(wanted)
    return pl.concat([_read(one, set(wanted)).select(wanted) for one in source.inputs])


def _read_by(values: Iterable[UnitValue]) -> set[str]:
    found: set[str] = set()
    for one in values:
        found |= {own.name for own in one.order} | ({one.column} if one.column is not None else set())
    return found


def _read(
    rows: PrivateRows, names: set[str] | None, partition: Sequence[str] = (), part: _GroupsPart | None = None
) -> pl.DataFrame:
    """Read rows, with some of the columns or all of them, and those of a part only. Equal floats get equal bytes."""
    columns = [name for name in rows.schema if names is None or name in names] or list(rows.schema)[:1]
    scan = scan_rows(without_unit_steps(rows.keep(columns)))
    scan.begin(None if part is None else part.of(partition, rows.schema))
    if scan.batches is None:
        frame = collect(scan.frame)
    else:  # a table hands its batches over faster than through the streaming engine
        with closing(scan.batches()) as batches:
            read = [scan.evaluation.passed(batch()) for batch in batches]
        frame = pl.concat(read, rechunk=False) if read else pl.DataFrame(schema=scan.frame.collect_schema())
    scan.check(frame.height)
    return frame.with_columns(one_form(pl.col(name), dtype) for name, dtype in frame.schema.items() if dtype.is_float())


# ---------------------------------------------------------------------- groups


def _grouped(frame: pl.DataFrame, keys: Sequence[str], values: Sequence[tuple[str, UnitValue]]) -> pl.DataFrame:
    """Return one row per group, with its keys and values."""
    schema = frame.schema
    floats = dict.fromkeys(name for _, one in values if (name := _added_floats(one, schema)) is not None)
    sums = {name: ExactSums(name, place) for place, name in enumerate(floats)}
    short = [(name, value) for name, value in values if not _is_long(value, schema)]
    plain = [(name, value) for name, value in short if value.function not in _VARIANCES]
    parts = [_aggregate(value, schema).alias(name) for name, value in plain if _added_floats(value, schema) is None]
    pieces = [part for one in sums.values() for part in one.parts()]
    long = dict.fromkeys(value.column or "" for _, value in values if _is_long(value, schema))
    for place, column in enumerate(long):
        halves = zip((_HIGH, _LOW), _halves(pl.col(column)), strict=True)
        pieces += [half.sum().alias(f"{prefix} {place}") for prefix, half in halves]
    groups = collect(frame.lazy().group_by(keys).agg(*parts, *pieces, pl.len().alias(_SIZE)))
    if int(groups[_SIZE].sum()) != frame.height:
        raise RowCountError
    done = []
    for name, value in values:
        own = _added_floats(value, schema)
        if value.function in _VARIANCES:
            made = _variances(frame, groups, keys, value).alias(name)
        elif _is_long(value, schema):
            place = list(long).index(value.column or "")
            done.append(_from_halves(groups[f"{_HIGH} {place}"], groups[f"{_LOW} {place}"], value.dtype).alias(name))
            continue
        elif own is None:
            made = groups[name]
        else:
            made = sums[own].finish(frame, groups, keys, mean=value.function == "mean").alias(name)
        done.append(_narrowed(made, value.dtype) if value.function == "sum" else made.cast(value.dtype))
    return groups.select(keys).with_columns(done)


def _variances(frame: pl.DataFrame, groups: pl.DataFrame, keys: Sequence[str], value: UnitValue) -> pl.Series:
    """Return the variance of each group, which is null if there are too few values.

    What one unit can change: its own groups. Differences from a group's mean look at that group alone, and their sums
    and those of their squares are exact, in whichever order rows come.
    """
    column, dtype = value.column or "", pl.Float64()
    number = frame.lazy().select(*keys, pl.col(column).cast(dtype).alias(_DIGIT))
    numbers = collect(number)
    means = _grouped(numbers, keys, [(_MEAN, UnitValue("mean", _DIGIT, (), 0, dtype))])
    away = pl.col(_DIGIT) - pl.col(_MEAN)
    apart = collect(
        numbers.lazy()
        .join(means.lazy(), on=keys, how="left", nulls_equal=True)
        .select(*keys, away.alias(_MEAN), (away * away).alias(_SQUARE))
    )
    if apart.height != frame.height:
        raise RowCountError
    wanted = [(name, UnitValue("sum", name, (), 0, dtype)) for name in (_MEAN, _SQUARE)]
    sums = _grouped(apart, keys, [*wanted, (_COUNT, UnitValue("count", _MEAN, (), 0, pl.Int64()))])
    count = pl.col(_COUNT)
    # The differences add up to zero, but for the mean's last digit.
    made = (pl.col(_SQUARE) - pl.col(_MEAN) * pl.col(_MEAN) / count) / (count - _VARIANCES[value.function])
    in_order = (
        groups.lazy().select(keys).join(sums.lazy(), on=keys, how="left", nulls_equal=True, maintain_order="left")
    )
    enough = count > _VARIANCES[value.function]
    return collect(in_order.select(pl.when(enough & (made < 0)).then(0.0).when(enough).then(made))).to_series()


def _added_floats(value: UnitValue, schema: pl.Schema) -> str | None:
    """Return the column of floats that a function adds up, if it does."""
    added = value.function in ("sum", "mean") and value.column is not None and schema[value.column].is_float()
    return value.column if added else None


def _aggregate(value: UnitValue, schema: pl.Schema) -> pl.Expr:
    """Return a function of a group as an expression whose value does not depend on the order of the rows."""
    if value.function == "len":
        return pl.len().cast(pl.Int64)
    name = value.column or ""
    column, dtype = pl.col(name), schema[name]
    match value.function:
        case "count":
            return column.count().cast(pl.Int64)
        case "n_unique":
            return column.n_unique().cast(pl.Int64)
        case "n_values":
            return column.drop_nulls().n_unique().cast(pl.Int64)
        case "sum":
            return _whole(column, dtype).sum()
        case "mean":
            return _whole(column, dtype).sum().cast(pl.Float64) / pl.when(column.count() > 0).then(column.count())
        case "median":
            return _without_nan(column, dtype).cast(pl.Float64).median()
        case "quantile" if isinstance(value.parameter, float):
            return _without_nan(column, dtype).cast(pl.Float64).quantile(value.parameter, "linear")
        case "quantile_value" if isinstance(value.parameter, float):
            return _nth_value(_without_nan(column, dtype).drop_nulls(), value.parameter)
        case "mode":
            return _without_nan(column, dtype).drop_nulls().mode().min()
        case "min":
            return _without_nan(column, dtype).min()
        case "max":
            return _without_nan(column, dtype).max()
        case "any":
            return column.any(ignore_nulls=True)
        case "all":
            return column.all(ignore_nulls=True)
    ordered = column.sort_by(
        [*(one.name for one in value.order), name],  # rows that tie in both have the same value
        descending=[*(one.descending for one in value.order), False],
        nulls_last=[*(one.nulls_last for one in value.order), False],
    )
    if value.function == "join":
        # The length of what one unit's texts become is limited, as that of all texts is, before they are joined: a long
        # separator between many short texts must not fill the memory.
        between = str(value.parameter or "")
        texts = ordered.drop_nulls().str.head(MOST_TEXT)
        until = (texts.str.len_chars().cast(pl.Int64) + len(between)).cum_sum()
        kept = texts.filter(until.shift(1, fill_value=0) < MOST_TEXT + len(between))
        return kept.str.join(between, ignore_nulls=True).str.head(MOST_TEXT)
    return ordered.first() if value.function == "first" else ordered.last()


def _nth_value(column: pl.Expr, level: float) -> pl.Expr:
    """Return the smallest value that at least this share of the values does not exceed."""
    share = share_of(level)
    count = column.len().cast(pl.Int64)
    place = (count * share.numerator + (share.denominator - 1)) // share.denominator - 1
    return column.sort().get(pl.max_horizontal(place, pl.lit(0, pl.Int64)), null_on_oob=True)


def _whole(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return integers, and what is stored as integers, in 128 bits, which no sum of them exceeds."""
    return (column.to_physical() if dtype.is_temporal() or dtype.is_decimal() else column).cast(pl.Int128)


def _without_nan(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    return column.fill_nan(None) if dtype.is_float() else column


def _narrowed(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return integers of 128 bits in the type of a sum. Those that do not fit are null."""
    if dtype.is_float():
        return column
    if isinstance(dtype, pl.Decimal):
        fits = pl.all().is_between(-_MOST_DECIMAL, _MOST_DECIMAL)
        return _as_decimal(column.to_frame().select(pl.when(fits).then(pl.all())).to_series(), dtype)
    return column.cast(pl.Int64, strict=False).cast(dtype)


def _is_long(value: UnitValue, schema: pl.Schema) -> bool:
    """Return whether a function adds up decimals of so many digits that their sum may be beyond 128 bits."""
    dtype = schema[value.column] if value.column is not None else None
    added = value.function in ("sum", "cum_sum", "frame_sum") and isinstance(dtype, pl.Decimal)
    return added and (getattr(dtype, "precision", None) or 38) > _MOST_SUMMED_DIGITS


def _halves(column: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Return stored decimals as multiples of 2**64 and the remainders. Sums of either fit into 128 bits."""
    half, whole = pl.lit(_HALF, dtype=pl.Int128), column.to_physical().cast(pl.Int128)
    high = whole // half
    return high, whole - high * half


def _from_halves(high: pl.Series, low: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return the decimals whose halves were added up. Those that do not fit into 38 digits are null."""
    half = pl.lit(_HALF, dtype=pl.Int128)
    carried = pl.DataFrame({_HIGH: high, _LOW: low}).select(
        pl.col(_HIGH) + pl.col(_LOW) // half, pl.col(_LOW) - pl.col(_LOW) // half * half
    )
    # Only numbers that surely fit into 128 bits are put together; some of them still have 39 digits.
    most = pl.lit(_MOST_DECIMAL // _HALF, dtype=pl.Int128)
    fits = pl.col(_HIGH).is_between(-most - 1, most)
    whole = carried.select(pl.when(fits).then(pl.col(_HIGH)) * half + pl.col(_LOW)).to_series()
    return _narrowed(whole, dtype)


def _as_decimal(column: pl.Series, dtype: pl.Decimal) -> pl.Series:
    """Return stored integers as decimals, by way of texts, because Polars would take them for whole numbers."""
    digits = column.abs().cast(pl.String).str.zfill(dtype.scale + 1)
    cut = digits.str.len_chars().cast(pl.Int64) - dtype.scale
    parts = pl.DataFrame({"digits": digits, "cut": cut, "sign": column < 0})
    text = parts.select(
        pl.when(pl.col("sign")).then(pl.lit("-")).otherwise(pl.lit(""))
        + pl.col("digits").str.head(pl.col("cut"))
        + pl.lit(".")
        + pl.col("digits").str.slice(pl.col("cut"))
    ).to_series()
    return text.cast(dtype, strict=False).alias(column.name)


class ExactSums:
    """Sums of floats that depend on which floats are added up, and not on their order.

    Every float is a sum of three neighbouring powers of 2**32, each times a digit: a whole number below 2**32. Digits
    are added up exactly, for each group and each power by itself, and a group has rows for its own powers only. So
    neither a sum nor the memory depends on how large or small the floats of other groups are. The sum and the mean of a
    column share the digits.
    """

    def __init__(self, name: str, number: int) -> None:
        self._name, self._prefix = name, f"{OWN_IN_STEPS}sum {number} "
        self._total: NDArray[np.float64] | None = None

    def parts(self) -> list[pl.Expr]:
        """Return what is counted in each group: how many floats are there, and how many are not finite."""
        value = pl.col(self._name)
        counts = {
            "count": value.is_not_null(),
            "nan": value.is_nan(),
            "high": value == math.inf,
            "low": value == -math.inf,
        }
        return [one.cast(pl.Int64).sum().alias(f"{self._prefix}{name}") for name, one in counts.items()]

    def finish(self, frame: pl.DataFrame, groups: pl.DataFrame, keys: Sequence[str], *, mean: bool) -> pl.Series:
        """Return the sum of each group, or the mean, which is null for no floats."""
        if self._total is None:
            self._total = self._finite(frame, groups, keys)
        total = self._total
        count, nan, high, low = (groups[f"{self._prefix}{name}"].to_numpy() for name in ("count", "nan", "high", "low"))
        total = np.where(high > 0, math.inf, np.where(low > 0, -math.inf, total))
        total = np.where((nan > 0) | ((high > 0) & (low > 0)), math.nan, total) + 0.0  # one form of zero
        if not mean:
            return pl.Series(total)
        means = np.divide(total, count, where=count > 0, out=np.zeros(len(total)))
        return pl.Series(means).set(pl.Series(count == 0), None)

    def _finite(self, frame: pl.DataFrame, groups: pl.DataFrame, keys: Sequence[str]) -> NDArray[np.float64]:
        """Return the sum of the finite floats of each group."""
        added = _added_digits(frame, self._name, keys)
        numbered = groups.lazy().select(keys).with_row_index(_PLACE)
        added = collect(added.lazy().join(numbered, on=keys, how="left", nulls_equal=True)).sort(_POWER)
        place, digits = added[_PLACE].to_numpy(), added[_DIGIT].to_numpy().astype(np.float64)
        powers, sizes = np.unique(added[_POWER].to_numpy(), return_counts=True)
        ends = np.cumsum(sizes)
        total = np.zeros(groups.height)
        with np.errstate(invalid="ignore", over="ignore"):
            # From the smallest power on. A group has at most one row for each of them.
            for power, start, end in zip(powers, ends - sizes, ends, strict=True):
                half = 2.0 ** (int(power) * _BITS // 2)  # the power itself may be beyond what a float holds
                total[place[start:end]] += digits[start:end] * half * half
        return total


def _added_digits(frame: pl.DataFrame, name: str, keys: Sequence[str]) -> pl.DataFrame:
    """Return the digits of the finite floats of a column, added up for each group and each power of 2**32."""
    values = frame[name].cast(pl.Float64).fill_null(0.0).to_numpy()
    mantissas, exponents = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = np.abs(mantissas * 2.0**53).astype(np.int64)
    powers, shifts = np.divmod(exponents.astype(np.int64) - 53, _BITS)
    low, mask = (whole & (2**_BITS - 1)) << shifts, 2**_BITS - 1
    high = ((whole >> _BITS) << shifts) + (low >> _BITS)
    signs = np.where(values < 0, np.int64(-1), np.int64(1))
    digits = [signs * (low & mask), signs * (high & mask), signs * (high >> _BITS)]
    names = [f"{_DIGIT} {place}" for place in range(len(digits))]
    rows = frame.select(keys).with_columns(
        pl.Series(_POWER, powers), *(pl.Series(own, digit) for own, digit in zip(names, digits, strict=True))
    )
    groups = collect(rows.lazy().group_by(*keys, _POWER).agg(pl.col(names).sum()))
    each = [groups.lazy().select(*keys, pl.col(_POWER) + place, pl.col(own).alias(_DIGIT))
            for place, own in enumerate(names)]  # fmt: skip
    return collect(pl.concat(each).group_by(*keys, _POWER).agg(pl.col(_DIGIT).sum()))


# ---------------------------------------------------------------------- windows


def _with_windows(
    frame: pl.DataFrame, partition: Sequence[str], values: Sequence[tuple[str, UnitValue]]
) -> pl.DataFrame:
    """Return rows with the values of windows. Their order changes, which nothing after this step looks at."""
    given = frame.columns
    plain = [(name, one) for name, one in values if not UNIT_FUNCTIONS[one.function].window]
    if plain:
        groups = _grouped(frame, partition, plain)
        height = frame.height
        frame = collect(frame.lazy().join(groups.lazy(), on=partition, how="left", nulls_equal=True))
        if frame.height != height:
            raise RowCountError
    orders = dict.fromkeys(one.order for _, one in values if UNIT_FUNCTIONS[one.function].window)
    for order in orders:
        ordered = _in_order(frame, partition, order, given)
        made = [
            _window(ordered, one, name)
            for name, one in values
            if UNIT_FUNCTIONS[one.function].window and one.order == order
        ]
        frame = ordered.select(frame.columns).with_columns(made)
    return frame


def _in_order(
    frame: pl.DataFrame, partition: Sequence[str], order: Sequence[SortColumn], ties: Sequence[str]
) -> pl.DataFrame:
    """Return rows sorted by partition, by an order, and then by all columns named in `ties`.

    Further columns give the number of the row's group, whether the row differs from the one before it in the columns of
    the order, the row's place in its group, and the size of the group.
    """
    first = [*partition, *(one.name for one in order)]
    rest = [name for name in ties if name not in first]
    frame = frame.sort(
        [*first, *rest],
        descending=[False] * len(partition) + [one.descending for one in order] + [False] * len(rest),
        nulls_last=[False] * len(partition) + [one.nulls_last for one in order] + [False] * len(rest),
    )
    starts = _changes(frame, partition)
    groups = np.cumsum(starts) - 1
    begin = np.flatnonzero(starts)
    sizes = np.diff(np.append(begin, frame.height))
    return frame.with_columns(
        pl.Series(_GROUP, groups, dtype=pl.Int64),
        pl.Series(_FIRST, _changes(frame, first)),
        pl.Series(_PLACE, np.arange(frame.height) - begin[groups], dtype=pl.Int64),
        pl.Series(_SIZE, sizes[groups], dtype=pl.Int64),
    )


def _changes(frame: pl.DataFrame, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return which rows differ from the row before them in these columns. The first row does."""
    changed = np.zeros(frame.height, np.bool_)
    changed[:1] = True
    for name in names:
        column = frame[name]
        changed[1:] |= column.slice(1).ne_missing(column.slice(0, max(frame.height - 1, 0))).to_numpy()
    return changed


def _window(frame: pl.DataFrame, value: UnitValue, name: str) -> pl.Series:
    """Return the values of a function for rows that are sorted, with their groups and places."""
    group, place, size = pl.col(_GROUP), pl.col(_PLACE), pl.col(_SIZE)
    column = pl.col(value.column) if value.column is not None else pl.lit(None)
    dtype = frame.schema[value.column] if value.column is not None else pl.Null()
    match value.function:
        case "row_number":
            made = place + 1
        case "rank":  # the place of the first of the rows that tie with this one
            made = pl.when(pl.col(_FIRST)).then(place + 1).forward_fill()
        case "dense_rank":
            before = pl.col(_FIRST).cast(pl.Int64).cum_sum()
            made = before - pl.when(place == 0).then(before).forward_fill() + 1
        case "shift":
            inside = place >= value.offset if value.offset >= 0 else place < size + value.offset
            made = pl.when(inside).then(column.shift(value.offset))
        case "cum_count":
            total = column.is_not_null().cast(pl.Int64).cum_sum()
            made = total - pl.when(place == 0).then(total - column.is_not_null().cast(pl.Int64)).forward_fill()
        case "cum_sum" if dtype.is_float():
            floats = frame[value.column or ""].cast(pl.Float64)
            return _running_sums(frame, floats).set(floats.is_null(), None).alias(name)
        case function if function.startswith("frame_"):
            return _of_frame(frame, value).cast(value.dtype).alias(name)
        case "cum_sum" if _is_long(value, frame.schema):
            high, low = (frame.select(half.cum_sum().over(group)).to_series() for half in _halves(column))
            return _from_halves(high, low, value.dtype).set(frame[value.column or ""].is_null(), None).alias(name)
        case "cum_sum":
            made = pl.when(column.is_not_null()).then(_whole(column, dtype).cum_sum().over(group))
        case _:
            numbers = _without_nan(column, dtype)
            made = (numbers.cum_min() if value.function == "cum_min" else numbers.cum_max()).over(group)
            if dtype.is_float():  # NaN changes nothing, and is what there is before the first number
                made = pl.when(column.is_not_null()).then(made.forward_fill().over(group).fill_null(math.nan))
    found = frame.select(made.alias(name)).to_series()
    return _narrowed(found, value.dtype) if value.function == "cum_sum" else found.cast(value.dtype)


def _running_sums(frame: pl.DataFrame, column: pl.Series) -> pl.Series:
    """Return running sums of floats. Each group is added up from its first row on, one value after the other."""
    numbers, sizes = column.fill_null(0.0).to_numpy().copy(), frame[_SIZE].to_numpy()
    rows = np.flatnonzero(frame[_PLACE].to_numpy() == 0)
    with np.errstate(invalid="ignore", over="ignore"):
        for row in rows[sizes[rows] > _LONG]:
            np.cumsum(numbers[row : row + sizes[row]], out=numbers[row : row + sizes[row]])
        # The other groups take one step at a time together. Additions of a group never meet those of another.
        rows = rows[sizes[rows] <= _LONG]
        for step in range(1, _LONG):
            rows = rows[sizes[rows] > step]
            if not len(rows):
                break
            numbers[rows + step] += numbers[rows + step - 1]
    return pl.Series(numbers + 0.0)


# ---------------------------------------------------------------------- frames


def _of_frame(frame: pl.DataFrame, value: UnitValue) -> pl.Series:
    """Return a function of some rows around each row, of rows that are sorted, with their groups and places.

    What one unit can change: its own rows, because a frame ends where its group does. Prefix sums run over all rows,
    but they are whole numbers, so what other groups add to them cancels out exactly.
    """
    ends = value.frame or WindowFrame(None, None)
    first, last = (_ends_by_value if ends.by_value else _ends_by_row)(frame, ends, value.order)
    last = np.maximum(last, first - 1)  # a frame without rows ends before it starts
    column = frame[value.column or ""]
    match value.function:
        case "frame_count":
            counts = np.concatenate([[0], np.cumsum(column.is_not_null().to_numpy(), dtype=np.int64)])
            return pl.Series(counts[last + 1] - counts[first])
        case "frame_sum" if column.dtype.is_float():
            return _float_sums(frame, column.cast(pl.Float64).fill_null(0.0), ends, first, last)
        case "frame_sum" if _is_long(value, frame.schema):
            high, low = (_whole_sums(frame, half, first, last) for half in _halves(pl.col(column.name)))
            return _from_halves(high, low, value.dtype)
        case "frame_sum":
            return _narrowed(_whole_sums(frame, _whole(pl.col(column.name), column.dtype), first, last), value.dtype)
        case "frame_min" | "frame_max":
            return _extremes(frame, value, first, last)
    place = first if value.function == "frame_first" else last
    found = column.gather(np.clip(place, 0, max(frame.height - 1, 0)))
    return found.set(pl.Series(last < first), None)


def _whole_sums(frame: pl.DataFrame, whole: pl.Expr, first: NDArray[np.int64], last: NDArray[np.int64]) -> pl.Series:
    """Return sums of whole numbers over frames: the difference of two sums over all rows up to there."""
    sums = frame.select(whole.fill_null(0).cum_sum().alias(_DIGIT)).to_series()
    sums = pl.concat([pl.Series(_DIGIT, [0], dtype=pl.Int128), sums])
    return sums.gather(last + 1) - sums.gather(first)


def _ends_by_row(
    frame: pl.DataFrame, ends: WindowFrame, order: Sequence[SortColumn]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last row of each frame, whose ends are counted in rows."""
    place, size = frame[_PLACE].to_numpy(), frame[_SIZE].to_numpy()
    begin = np.arange(frame.height) - place
    first = begin + (np.zeros_like(place) if ends.start is None else np.clip(place + ends.start, 0, size))
    return first, begin + (size - 1 if ends.end is None else np.clip(place + ends.end, -1, size - 1))


def _ends_by_value(
    frame: pl.DataFrame, ends: WindowFrame, order: Sequence[SortColumn]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last row of each frame, whose ends are distances from the row's own value.

    What one unit can change: its own rows, because values are looked for among those of the row's group. Rows without a
    value are a frame of their own, as in SQL.
    """
    (by,) = order
    column, groups, size = frame[by.name], frame[_GROUP].to_numpy(), frame[_SIZE].to_numpy()
    begin = np.arange(frame.height) - frame[_PLACE].to_numpy()
    numbers = column.to_physical().cast(pl.Int64).fill_null(0).to_numpy()
    numbers = ~numbers if by.descending else numbers  # the same distances, in the other direction
    missing = column.is_null().to_numpy()
    nulls = np.bincount(groups[missing], minlength=int(groups[-1]) + 1 if len(groups) else 0)[groups]
    low = begin if by.nulls_last else begin + nulls
    high = low + size - nulls
    alone = begin + (size - nulls if by.nulls_last else 0)
    first, last = begin, begin + size - 1
    if ends.start is not None:
        found = _lower_bounds(numbers, low, high, _moved(numbers, ends.start), among_equal=False)
        first = np.where(missing, alone, found)
    if ends.end is not None:
        found = _lower_bounds(numbers, low, high, _moved(numbers, ends.end), among_equal=True) - 1
        last = np.where(missing, alone + nulls - 1, found)
    return first, last


def _moved(numbers: NDArray[np.int64], distance: int) -> NDArray[np.int64]:
    """Return numbers that are moved by a distance, or the ends of the type where they would be beyond."""
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    room = np.int64(most - distance if distance >= 0 else least - distance)
    beyond = numbers > room if distance >= 0 else numbers < room
    return np.where(beyond, np.int64(most if distance >= 0 else least), np.where(beyond, 0, numbers) + distance)


def _lower_bounds(
    numbers: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    wanted: NDArray[np.int64],
    *,
    among_equal: bool,
) -> NDArray[np.int64]:
    """Return for each row the first place from `low` on, before `high`, with a number that is not below the wanted one.

    With `among_equal`, it is the first place with a larger number. The numbers between the two are sorted.
    """
    low, high = low.copy(), high.copy()
    rows = np.flatnonzero(low < high)
    while len(rows):
        middle = (low[rows] + high[rows]) >> 1
        found, own = numbers[middle], wanted[rows]
        above = found <= own if among_equal else found < own
        low[rows[above]] = middle[above] + 1
        high[rows[~above]] = middle[~above]
        rows = rows[low[rows] < high[rows]]
    return low


def _combined(
    numbers: NDArray[Any], first: NDArray[np.int64], last: NDArray[np.int64], pair: np.ufunc, nothing: Any
) -> NDArray[Any]:
    """Return a function of the numbers of each frame, in as many steps as the length of the longest one has bits.

    A frame is split into pieces of 1, 2, 4 and so on, from its first row on. So which numbers are combined, and in
    which order, depends on its own rows alone.
    """
    total = np.full(len(numbers), nothing, numbers.dtype)
    sizes, place, width = last - first + 1, first.copy(), 1
    while width <= sizes.max(initial=0):
        own = np.flatnonzero(sizes & width)
        total[own] = pair(total[own], numbers[place[own]])
        place[own] += width
        paired = numbers.copy()  # pieces beyond the last row are never read
        paired[:-width] = pair(numbers[:-width], numbers[width:])
        numbers, width = paired, 2 * width
    return total


def _float_sums(
    frame: pl.DataFrame, column: pl.Series, ends: WindowFrame, first: NDArray[np.int64], last: NDArray[np.int64]
) -> pl.Series:
    """Return sums of floats over frames. Each is added up from the frame's open end, or in pieces."""
    total = np.zeros(frame.height)
    some = last >= first
    with np.errstate(invalid="ignore", over="ignore"):
        if ends.start is None:
            total[some] = _running_sums(frame, column).to_numpy()[last[some]]
        elif ends.end is None:
            places = (pl.col(_SIZE) - 1 - pl.col(_PLACE)).alias(_PLACE)
            sums = _running_sums(frame.select(_SIZE, places).reverse(), column.reverse()).to_numpy()[::-1]
            total[some] = sums[first[some]]
        else:
            total = _combined(column.to_numpy(), first, last, np.add, 0.0)
    return pl.Series(total + 0.0)


def _extremes(frame: pl.DataFrame, value: UnitValue, first: NDArray[np.int64], last: NDArray[np.int64]) -> pl.Series:
    """Return the smallest or largest value of each frame. Values are compared by their places among all values."""
    start, end, _ = value.frame or WindowFrame(None, None)
    name = value.column or ""
    column = frame.select(_without_nan(pl.col(name), frame.schema[name])).to_series()
    known = column.drop_nulls().unique().sort(descending=value.function == "frame_max")
    none = known.len()  # the place of null, behind all others
    places = pl.DataFrame({name: known, _PLACE: np.arange(none, dtype=np.int64)})
    codes = (
        column.to_frame().join(places, on=name, how="left", maintain_order="left")[_PLACE].fill_null(none).to_numpy()
    )
    found = np.full(frame.height, none, np.int64)
    some = np.flatnonzero(last >= first)
    if start is None or end is None:
        groups = frame[_GROUP].to_numpy()
        groups = groups if start is None else groups[-1:] - groups
        # Groups that come later have smaller numbers, so that a minimum never reaches back beyond its group.
        moved = codes - groups * (none + 1)
        least = np.minimum.accumulate(moved) if start is None else np.minimum.accumulate(moved[::-1])[::-1]
        found[some] = (least + groups * (none + 1))[(last if start is None else first)[some]]
    else:
        found = _combined(codes, first, last, np.minimum, none)
    return known.extend_constant(None, 1).gather(found)


# ---------------------------------------------------------------------- elements


def _unnested(frame: pl.DataFrame, step: UnnestRows, kept: Sequence[str]) -> pl.DataFrame:
    """Return a row for each of the first elements of each list. How many they are is said in `UnnestRows`."""
    if step.unit:
        sizes = collect(frame.lazy().group_by(step.unit).agg(pl.len().cast(pl.Int64).alias(_SIZE)))
        height = frame.height
        frame = collect(frame.lazy().join(sizes.lazy(), on=step.unit, how="left", nulls_equal=True))
        if frame.height != height:
            raise RowCountError
        most = (pl.lit(MOST_PAIRS, pl.Int64) // pl.col(_SIZE)).clip(1, step.most)
    else:
        most = pl.lit(step.most, pl.Int64)
    listed = frame.select(*kept, pl.col(step.column).list.head(most).alias(step.name))
    return listed.filter(pl.col(step.name).list.len() > 0).explode(step.name)


# ---------------------------------------------------------------------- first rows


def _first_rows(frame: pl.DataFrame, step: KeepFirst) -> pl.DataFrame:
    ordered = _in_order(frame, step.partition, step.order, frame.columns)
    place = pl.col(_PLACE)
    return ordered.filter((place >= step.offset) & (place < step.offset + step.rows)).select(frame.columns)


# ---------------------------------------------------------------------- joins


def _joined(
    first: pl.DataFrame, second: pl.DataFrame, step: JoinRows, taken: dict[str, str], *, unique: bool = False
) -> pl.DataFrame:
    """Return the rows of a join. With `unique`, steps make sure that keys of the second table are unique."""
    mine, theirs = [own for own, _ in step.on], [own for _, own in step.on]
    if len(mine) == 1:
        named = second.select(pl.col(own).alias(name) for own, name in taken.items())
        several = step.how in ("semi", "anti")
        table = _KeyTable.of(second[theirs[0]], first.height, several=several)
        if table is not None:
            return table.joined(first, first[mine[0]], named, step.how)
        if step.how == "inner" and (table := _KeyTable.of(first[mine[0]], second.height)) is not None:
            own = second.select(pl.col(theirs[0]).alias(f"{OWN_IN_STEPS}key"), *map(pl.col, taken))
            return table.joined(own.rename(taken), second[theirs[0]], first, "inner")
    if step.how in ("inner", "left") and not unique:
        first, second = _without_excess(first, second, step)
    keys = [f"{OWN_IN_STEPS}key {place}" for place in range(len(step.on))]
    right = second.select(
        *(pl.col(own).alias(key) for own, key in zip(theirs, keys, strict=True)),
        *(pl.col(own).alias(name) for own, name in taken.items()),
    )
    joined = first.lazy().join(
        right.lazy(), left_on=mine, right_on=keys, how=step.how, nulls_equal=False,
        coalesce=True if step.how == "left" else None,
    )  # fmt: skip
    return collect(joined)


@dataclass(frozen=True, repr=False, eq=False)
class _KeyTable:
    """A slot for each integer between the smallest and the largest of unique keys, which tells the row that has it.

    Such a table is read much faster than a hash table. Which way rows are joined does not change them: a row has one
    match at most, so pairs per unit are fewer than its rows, and no limit is due.
    """

    low: int
    slots: NDArray[np.int64]
    """The slot of each key that is not null."""
    known: NDArray[np.bool_]
    """Whether a slot has a key. The last one is for keys that are not between the two."""
    rows: NDArray[np.bool_] | None
    """Which rows have a key; None if all have."""

    @classmethod
    def of(cls, keys: pl.Series, others: int, *, several: bool = False, most_per_row: int = 2) -> _KeyTable | None:
        """Return the table of some keys, in which so many others are looked up; None if there can't be one.

        It may have at most `most_per_row` slots for each row, and no two keys may be equal, unless `several` says that
        any of them will do.
        """
        dtype, present = keys.dtype, keys.drop_nulls()
        rows = len(keys) + others
        if not dtype.is_integer() or dtype in (pl.UInt64, pl.Int128, pl.UInt128) or not len(present):
            return None
        low, high = int(present.min()), int(present.max())  # type: ignore[arg-type]
        span = high - low + 1
        if span > most_per_row * rows:
            return None
        known = np.zeros(span + 1, np.bool_)
        slots = present.cast(pl.Int64).to_numpy() - low
        known[slots] = True
        if not several and int(np.count_nonzero(known)) < len(slots):
            return None
        return cls(low, slots, known, keys.is_not_null().to_numpy() if keys.null_count() else None)

    def joined(self, rows: pl.DataFrame, keys: pl.Series, others: pl.DataFrame, how: str) -> pl.DataFrame:
        """Return rows with these keys beside the rows of the table's side that have the same key.

        Each column of the other side gets a table of its own, of short integers if its numbers are small: those are
        looked up in a processor's cache. Columns that are not plain numbers are gathered by the number of the row.
        """
        columns = [] if how in ("semi", "anti") else [self._table(one) for one in others.iter_columns()]
        matched = np.empty(len(keys), np.bool_)
        found = [np.empty(len(keys), dtype) for _, dtype in columns]
        room, start = np.empty(_SLICE, np.int64), 0
        for part in _in_slices(keys):
            end = start + len(part)
            slots = self._slots_of(part, room[: len(part)])
            np.take(self.known, slots, out=matched[start:end], mode="clip")
            for (table, _), own in zip(columns, found, strict=True):
                own[start:end] = table.take(slots, mode="clip")
            start = end
        if how in ("semi", "anti"):
            return rows.filter(pl.Series(matched if how == "semi" else ~matched))
        whole = bool(matched.all())
        made = [
            self._column(one, own, None if whole else matched)
            for one, own in zip(others.iter_columns(), found, strict=True)
        ]
        return rows.with_columns(made) if whole or how == "left" else rows.with_columns(made).filter(pl.Series(matched))

    def _slots_of(self, keys: pl.Series, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the slot of each key into an array."""
        beyond = len(self.known) - 1
        nulls = keys.null_count()
        np.subtract((keys.fill_null(0) if nulls else keys).to_numpy(), np.int64(self.low), out=slots)
        # A smaller key is a large number without its sign. A null stands for whatever is not between the two.
        np.minimum(slots.view(np.uint64), np.uint64(beyond), out=slots.view(np.uint64))
        if nulls:
            slots[keys.is_null().to_numpy()] = beyond
        return slots

    def _table(self, column: pl.Series) -> tuple[NDArray[Any], np.dtype[Any]]:
        """Return what a column has in each slot, or the number of the row, and the type that is looked up."""
        values: NDArray[Any] = column.to_numpy() if _is_plain(column) else np.arange(len(column))
        short: list[type] = []
        if values.dtype.kind in "iu" and len(values):
            low, high = int(values.min()), int(values.max())
            short = [
                one for one in (np.int8, np.int16, np.int32) if np.iinfo(one).min <= low <= high <= np.iinfo(one).max
            ]
        table = np.zeros(len(self.known), short[0] if short else values.dtype)
        table[self.slots] = values if self.rows is None else values[self.rows]
        return table, values.dtype

    @staticmethod
    def _column(column: pl.Series, found: NDArray[Any], matched: NDArray[np.bool_] | None) -> pl.Series:
        """Return a column of what was looked up, which is null where nothing was."""
        if _is_plain(column):
            values = pl.Series(column.name, found).cast(column.dtype)
            return values if matched is None else values.set(pl.Series(~matched), None)
        places = pl.Series(found)
        return column.gather(places if matched is None else places.set(pl.Series(~matched), None))


def _in_slices(column: pl.Series) -> Iterable[pl.Series]:
    """Yield the values of a column in order, a few at a time, each in one piece of memory."""
    for chunk in column.get_chunks():
        for start in range(0, len(chunk), _SLICE):
            yield chunk.slice(start, _SLICE)


def _is_plain(column: pl.Series) -> bool:
    """Return whether a column is numbers of at most 64 bits without nulls, which NumPy has too."""
    known = column.dtype.is_integer() or column.dtype.is_float()
    return known and column.dtype not in (pl.Int128, pl.UInt128) and not column.null_count()


def _labelled(first: pl.DataFrame, second: pl.DataFrame, step: LabelRows) -> pl.DataFrame:
    """Return the rows of a table with the units of another one, the smallest one if a key has several there."""
    keys = [f"{OWN_IN_STEPS}key {place}" for place in range(len(step.on))]
    names = [name for _, name in step.unit]
    known = second.select(
        *(pl.col(theirs).alias(key) for (_, theirs), key in zip(step.on, keys, strict=True)),
        *(pl.col(own).alias(name) for own, name in step.unit),
    )
    labels = known.drop_nulls().sort([*keys, *names]).unique(keys, keep="first", maintain_order=True)
    return first.join(labels, left_on=[mine for mine, _ in step.on], right_on=keys, how="inner", nulls_equal=False)


def _without_excess(first: pl.DataFrame, second: pl.DataFrame, step: JoinRows) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both sides of a join without some rows of those units whose rows would make too many pairs."""
    mine, theirs = [own for own, _ in step.on], [own for _, own in step.on]
    unit = list(step.unit or mine)
    other = [dict(step.on)[name] for name in unit]
    there = second.group_by(theirs).agg(pl.len().alias(_SIZE))
    if not there.height or there[_SIZE].max() == 1:  # a row of the first table has at most one match
        return first, second
    here = first.group_by(mine).agg(pl.len().alias(_PLACE))
    matched = here.join(there, left_on=mine, right_on=theirs, how="inner", nulls_equal=False)
    sizes, places = (pl.col(name).cast(pl.Float64) for name in (_SIZE, _PLACE))
    pairs = matched.group_by(unit).agg((sizes * places).sum().alias(_PAIRS), (sizes + places).sum().alias(_SIZE))
    heavy = pairs.filter((pl.col(_PAIRS) > MOST_PAIRS) & (pl.col(_PAIRS) > pl.col(_SIZE))).select(unit)
    if not heavy.height:
        return first, second
    renamed = heavy.rename(dict(zip(unit, other, strict=True)))
    return _some_rows(first, heavy, unit), _some_rows(second, renamed, other)


def _some_rows(frame: pl.DataFrame, heavy: pl.DataFrame, unit: list[str]) -> pl.DataFrame:
    """Return the rows of a table, but only some rows of the `heavy` units, chosen by salted hashes of the rows."""
    many = frame.join(heavy, on=unit, how="semi", nulls_equal=False)
    hashes = []
    for name in (_HASH, f"{_HASH} 2"):
        mixed = np.zeros(many.height, np.uint64)
        for column in many.iter_columns():
            mixed = (mixed ^ column.hash(secrets.randbits(64)).to_numpy()) * np.uint64(0x9E3779B97F4A7C15)
        hashes.append(pl.Series(name, mixed))
    # Rows that differ only in values without an order, such as lists, are told apart by 128 bits of salted hashes.
    ties = [name for name, dtype in many.schema.items() if is_sortable(dtype)]
    ordered = _in_order(many.with_columns(hashes), unit, [SortColumn(column.name) for column in hashes], ties)
    kept = ordered.filter(pl.col(_PLACE) < KEPT_IN_JOIN).select(frame.columns)
    return pl.concat([frame.join(heavy, on=unit, how="anti", nulls_equal=False), kept])
