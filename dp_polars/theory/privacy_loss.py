"""The distribution of the privacy loss ln(P(o)/Q(o)) for outputs o drawn from P.

A `PrivacyLoss` has a mean, tails, an exact (ε, δ) curve, and a sum with other losses. It covers one direction, P
against Q; a guarantee needs both directions and is the larger of the two. Its composition is exact or pessimistic for
releases whose mechanisms and parameters are all fixed in advance. It is NOT valid if a parameter depends on earlier
answers: sessions use filters, and may charge the (ε, δ) of a fixed batch once. Nothing here sees data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import Number, boundary, count_of, delta_of, epsilon_of, positive
from dp_polars.errors import InvalidParameterError
from dp_polars.theory._convolution import MAX_ATOMS, Atoms, convolve, merged
from dp_polars.theory._normal import gaussian_excess, upper_tail
from dp_polars.theory._rounding import (
    SLACK,
    UNIT_ROUNDOFF,
    nonnegative,
    real,
    upward,
)
from dp_polars.theory.divergence import Distribution, log_ratios, paired

Array = NDArray[np.float64]

# Bound on what products of probabilities may have lost to underflow. Every delta is far larger (at least 1e-100).
_UNDERFLOW = 1e-300
# Bound on the relative rounding error of each probability after the few operations of a constructor.
_INITIAL_ROUNDING = 8.0 * UNIT_ROUNDOFF


@dataclass(frozen=True, eq=False, slots=True)
class PrivacyLoss:
    """The distribution of a privacy loss: atoms, an independent Gaussian part and a mass at infinity.

    Build one with `of`, `gaussian`, `randomized_response` or `discrete_laplace`.

    Parameters
    ----------
    losses
        The finite losses, in increasing order.
    probabilities
        The probabilities of the losses under P. Together with `infinite` they sum to 1.
    mu
        The Gaussian part is N(μ²/2, μ²) and adds to the loss of every atom. It is 0 if there is no Gaussian part.
    infinite
        The probability under P of outcomes that are impossible under Q.
    rounding
        A bound on the relative rounding error of each probability. Every delta is enlarged by it.

    Examples
    --------
    >>> import dp_polars as dp
    >>> loss = dp.theory.PrivacyLoss.randomized_response(0.01).self_compose(1000)
    >>> round(loss.epsilon(1e-6), 3)
    1.365
    >>> both = loss.compose(dp.theory.PrivacyLoss.gaussian(sigma=50))
    >>> both.delta(1.4) > loss.delta(1.4)
    True
    """

    losses: Array
    probabilities: Array
    mu: float = 0.0
    infinite: float = 0.0
    rounding: float = 0.0

    def __post_init__(self) -> None:
        try:
            losses = np.array(self.losses, dtype=np.float64)
            probabilities = np.array(self.probabilities, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidParameterError("losses and probabilities must be lists of numbers.") from error
        for name in ("mu", "infinite", "rounding"):
            object.__setattr__(self, name, nonnegative(getattr(self, name), name))
        if losses.ndim != 1 or losses.shape != probabilities.shape:
            raise InvalidParameterError("losses and probabilities must be two lists of equal length.")
        if not np.isfinite(losses).all() or (np.diff(losses) < 0.0).any():
            raise InvalidParameterError("losses must be finite and in increasing order.")
        if not (probabilities >= 0.0).all():
            raise InvalidParameterError("No probability may be negative or NaN.")
        mass = math.fsum(probabilities) + self.infinite
        if not abs(mass - 1.0) <= 1e-9 + self.rounding:
            raise InvalidParameterError(f"The probabilities sum to {mass!r}, not to 1.")
        losses.flags.writeable = probabilities.flags.writeable = False
        object.__setattr__(self, "losses", losses)
        object.__setattr__(self, "probabilities", probabilities)

    @classmethod
    def of(cls, p: Distribution, q: Distribution) -> PrivacyLoss:
        """Return the privacy loss of P against Q, two discrete distributions.

        Parameters
        ----------
        p, q
            Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.

        Examples
        --------
        >>> import dp_polars as dp
        >>> loss = dp.theory.PrivacyLoss.of({"a": 0.5, "b": 0.4, "c": 0.1}, {"a": 0.5, "b": 0.5})
        >>> loss.infinite
        0.1
        """
        losses, masses = log_ratios(*paired(p, q))
        finite = np.isfinite(losses)
        atoms, weights = merged(losses[finite], masses[finite])
        infinite = min(1.0, math.fsum(masses[~finite]))
        return cls(atoms, weights, infinite=infinite, rounding=_INITIAL_ROUNDING)

    @classmethod
    def gaussian(cls, sigma: Number, sensitivity: Number = 1) -> PrivacyLoss:
        """Return the privacy loss of continuous Gaussian noise, which is the same in both directions.

        Parameters
        ----------
        sigma
            The standard deviation of the noise.
        sensitivity
            The Euclidean sensitivity.

        Examples
        --------
        >>> import dp_polars as dp
        >>> round(dp.theory.PrivacyLoss.gaussian(50).self_compose(100).epsilon(1e-6), 3)
        0.834
        """
        ratio = float(positive(sensitivity, "sensitivity") / positive(sigma, "sigma"))
        return cls(np.zeros(1), np.ones(1), mu=math.nextafter(ratio, math.inf))

    @classmethod
    def randomized_response(cls, epsilon: Number) -> PrivacyLoss:
        """Return the privacy loss of randomized response, the worst epsilon-DP mechanism.

        Parameters
        ----------
        epsilon
            The pure guarantee.

        Examples
        --------
        >>> import dp_polars as dp
        >>> dp.theory.PrivacyLoss.randomized_response(0.5).delta(0.5)
        0.0
        """
        loss = float(epsilon_of(epsilon))
        flip = math.exp(-loss) / (1.0 + math.exp(-loss))
        masses = np.array([flip, 1.0 / (1.0 + math.exp(-loss))])
        return cls(np.array([-loss, loss]), masses, rounding=_INITIAL_ROUNDING)

    @classmethod
    def discrete_laplace(cls, scale: Number, sensitivity: int = 1) -> PrivacyLoss:
        """Return the privacy loss of discrete Laplace noise on integers, which is the same in both directions.

        The losses lie between −sensitivity/scale and sensitivity/scale, and each tail of the noise is one atom. At
        sensitivity 1 there is nothing between the tails, and the loss is that of randomized response.

        Parameters
        ----------
        scale
            The scale b of the noise.
        sensitivity
            The absolute sensitivity, a whole number.

        Examples
        --------
        >>> import dp_polars as dp
        >>> dp.theory.PrivacyLoss.discrete_laplace(scale=2, sensitivity=2).losses.tolist()
        [-1.0, 0.0, 1.0]
        """
        width = positive(scale, "scale")
        shift = count_of(sensitivity, "sensitivity")
        if shift >= MAX_ATOMS:
            raise InvalidParameterError(
                f"sensitivity={sensitivity} makes too many atoms (it may be at most {MAX_ATOMS - 1}). Use "
                "randomized_response(sensitivity / scale), which is an upper bound."
            )
        rate = 1.0 / float(width)
        ratio = math.exp(-rate)
        # The loss (|x−Δ| − |x|)/b decreases over x ≤ 0, then x = 1 ... Δ−1, then x ≥ Δ.
        inner = np.arange(1, shift, dtype=np.float64)
        middle = -math.expm1(-rate) / (1.0 + ratio) * np.exp(-inner * rate)
        ends = 1.0 / (1.0 + ratio), math.exp(-shift * rate) / (1.0 + ratio)
        masses = np.concatenate(([ends[0]], middle, [ends[1]]))
        losses = (shift - 2.0 * np.arange(shift + 1, dtype=np.float64)) / float(width)
        # The exponents were rounded before exp was applied to them.
        rounding = _INITIAL_ROUNDING * (1.0 + shift * rate)
        return cls(losses[::-1], masses[::-1], rounding=rounding)

    @property
    def mean(self) -> float:
        """The mean loss, which is the Kullback-Leibler divergence. It is infinite if any mass is at infinity.

        Examples
        --------
        >>> import dp_polars as dp
        >>> dp.theory.PrivacyLoss.gaussian(sigma=1).mean
        0.5...
        """
        if self.infinite > 0.0:
            return math.inf
        return math.fsum(self.losses * self.probabilities) + 0.5 * self.mu * self.mu

    def tail(self, epsilon: Number) -> float:
        """Return the probability that the loss exceeds epsilon.

        If it is at most δ, then (ε, δ)-DP holds in this direction (Dwork and Roth 2014, Lemma 3.17). The converse does
        not hold.

        Parameters
        ----------
        epsilon
            Any number.

        Returns
        -------
        float
            The probability, rounded up.

        Examples
        --------
        >>> import dp_polars as dp
        >>> round(dp.theory.PrivacyLoss.randomized_response(1.0).tail(0.5), 4)
        0.7311
        """
        threshold = real(epsilon, "epsilon")
        if self.mu > 0.0:
            x = (threshold - self.losses) / self.mu - 0.5 * self.mu
            finite = float(np.sum(self.probabilities * upper_tail(x))) + _UNDERFLOW
        else:
            above = np.searchsorted(self.losses, threshold, side="right")
            finite = float(np.sum(self.probabilities[above:]))
        return self._enlarged(finite)

    def delta(self, epsilon: Number) -> float:
        """Return the exact delta in this direction, which is the hockey-stick divergence, rounded up.

        Parameters
        ----------
        epsilon
            Any number.

        Returns
        -------
        float
            The least delta at this epsilon.

        Examples
        --------
        >>> import dp_polars as dp
        >>> round(dp.theory.PrivacyLoss.gaussian(sigma=1).delta(1.0), 4)
        0.1269
        """
        return self._delta(real(epsilon, "epsilon"))

    def _delta(self, epsilon: float) -> float:
        if self.mu > 0.0:
            excess = gaussian_excess(epsilon - self.losses, self.mu)
            return self._enlarged(float(np.sum(self.probabilities * excess)) + _UNDERFLOW)
        above = int(np.searchsorted(self.losses, epsilon, side="right"))
        if above == self.losses.size:
            return self.infinite
        kept = self.probabilities[above:] * -np.expm1(epsilon - self.losses[above:])
        return self._enlarged(float(np.sum(kept)) + _UNDERFLOW)

    def epsilon(self, delta: Number) -> float:
        """Return the least epsilon of at least 0 for a delta in this direction, rounded up.

        It is infinite if delta is below the mass at infinity, or if delta is 0 and there is a Gaussian part.

        Parameters
        ----------
        delta
            The delta to promise; it may be 0.

        Returns
        -------
        float
            The least epsilon at this delta.

        Examples
        --------
        >>> import dp_polars as dp
        >>> dp.theory.PrivacyLoss.randomized_response(0.5).epsilon(0)
        0.5
        """
        target = float(delta_of(delta, zero=True))
        if self._delta(0.0) <= target:
            return 0.0
        if self.infinite > target or (self.mu > 0.0 and self.infinite >= target):
            return math.inf
        if self.mu == 0.0:
            return self._epsilon_of_atoms(target)

        def surplus(epsilon: float) -> float:
            value = self._delta(epsilon)
            ratio = math.log(value) - math.log(target)
            return max(ratio, 1e-18) if value > target else min(ratio, 0.0)

        high = max(self.mu, float(self.losses[-1]) + self.mu * self.mu) if self.losses.size else 1.0
        while surplus(high) > 0.0:
            high *= 2.0
        return _decreasing_root(surplus, 0.0, high)

    def _epsilon_of_atoms(self, target: float) -> float:
        """Solve the curve, which is linear in e^ε between losses, on the segment that crosses the target."""
        first = int(np.searchsorted(self.losses, 0.0, side="right"))
        low = boundary(
            lambda i: self._delta(float(self.losses[i])) <= target, inside=self.losses.size - 1, outside=first - 1
        )
        end = float(self.losses[low])
        masses = self.probabilities[low:]
        attenuated = float(np.sum(masses * np.exp(end - self.losses[low:])))
        wanted = (target - self.infinite - _UNDERFLOW) / (1.0 + SLACK + self.rounding)
        excess = float(np.sum(masses)) - wanted
        guess = end + math.log(excess / attenuated) if 0.0 < excess < attenuated else end
        # The closed form may fall short by a few ulps. The end of the segment is safe in any case.
        for step in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11):
            candidate = max(guess, 0.0) + step * max(end, attenuated)
            if candidate < end and self._delta(candidate) <= target:
                return candidate
        return end

    def compose(self, other: PrivacyLoss) -> PrivacyLoss:
        """Return the loss of two independent releases, which is the sum of their losses.

        Losses that agree to 1e-12 are merged into the larger one. The result is exact up to 2^18 atoms. Beyond that,
        outcomes are split pessimistically onto an even grid, and a tail of probability 1e-40 counts as infinite.

        Parameters
        ----------
        other
            The loss of the other release.

        Examples
        --------
        >>> import dp_polars as dp
        >>> once = dp.theory.PrivacyLoss.randomized_response(0.5)
        >>> [round(loss, 6) for loss in once.compose(once).losses.tolist()]
        [-1.0, 0.0, 1.0]
        """
        if not isinstance(other, PrivacyLoss):
            raise InvalidParameterError(
                f"compose needs another PrivacyLoss, got {type(other).__name__}. Build one with PrivacyLoss.of(p, q)."
            )
        mine: Atoms = (self.losses, self.probabilities)
        atoms, my_cut, their_cut, error = convolve(mine, (other.losses, other.probabilities))
        mine_infinite = min(1.0, self.infinite + my_cut)
        theirs_infinite = min(1.0, other.infinite + their_cut)
        infinite = mine_infinite + theirs_infinite * (1.0 - mine_infinite)
        mu = math.hypot(self.mu, other.mu)
        return PrivacyLoss(
            *atoms,
            mu=math.nextafter(mu, math.inf) if mu else 0.0,
            infinite=min(1.0, upward(infinite)),
            rounding=(self.rounding + other.rounding + error) * (1.0 + 1e-6),
        )

    def self_compose(self, count: int) -> PrivacyLoss:
        """Return the loss of `count` independent releases of this kind, computed by repeated squaring.

        Parameters
        ----------
        count
            The number of releases, at least 1.

        Examples
        --------
        >>> import dp_polars as dp
        >>> round(dp.theory.PrivacyLoss.randomized_response(0.01).self_compose(100).epsilon(1e-6), 3)
        0.392
        """
        times = count_of(count, "count")
        if times == 1:
            return self
        half = self.self_compose(times // 2)
        doubled = half.compose(half)
        return doubled.compose(self) if times % 2 else doubled

    def _enlarged(self, finite: float) -> float:
        return min(1.0, self.infinite + finite * (1.0 + SLACK + self.rounding))


def _decreasing_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the upper end of a tight bracket around the zero of a decreasing function.

    `function(low) > 0 >= function(high)` must hold. The function is never positive at the returned point. This is the
    Illinois variant of false position: one evaluation may sum over 2^18 atoms, so the fewer the better.
    """
    at_low, at_high = function(low), function(high)
    side = 0
    for iteration in range(200):
        width = high - low
        if width <= 1e-13 * max(abs(high), 1e-300):
            break
        point = low + width * at_low / (at_low - at_high) if iteration % 4 else 0.5 * (low + high)
        # Keep away from both ends, because a point next to one would hardly shrink the bracket.
        point = min(max(point, low + 1e-3 * width), high - 1e-3 * width)
        if not low < point < high:  # there is no float in between
            break
        value = function(point)
        if value > 0.0:
            low, at_low = point, value
            at_high = 0.5 * at_high if side == 1 else at_high
            side = 1
        else:
            high, at_high = point, value
            at_low = 0.5 * at_low if side == -1 else at_low
            side = -1
    return high
