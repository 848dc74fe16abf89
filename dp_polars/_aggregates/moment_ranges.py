"""The ranges of variances, correlations and regressions over limits of the sums that they are made of.

All limits hold at once with the wanted confidence, and so does the range of any function of the sums over them. Values
are measured from their centres: with Q = sum of xy, X = sum of x, Y = sum of y and the number of rows N, the sum of
products about the means is Q - X Y / N. Limits may be infinite. Where this leaves a range undefined, it is everything
that the bounds allow.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from dp_polars._aggregates.base import Ends, Floats
from dp_polars._aggregates.values import Value

FloatRange = tuple[Floats, Floats]
SumRanges = Mapping[str, FloatRange]


def covariance_range(sums: SumRanges, values: tuple[Value, ...], product: str, ddof: int) -> Ends:
    """Return the range of (Q - X Y / N) / (N - ddof), within what the bounds allow.

    It rises with Q and falls with X Y. As a function of N alone it has its extremes at the limits of N, or where its
    derivative is 0: Q N**2 - 2 X Y N + X Y ddof = 0.
    """
    rows = _rows(sums["rows"], ddof)
    lowest, highest = _product(sums, product)
    found = [
        _extreme(sums[product][0], highest, rows, ddof, np.minimum),
        _extreme(sums[product][1], lowest, rows, ddof, np.maximum),
    ]
    largest, unit = largest_covariance(values, product)
    most = largest * rows[0] / np.maximum(rows[0] - ddof, 1)
    least = np.zeros_like(most) if product[0] == product[1] else -most
    low, high = (np.clip(end, least, most) * unit for end in _defined(*found))
    return pl.Series(low, dtype=pl.Float64), pl.Series(high, dtype=pl.Float64)


def correlation_range(sums: SumRanges) -> Ends:
    """Return the range of the correlation, which is -1 to 1 unless both columns certainly vary."""
    rows = _rows(sums["rows"], 1)
    together, first, second = (_about_means(sums, product, rows) for product in ("xy", "xx", "yy"))
    with np.errstate(invalid="ignore"):
        least, most = (np.sqrt(first[end] * second[end]) for end in (0, 1))
    low, high = _quotient(together, (least, most))
    return pl.Series(np.clip(low, -1, 1), dtype=pl.Float64), pl.Series(np.clip(high, -1, 1), dtype=pl.Float64)


def regression_range(sums: SumRanges, values: tuple[Value, ...], centres: tuple[float, float]) -> tuple[Ends, Ends]:
    """Return the ranges of the slope and of the intercept. They are infinite unless x certainly varies."""
    rows = _rows(sums["rows"], 1)
    slope = _quotient(_about_means(sums, "xy", rows), _about_means(sums, "xx", rows))
    means = []
    for value, letter, centre in zip(values, "xy", centres, strict=True):
        limits = _quotient(sums[letter], rows)
        means.append(tuple(np.clip(limit + centre, float(value.lower), float(value.upper)) for limit in limits))
    with np.errstate(invalid="ignore"):
        corners = np.stack([slope_end * mean for slope_end in slope for mean in means[0]])
    known = np.isfinite(slope[0]) & np.isfinite(slope[1])
    intercept = (
        np.where(known, means[1][0] - corners.max(axis=0), -np.inf),
        np.where(known, means[1][1] - corners.min(axis=0), np.inf),
    )
    of_x, of_y = (float(value.unit) for value in values)
    ends = ([end * of_y / of_x for end in slope], [end * of_y for end in intercept])
    (first, last), (least, most) = ([pl.Series(end, dtype=pl.Float64) for end in pair] for pair in ends)
    return (first, last), (least, most)


def _rows(limits: FloatRange, ddof: int) -> FloatRange:
    """Return the limits of the number of rows. A group that has a variance has more than `ddof` rows."""
    low = np.maximum(limits[0], max(1, ddof + 1))
    return low, np.maximum(limits[1], low)


def _product(sums: SumRanges, product: str) -> FloatRange:
    """Return the range of X Y, or of the square of X."""
    first, second = (sums[letter] for letter in product)
    with np.errstate(invalid="ignore"):
        corners = np.stack([x_end * y_end for x_end in first for y_end in second])
    low = corners.min(axis=0)
    if product[0] == product[1]:
        low = np.where((first[0] <= 0) & (first[1] >= 0), 0.0, np.minimum(first[0] ** 2, first[1] ** 2))
    return low, corners.max(axis=0)


def _about_means(sums: SumRanges, product: str, rows: FloatRange) -> FloatRange:
    """Return the range of Q - X Y / N. Sums of squares are never negative."""
    least, most = _product(sums, product)
    with np.errstate(invalid="ignore"):
        low = sums[product][0] - np.maximum(most / rows[0], most / rows[1])
        high = sums[product][1] - np.minimum(least / rows[0], least / rows[1])
    low, high = _defined(low, high)
    return (np.maximum(low, 0), np.maximum(high, 0)) if product[0] == product[1] else (low, high)


def _quotient(above: FloatRange, below: FloatRange) -> FloatRange:
    """Return the range of a quotient whose denominator is not negative: all numbers if it may be 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.minimum(above[0] / below[0], above[0] / below[1])
        high = np.maximum(above[1] / below[0], above[1] / below[1])
    known = below[0] > 0
    return _defined(np.where(known, low, -np.inf), np.where(known, high, np.inf))


def _defined(low: Floats, high: Floats) -> FloatRange:
    """Return a range whose undefined ends (NaN) are replaced by infinite ones."""
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def _extreme(q: Floats, xy: Floats, rows: FloatRange, ddof: int, least_or_most: np.ufunc) -> Floats:
    """Return an extreme of (Q N - X Y) / (N (N - ddof)) over the limits of the rows N."""
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(xy * xy - q * xy * ddof, 0))
        inner = [np.nan_to_num((xy + sign * root) / q, nan=1.0) for sign in (-1, 1)]
        candidates = [np.clip(n, *rows) for n in (*rows, *inner)]
        found: Floats = least_or_most.reduce([(q * n - xy) / (n * (n - ddof)) for n in candidates])
    return found


def largest_covariance(values: tuple[Value, ...], product: str) -> tuple[float, float]:
    """Return the largest covariance that the bounds allow, in stored units, and the value of one such unit.

    The variance of a value within its bounds is at most a quarter of the squared distance between them.
    """
    by_letter = dict(zip("xy", values, strict=False))
    largest, unit = 1.0, 1.0
    for letter in product:
        largest *= float(by_letter[letter].upper - by_letter[letter].lower) / 2
        unit *= float(by_letter[letter].unit)
    return largest, unit
