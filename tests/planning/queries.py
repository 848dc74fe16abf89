"""Queries for tests, without a front end."""

from fractions import Fraction

import polars as pl

from dp_polars.planning.query import Key, Query, Spend, Value


def query(aggregate="count", keys=("k",), domain=None, bounds=None, per="row", integers=True, unit=("u",), **words):
    value = None
    if aggregate in ("sum", "mean"):
        lower, upper = bounds or (0, 10)
        value = Value(expression="v", lower=Fraction(lower), upper=Fraction(upper), integers=integers, per=per)
    spend = words.pop("spend", None) or Spend(epsilon=Fraction(1, 2))
    return Query(
        **{
            "aggregate": aggregate,
            "name": "v" if value else aggregate,
            "unit": unit,
            "keys": tuple(Key(name=k, expression=k, dtype=pl.String(), constant_per_unit=False) for k in keys),
            "domain": domain,
            "domain_rule": "given" if domain is not None else "",
            "value": value,
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
