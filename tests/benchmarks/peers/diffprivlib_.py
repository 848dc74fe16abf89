"""diffprivlib asked one question by region, users bounded by hand: `python diffprivlib_.py DATA QUESTION ...`."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import shared
from diffprivlib import __version__, tools

warnings.simplefilter("ignore")


def bounded(frame, ask):
    """Return regions (as numbers) and values of users who were bounded at random, and the epsilon of a row."""
    frame = frame.sample(fraction=1, shuffle=True).filter(pl.int_range(pl.len()).over("user", "region") < ask.max_rows)
    order = pl.struct("user", "region").hash(np.random.default_rng().integers(2**63))
    frame = frame.filter(order.rank("dense").over("user") <= ask.max_groups)
    codes = frame["region"].cast(pl.Enum(shared.REGIONS)).to_physical().to_numpy()
    return codes, frame["value"].to_numpy(), ask.own_epsilon / (ask.max_groups * ask.max_rows)


def count(frame, ask):
    codes, _, epsilon = bounded(frame, ask)
    counts, _ = tools.histogram(codes, epsilon=epsilon, bins=len(shared.REGIONS), range=(0, len(shared.REGIONS)))
    return dict(zip(shared.REGIONS, counts, strict=True))


def sum_(frame, ask):
    """Sum over all rows, with zero for other regions, because diffprivlib's sum reveals how many rows it sums."""
    codes, values, epsilon = bounded(frame, ask)
    values = values.clip(ask.lower, ask.upper)
    bounds = (min(ask.lower, 0), max(ask.upper, 0))
    return {
        region: tools.sum(np.where(codes == code, values, 0), epsilon=epsilon, bounds=bounds)
        for code, region in enumerate(shared.REGIONS)
    }


def by_region(tool, frame, ask):
    codes, values, epsilon = bounded(frame, ask)
    bounds = (ask.lower, ask.upper)
    return {
        region: tool(values[codes == code], epsilon=epsilon, bounds=bounds)
        for code, region in enumerate(shared.REGIONS)
    }


def mean(frame, ask):
    return by_region(tools.mean, frame, ask)


def variance(frame, ask):
    return by_region(tools.var, frame, ask)


def median(frame, ask):
    return by_region(tools.median, frame, ask)


def note(ask):
    sizes = "; takes the number of rows of each region as public" if ask.question in ("mean", "variance") else ""
    return f"protects rows: the caller bounded users by hand and divided epsilon by their rows{sizes}"


if __name__ == "__main__":
    asked = {
        "count": (count, bounded),
        "sum": (sum_, bounded),
        "mean": (mean, by_region, bounded),
        "variance": (variance, by_region, bounded),
        "median": (median, by_region, bounded),
    }
    shared.main(pl.read_parquet, asked, __version__, note)
