"""What answering many questions over a domain will do and cost: private multiplicative weights, split up front.

What one unit can change: it keeps at most `max_rows` rows, each in one cell. Added or removed, t units move the number
of kept rows in any set of cells by at most max_rows * t. Replaced: a unit's rows in the set, at most max_rows and at
least 0 of them, become another number from 0 to max_rows; so t units move it by at most max_rows * t as well. The
distance of that number from a public one moves by no more. So all parts have the same sensitivity:

- the number of kept rows, with discrete Laplace noise, `size_epsilon`;
- one sparse vector (Lyu, Su, Li 2017, not monotone) of `max_updates` hits, asked whether the exact answer is further
  than alpha * n from the hypothesis', `test_epsilon` for the whole stream;
- at each hit the exact answer with discrete Laplace noise, `value_epsilon` / max_updates each.

The threshold, the hypothesis and the questions depend on what was released before, so the epsilons add up (adaptive
composition of the sparse vector's stream with the values, as in Lyu, Su, Li 2017, theorem 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dp_polars._display.fact_table import AsTable
from dp_polars._many.domain import Domain
from dp_polars._plan.description import price_text, protected_text, steps_text, unit_text
from dp_polars._plan.pure_spend import pure_opening
from dp_polars._plan.query import Spend
from dp_polars._sampling.noise import MAX_SCALE
from dp_polars._session.cost import Cost
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.sparse_vector import SparseScales, sparse_error, sparse_scales

_SIZE_PART = Fraction(1, 20)
_VALUE_PART = Fraction(1, 4)  # values then err like comparisons, for about a thousand questions
_MOST_UPDATES = 10**6


@dataclass(frozen=True, kw_only=True, repr=False)
class OnlinePlan(AsTable):
    """What an object that answers many questions will do and cost. Prints as a table.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> people = dp.private(pl.DataFrame({"member": [True, False]}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> plan = people.preview.online_queries(["member"], alpha=0.1, max_updates=10, epsilon=0.5)
    >>> plan.max_updates, round(plan.margin(1_000))
    (10, 839)
    """

    terms: Terms
    unit: tuple[str, ...]
    steps: tuple[str, ...]
    unchecked: bool
    domain: Domain
    alpha: Fraction
    max_updates: int
    max_rows: int
    max_rows_rule: str
    epsilon: Fraction
    cost: Cost

    @property
    def sensitivity(self) -> int:
        """How far one protected change moves the number of rows in a set of cells."""
        return self.max_rows * self.terms.group_size

    @property
    def size_epsilon(self) -> Fraction:
        """What the number of rows costs."""
        return self.epsilon * _SIZE_PART

    @property
    def value_epsilon(self) -> Fraction:
        """What the values of all updates cost together."""
        return self.epsilon * _VALUE_PART

    @property
    def test_epsilon(self) -> Fraction:
        """What all comparisons cost together."""
        return self.epsilon - self.size_epsilon - self.value_epsilon

    @property
    def size_scale(self) -> Fraction:
        """The scale of the noise on the number of rows."""
        return self.sensitivity / self.size_epsilon

    @property
    def value_scale(self) -> Fraction:
        """The scale of the noise on the answer of an update."""
        return self.sensitivity * self.max_updates / self.value_epsilon

    @property
    def scales(self) -> SparseScales:
        """The scales of the comparisons, for a sensitivity of 1."""
        return sparse_scales(
            self.test_epsilon, self.max_updates, delta=None, monotone=False, constants="lyu-su-li", numeric=False
        )

    def margin(self, questions: int, confidence: float = 0.95) -> float:
        """Return how far beyond alpha * n an answer may be off, in rows, for so many questions at once."""
        each = 1 - (1 - confidence) / 2
        compared = sparse_error(
            answers=questions,
            hits=self.max_updates,
            sensitivity=self.sensitivity,
            epsilon=self.test_epsilon,
            confidence=each,
        ).margin
        return max(compared + 1, float(self.value_scale) * math.log(self.max_updates / (1 - each)))

    def label(self) -> str:
        """Return a short public description for the ledger."""
        return f"online queries over {', '.join(self.domain.names)}, {unit_text(self.terms, self.unit)}"

    def rows(self) -> list[tuple[str, str]]:
        """Return what it says of itself, as names and texts."""
        return _rows(self)


def online_plan(
    terms: Terms,
    spend: Spend,
    *,
    domain: Domain,
    alpha: Fraction,
    max_updates: int | None,
    max_rows: tuple[int, str],
    unit: tuple[str, ...],
    steps: tuple[str, ...],
    unchecked: bool,
) -> OnlinePlan:
    """Return the plan of an object that answers many questions; without `max_updates` the bound that theory gives."""
    updates = min(most_updates(domain, alpha), usual_updates(domain)) if max_updates is None else max_updates
    if updates > _MOST_UPDATES:
        raise InvalidParameterError(
            f"alpha={float(alpha):g} would need up to {updates:,} updates, and the noise grows with them; use a larger "
            "alpha, or say max_updates=."
        )
    epsilon, cost = pure_opening(terms, spend, "online queries")
    plan = OnlinePlan(
        terms=terms,
        unit=unit,
        steps=steps,
        unchecked=unchecked,
        domain=domain,
        alpha=alpha,
        max_updates=updates,
        max_rows=max_rows[0],
        max_rows_rule=max_rows[1],
        epsilon=epsilon,
        cost=cost,
    )
    widest = max(plan.scales.query * plan.sensitivity, plan.value_scale, plan.size_scale)
    if widest > MAX_SCALE:
        raise InvalidParameterError("The noise would not fit 64 bits: use a larger epsilon or fewer updates.")
    return plan


def most_updates(domain: Domain, alpha: Fraction) -> int:
    """Return how many updates with a gap of alpha there can be: ln|X| / (3/2 alpha**2); see `Hypothesis.learn`."""
    return max(1, math.ceil(math.log(domain.size) / (1.5 * float(alpha) ** 2)))


def usual_updates(domain: Domain) -> int:
    """Return how many updates are usually enough: real data are far from the worst case, and noise grows with them."""
    return 10 + math.ceil(4 * math.log(domain.size))


def _rows(plan: OnlinePlan) -> list[tuple[str, str]]:
    reach, alpha = plan.sensitivity, float(plan.alpha)
    rows = [
        ("query", f"online queries over {plan.domain.title()}{steps_text(plan.steps)}"),
        ("protects", protected_text(plan.terms, plan.unit)),
        ("rows per unit", f"{plan.max_rows} ({plan.max_rows_rule})"),
        ("domain", f"{plan.domain.size:,} cells"),
        ("updates", f"at most {plan.max_updates:,}; afterwards answers are not checked any more"),
        ("sensitivity", f"{reach} for every count"),
        ("noise on the number of rows", f"discrete Laplace, scale {float(plan.size_scale):.6g}"),
        (
            "noise on comparisons",
            f"discrete Laplace, scale {float(plan.scales.query * reach):.6g}, "
            f"on the threshold {float(plan.scales.threshold * reach):.6g}",
        ),
        ("noise on updates", f"discrete Laplace, scale {float(plan.value_scale):.6g}"),
        ("price", price_text(plan.terms, plan.cost)),
        (
            "expected error",
            f"all of 1,000 checked answers within {alpha:g} * n + {plan.margin(1_000):.4g} rows in 95 % of cases "
            "(privacy noise, not what caps cut off)",
        ),
    ]
    if plan.unchecked:
        rows.append(("unchecked", "a step was not checked; the guarantee rests on the user's word"))
    return rows
