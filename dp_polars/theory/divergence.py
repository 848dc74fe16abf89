"""Divergences of two discrete distributions: the outputs of a mechanism on two neighbours.

Each divergence is in one direction, p against q; differential privacy needs both. The distributions are given exactly
as arrays, lists (of floats, Fractions or Decimals) or dicts from outcome to probability. They are probabilities of
outputs, never samples or data.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import Number, delta_of, exact
from dp_polars.errors import InvalidParameterError
from dp_polars.theory._rounding import UNIT_ROUNDOFF, exponential_remainder, real, upward

Array = NDArray[np.float64]


Distribution = Mapping[Hashable, Number] | Sequence[Number] | NDArray[np.float64]


_TOLERANCE = 1e-9


def paired(p: Distribution, q: Distribution) -> tuple[Array, Array]:
    """Return both distributions as arrays over the same outcomes, each scaled to sum to 1."""
    if isinstance(p, Mapping) and isinstance(q, Mapping):
        outcomes = list(dict.fromkeys([*p, *q]))
        first, second = [p.get(o, 0) for o in outcomes], [q.get(o, 0) for o in outcomes]
        return _normalised(first, "p"), _normalised(second, "q")
    if isinstance(p, Mapping) or isinstance(q, Mapping):
        raise InvalidParameterError(
            "p and q must both be dicts from outcome to probability, or both be arrays over the same outcomes."
        )
    first_array, second_array = _normalised(p, "p"), _normalised(q, "q")
    if first_array.size != second_array.size:
        raise InvalidParameterError(
            f"p has {first_array.size} outcomes and q has {second_array.size}; "
            "they must list the same outcomes in the same order (write 0 for an impossible one)."
        )
    return first_array, second_array


def log_ratios(p: Array, q: Array) -> tuple[Array, Array]:
    """Return ln(p/q), rounded up by a few ulps and infinite where q = 0, for all outcomes with p > 0, and those p."""
    possible = p > 0.0
    p, q = p[possible], q[possible]
    losses = np.full(p.shape, math.inf)
    shared = q > 0.0
    top, bottom = p[shared], q[shared]
    # If p and q are close, p − q is exact, so log1p keeps small losses precise. If they are far apart, the difference
    # of logarithms cannot overflow.
    near = (top < 2.0 * bottom) & (bottom < 2.0 * top)
    relative = np.where(near, (top - bottom) / np.where(near, bottom, 1.0), 0.0)
    ratio = np.where(near, np.log1p(relative), np.log(top) - np.log(bottom))
    losses[shared] = ratio + 4.0 * np.spacing(np.abs(ratio)) * (ratio != 0.0)
    return losses, p


def max_divergence(p: Distribution, q: Distribution) -> float:
    """Return the largest ln(p/q), the least epsilon of pure differential privacy in this direction.

    Parameters
    ----------
    p, q
        Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.

    Returns
    -------
    float
        The divergence (Dwork and Roth 2014, Definition 3.6), rounded up. It is infinite if an outcome is possible
        under p and impossible under q.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.max_divergence({"yes": 0.75, "no": 0.25}, {"yes": 0.25, "no": 0.75}), 4)
    1.0986
    """
    losses, _ = log_ratios(*paired(p, q))
    return float(losses.max())


def approximate_max_divergence(p: Distribution, q: Distribution, delta: Number) -> float:
    """Return the delta-approximate max divergence, the largest ln((P(S) − δ)/Q(S)) over all events S.

    It is the least ε at which the hockey-stick divergence is at most δ. If this holds in both directions, the mechanism
    is (ε, δ)-DP. A negative value means that the distributions are closer than δ alone requires.

    Parameters
    ----------
    p, q
        Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.
    delta
        The probability that is set aside. With 0 the result is the max divergence.

    Returns
    -------
    float
        The divergence (Dwork and Roth 2014, Definition 3.6), rounded up.

    Examples
    --------
    >>> import dp_polars as dp
    >>> p, q = [0.5, 0.4, 0.1], [0.4, 0.6, 0.0]
    >>> dp.theory.max_divergence(p, q)
    inf
    >>> round(dp.theory.approximate_max_divergence(p, q, 0.1), 4)
    0.2231
    """
    aside = float(delta_of(delta, zero=True))
    if aside == 0.0:
        return max_divergence(p, q)
    first, second = paired(p, q)
    losses, _ = log_ratios(first, second)
    order = np.argsort(-losses, kind="stable")
    possible = first > 0.0
    # By the Neyman-Pearson lemma the best event consists of the outcomes with the largest losses.
    inside = np.cumsum(first[possible][order])
    outside = np.cumsum(second[possible][order])
    error = UNIT_ROUNDOFF * (losses.size + 4)
    eligible = inside > aside
    if not eligible.any():  # only if `aside` exceeds a total mass that rounding left below 1
        return math.log1p(-aside)
    numerator = inside[eligible] * (1.0 + error) - aside
    denominator = outside[eligible] * (1.0 - error)
    if (denominator == 0.0).any():
        return math.inf
    return float(np.max(np.log(numerator) - np.log(denominator)))


def hockey_stick(p: Distribution, q: Distribution, epsilon: Number) -> float:
    """Return Σ max(0, p − e^ε·q), the least delta at this epsilon in this direction.

    Parameters
    ----------
    p, q
        Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.
    epsilon
        Any number. With 0 the result is the total variation distance.

    Returns
    -------
    float
        The divergence, rounded up.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.hockey_stick([0.75, 0.25], [0.25, 0.75], 0), 6)
    0.5
    """
    loss = real(epsilon, "epsilon")
    losses, masses = log_ratios(*paired(p, q))
    above = losses > loss
    return min(1.0, upward(math.fsum(masses[above] * -np.expm1(loss - losses[above]))))


def kl_divergence(p: Distribution, q: Distribution) -> float:
    """Return the Kullback-Leibler divergence, which is the mean privacy loss.

    Parameters
    ----------
    p, q
        Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.

    Returns
    -------
    float
        Σ p·ln(p/q), rounded up. It is infinite if an outcome is possible under p and impossible under q.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.kl_divergence([0.75, 0.25], [0.25, 0.75]), 4)
    0.5493
    """
    first, second = paired(p, q)
    losses, masses = log_ratios(first, second)
    if math.isinf(losses.max()):
        return math.inf
    # As p and q both sum to 1, Σ p·ℓ equals Σ p·(ℓ + e^{−ℓ} − 1) plus the mass of q where p is 0, and no term is
    # negative. Where ℓ is large, q itself is more precise than p·e^{−ℓ}.
    close = np.abs(losses) < 0.5
    terms = np.where(
        close,
        masses * exponential_remainder(np.where(close, -losses, 0.0)),
        (second[first > 0.0] - masses) + masses * losses,
    )
    return upward(math.fsum(terms) + math.fsum(second[first == 0.0]))


def _normalised(values: object, name: str) -> Array:
    try:
        array = np.asarray(values)
    except ValueError as error:  # lists of different lengths inside a list
        raise InvalidParameterError(f"{name} must be a flat list of probabilities.") from error
    if array.ndim != 1 or array.size == 0:
        raise InvalidParameterError(
            f"{name} must be a non-empty one-dimensional list of probabilities or a dict from "
            f"outcome to probability, got shape {array.shape}."
        )
    if array.dtype.kind == "O":
        fractions = [exact(value, f"a probability of {name}") for value in array.tolist()]
        _check(min(fractions) < 0, float(sum(fractions)), name)
        total = sum(fractions, Fraction(0))
        return np.array([float(value / total) for value in fractions])
    if array.dtype.kind not in "fiu":
        raise InvalidParameterError(f"{name} must hold probabilities, got values of type {array.dtype}.")
    floats = array.astype(np.float64)
    if not np.isfinite(floats).all():
        raise InvalidParameterError(f"{name} holds a value that is not a finite number.")
    mass = math.fsum(floats)
    _check(bool((floats < 0.0).any()), mass, name)
    return floats if mass == 1.0 else floats / mass


def _check(has_negative: bool, mass: float, name: str) -> None:
    if has_negative:
        raise InvalidParameterError(f"{name} holds a negative probability.")
    if abs(mass - 1.0) > _TOLERANCE:
        raise InvalidParameterError(
            f"The probabilities of {name} sum to {mass!r}, which is not 1 within {_TOLERANCE}. Is an outcome missing?"
        )
