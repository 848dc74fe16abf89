"""OpenDP's Polars integration asked one question by region: `python opendp_.py DATA QUESTION EPSILON DELTA ...`."""

from __future__ import annotations

import math
import warnings
from importlib.metadata import version

import opendp.prelude as dp
import polars as pl
import shared

warnings.simplefilter("ignore")
dp.enable_features("contrib")
KEYS = pl.LazyFrame({"region": shared.REGIONS})


def query(frame, ask):
    """Bound each user.

    OpenDP 0.16 fails to choose groups at random, so the first ones are kept. It keeps one group fewer than it is asked
    for and charges for, so it is asked for one more than the cap. Laplace noise depends on the rows of a user in all
    groups together, so there they are capped together, which costs the same as both caps and cuts off less.
    """
    context = dp.Context.compositor(
        data=frame.lazy(),
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("user")),
        privacy_loss=loss(ask),
        split_evenly_over=1,
        # How many digits the number of rows has is public: float sums are noisier the longer they may be.
        margins=[dp.polars.Margin(by=(), max_length=10 ** math.ceil(math.log10(frame.height)))],
    )
    if together(ask):
        return context.query().truncate_per_group(ask.max_rows * ask.max_groups).group_by("region")
    bounded = context.query().truncate_per_group(ask.max_rows, by=["region"])
    return bounded.truncate_num_groups(ask.max_groups + 1, by=["region"], keep="first").group_by("region")


def together(ask):
    """Whether rows of a user are capped over all groups. Medians are charged per group."""
    return ask.question != "median" and not shared.prefers_gaussian(ask)


def loss(ask):
    """Return the loss with the smaller error: Laplace for epsilon, or Gaussian for the rho that delta allows."""
    if shared.prefers_gaussian(ask):
        return dp.loss_of(rho=ask.own_rho)
    return dp.loss_of(epsilon=ask.own_epsilon)


def count(frame, ask):
    counts = query(frame, ask).agg(dp.len(signed=True)).with_keys(KEYS)
    return dict(counts.release().collect().select("region", "len").rows())


def sum_(frame, ask):
    sums = query(frame, ask).agg(pl.col("value").dp.sum((ask.lower, ask.upper))).with_keys(KEYS)
    return dict(sums.release().collect().select("region", "value").rows())


def mean(frame, ask):
    """Ask for the mean around the middle of the bounds, which needs half of the noise on the sum."""
    centred = pl.col("value") - ask.middle
    means = query(frame, ask).agg(centred.dp.mean((-ask.half, ask.half))).with_keys(KEYS)
    return dict(means.release().collect().select("region", pl.col("value") + ask.middle).rows())


def variance(frame, ask):
    """Ask for two moments around the middle, and the squares around the middle of theirs; OpenDP has no variance."""
    centred, middle = pl.col("value") - ask.middle, ask.half**2 / 2
    sums = centred.dp.sum((-ask.half, ask.half)).alias("sum")
    squares = (centred * centred - middle).dp.sum((-middle, middle)).alias("squares")
    moments = query(frame, ask).agg(sums, squares, dp.len(signed=True)).with_keys(KEYS).release().collect()
    variances = pl.col("squares") / pl.col("len") + middle - (pl.col("sum") / pl.col("len")) ** 2
    return dict(moments.select("region", variances).rows())


def median(frame, ask):
    candidates = [ask.lower + 2 * ask.half * step / 1000 for step in range(1001)]
    medians = query(frame, ask).agg(pl.col("value").dp.median(candidates)).with_keys(KEYS)
    return dict(medians.release().collect().select("region", "value").rows())


def note(ask):
    kind = "zCDP" if shared.prefers_gaussian(ask) else "pure epsilon"
    own = " variance from three released moments;" if ask.question == "variance" else ""
    caps = "rows capped over all groups" if together(ask) else "first groups kept; charged for one more than it keeps"
    return f"{kind};{own} {caps}"


if __name__ == "__main__":
    asked = {
        name: (function, query)
        for name, function in zip(shared.QUESTIONS, (count, sum_, mean, variance, median), strict=True)
    }
    shared.main(pl.read_parquet, asked, version("opendp"), note)
