"""Our library asked one question by region: `python ours.py DATA QUESTION EPSILON DELTA ...`."""

from __future__ import annotations

import polars as pl
import shared

import dp_polars as dp


def session(ask):
    caps = {"max_groups": ask.max_groups, "max_rows_per_group": ask.max_rows}
    return dp.Session(epsilon=ask.epsilon, delta=ask.delta, unit="user", **caps)


def count(frame, ask):
    with session(ask):
        return dict(frame.dp.count("region", keys=shared.REGIONS, epsilon=ask.epsilon).collect().rows())


def sum_(frame, ask):
    bounds = (ask.lower, ask.upper)
    with session(ask):
        sums = frame.dp.sum("value", by="region", keys=shared.REGIONS, bounds=bounds, epsilon=ask.epsilon)
        return dict(sums.collect().rows())


def mean(frame, ask):
    bounds = (ask.lower, ask.upper)
    with session(ask):
        means = frame.dp.mean("value", by="region", keys=shared.REGIONS, bounds=bounds, epsilon=ask.epsilon)
        return dict(means.collect().rows())


def variance(frame, ask):
    bounds = (ask.lower, ask.upper)
    with session(ask):
        variances = frame.dp.var("value", by="region", keys=shared.REGIONS, bounds=bounds, epsilon=ask.epsilon)
        return dict(variances.collect().rows())


def median(frame, ask):
    bounds = (ask.lower, ask.upper)
    with session(ask):
        medians = frame.dp.median("value", by="region", keys=shared.REGIONS, bounds=bounds, epsilon=ask.epsilon)
        return dict(medians.collect().rows())


if __name__ == "__main__":
    asked = {
        name: (function, session)
        for name, function in zip(shared.QUESTIONS, (count, sum_, mean, variance, median), strict=True)
    }
    shared.main(pl.scan_parquet, asked, dp.__version__, lambda ask: "reads the file for each answer")
