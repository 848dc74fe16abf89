"""Queries for tests, without a front end."""

from fractions import Fraction

import polars as pl

from dp_polars._aggregates import REGISTRY
from dp_polars._aggregates.values import Value
from dp_polars._plan.query import Key, Query, Spend

PAIRS = ("cov", "corr", "linear_regression")
UNBOUNDED = ("count", "count_units", "n_unique")


def value(name="v", bounds=(0, 10), integers=True):
    given = None if bounds is None else (Fraction(bounds[0]), Fraction(bounds[1]))
    return Value(name=name, expression=name, dtype=pl.Int64() if integers else pl.Float64(), bounds=given)


def aggregate(kind="count", bounds=None, per="row", integers=True, name=None, **words):
    values = ()
    if kind == "n_unique":
        values = (value(bounds=None, integers=integers),)
    elif kind not in UNBOUNDED:
        own = None if kind == "histogram" else bounds or (0, 10)
        values = (value(bounds=own, integers=integers),)
        if kind in PAIRS:
            values += (value("w", bounds or (0, 10), integers),)
    if kind == "histogram":
        words.setdefault("edges", tuple(Fraction(edge) for edge in (-5, 0, 3, 9)))
    ends = {"median": Fraction(1, 2), "quantile": Fraction(1, 4), "min": Fraction(0), "max": Fraction(1)}
    if kind in ends:
        words.setdefault("quantiles", (ends[kind],))
    if per != "row":
        words["per"] = per
    return REGISTRY[kind](name=name or ("v" if values else kind), values=values, **words)


def query(kind="count", keys=("k",), domain=None, bounds=None, per="row", integers=True, unit=("u",), **words):
    spend = words.pop("spend", None) or Spend(epsilon=Fraction(1, 2))
    aggregates = words.pop("aggregates", None) or (aggregate(kind, bounds, per, integers),)
    return Query(
        **{
            "aggregates": aggregates,
            "unit": unit,
            "keys": tuple(Key(name=k, expression=k, dtype=pl.String(), constant_per_unit=False) for k in keys),
            "domain": domain,
            "domain_rule": "given" if domain is not None else "",
            "max_groups": 2,
            "max_groups_rule": "test",
            "max_rows": 3,
            "max_rows_rule": "test",
            "min_units": 1,
            "interval": None,
            "nonnegative": False,
            "spend": spend,
            "steps": (),
            **words,
        }
    )
