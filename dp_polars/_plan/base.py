"""What all plans have in common, whatever is asked: a price, a label for the ledger and a table to read.

A plan says everything that will happen to a question before a row is read. `BasePlan` is the base of all plans,
`StoredPlan` of those whose releases are stored, and `FramePlan` of those that are not made from a `Query`.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Protocol, Self

from dp_polars._display.fact_table import AsTable, table_text
from dp_polars._display.html import escape, facts, folded, heading, whole
from dp_polars._display.text import budget_text, escaped, one_line, percent
from dp_polars._expressions.readable import readable
from dp_polars._plan.query import UNIT_STEP, Spend
from dp_polars._plan.spend import Wanted, allot
from dp_polars._session.accounts import chosen_account
from dp_polars._session.cost import NOTHING, Cost, alone_text
from dp_polars._session.filters import cost_of_share, part_of, share_left, times_left
from dp_polars._session.prices import check_price
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError

Facts = list[tuple[str, str]]
"""The rows of a plan's table, each a name and a text."""

COUNTED = "counted"
"""The name of the note on a price."""

USUALLY = "19 times out of 20"
"""The confidence of the errors in the one-sentence form of a plan."""


class Subject(Protocol):
    """Whose rows a question is about."""

    @property
    def unit(self) -> tuple[str, ...]:
        """The unit columns; empty if every row is a unit."""

    @property
    def steps(self) -> tuple[str, ...]:
        """The transformations before the question, as canonical text."""

    @property
    def unchecked(self) -> bool:
        """Whether one of these steps was not checked."""


@dataclass(frozen=True, kw_only=True, repr=False)
class BasePlan(AsTable):
    """The base of all plans.

    A subclass says what it is about (`subject`, `title`) and what it does (`facts`, `accuracy`). Its label in the
    ledger and its table follow from these.

    Attributes
    ----------
    terms
        The terms of the session, or of the table if it has a unit of its own.
    cost
        The price that is charged before any row is read.
    given_label
        The label that the user gave the question, or None. It does not identify the question.
    spent
        What the session had spent before. It decides which part of the budget the price is.
    statement
        In the preview of a SQL statement, each of its aggregates and what it is: a private answer, a step within one
        unit, or ordinary (over answers or public rows).
    """

    terms: Terms
    cost: Cost
    given_label: str | None = None
    spent: Cost = field(default=NOTHING, compare=False)
    statement: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    question: ClassVar[str] = ""
    """What a policy calls this kind of question: the name of its method."""
    heading: ClassVar[str] = "query"
    """The name of the first row of the table."""

    @abstractmethod
    def subject(self) -> Subject:
        """Return whose rows the question is about."""

    @abstractmethod
    def title(self) -> str:
        """Return the question in a few words."""

    def questions(self) -> tuple[str, ...]:
        """Return what is asked, by the names that a policy may allow."""
        return (self.question,)

    def label(self) -> str:
        """Return the label for the ledger: the user's, or the question, the filters and who was protected."""
        if self.given_label is not None:
            return self.given_label
        subject = self.subject()
        return f"{self.summary()}{where_text(subject.steps)}, {unit_text(self.terms, subject.unit)}"

    def summary(self) -> str:
        """Return the question in a few words, for the ledger."""
        return self.title()

    def protects(self) -> str:
        """Return who is protected against what, in words."""
        return protected_text(self.terms, self.subject().unit)

    def after(self, spent: Cost) -> Self:
        """Return the same plan for a session that has spent this much before."""
        return replace(self, spent=spent)

    @property
    def part(self) -> float:
        """The part of the session's budget that the question would use, as a number between 0 and 1."""
        return part_of(self.terms, self.spent, self.cost)

    def price(self) -> str:
        """Return the part of the session's budget that the question would use, in words."""
        return price_text(self.terms, self.cost, self.spent)

    def asked_spend(self) -> Spend | None:
        """Return what the question may cost, as the user said it; None if the plan doesn't keep it."""
        return None

    def groups_of_a_unit(self) -> int | None:
        """Return the number of groups that a unit counts in at most, or None if there is no such number."""
        return None

    def counted_rows(self) -> Facts:
        """Return the row on why the price is another part of the budget than the spend names, if it is."""
        text = counted_text(self.terms, self.cost, self.spent, self.asked_spend(), self.groups_of_a_unit())
        return [] if text is None else [(COUNTED, text)]

    def notes(self) -> Facts:
        """Return what a reader of the answer should know besides its noise, for releases and command lines."""
        return self.counted_rows()

    def notes_for_readers(self) -> Facts:
        """Return the notes for readers of the answer who did not ask the question themselves."""
        return [(name, text) for name, text in self.notes() if name != COUNTED]

    def facts(self) -> Facts:
        """Return the rows about bounds and noise, which stand before the price."""
        return []

    def accuracy(self) -> Facts:
        """Return the rows about the expected error, which stand after the price."""
        return []

    def in_words(self) -> str:
        """Return the question as a title: the user's label, or what was asked of which rows."""
        if self.given_label is not None:
            return self.given_label
        title = self.asked()
        return f"{title[0].upper()}{title[1:]}{where_text(self.subject().steps)}"

    def asked(self) -> str:
        """Return the question in a few words, without the counts that options add to it."""
        return self.title()

    def caps_in_short(self) -> str:
        """Return how much of each unit counts, in one sentence; empty if the plan has no such caps."""
        return ""

    def noise_in_short(self) -> str:
        """Return what hides a unit in the answer, in a few words."""
        return ""

    def error_in_short(self) -> str:
        """Return how far off the answer may be, in a few words; empty if the plan does not know it."""
        return ""

    def in_short(self) -> str:
        """Return the plan in one sentence: the noise, how far off the answer may be, and what it uses of the budget."""
        said = [text for text in (self.noise_in_short(), self.error_in_short()) if text]
        sentence = "; ".join([*said, f"uses {budget_text(self.part)}"])
        return f"{sentence[0].upper()}{sentence[1:]}."

    def rows(self) -> Facts:
        """Return the table of the plan, from who is protected to the expected error."""
        subject = self.subject()
        rows = [(self.heading, self.title() + steps_text(subject.steps)), *question_rows(self)]
        rows += [("protects", self.protects())]
        within: str = getattr(subject, "within_units", "")
        rows += [("within each unit", within)] if within else []
        rows += [*self.facts(), ("price", self.price()), *self.counted_rows(), *self.accuracy()]
        if subject.unchecked:
            rows.append(UNCHECKED)
        return rows

    def __str__(self) -> str:
        return f"{escaped(self.in_short())}\n{table_text(self.rows())}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return whole(self.html())

    def html(self) -> str:
        """Return the plan as a block: a title, one sentence, what a reader should know, and the folded derivation."""
        (what, title), *rest = self.rows()
        shown = heading(f"Plan of the {what}: {title}" if what != "query" else f"Plan: {title}")
        shown += f"<div>{escape(self.in_short())}</div>"
        notes = [row for row in self.notes() if row in rest]
        shown += facts(notes) if notes else ""
        return shown + folded("From the unit to the noise", facts([row for row in rest if row not in notes]))


@dataclass(frozen=True, kw_only=True, repr=False)
class StoredPlan(BasePlan):
    """The base of plans whose release is stored and found again. Streams are not: they answer what comes next."""

    @abstractmethod
    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal questions, in every process. Stored releases are found by them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class FramePlan(BasePlan):
    """The base of plans that are not made from a `Query`. They hold the unit and the steps themselves.

    Attributes
    ----------
    unit
        The unit columns; empty if every row is a unit.
    steps
        The transformations before the question, as canonical text.
    unchecked
        Whether the user vouched for a step that was not checked.
    spend
        What the question may cost, as the user said it.
    """

    unit: tuple[str, ...]
    steps: tuple[str, ...]
    unchecked: bool
    spend: Spend | None = field(default=None, compare=False)

    def asked_spend(self) -> Spend | None:
        """Return what the question may cost, as the user said it."""
        return self.spend

    def subject(self) -> Subject:
        """Return whose rows the question is about."""
        return self


_MOST_WHERE, _MOST_SHOWN = 60, 200
"""The most characters of filters in a label, and in a plan's table."""

UNCHECKED = (
    "unchecked",
    "a step (unchecked=True) or the unit of a view (con.private) was not checked; the guarantee rests on your word",
)
"""The row of a plan's table that says what nobody checked."""


def protected_text(terms: Terms, unit: Sequence[str], *, what: str = "") -> str:
    """Return who is protected against what, and which rows take no part, in words.

    Rows without a unit belong to nobody, so they are left out of every question. Whether there are any is private:
    the text is the same for all tables with these unit columns. `what` narrows down what is protected.
    """
    together = f", {terms.group_size} at a time" if terms.group_size > 1 else ""
    change = {"add_remove": "added or removed", "replace": "replaced"}[terms.adjacency]
    note = f" ({terms.unit_note})" if terms.unit_note else ""
    left_out = {0: "", 1: "; rows where it is null take no part"}.get(
        len(unit), "; rows where one of these is null take no part"
    )
    return f"{', '.join(unit) or 'every row'}, {change}{together}{note}{what}{left_out}"


def unit_text(terms: Terms, unit: Sequence[str]) -> str:
    """Return who was protected, for a label in the ledger."""
    note = f" ({terms.unit_note})" if terms.unit_note else ""
    return f"unit {', '.join(unit) or 'each row'}{note}"


def steps_text(steps: Sequence[str]) -> str:
    """Return the transformations before a question, in words."""
    kinds = [kind for step in steps if step.startswith("[") and (kind := json.loads(step)[0]) != UNIT_STEP]
    return f" (after {', '.join(kinds)})" if kinds else ""


def filters_of(steps: Sequence[str]) -> list[str]:
    """Return the conditions of all filters before a question, as the analyst wrote them.

    They come from the expressions, which are public. A filter that was not checked has no text.
    """
    found: list[str] = []
    for step in steps:
        if step.startswith("["):
            kind, detail, *_ = json.loads(step)
            inside = detail if isinstance(detail, list) and kind not in ("filter", UNIT_STEP) else [[kind, detail]]
            for part in inside:  # a step of SQL holds several
                if isinstance(part, list) and part[:1] == ["filter"] and isinstance(part[1], list):
                    found += [readable(condition) for condition in part[1]]
    return found


def where_text(steps: Sequence[str]) -> str:
    """Return the filters before a question for a label, shortened."""
    filters = filters_of(steps)
    return f" where {one_line(' and '.join(filters), _MOST_WHERE)}" if filters else ""


def question_rows(plan: BasePlan) -> Facts:
    """Return the rows of a plan's table about the user's label and the filters, if there are any."""
    rows = [] if plan.given_label is None else [("label", plan.given_label)]
    rows += [("statement", "; ".join(f"{text} is {what}" for text, what in plan.statement))] if plan.statement else []
    filters = filters_of(plan.subject().steps)
    return rows + ([("filter", one_line(" and ".join(filters), _MOST_SHOWN))] if filters else [])


def price_text(terms: Terms, cost: Cost, spent: Cost) -> str:
    """Return the part of the budget that a price is, the guarantee of the release by itself, and whether it fits."""
    part = part_of(terms, spent, cost)
    cheaper = terms.epsilon is not None and part < 0.9 * float(cost.epsilon / terms.epsilon) < math.inf
    less = "; together, releases cost less than the sum of their epsilons" if cheaper else ""
    fits = times_left(terms, spent, cost)
    times = f"; fits {'once' if fits == 1 else f'{fits:,} times'}" if fits else ""
    text = f"{budget_text(part)} (by itself {alone_text(cost)}{less}{times})"
    if fits:
        return text
    if cost.delta > terms.native_delta - spent.delta:
        return f"{text}; it does not fit, because too little of the delta for keys is left"
    return f"{text}; it does not fit, because {budget_text(share_left(terms, spent))} is left"


def counted_text(terms: Terms, cost: Cost, spent: Cost, spend: Spend | None, groups: int | None = None) -> str | None:
    """Return why a release uses another part of the budget than its spend names; None if it doesn't, or uses less.

    A session with delta keeps two accounts, and the one that has used less counts (see `share_of`). So a spend that is
    a tenth of one account can be more, or less, than a tenth of the budget. This depends on the plan and on public
    prices alone. `groups` is the number of groups that a unit counts in at most.
    """
    if spend is None or terms.measure != "approximate" or terms.epsilon is None:
        return None
    part = part_of(terms, spent, cost)
    if spend.epsilon is not None:
        named = spend.epsilon / terms.epsilon
        if part <= 1.1 * float(named):
            return None
        text = (
            f"more than the {percent(float(named))} of epsilon that it names: earlier releases used less of the sum of "
            "rhos, so that one counts"
        )
        instead = part_of(terms, spent, cost_of_share(terms, named, keys=False)) if named <= 1 else math.inf
        return f"{text}; share={float(named):.4g} would cost {percent(instead)}" if instead < 0.9 * part else text
    if spend.share is None or abs(part - float(spend.share)) <= 0.01 * float(spend.share):
        return None
    own, other = ("epsilons", "rhos") if terms.share_account == "epsilon" else ("rhos", "epsilons")
    return (
        f"{percent(float(spend.share))} of the sum of {own}, as asked; less of the sum of {other} is used in all, so "
        f"that one counts{_other_account(terms, cost, spend.share, groups)}"
    )


def _other_account(terms: Terms, cost: Cost, share: Fraction, groups: int | None) -> str:
    """Return what to say if a session with another `max_groups` would count in rhos, with clearly less noise."""
    if terms.share_account != "epsilon" or groups is None or share.numerator != 1 or cost.rho == 0:
        return ""
    if chosen_account(terms, share.denominator, groups) != "rho":
        return ""
    less = math.sqrt(share * terms.rho_allowed / cost.rho)
    if less < 1.2:
        return ""
    return (
        f"; opened with max_groups={groups}, the session would share rhos, with about {less:.2g} times less noise here"
    )


def hashed_text(delta: Fraction) -> str:
    """Return how units that are not integers are told apart. The bound is heuristic, and the text says so."""
    return f"told apart by a hash of 128 bits (delta {float(delta):.3g}, assuming a random function)"


def pure_spend(terms: Terms, spend: Spend, what: str) -> tuple[Fraction, Cost]:
    """Return the epsilon that a spend buys for one pure mechanism as a whole, and its price in the session.

    `what` names the mechanism in the error that is raised if the spend asks for a noisy number.
    """
    if spend.within is not None or spend.mechanism is not None:
        given = "within=" if spend.within is not None else "mechanism="
        raise InvalidParameterError(
            f"{given} is for noisy numbers. Say what {what} may cost with epsilon= or share= instead."
        )
    granted, cost = allot(terms, spend, [Wanted(weight=Fraction(1), ranged=False)])
    check_price(terms, cost)
    return granted[0].epsilon, cost
