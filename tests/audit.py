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
from dp_polars.releasing.noise import noisy_aggregates
from dp_polars.releasing.run import request_of
from tests.bits import SeededBits

FALSE_ALARM = 1e-7


def exact_answers(plan, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the exact bounded aggregates of a plan; the salt is fixed, so that an audit can be repeated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.secrets, "randbits", lambda _: 20_261_116)
        return run_bounded(frame.lazy(), request_of(plan))


def released(plan, exact: pl.DataFrame, copies: int, seed: int) -> pl.DataFrame:
    """Return `copies` releases of exact answers, stacked, with a column `copy`."""
    copy = pl.Series("copy", np.repeat(np.arange(copies), exact.height))
    stacked = pl.concat([exact] * copies).with_columns(copy)
    if not plan.query.keys:
        return noisy_aggregates(stacked, plan, SeededBits(seed)).with_columns(copy)
    # The copy number rides along with the first key through the noise path, which only keeps or drops rows.
    carried = stacked.with_columns(key0=pl.struct("key0", "copy"))
    return noisy_aggregates(carried, plan, SeededBits(seed)).unnest("key0")


def audit(plan, left: pl.DataFrame, right: pl.DataFrame, copies: int = 60_000) -> float:
    """Return a lower bound on the epsilon of a plan with public keys, from two neighbouring frames."""
    exact = [exact_answers(plan, frame) for frame in (left, right)]
    statistics = []
    for seed, table in enumerate(exact):
        noisy = released(plan, table, copies, seed)
        ratio = np.zeros(copies)
        for part in plan.parts:
            drawn = noisy[part.column].to_numpy().reshape(copies, -1)
            ratio += _log_ratio(drawn, *(t[part.column].to_numpy() for t in exact), part.noise)
        statistics.append(ratio)
    return epsilon_lower_bound(*statistics, delta=float(plan.cost.gaussian_delta))


def _log_ratio(drawn, a, b, noise):
    """Return log P(drawn | a) / P(drawn | b) for the noise that the plan names."""
    if noise.mechanism == "laplace":
        return (np.abs(drawn - b) - np.abs(drawn - a)).sum(axis=1) / float(noise.parameter)
    return ((drawn - b) ** 2 - (drawn - a) ** 2).sum(axis=1) / (2 * float(noise.parameter))


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
