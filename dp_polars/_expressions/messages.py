"""Why an expression is refused. Messages never quote a row, because refusals come before any row is read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dp_polars.errors import ExpressionNotAllowed


@dataclass(frozen=True)
class Reason:
    """Why a function is refused: what it does (this follows its name), why that matters, and what to write instead."""

    does: str
    why: str
    fix: str


_SPREADS = (
    "One person's row could then change the values of others, so there would be no bound on what one person changes."
)
_LEAKS = "Whether a query fails would then reveal something about a person's value."

OTHER_ROWS = Reason(
    "looks at other rows",
    _SPREADS,
    "Release it with an aggregate of `.dp` and use the released number, or use a public constant.",
)
ORDER = Reason(
    "depends on the order or the position of rows",
    _SPREADS,
    "Use a column that holds the position in the row itself, such as a date or a sequence number.",
)
ROW_COUNT = Reason(
    "changes or reads the number of rows",
    _SPREADS,
    "Use `.dp.filter(...)` to drop rows; count them with `.dp.count(...)`.",
)
RANDOM = Reason(
    "draws random numbers",
    "Only the mechanism of a release may draw random numbers, and the same query must mean the same thing each time.",
    "Remove it.",
)
PYTHON = Reason(
    "runs Python code or holds a Python object",
    "It cannot be checked that it reads one row only, never fails and stores nothing.",
    "Write it with Polars expressions (`when`/`then`, `replace_strict` with a default, `str.*`, `dt.*`).",
)
PLUGIN = Reason("is a plugin", "It cannot be checked what it computes.", "Write it with Polars expressions.")
PHYSICAL = Reason(
    "reads how values are stored",
    "Codes and hashes of a value can depend on the other rows or on the version of Polars.",
    "Use the value itself; cast a Categorical to pl.String.",
)
SERIES = Reason(
    "is a Series or an array inside the expression",
    "It is matched with rows by position, and it may hold private values itself.",
    "For public values use a Python list: `.is_in(series.to_list())`; for one value use `pl.lit(value)`. For values of "
    "another private frame, join it on the unit: `.join(other.dp, on=..., how='semi')`.",
)
FAILS = Reason(
    "fails on some values and has no variant that returns null instead",
    _LEAKS,
    "See the list of allowed functions for an alternative.",
)
UNKNOWN = Reason(
    "is not on the list of functions that are known to be row-wise and never to fail",
    "Only those may run on private rows.",
    "Write it with other functions, or prepare the column before `.dp`.",
)
SELECTOR = Reason(
    "stands for several columns and cannot be expanded",
    "Each column is checked by its name.",
    "Name the columns.",
)


def fails(fix: str) -> Reason:
    """Return the reason for a function that fails on some values, with an alternative."""
    return Reason(FAILS.does, FAILS.why, fix)


_PATHS: dict[str, Reason] = {
    "Over": OTHER_ROWS,
    "Rolling": OTHER_ROWS,
    "Window": OTHER_ROWS,
    "Agg": OTHER_ROWS,
    "AnonymousAgg": PYTHON,
    "AnonymousFunction": PYTHON,
    "AnonymousStreamingAgg": PYTHON,
    "RenameAlias": PYTHON,
    "SubPlan": OTHER_ROWS,
    "Len": ROW_COUNT,
    "Explode": ROW_COUNT,
    "Filter": ROW_COUNT,
    "Slice": ROW_COUNT,
    "Sort": ORDER,
    "SortBy": ORDER,
    "Gather": ORDER,
    "Selector": SELECTOR,
    "FfiPlugin": PLUGIN,
    "PluginV1": PLUGIN,
    "ExternalPlugin": PLUGIN,
    "Random": RANDOM,
    "Hash": PHYSICAL,
    "ToPhysical": PHYSICAL,
    "Reinterpret": PHYSICAL,
    "Categorical": PHYSICAL,
    "Range": ROW_COUNT,
    "Repeat": ROW_COUNT,
    "RollingExpr": OTHER_ROWS,
    "RollingExprBy": OTHER_ROWS,
    "Correlation": OTHER_ROWS,
    "ReplaceStrict": fails("Give it a default: `replace_strict(old, new, default=None)`."),
    "TemporalExpr.DatetimeFunction": fails(
        'Parse it instead: `pl.format("{}-{}-{}", year, month, day).str.to_date("%Y-%m-%d")`.'
    ),
    "TemporalExpr.Replace": fails("Combine `dt.truncate`, `dt.offset_by` and `pl.duration` instead."),
    "TemporalExpr.BaseUtcOffset": fails("Subtract `dt.replace_time_zone(None)` of two time zones instead."),
    "TemporalExpr.DSTOffset": fails("Subtract `dt.replace_time_zone(None)` of two time zones instead."),
    "Business": fails("Use `dt.weekday()`, and `is_in([...])` for holidays."),
    "StringExpr.JsonDecode": fails("Take what you need with `str.extract(pattern)`."),
}
"""Reasons by the name that Polars gives a node. A full path takes precedence over its first part."""

_OTHER_ROWS_NAMES = """
    Any All IsUnique IsDuplicated IsFirstDistinct IsLastDistinct HasNulls IsSorted IsEmpty And Or Xor
    Unique UniqueCounts ValueCounts ApproxNUnique ApproxQuantile NullCount Quantile Mode Skew Kurtosis Entropy Hist
    ArgMin ArgMax ArgUnique ArgSort ArgWhere TopK TopKBy MinBy MaxBy Rank QCut SearchSorted IndexOf Product
    Interpolate InterpolateBy FillNullWithStrategy FoldHorizontal ReduceHorizontal PeakMin PeakMax RleId RLEID RLE
"""
_ORDER_NAMES = """
    Shift ShiftAndFill Diff PctChange CumSum CumProd CumMin CumMax CumCount CumMean EwmMean EwmStd EwmVar EwmSum
    EwmMeanBy EwmSumBy Reverse SetSortedFlag
"""
_ROW_COUNT_NAMES = "DropNulls DropNans Append ExtendConstant GatherEvery Reshape RepeatBy Flatten"
_NAMES = {
    **dict.fromkeys(_OTHER_ROWS_NAMES.split(), OTHER_ROWS),
    **dict.fromkeys(_ORDER_NAMES.split(), ORDER),
    **dict.fromkeys(_ROW_COUNT_NAMES.split(), ROW_COUNT),
}
_NAMES_IN = ("", "Boolean", "Bitwise")

_PREFIXES = {
    "StringExpr": "str.",
    "TemporalExpr": "dt.",
    "ListExpr": "list.",
    "ArrayExpr": "arr.",
    "StructExpr": "struct.",
    "BinaryExpr": "bin.",
    "Categorical": "cat.",
    "Extension": "ext.",
    "Bitwise": "bitwise_",
    "RollingExpr": "rolling_",
    "RollingExprBy": "rolling_",
}
_WORDS = {
    "TemporalExpr.DatetimeFunction": "pl.datetime / pl.date / pl.time",
    "Range.IntRange": "int_range / row_index",
    "FillNullWithStrategy": "fill_null(strategy=...)",
    "Business.IsBusinessDay": "dt.is_business_day",
    "TemporalExpr.DSTOffset": "dt.dst_offset",
    "AnonymousFunction": "map_batches / map_elements",
    "RenameAlias": "name.map",
    "Slice": "head / tail / slice",
    "Gather": "gather / get",
    "Len": "len",
    "QCut": "qcut",
    "RLE": "rle",
    "Eval": "list.eval / list.agg",
    "StructEval": "struct.with_fields",
}


def reason_for(path: str) -> Reason:
    """Return why a node, given by its path (`Agg.Mean`, `StringExpr.JsonDecode`), may not be used."""
    first, _, last = path.partition(".")
    if path in _PATHS or first in _PATHS:
        return _PATHS.get(path) or _PATHS[first]
    if (first if last else "") in _NAMES_IN:
        return _NAMES.get(last or first, UNKNOWN)
    return UNKNOWN


def spoken(path: str) -> str:
    """Return what users call a node: n_unique for the path `Agg.NUnique`, str.join for `StringExpr.Join`."""
    if path in _WORDS:
        return _WORDS[path]
    first, _, last = path.partition(".")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", last or first).lower()
    return _PREFIXES.get(first, "") + name if last else name


def refusal(what: str, name: str, reason: Reason) -> ExpressionNotAllowed:
    """Return the error for the function `name` in the expression that `what` takes."""
    return ExpressionNotAllowed(f"`{name}` in the {what} expression {reason.does}. {reason.why} {reason.fix}")


class Refused(ExpressionNotAllowed):
    """The refusal of a function, raised where it is not known yet which expression contains it."""

    def __init__(self, name: str, reason: Reason) -> None:
        super().__init__(f"`{name}` {reason.does}. {reason.why} {reason.fix}")
        self.name, self.reason = name, reason
