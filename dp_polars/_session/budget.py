"""An amount of privacy, as people see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """An amount of privacy in every measure that a session accounts.

    Attributes
    ----------
    epsilon, rho, delta
        In each measure, as floats; None where the session has no bound in it. `delta` is the part for keys.
    share
        As a part of the whole budget, by the measure in which it is least.

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
