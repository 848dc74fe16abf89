"""Periods: a new period is a new promise, which is said explicitly and never takes the place of an earlier one.

The same people are in the data of every period, so what is promised to them over several periods is the composition of
all: epsilons (or rhos) and deltas add up, whatever is asked in one period in the light of answers from another. Sums
hold for filters that are used one after another or at the same time. A period has a ledger of its own, which records
the periods before it as facts that never change, so that every display can show the total.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError, LedgerMismatch

if TYPE_CHECKING:
    from dp_polars._session.ledger import Fact

KIND = "period"
"""The kind of the facts by which a ledger keeps periods."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""Names of periods, which are part of the names of files."""


@dataclass(frozen=True)
class Period:
    """A period with what it promises: epsilon or rho, and delta. `name` tells which one, or how many together."""

    name: str
    epsilon: Fraction | None
    rho: Fraction | None
    delta: Fraction

    def promise(self) -> str:
        """Return what is promised, in words.

        >>> Period("2026-11", Fraction(3), None, Fraction(0)).promise()
        'epsilon 3'
        """
        amounts = {"epsilon": self.epsilon, "rho": self.rho, "delta": self.delta or None}
        return ", ".join(f"{name} {float(amount):.6g}" for name, amount in amounts.items() if amount is not None)


def check_period(name: object) -> str:
    """Return the name of a period, or say what is wrong with it."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise InvalidParameterError(
            "A period is named with letters from a to z, digits, - and _, at most 40 of them, such as '2026-11'."
        )
    return name


def period_of(name: str, terms: Terms, agreed: Terms) -> Period:
    """Return a period with these terms, if it can be added up with the one that is agreed now."""
    for what in ("unit", "adjacency", "group_size"):
        if getattr(terms, what) != getattr(agreed, what):
            raise InvalidParameterError(
                f"The period {name} has another {what.replace('_', ' ')}, so the promises can't be added up. Keep it, "
                "or begin with a new policy and say so to the people in the data."
            )
    if (terms.rho is None) != (agreed.rho is None):
        raise InvalidParameterError(
            f"The period {name} has another measure of its budget (epsilon or rho), so the promises can't be added up."
        )
    return Period(name, terms.epsilon, terms.rho, terms.delta)


def together(periods: Sequence[Period]) -> Period:
    """Return what all periods promise together: the composition, which is the sum.

    >>> each = Period("a", Fraction(1), None, Fraction(1, 10**6))
    >>> together([each, each]).promise()
    'epsilon 2, delta 2e-06'
    """
    sums = {
        what: sum((amount for one in periods if (amount := getattr(one, what)) is not None), Fraction(0))
        for what in ("epsilon", "rho", "delta")
    }
    in_rho = periods[0].rho is not None
    return Period(
        f"{len(periods)} periods", None if in_rho else sums["epsilon"], sums["rho"] if in_rho else None, sums["delta"]
    )


def period_value(number: int, period: Period) -> str:
    """Return a period as the value of a fact: a JSON list of pairs, like those of other facts."""
    amounts = (("epsilon", period.epsilon), ("rho", period.rho), ("delta", period.delta))
    return json.dumps([["number", str(number)], *([name, str(own)] for name, own in amounts if own is not None)])


def periods_in(facts: Sequence[Fact]) -> tuple[Period, ...]:
    """Return the periods that a ledger knows, its own last."""
    found = []
    for fact in facts:
        if fact.kind == KIND:
            said = dict(json.loads(fact.value))
            epsilon, rho = (Fraction(said[name]) if name in said else None for name in ("epsilon", "rho"))
            found.append((int(said["number"]), Period(fact.subject, epsilon, rho, Fraction(said["delta"]))))
    return tuple(period for _, period in sorted(found, key=lambda one: one[0]))


def check_recorded(recorded: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Refuse periods that differ from those that a ledger knows: an earlier promise is never left out."""
    for name, value in recorded.items():
        if given.get(name) != value:
            why = "its place or its promise differs" if name in given else "it is left out"
            raise LedgerMismatch(
                f"This ledger knows the period {name}, and {why}. Every earlier promise counts. Name the same periods "
                f"in the same order: {', '.join(recorded)}."
            )
