"""The pair (epsilon, delta) that a composition theorem proves.

Never a budget and never a price: it is a statement, and nothing is charged by making one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dp_polars.errors import InvalidParameterError


@dataclass(frozen=True, slots=True)
class Guarantee:
    """An (epsilon, delta) guarantee of differential privacy (Dwork and Roth 2014, Definition 2.4).

    Parameters
    ----------
    epsilon
        The privacy loss, at least 0; infinite when nothing is promised.
    delta
        The probability, 0 to 1, that the promise about epsilon may fail with.

    Examples
    --------
    >>> epsilon, delta = Guarantee(1.0, 1e-6)
    >>> epsilon
    1.0
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not all(isinstance(value, int | float) for value in (self.epsilon, self.delta)):
            raise InvalidParameterError("epsilon and delta must be numbers.")
        if not self.epsilon >= 0.0:
            raise InvalidParameterError(f"epsilon must be at least 0, got {self.epsilon}.")
        if not 0.0 <= self.delta <= 1.0:
            raise InvalidParameterError(f"delta must lie between 0 and 1, got {self.delta}.")

    def __iter__(self) -> Iterator[float]:
        yield self.epsilon
        yield self.delta
