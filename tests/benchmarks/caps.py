"""When one cap on a unit's rows in all groups is better than two, if noise is Gaussian: a sweep over made-up people.

Gaussian noise grows with sqrt(g) r if a unit has at most r rows in each of g groups, and with m if it has at most m
rows in all of them. A unit with rows r_1, ..., r_k is left whole by caps of k and max(r_i), or by one of sum(r_i). So
one cap is better if sum(r_i) < sqrt(k) max(r_i): hardly ever if rows are spread evenly, where it costs up to sqrt(k)
times as much, and nearly always if most rows lie in one group, where it saves up to as much. Nobody knows which of
them is true, so this sweep has both. Each line is one number of public groups, over all people: how unevenly they
visit groups, how heavy the tail of their rows is, how many they are, and what is spent. An entry compares the errors
of a count with estimated caps of either kind, or with the best ones, each with the spend that its estimates leave. The
error of a group is the root of squared bias and squared noise, and the median group counts.

None of these people are those of the benchmark of accuracy. Nothing is drawn but the people, from a fixed seed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import dp_polars as dp
from dp_polars._plan import auto
from dp_polars._plan.auto import _EACH, _FEW_GROUPS, _LIKELY_PART, _STEPS
from tests.benchmarks.peers.shared import rho_of
from tests.release.choice_law import chances

Numbers = NDArray[np.float64]
Caps = Mapping[Any, int]
EVEN = 0.95  # a mean ratio from which neither is better
LIKELY = 1e-3  # caps that are less likely are left out
GROUPS = (2, 3, 4, 6, 8, 12, 16, 24)
PEOPLE = (1_000, 4_000)
EPSILONS = (1.0, 0.3)
ZIPF = (0.0, 0.5, 1.0, 1.5, 2.5)  # how unevenly each person visits groups, in an order of its own
TAILS = (1.1, 1.5, 3.0)  # the Pareto exponent of the rows of a person
MEAN_ROWS = (4, 30)
LADDER = tuple(sorted({round(float(step) * 10**power) for power in range(4) for step in _STEPS}))


def run() -> bool:
    """Print how much better one cap is for each number of groups, and whether that is so for the constant."""
    generator = np.random.default_rng(7)
    print("errors with two caps divided by those with one: geometric mean, 10 %, 90 %, and where one cap is better")
    print(f"{'groups':>6}  {'automatic':>24}  {'best by hand':>24}")
    found: dict[int, float] = {}
    for groups in GROUPS:
        automatic, by_hand = list[float](), list[float]()
        for people, zipf, tail, mean in itertools.product(PEOPLE, ZIPF, TAILS, MEAN_ROWS):
            rows = visits(generator, people, groups, zipf, tail, mean)
            for epsilon in EPSILONS:
                two, one = (chosen(generator, rows, epsilon, across=across) for across in (False, True))
                automatic.append(two / one)
                rho = rho_of(epsilon, 1e-6)
                by_hand.append(best(rows, rho, across=False) / best(rows, rho, across=True))
        found[groups] = float(np.exp(np.mean(np.log(automatic))))
        print(f"{groups:>6}  {_summary(automatic)}  {_summary(by_hand)}", flush=True)
    most = _FEW_GROUPS * _LIKELY_PART
    inside = [ratio for groups, ratio in found.items() if groups <= most]
    print(f"up to {most} public groups have one cap; there the mean ratio is at least {min(inside):.2f} (limit {EVEN})")
    return min(inside) >= EVEN


def _summary(ratios: Sequence[float]) -> str:
    low, high = np.quantile(ratios, [0.1, 0.9])
    mean, better = math.exp(np.mean(np.log(ratios))), np.mean(np.array(ratios) > 1)
    return f"{mean:>6.2f}  {low:>4.2f}  {high:>4.2f}  {better:>4.0%}"


def visits(generator: np.random.Generator, people: int, groups: int, zipf: float, tail: float, mean: float) -> Numbers:
    """Return how often each person visits each group."""
    rows = np.minimum(1_000, 1 + generator.pareto(tail, people) * mean * max(0.1, tail - 1)).astype(np.int64)
    weights = np.arange(1, groups + 1) ** -zipf
    ordered = generator.multinomial(rows, weights / weights.sum())
    return np.take_along_axis(ordered, generator.random((people, groups)).argsort(axis=1), axis=1).astype(float)


def error(kept: Numbers, rows: Numbers, sigma: float) -> float:
    truth = rows.sum(axis=0)
    return float(np.median(np.hypot(truth - kept.sum(axis=0), sigma) / truth))


def best(rows: Numbers, rho: float, *, across: bool) -> float:
    """Return the smallest error with any caps of a kind."""
    return min(error(kept(rows, caps), rows, sigma(caps, rho, across=across)) for caps in all_caps(rows, across=across))


def all_caps(rows: Numbers, *, across: bool) -> Iterator[Caps]:
    """Yield the caps of a kind, up to those that cut nothing off."""
    most = rows.sum(axis=1).max() if across else rows.max()
    largest = next((cap for cap in LADDER if cap >= most), LADDER[-1])
    for cap in (cap for cap in LADDER if cap <= largest):
        if across:
            yield {"max_rows": cap}
        else:
            for groups in (number for number in LADDER if number <= rows.shape[1]):
                yield {"max_groups": groups, "max_rows_per_group": cap}


def kept(rows: Numbers, caps: Caps) -> Numbers:
    """Return what caps leave of rows. Each unit keeps its groups with equal chances."""
    if "max_rows" in caps:
        return rows * np.minimum(1, caps["max_rows"] / np.maximum(rows.sum(axis=1, keepdims=True), 1))
    counts = np.maximum((rows > 0).sum(axis=1, keepdims=True), 1)
    return np.minimum(rows, caps["max_rows_per_group"]) * np.minimum(1, caps["max_groups"] / counts)


def sigma(caps: Caps, rho: float, *, across: bool) -> float:
    """Return the deviation of the noise with what the estimates leave of the spend."""
    left = rho * float(1 - (1 if across else 2) * _EACH)
    moved = caps["max_rows"] if across else math.sqrt(caps["max_groups"]) * caps["max_rows_per_group"]
    return moved / math.sqrt(2 * left)


def chosen(generator: np.random.Generator, rows: Numbers, epsilon: float, *, across: bool) -> float:
    """Return the mean error with caps as they are estimated, over the laws of the choices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "_FEW_GROUPS", 10**9 if across else 0)
        session = dp.Session(epsilon=1, delta=1e-6, unit="who", max_groups="auto", max_rows_per_group="auto")
        asked = dp.private(pl.DataFrame({"who": [0], "k": [0]}), session).preview
        plan = asked.count("k", keys=list(range(rows.shape[1])), epsilon=epsilon, mechanism="gaussian")
    assert plan.main is not None
    assert plan.main.measure == "concentrated"
    picked = np.where(rows > 0, generator.random(rows.shape), -1).argmax(axis=1)  # one group of each unit
    numbers = {
        "max_groups": (rows > 0).sum(axis=1),
        "max_rows_per_group": rows[np.arange(len(rows)), picked],
        "max_rows": rows.sum(axis=1),
    }
    laws: list[tuple[Caps, float]] = [({}, 1.0)]
    for estimate in plan.estimates:
        beyond = [int((numbers[estimate.what] > int(cap)).sum()) for cap in estimate.candidates]
        after = []
        for known, likely in laws:
            wanted = auto.wanted_beyond(estimate, plan.query, plan.main, known)
            scores = np.array(auto.scores_of(estimate, beyond, wanted, len(rows), len(rows)))
            law = zip(estimate.candidates, chances(scores, estimate.rate), strict=True)
            after += [({**known, estimate.what: int(cap)}, likely * float(chance)) for cap, chance in law]
        laws = [(known, likely) for known, likely in after if likely >= LIKELY]
    rho = float(plan.main.amount) / float(1 - (1 if across else 2) * _EACH)
    errors = [likely * error(kept(rows, caps), rows, sigma(caps, rho, across=across)) for caps, likely in laws]
    return sum(errors) / sum(likely for _, likely in laws)
