"""Tails of discrete noise for whole arrays: in logarithms, given a threshold, and of linear combinations.

Intervals need what `accuracy` does not give. A noisy number that had to reach a threshold has a conditional law, whose
tails are quotients of numbers that may both underflow: `log_tail` and `limits_above_threshold`. An answer that combines
several independent noises has a law that must be convolved: `combined_errors`. All of them depend on public parameters
and released numbers only.

Every bound is on the safe side: a limit or an error is never inside the exact one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dp_polars.mechanisms.accuracy import gaussian_steps, laplace_steps
from dp_polars.theory._normal import mills

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

_SUM_SIGMA = 4096.0  # up to this sigma the tails of the discrete Gaussian are summed
_FAR = 40  # beyond this many sigma the tail is a geometric series, within a relative error of 1 / _FAR**2
_HALF = 2048  # cells on either side of 0 in which a combination of noises is convolved
_CUT = 1e-6  # the part of a miss that is spent on what lies beyond all cells
_LEAST_MISS = 1e-8  # smaller misses are not convolved, because the rounding error would use them up
_CLOSE = 1e-5  # relative error of the tails of a Gaussian that is not summed


@dataclass(frozen=True)
class NoiseLaw:
    """The law of a sum of `terms` independent discrete noises with the same Laplace scale or Gaussian variance."""

    mechanism: Literal["laplace", "gaussian"]
    parameter: Fraction
    terms: int = 1

    def steps(self, miss: float) -> int:
        """Return the least m for which one noise exceeds m in absolute value with probability at most `miss`."""
        if self.mechanism == "laplace":
            return laplace_steps(self.parameter, miss)
        return gaussian_steps(math.sqrt(self.parameter), miss)

    def log_tail(self, least: Numbers) -> Floats:
        """Return ln P(X >= least) for any integers.

        The law is symmetric, so P(X >= m) = 1 - P(X >= 1 - m) for m <= 0.
        """
        above = least >= 1
        logs = self._log_upper(np.where(above, least, 1 - least))
        with np.errstate(divide="ignore"):
            return np.where(above, logs, np.log1p(-np.exp(np.minimum(logs, 0.0))))

    def tail(self, least: Numbers) -> Floats:
        """Return P(X >= least) for integers of at least 1."""
        found: Floats = np.exp(self._log_upper(least))
        return found

    def _log_upper(self, least: Numbers) -> Floats:
        if self.mechanism == "laplace":
            return _log_laplace_tail(float(self.parameter), self.terms, least.astype(np.float64))
        if self.terms != 1:
            raise ValueError("a sum of Gaussian noises is Gaussian noise only if it is continuous")
        return _log_gaussian_tail(math.sqrt(self.parameter), least.astype(np.float64))


# ---------------------------------------------------------------------- logarithms of tails


def _log_laplace_tail(scale: float, terms: int, least: Floats) -> Floats:
    """Return ln P(X_1 + ... + X_k >= m) for k discrete Laplace noises and m >= 1.

    With q = exp(-1 / scale) and r = q**2, the sum is n >= 0 with probability

        (1 - q)**(2k) q**n sum_j C(n + j + k - 1, k - 1) C(j + k - 1, k - 1) r**j = (1 - q)**(2k) q**n sum_i S_i C(n, i)

    by Vandermonde's identity, where S_i = sum_j C(j + k - 1, k - 1) C(j + k - 1, k - 1 - i) r**j. Summed over
    n = m + s, with C(m + s, i) = sum_l C(m, l) C(s, i - l) and sum_s C(s, c) q**s = q**c / (1 - q)**(c + 1), this is
    q**m times a polynomial in m. Its terms are never negative for m >= k, and nothing cancels.
    """
    gap = -math.expm1(-1 / scale)  # 1 - q
    q = math.exp(-1 / scale)
    r, rest = q * q, -math.expm1(-2 / scale)  # q**2 and 1 - q**2
    weights = {
        1: [1 / rest],
        2: [(1 + r) / rest**3, 1 / rest**2],
        3: [(1 + 4 * r + r * r) / rest**5, (2 + r) / rest**4, 1 / rest**3],
    }[terms]
    # Divided by the last power of 1 - q so that no term overflows however small 1 - q is.
    binomials = [np.ones_like(least), least, least * (least - 1) / 2][:terms]
    total = np.zeros_like(least)
    for order, weight in enumerate(weights):
        for below in range(order + 1):
            up = order - below
            total += weight * gap ** (2 * terms) * q**up / gap ** (up + 1) * binomials[below]
    found: Floats = -least / scale + np.log(total)
    return found


def _log_gaussian_tail(sigma: float, least: Floats) -> Floats:
    """Return ln P(X >= m) of the discrete Gaussian for m >= 1.

    Up to 40 sigma it is summed, or for large sigma taken from the normal distribution at m - 1/2, whose relative error
    is about (z**2 - 1) / (24 sigma**2) at z sigma. Beyond, a point weighs exp(-(m i + i**2 / 2) / sigma**2) relative to
    the first, which is a geometric series but for a factor between 1 - 1 / 40**2 and 1.
    """
    variance = sigma * sigma
    # The normaliser of the discrete Gaussian exceeds sqrt(2 pi) sigma by a factor of 1 + 2 exp(-2 pi**2 sigma**2).
    far = -least * least / (2 * variance) - np.log(-np.expm1(-(least + 0.5) / variance)) - _log_normaliser(sigma)
    near = least < _FAR * sigma
    if sigma > _SUM_SIGMA:
        z = np.where(near, (least - 0.5) / sigma, 1.0)
        close = -0.5 * z * z - 0.5 * math.log(2 * math.pi) + np.log(mills(z))
    else:
        logs = _log_gaussian_tails(sigma)
        close = logs[np.where(near, least, 0).astype(np.int64)]
    return np.where(near, close, far)


@lru_cache(maxsize=8)
def _log_normaliser(sigma: float) -> float:
    if sigma > 10:
        return math.log(math.sqrt(2 * math.pi) * sigma)
    x = np.arange(1, math.ceil(40 * sigma) + 2, dtype=np.float64)
    return math.log1p(2 * float(np.exp(-x * x / (2 * sigma * sigma)).sum()))


@lru_cache(maxsize=8)
def _log_gaussian_tails(sigma: float) -> Floats:
    """Return ln P(X >= m) for m = 0, 1, ..., 40 sigma. Terms are added from the far end, each relative to the next."""
    x = np.arange(math.ceil((_FAR + 1) * sigma) + 2, dtype=np.float64)
    logs: Floats = np.logaddexp.accumulate((-x * x / (2 * sigma * sigma))[::-1])[::-1]
    # The last term of the table stands for the rest of the series as well, which is far below any rounding error.
    return logs - _log_normaliser(sigma)


# ---------------------------------------------------------------------- a number that had to reach a threshold


def limits_above_threshold(law: NoiseLaw, shown: Numbers, threshold: int, miss: float) -> tuple[Numbers, Numbers]:
    """Return the limits of whole numbers x >= 1 if x + noise is shown because it reached a threshold.

    They miss x with probability at most `miss`, given that the number is shown. A value of x is left out if the
    number shown would be at least as large, or at least as small, with a conditional probability of at most miss / 2:

        P(Y >= y | Y >= T) = P(X >= y - x) / P(X >= T - x),
        P(Y <= y | Y >= T) = 1 - P(X >= y + 1 - x) / P(X >= T - x).

    Discrete noise is log-concave, so the first rises with x and the second falls, given the threshold, too: what is
    left is an interval, found by bisection. The limits always include the number shown, which changes them where no
    value of x is left, and where a number just above the threshold tells nothing but that it is there.
    """
    return (
        lower_limit_above_threshold(law, shown, threshold, miss / 2),
        _upper_limit_above_threshold(law, shown, threshold, miss / 2),
    )


def lower_limit_above_threshold(law: NoiseLaw, shown: Numbers, threshold: int, miss: float) -> Numbers:
    """Return the lower limit alone, which exceeds x with probability at most `miss`, given that the number is shown."""
    least = math.log(miss) - _tolerance(law)

    def holds(x: Numbers) -> NDArray[np.bool_]:
        return law.log_tail(shown - x) - law.log_tail(threshold - x) > least

    start = np.ones_like(shown)
    inside = np.maximum(shown, 1)  # a number is at least as large as x half the time
    return np.where(holds(start), start, _bisected(holds, inside=inside, outside=start))


def _upper_limit_above_threshold(law: NoiseLaw, shown: Numbers, threshold: int, miss: float) -> Numbers:
    most = miss * (1 - 2 * _tolerance(law))

    def holds(x: Numbers) -> NDArray[np.bool_]:
        # ln(1 - e**r) with r = ln P(Y > y | Y >= T) below 0
        ratio = law.log_tail(shown + 1 - x) - law.log_tail(threshold - x)
        return -np.expm1(np.minimum(ratio, 0.0)) > most

    # Without the threshold the number would be at most as large with a larger probability, so x ends no later.
    outside = shown + law.terms * (law.steps(miss / law.terms) + 1)
    return _bisected(holds, inside=shown.copy(), outside=outside)


def _tolerance(law: NoiseLaw) -> float:
    """Return the relative error that a quotient of two tails may have."""
    return 1e-9 if law.mechanism == "laplace" else 2 / _FAR**2


def _bisected(holds: Callable[[Numbers], NDArray[np.bool_]], *, inside: Numbers, outside: Numbers) -> Numbers:
    """Return for each place the last whole number before `outside` at which a condition holds: `boundary` for arrays.

    As for `boundary`, the result is `inside` or a number at which the condition holds.
    """
    while True:
        middle = inside + (outside - inside) // 2
        open_ = np.abs(outside - inside) > 1
        if not open_.any():
            return inside
        middle = np.where(open_, middle, inside)
        good = holds(middle)
        inside, outside = np.where(open_ & good, middle, inside), np.where(open_ & ~good, middle, outside)


# ---------------------------------------------------------------------- linear combinations


def combined_errors(laws: Sequence[NoiseLaw], coefficients: Floats, misses: Sequence[float]) -> Floats:
    """Return bounds on linear combinations of independent noises, one row per combination and a column per miss.

    Each combination exceeds its bound in absolute value with probability at most the miss. `coefficients` has a row for
    each combination and a column for each noise.

    Each noise times its coefficient is rounded to the nearest of evenly spaced cells, whose probabilities are
    differences of exact tails. The rounded noises are convolved, and their number of half cells is added to the
    quantile, which makes up for the rounding. What lies beyond the cells, and a bound on the rounding error of the
    Fourier transform, are taken from the miss. Where the miss is too small for that, the errors of the single noises
    are added up.
    """
    terms = len(laws)
    size = np.abs(coefficients)
    single = np.array([[law.steps(miss / terms) for law in laws] for miss in misses], dtype=np.float64)
    apart: Floats = size @ single.T
    convolved = [miss for miss in misses if miss >= _LEAST_MISS]
    if terms == 1 or not convolved:
        return apart
    reach = np.array([law.steps(min(convolved) * _CUT / terms) for law in laws], dtype=np.float64)
    half, length = _HALF - terms, 2 * _HALF
    cell = (size @ reach) / half
    cell = np.where(cell > 0, cell, 1.0)[:, np.newaxis]
    spectrum = np.ones((len(size), _HALF + 1))
    norm = np.ones(len(size))
    edges = (np.arange(half + 1) + 0.5) * cell
    for law, factors in zip(laws, size.T, strict=True):
        masses = _cell_masses(law, edges, factors[:, np.newaxis])
        wrapped = np.zeros((len(size), length))
        wrapped[:, : half + 1] = masses
        wrapped[:, -half:] = masses[:, :0:-1]
        spectrum *= np.fft.rfft(wrapped, axis=1).real  # the masses are symmetric, so the transform is real
        norm *= np.sqrt(np.einsum("ij,ij->i", wrapped, wrapped))
    law_of_sum = np.fft.irfft(spectrum, n=length, axis=1)[:, : _HALF + 1]
    # P(more than j cells) for j = 0, 1, ...; the error of each number that a transform returns is at most its depth
    # times a few units of rounding, relative to the norms of what was convolved.
    beyond = 2 * np.cumsum(law_of_sum[:, :0:-1], axis=1)[:, ::-1]
    error = length * (terms + 1) * 8 * math.log2(length) * np.finfo(np.float64).eps * norm
    found = apart.copy()
    for place, miss in enumerate(misses):
        allowed = miss * (1 - 2 * _CUT - terms * _CLOSE) - error
        exceeds = beyond > allowed[:, np.newaxis]
        # The last such place is taken so that small negative numbers from rounding do no harm.
        cells = np.where(exceeds.any(axis=1), _HALF - np.argmax(exceeds[:, ::-1], axis=1), 0)
        bound = (cells + terms / 2) * cell[:, 0] * (1 + 1e-12)
        known = (allowed > 0) & (cells < half) & (miss >= _LEAST_MISS)
        found[:, place] = np.where(known, np.minimum(bound, apart[:, place]), apart[:, place])
    return found


def _cell_masses(law: NoiseLaw, edges: Floats, size: Floats) -> Floats:
    """Return the probabilities of the cells 0, 1, ... around multiples of twice the first edge, on one side of 0."""
    with np.errstate(divide="ignore"):
        places = np.where(size > 0, np.minimum(edges / np.where(size > 0, size, 1.0), 2.0**61), 2.0**61)
    tails = law.tail(np.floor(places).astype(np.int64) + 1)
    masses = np.empty_like(tails)
    masses[:, 0] = 1 - 2 * tails[:, 0]
    masses[:, 1:] = tails[:, :-1] - tails[:, 1:]
    return np.maximum(masses, 0.0)
