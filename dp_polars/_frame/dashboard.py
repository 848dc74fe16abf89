"""`dp.Dashboard`: several questions that are planned as a whole before any of them is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Never

import polars as pl

from dp_polars._choices.methods import Choices
from dp_polars._display.completion import PublicNames
from dp_polars._display.fact_table import AsTable
from dp_polars._display.text import amount as shown_amount
from dp_polars._display.text import budget_text
from dp_polars._frame.methods import Questions
from dp_polars._frame.options import AnyOptions
from dp_polars._frame.private_frame import PrivateFrame
from dp_polars._frame.question import Question, TableQuestion, View, no_panics, planned
from dp_polars._numbers import Number, boundary, count_of, exact, positive
from dp_polars._plan.base import BasePlan
from dp_polars._plan.plan import Plan
from dp_polars._session.cost import NOTHING, Cost
from dp_polars.errors import InvalidParameterError

Allotted = Mapping[str, Number]
"""A spend, given in one of the possible ways: `{"share": 0.1}`."""

_SPENDS = ("epsilon", "share", "rho", "within")
_SMALLEST = Fraction(1, 1000)  # the least factor by which a suggestion scales all spends
_FINE = Fraction(1, 1000)


@dataclass(frozen=True, eq=False)
class _PlannedQuestion:
    """A question of the dashboard, how it is planned, and the spend that it names itself, if any."""

    frame: PrivateFrame[Any]
    options: AnyOptions
    question: Callable[[View], Question[BasePlan]]

    @property
    def own(self) -> Allotted | None:
        """The spend that the question names itself."""
        options: dict[str, Any] = dict(self.options)
        return {name: options[name] for name in _SPENDS if options.get(name) is not None} or None


class DashboardQuestions(Questions[None], Choices[None], PublicNames):
    """The aggregates and choices of a private frame. Each call adds its question to a dashboard.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = dp.private(pl.DataFrame({"km": [2, 4]}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> board = dp.Dashboard(epsilon=0.5)
    >>> board.on(visits).count()
    >>> len(board.plans)
    1
    """

    def __init__(
        self, frame: PrivateFrame[Any], entries: list[_PlannedQuestion], total: Allotted, if_rows: int | None
    ) -> None:
        self._frame, self._entries, self._total, self._if_rows = frame, entries, total, if_rows

    @no_panics
    def _resolve(self, options: AnyOptions, question: Callable[[View], Question[BasePlan]]) -> None:
        entry = _PlannedQuestion(self._frame, options, question)
        # The question is planned at once, so that a mistake is reported where it is made.
        planned(question, self._frame._view(options, None, entry.own or self._total, self._if_rows))
        self._entries.append(entry)


class Dashboard(AsTable):
    """Questions that are planned as a whole: what they cost together, whether that fits, and a split that does.

    Nothing is read or spent until `run`. A question that names no spend gets an equal part of the dashboard's spend.

    Parameters
    ----------
    epsilon, share, rho
        The spend of all questions that name none themselves, in one of these ways.
    if_rows
        The size of a typical group. The expected errors of means, medians and other answers that depend on the data are
        shown for groups of this many rows, unless a question names another size.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = pl.DataFrame({"user": range(9_000), "region": ["north", "south"] * 4_500, "spent": [1, 2, 3] * 3_000})
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> board = dp.Dashboard(share=0.4, if_rows=4_500)
    >>> ask = board.on(dp.private(visits, session))
    >>> ask.count("region", keys=["north", "south"])
    >>> ask.mean("spent", "region", bounds=(0, 10), keys=["north", "south"])
    >>> board.cost, board.fits
    (<dp.Cost epsilon 0.4, rho 0.0398672>, True)
    >>> print(board)
    question 1  count by region: 20 % of the budget, error within 30
    question 2  mean of spent by region: 20 % of the budget, error within 0.0461 in groups of 4,500 rows
    together    40 % of the budget; all of the budget is left, so they fit
    >>> counts, means = board.run()
    >>> means.columns, session.spent.epsilon
    (['region', 'spent'], 0.4)
    """

    def __init__(
        self,
        *questions: Never,
        epsilon: Number | None = None,
        share: Number | None = None,
        rho: Number | None = None,
        if_rows: int | None = None,
    ) -> None:
        if questions:
            raise InvalidParameterError(
                "A dashboard is asked, not given plans: board = dp.Dashboard(share=0.5), then "
                "board.on(df.dp).count('region') for each question. print(board) shows prices, and board.run() asks."
            )
        given = {"epsilon": epsilon, "share": share, "rho": rho}
        said = {name: positive(amount, name) for name, amount in given.items() if amount is not None}
        if len(said) > 1:
            raise InvalidParameterError(f"Give the spend in one way, not as {' and '.join(said)}.")
        if said.get("share", 0) > 1:
            raise InvalidParameterError(f"share= is a fraction of the session's budget, up to 1, but it is {share}.")
        self._total: dict[str, Fraction] = said
        self._if_rows = None if if_rows is None else count_of(if_rows, "if_rows")
        self._entries: list[_PlannedQuestion] = []
        self._factor = Fraction(1)

    def on(self, frame: PrivateFrame[Any]) -> DashboardQuestions:
        """Return the methods of a private frame. Each call adds its question to the dashboard."""
        if not isinstance(frame, PrivateFrame):
            raise InvalidParameterError("A dashboard asks private frames: board.on(df.dp) or board.on(dp.private(df)).")
        return DashboardQuestions(frame, self._entries, self._total, self._if_rows)

    def remove(self, question: int) -> None:
        """Remove a question by its number in `print(board)`. The spend is then divided among the others.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = dp.private(pl.DataFrame({"km": [2, 4]}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> board = dp.Dashboard(epsilon=0.5)
        >>> board.on(visits).count()
        >>> board.on(visits).median("km", bounds=(0, 10))
        >>> board.remove(1)
        >>> [plan.title() for plan in board.plans]
        ['median of km']
        """
        place = count_of(question, "question")
        if place > len(self._entries):
            raise InvalidParameterError(
                f"There is no question {place}: the dashboard has {len(self._entries)}. print(board) shows the numbers."
            )
        del self._entries[place - 1]

    # ------------------------------------------------------------------ planning

    @property
    def plans(self) -> list[BasePlan]:
        """The plans of all questions, in order."""
        return _in_turn(self._questions(self._factor))

    @property
    def cost(self) -> Cost:
        """The price of all questions together."""
        return sum((plan.cost for plan in self.plans), NOTHING)

    @property
    def fits(self) -> bool:
        """Whether the session would accept all questions now. Those whose answers are stored cost nothing."""
        return self._fits(self._factor)

    def fitted(self) -> Dashboard:
        """Return this dashboard if it fits, or one whose spends are all scaled by the largest factor that fits.

        An error that a question wants with `within=` is kept, so its spend isn't scaled.
        """
        if self.fits:
            return self
        factor = _SMALLEST
        if self._is_cheap_enough(_SMALLEST):
            factor = boundary(self._is_cheap_enough, inside=_SMALLEST, outside=self._factor, tolerance=float(_FINE))
        if self._is_too_small(factor) or not self._fits(factor):
            raise InvalidParameterError(
                "The session does not have enough left for these questions, however small their spends are. Leave some "
                "of them out."
            )
        found = Dashboard(if_rows=self._if_rows)
        found._total, found._entries, found._factor = self._total, list(self._entries), factor
        return found

    def _is_cheap_enough(self, factor: Fraction) -> bool:
        """Return whether the questions fit, or cost less than the smallest price of a release."""
        return self._is_too_small(factor) or self._fits(factor)

    def _is_too_small(self, factor: Fraction) -> bool:
        try:
            self._questions(factor)
        except InvalidParameterError as error:
            code: str = error.code
            if code != "spend-too-small":
                raise
            return True
        return False

    def rows(self) -> list[tuple[str, str]]:
        """Return the table of the dashboard: each question with its price and its expected error, then the sum."""
        questions = self._questions(self._factor)
        if not questions:
            return [("questions", "none yet: board.on(df.dp).count(...)")]
        session, facts = questions[0].session, []
        plans = _in_turn(questions)
        for place, (plan, part) in enumerate(zip(plans, self._parts(plans), strict=True), 1):
            facts.append((f"question {place}", f"{plan.title()}: {budget_text(part)}{_errors(plan)}"))
        together, left = sum(plan.part for plan in plans), budget_text(session.remaining.share)
        fit = "fit" if self.fits else "do not fit"
        less = ", less than the sum of their epsilons" if _is_cheaper(plans, together) else ""
        facts.append(("together", f"{budget_text(together)}{less}; {left} is left, so they {fit}"))
        open_ = [str(place) for place, plan in enumerate(plans, 1) if _lacks_a_size(plan)]
        if open_:
            whose = f"question {open_[0]}" if len(open_) == 1 else f"questions {', '.join(open_)}"
            text = (
                f"depend on the rows of a group in {whose}: dp.Dashboard(..., if_rows=1000) shows them for 1,000 rows"
            )
            facts.append(("errors", text))
        if not self.fits:
            facts.append(("suggestion", "board.fitted() scales all spends so that they fit"))
        return facts

    def _spends(self) -> list[Allotted]:
        """Return the spend of each question: its own, or an equal part of the dashboard's."""
        without = sum(entry.own is None for entry in self._entries)
        return [
            entry.own or {name: amount / without for name, amount in self._total.items()} for entry in self._entries
        ]

    def _parts(self, plans: Sequence[BasePlan]) -> list[float]:
        """Return the part of the budget that each question uses, so that equal spends have equal parts.

        A session with delta has two accounts, and the one with the smaller share counts. So equal spends that are asked
        one after another can use different parts of the budget, depending on their place and their mechanism. A
        dashboard is one plan, so what all spends of a kind use together is divided in proportion to the spends. The
        parts still add up.
        """
        kinds: dict[str, list[int]] = {}
        amounts: list[float] = []
        for place, spend in enumerate(self._spends()):
            name, amount = next(iter(spend.items()), ("", 1))
            kinds.setdefault(f"{name} {place}" if name == "within" else name, []).append(place)
            amounts.append(float(exact(amount, name)))
        parts = [plan.part for plan in plans]
        for places in kinds.values():
            whole = sum(amounts[place] for place in places)
            used = sum(plans[place].part for place in places)
            for place in places:
                parts[place] = used * amounts[place] / whole
        return parts

    def _questions(self, factor: Fraction) -> list[Question[BasePlan]]:
        """Return all questions, planned with their spends times a factor."""
        found = []
        for entry, spend in zip(self._entries, self._spends(), strict=True):
            scaled = {
                name: amount if name == "within" or factor == 1 else exact(amount, name) * factor
                for name, amount in spend.items()
            }
            found.append(planned(entry.question, entry.frame._view(entry.options, None, scaled, self._if_rows)))
        sessions = {id(question.session) for question in found}
        if len(sessions) > 1:
            raise InvalidParameterError("All questions of a dashboard are paid by one session, but these have several.")
        return found

    def _fits(self, factor: Fraction) -> bool:
        unpaid = self._unpaid(self._questions(factor))
        cost = sum((question.plan.cost for question in unpaid), NOTHING)
        return not unpaid or unpaid[0].session.can_afford(cost)

    def _unpaid(self, questions: Sequence[Question[BasePlan]]) -> list[Question[BasePlan]]:
        """Return the questions that would be charged, because no release of them is stored."""

        def is_stored(entry: _PlannedQuestion, question: Question[BasePlan]) -> bool:
            if not isinstance(question, TableQuestion) or question.fresh:
                return False
            return question.stored(entry.frame._source().identity) is not None

        pairs = zip(self._entries, questions, strict=True)
        return [question for entry, question in pairs if not is_stored(entry, question)]

    # ------------------------------------------------------------------ running

    def run(self) -> list[pl.DataFrame | pl.LazyFrame]:
        """Ask all questions and return their answers, in order. If they don't all fit, none is asked.

        Answers that are stored cost nothing.
        """
        questions = self._questions(self._factor)
        unpaid = self._unpaid(questions)
        if unpaid:
            unpaid[0].session.check(sum((question.plan.cost for question in unpaid), NOTHING))
        return [
            question.answer(entry.frame._source()) for entry, question in zip(self._entries, questions, strict=True)
        ]


def _in_turn(questions: Sequence[Question[BasePlan]]) -> list[BasePlan]:
    """Return the plans of questions that are asked one after another so that their parts of the budget add up."""
    plans: list[BasePlan] = []
    spent = questions[0].session._total() if questions else NOTHING
    for question in questions:
        plans.append(question.plan.after(spent))
        spent = spent + question.plan.cost
    return plans


def _errors(plan: BasePlan) -> str:
    """Return the expected errors of a plan in words, as far as they are known."""
    found = plan.expected_errors() if isinstance(plan, Plan) else {}
    if not isinstance(plan, Plan) or not found:
        return ""
    several = len(found) > 1
    numbers = {
        name: "unlimited" if math.isinf(error) else f"within {shown_amount(error, 3)}" for name, error in found.items()
    }
    texts = [f"{error}" + (f" ({name})" if several else "") for name, error in numbers.items()]
    size = f" in groups of {plan.if_rows:,} rows" if plan.errors_if_rows else ""
    return f", error {', '.join(texts)}{size}"


def _lacks_a_size(plan: BasePlan) -> bool:
    """Return whether the expected error of an answer is unknown only because no size of groups is named."""
    if not isinstance(plan, Plan) or plan.if_rows is not None or plan.estimates or plan.query.rollup:
        return False
    shown = {compiled.aggregate.name for compiled in plan.compiled if not compiled.aggregate.hidden}
    return not shown <= plan.expected_errors().keys()


def _is_cheaper(plans: Sequence[BasePlan], together: float) -> bool:
    """Return whether plans use a clearly smaller part of the budget together than their epsilons add up to."""
    terms, epsilons = plans[0].terms, sum(plan.cost.epsilon for plan in plans)
    return terms.epsilon is not None and together < 0.9 * float(epsilons / terms.epsilon) < math.inf
