"""The exact law of estimated bounds: the chance of every pair, given the values of units."""

import numpy as np

from dp_polars._plan.auto_bounds import Sides, _pairs, bound_scores


def sides_of(estimate, values):
    """Return how many of these values, one of each unit, lie above and below each candidate."""
    ordered = np.sort(values)
    candidates = np.array([float(candidate) for candidate in estimate.candidates])
    above = len(values) - np.searchsorted(ordered, candidates, side="right")
    below = np.searchsorted(ordered, candidates, side="left")
    return Sides(above=above, below=below, positive=int((values > 0).sum()), negative=int((values < 0).sum()))


def clipped_means(estimate, values, weights=None):
    """Return the mean of values clipped to each pair of bounds."""
    return clipped_moments(estimate, values, weights)[0]


def clipped_moments(estimate, values, weights=None):
    """Return the means of values and of their squares, clipped to each pair of bounds, and the sum of the weights.

    A value clipped to both bounds is itself clipped from below, minus what exceeds the upper bound. So sums above each
    candidate are enough for all pairs.
    """
    order = np.argsort(values)
    ordered = values[order].astype(float)
    own = np.ones(len(values)) if weights is None else weights[order]
    ends = np.array([float(candidate) for candidate in estimate.candidates])
    places = np.searchsorted(ordered, ends, side="right")
    counted = np.concatenate([[0], np.cumsum(own)])
    total, below = counted[-1], counted[places]
    means = []
    for power in (1, 2):
        sums = np.concatenate([[0], np.cumsum(own * ordered**power)])
        above = sums[-1] - sums[places]
        raised, excess = above + ends**power * below, above - ends**power * (total - below)
        pairs = _pairs(estimate)
        means.append((raised[pairs.lower] - excess[pairs.upper]) / total)
    return means[0], means[1], float(total)


def chances(scores, rate):
    """Return the law of the exponential mechanism."""
    exponents = float(rate) * (scores - scores.max())
    return np.exp(exponents) / np.exp(exponents).sum()


def law_of_count(scale, units):
    """Return noisy counts with their chances, from a discrete Laplace law that is cut into parts.

    The largest count of a part stands for all of it, so that none which would be called reliable is missed.
    """
    reach = int(float(scale) * 25)  # beyond it lie 1e-11
    numbers = np.arange(-reach, reach + 1)
    law = np.exp(-np.abs(numbers) / float(scale))
    law /= law.sum()
    cut = np.searchsorted(np.cumsum(law), [1e-5, 1e-2, 0.2, 0.8, 0.99, 1 - 1e-5])
    parts = [part for part in np.split(numbers, cut) if len(part)]
    return [(max(0, units + int(part[-1])), float(law[part + reach].sum())) for part in parts]


def chance_of_silence(estimate, sides, wanted, collapsed):
    """Return a bound on the chance that a pair of bounds is chosen that has collapsed but is called reliable."""
    return sum(
        likely * float(chances(bound_scores(estimate, sides, wanted, noisy), estimate.rate)[collapsed].sum())
        for noisy, likely in law_of_count(estimate.count_scale, sides.positive + sides.negative)
        if noisy >= estimate.needed_units
    )
