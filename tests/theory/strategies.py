"""Hypothesis strategies and settings that the tests of theory share. Two runs draw the same examples."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

reproducible = settings(
    derandomize=True,
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def epsilons(least: float = 1e-4, most: float = 20.0) -> st.SearchStrategy[float]:
    """Epsilons spread evenly over the orders of magnitude."""
    return st.floats(np.log(least), np.log(most)).map(lambda x: float(np.exp(x)))


def deltas(least: float = 1e-30, most: float = 0.4) -> st.SearchStrategy[float]:
    """Deltas spread evenly over the orders of magnitude."""
    return st.floats(np.log(least), np.log(most)).map(lambda x: float(np.exp(x)))


@st.composite
def pairs(draw: st.DrawFn, zeros: bool = True) -> tuple[list[float], list[float]]:
    """Two distributions over the same two to six outcomes."""
    size = draw(st.integers(2, 6))
    weights = st.integers(1, 1000)
    if zeros:
        weights = st.just(0) | weights | weights
    result = []
    for _ in range(2):
        raw = draw(st.lists(weights, min_size=size, max_size=size).filter(any))
        result.append([value / sum(raw) for value in raw])
    return result[0], result[1]
