"""The plan of a stream of comparisons with a threshold, and what each of its questions may be moved by.

What one unit can change. It keeps at most `max_rows` rows, chosen once when the stream is opened, so it moves
- a count of rows by at most `max_rows`: added or removed by as many as it has, replaced by the difference of the old
  one's and the new one's, both between 0 and `max_rows`;
- a sum of values clipped to [low, high] by at most max_rows * max(|low|, |high|) when added or removed, and by at most
  max_rows * (max(high, 0) - min(low, 0)) when replaced: a unit's own sum lies between max_rows * min(low, 0) and
  max_rows * max(high, 0), because it may have fewer rows, or none with a value;
- a count of units by at most 1, over all of its rows.
An answer f is compared as (f - threshold) / (the most that one unit moves f), which moves by at most 1, so the noise
is fixed when the stream is opened. For t units together each unit's share of the price is a t-th: t changes of one
unit each, of which every one costs epsilon / t, whichever way it moves the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dp_polars._display.fact_table import AsTable
from dp_polars._engines.polars.stream_answers import Tally
from dp_polars._numbers import Number, count_of, exact, flag_of
from dp_polars._plan.description import price_text, protected_text, steps_text, unit_text
from dp_polars._plan.grid import Grid
from dp_polars._plan.pure_spend import pure_opening
from dp_polars._plan.query import Spend
from dp_polars._session.cost import Cost
from dp_polars._session.terms import Adjacency, Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.sparse_vector import SparseError, SparseScales, noise_grid, sparse_error, sparse_scales

Counted = Literal["rows", "units"]
SENSITIVITY = Fraction(1)
"""Of every answer as it is compared."""

_LARGEST_THRESHOLD = 10**30
_QUESTIONS = (100, 1_000)


@dataclass(frozen=True, kw_only=True)
class StreamQuery:
    """A question to a stream, checked.

    Attributes
    ----------
    tally
        What an engine counts or adds up.
    step
        What the number 1 of its exact answer stands for.
    sensitivity
        The most that one unit moves the answer.
    rises
        Whether the answer can't fall when a unit is added.
    whole
        Whether a released value is a whole number.
    """

    tally: Tally
    sensitivity: Fraction
    step: Fraction = Fraction(1)
    rises: bool = True
    whole: bool = True


def moved_by(grid: Grid, max_rows: int, adjacency: Adjacency) -> int:
    """Return the most steps that one unit moves a sum of its at most `max_rows` rows."""
    if adjacency == "replace":
        return max_rows * (max(grid.high, 0) - min(grid.low, 0))
    return max_rows * grid.largest


@dataclass(frozen=True, kw_only=True, repr=False)
class StreamPlan(AsTable):
    """What a stream will do and cost. Prints as a table; made by `preview` without spending anything.

    Attributes
    ----------
    terms, unit, steps, unchecked
        What was agreed, who is protected, the transformations before, and whether one of them was not checked.
    threshold, hits, numeric, monotone, of
        As given.
    max_rows, max_rows_rule
        The most rows that one unit counts with, and where that came from; None: only units can be counted.
    epsilon, cost
        What the whole stream costs.
    scales
        The noise of answers that one unit moves by 1.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = dp.private(pl.DataFrame({"km": [2, 4]}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> plan = visits.preview.sparse_vector(100, hits=2, epsilon=0.5)
    >>> round(plan.expected_error(questions=100).margin)
    119
    """

    terms: Terms
    unit: tuple[str, ...]
    steps: tuple[str, ...]
    unchecked: bool
    threshold: Fraction
    hits: int
    numeric: bool
    monotone: bool
    of: Counted
    max_rows: int | None
    max_rows_rule: str
    epsilon: Fraction
    cost: Cost
    scales: SparseScales

    @property
    def epsilon_of_unit(self) -> Fraction:
        """What one unit loses, where several are protected together."""
        return self.epsilon / self.terms.group_size

    def expected_error(self, questions: int, confidence: float = 0.95, sensitivity: Number = 1) -> SparseError:
        """Return what holds for a whole stream of so many questions, each moved by at most `sensitivity` by a unit."""
        return sparse_error(
            answers=questions,
            hits=self.hits,
            sensitivity=sensitivity,
            epsilon=self.epsilon_of_unit,
            confidence=confidence,
            monotone=self.monotone,
            numeric=self.numeric,
        )

    def label(self) -> str:
        """Return a short public description for the ledger."""
        many = "1 hit" if self.hits == 1 else f"{self.hits:,} hits"
        values = " with values" if self.numeric else ""
        return f"stream of {self.of} above {shown(self.threshold)}, {many}{values}, {unit_text(self.terms, self.unit)}"

    def rows(self) -> list[tuple[str, str]]:
        """Return what it says of itself, as names and texts."""
        return _rows(self)


def stream_plan_of(
    *,
    terms: Terms,
    unit: tuple[str, ...],
    steps: tuple[str, ...],
    unchecked: bool,
    threshold: Number,
    hits: int,
    numeric: bool,
    monotone: bool,
    of: Counted,
    max_rows: int | None,
    max_rows_rule: str,
    spend: Spend,
) -> StreamPlan:
    """Return the plan of a stream, or raise with what is missing or has no proof."""
    limit = exact(threshold, "threshold")
    if abs(limit) > _LARGEST_THRESHOLD:
        raise InvalidParameterError(f"threshold={threshold} lies outside -1e30 to 1e30; check its unit.")
    if of not in ("rows", "units"):
        raise InvalidParameterError(f"of= says what a condition counts: 'rows' or 'units', got {of!r}.")
    hits, numeric, monotone = count_of(hits, "hits"), flag_of(numeric, "numeric"), flag_of(monotone, "monotone")
    if monotone and terms.adjacency == "replace":
        raise InvalidParameterError(
            "monotone=True needs answers that all rise or all fall together. In a 'replace' session one unit leaves "
            "and another comes, so that some may rise while others fall. Leave it out, or open an 'add_remove' session."
        )
    if not unit:
        max_rows, max_rows_rule = 1, "every row is a unit"
    elif max_rows is None and of == "rows":
        raise InvalidParameterError(
            "With how many rows may one unit count? That decides the noise. Say max_rows_per_group=10 (here or in the "
            "session), or count units instead of rows with of='units'."
        )
    epsilon, cost = pure_opening(terms, spend, "a stream")
    scales = sparse_scales(
        epsilon / terms.group_size, hits, delta=None, monotone=monotone, constants="lyu-su-li", numeric=numeric
    )
    noise_grid(scales, SENSITIVITY)  # says so if the noise would be too wide
    return StreamPlan(
        terms=terms,
        unit=unit,
        steps=steps,
        unchecked=unchecked,
        threshold=limit,
        hits=hits,
        numeric=numeric,
        monotone=monotone,
        of=of,
        max_rows=max_rows,
        max_rows_rule=max_rows_rule,
        epsilon=epsilon,
        cost=cost,
        scales=scales,
    )


def shown(number: Fraction) -> str:
    """Return a number as people write it."""
    return f"{number.numerator:,}" if number.denominator == 1 else f"{float(number):.12g}"


def _rows(plan: StreamPlan) -> list[tuple[str, str]]:
    scales = plan.scales
    rows = [
        ("stream", f"of {plan.of} for which a condition is true, counts and sums" + steps_text(plan.steps)),
        ("protects", protected_text(plan.terms, plan.unit)),
    ]
    if plan.max_rows is None:
        rows.append(("rows per unit", "all: only units can be counted"))
    else:
        extra = ", for counts of rows and sums" if plan.of == "units" and plan.unit else ""
        rows.append(("rows per unit", f"{plan.max_rows} ({plan.max_rows_rule}){extra}"))
    rows.append(("threshold", shown(plan.threshold)))
    rows.append(("hits", f"{plan.hits:,}, then it is closed" + (", each with its value" if plan.numeric else "")))
    if plan.monotone:
        rows.append(("monotone", "answers that can't fall when a unit is added, and no others"))
    noises = [("threshold", scales.threshold), ("comparison", scales.query), ("value", scales.value)]
    texts = [f"{name} {float(scale):.4g}" for name, scale in noises if scale is not None]
    rows.append(("noise", f"Laplace scales of an answer that one unit changes by 1: {', '.join(texts)}"))
    rows.append(("price", f"{price_text(plan.terms, plan.cost)}, once; asking is free"))
    change = 1 if plan.of == "units" or plan.max_rows is None else plan.max_rows
    for questions in _QUESTIONS:
        error = plan.expected_error(questions, sensitivity=change)
        value = "" if error.value is None else f", values within {error.value:.4g}"
        text = f"right for counts further than {error.margin:.4g} {plan.of} from the threshold{value} (95 %)"
        rows.append((f"{questions:,} questions", text))
    if plan.unchecked:
        rows.append(("unchecked", "a step was not checked; the guarantee rests on the user's word"))
    return rows
