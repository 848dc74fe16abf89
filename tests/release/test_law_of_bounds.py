"""The chance that estimated bounds collapse without being called unreliable, computed from the law of the choice.

Nothing is sampled: the exponential mechanism and the noisy count have known laws, so chances far below what a
simulation can see are numbers here.
"""

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._plan.auto import wanted_beyond
from dp_polars._plan.auto_bounds import pair_of
from tests.release.choice_law import chance_of_silence, clipped_means, clipped_moments, sides_of

SILENT = 1e-4
"""The largest accepted chance of a collapse that is not called unreliable."""
# Departure delays from New York in 2013, in minutes: quantiles of all flights, and of a carrier whose early flights and
# late ones almost cancel, so that its mean halves if values are clipped at 65.
LEVELS = (0, 0.02, 0.1, 0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 1)
ALL = (-43, -11, -7, -5, -2, 0, 6, 11, 18, 30, 49, 69, 88, 120, 146, 191, 236, 340, 1301)
ONE_CARRIER = (-19, -11, -8, -7, -4, -3, -1, 0, 3, 10, 23, 36, 49, 71, 91, 132, 184, 278, 500)


def delays(n, quantiles):
    """Return this many delays at evenly spaced levels."""
    return np.rint(np.interp((np.arange(n) + 0.5) / n, LEVELS, quantiles))


def bounds_of_delays(kind, epsilon=1, queries=1):
    """Return the plan and the estimate of bounds, where caps are automatic, too."""
    frame = pl.DataFrame({"plane": [1], "carrier": [0], "delay": [1]})
    caps = {"max_groups": "auto", "max_rows_per_group": "auto"}
    session = dp.Session(epsilon=epsilon, delta=1e-6, queries=queries, unit="plane", **caps)
    asked = getattr(dp.private(frame, session).preview, kind)
    plan = asked("delay", by="carrier", keys=list(range(16)), bounds="auto")
    (estimate,) = [one for one in plan.estimates if one.value is not None]
    return plan, estimate


def silent(plan, estimate, numbers):
    """Yield the chances of bounds that are called reliable and move the mean of a carrier by more than half."""
    wanted = wanted_beyond(estimate, plan.query, plan.main, {"max_groups": 1, "max_rows_per_group": 300})[0]
    collapsed = np.zeros(estimate.choices, bool)
    for quantiles in (ALL, ONE_CARRIER):
        values = delays(4_000, quantiles)
        truth = values.mean()
        assert abs(np.clip(values, -11, 146).mean() - truth) < truth / 4  # by hand, the answer is fine
        collapsed |= np.abs(clipped_means(estimate, values) - truth) > truth / 2
    for units in numbers:
        yield chance_of_silence(estimate, sides_of(estimate, delays(units, ALL)), wanted, collapsed)


@pytest.mark.parametrize(("kind", "queries"), [("mean", 1), ("sum", 1), ("sum", 12)])
def test_bounds_of_delays_never_collapse_in_silence(kind, queries):
    """Once, the chance was 3 in 10,000 for 3,800 planes at epsilon 1, and up to 6 in 1,000 for other numbers of planes.

    The chance is largest where the units are just enough to be called reliable. With fewer, the answer says that it is
    unreliable, and with more, the choice is sharper.
    """
    plan, estimate = bounds_of_delays(kind, queries=queries)
    enough = estimate.needed_units
    assert queries > 1 or enough < 3_800  # the flights of 2013 are by about 3,800 planes with a delay other than 0
    numbers = [3_800, *(round(enough * part) for part in (0.9, 1, 1.1, 1.3))]
    assert max(silent(plan, estimate, numbers)) < SILENT


def test_what_a_pair_of_bounds_leaves_is_computed_for_all_pairs_at_once():
    """The slow way, for some pairs: clip and average."""
    _, estimate = bounds_of_delays("mean")
    values = delays(500, ALL)
    weights = np.linspace(0.5, 1, 500)
    mean, square, total = clipped_moments(estimate, values, weights)
    for place in range(0, estimate.choices, 9_973):
        clipped = np.clip(values, *(float(end) for end in pair_of(estimate, place)))
        assert np.isclose(mean[place], np.average(clipped, weights=weights), rtol=1e-9)
        assert np.isclose(square[place], np.average(clipped**2, weights=weights), rtol=1e-9)
    assert np.isclose(total, weights.sum())
