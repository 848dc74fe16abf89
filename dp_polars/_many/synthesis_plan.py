"""The plan of synthetic rows: MWEM, or the small database where it is feasible. It never sees data.

How t units change what is measured, with r = max_rows * t:

- The number of rows in any set of cells moves by at most r (see `histogram`).
- The counts of a partition of the cells move by at most r in the L1 norm and r**2 in the squared L2 norm if units are
  added or removed. If they are replaced, r rows leave and r others enter: 2r and 2 r**2. (Both changes are
  non-negative, so their product only lowers the norm.)
- MWEM's score of a partition is the L1 distance of its counts from public whole numbers, minus a public penalty. It
  moves by at most as much as the counts do, up for some partitions and down for others (it is not monotone).
- The small database's score is -max |m f(D) - n f(candidate)| over all counts f, with m elements and the noisy n. It
  moves by at most m r.

The parts of the spend add up in epsilon or in rho, whichever gives less noise (`spend.allot`).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import ClassVar, Literal

from dp_polars._many.domain import Domain
from dp_polars._plan.base import Facts, FramePlan, StoredPlan
from dp_polars._plan.query import Spend
from dp_polars._plan.sensitivity import Sensitivity
from dp_polars._plan.spend import Allowance, Granted, Noise, Wanted, allot, allowances_of, no_option
from dp_polars._session.cost import NOTHING, Cost
from dp_polars._session.prices import check_price
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms._multiplicative_weights import Partition
from dp_polars.mechanisms._small_database import number_of_multisets

Method = Literal["mwem", "small_database"]

MAX_CANDIDATES = 10**7
_MOST_ROUNDS = 50
_LEAST_ROUNDS = 3
_ALWAYS = 15  # how many rounds are possible however large the domain is
_WORK = 2_000_000_000  # how many cells all choices together may look at
# The parts of the spend, and how noisy a measurement may be. They were tuned on the flights from New York (see tests).
_SIZE_PART, _START_PART, _CHOICE_PART = Fraction(1, 25), Fraction(1, 5), Fraction(3, 20)
_SMALL_SIZE_PART = Fraction(1, 20)
_TOLERATED = 0.15


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The noise of MWEM's measurements: first the single columns, then a chosen partition in each round.

    If there are as many rounds as partitions, every partition is measured and `choice` is None.
    """

    start: tuple[Noise, ...]
    choice: Fraction | None
    rounds: tuple[Noise, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class SynthesisPlan(FramePlan, StoredPlan):
    """What a synthesis will do and cost. Prints as a table; `preview` makes it and spends nothing.

    Attributes
    ----------
    spend, allowance
        What the user wants to spend, and what that is in the measure with less noise.
    domain
        The columns of the synthetic rows, and their public values.
    method, rounds, alpha
        The arguments of `synthesize`.
    workload, queries
        The partitions whose counts should be close, and the conditions that they stand for (None: pairs of columns).
    max_rows, max_rows_rule
        The most rows of one unit that count, and where this cap came from.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> people = dp.private(pl.DataFrame({"member": [True, False]}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> people.preview.synthesize(["member"], epsilon=0.5).cost
    <dp.Cost epsilon 0.5, rho 0.122459>
    """

    question: ClassVar[str] = "synthesize"

    spend: Spend
    domain: Domain
    method: Method
    workload: tuple[Partition, ...]
    queries: tuple[str, ...] | None
    rounds: int | None
    alpha: Fraction | None
    max_rows: int
    max_rows_rule: str
    allowance: Allowance

    @property
    def most_rounds(self) -> int:
        """The most rounds that are made if the user doesn't give a number."""
        if self.method == "small_database":
            return 1
        work = _WORK // (self.domain.size * len(self.workload))
        return min(len(self.workload), _MOST_ROUNDS, max(work, _ALWAYS))

    @property
    def reach(self) -> int:
        """The most by which one protected change moves the number of rows in a set of cells."""
        return self.max_rows * self.terms.group_size

    @property
    def sensitivity(self) -> Sensitivity:
        """The most by which one protected change moves the counts of a partition."""
        changes = 1 if self.terms.adjacency == "add_remove" else 2
        return Sensitivity(l1=changes * self.reach, l2_squared=changes * self.reach**2, each=self.reach)

    @cached_property
    def start(self) -> tuple[Partition, ...]:
        """The partitions that MWEM measures first: each single column, unless the user gave queries."""
        if self.queries is not None or len(self.domain.dims) == 1:
            return ()
        return tuple(Partition((axis,), (length,)) for axis, length in enumerate(self.domain.dims))

    @property
    def elements(self) -> int:
        """The number of rows of a small database: ln|Q| / alpha**2 (Blum, Ligett, Roth 2008)."""
        counts = len(self.workload) if self.queries is not None else sum(partition.cells for partition in self.workload)
        return max(1, math.ceil(math.log(max(counts, 2)) / float(self.alpha or 1) ** 2))

    def wanted(self, rounds: int) -> list[Wanted]:
        """Return the parts of the spend, the number of rows first. Their weights sum to 1."""
        size = Sensitivity(l1=self.reach, l2_squared=self.reach**2, each=self.reach)
        if self.method == "small_database":
            return [
                Wanted(weight=_SMALL_SIZE_PART, sensitivity=size),
                Wanted(weight=1 - _SMALL_SIZE_PART),
            ]
        parts, rest = [Wanted(weight=_SIZE_PART, sensitivity=size)], 1 - _SIZE_PART
        if rounds >= len(self.workload):  # every partition is measured
            each = Wanted(weight=rest / len(self.workload), sensitivity=self.sensitivity)
            return parts + [each] * len(self.workload)
        if self.start:
            parts += [Wanted(weight=_START_PART / len(self.start), sensitivity=self.sensitivity)] * len(self.start)
            rest -= _START_PART
        times = Fraction(rounds)
        parts.append(Wanted(weight=rest * _CHOICE_PART, prices=(times, times)))
        measured = Wanted(weight=rest * (1 - _CHOICE_PART) / rounds, sensitivity=self.sensitivity)
        return parts + [measured] * rounds

    def granted(self, rounds: int) -> list[Granted]:
        """Return what each part of `wanted` gets."""
        return allot(self.terms, self.spend, self.wanted(rounds), self.allowance)[0]

    @cached_property
    def size_noise(self) -> Noise:
        """The noise on the number of rows. It doesn't depend on the number of rounds."""
        return _noise(self.granted(1)[0])

    def rounds_for(self, size: int) -> int:
        """Return as many rounds as a noisy number of rows allows before noise drowns the measurements."""
        if self.rounds is not None:
            return self.rounds
        cells = sum(partition.cells for partition in self.workload) / len(self.workload)
        low, high = min(_LEAST_ROUNDS, self.most_rounds), self.most_rounds
        while low < high:
            middle = (low + high + 1) // 2
            drowned = mean_error(_noise(self.granted(middle)[-1])) * cells > _TOLERATED * size
            low, high = (low, middle - 1) if drowned else (middle, high)
        return low

    def schedule(self, size: int) -> Schedule:
        """Return MWEM's schedule for a noisy number of rows."""
        rounds = self.rounds_for(size)
        granted = self.granted(rounds)[1:]
        if rounds >= len(self.workload):
            return Schedule(start=(), choice=None, rounds=tuple(_noise(part) for part in granted))
        begin = len(self.start)
        return Schedule(
            start=tuple(_noise(part) for part in granted[:begin]),
            choice=granted[begin].epsilon,
            rounds=tuple(_noise(part) for part in granted[begin + 1 :]),
        )

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal syntheses, in every process."""
        plain = {
            "question": "synthesize",
            "domain": self.domain.fingerprint(),
            "method": self.method,
            "queries": self.queries,
            "rounds": self.rounds,
            "alpha": str(self.alpha),
            "max_rows": self.max_rows,
            "unit": self.unit,
            "steps": self.steps,
            "spend": asdict(self.spend),
        }
        return json.dumps(plain, sort_keys=True, default=str).encode()

    def title(self) -> str:
        """Return what is made, in a few words."""
        return f"synthetic rows of {self.domain.title()}"

    def summary(self) -> str:
        """Return what is made, for the ledger."""
        return f"synthetic rows of {', '.join(self.domain.names)}"

    def noise_in_short(self) -> str:
        """Return how the rows are made, in a few words."""
        if self.method == "small_database":
            return f"a small database of {self.elements:,} rows, chosen by the exponential mechanism"
        return f"MWEM over {self.domain.size:,} cells, with noisy counts of what fits worst"

    def facts(self) -> Facts:
        """Return the rows about the domain, the method and the noise."""
        rows = [
            ("rows per unit", f"{self.max_rows} ({self.max_rows_rule})"),
            ("domain", f"{self.domain.size:,} cells"),
            ("noise on the number of rows", _noise_text(self.size_noise)),
        ]
        if self.method == "small_database":
            epsilon, moved = self.granted(1)[1].epsilon, self.elements * self.reach
            return [
                *rows,
                ("method", f"small database of {self.elements} rows, chosen among {candidates(self):,}"),
                ("choice", f"exponential mechanism, epsilon {float(epsilon):.6g}, sensitivity {moved}"),
            ]
        pairs = "pair of columns" if len(self.domain.dims) > 1 else "column"
        what = _plural(len(self.workload), pairs if self.queries is None else "condition")
        most, sensitivity = self.most_rounds, self.sensitivity
        chosen = f"{self.rounds}" if self.rounds is not None else f"up to {most}, by the noisy number of rows"
        usual = min(self.rounds if self.rounds is not None else most, len(self.workload))
        return [
            *rows,
            ("method", f"MWEM over {what}"),
            ("rounds", chosen),
            ("sensitivity", f"L1 {sensitivity.l1}, L2 {math.sqrt(sensitivity.l2_squared):.6g} for each of them"),
            ("noise on each", f"{_noise_text(_noise(self.granted(usual)[-1]))} in {_plural(usual, 'round')}"),
        ]


def synthesis_plan(
    terms: Terms,
    spend: Spend,
    *,
    domain: Domain,
    method: Method,
    queries: tuple[tuple[Partition, ...], tuple[str, ...]] | None,
    rounds: int | None,
    alpha: Fraction | None,
    max_rows: tuple[int, str],
    unit: tuple[str, ...],
    steps: tuple[str, ...],
    unchecked: bool,
) -> SynthesisPlan:
    """Return the plan in the measure with less noise, or raise an error that says why there is none."""
    best: tuple[float, SynthesisPlan] | None = None
    for allowance in allowances_of(terms, spend):
        plan = SynthesisPlan(
            terms=terms,
            cost=allowance.cost,
            spend=spend,
            unit=unit,
            steps=steps,
            unchecked=unchecked,
            domain=domain,
            method=method,
            workload=marginals(domain) if queries is None else queries[0],
            queries=None if queries is None else queries[1],
            rounds=rounds,
            alpha=alpha,
            max_rows=max_rows[0],
            max_rows_rule=max_rows[1],
            allowance=allowance,
        )
        if method == "small_database":
            _check_candidates(plan)
        usual = min(10, len(plan.workload)) if rounds is None else rounds
        try:
            granted, wanted = plan.granted(usual), plan.wanted(usual)
            if rounds is None:
                plan.granted(plan.most_rounds)  # the number of rounds is not known yet, so the largest must work too
        except InvalidParameterError:
            continue
        size = sum(float(wish.weight) * math.log(bought.size) for bought, wish in zip(granted, wanted, strict=True))
        if best is None or size < best[0]:
            best = size, plan
    if best is None:
        raise no_option(terms, spend)
    plan = replace(best[1], cost=_price(best[1]))
    check_price(terms, plan.cost)
    return plan


def _price(plan: SynthesisPlan) -> Cost:
    """Return the price of all parts together, whatever the number of rounds turns out to be.

    In epsilon, the parts sum to the whole. In rho, their sum may be far less than the price of a pure release with that
    epsilon. The number of rounds follows from the noisy number of rows, so the most expensive number counts.
    """
    if plan.allowance.measure != "pure" or plan.terms.measure == "pure":
        return plan.allowance.cost
    possible = [plan.rounds] if plan.rounds is not None else range(1, plan.most_rounds + 1)
    sums = [sum((part.cost for part in plan.granted(rounds)), NOTHING) for rounds in possible]
    return Cost(epsilon=plan.allowance.amount, rho=max(total.rho for total in sums))


def marginals(domain: Domain) -> tuple[Partition, ...]:
    """Return the default workload: every pair of columns, or the only column."""
    axes = combinations(range(len(domain.dims)), min(2, len(domain.dims)))
    return tuple(Partition(pair, tuple(domain.dims[axis] for axis in pair)) for pair in axes)


def candidates(plan: SynthesisPlan) -> int:
    """Return the number of possible small databases."""
    return number_of_multisets(plan.domain.size, plan.elements)


def _check_candidates(plan: SynthesisPlan) -> None:
    elements, size = plan.elements, plan.domain.size
    if elements >= MAX_CANDIDATES:
        raise InvalidParameterError(
            f"This alpha needs databases of {elements:,} rows, and there are more than {MAX_CANDIDATES:,} of them: use "
            "a larger alpha, or method='mwem'."
        )
    digits = (math.lgamma(size + elements) - math.lgamma(elements + 1) - math.lgamma(size)) / math.log(10)
    if digits > 9 or candidates(plan) > MAX_CANDIDATES:
        number = f"about 1e{digits:.0f}" if digits > 9 else f"{candidates(plan):,}"
        raise InvalidParameterError(
            f"There are {number} databases of {elements:,} rows over {size:,} cells, more than {MAX_CANDIDATES:,}: "
            "use a larger alpha, fewer columns, or method='mwem'."
        )


def _noise(granted: Granted) -> Noise:
    if granted.noise is None:
        raise ValueError("a choice has no noise")
    return granted.noise


def mean_error(noise: Noise) -> float:
    """Return the mean absolute error of a noisy number."""
    return float(noise.parameter) if noise.mechanism == "laplace" else math.sqrt(2 * noise.parameter / math.pi)


def _noise_text(noise: Noise) -> str:
    if noise.mechanism == "laplace":
        return f"discrete Laplace, scale {float(noise.parameter):.6g}"
    return f"discrete Gaussian, sigma {math.sqrt(noise.parameter):.6g}"


def _plural(number: int, what: str) -> str:
    """Return a number and what it counts, as in "1 round" and "2 pairs of columns"."""
    first, *rest = what.split(" ")
    return " ".join([f"{number:,}", first if number == 1 else f"{first}s", *rest])
