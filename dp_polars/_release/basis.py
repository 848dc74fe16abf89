"""Counts, sums, means and variances from the noisy sums of a basis of polynomials."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._plan.needs import Made
from dp_polars._plan.plan import Plan
from dp_polars._release.moments import DAY

Floats = NDArray[np.float64]


def basis_answers(noisy: pl.DataFrame, made: Made, plan: Plan) -> list[pl.Series]:
    """Return an aggregate's answer from the sums of a basis, and its interval where asked for."""
    part = plan.part(made.pieces["basis"])
    shape = (noisy.height, len(part.piece.columns))
    table = noisy[part.name].to_numpy().reshape(shape).astype(np.float64) / float(part.piece.whole)
    sums = list(table.T)
    found = [_answer(sums, made, plan)]
    if plan.query.interval is not None:
        # All noises stay within their error at once with the confidence asked for (independent: its root each). Counts,
        # sums and means rise or fall with each of the sums alone, so their ends are at corners.
        error = part.error(plan.query.interval ** (1 / len(sums))) / float(part.piece.whole)
        corners = [
            _answer([one + sign * error for one, sign in zip(sums, signs, strict=True)], made, plan)
            for signs in product((-1, 1), repeat=len(sums))
        ]
        found += [np.min(corners, axis=0), np.max(corners, axis=0)]
    return [pl.Series(values, dtype=pl.Float64) for values in found]


def _answer(sums: Sequence[Floats], made: Made, plan: Plan) -> Floats:
    """Return the answer: with t the place of a value between the bounds, sums are of C(d, i) t**i (1 - t)**(d - i)."""
    one, degree = made.aggregate, len(sums) - 1
    rows: Floats = np.sum(sums, axis=0)
    if one.kind == "count":
        return rows
    grid, value = plan.part(made.pieces["basis"]).grid, one.values[0]
    unit = float(value.unit)
    step, width = float(grid.step) * unit, grid.high - grid.low
    first: Floats = np.sum([place / degree * own for place, own in enumerate(sums)], axis=0)
    if one.kind == "sum":  # decimals are counted in their last digit
        return (width * first + grid.low * rows) * float(grid.step) + float(grid.offset) * rows
    most = np.maximum(rows, 1)
    place = np.clip(first / most, 0, 1)
    if one.kind == "mean":
        lower, upper = float(value.lower) * unit, float(value.upper) * unit
        mean = np.clip((width * place + grid.low) * step + float(grid.offset) * unit, lower, upper)
        return mean * DAY if value.dtype == pl.Date else mean  # of dates it has a time of day
    spread = np.clip(sums[2] / most - place**2, 0, 0.25)
    variance: Floats = spread * (width * step) ** 2 * most / np.maximum(most - one.ddof, 1)
    return np.sqrt(variance) if one.kind == "std" else variance
