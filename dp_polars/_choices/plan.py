"""The plan of a choice: which candidates have the best scores. It never sees data.

How one unit changes the scores. In each of its groups, adding or removing it moves every score by at most
`moves` = max_rows * max(|low|, |high|) steps, and all scores in the same direction if low >= 0 or high <= 0. The number
of candidates that it counts for makes no difference, so only its groups and its rows for one candidate are capped. A
choice draws a candidate with weights exp(rate * score). It costs rate * moves if all scores move in the same direction,
and twice that otherwise. Replacing a unit moves the scores by at most max_rows * (max(high, 0) - min(low, 0)), in
either direction. Several candidates are chosen one after another (peeling), each at that price. `choice_prices` says
what all groups cost together.

Candidates discovered in the data (Durfee and Rogers 2019, with a proof that fits the session's accounting). In a group,
let D be the `most` candidates with the highest positive scores. "Nobody" competes with them: its score is the next best
score plus a gap g + s, where g bounds how far a candidate that is in D for one neighbour, but not for the other, can
lie above that next best score: t * moves if t units are added or removed, 2 t * moves if they are replaced. The
candidates that are chosen before nobody are released. Take neighbours with D and D', and let M and M' be the same
peeling among nobody and the candidates that are in both. The candidates outside weigh at most m exp(-rate * s) times as
much as nobody in each draw, where m = |D - D'|. So every outcome of M keeps at least (1 + m exp(-rate * s))**-k of its
probability, and the rest, at most k m exp(-rate * s), is a bad event that delta pays for. M and M' are peelings whose
scores, including nobody's, move as above. A group that only one neighbour has is one in which nobody was chosen. All
changed groups share delta.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import polars as pl

from dp_polars._aggregates.base import RowRule
from dp_polars._aggregates.values import Value
from dp_polars._display.text import amount
from dp_polars._engines.request import Lane
from dp_polars._plan.base import USUALLY, Facts, StoredPlan, hashed_text
from dp_polars._plan.canonical import Writer
from dp_polars._plan.compile import compile_query
from dp_polars._plan.contribution import ContributionBounds, RowCap, contribution_bounds
from dp_polars._plan.description import shown
from dp_polars._plan.digest import public_digest
from dp_polars._plan.draw import joined_fingerprint
from dp_polars._plan.plan import delta_for, unit_delta_for
from dp_polars._plan.query import Query, Spend
from dp_polars._plan.sensitivity import choice_prices
from dp_polars._plan.spend import Wanted, allot
from dp_polars._plan.statistics import Statistic
from dp_polars._sampling.noise import MAX_SCALE
from dp_polars._session.cost import Cost
from dp_polars._session.prices import check_price
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError

_LEAST_CANDIDATES, _CANDIDATES_PER_CHOICE = 100, 10
"""How many discovered candidates of a group compete: at least 100, and at least 10 for each that is wanted."""


_NOT_DRAWN = frozenset(
    {"query", "selection", "terms", "cost", "spent", "bounds", "cap", "columns", "unit_delta", "given_label"}
)
"""The parts of a plan that do not change a choice, or that its fingerprint has in another form."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which candidates are wanted, and what they are chosen from.

    Attributes
    ----------
    kind, k
        The method that was called, and how many candidates are wanted in each group.
    largest
        Whether high scores are wanted.
    candidates, candidates_rule
        The public candidates, a frame with one column, and where they came from; None if they are discovered.
    groups
        The public keys of the groups in which candidates are chosen; None if they are discovered or there is one group.
    """

    kind: Literal["noisy_max", "noisy_min", "top_k", "select_best"]
    k: int
    largest: bool
    candidates: pl.DataFrame | None
    candidates_rule: str
    groups: pl.DataFrame | None

    def public(self) -> dict[str, Any]:
        """Return the parts that belong in a fingerprint."""
        frames = {"candidates": self.candidates, "groups": self.groups}
        digests = {name: None if frame is None else public_digest(frame) for name, frame in frames.items()}
        return {**vars(self), **digests}


@dataclass(frozen=True, kw_only=True)
class CandidateLimit:
    """How candidates are discovered: the `most` best of a group compete with one that stands for nobody.

    Nobody's score is the next best score plus `gap` steps. `delta` pays for candidates that only one unit has.
    """

    most: int
    gap: int
    delta: Fraction


@dataclass(frozen=True, kw_only=True, repr=False)
class ChoicePlan(StoredPlan):
    """What a choice among candidates will do and cost. Prints as a table; `preview` makes it and spends nothing.

    Attributes
    ----------
    query
        The query for the scores. It has one aggregate, and the column of candidates is its last key.
    selection
        Which candidates are wanted.
    bounds, cap
        How many groups one unit counts in, and with how many rows for each candidate.
    lanes, columns, score
        What the engine computes, from which values, and which of its results are the scores.
    epsilon, prices
        The epsilon of each choice, and the price of all of them as multiples of epsilon and epsilon**2.
    rate
        The weight of a candidate is exp(rate * score).
    flips
        Whether permute-and-flip is used instead of the exponential mechanism.
    moves
        The most steps by which adding or removing one unit moves a score.
    limit
        How candidates or groups are discovered; None if they are public.
    unit_delta
        What telling units apart by a hash costs; 0 if they are told apart exactly.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> votes = dp.private(pl.DataFrame({"party": ["left", "right"]}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> plan = votes.preview.noisy_max("party", ["left", "right"], epsilon=0.5)
    >>> plan.cost.epsilon, round(plan.expected_regret(), 1)
    (Fraction(1, 2), 7.4)
    """

    query: Query
    selection: Selection
    bounds: ContributionBounds
    cap: RowCap
    lanes: tuple[Lane, ...]
    columns: tuple[Value, ...]
    score: Statistic
    epsilon: Fraction
    prices: tuple[Fraction, Fraction]
    rate: Fraction
    flips: bool
    moves: int
    limit: CandidateLimit | None
    unit_delta: Fraction

    def subject(self) -> Query:
        """Return whose rows the question is about."""
        return self.query

    def asked_spend(self) -> Spend:
        """Return what the question may cost, as the user said it."""
        return self.query.spend

    def questions(self) -> tuple[str, ...]:
        """Return the kind of the choice."""
        return (self.selection.kind,)

    def title(self) -> str:
        """Return the choice in a few words."""
        *by, column = self.query.keys
        groups = f" by {', '.join(key.name for key in by)}" if by else ""
        kind = self.selection.kind
        if kind == "select_best":
            return f"select_best{groups}"
        several = f" ({self.selection.k})" if kind == "top_k" else ""
        return f"{kind}{several} of {column.name}{groups}, scored by {self.query.aggregates[0].title()}"

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal choices, in every process."""
        plain = {"query": self.query.fingerprint().decode(), "selection": self.selection.public()}
        return json.dumps(plain, sort_keys=True).encode()

    def draw_fingerprint(self, rows: Mapping[str, Any]) -> bytes:
        """Return bytes that are equal for equal choices among the same candidates, whatever the columns are called.

        `rows` is the normal form of the rows that the engine reads.
        """
        written = Writer(self.columns, {Statistic: frozenset({"weight", "what"})})
        selection = self.selection
        public = [selection.candidates, selection.groups]
        drawn = {
            **written.parts(self, _NOT_DRAWN),
            "selection": [
                selection.kind,
                selection.k,
                selection.largest,
                *(written(_unnamed(frame)) for frame in public),
            ],
            "max_groups": [self.bounds.max_groups, self.bounds.enforce_groups],
            "hashed": self.unit_delta > 0,
        }
        return joined_fingerprint(self.query, self.terms, rows, written, drawn)

    def expected_regret(self, confidence: float = 0.95) -> float | None:
        """Return the most that a chosen score lies below the best one, with this confidence; None if unknown.

        Candidates weigh exp(rate * score), so those that are worse than the best by (ln n + ln 1/miss) / rate weigh
        less than `miss` in all. Permute-and-flip is never worse (McKenna and Sheldon 2020).
        """
        count = None if self.selection.candidates is None else self.selection.candidates.height
        if self.limit is not None:
            count = min(self.limit.most, count or self.limit.most) + 1
        if not count:
            return None
        steps = math.log(count / (1 - confidence)) / float(self.rate)
        score = self.query.aggregates[0]
        return steps * float(self.score.grid.step * score.unit)

    def nothing_chosen_text(self, label: str) -> str:
        """Return what to say if no discovered candidate is shown. It follows from the plan, never from exact scores."""
        gap = 0 if self.limit is None else self.limit.gap * float(self.score.grid.step)
        return (
            f"Nothing is chosen: {label}. The charge stays. A discovered candidate is shown if its score is above "
            f"about {gap:.6g}, and this falls with a larger spend or delta and with smaller caps and bounds. "
            "Candidates (and keys) that are listed need no such score, and a choice by units needs no cap on rows."
        )

    def asked(self) -> str:
        """Return the choice in a few words."""
        *by, column = self.query.keys
        groups = f" by {', '.join(key.name for key in by)}" if by else ""
        if self.selection.kind == "select_best":
            return f"the best candidate{groups}"
        score = (
            f"the {'lowest' if self.selection.kind == 'noisy_min' else 'highest'} {self.query.aggregates[0].title()}"
        )
        many = f": the {self.selection.k:,}" if self.selection.k > 1 else ""
        return f"{column.name}{many} with {score}{groups}"

    def caps_in_short(self) -> str:
        """Return how much of each unit counts, in one sentence."""
        if not self.query.unit:
            return "Every row counts on its own."
        what = "group" if self.selection.kind == "select_best" else "candidate"
        rows = f"{self.cap.max_rows:,} {'row' if self.cap.max_rows == 1 else 'rows'}"
        return f"Each {' and '.join(self.query.unit)} counts with at most {rows} for a {what}."

    def noise_in_short(self) -> str:
        """Return how the choice is made, in a few words."""
        how = "permute-and-flip" if self.flips else "the exponential mechanism"
        among = "" if self.selection.candidates is None else f" among {self.selection.candidates.height:,}"
        many = "" if self.selection.k == 1 else f" {self.selection.k:,}"
        return f"{how} chooses{many or ' one'}{among}{'' if among else ' of the candidates'}"

    def error_in_short(self) -> str:
        """Return how far the score of the chosen candidate may be below the best; empty if that is unknown."""
        off = self.expected_regret()
        return "" if off is None else f"its score is within {amount(off)} of the best, {USUALLY}"

    def facts(self) -> Facts:
        """Return the rows about bounds and the mechanism."""
        query, selection, step = self.query, self.selection, float(self.score.grid.step)
        grouped = len(query.keys) > 1
        rows = []
        if grouped:
            rows.append(("groups per unit", f"{self.bounds.max_groups} ({self.bounds.max_groups_rule})"))
        what = "group" if selection.kind == "select_best" else "candidate"
        rows.append((f"rows per unit and {what}", f"{self.cap.max_rows} ({self.cap.rule})"))
        per = "unit's total" if query.aggregates[0].row_rule is RowRule.CLIP_TOTAL else "row"
        rows += [
            (
                "value bounds",
                f"{shown(value, 0)} to {shown(value, 1)}, each {per}"
                + (f", {value.bounds_rule}" if value.bounds_rule else ""),
            )
            for value in query.aggregates[0].values
            if value.bounds is not None
        ]
        rows.append(("a unit moves a score by", f"{self.moves * step:.6g} at most"))
        how = "permute-and-flip" if self.flips else "exponential mechanism, by its bounded range"
        each = "each choice" if selection.k * self.bounds.max_groups > 1 else "the choice"
        rows.append(("choice", f"{how}, epsilon {float(self.epsilon):.6g} for {each}"))
        if selection.candidates is not None:
            rows.append(("candidates", f"{selection.candidates.height} public ({selection.candidates_rule})"))
        if self.limit is not None:
            within = " of its group" if grouped else ""
            rows.append(
                (
                    "candidates" if selection.candidates is None else "groups",
                    f"discovered: shown if a score is above about {self.limit.gap * step:.6g}, plus the one of rank "
                    f"{self.limit.most + 1}{within} if there are so many (delta {float(self.limit.delta):.3g})",
                )
            )
        if selection.groups is not None and grouped:
            rows.append(("keys", f"{selection.groups.height} public groups"))
        if self.unit_delta:
            rows.append(("units", hashed_text(self.unit_delta)))
        return rows

    def notes(self) -> Facts:
        """Return what a reader of the choice should know besides its regret."""
        return [*self.counted_rows(), *self._weights()]

    def _weights(self) -> Facts:
        """Return the row on what a cap on rows does to the scores, if it can bind."""
        if not self.cap.can_bind or self.query.aggregates[0].row_rule in (RowRule.ONCE, RowRule.CLIP_TOTAL):
            return []
        what = "group" if self.selection.kind == "select_best" else "candidate"
        rows = f"{self.cap.max_rows:,} {'row' if self.cap.max_rows == 1 else 'rows'}"
        text = f"a unit with more than {rows} for a {what} counts as {rows}, so all rows may put others first"
        return [("weights", text)]

    def accuracy(self) -> Facts:
        """Return the row about the expected regret, if it is known."""
        off = self.expected_regret()
        if off is None:
            return []
        what = "the score" if self.selection.kind == "select_best" else self.query.aggregates[0].title()
        return [("expected regret", f"95 % of choices are within {off:.6g} of the best ({what})")]


def choice_plan(query: Query, selection: Selection, terms: Terms) -> ChoicePlan:
    """Return the plan of a choice, or raise an error that says what is missing."""
    _check(query, selection, terms)
    bounds = contribution_bounds(replace(query, keys=query.keys[:-1], domain=selection.groups))
    compilation = compile_query(query, bounds, terms, "split", scales=selection.kind != "select_best")
    (score,), (compiled,) = compilation.statistics, compilation.compiled
    low, high = score.grid.low, score.grid.high
    moves = score.max_rows * max(abs(low), abs(high))
    one_way = low >= 0 or high <= 0
    # Replacing a unit moves scores by `width`, up or down; adding or removing one by `moves`.
    width = score.max_rows * (max(high, 0) - min(low, 0))
    replacement = Fraction(2 * width, moves if one_way else 2 * moves)
    pure, squared = choice_prices(bounds, terms, replacement)
    flips = terms.measure == "pure"
    prices = (pure * selection.k, squared * selection.k)
    granted, cost = allot(terms, query.spend, [Wanted(weight=Fraction(1), prices=prices, ranged=not flips)])
    check_price(terms, cost)
    epsilon = granted[0].epsilon
    rate = epsilon / (moves if one_way else 2 * moves)
    unit_delta, limit = _deltas(query, selection, terms, bounds, cost, moves, rate)
    used = unit_delta + (Fraction(0) if limit is None else limit.delta)
    return ChoicePlan(
        query=query,
        selection=selection,
        terms=terms,
        bounds=bounds,
        cap=compiled.cap,
        lanes=compilation.lanes,
        columns=compilation.columns,
        score=score,
        epsilon=epsilon,
        prices=prices,
        rate=rate,
        flips=flips,
        moves=moves,
        limit=limit,
        unit_delta=unit_delta,
        cost=cost + Cost(epsilon=Fraction(0), rho=Fraction(0), delta=used),
    )


def _deltas(
    query: Query, selection: Selection, terms: Terms, bounds: ContributionBounds, cost: Cost, moves: int, rate: Fraction
) -> tuple[Fraction, CandidateLimit | None]:
    """Return the delta for telling units apart by a hash, and the limit on discovered candidates, which has its own."""
    delta = delta_for(query, terms, cost)
    unit_delta = Fraction(0) if selection.kind == "select_best" else unit_delta_for(query, terms, cost, 1)
    if query.domain is not None:
        return unit_delta, None
    times, sides = terms.group_size, 2 if terms.adjacency == "replace" else 1
    most = max(_LEAST_CANDIDATES, _CANDIDATES_PER_CHOICE * selection.k)
    if selection.candidates is not None:
        most = selection.candidates.height  # only groups are discovered, so no candidate has to be left out
    apart = min(most, times * sides) if not query.unit else most
    key_delta = delta - unit_delta
    groups = times * sides * bounds.max_groups
    steps = math.log(groups * selection.k * apart / float(key_delta)) / float(rate) * (1 + 1e-9)
    gap = times * sides * moves + math.ceil(steps)
    if gap > MAX_SCALE:
        raise InvalidParameterError("The scores would not fit 64-bit numbers: use tighter bounds or a larger spend.")
    return unit_delta, CandidateLimit(most=most, gap=gap, delta=key_delta)


def _check(query: Query, selection: Selection, terms: Terms) -> None:
    """Refuse choices that have no proof, or whose caps or candidates are missing."""
    if query.spend.within is not None or query.spend.mechanism is not None:
        raise InvalidParameterError(f"Say what {selection.kind} may cost with epsilon=, share= or rho=.")
    if "auto" in (query.max_rows, query.max_groups):
        raise InvalidParameterError(
            f"Caps of {selection.kind} can't be estimated; say max_rows_per_group=1 and so on.", code="row-cap-missing"
        )
    if query.domain is not None:
        return
    if selection.kind == "select_best":
        raise InvalidParameterError("select_best chooses in groups with public keys: pass keys=[...] for by=.")
    if not terms.native_delta:
        by = ", ".join(key.name for key in query.keys[:-1])
        missing = query.keys[-1].name if selection.candidates is None else by
        given = "candidates=[...]" if selection.candidates is None else "keys=[...]"
        raise InvalidParameterError(
            f"Which values of {missing} exist is private, and this session has no delta to discover them with. Give "
            f"the public values with {given}, use an Enum or Boolean column, or open the session with a delta.",
            code="no-delta-for-keys",
        )
    if not selection.largest:
        raise InvalidParameterError(
            f"{selection.kind} needs public candidates: the values with the lowest scores may not occur in the data at "
            "all. Pass candidates=[...] (and keys=[...] with by=)."
        )
    score = query.aggregates[0]
    if score.values and score.values[0].bounds is not None and score.values[0].lower < 0:
        raise InvalidParameterError(
            "Candidates can be discovered only if no row lowers a score: give bounds= that begin at 0 or above, or "
            "pass public candidates=[...]."
        )


def _unnamed(frame: pl.DataFrame | None) -> pl.DataFrame | None:
    """Return a frame with columns that are named by their places."""
    return None if frame is None else frame.rename({name: f"column{i}" for i, name in enumerate(frame.columns)})
