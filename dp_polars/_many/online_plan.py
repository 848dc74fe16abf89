"""The plan of online queries: private multiplicative weights (Hardt and Rothblum 2010). It never sees data.

The protected change of t units moves the number of kept rows in any set of cells by at most max_rows * t (see
`histogram`). The distance of that number from a public one moves by no more. So all parts have the same sensitivity:

- the number of kept rows, with discrete Laplace noise, costs `size_epsilon`;
- one sparse vector with `max_updates` hits (Lyu, Su, Li 2017, not monotone) is asked whether the exact answer is
  further than alpha * n from the hypothesis, and costs `test_epsilon` as a whole;
- at each hit, the exact answer with discrete Laplace noise costs `value_epsilon` / max_updates.

The threshold, the hypothesis and the questions depend on what was released before, so the epsilons add up (adaptive
composition of the sparse vector with the values, as in Lyu, Su, Li 2017, theorem 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dp_polars._display.text import amount
from dp_polars._many.domain import Domain
from dp_polars._plan.base import USUALLY, Facts, FramePlan, pure_spend
from dp_polars._plan.query import Spend
from dp_polars._sampling.noise import MAX_SCALE
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.sparse_vector import SparseScales, sparse_error, sparse_scales

_SIZE_PART = Fraction(1, 20)
_VALUE_PART = Fraction(1, 4)  # for about a thousand questions, values then err as much as comparisons
_MOST_UPDATES = 10**6


@dataclass(frozen=True, kw_only=True, repr=False)
class OnlinePlan(FramePlan):
    """What online queries will do and cost. Prints as a table; `preview` makes it and spends nothing.

    Attributes
    ----------
    domain
        The columns that questions are about, and their public values.
    alpha
        How far off the hypothesis may be, as a fraction of all rows, before an answer is measured.
    max_updates
        How many answers are measured at most.
    max_rows, max_rows_rule
        The most rows of one unit that count, and where this cap came from.
    epsilon
        The epsilon of everything together.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> people = dp.private(pl.DataFrame({"member": [True, False]}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> plan = people.preview.online_queries(["member"], alpha=0.1, max_updates=10, epsilon=0.5)
    >>> plan.max_updates, round(plan.margin(1_000))
    (10, 839)
    """

    question: ClassVar[str] = "online_queries"

    domain: Domain
    alpha: Fraction
    max_updates: int
    max_rows: int
    max_rows_rule: str
    epsilon: Fraction

    @property
    def sensitivity(self) -> int:
        """The most by which one protected change moves the number of rows in a set of cells."""
        return self.max_rows * self.terms.group_size

    @property
    def size_epsilon(self) -> Fraction:
        """The epsilon of the noisy number of rows."""
        return self.epsilon * _SIZE_PART

    @property
    def value_epsilon(self) -> Fraction:
        """The epsilon of the values of all updates together."""
        return self.epsilon * _VALUE_PART

    @property
    def test_epsilon(self) -> Fraction:
        """The epsilon of all comparisons together."""
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
        """The noise scales of the comparisons, for a sensitivity of 1."""
        return sparse_scales(
            self.test_epsilon, self.max_updates, delta=None, monotone=False, constants="lyu-su-li", numeric=False
        )

    def margin(self, questions: int, confidence: float = 0.95) -> float:
        """Return by how many rows beyond alpha * n an answer may be off, for this many questions together."""
        each = 1 - (1 - confidence) / 2
        compared = sparse_error(
            answers=questions,
            hits=self.max_updates,
            sensitivity=self.sensitivity,
            epsilon=self.test_epsilon,
            confidence=each,
        ).margin
        return max(compared + 1, float(self.value_scale) * math.log(self.max_updates / (1 - each)))

    def title(self) -> str:
        """Return what is opened, in a few words."""
        return f"online queries over {self.domain.title()}"

    def summary(self) -> str:
        """Return what is opened, for the ledger."""
        return f"online queries over {', '.join(self.domain.names)}"

    def noise_in_short(self) -> str:
        """Return what hides a unit in the answers, in a few words."""
        return f"private multiplicative weights over {self.domain.size:,} cells, with Laplace noise"

    def error_in_short(self) -> str:
        """Return how far off the answers to a thousand questions may be."""
        return f"1,000 answers within {float(self.alpha):g} * n + {amount(self.margin(1_000))} rows, {USUALLY}"

    def facts(self) -> Facts:
        """Return the rows about the domain, the updates and the noise."""
        reach = self.sensitivity
        return [
            ("rows per unit", f"{self.max_rows} ({self.max_rows_rule})"),
            ("domain", f"{self.domain.size:,} cells"),
            ("updates", f"at most {self.max_updates:,}; after that, answers are no longer checked"),
            ("sensitivity", f"{reach} for every count"),
            ("noise on the number of rows", f"discrete Laplace, scale {float(self.size_scale):.6g}"),
            (
                "noise on comparisons",
                f"discrete Laplace, scale {float(self.scales.query * reach):.6g}, "
                f"on the threshold {float(self.scales.threshold * reach):.6g}",
            ),
            ("noise on updates", f"discrete Laplace, scale {float(self.value_scale):.6g}"),
        ]

    def accuracy(self) -> Facts:
        """Return the expected error of many checked answers."""
        return [
            (
                "expected error",
                f"all of 1,000 checked answers within {float(self.alpha):g} * n + {self.margin(1_000):.4g} rows in "
                "95 % of cases (privacy noise, not what caps cut off)",
            )
        ]


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
    """Return the plan of online queries. `max_updates` defaults to the usual number or, if that is less, the bound."""
    updates = min(most_updates(domain, alpha), usual_updates(domain)) if max_updates is None else max_updates
    if updates > _MOST_UPDATES:
        raise InvalidParameterError(
            f"alpha={float(alpha):g} would need up to {updates:,} updates, and the noise grows with them; use a larger "
            "alpha, or say max_updates=."
        )
    epsilon, cost = pure_spend(terms, spend, "online queries")
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
        spend=spend,
        cost=cost,
    )
    widest = max(plan.scales.query * plan.sensitivity, plan.value_scale, plan.size_scale)
    if widest > MAX_SCALE:
        raise InvalidParameterError("The noise would not fit 64 bits: use a larger epsilon or fewer updates.")
    return plan


def most_updates(domain: Domain, alpha: Fraction) -> int:
    """Return the bound on updates with a gap of alpha: ln(cells) / (3/2 alpha**2), see `Hypothesis.learn`."""
    return max(1, math.ceil(math.log(domain.size) / (1.5 * float(alpha) ** 2)))


def usual_updates(domain: Domain) -> int:
    """Return how many updates are usually enough. Real data are far from the worst case, and more updates add noise."""
    return 10 + math.ceil(4 * math.log(domain.size))
