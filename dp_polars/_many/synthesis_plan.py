"""What making synthetic rows will do and cost: MWEM, or the small database where it is feasible.

What one unit can change: it keeps at most `max_rows` rows, each in one cell. With r = max_rows * t for t units:

- the number of rows in any set of cells moves by at most r, added or removed or replaced (see `planning/online.py`);
- the counts of a partition of the cells move by at most r in the first norm and r**2 in the second squared; replaced,
  r rows leave and r others enter: 2r, and 2 r**2 (the two changes are non-negative, so their product only helps);
- MWEM's score of a partition is the distance in the first norm of its counts from public whole numbers, less a public
  penalty: it moves by at most as much as the counts do, up for some partitions and down for others (not monotone);
- the small database's score is -max |m f(D) - n f(candidate)| over all counts f, with the noisy n: m r.

The parts of a spend add up in epsilon or in rho, whichever buys less noise (`spend.allot`).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Literal

from dp_polars._display.fact_table import AsTable
from dp_polars._many.domain import Domain
from dp_polars._plan.description import price_text, protected_text, steps_text, unit_text
from dp_polars._plan.query import Spend
from dp_polars._plan.sensitivity import Sensitivity
from dp_polars._plan.spend import Allowance, Granted, Noise, Wanted, allot, allowances_of, no_option
from dp_polars._session.cost import NOTHING, Cost
from dp_polars._session.minimum_price import check_price
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms._multiplicative_weights import Partition
from dp_polars.mechanisms._small_database import number_of_multisets

Method = Literal["mwem", "small_database"]

MAX_CANDIDATES = 10**7
_MOST_ROUNDS = 50
_LEAST_ROUNDS = 3
_ALWAYS = 15  # rounds that are done however large the domain
_WORK = 2_000_000_000  # cells that all choices may look at
# Parts of the spend, and how noisy a measurement may be: measured on the flights from New York, see the tests.
_SIZE_PART, _START_PART, _CHOICE_PART = Fraction(1, 25), Fraction(1, 5), Fraction(3, 20)
_SMALL_SIZE_PART = Fraction(1, 20)
_TOLERATED = 0.15


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What MWEM measures: the columns alone first, then in each round a chosen partition; without choices, each."""

    start: tuple[Noise, ...]
    choice: Fraction | None
    rounds: tuple[Noise, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class SynthesisPlan(AsTable):
    """What making synthetic rows will do and cost. Prints as a table.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> people = dp.private(pl.DataFrame({"member": [True, False]}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> people.preview.synthesize(["member"], epsilon=0.5).cost
    <dp.Cost epsilon 0.5, rho 0.122459>
    """

    terms: Terms
    spend: Spend
    unit: tuple[str, ...]
    steps: tuple[str, ...]
    unchecked: bool
    domain: Domain
    method: Method
    workload: tuple[Partition, ...]
    queries: tuple[str, ...] | None
    rounds: int | None
    alpha: Fraction | None
    max_rows: int
    max_rows_rule: str
    allowance: Allowance

    @cached_property
    def cost(self) -> Cost:
        """The price of all parts together, whatever the number of rounds turns out to be.

        In epsilon the parts sum to the whole; what they sum to in rho may be far less than a pure release of that
        epsilon costs. The number of rounds follows from the noisy number of rows: the dearest counts.
        """
        if self.allowance.measure != "pure" or self.terms.measure == "pure":
            return self.allowance.cost
        possible = [self.rounds] if self.rounds is not None else range(1, self.most_rounds + 1)
        sums = [sum((one.cost for one in self.granted(rounds)), NOTHING) for rounds in possible]
        return Cost(epsilon=self.allowance.amount, rho=max(total.rho for total in sums))

    @property
    def most_rounds(self) -> int:
        """How many rounds there are at most, if the user doesn't say."""
        if self.method == "small_database":
            return 1
        work = _WORK // (self.domain.size * len(self.workload))
        return min(len(self.workload), _MOST_ROUNDS, max(work, _ALWAYS))

    @property
    def reach(self) -> int:
        """How far one protected change moves the number of rows in a set of cells."""
        return self.max_rows * self.terms.group_size

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one protected change moves the counts of a partition."""
        changes = 1 if self.terms.adjacency == "add_remove" else 2
        return Sensitivity(l1=changes * self.reach, l2_squared=changes * self.reach**2, each=self.reach)

    @cached_property
    def start(self) -> tuple[Partition, ...]:
        """What MWEM measures first: each column alone, unless the user said what counts."""
        if self.queries is not None or len(self.domain.dims) == 1:
            return ()
        return tuple(Partition((axis,), (length,)) for axis, length in enumerate(self.domain.dims))

    @property
    def elements(self) -> int:
        """How many rows a small database has: ln|Q| / alpha**2 (Blum, Ligett, Roth 2008)."""
        counts = len(self.workload) if self.queries is not None else sum(one.cells for one in self.workload)
        return max(1, math.ceil(math.log(max(counts, 2)) / float(self.alpha or 1) ** 2))

    def wanted(self, rounds: int) -> list[Wanted]:
        """Return what the spend is split among, the number of rows first; the weights sum to 1."""
        size = Sensitivity(l1=self.reach, l2_squared=self.reach**2, each=self.reach)
        if self.method == "small_database":
            return [
                Wanted(weight=_SMALL_SIZE_PART, sensitivity=size),
                Wanted(weight=1 - _SMALL_SIZE_PART),
            ]
        parts, rest = [Wanted(weight=_SIZE_PART, sensitivity=size)], 1 - _SIZE_PART
        if rounds >= len(self.workload):  # nothing to choose
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
        """Return what each part of `wanted` bought."""
        return allot(self.terms, self.spend, self.wanted(rounds), self.allowance)[0]

    @cached_property
    def size_noise(self) -> Noise:
        """The noise on the number of rows; it doesn't depend on the rounds."""
        return _noise(self.granted(1)[0])

    def rounds_for(self, size: int) -> int:
        """Return how many rounds a noisy number of rows allows: so many that a measurement is not drowned in noise."""
        if self.rounds is not None:
            return self.rounds
        cells = sum(one.cells for one in self.workload) / len(self.workload)
        low, high = min(_LEAST_ROUNDS, self.most_rounds), self.most_rounds
        while low < high:
            middle = (low + high + 1) // 2
            drowned = mean_error(_noise(self.granted(middle)[-1])) * cells > _TOLERATED * size
            low, high = (low, middle - 1) if drowned else (middle, high)
        return low

    def schedule(self, size: int) -> Schedule:
        """Return MWEM's measurements and choices for a noisy number of rows."""
        rounds = self.rounds_for(size)
        granted = self.granted(rounds)[1:]
        if rounds >= len(self.workload):
            return Schedule(start=(), choice=None, rounds=tuple(_noise(one) for one in granted))
        begin = len(self.start)
        return Schedule(
            start=tuple(_noise(one) for one in granted[:begin]),
            choice=granted[begin].epsilon,
            rounds=tuple(_noise(one) for one in granted[begin + 1 :]),
        )

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal questions, in every process."""
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

    def label(self) -> str:
        """Return a short public description for the ledger."""
        return f"synthetic rows of {', '.join(self.domain.names)}, {unit_text(self.terms, self.unit)}"

    def rows(self) -> list[tuple[str, str]]:
        """Return what it says of itself, as names and texts."""
        return _rows(self)


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
    """Return the plan in the measure that buys less noise, or say why there is none."""
    best: tuple[float, SynthesisPlan] | None = None
    for allowance in allowances_of(terms, spend):
        plan = SynthesisPlan(
            terms=terms,
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
                plan.granted(plan.most_rounds)  # whatever the number of rows will be
        except InvalidParameterError:
            continue
        size = sum(float(own.weight) * math.log(one.size) for one, own in zip(granted, wanted, strict=True))
        if best is None or size < best[0]:
            best = size, plan
    if best is None:
        raise no_option(terms, spend)
    check_price(terms, best[1].cost)
    return best[1]


def marginals(domain: Domain) -> tuple[Partition, ...]:
    """Return the usual workload: every pair of columns (which has each column too), or the only column."""
    axes = combinations(range(len(domain.dims)), min(2, len(domain.dims)))
    return tuple(Partition(pair, tuple(domain.dims[axis] for axis in pair)) for pair in axes)


def candidates(plan: SynthesisPlan) -> int:
    """Return how many small databases there are."""
    return number_of_multisets(plan.domain.size, plan.elements)


def _check_candidates(plan: SynthesisPlan) -> None:
    elements, size = plan.elements, plan.domain.size
    if elements >= MAX_CANDIDATES:
        raise InvalidParameterError(
            f"This alpha needs databases of {elements:,} rows, of which there are more than {MAX_CANDIDATES:,}: use a "
            "larger alpha, or method='mwem'."
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
    """Return the mean distance of a noisy number from the true one."""
    return float(noise.parameter) if noise.mechanism == "laplace" else math.sqrt(2 * noise.parameter / math.pi)


def _rows(plan: SynthesisPlan) -> list[tuple[str, str]]:
    sensitivity = plan.sensitivity
    rows = [
        ("query", f"synthetic rows of {plan.domain.title()}{steps_text(plan.steps)}"),
        ("protects", protected_text(plan.terms, plan.unit)),
        ("rows per unit", f"{plan.max_rows} ({plan.max_rows_rule})"),
        ("domain", f"{plan.domain.size:,} cells"),
        ("noise on the number of rows", _noise_text(plan.size_noise)),
    ]
    if plan.method == "small_database":
        epsilon, moved = plan.granted(1)[1].epsilon, plan.elements * plan.reach
        rows += [
            ("method", f"small database of {plan.elements} rows, chosen among {candidates(plan):,}"),
            ("choice", f"exponential mechanism, epsilon {float(epsilon):.6g}, sensitivity {moved}"),
        ]
    else:
        what = "pairs of columns" if plan.queries is None else "conditions"
        most = plan.most_rounds
        chosen = f"{plan.rounds}" if plan.rounds is not None else f"up to {most}, by the noisy number of rows"
        usual = min(plan.rounds if plan.rounds is not None else most, len(plan.workload))
        rows += [
            ("method", f"MWEM over {len(plan.workload):,} {what}"),
            ("rounds", chosen),
            ("sensitivity", f"L1 {sensitivity.l1}, L2 {math.sqrt(sensitivity.l2_squared):.6g} for each of them"),
            ("noise on each", f"{_noise_text(_noise(plan.granted(usual)[-1]))} in {usual} rounds"),
        ]
    rows.append(("price", price_text(plan.terms, plan.cost)))
    if plan.unchecked:
        rows.append(("unchecked", "a step was not checked; the guarantee rests on the user's word"))
    return rows


def _noise_text(noise: Noise) -> str:
    if noise.mechanism == "laplace":
        return f"discrete Laplace, scale {float(noise.parameter):.6g}"
    return f"discrete Gaussian, sigma {math.sqrt(noise.parameter):.6g}"
