"""Fixtures for the tests of SQL."""

import pytest

import dp_polars as dp


@pytest.fixture
def session():
    """Return a session in which the noise on counts is zero at an epsilon of HUGE, except with probability 1e-13."""
    with pytest.warns(dp.DPWarning):
        return dp.Session(epsilon=10**6, delta=1e-6, unit="user_id", max_groups=40, max_rows_per_group=80)
