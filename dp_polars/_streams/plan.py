"""The plan of a stream of questions that are compared with a threshold. It never sees data.

The noise is fixed when the stream is opened, before any question is known. So each answer f is compared as
(f - threshold) / sensitivity, where `sensitivity` is the most that one unit moves f (see `queries`): this ratio moves
by at most 1. If t units are protected together, their change is t changes of one unit each, and each of these costs
epsilon / t, whichever way it moves the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from dp_polars._display.text import amount
from dp_polars._numbers import Number, count_of, exact, flag_of
from dp_polars._plan.base import USUALLY, Facts, FramePlan, pure_spend
from dp_polars._plan.query import Spend
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.sparse_vector import SparseError, SparseScales, noise_grid, sparse_error, sparse_scales

Counted = Literal["rows", "units"]
SENSITIVITY = Fraction(1)
"""Answers are rescaled so that one unit moves each of them by at most 1."""

_LARGEST_THRESHOLD = 10**30
_QUESTIONS = (100, 1_000)


@dataclass(frozen=True, kw_only=True, repr=False)
class StreamPlan(FramePlan):
    """What a stream will do and cost. Prints as a table; `preview` makes it and spends nothing.

    Attributes
    ----------
    threshold, hits, numeric, monotone, of
        The arguments of `sparse_vector`.
    max_rows, max_rows_rule
        The most rows of one unit that count, and where this cap came from; None if only units can be counted.
    epsilon
        The epsilon of the whole stream.
    scales
        The noise scales for answers that one unit moves by 1.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = dp.private(pl.DataFrame({"km": [2, 4]}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> plan = visits.preview.sparse_vector(100, hits=2, epsilon=0.5)
    >>> round(plan.expected_error(questions=100).margin)
    119
    """

    question: ClassVar[str] = "stream"

    heading: ClassVar[str] = "stream"

    threshold: Fraction
    hits: int
    numeric: bool
    monotone: bool
    of: Counted
    max_rows: int | None
    max_rows_rule: str
    epsilon: Fraction
    scales: SparseScales

    @property
    def epsilon_of_unit(self) -> Fraction:
        """The epsilon for a change of one unit, where several units are protected together."""
        return self.epsilon / self.terms.group_size

    def expected_error(self, questions: int, confidence: float = 0.95, sensitivity: Number = 1) -> SparseError:
        """Return the error of a whole stream of this many questions, if one unit moves each answer by `sensitivity`."""
        return sparse_error(
            answers=questions,
            hits=self.hits,
            sensitivity=sensitivity,
            epsilon=self.epsilon_of_unit,
            confidence=confidence,
            monotone=self.monotone,
            numeric=self.numeric,
        )

    def summary(self) -> str:
        """Return what is opened, for the ledger."""
        many = _hits(self.hits)
        values = " with values" if self.numeric else ""
        return f"stream of {self.of} above {shown(self.threshold)}, {many}{values}"

    def title(self) -> str:
        """Return what is asked, in a few words."""
        return f"of {self.of} for which a condition is true, counts and sums"

    def price(self) -> str:
        """Return the price, in words."""
        return f"{super().price()}, once; asking is free"

    def noise_in_short(self) -> str:
        """Return what hides a unit in the answers, in a few words."""
        return f"Laplace noise on the threshold and on each comparison, until {_hits(self.hits)}"

    def error_in_short(self) -> str:
        """Return how far from the threshold a count has to be for right answers to a hundred questions."""
        change = 1 if self.of == "units" or self.max_rows is None else self.max_rows
        margin = self.expected_error(_QUESTIONS[0], sensitivity=change).margin
        right = f"{_QUESTIONS[0]} questions are right for counts further than {amount(margin)} from the threshold"
        return f"{right}, {USUALLY}"

    def facts(self) -> Facts:
        """Return the rows about the threshold and the noise."""
        scales = self.scales
        rows_per_unit = "all: only units can be counted"
        if self.max_rows is not None:
            extra = ", for counts of rows and sums" if self.of == "units" and self.unit else ""
            rows_per_unit = f"{self.max_rows} ({self.max_rows_rule}){extra}"
        rows = [
            ("rows per unit", rows_per_unit),
            ("threshold", shown(self.threshold)),
            ("hits", f"{self.hits:,}, then it is closed" + (", each with its value" if self.numeric else "")),
        ]
        if self.monotone:
            rows.append(("monotone", "answers that can't fall when a unit is added, and no others"))
        noises = [("threshold", scales.threshold), ("comparison", scales.query), ("value", scales.value)]
        texts = [f"{name} {float(scale):.4g}" for name, scale in noises if scale is not None]
        rows.append(("noise", f"Laplace scales of an answer that one unit changes by 1: {', '.join(texts)}"))
        return rows

    def accuracy(self) -> Facts:
        """Return how far from the threshold a count has to be for a right answer, for some numbers of questions."""
        change = 1 if self.of == "units" or self.max_rows is None else self.max_rows
        rows = []
        for questions in _QUESTIONS:
            error = self.expected_error(questions, sensitivity=change)
            value = "" if error.value is None else f", values within {error.value:.4g}"
            text = f"right for counts further than {error.margin:.4g} {self.of} from the threshold{value} (95 %)"
            rows.append((f"{questions:,} questions", text))
        return rows


def _hits(number: int) -> str:
    return "1 hit" if number == 1 else f"{number:,} hits"


def stream_plan(
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
    """Return the plan of a stream, or raise an error that says what is missing or has no proof."""
    limit = exact(threshold, "threshold")
    if abs(limit) > _LARGEST_THRESHOLD:
        raise InvalidParameterError(f"threshold={threshold} lies outside -1e30 to 1e30; check its unit.")
    if of not in ("rows", "units"):
        raise InvalidParameterError(f"of= says what a condition counts: 'rows' or 'units', got {of!r}.")
    hits, numeric, monotone = count_of(hits, "hits"), flag_of(numeric, "numeric"), flag_of(monotone, "monotone")
    if monotone and terms.adjacency == "replace":
        raise InvalidParameterError(
            "monotone=True needs answers that all rise or all fall together. In a 'replace' session one unit leaves "
            "and another one enters, so some answers may rise while others fall. Leave it out, or open an 'add_remove' "
            "session."
        )
    if not unit:
        max_rows, max_rows_rule = 1, "every row is a unit"
    elif max_rows is None and of == "rows":
        raise InvalidParameterError(
            "A stream of rows needs a cap on the rows of one unit, because the noise depends on it. Say "
            "max_rows_per_group=10 (here or in the session), or count units instead of rows with of='units'.",
            code="row-cap-missing",
        )
    epsilon, cost = pure_spend(terms, spend, "a stream")
    scales = sparse_scales(
        epsilon / terms.group_size, hits, delta=None, monotone=monotone, constants="lyu-su-li", numeric=numeric
    )
    noise_grid(scales, SENSITIVITY)  # raises an error if the noise would be too wide
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
        spend=spend,
        cost=cost,
        scales=scales,
    )


def shown(number: Fraction) -> str:
    """Return a number as people write it: exactly if it is whole."""
    return f"{number.numerator:,}" if number.denominator == 1 else f"{float(number):.12g}"
