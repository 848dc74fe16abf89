"""Check an outlined tree against the types of its parts, and write it in the forms that give null instead of failing.

Three rewrites go beyond turning `strict` off:

- Dates outside the years 1 to 9999 become null before a function of the calendar reads them: Polars panics on them.
- The divisor of a float division is spread over all rows first. Polars multiplies by the reciprocal where the divisor
  is one value for many rows and divides where it is not, so the last bit (for `//` and `%`: the whole result) would
  depend on how many rows there are, and for a divisor from `when`/`then` on the values of other rows.
- Time zones: a local time that does not exist, or exists twice, becomes null.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from dp_polars.asking.allowed import (
    CALENDAR,
    CASTS,
    DIVISIONS,
    EVERY,
    FUNCTIONS,
    KEEPS_RANGE,
    NUMBER,
    NUMERIC,
    OPERATORS,
    SAME,
    STRING,
    TRUTH,
    ZONE_SENSITIVE,
)
from dp_polars.asking.outline import Node, Question, Tree
from dp_polars.asking.refusals import OTHER_ROWS, UNKNOWN, Reason, fails

_NULL: Tree = {"Literal": {"Scalar": {"Null": "Null"}}}
_UNITS = {"ms": ("Milliseconds", 10**3), "us": ("Microseconds", 10**6), "ns": ("Nanoseconds", 10**9)}
_FIRST_DAY, _LAST_DAY = -719162, 2932896  # 0001-01-01 and 9999-12-31, counted from 1970-01-01
_LONGEST_PADDING = 1000
_LONGEST_OFFSET = 1000  # years: 120 of them, the deepest expression, are far from the end of Polars' calendar, 262143
_DAYS_OF = {"w": 7, "mo": 31, "q": 92, "y": 366}  # of a unit, at least; of shorter ones than a day one at most counts

_MIXED_TYPES = Reason(
    "mixes types that Polars converts with a cast that can fail",
    "Whether a query fails would then tell something about a person's value.",
    "Cast them to one type first, for example `pl.col(...).cast(pl.Float64)`.",
)
_WRONG_KIND = "is not known never to fail on"


def settle(node: Node, question: Question) -> Tree:
    """Return the tree in its null-returning form, or refuse it."""
    parts = [settle(part, question) for part in node.parts]
    match node.form:
        case "Cast":
            return _cast(node, parts[0], question)
        case "Ternary":
            _agree(node.parts[1:], SAME, "when/then/otherwise", question)
            _wanted(node.parts[0], TRUTH, "when", question)
        case "Operator":
            parts[1] = _operator(node, parts[1], question)
        case "Function":
            return _function(node, parts, question)
    return node.rebuilt(parts, node.options)


def _cast(node: Node, part: Tree, question: Question) -> Tree:
    source, target = node.parts[0], node.kind
    if target not in CASTS or target in ("categorical", "other"):
        raise question.refuse(
            f"cast to {node.dtype}",
            Reason(
                "writes a type that holds how values are stored or can fail",
                "A Categorical numbers its values by the rows it meets, and casts of nested values can fail.",
                "Cast to pl.String or to a pl.Enum with the values you know.",
            ),
        )
    _wanted(source, CASTS, "cast", question)
    if source.kind == "categorical" and target not in ("string", "categorical"):
        raise question.refuse(
            f"cast from Categorical to {node.dtype}",
            Reason("can read the codes of a Categorical", "They depend on other rows.", "Cast to pl.String first."),
        )
    if (source.kind, target) in (("float", "decimal"), ("rare", "decimal"), ("binary", "string")):
        raise question.refuse(
            f"cast from {source.dtype} to {node.dtype}",
            fails("Keep the floats, or go through pl.String." if target == "decimal" else "Use `bin.encode`."),
        )
    return _cast_to(node.options, _in_calendar(source, part) if target == "string" else part)


def _cast_to(dtype: Any, tree: Tree) -> Tree:
    return {"Cast": {"expr": tree, "dtype": dtype, "options": "NonStrict"}}


def _operator(node: Node, divisor: Tree, question: Question) -> Tree:
    """Return the right side of an operator, after a look at the types of both."""
    symbol, pairs = OPERATORS[node.path]
    left, right = node.parts
    if (left.kind, right.kind) not in pairs and "null" not in (left.kind, right.kind):
        held, constant = (right.kind, left.kind) if left.constant else (left.kind, right.kind)
        allowed = {"enum": STRING, "categorical": STRING, "decimal": NUMBER}.get(held, frozenset())
        if (held, held) not in pairs or constant not in allowed or not (left.constant or right.constant):
            raise _wrong_pair(symbol, left, right, question)
    if left.kind == right.kind and left.kind in SAME - NUMERIC - {"string", *CALENDAR, "duration", "time", "binary"}:
        _agree(node.parts, SAME, symbol, question)
    # A duration is divided by a float in the same two ways as a float is.
    if node.path in DIVISIONS and not left.constant and "float" in (node.kind, right.kind):
        return _spread(divisor, right, left, node.dtype if node.kind == "float" else right.dtype)
    return divisor


def _function(node: Node, parts: list[Tree], question: Question) -> Tree:
    rule = FUNCTIONS[node.path]
    operands = node.parts if rule.operands == EVERY else node.parts[: rule.operands]
    for part in operands:
        _wanted(part, rule.kinds, rule.name, question)
    options = _options(node, parts, question)
    if node.path.startswith("TemporalExpr.") or node.path in ("StringExpr.ConcatHorizontal", "StringExpr.Format"):
        parts = [_in_calendar(part, tree) for part, tree in zip(node.parts, parts, strict=True)]
    if node.path == "TemporalExpr.CastTimeUnit":
        return _time_unit(node, parts[0])
    return node.rebuilt(parts, options)


def _options(node: Node, parts: list[Tree], question: Question) -> Any:
    """Return the parameters of a function in their null-returning form, after what only this function must meet."""
    rule, options, first = FUNCTIONS[node.path], node.options, node.parts[0]
    match node.path.rpartition(".")[2]:
        case "Coalesce" | "FillNull" | "MinHorizontal" | "MaxHorizontal" | "IsBetween" | "SumHorizontal":
            _agree(node.parts, rule.kinds, rule.name, question)
        case "IsIn":
            parts[1] = _haystack(node, parts[1], question)
        case "Clip":
            if any(not bound.constant and bound.dtype != first.dtype for bound in node.parts[1:]):
                raise question.refuse("clip", _MIXED_TYPES)
        case "Strptime":
            return _parsing(node, parts, question)
        case "ToInteger":
            return {**options, "strict": False}
        case "HexDecode" | "Base64Decode":
            return False
        case "Get":
            return True
        case "ReplaceStrict":
            if len(node.parts) != 4:
                raise question.refuse(rule.name, fails("Give it a default: `replace_strict(old, new, default=None)`."))
        case "PadStart" | "PadEnd" | "ZFill":
            length = node.parts[1].options
            if not isinstance(length, int) or length > _LONGEST_PADDING:
                raise question.refuse(
                    rule.name, fails(f"Pad to a length that is written as a number up to {_LONGEST_PADDING}.")
                )
        case "Cut":
            if options.get("include_breaks") or None in options["breaks"]:
                raise question.refuse(rule.name, fails("Give finite breaks and leave out include_breaks."))
        case "IsClose":
            if None in options.values():
                raise question.refuse(rule.name, fails("Give finite tolerances."))
        case "Bin":
            method = options.get("method")
            breaks = method.get("Intervals") if isinstance(method, dict) else None
            if not isinstance(breaks, dict) or set(breaks.get("spec", ())) != {"Breaks"}:
                raise question.refuse("bin_intervals / bin_quantiles / bin_ranks without breaks", OTHER_ROWS)
        case "Sum" | "Min" | "Max" | "Join":
            inner = first.dtype.inner if isinstance(first.dtype, pl.List) else pl.Null()
            if not (inner == pl.String() if rule.name == "list.join" else inner.is_integer()):
                raise _wrong_kind(rule.name, first, question)
        case "Duration":
            if any(not part.constant and part.dtype in (pl.UInt64(), pl.Int128()) for part in node.parts):
                raise question.refuse(rule.name, fails("Cast its arguments to pl.Int64 first."))
        case "Combine":
            if first.kind not in CALENDAR or node.parts[1].kind != "time":
                raise _wrong_kind(rule.name, first, question)
            _zone(node, question)
        case "ReplaceTimeZone":
            if node.parts[1].form != "Literal":
                raise question.refuse(rule.name, UNKNOWN)
            parts[1] = _null_if_ambiguous(node.parts[1])
            return [options[0], "Null"]
        case "OffsetBy" if not _short_offset(node.parts[1]):
            raise question.refuse(
                rule.name, fails(f"Offset by a text such as '3mo', of up to {_LONGEST_OFFSET} years.")
            )
        case name if node.path == f"TemporalExpr.{name}" and name in ZONE_SENSITIVE:
            _zone(node, question)
    return options


def _short_offset(part: Node) -> bool:
    """Whether an offset is a constant so short that a long chain of them stays within Polars' calendar."""
    if part.form != "Literal" or not isinstance(part.options, str):
        return False
    steps = re.findall(r"(\d+)(ns|us|ms|mo|[smhdwqy])", part.options)
    whole = re.fullmatch(r"-?(\d+(ns|us|ms|mo|[smhdwqy]))+", part.options)
    return whole is not None and sum(int(n) * _DAYS_OF.get(unit, 1) for n, unit in steps) <= 366 * _LONGEST_OFFSET


def _parsing(node: Node, parts: list[Tree], question: Question) -> Any:
    """Return the options of `str.to_date`, `str.to_datetime` and `str.to_time` so that they give null."""
    dtype, options = node.options
    if set(options) != {"format", "strict", "exact", "cache"} or node.parts[1].form != "Literal":
        raise question.refuse("str.strptime", UNKNOWN)
    if options["format"] is None:
        raise question.refuse(
            "str.to_date / to_datetime / to_time without a format",
            Reason(
                "guesses the format from the first rows",
                "Which values can be read would then depend on other rows.",
                'Give the format: `str.to_date("%Y-%m-%d")`.',
            ),
        )
    if isinstance(node.dtype, pl.Datetime) and node.dtype.time_zone not in (None, "UTC"):
        raise question.refuse(
            "str.to_datetime(time_zone=...)",
            fails("Parse without a time zone, then `.dt.replace_time_zone(...)`."),
        )
    parts[1] = _null_if_ambiguous(node.parts[1])
    return [dtype, {**options, "strict": False}]


def _null_if_ambiguous(part: Node) -> Tree:
    return {"Literal": {"Scalar": {"String": "null"}}} if part.options == "raise" else part.tree


def _zone(node: Node, question: Question) -> None:
    dtype = node.parts[0].dtype
    if isinstance(dtype, pl.Datetime) and dtype.time_zone not in (None, "UTC"):
        raise question.refuse(
            f"{FUNCTIONS[node.path].name} in the time zone {dtype.time_zone}",
            fails("Go through local time: `.dt.replace_time_zone(None)` before it, or use `dt.date()`."),
        )


def _agree(parts: tuple[Node, ...], kinds: frozenset[str], name: str, question: Question) -> None:
    """Refuse parts that Polars would bring to one type with a cast that can fail on a value of a column."""
    for part in parts:
        _wanted(part, kinds, name, question)
    reading = [part for part in parts if not part.constant and part.kind != "null"]
    held, found = {part.kind for part in reading}, {part.kind for part in parts} - {"null"}
    constants, one_type = found - held, len({part.dtype for part in reading}) <= 1
    fits = (
        not held
        or found <= NUMERIC
        or (held == {"datetime"} and found <= CALENDAR)
        or (held == {"duration"} and not constants)
        or (one_type and not constants)
        or (one_type and held == {"decimal"} and constants <= NUMBER)
    )
    if not fits:
        raise question.refuse(name, _MIXED_TYPES)


def _wanted(part: Node, kinds: frozenset[str], name: str, question: Question) -> None:
    if part.kind not in kinds and part.kind != "null":
        raise _wrong_kind(name, part, question)


def _wrong_kind(name: str, part: Node, question: Question) -> Exception:
    shown = part.dtype if part.dtype is not None else part.kind
    fix = "Cast it to pl.String first." if part.kind == "categorical" else "Cast it to another type first."
    return question.refuse(
        name, Reason(f"{_WRONG_KIND} {shown}", "A failure would tell something about a person.", fix)
    )


def _wrong_pair(symbol: str, left: Node, right: Node, question: Question) -> Exception:
    shown = " and ".join(str(part.dtype if part.dtype is not None else part.kind) for part in (left, right))
    fix = "Cast decimals to pl.Float64, categoricals to pl.String, and both sides to one type."
    return question.refuse(
        symbol, Reason(f"{_WRONG_KIND} {shown}", "A failure would tell something about a person.", fix)
    )


def _in_calendar(part: Node, tree: Tree) -> Tree:
    """Return the tree with dates outside the years 1 to 9999 as null, where it could hold any."""
    if part.kind not in CALENDAR or part.constant or _keeps_range(part):
        return tree
    first, last = _FIRST_DAY, _LAST_DAY
    if isinstance(part.dtype, pl.Datetime):
        ticks = 86400 * _UNITS[part.dtype.time_unit][1]
        first, last = max(first * ticks, -(2**63)), min((last + 1) * ticks - 1, 2**63 - 1)
    number = _cast_to({"Literal": "Int64"}, tree)
    bounds = [{"Literal": {"Scalar": {"Int64": bound}}} for bound in (first, last)]
    inside = {"Function": {"input": [number, *bounds], "function": {"Boolean": {"IsBetween": {"closed": "Both"}}}}}
    return {"Ternary": {"predicate": inside, "truthy": tree, "falsy": _NULL}}


def _keeps_range(part: Node) -> bool:
    space, _, name = part.path.partition(".")
    return part.form == "Function" and space == "TemporalExpr" and name in KEEPS_RANGE


def _time_unit(node: Node, part: Tree) -> Tree:
    return _cast_to({"Literal": _written(node.dtype)}, part)


def _haystack(node: Node, tree: Tree, question: Question) -> Tree:
    """Return the list of `is_in` in the unit of the column: the streaming engine of Polars 1 does not convert it."""
    needle = node.parts[0].dtype
    held = getattr(node.parts[1].dtype, "inner", None)
    if not isinstance(needle, pl.Datetime | pl.Duration) or not isinstance(held, pl.Datetime | pl.Duration):
        return tree
    if getattr(needle, "time_zone", None) != getattr(held, "time_zone", None):
        raise question.refuse("is_in with another time zone than the column's", _MIXED_TYPES)
    finer = _UNITS[needle.time_unit][1] > _UNITS[held.time_unit][1]
    return _cast_to({"Literal": {"List": _written(needle)}}, tree) if finer else tree


def _written(dtype: pl.DataType | None) -> Any:
    """Return a datetime or duration type as Polars writes it."""
    unit = _UNITS[dtype.time_unit][0] if isinstance(dtype, pl.Datetime | pl.Duration) else None
    zone = getattr(dtype, "time_zone", None)
    return {"Datetime": [unit, zone and {"inner": zone}]} if isinstance(dtype, pl.Datetime) else {"Duration": unit}


def _spread(tree: Tree, part: Node, beside: Node, dtype: pl.DataType | None) -> Tree:
    """Return the divisor as a column of its own length: a field of a struct that also holds the dividend's columns."""
    if part.kind in NUMERIC:
        tree = _cast_to({"Literal": str(dtype)}, tree)
    columns = [{"Alias": [{"Column": name}, str(i)]} for i, name in enumerate(sorted(beside.columns))]
    fields = [*columns, {"Alias": [tree, "divisor"]}]
    struct = {"Function": {"input": fields, "function": "AsStruct"}}
    return {"Function": {"input": [struct], "function": {"StructExpr": {"FieldByName": "divisor"}}}}
