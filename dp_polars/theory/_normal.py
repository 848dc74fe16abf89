"""Tails of the normal distribution and the hockey-stick divergence of a Gaussian, using numpy only.

Mills' ratio M(x) = ∫_x^∞ φ / φ(x) equals the integral of φ(t)·x/(x²+t²) over the real line (x > 0). The midpoint rule
for this integral converges faster than exponentially once the pole at t = ix is accounted for (Matta and Reichel 1971,
"Uniform computation of the error function and other related functions"), so fourteen terms give full precision.

The functions here see μ = sensitivity / sigma only, never a mechanism.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# With step h = 0.7 the error of the midpoint rule is e^{−2π²/h²} ≈ 3e-18. Beyond t = 9.5 the weight φ(t) is
# below 2e-20.
_STEP = 0.7
_NODES = tuple((n + 0.5) * _STEP for n in range(14))
_WEIGHTS = tuple(2.0 * _STEP * math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi) for t in _NODES)
_POLE = 2.0 * math.pi / _STEP
_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)

# Below this μ the difference of two ratios would cancel, so the derivative is integrated instead.
_SMALL_MU = 0.1


def _pole_part(x: Array) -> Array:
    """Return the residue of the pole at ix. Beyond 2π/h the contour no longer crosses the pole."""
    near = np.minimum(x, _POLE)
    return np.where(x < _POLE, _ROOT_TWO_PI * np.exp(0.5 * near * near) / (1.0 + np.exp(_POLE * near)), 0.0)


def mills(x: Array) -> Array:
    """Return M(x) for x > −1."""
    total = _pole_part(x)
    square = x * x
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total = total + weight * x / (square + node * node)
    return total


def _mills_slope(x: Array) -> Array:
    """Return −M'(x) = 1 − x·M(x) for x > −1, computed as an integral of its own so that nothing cancels."""
    total = -x * _pole_part(x)
    square = x * x
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total = total + weight * (node * node) / (square + node * node)
    return total


@cache
def _quadrature() -> tuple[tuple[float, float], ...]:
    """Return the six Gauss-Legendre nodes and weights on [−1, 1], computed on first use."""
    nodes, weights = np.polynomial.legendre.leggauss(6)
    return tuple(zip(nodes.tolist(), weights.tolist(), strict=True))


def density(x: Array) -> Array:
    """Return the standard normal density."""
    return np.exp(-0.5 * x * x) / _ROOT_TWO_PI


def upper_tail(x: Array) -> Array:
    """Return P(N(0,1) > x)."""
    outside = np.abs(x)
    half = density(outside) * mills(outside)
    return np.where(x >= 0.0, half, 1.0 - half)


def gaussian_excess(threshold: Array, mu: float) -> Array:
    """Return E[(1 − e^{threshold − L})₊] for L ~ N(μ²/2, μ²), which is the δ of a Gaussian at ε = threshold.

    For ε ≥ 0 it equals φ(x)·(M(x) − M(x+μ)) with x = ε/μ − μ/2, which is the formula of Balle and Wang 2018 (Theorem 8)
    written without its cancelling terms. For ε < 0, δ(ε) = 1 − e^ε + e^ε·δ(−ε) by symmetry.
    """
    # Beyond x = 1000 the value underflows anyway; the limit keeps squares from overflowing.
    distance = np.minimum(np.abs(threshold), mu * (1e3 + 0.5 * mu))
    quotient = distance / mu
    # A smaller x gives a larger δ, so the subtraction is rounded down, to the safe side.
    x = (quotient - 0.5 * mu) - 1e-15 * (quotient + 0.5 * mu)
    if mu < _SMALL_MU:
        drop = np.zeros_like(x)
        for node, weight in _quadrature():
            drop = drop + 0.5 * mu * weight * _mills_slope(x + 0.5 * mu * (1.0 + node))
        value = density(x) * drop
    else:
        inside = np.abs(x)
        # For x < 0, φ(x)·M(x) = 1 − φ(x)·M(−x).
        value = np.where(
            x >= 0.0,
            density(x) * (mills(inside) - mills(inside + mu)),
            1.0 - density(x) * (mills(inside) + mills(np.maximum(x + mu, 0.0))),
        )
    negative = np.minimum(threshold, 0.0)
    return np.where(threshold >= 0.0, value, -np.expm1(negative) + np.exp(negative) * value)
