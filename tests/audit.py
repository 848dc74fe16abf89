"""The auditor: a whole query on two neighbouring frames, many times, and a lower bound on the epsilon it really has.

The exact part runs once for each frame; the real noise path runs on as many copies as asked, at once. A distinguisher
then looks for an event that is likelier on one frame than epsilon and delta allow: the half-lines of the likelihood
ratio between the two exact answers, as an attacker who knows both would use it. Clopper-Pearson limits make it a
statement with a stated false-alarm rate.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from dp_polars.engines.polars import engine, run_bounded
from dp_polars.engines.request import Exact
from dp_polars.releasing.noise import _vector, noisy_aggregates
from dp_polars.releasing.quantiles import _Descent
from dp_polars.releasing.run import request_of
from tests.bits import SeededBits
from tests.mechanisms.test_quantiles import law_of

FALSE_ALARM = 1e-7


def exact_answers(plan, frame: pl.DataFrame) -> Exact:
    """Return the exact bounded aggregates of a plan; the salt is fixed, so that an audit can be repeated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.secrets, "randbits", lambda _: 20_261_116)
        return run_bounded(frame.lazy(), request_of(plan))


def released(plan, exact: Exact, copies: int, seed: int) -> pl.DataFrame:
    """Return `copies` releases of exact answers, stacked, with a column `copy`."""
    height = exact.groups.height
    copy = pl.Series("copy", np.repeat(np.arange(copies), height))
    stacked = pl.concat([exact.groups] * copies).with_columns(copy)
    cells = {
        name: pl.concat([table] * copies).with_columns(
            group=pl.col("group") + pl.Series(np.repeat(np.arange(copies) * height, table.height), dtype=pl.Int64)
        )
        for name, table in exact.cells.items()
    }
    if not plan.query.keys:
        return noisy_aggregates(Exact(stacked, cells), plan, SeededBits(seed)).with_columns(copy)
    # The copy number rides along with the first key through the noise path, which only keeps or drops rows.
    carried = stacked.with_columns(key0=pl.struct("key0", "copy"))
    return noisy_aggregates(Exact(carried, cells), plan, SeededBits(seed)).unnest("key0")


def audit(plan, left: pl.DataFrame, right: pl.DataFrame, copies: int = 60_000) -> float:
    """Return a lower bound on the epsilon of a plan with public keys, from two neighbouring frames."""
    exact = [exact_answers(plan, frame) for frame in (left, right)]
    statistics = []
    for seed, table in enumerate(exact):
        noisy = released(plan, table, copies, seed)
        ratio = np.zeros(copies)
        for part in plan.parts:
            drawn = _drawn(noisy, part, copies)
            if part.noise is None:
                ratio += _log_ratio_of_choices(drawn, exact, plan, part)
            else:
                ratio += _log_ratio(drawn, *(_vector(t, part).ravel() for t in exact), part.noise)
        statistics.append(ratio)
    return epsilon_lower_bound(*statistics, delta=float(plan.cost.gaussian_delta))


def _drawn(noisy, part, copies):
    column = noisy[part.name]
    return (column.explode(empty_as_null=False) if column.dtype.is_nested() else column).to_numpy().reshape(copies, -1)


def _log_ratio(drawn, a, b, noise):
    """Return log P(drawn | a) / P(drawn | b) for the noise that the plan names."""
    if noise.mechanism == "laplace":
        return (np.abs(drawn - b) - np.abs(drawn - a)).sum(axis=1) / float(noise.parameter)
    return ((drawn - b) ** 2 - (drawn - a) ** 2).sum(axis=1) / (2 * float(noise.parameter))


def _log_ratio_of_choices(drawn, exact, plan, part):
    """Return log P(drawn | a) / P(drawn | b) for choices of one target, whose law is enumerated."""
    name = next(made.pieces["cells"] for made in plan.made if made.pieces.get("values") == part.name)
    (quantile,), grid = part.piece.targets, part.grid
    target, rate = _Descent(None, None, part.piece, part.epsilon, None)._target(quantile)
    ratio = np.zeros(len(drawn))
    for group in range(drawn.shape[1]):
        laws = []
        for table in exact:
            cells = table.cells[name].filter(pl.col("group") == group).select("value", "count").rows()
            laws.append(law_of(cells, grid.low, grid.high, target, rate))
        logs = {point: math.log(laws[0][point] / laws[1][point]) for point in laws[0]}
        ratio += np.array([logs[point] for point in drawn[:, group].tolist()])
    return ratio


def epsilon_lower_bound(left: np.ndarray, right: np.ndarray, delta: float = 0.0) -> float:
    """Return an epsilon that the mechanism surely exceeds, from a statistic drawn on two neighbours.

    Half of the draws choose the event, the other half judge it, so the choice costs nothing.
    """
    half = len(left) // 2
    best = 0.0
    for p, q in ((left, right), (right, left)):
        for sign in (1, -1):
            threshold = _best_threshold(sign * p[:half], sign * q[:half])
            hits_p = int((sign * p[half:] >= threshold).sum())
            hits_q = int((sign * q[half:] >= threshold).sum())
            best = max(best, _bound(hits_p, len(p) - half, hits_q, len(q) - half, delta))
    return best


def _best_threshold(p: np.ndarray, q: np.ndarray) -> float:
    candidates = np.unique(np.quantile(p, np.linspace(0.02, 0.98, 49)))
    ratios = [((p >= t).mean() + 1e-9) / ((q >= t).mean() + 50 / len(q)) for t in candidates]
    return float(candidates[int(np.argmax(ratios))])


def _bound(hits_p: int, n_p: int, hits_q: int, n_q: int, delta: float) -> float:
    tail = FALSE_ALARM / 8  # four events, two limits each
    low = stats.beta.ppf(tail, hits_p, n_p - hits_p + 1) if hits_p else 0.0
    high = stats.beta.ppf(1 - tail, hits_q + 1, n_q - hits_q) if hits_q < n_q else 1.0
    return math.log((low - delta) / high) if low > delta else 0.0
