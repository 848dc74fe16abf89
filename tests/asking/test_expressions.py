"""Expressions on private rows: what is allowed is row-wise and total, what is not is refused with the reason."""

import datetime
import math

import polars as pl
import pytest

from dp_polars import ExpressionNotAllowed, InvalidParameterError
from dp_polars.asking import expressions
from dp_polars.asking.expressions import check_expression

c = pl.col
NASTY = pl.DataFrame(
    {
        "i": [0, 1, -1, 2**63 - 1, -(2**63), None, 7],
        "j": [0, 0, 3, -1, -1, 2, None],
        "u": pl.Series([0, 1, 255, 2**64 - 1, None, 5, 6], dtype=pl.UInt64),
        "x": [0.0, -0.0, math.nan, math.inf, -math.inf, None, 1e308],
        "y": [0.0, 1e-308, 1.5, -2.5, None, math.nan, 5e-324],
        "s": ["", "a", "A.é", "12", "ß\u0130", None, "x" * 300],
        "b": [True, False, None, True, False, True, None],
        "d": [
            datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None, datetime.date(1970, 1, 1),
            datetime.date(2024, 2, 29), datetime.date(1900, 3, 1), datetime.date(2000, 12, 31),
        ],
        "t": pl.Series([0, -1, 2**62, -(2**62), None, 10**15, 1], dtype=pl.Int64).cast(pl.Datetime("us")),
        "e": pl.Series(["p", "q", None, "p", "q", "q", "p"], dtype=pl.Enum(["q", "p"])),
    }
)  # fmt: skip
SCHEMA = NASTY.schema

ALLOWED = [
    c("i") == c("j"), c("i") != 3, c("i") < 2, c("x") <= 2, c("x") > c("y"), c("d") >= datetime.date(2000, 1, 1),
    c("s").eq_missing("a"), c("s").ne_missing(None), (c("i") > 0) & c("b"), (c("i") > 0) | c("b"), c("b") ^ c("b"),
    ~c("b"), c("i") + c("j"), c("i") - 1, c("i") * c("j"), c("i") / c("j"), c("i") // c("j"), c("i") % c("j"),
    c("x") // c("y"), c("x") % c("y"), -c("x"), c("i").abs(), c("i").sign(), c("x").exp(), c("x").log(),
    c("x").log(2), c("x").log1p(), c("x").floor(), c("x").ceil(), c("x").round(2), c("i").clip(0, 5),
    c("x").clip(c("y"), 3.0), c("x").sqrt(), c("x").cbrt(), c("i").fill_null(0), pl.coalesce("i", "j"),
    pl.max_horizontal("i", "j"), pl.min_horizontal("x", "y"), c("i").is_null(), c("i").is_not_null(), c("x").is_nan(),
    c("x").is_not_nan(), c("x").is_finite(), c("x").is_infinite(), c("i").is_between(0, c("j")),
    pl.any_horizontal("b", c("i") > 0), pl.all_horizontal("b", c("i") > 0), c("x").fill_nan(0),
    c("s").str.to_lowercase(), c("s").str.to_uppercase(), c("s").str.len_chars(), c("s").str.len_bytes(),
    c("s").str.starts_with("a"), c("s").str.ends_with("é"), c("s").str.contains("a.?"), c("s").str.slice(1, 2),
    c("s").str.slice(-1), c("s").str.head(2), c("s").str.tail(2), c("i").is_in([1, 2, None]), c("s").is_in(["a", ""]),
    c("d").dt.year(), c("d").dt.month(), c("d").dt.day(), c("d").dt.weekday(), c("d").dt.ordinal_day(),
    c("d").dt.quarter(), c("d").dt.week(), c("d").dt.iso_year(), c("t").dt.hour(), c("t").dt.minute(),
    c("t").dt.second(), c("t").dt.year(), c("s").cast(pl.Int64), c("x").cast(pl.Int8), c("i").cast(pl.UInt8),
    c("i").cast(pl.String), c("u").cast(pl.Int32), c("x").cast(pl.Boolean), c("e").cast(pl.String),
    c("d").cast(pl.String), c("s").cast(pl.Float64), pl.when(c("i") > 0).then(c("j")).otherwise(None),
    pl.when(c("b")).then(pl.lit("yes")).otherwise(c("s")), c("s") + "z", c("i").alias("renamed"), c("e") == "p",
    pl.lit(3), c("b").cast(pl.Int64) * 2,
]  # fmt: skip


@pytest.mark.parametrize("expression", ALLOWED, ids=lambda e: str(e).replace("\n", "")[:60])
def test_what_is_allowed_is_total_and_row_wise(expression):
    """On values at every limit: no error on either engine, and each row as it would be alone or in another order."""
    checked = check_expression(expression, schema=SCHEMA, what="with_columns")
    name = checked.name
    for engine in ("in-memory", "streaming"):
        whole = NASTY.lazy().with_columns(checked.expr).collect(engine=engine)[name]
        alone = [
            NASTY[i : i + 1].lazy().with_columns(checked.expr).collect(engine=engine)[name] for i in range(NASTY.height)
        ]
        turned = NASTY.reverse().lazy().with_columns(checked.expr).collect(engine=engine)[name].reverse()
        assert whole.equals(pl.concat(alone), null_equal=True)
        assert whole.equals(turned, null_equal=True)


def test_every_listed_function_is_probed():
    names = set()

    def walk(node):
        if isinstance(node, dict):
            if "Function" in node:
                names.add(expressions._function_name(node["Function"]["function"]))
            if "BinaryExpr" in node:
                names.add(node["BinaryExpr"]["op"])
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    for expression in ALLOWED:
        walk(expressions._tree(expression, "test"))
    listed = expressions._NUMERIC | expressions._ANY | expressions._LITERAL_ARGUMENTS | expressions._COMPARE
    listed |= expressions._ARITHMETIC
    # Other spellings of the same thing in other versions of Polars.
    listed -= {"EqValidity", "NotEqValidity"} - names
    assert listed - names == set()


REFUSED = [
    (c("x") - c("x").mean(), "mean.*aggregate looks at other rows"),
    (c("x").sum(), "aggregate"),
    (c("x").max() > 3, "aggregate"),
    (c("x").over("s"), "window"),
    (c("x").rolling_mean(2), "is not allowed"),
    (c("x").shift(1), "is not allowed"),
    (c("x").diff(), "is not allowed"),
    (c("x").cum_sum(), "is not allowed"),
    (c("x").rank(), "is not allowed"),
    (c("x").sort(), "is not allowed"),
    (c("x").unique(), "is not allowed"),
    (c("x").reverse(), "is not allowed"),
    (c("x").sample(3), "is not allowed"),
    (c("x").shuffle(), "is not allowed"),
    (c("x").fill_null(strategy="forward"), "is not allowed"),
    (c("x").interpolate(), "is not allowed"),
    (c("x").gather(0), "reads other rows|is not allowed"),
    (c("x").head(1), "is not allowed"),
    (c("x").filter(c("b")), "is not allowed"),
    (c("i").is_in(c("j")), "column as its argument"),
    (c("i").is_in(pl.Series([1, 2])), None),
    (c("e").to_physical(), "is not allowed"),
    (c("s").hash(), "is not allowed"),
    (c("s").str.contains(c("s")), "column as its argument"),
    (c("s").str.to_date("%Y"), "is not allowed"),
    (c("s").str.to_integer(), "is not allowed"),
    (c("s").str.json_decode(pl.Int64), "is not allowed"),
    (c("s").cast(pl.Categorical), "cast to this type"),
    (c("s").cast(pl.Enum(["a"])), "cast to this type"),
    (c("t").cast(pl.Int64), "may fail"),
    (c("t") + datetime.timedelta(days=1), "may fail"),
    (c("i").replace_strict({1: 2}), "is not allowed"),
    (pl.len(), "number of rows"),
    (pl.int_range(0, pl.len()), "is not allowed"),
    (pl.lit(pl.Series([1, 2, 3, 4, 5, 6, 7])), "Series or list"),
    (pl.all(), "name the columns"),
    (pl.col("^i.*$"), "name the columns"),
    (c("x").map_batches(lambda s: s), "can't be checked|is not allowed"),
    (c("x").map_elements(lambda s: s, return_dtype=pl.Float64), "can't be checked|is not allowed"),
    (pl.struct("i", "j"), "is not allowed"),
    (c("x") ** 2, "is not allowed"),
]


@pytest.mark.parametrize(("expression", "text"), REFUSED, ids=lambda x: str(x).replace("\n", "")[:50])
def test_what_is_not_listed_is_refused_with_the_reason(expression, text):
    if text is None:  # a literal Series as a list of values: allowed or refused, but never read row by row
        try:
            checked = check_expression(expression, schema=SCHEMA, what="filter")
        except ExpressionNotAllowed:
            return
        assert NASTY.select(checked.expr).height == NASTY.height
        return
    with pytest.raises(ExpressionNotAllowed, match=text) as refused:
        check_expression(expression, schema=SCHEMA, what="filter")
    assert "filter of a private frame" in str(refused.value)


def test_strict_casts_become_null_returning_ones():
    checked = check_expression(c("s").cast(pl.Int64, strict=True), schema=SCHEMA, what="with_columns")
    assert NASTY.select(checked.expr)["s"].to_list() == [None, None, None, 12, None, None, None]
    assert '"NonStrict"' in checked.canonical


def test_the_canonical_text_is_the_same_for_the_same_expression_and_differs_for_others():
    def text(expression):
        return check_expression(expression, schema=SCHEMA, what="filter").canonical

    assert text((c("i") > 1) & c("b")) == text((pl.col("i") > 1) & pl.col("b"))
    assert len({text(c("i") > 1), text(c("i") > 2), text(c("i") >= 1), text(c("j") > 1), text(c("i").is_in([1]))}) == 5
    assert text(c("i").is_in([1, 2])) != text(c("i").is_in([1, 3]))


def test_names_and_columns_are_told():
    checked = check_expression((c("i") + c("j")).alias("k"), schema=SCHEMA, what="by")
    assert (checked.name, checked.columns) == ("k", {"i", "j"})
    assert check_expression("s", schema=SCHEMA, what="by").name == "s"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (c("ii"), "no column ii. Did you mean i"),
        ("nothing at all", "no column nothing at all. It has i, j"),
        (3.5, "takes column names and expressions"),
        (None, "takes column names and expressions"),
        (c("s").dt.year(), "Polars can't run this expression"),
    ],
)
def test_mistakes_are_named(expression, text):
    with pytest.raises(InvalidParameterError, match=text):
        check_expression(expression, schema=SCHEMA, what="by")
