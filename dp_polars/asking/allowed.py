"""The functions that may run on private rows: row-wise and total, each probed with hostile values in the tests.

A function is named by the path Polars serializes (`StringExpr.Contains`). What is not in `FUNCTIONS` or `OPERATORS` is
refused. The kinds of a rule are the types it was probed with; Polars' own implicit casts raise on values outside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

EVERY = -1

_KINDS: dict[type[pl.DataType], str] = {
    pl.Boolean: "boolean",
    pl.Int8: "integer",
    pl.Int16: "integer",
    pl.Int32: "integer",
    pl.Int64: "integer",
    pl.Int128: "integer",
    pl.UInt8: "integer",
    pl.UInt16: "integer",
    pl.UInt32: "integer",
    pl.UInt64: "integer",
    # Mixed with other numbers, UInt128 is cast strictly to Int128; Float16 is young: both can be cast, no more.
    pl.UInt128: "rare",
    pl.Float16: "rare",
    pl.Float32: "float",
    pl.Float64: "float",
    pl.String: "string",
    pl.Binary: "binary",
    pl.Date: "date",
    pl.Datetime: "datetime",
    pl.Duration: "duration",
    pl.Time: "time",
    pl.Decimal: "decimal",
    pl.Enum: "enum",
    pl.Categorical: "categorical",
    pl.List: "list",
    pl.Array: "array",
    pl.Struct: "struct",
    pl.Null: "null",
}


def kind_of(dtype: pl.DataType) -> str:
    """Return the kind of a type; `other` (Object, extensions) has no rule anywhere."""
    return _KINDS.get(dtype.base_type(), "other")


@dataclass(frozen=True)
class Rule:
    """How one function may be used.

    Attributes
    ----------
    name
        What users call it.
    kinds
        Kinds of the operands.
    operands
        How many inputs from the first may read columns (`EVERY` for all); the others must be constant.
    options
        The parameters that Polars may write beside the function; anything else is refused.
    """

    name: str
    kinds: frozenset[str]
    operands: int = 1
    options: frozenset[str] = frozenset()


def _kinds(*names: str) -> frozenset[str]:
    return frozenset(" ".join(names).split())


ANY = frozenset(_KINDS.values())
NUMBER = _kinds("integer float")
TRUTH = _kinds("boolean")
NUMERIC = NUMBER | TRUTH
STRING = _kinds("string")
CALENDAR = _kinds("date datetime")
CLOCK = _kinds("datetime time")
DURATION = _kinds("duration")
ORDERED = NUMERIC | STRING | CALENDAR | DURATION | _kinds("time binary enum decimal")
SAME = ORDERED | _kinds("categorical list array struct")
MAPPED = NUMERIC | STRING | CALENDAR | DURATION | _kinds("time enum")
WRITABLE = NUMERIC | STRING | CALENDAR | _kinds("time enum categorical decimal")

VALUE = frozenset({"value"})
"""The option of a function whose one parameter has no name: `{"Extract": 1}`."""


def _rules(kinds: frozenset[str], *words: str, prefix: str = "", operands: int = 1) -> Iterator[tuple[str, Rule]]:
    """Yield rules from words `Path=name:option,option`; the prefix is put before each name."""
    for word in words:
        path, _, rest = word.partition("=")
        name, _, options = rest.partition(":")
        yield path, Rule(prefix + name, kinds, operands, frozenset(options.split(",")) if options else frozenset())


FUNCTIONS: dict[str, Rule] = dict(
    [
        # Numbers.
        *_rules(NUMBER | _kinds("duration decimal"), "Abs=abs", "Negate=-"),
        *_rules(
            NUMBER,
            "Sign=sign",
            "Floor=floor",
            "Ceil=ceil",
            "Round=round:decimals,mode",
            "RoundSF=round_sig_figs:digits",
        ),
        *_rules(NUMBER, "Truncate=truncate:decimals", "Pow.Sqrt=sqrt", "Pow.Cbrt=cbrt", "Pow.Generic=pow"),
        *_rules(NUMBER, "Exp=exp", "Log=log", "Log1p=log1p", "Erf=erf", "Erfc=erfc"),
        *_rules(NUMBER, "Trigonometry.Sin=sin", "Trigonometry.Cos=cos", "Trigonometry.Tan=tan", "Trigonometry.Cot=cot"),
        *_rules(NUMBER, "Trigonometry.ArcSin=arcsin", "Trigonometry.ArcCos=arccos", "Trigonometry.ArcTan=arctan"),
        *_rules(NUMBER, "Trigonometry.Sinh=sinh", "Trigonometry.Cosh=cosh", "Trigonometry.Tanh=tanh"),
        *_rules(NUMBER, "Trigonometry.ArcSinh=arcsinh", "Trigonometry.ArcCosh=arccosh", "Trigonometry.ArcTanh=arctanh"),
        *_rules(NUMBER, "Trigonometry.Degrees=degrees", "Trigonometry.Radians=radians"),
        *_rules(NUMBER, "Atan2=arctan2", operands=2),
        *_rules(
            NUMBER,
            "Cut=cut:breaks,labels,left_closed,include_breaks",
            "Bin=bin_intervals:method,labels,include_intervals",
        ),
        *_rules(NUMERIC | DURATION, "SumHorizontal=sum_horizontal:ignore_nulls", operands=EVERY),
        *_rules(NUMERIC, "MeanHorizontal=mean_horizontal:ignore_nulls", operands=EVERY),
        *_rules(
            _kinds("integer boolean"), "Bitwise.CountOnes=bitwise_count_ones", "Bitwise.CountZeros=bitwise_count_zeros"
        ),
        *_rules(
            _kinds("integer boolean"),
            "Bitwise.LeadingOnes=bitwise_leading_ones",
            "Bitwise.LeadingZeros=bitwise_leading_zeros",
        ),
        *_rules(
            _kinds("integer boolean"),
            "Bitwise.TrailingOnes=bitwise_trailing_ones",
            "Bitwise.TrailingZeros=bitwise_trailing_zeros",
        ),
        # Truth, missing values and choices.
        *_rules(NUMBER, "Boolean.IsNan=is_nan", "Boolean.IsNotNan=is_not_nan"),
        *_rules(NUMBER, "Boolean.IsFinite=is_finite", "Boolean.IsInfinite=is_infinite"),
        *_rules(NUMBER, "Boolean.IsClose=is_close:abs_tol,rel_tol,nans_equal", operands=2),
        *_rules(ANY, "Boolean.IsNull=is_null", "Boolean.IsNotNull=is_not_null"),
        *_rules(_kinds("integer boolean"), "Boolean.Not=not_"),
        *_rules(TRUTH, "Boolean.AnyHorizontal=any_horizontal", "Boolean.AllHorizontal=all_horizontal", operands=EVERY),
        *_rules(MAPPED | _kinds("binary categorical"), "Boolean.IsIn=is_in:nulls_equal"),
        *_rules(ORDERED, "Boolean.IsBetween=is_between:closed", operands=EVERY),
        *_rules(ORDERED, "MinHorizontal=min_horizontal", "MaxHorizontal=max_horizontal", operands=EVERY),
        *_rules(SAME, "FillNull=fill_null", "Coalesce=coalesce", operands=EVERY),
        *_rules(ANY, "AsStruct=struct", operands=EVERY),
        *_rules(NUMBER | CALENDAR | DURATION | _kinds("time decimal"), "Clip=clip:has_min,has_max", operands=EVERY),
        *_rules(MAPPED, "Replace=replace", "ReplaceStrict=replace_strict:return_dtype"),
        # Text.
        *_rules(WRITABLE, "StringExpr.ConcatHorizontal=concat_str:delimiter,ignore_nulls", operands=EVERY),
        *_rules(WRITABLE, "StringExpr.Format=format:format,insertions", operands=EVERY),
        *_rules(
            STRING,
            *("StringExpr.LenChars=len_chars", "StringExpr.LenBytes=len_bytes", "StringExpr.Reverse=reverse"),
            *("StringExpr.Lowercase=to_lowercase", "StringExpr.Uppercase=to_uppercase"),
            *("StringExpr.Titlecase=to_titlecase", "StringExpr.Normalize=normalize:form"),
            *(
                "StringExpr.Contains=contains:literal,strict",
                "StringExpr.ContainsAny=contains_any:ascii_case_insensitive",
            ),
            *("StringExpr.CountMatches=count_matches:value", "StringExpr.Find=find:literal,strict"),
            *("StringExpr.Extract=extract:value", "StringExpr.ExtractAll=extract_all"),
            *(
                "StringExpr.Head=head",
                "StringExpr.Tail=tail",
                "StringExpr.Slice=slice",
                "StringExpr.EscapeRegex=escape_regex",
            ),
            *(
                "StringExpr.PadStart=pad_start:fill_char",
                "StringExpr.PadEnd=pad_end:fill_char",
                "StringExpr.ZFill=zfill",
            ),
            *(
                "StringExpr.Replace=replace:n,literal",
                "StringExpr.ReplaceMany=replace_many:ascii_case_insensitive,leftmost",
            ),
            *("StringExpr.StripChars=strip_chars", "StringExpr.StripCharsStart=strip_chars_start"),
            *("StringExpr.StripCharsEnd=strip_chars_end", "StringExpr.StripPrefix=strip_prefix"),
            *("StringExpr.StripSuffix=strip_suffix", "StringExpr.Split=split:value"),
            *("StringExpr.SplitExact=split_exact:n,inclusive", "StringExpr.SplitN=splitn:value"),
            *("StringExpr.HexEncode=encode", "StringExpr.Base64Encode=encode"),
            *("StringExpr.HexDecode=decode:value", "StringExpr.Base64Decode=decode:value"),
            *("StringExpr.Strptime=strptime:value", "StringExpr.ToInteger=to_integer:dtype,strict"),
            "StringExpr.ToDecimal=to_decimal:scale",
            prefix="str.",
        ),
        *_rules(
            STRING, "StringExpr.StartsWith=starts_with", "StringExpr.EndsWith=ends_with", prefix="str.", operands=2
        ),
        *_rules(
            _kinds("enum categorical"),
            *("Categorical.LenChars=len_chars", "Categorical.LenBytes=len_bytes", "Categorical.Slice=slice:value"),
            *("Categorical.StartsWith=starts_with:value", "Categorical.EndsWith=ends_with:value"),
            prefix="cat.",
        ),
        *_rules(
            _kinds("binary"),
            *("BinaryExpr.Size=size", "BinaryExpr.Contains=contains", "BinaryExpr.StartsWith=starts_with"),
            *("BinaryExpr.EndsWith=ends_with", "BinaryExpr.HexEncode=encode", "BinaryExpr.Base64Encode=encode"),
            prefix="bin.",
        ),
        # Dates and times.
        *_rules(
            CALENDAR,
            *("TemporalExpr.Millennium=millennium", "TemporalExpr.Century=century", "TemporalExpr.Year=year"),
            *("TemporalExpr.IsoYear=iso_year", "TemporalExpr.IsLeapYear=is_leap_year", "TemporalExpr.Quarter=quarter"),
            *("TemporalExpr.Month=month", "TemporalExpr.DaysInMonth=days_in_month", "TemporalExpr.Week=week"),
            *("TemporalExpr.WeekDay=weekday", "TemporalExpr.Day=day", "TemporalExpr.OrdinalDay=ordinal_day"),
            *("TemporalExpr.Date=date", "TemporalExpr.TimeStamp=timestamp:value"),
            *(
                "TemporalExpr.MonthStart=month_start",
                "TemporalExpr.MonthEnd=month_end",
                "TemporalExpr.Truncate=truncate",
            ),
            *("TemporalExpr.Round=round", "TemporalExpr.OffsetBy=offset_by"),
            prefix="dt.",
        ),
        *_rules(
            CLOCK,
            *("TemporalExpr.Hour=hour", "TemporalExpr.Minute=minute", "TemporalExpr.Second=second"),
            *("TemporalExpr.Millisecond=millisecond", "TemporalExpr.Microsecond=microsecond"),
            *("TemporalExpr.Nanosecond=nanosecond", "TemporalExpr.Time=time"),
            prefix="dt.",
        ),
        *_rules(CALENDAR | CLOCK, "TemporalExpr.ToString=to_string:value", prefix="dt."),
        *_rules(
            _kinds("datetime"),
            *("TemporalExpr.ConvertTimeZone=convert_time_zone:inner", "TemporalExpr.Datetime=datetime"),
            "TemporalExpr.ReplaceTimeZone=replace_time_zone:value",
            prefix="dt.",
        ),
        *_rules(_kinds("datetime duration"), "TemporalExpr.CastTimeUnit=cast_time_unit:value", prefix="dt."),
        *_rules(CALENDAR | CLOCK, "TemporalExpr.Combine=combine:value", prefix="dt.", operands=2),
        *_rules(_kinds("integer"), "TemporalExpr.Duration=pl.duration:value", operands=EVERY),
        *_rules(
            DURATION,
            *("TemporalExpr.TotalDays=total_days:fractional", "TemporalExpr.TotalHours=total_hours:fractional"),
            *(
                "TemporalExpr.TotalMinutes=total_minutes:fractional",
                "TemporalExpr.TotalSeconds=total_seconds:fractional",
            ),
            "TemporalExpr.TotalMilliseconds=total_milliseconds:fractional",
            "TemporalExpr.TotalMicroseconds=total_microseconds:fractional",
            "TemporalExpr.TotalNanoseconds=total_nanoseconds:fractional",
            prefix="dt.",
        ),
        # Nested values.
        *_rules(_kinds("struct"), "StructExpr.FieldByName=struct.field:value"),
        *_rules(
            _kinds("list"),
            *("ListExpr.Length=len", "ListExpr.Get=get:value", "ListExpr.Contains=contains:nulls_equal"),
            *(
                "ListExpr.Min=min",
                "ListExpr.Max=max",
                "ListExpr.Sum=sum",
                "ListExpr.Join=join:value",
                "ListExpr.Slice=slice",
            ),
            prefix="list.",
        ),
        *_rules(
            _kinds("array"),
            *("ArrayExpr.Length=len", "ArrayExpr.Get=get:value", "ArrayExpr.Contains=contains:nulls_equal"),
            prefix="arr.",
        ),
    ]
)

_ARITHMETIC = {(a, b) for a in NUMERIC for b in NUMERIC}
_EITHER_CALENDAR = {(a, b) for a in CALENDAR for b in CALENDAR}
_ORDER = {(kind, kind) for kind in ORDERED} | _ARITHMETIC | _EITHER_CALENDAR
_EQUALITY = _ORDER | {(kind, kind) for kind in SAME}
_SHIFTED = {(kind, "duration") for kind in (*CALENDAR, "duration")}
_LOGIC = {("boolean", "boolean"), ("integer", "integer")}
_DIVISION = _ARITHMETIC | {("duration", kind) for kind in (*NUMBER, "duration")}

OPERATORS: dict[str, tuple[str, set[tuple[str, str]]]] = {
    "Eq": ("==", _EQUALITY),
    "NotEq": ("!=", _EQUALITY),
    "EqValidity": ("eq_missing", _EQUALITY),
    "NotEqValidity": ("ne_missing", _EQUALITY),
    "Lt": ("<", _ORDER),
    "LtEq": ("<=", _ORDER),
    "Gt": (">", _ORDER),
    "GtEq": (">=", _ORDER),
    "Plus": ("+", _ARITHMETIC | _SHIFTED | {("duration", kind) for kind in CALENDAR} | {("string", "string")}),
    "Minus": ("-", _ARITHMETIC | _SHIFTED | _EITHER_CALENDAR | {("time", "time")}),
    "Multiply": ("*", _ARITHMETIC | {(a, b) for k in NUMBER for a, b in (("duration", k), (k, "duration"))}),
    "TrueDivide": ("/", _DIVISION),
    "FloorDivide": ("//", _ARITHMETIC),
    "TruncDivide": ("truncdiv", _ARITHMETIC),
    "Modulus": ("%", _ARITHMETIC),
    "And": ("&", _LOGIC),
    "Or": ("|", _LOGIC),
    "Xor": ("^", _LOGIC),
}
"""The symbol of each operator and the kinds it takes on its left and right."""

DIVISIONS = frozenset({"TrueDivide", "FloorDivide", "TruncDivide", "Modulus"})

CASTS = NUMERIC | STRING | CALENDAR | DURATION | _kinds("time enum decimal null rare categorical binary")
"""The kinds that a cast may read and, but for Categorical, write."""

LITERALS: dict[str, str] = {
    **dict.fromkeys(_kinds("Int8 Int16 Int32 Int64 Int128 UInt8 UInt16 UInt32 UInt64 Int"), "integer"),
    **dict.fromkeys(_kinds("Float32 Float64 Float"), "float"),
    **{
        name: name.lower()
        for name in _kinds("Boolean String Binary Date Datetime Duration Time Decimal Enum List Null")
    },
    "Str": "string",
}
"""The kinds of literals by the name that Polars writes."""

TELLS_ZEROS = frozenset({"Pow.Generic", "Atan2", "Trigonometry.Cot"})
"""Functions that tell 0.0 from -0.0; so do division and texts."""

GROWS = frozenset(
    f"StringExpr.{name}"
    for name in (
        *("Replace", "ReplaceMany", "ConcatHorizontal", "Format", "HexEncode", "Base64Encode", "EscapeRegex"),
        *("Normalize", "Lowercase", "Uppercase", "Titlecase", "Split", "ExtractAll"),
    )
) | {"ListExpr.Join"}
"""Functions that make texts longer, or lists that can be joined to longer ones."""

ZONE_SENSITIVE = frozenset({"Truncate", "Round", "OffsetBy", "MonthStart", "MonthEnd", "Combine"})
"""Functions of `dt` that raise where their result does not exist in the local time of a zone with summer time."""

KEEPS_RANGE = ZONE_SENSITIVE | {"Date", "Datetime", "ConvertTimeZone", "ReplaceTimeZone"}
"""Functions of `dt` whose result lies as far from the ends of the calendar as their input."""
