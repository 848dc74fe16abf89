"""Which groups are shown: the probabilities satisfy the guarantee exactly, and the groups that are shown follow them.

Privacy is checked on the final result, the vectors of shown and hidden groups, for every way in which one unit can
change the counts of its groups, every outcome and both directions. The probabilities of one group come from the table
in whole numbers or from the enumerated noise.
"""

import bisect
import decimal
import itertools
import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms import select_partitions
from dp_polars.mechanisms._calibration import continuous_bound
from dp_polars.mechanisms.partitions import apply_rule, least_units, partition_rule
from tests.bits import ScriptedBits, SeededBits
from tests.statistics import binomial_fits

WORD = 1 << 64
STRATEGIES = ["optimal", "laplace", "gaussian"]
DIGITS = decimal.Context(prec=120, Emin=-(10**9), Emax=10**9)


def rule_of(epsilon, delta, max_groups=1, strategy="auto", adjacency="add_remove"):
    return partition_rule(Fraction(epsilon), Fraction(delta), max_groups, strategy=strategy, adjacency=adjacency)


def below_e(epsilon: Fraction) -> Fraction:
    """Return a number below e**epsilon by less than 1e-100 of it; decimal's exp is correctly rounded."""
    scaled = DIGITS.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    return Fraction(DIGITS.exp(scaled)) * (1 - Fraction(1, 10**110) * (1 + epsilon))


def laplace_at_least(scale: Fraction, m: int) -> float:
    """Return P(X >= m), summed from the definition by geometric series."""
    q = math.exp(-1 / float(scale))
    return q**m / (1 + q) if m >= 1 else 1 - q ** (1 - m) / (1 + q)


@lru_cache(maxsize=64)
def gaussian_tails(variance: Fraction) -> tuple[int, np.ndarray]:
    """Return a reach r, and P(X >= -r), ..., P(X >= r), summed from the small end."""
    reach = math.ceil(14 * math.sqrt(variance)) + 4  # beyond: less than exp(-98)
    x = np.arange(-reach, reach + 1, dtype=float)
    weights = np.exp(-x * x / (2 * float(variance)))
    return reach, np.cumsum(weights[::-1])[::-1] / weights.sum()


def gaussian_at_least(variance: Fraction, m: int) -> float:
    reach, tails = gaussian_tails(variance)
    return 0.0 if m > reach else float(tails[max(0, m + reach)])


def chances(rule, n: int, min_units: int = 1) -> tuple[float, float]:
    """Return the probabilities with which a group of n units is shown and hidden, from the documented rule.

    Each is computed separately, so both are accurate to all digits.
    """
    if n == 0:
        return 0.0, 1.0
    if rule.strategy == "optimal":
        units = n - min_units + 1
        entry = 0 if units <= 0 else WORD if units > len(rule.table) else int(rule.table[units - 1])
        return float(Fraction(entry, WORD)), float(Fraction(WORD - entry, WORD))
    at_least = laplace_at_least if rule.strategy == "laplace" else gaussian_at_least
    m = rule.threshold + min_units - 1 - n
    return at_least(rule.noise, m), at_least(rule.noise, 1 - m)  # the noise is symmetric


def chance(rule, n: int, min_units: int = 1) -> float:
    return chances(rule, n, min_units)[0]


# ---------------------------------------------------------------- the optimal rule, in whole numbers

SPENDS = [
    (Fraction(1), Fraction(1, 10**5)),
    (Fraction(1, 10), Fraction(1, 10**6)),
    (Fraction(1, 100), Fraction(1, 10**4)),
    (Fraction(1, 7), Fraction(1, 10**9)),
    (Fraction(3), Fraction(1, 10**12)),
    (Fraction(1, 2), Fraction(1, 10**18)),
    (Fraction(10), Fraction(1, 10)),
    (Fraction(1, 1000), Fraction(1, 3)),
    (Fraction(2), Fraction(99, 100)),
    (Fraction(10**6), Fraction(1, 10**5)),
]


def table_of(epsilon: Fraction, delta: Fraction, max_groups: int = 1) -> list[int]:
    """Return 2**64 times the probabilities for 0, 1, 2, ... units, until a group is certainly shown."""
    return [0, *rule_of(epsilon, delta, max_groups, "optimal").table.tolist(), WORD, WORD]


def guarantee_holds(chances: list[int], epsilon: Fraction, delta: Fraction) -> bool:
    """Check both outcomes and both directions exactly, for each number of units and one more."""
    e = below_e(epsilon)
    numerator, denominator = e.numerator, e.denominator
    allowed = delta * WORD
    return all(
        denominator * one <= numerator * two + denominator * allowed
        for fewer, more in itertools.pairwise(chances)
        for one, two in ((more, fewer), (fewer, more), (WORD - fewer, WORD - more), (WORD - more, WORD - fewer))
    )


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), SPENDS)
def test_the_table_satisfies_the_guarantee_exactly(epsilon, delta):
    assert guarantee_holds(table_of(epsilon, delta), epsilon, delta)


@pytest.mark.slow
@given(
    epsilon=st.fractions(Fraction(1, 50), 20, max_denominator=10**6),
    exponent=st.floats(0.01, 18),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_table_satisfies_the_guarantee_for_any_spend(epsilon, exponent):
    delta = Fraction(10**-exponent)
    assert guarantee_holds(table_of(epsilon, delta), epsilon, delta)


def test_the_exact_check_notices_one_unit_too_much():
    """The first entry is floor(2**64 delta) minus at most a few units. Raising any entry to its limit plus 1 fails."""
    epsilon, delta = Fraction(1), Fraction(1, 10**5)
    chances = table_of(epsilon, delta)
    e = below_e(epsilon)
    for n in range(1, len(chances) - 2):
        growth = math.floor(e * chances[n - 1] + delta * WORD)
        closing = math.floor(WORD - (WORD - chances[n - 1] - delta * WORD) / e)
        raised = [*chances[:n], min(growth, closing) + 1, *chances[n + 1 :]]
        assert not guarantee_holds(raised, epsilon, delta)
        # And the table leaves very little of it unused: 64 units in the last place of delta, multiplied by e.
        assert min(growth, closing) - chances[n] <= 4 + 70 * float(delta) * 2**-53 * WORD


@pytest.mark.parametrize(("epsilon", "delta"), SPENDS)
@pytest.mark.parametrize("max_groups", [1, 3])
def test_the_table_is_the_published_recursion_rounded_down(epsilon, delta, max_groups):
    """Desfontaines, Voss, Gipson and Mandayam 2022, theorem 1, in 120 digits, with the spend of one group."""
    with decimal.localcontext(DIGITS):
        loss = Decimal(epsilon.numerator) / Decimal(epsilon.denominator) / max_groups
        spare = Decimal(delta.numerator) / Decimal(delta.denominator)
        spare = 1 - ((1 - spare).ln() / max_groups).exp()
        e = loss.exp()
        real, expected = Decimal(0), []
        while real < 1:
            real = min(e * real + spare, 1 - (1 - real - spare) / e, Decimal(1))
            expected.append(real)
    found = [Fraction(x, WORD) for x in table_of(epsilon, delta, max_groups)[1:]]
    # Rounding delta down to 2**-64 (and by a relative 2**-47) changes every probability by about as much.
    tolerance = 1e-12 + 4 * 2.0**-64 * max_groups / float(delta)
    *before, last = (float(p - Fraction(q)) for p, q in zip(found, expected, strict=False))
    assert all(-tolerance <= difference <= 0 for difference in before)
    assert -float(delta) <= last <= 0  # the recursion may reach 1 one unit earlier
    assert len(found) - len(expected) in (1, 2)  # `found` ends with 1 twice, `expected` with 1 once
    if delta >= Fraction(1, 10**6):
        assert tolerance < 2e-12 * max_groups


def test_the_chances_never_fall_and_a_lone_unit_has_less_than_delta():
    for epsilon, delta in SPENDS:
        chances = table_of(epsilon, delta)
        assert chances == sorted(chances)
        assert Fraction(chances[1], WORD) <= delta


# ---------------------------------------------------------------- how many units are needed


def units_for_even_chance(rule) -> int:
    """Return the least number of units with a probability of at least one half; probabilities never fall."""
    high = 1
    while chance(rule, high) < 0.5:
        high *= 2
    return bisect.bisect_left(range(high + 1), 0.5, lo=1, key=lambda n: chance(rule, n))


FIGURES = {1: (12, 12, 18), 4: (44, 50, 38), 16: (174, 219, 78), 64: (693, 960, 164)}


@pytest.mark.parametrize("max_groups", FIGURES)
def test_the_units_for_an_even_chance_are_the_published_ones(max_groups):
    """The figures are for epsilon = 1 and delta = 1e-5."""
    delta = Fraction(1, 10**5)
    needed = {}
    for strategy, figure in zip(STRATEGIES, FIGURES[max_groups], strict=True):
        rule = rule_of(1, delta, max_groups, strategy)
        needed[strategy] = units_for_even_chance(rule)
        assert abs(needed[strategy] - figure) <= 2
        assert abs(rule.even_chance - needed[strategy]) <= 1
    chosen = rule_of(1, delta, max_groups)
    assert needed[chosen.strategy] == min(needed.values())


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(6)])
@pytest.mark.parametrize("delta", [Fraction(1, 10**3), Fraction(1, 10**10)])
@pytest.mark.parametrize("max_groups", [1, 2, 8])
def test_auto_takes_the_rule_that_needs_the_fewest_units(adjacency, epsilon, delta, max_groups):
    rules = [rule_of(epsilon, delta, max_groups, strategy, adjacency) for strategy in STRATEGIES]
    least = min(units_for_even_chance(rule) for rule in rules)
    assert units_for_even_chance(rule_of(epsilon, delta, max_groups, "auto", adjacency)) <= least + 1


# ---------------------------------------------------------------- privacy of the whole selection, enumerated


# The probabilities have a relative error of some 2**-52 each, and sum to 1.
ROUNDING = 2e-15

Chances = tuple[float, float]


def hockey_stick(first: list[Chances], second: list[Chances], epsilon: float) -> float:
    """Return the sum over all outcomes of max(0, P - e**epsilon Q), given (shown, hidden) of independent groups."""
    p = q = np.ones(1)
    for one, two in zip(first, second, strict=True):
        p = np.concatenate([p * one[0], p * one[1]])
        q = np.concatenate([q * two[0], q * two[1]])
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def some_counts(rule, min_units: int = 1) -> list[int]:
    """Return counts before a unit enters: none, one, few, and around the steep part and the end of the curve."""
    middle = int(rule.even_chance) + min_units - 1
    top = len(rule.table) + min_units - 2 if rule.strategy == "optimal" else 2 * middle
    return sorted({0, 1, 2, min_units - 1, min_units, middle // 2, middle - 1, middle, max(top, 0)})


def worst_delta(rule, epsilon, entered: int, left: int, min_units: int = 1) -> float:
    """Return the largest hockey-stick divergence over all ways to enter and leave this many groups."""
    counts = some_counts(rule, min_units)
    both = {n: (chances(rule, n, min_units), chances(rule, n + 1, min_units)) for n in counts}
    worst = 0.0
    for into in itertools.combinations_with_replacement(counts, entered):
        for out_of in itertools.combinations_with_replacement(counts, left):
            before = [both[n][0] for n in into] + [both[n][1] for n in out_of]
            after = [both[n][1] for n in into] + [both[n][0] for n in out_of]
            worst = max(worst, hockey_stick(before, after, epsilon), hockey_stick(after, before, epsilon))
    return worst


PRIVACY_SPENDS = [(1.0, 1e-5), (0.3, 1e-3), (4.0, 1e-8), (2.0, 0.2)]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("epsilon", "delta"), PRIVACY_SPENDS)
@pytest.mark.parametrize("max_groups", [1, 2, 3])
@pytest.mark.parametrize("min_units", [1, 4])
def test_a_unit_that_enters_or_leaves_changes_the_outcome_by_epsilon_and_delta(
    strategy, epsilon, delta, max_groups, min_units
):
    rule = rule_of(Fraction(repr(epsilon)), Fraction(repr(delta)), max_groups, strategy)
    found = [worst_delta(rule, epsilon, touched, 0, min_units) for touched in range(1, max_groups + 1)]
    assert max(found) <= delta + ROUNDING
    if strategy == "optimal":  # all of delta is used
        assert max(found) >= delta * (1 - 1e-9) - ROUNDING
    if strategy == "laplace" and min_units == 1:  # the threshold is a whole number, so at most one step too high
        assert max(found) >= delta * math.exp(-epsilon / max_groups) * (1 - 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("epsilon", "delta"), PRIVACY_SPENDS)
@pytest.mark.parametrize("max_groups", [1, 2])
def test_a_replaced_unit_changes_the_outcome_by_epsilon_and_delta(strategy, epsilon, delta, max_groups):
    """A replaced unit leaves up to max_groups groups and enters as many others."""
    rule = rule_of(Fraction(repr(epsilon)), Fraction(repr(delta)), max_groups, strategy, "replace")
    for entered, left in itertools.product(range(max_groups + 1), repeat=2):
        assert worst_delta(rule, epsilon, entered, left) <= delta + ROUNDING


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_replaced_unit_of_three_groups(strategy):
    """A unit leaves three groups and enters three, at the counts where each rule is most exposed."""
    rule = rule_of(1, Fraction(1, 10**5), 3, strategy, "replace")
    counts = [0, 1, int(rule.even_chance) - 1, int(rule.even_chance)]
    both = {n: (chances(rule, n), chances(rule, n + 1)) for n in counts}
    for into in itertools.combinations_with_replacement(counts, 3):
        for out_of in itertools.combinations_with_replacement(counts, 3):
            before = [both[n][0] for n in into] + [both[n][1] for n in out_of]
            after = [both[n][1] for n in into] + [both[n][0] for n in out_of]
            assert hockey_stick(before, after, 1) <= 1e-5 + ROUNDING


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_enumeration_notices_a_rule_for_fewer_groups(strategy):
    """The rule for one group breaks the guarantee if a unit is in three, or under replacement."""
    rule = rule_of(1, Fraction(1, 10**5), 1, strategy)
    assert worst_delta(rule, 1, 3, 0) > 1e-5
    assert worst_delta(rule_of(1, Fraction(1, 10**5), 1, "optimal"), 1, 1, 1) > 1e-5


# ---------------------------------------------------------------- Gaussian noise on several counts


def lattice_delta(variance: float, shift: tuple[int, ...], epsilon: float) -> float:
    """Return the hockey-stick divergence of the noisy counts themselves, summed over every point of the lattice."""
    reach = math.ceil(14 * math.sqrt(variance)) + 3
    x = np.arange(-reach, reach + 1)
    p = q = np.ones(())
    total = np.exp(-x * x / (2 * variance)).sum()
    for move in shift:
        p = np.multiply.outer(p, np.exp(-x * x / (2 * variance)) / total)
        q = np.multiply.outer(q, np.exp(-((x - move) ** 2) / (2 * variance)) / total)
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(2, 1e-5), (4, 1e-6), (8, 1e-3), (8, 1e-9), (30, 1e-5), (8, 0.3), (3, 0.5)],
)
@pytest.mark.parametrize("max_groups", [1, 2, 3])
def test_the_noisy_counts_themselves_cost_half_of_delta(epsilon, delta, max_groups):
    variance = float(rule_of(epsilon, Fraction(repr(delta)), max_groups, "gaussian").noise)
    shifts = {
        tuple(sorted(shift, reverse=True)) for shift in itertools.product((-1, 0, 1), repeat=max_groups) if any(shift)
    }
    found = {shift: lattice_delta(variance, shift, epsilon) for shift in shifts}
    assert max(found.values()) <= delta / 2 * (1 + 1e-9)
    # The more counts move, the worse, so the bound for all of them covers fewer.
    assert max(found.values()) == max(worst for shift, worst in found.items() if all(shift))


@pytest.mark.parametrize(("epsilon", "delta"), [(2, 1e-5), (4, 1e-6), (8, 1e-9)])
@pytest.mark.parametrize("max_groups", [2, 3])
def test_the_bound_for_several_counts_is_not_far_from_the_truth(epsilon, delta, max_groups):
    """With a tenth less variance the enumerated delta exceeds its half, so the noise is needed."""
    variance = float(rule_of(epsilon, Fraction(repr(delta)), max_groups, "gaussian").noise)
    assert lattice_delta(0.9 * variance, (1,) * max_groups, epsilon) > delta / 2


@pytest.mark.parametrize("count", [2, 3, 10, 100])
@pytest.mark.parametrize("epsilon", [0.1, 1, 10, 100])
def test_the_bound_grows_with_the_number_of_counts_that_move(count, epsilon):
    """This holds if epsilon * variance - L / 2 > L / e, as the rule demands, so the bound for L counts covers fewer."""
    least = (count / 2 + count / math.e) / epsilon
    for variance in (1.0001 * least, 1.2 * least, 2 * least, 10 * least):
        bounds = [continuous_bound(j, math.sqrt(j * variance), epsilon) for j in range(1, count + 1)]
        assert bounds == sorted(bounds)


@pytest.mark.parametrize(
    ("count", "variance"), [(2, 0.35), (2, 0.45), (3, 0.45), (3, 0.55), (4, 0.6), (7, 0.7), (7, 1.0), (20, 0.9)]
)
def test_a_sum_of_discrete_gaussians_is_nearly_one(count, variance):
    """For the least variances in use, probability ratios are within (1 + eta) / (1 - eta), as the bound claims."""
    eta = (1 + 2 * sum(math.exp(-2 * math.pi**2 * variance * (k - 0.5) ** 2) for k in range(1, 50))) ** count - 1
    assert 0 < eta < 1
    reach = math.ceil(12 * math.sqrt(variance)) + 2
    x = np.arange(-reach, reach + 1)
    one = np.exp(-x * x / (2 * variance))
    one /= one.sum()
    total = one
    for _ in range(count - 1):
        total = np.convolve(total, one)
    s = np.arange(-(len(total) // 2), len(total) // 2 + 1)
    ideal = np.exp(-s * s / (2 * count * variance))
    ideal /= ideal.sum()
    inside = np.abs(s) <= 5 * math.sqrt(count * variance)
    ratio = total[inside] / ideal[inside]
    assert ratio.max() <= (1 + eta) / (1 - eta)
    assert ratio.min() >= (1 - eta) / (1 + eta)


@pytest.mark.parametrize("strategy", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1, 1e-5), (0.1, 1e-8), (8, 1e-9), (100, 0.1), (0.5, 1e-15), (1000, 1e-5), (0.001, 1e-6)]
)
@pytest.mark.parametrize("touched", [1, 2, 3, 50])
def test_lone_units_appear_with_at_most_their_part_of_delta(strategy, epsilon, delta, touched):
    rule = rule_of(Fraction(repr(epsilon)), Fraction(repr(delta)), touched, strategy)
    at_least = laplace_at_least if strategy == "laplace" else gaussian_at_least
    part = delta / 2 if strategy == "gaussian" else delta

    def any_shown(m: int) -> float:
        return -math.expm1(touched * math.log1p(-at_least(rule.noise, m)))

    m = rule.threshold - 1
    assert m >= 1
    assert any_shown(m) <= part * (1 + 1e-12)
    # The least such threshold (or one step above, where the tail meets delta to nine digits).
    assert m == 1 or any_shown(m - 1) > part * (1 - 1e-8)


# ---------------------------------------------------------------- min_units


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("least", [2, 5, 100])
def test_min_units_shifts_the_curve(strategy, least):
    """The same words decide a group of n units at min_units = k as one of n - k + 1 units at 1."""
    rule = rule_of(1, Fraction(1, 10**5), 2, strategy)
    n = np.arange(1, 150).repeat(20)
    shifted = apply_rule(rule, n + least - 1, least, SeededBits(1))
    assert (shifted == apply_rule(rule, n, 1, SeededBits(1))).all()
    assert shifted.any()
    assert not shifted.all()
    few = np.full(2000, least - 1)
    if strategy == "optimal":
        assert not apply_rule(rule, few, least, SeededBits(2)).any()
    else:
        assert chance(rule, least - 1, least) < chance(rule, 1) <= 1e-5


@pytest.mark.parametrize("strategy", [*STRATEGIES, "auto"])
def test_an_enormous_min_units_hides_everything(strategy):
    counts = np.array([0, 1, 10**6, 2**63 - 1])
    for least in (2**63, 10**30):
        shown = select_partitions(counts, epsilon=1, delta=1e-5, max_groups=1, min_units=least, strategy=strategy)
        assert shown.tolist() == [False] * 4


# ---------------------------------------------------------------- drawing


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("min_units", [1, 3])
@pytest.mark.parametrize(("epsilon", "delta", "max_groups"), [(1, 1e-2, 1), (0.5, 0.1, 2), (3, 1e-3, 4)])
def test_shown_groups_follow_the_chances(strategy, min_units, epsilon, delta, max_groups):
    """There are about 400 binomial tests at 1e-7, one per number of units, so 4e-5 of all seeds would fail one."""
    rule = rule_of(Fraction(repr(epsilon)), Fraction(repr(delta)), max_groups, strategy)
    source = SeededBits(17)
    tested = 0
    for n in range(int(2 * rule.even_chance) + min_units + 2):
        shown = apply_rule(rule, np.full(20_000, n), min_units, source)
        expected = chance(rule, n, min_units)
        assert binomial_fits(int(shown.sum()), 20_000, expected)
        tested += 0.01 < expected < 0.99
    assert tested >= 2


def test_the_table_decides_by_whole_words():
    """A group is shown for exactly the words below its entry."""
    rule = rule_of(1, Fraction(1, 10**5), 1, "optimal")
    for n, entry in enumerate(rule.table.tolist(), 1):
        words = np.array([0, entry - 1, entry, WORD - 1], dtype=np.uint64)
        shown = apply_rule(rule, np.full(4, n), 1, ScriptedBits(words))
        assert shown.tolist() == [True, True, False, False]
    last = len(rule.table) + 1
    assert apply_rule(rule, np.array([last, 2**63 - 1]), 1, ScriptedBits([WORD - 1] * 2)).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_groups_are_decided_independently(strategy):
    rule = rule_of(1, Fraction(1, 10), 1, strategy)
    n = units_for_even_chance(rule)
    shown = apply_rule(rule, np.full(100_000, n), 1, SeededBits(4))
    p = chance(rule, n)
    assert binomial_fits(int((shown[::2] & shown[1::2]).sum()), 50_000, p * p)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_draws_do_not_depend_on_the_counts(strategy):
    rule = rule_of(1, Fraction(1, 10**5), 1, strategy)
    served = set()
    for counts in (np.zeros(300, int), np.full(300, 10**9), np.arange(300)):
        source = SeededBits(3)
        apply_rule(rule, counts, 1, source)
        served.add(source.served)
    assert len(served) == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [*STRATEGIES, "auto"])
@pytest.mark.parametrize("epsilon", [1e-3, 1, 1e6])
@pytest.mark.parametrize("max_groups", [1, 5])
def test_a_group_without_units_is_never_shown(strategy, epsilon, max_groups):
    for delta in (1e-5, 0.9999):
        rule = rule_of(Fraction(repr(epsilon)), Fraction(repr(delta)), max_groups, strategy)
        assert not apply_rule(rule, np.zeros(20_000, np.int64), 1, SeededBits(1)).any()


def test_counts_at_the_end_of_64_bits_do_not_wrap():
    counts = np.full(2000, 2**63 - 1)
    for strategy in STRATEGIES:
        assert apply_rule(rule_of(Fraction(1, 100), Fraction(1, 10**5), 3, strategy), counts, 1, SeededBits(1)).all()


# ---------------------------------------------------------------- what goes in and comes out


def select(counts, **changes):
    return select_partitions(counts, **{"epsilon": 1, "delta": 1e-5, "max_groups": 1} | changes)


@pytest.mark.parametrize("strategy", [*STRATEGIES, "auto"])
def test_many_units_are_shown_and_few_are_hidden(strategy):
    # A lone unit appears with probability 1e-9 at most, one of a million units is missing with far less.
    shown = select(np.array([0, 1, 10**6]), delta=1e-9, strategy=strategy)
    assert shown.dtype == bool
    assert shown.tolist() == [False, False, True]


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int32, pl.UInt32, pl.Int64, pl.UInt64])
def test_a_series_gives_a_boolean_series_of_the_same_name(dtype):
    shown = select(pl.Series("n", [0, 120, 0], dtype=dtype))
    assert shown.name == "n"
    assert shown.dtype == pl.Boolean
    assert shown.to_list() == [False, True, False]
    empty = select(pl.Series("n", [], dtype=dtype))
    assert empty.dtype == pl.Boolean
    assert empty.name == "n"
    assert len(empty) == 0


@pytest.mark.parametrize("strategy", [*STRATEGIES, "auto"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 3), (2, 0, 2), ()])
def test_arrays_keep_their_shape(strategy, shape):
    shown = select(np.full(shape, 10**6), strategy=strategy)
    assert shown.shape == shape
    assert shown.dtype == bool
    assert shown.all()


def test_a_table_of_counts_is_decided_cell_by_cell():
    shown = select(np.array([[0, 10**6, 0], [10**6, 0, 10**6]]))
    assert shown.tolist() == [[False, True, False], [True, False, True]]


def test_lists_are_read_too_also_empty_ones():
    assert select([0, 10**6]).tolist() == [False, True]
    assert select([]).tolist() == []


@pytest.mark.parametrize(
    "counts",
    [
        np.array([1, -1]),
        pl.Series([-4711]),
        np.array([1.0]),
        pl.Series([1.0]),
        [0.5],
        np.array([True]),
        pl.Series([True]),
        pl.Series([1, None]),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array([math.nan]),
        ["4711"],
        pl.Series(["4711"]),
        None,
        np.array([1, None]),
        np.ma.array([1, 2], mask=[False, True]),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', x)}",
)
def test_counts_that_are_none_are_refused_without_naming_them(counts):
    with pytest.raises(InvalidDataError, match="unit_counts") as error:
        select(counts)
    assert "4711" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1e7}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"delta": -0.1}, "delta"),
        ({"delta": 1e-101}, "delta"),
        ({"delta": None}, "delta"),
        ({"max_groups": 0}, "max_groups"),
        ({"max_groups": 1.0}, "max_groups"),
        ({"max_groups": True}, "max_groups"),
        ({"max_groups": 10**19}, "max_groups"),
        ({"max_groups": 10**5000}, "max_groups"),
        ({"min_units": 0}, "min_units"),
        ({"min_units": -3}, "min_units"),
        ({"min_units": 2.0}, "min_units"),
        ({"strategy": "best"}, "auto, optimal, laplace, gaussian"),
        ({"strategy": None}, "auto, optimal, laplace, gaussian"),
        ({"adjacency": "remove"}, "add_remove, replace"),
    ],
)
def test_parameters_without_meaning_are_refused(changes, named):
    with pytest.raises(InvalidParameterError, match=named):
        select(np.array([5]), **changes)


def test_a_table_too_long_is_refused_with_the_way_out():
    spend = {"epsilon": 1e-6, "delta": 1e-9, "max_groups": 10}
    counts = np.array([0, 1, 10**12])
    with pytest.raises(InvalidParameterError, match=r"million.*strategy='auto'"):
        select(counts, **spend, strategy="optimal")
    # delta = 1e-9: a lone unit appears with at most that.
    assert select(counts, **spend).tolist() == [False, False, True]


def test_a_delta_below_a_word_is_refused_with_the_way_out():
    with pytest.raises(InvalidParameterError, match=r"2\*\*-64.*strategy='auto'"):
        select(np.array([5]), delta=1e-30, strategy="optimal")
    assert select(np.array([1, 10**6]), delta=1e-30).tolist() == [False, True]


def test_noise_too_wide_for_64_bits_is_refused():
    counts = np.array([1, 5])
    with pytest.raises(InvalidParameterError, match="larger epsilon"):
        select(counts, epsilon=1e-9, max_groups=10**9, strategy="laplace")
    with pytest.raises(InvalidParameterError, match="larger epsilon"):
        select(counts, epsilon=1e-9, delta=1e-12, max_groups=10**18, strategy="gaussian")
    assert not select(counts, epsilon=1e-9, max_groups=10**9).any()


@pytest.mark.parametrize("strategy", [*STRATEGIES, "auto"])
@pytest.mark.parametrize("delta", [Fraction(10**30 - 1, 10**30), Decimal("0.999999999999999999999"), 1 - 2**-53])
def test_a_delta_that_rounds_to_one_is_no_crash(strategy, delta):
    shown = select(np.array([0, 10**6]), delta=delta, max_groups=2, strategy=strategy)
    assert shown.tolist() == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("max_groups", [1, 3, 40])
@pytest.mark.parametrize("delta", [Fraction(1, 100), Fraction(1, 10**9)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(2)])
def test_no_rule_needs_fewer_units_than_the_bound_says(epsilon, delta, max_groups, adjacency):
    """Otherwise a plan would pass over the best rule."""
    bound = least_units(epsilon, delta, max_groups, adjacency=adjacency)
    rules = [rule_of(epsilon, delta, max_groups, "auto", adjacency)]
    rules += [rule_of(epsilon, delta, max_groups, strategy, adjacency) for strategy in ("laplace", "gaussian")]
    assert bound <= min(math.ceil(rule.even_chance) for rule in rules)
    assert min(rule.even_chance for rule in rules) == rules[0].even_chance
    assert bound > 0.4 * rules[0].even_chance  # and it is close enough to be of use
