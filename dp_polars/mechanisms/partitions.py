"""Partition selection: which groups may be shown if the groups themselves come from the data.

One unit can change the unit counts of up to `max_groups` groups by one each, and with them whether a group exists. The
counts must be counts of units, taken after each unit was limited to `max_groups` groups. A group without any unit is
never shown. These functions charge no budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._numbers import MAX_MAGNITUDE, Number, count_of, delta_of, epsilon_of, rounded_down
from dp_polars._sampling import SYSTEM_BITS, BitSource, discrete_gaussian, discrete_laplace
from dp_polars._sampling.bernoulli import enclose_exp
from dp_polars._sampling.noise import MAX_SCALE
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms._calibration import (
    continuous_bound,
    discrete_gaussian_delta,
    least_variance,
)
from dp_polars.mechanisms._grid import add_saturating
from dp_polars.mechanisms._numeric_input import list_array, read_numbers
from dp_polars.mechanisms.accuracy import gaussian_tail, laplace_tail, least_threshold

Strategy = Literal["auto", "optimal", "laplace", "gaussian"]
Adjacency = Literal["add_remove", "replace"]

_LONGEST_TABLE = 1 << 20
_NORMAL = NormalDist()
_WORD = 1 << 64
_MOST_UNITS = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class PartitionRule:
    """A fixed rule for showing groups. A group of `even_chance` units is shown with probability about one half."""

    strategy: str
    even_chance: float
    threshold: int
    noise: Fraction
    """The Laplace scale or the Gaussian variance; it is 0 for the optimal rule."""
    table: NDArray[np.uint64] | None = None
    """For the optimal rule: 2**64 times the probability of showing a group with 1, 2, ... units. Larger groups are
    always shown."""


def select_partitions(
    unit_counts: Any,
    *,
    epsilon: Number,
    delta: Number,
    max_groups: int,
    min_units: int = 1,
    strategy: Strategy = "auto",
    adjacency: Adjacency = "add_remove",
) -> Any:
    """Decide for each group, with differential privacy, whether it may be shown.

    This charges no budget: the caller accounts for (`epsilon`, `delta`).

    Parameters
    ----------
    unit_counts
        The number of distinct units in each group, with each unit in at most `max_groups` groups.
    epsilon, delta
        The spend of the whole selection.
    max_groups
        The largest number of groups that one unit is part of. The caller must have enforced it.
    min_units
        Groups with fewer units are suppressed as well, up to the noise of the mechanism.
    strategy
        "optimal" (Desfontaines, Voss, Gipson and Mandayam 2022), "laplace" or "gaussian" (the noisy count must reach a
        threshold; Wilson et al. 2020), or "auto", which takes the one that needs the fewest units. That choice depends
        on the parameters only.
    adjacency
        "add_remove", or "replace", where a unit may leave `max_groups` groups and enter as many others.

    Returns
    -------
    numpy.ndarray or polars.Series
        True for the groups that may be shown.

    Examples
    --------
    >>> import dp_polars as dp
    >>> import numpy as np
    >>> counts = np.array([0, 1, 1_000])
    >>> dp.mechanisms.select_partitions(counts, epsilon=1.0, delta=1e-9, max_groups=1).tolist()
    [False, False, True]
    """
    least = count_of(min_units, "min_units")
    rule = partition_rule(
        epsilon_of(epsilon),
        delta_of(delta),
        count_of(max_groups, "max_groups"),
        strategy=strategy,
        adjacency=adjacency,
    )
    if isinstance(unit_counts, list | tuple):
        unit_counts = list_array(unit_counts, "unit_counts") if len(unit_counts) else np.zeros(0, np.int64)
    if not isinstance(unit_counts, np.ndarray | pl.Series):
        raise InvalidDataError("unit_counts must be a numpy array, a Polars Series or a list of whole numbers.")
    counts = read_numbers(unit_counts, "unit_counts").array
    if counts.dtype != np.int64 or (len(counts) and counts.min() < 0):
        raise InvalidDataError("unit_counts must be whole numbers of at least 0.")
    shown = apply_rule(rule, counts, least, SYSTEM_BITS)
    if isinstance(unit_counts, pl.Series):
        return pl.Series(unit_counts.name, shown)
    return shown.reshape(unit_counts.shape)


def apply_rule(rule: PartitionRule, counts: NDArray[np.int64], min_units: int, source: BitSource) -> NDArray[np.bool_]:
    """Return which groups are shown, with random bits from `source`; `select_partitions` passes the system's."""
    shift = min(min_units - 1, _MOST_UNITS)
    if rule.table is not None:
        units = np.maximum(counts - shift, 0)
        chance = rule.table[np.minimum(np.maximum(units, 1), len(rule.table)) - 1]
        drawn = source.words(len(counts), np.uint64) < chance
        chosen: NDArray[np.bool_] = (drawn | (units > len(rule.table))) & (units > 0)
        return chosen
    draw = discrete_laplace if rule.strategy == "laplace" else discrete_gaussian
    noise = draw(rule.noise, len(counts), source)
    shown: NDArray[np.bool_] = (add_saturating(counts, noise) >= rule.threshold + shift) & (counts > 0)
    return shown


def partition_rule(
    epsilon: Fraction, delta: Fraction, max_groups: int, *, strategy: Strategy, adjacency: Adjacency
) -> PartitionRule:
    """Return the rule for these public parameters; "auto" takes the one that needs the fewest units."""
    if strategy not in get_args(Strategy):
        raise InvalidParameterError(f"strategy must be one of {', '.join(get_args(Strategy))}, got {strategy!r}.")
    if adjacency not in get_args(Adjacency):
        raise InvalidParameterError(f"adjacency must be one of {', '.join(get_args(Adjacency))}, got {adjacency!r}.")
    touched, each = _touched(delta, max_groups, adjacency)
    if strategy == "optimal":
        return _optimal(epsilon / touched, each)
    rules = []
    if strategy != "gaussian":
        rules.append(_laplace(epsilon, each, touched))
    if strategy == "gaussian" or (
        strategy == "auto" and _least_gaussian(epsilon, delta, touched) <= rules[0].even_chance
    ):
        rules.append(_gaussian(epsilon, delta, touched))
    if strategy == "auto" and _has_table(epsilon / touched, each):
        # The table is only made if it can be better, because a long one takes a while.
        best = min(rule.even_chance for rule in rules)
        rules += [_optimal(epsilon / touched, each)] if _least_even_chance(epsilon / touched, each) <= best else []
    rule = min(rules, key=lambda rule: rule.even_chance)
    if rule.noise > (MAX_SCALE**2 if rule.strategy == "gaussian" else MAX_SCALE):
        raise InvalidParameterError(
            "The noise would not fit into 64 bits. Use a larger epsilon or a smaller max_groups."
        )
    return rule


def least_units(epsilon: Fraction, delta: Fraction, max_groups: int, *, adjacency: Adjacency) -> float:
    """Return a number of units below which the rule "auto" shows a group less than half the time. No table is made.

    No rule that gives each touched group its share of epsilon and delta shows small groups more often than the optimal
    one, so Laplace noise need not be considered. Gaussian noise spends on all groups together.
    """
    touched, each = _touched(delta, max_groups, adjacency)
    least = _least_even_chance(epsilon / touched, each) * (1 - 1e-9)
    return least if touched == 1 else min(least, _least_gaussian(epsilon, delta, touched))


def _touched(delta: Fraction, max_groups: int, adjacency: Adjacency) -> tuple[int, Fraction]:
    """Return how many groups a unit can be alone in, and the delta of each of them."""
    if max_groups > MAX_MAGNITUDE:
        raise InvalidParameterError("max_groups must be at most 1e18: no unit is part of that many groups.")
    touched = max_groups * (2 if adjacency == "replace" else 1)
    # Each of the touched groups may appear wrongly, independently, so each gets 1 - (1 - delta)**(1 / touched).
    likely = min(float(delta), math.nextafter(1.0, 0.0))
    return touched, rounded_down(-math.expm1(math.log1p(-likely) / touched), 64)


def _least_even_chance(epsilon: Fraction, delta: Fraction) -> float:
    """Return a number of units below which the optimal rule shows a group less than half the time.

    The recursion of `_optimal` gives pi(n) <= delta (e^(n eps) - 1) / (e^eps - 1), which is 1/2 there.
    """
    return 1 / float(epsilon) * math.log1p(math.expm1(min(float(epsilon), 50.0)) / (2 * float(delta)))


def _least_gaussian(epsilon: Fraction, delta: Fraction, touched: int) -> float:
    """Return a number of units below which Gaussian noise shows a group less than half the time.

    The privacy loss of all groups together is normal with variance mu**2 = touched / sigma**2 and mean mu**2 / 2. For
    any t, it exceeds epsilon + t with probability at most p = delta / 2 / (1 - e**-t), since delta / 2 is at least the
    mean of 1 - e**(epsilon - loss) where that is positive. So (epsilon + t) / mu - mu / 2 is at least the quantile z of
    1 - p, which bounds mu from above and sigma from below. A tenth is left for the discreteness of the noise.
    """
    loss, half, largest = float(epsilon), float(delta) / 2, math.inf
    for t in (loss / 4, loss / 2, loss, 2 * loss, 1.0):
        z = -_NORMAL.inv_cdf(min(0.5, half / -math.expm1(-t)))
        largest = min(largest, 2 * (loss + t) / (math.sqrt(z * z + 2 * (loss + t)) + z))
    return 0.9 * math.sqrt(touched) / largest * max(0.0, -_NORMAL.inv_cdf(half / touched))


def _has_table(epsilon: Fraction, delta: Fraction) -> bool:
    length = 2 + 2 * _least_even_chance(epsilon, delta)
    return length <= _LONGEST_TABLE and delta * _WORD >= 1


@lru_cache(maxsize=16)
def _optimal(epsilon: Fraction, delta: Fraction) -> PartitionRule:
    """Return the rule with the largest probabilities that the guarantee allows, as multiples of 2**-64.

    The recursion of Desfontaines et al. 2022 is
    pi(n) = min(e^eps pi(n-1) + delta, 1 - e^-eps (1 - pi(n-1) - delta), 1). It runs in integers from the rounded
    pi(n-1), with e^eps rounded down and e^-eps rounded up, so both inequalities hold exactly for the probabilities that
    are used. The probabilities never decrease, which covers the other direction.
    """
    if not _has_table(epsilon, delta):
        raise InvalidParameterError(
            "The spend per group is too small for the optimal strategy: its table would have over a million entries, "
            "or delta is below 2**-64. Use strategy='auto', 'gaussian' or 'laplace'."
        )
    bits = 128
    _, high = enclose_exp(epsilon, bits)  # an upper bound on 2**bits * e^-eps
    step = int(delta * _WORD)
    chances: list[int] = []
    chance = 0
    while chance < _WORD:
        grown = (chance << bits) // high + step
        closing = _WORD - max(0, -(-(_WORD - chance - step) * high >> bits))
        chance = max(chance, min(grown, closing, _WORD))
        chances.append(chance)
    table = np.array(chances[:-1], dtype=np.uint64)
    even = int(np.searchsorted(table, np.uint64(_WORD // 2))) + 1
    return PartitionRule("optimal", float(even), 0, Fraction(0), table)


def _laplace(epsilon: Fraction, each: Fraction, touched: int) -> PartitionRule:
    """Return the rule "noisy count >= 1 + m" with P(noise >= m) at most `each`, which hides a lone unit."""
    scale = touched / epsilon
    miss = float(each)
    m = least_threshold(lambda least: laplace_tail(scale, least), miss, float(scale) * math.log(1 / miss))
    # One more step covers the rounding of the tail, which is a float.
    m += laplace_tail(scale, m) * (1 + 1e-9) > miss
    return PartitionRule("laplace", m + 0.5, m + 1, scale)


@lru_cache(maxsize=64)
def _gaussian(epsilon: Fraction, delta: Fraction, touched: int) -> PartitionRule:
    """Return the same rule with Gaussian noise. Half of delta is for the noise, half for the group of a lone unit.

    A unit shifts up to L = `touched` counts by one. The privacy loss depends on the noise only through the sum of L
    discrete Gaussians, which is a discrete Gaussian of variance L * variance up to a factor (1 + eta) / (1 - eta): the
    cosets of the lattice of vectors that sum to zero have equal Gaussian mass up to eta <= (1 + 2 sum_k
    exp(-2 pi^2 variance (k - 1/2)^2))^L - 1 (by Poisson summation, as every dual vector has a representative z - c with
    |c| <= 1/2). It is therefore calibrated as one number of that variance that a unit shifts by L.
    """
    half = delta / 2

    def delta_of_sum(shift: float, sigma: float, loss: float) -> float:
        if touched == 1:
            return discrete_gaussian_delta(shift, sigma, loss)
        # The bound must grow with the number of counts that move so that L counts cover any smaller number.
        if loss * sigma**2 / shift - shift / 2 <= shift / math.e:
            return 1.0
        single = sigma**2 / touched
        mass = 2.001 * sum(math.exp(-2 * math.pi**2 * single * (k - 0.5) ** 2) for k in range(1, 9))
        eta = math.expm1(touched * math.log1p(mass))
        return continuous_bound(shift, sigma, loss) * (1 + eta) / (1 - eta) if eta < 0.5 else 1.0

    variance = least_variance(Fraction(touched), epsilon, half, delta_of_sum) / touched
    miss = float(rounded_down(-math.expm1(math.log1p(-float(half)) / touched), 64))
    sigma = math.sqrt(variance)
    m = least_threshold(lambda least: gaussian_tail(sigma, least), miss, 5 * sigma)
    m += gaussian_tail(sigma, m) * (1 + 1e-9) > miss
    return PartitionRule("gaussian", m + 0.5, m + 1, variance)
