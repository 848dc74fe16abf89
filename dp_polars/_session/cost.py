"""What a release costs, and an amount of budget as people see it.

A release declares one decomposition of its output distributions P and Q on neighbouring data:
P = (1-d) P' + d P'', and likewise for Q with the same d. The four numbers of a cost describe it: P' and Q' are
`epsilon`-close up to `gaussian_delta`, they are `rho`-zCDP, and d is `delta`. Infinity means that a measure gives no
bound. All numbers are exact, so ten times 0.1 is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fractions import Fraction

import numpy as np

from dp_polars._numbers import MOST_BITS, exact
from dp_polars.errors import InvalidParameterError

Amount = Fraction | float
"""An exact number, or math.inf."""

_PLAIN = (Fraction, float, np.float64)


@dataclass(frozen=True, kw_only=True, repr=False)
class Cost:
    """The cost of one release, or the sum of several. Make one with `dp.pure_cost` or one of its siblings.

    Attributes
    ----------
    epsilon
        The pure privacy loss of the release. For Gaussian noise, the epsilon that it has at `gaussian_delta`.
    rho
        The privacy loss of the release in zero-concentrated differential privacy (zCDP).
    delta
        The probability of the bad events that key discovery or an (epsilon, delta) mechanism allows.
    gaussian_delta
        The delta at which `epsilon` holds for Gaussian noise; 0 for pure mechanisms.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.pure_cost(0.1) + dp.exponential_cost(0.1) * 2
    <dp.Cost epsilon 0.3, rho 0.00749584>
    """

    epsilon: Amount
    rho: Amount
    delta: Amount = Fraction(0)
    gaussian_delta: Amount = Fraction(0)

    def __post_init__(self) -> None:
        for field in fields(self):
            amount = getattr(self, field.name)
            if type(amount) is not float or amount != math.inf:
                if isinstance(amount, Fraction | float) and type(amount) not in _PLAIN:
                    raise InvalidParameterError(
                        f"{field.name} of a cost must be a plain number, got {type(amount).__name__}."
                    )
                if type(amount) is not Fraction or max(amount.numerator, amount.denominator) >> MOST_BITS:
                    amount = exact(amount, field.name)
                if amount < 0:
                    raise InvalidParameterError(f"{field.name} of a cost must be at least 0, got {float(amount):g}.")
                object.__setattr__(self, field.name, amount)

    def __add__(self, other: Cost) -> Cost:
        if type(self) is not Cost or type(other) is not Cost:  # a subclass could add up differently
            return NotImplemented
        return _sum(
            self.epsilon + other.epsilon,
            self.rho + other.rho,
            self.delta + other.delta,
            self.gaussian_delta + other.gaussian_delta,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(
            epsilon=self.epsilon * times,
            rho=self.rho * times,
            delta=self.delta * times,
            gaussian_delta=self.gaussian_delta * times,
        )

    def __str__(self) -> str:
        named = {"epsilon": self.epsilon, "rho": self.rho, "delta": self.delta}
        return ", ".join(f"{name} {float(x):.6g}" for name, x in named.items() if name == "epsilon" or x)

    def __repr__(self) -> str:
        return f"<dp.Cost {self}>"


def _sum(*amounts: Amount) -> Cost:
    """Return a cost of amounts that need no check, because they are sums of amounts that were checked."""
    cost = object.__new__(Cost)
    for field, amount in zip(fields(Cost), amounts, strict=True):
        object.__setattr__(cost, field.name, amount)
    return cost


NOTHING = Cost(epsilon=Fraction(0), rho=Fraction(0))


@dataclass(frozen=True)
class Budget:
    """An amount of budget in every measure that a session accounts for, as floats.

    Attributes
    ----------
    epsilon, rho
        The amount in each measure; None if the session has no limit in it.
    delta
        The part of delta that is for discovering keys.
    share
        The part of the whole budget that is used, or that is left. A part is used if both the sum of epsilons and the
        sum of rhos have used that share of their limits: a session that has both accepts releases while one of them
        is within its limit. The part is 0 at the start and grows with each release; at 1, nothing more fits.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.Session(epsilon=1.0, delta=1e-6, unit="user").remaining.share
    1.0
    """

    epsilon: float | None
    rho: float | None
    delta: float
    share: float


def alone_text(cost: Cost) -> str:
    """Return the guarantee of a release by itself, whatever else the session releases.

    >>> from fractions import Fraction
    >>> alone_text(Cost(epsilon=Fraction(1, 5), rho=Fraction(1, 50), delta=Fraction(1, 10**8)))
    'epsilon 0.2, delta 1e-08'
    """
    if cost.epsilon == math.inf:
        measure, delta = f"rho {float(cost.rho):.4g}", cost.delta
    else:
        measure, delta = f"epsilon {float(cost.epsilon):.4g}", cost.delta + cost.gaussian_delta
    return f"{measure}, delta {float(delta):.3g}" if delta else measure


def amount_text(amount: Amount) -> str:
    """Return an amount as text that `amount_of` reads back exactly."""
    return str(amount)


def amount_of(text: str) -> Amount:
    """Return the amount that `amount_text` wrote."""
    return math.inf if text == "inf" else Fraction(text)
