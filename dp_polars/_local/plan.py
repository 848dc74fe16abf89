"""The plan of randomized responses, the local model. It never sees data.

One unit changes one response, whose probabilities move by a factor of at most e**epsilon. `group_size` units change as
many independent responses, so their epsilons add up. The number of responses is not hidden: in a "replace" session it
is the same for neighbours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import polars as pl

from dp_polars._plan.base import USUALLY, Facts, FramePlan, StoredPlan, protected_text, pure_spend
from dp_polars._plan.digest import public_digest
from dp_polars._plan.query import UNIT_STEP, Spend
from dp_polars._session.cost import Cost
from dp_polars._session.prices import check_price, pure_cost
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.randomized_response import Channel, channel_of

_KEEP_ALL_ROWS = ("with_columns", "over", "select", "drop", "rename", "SQL table")


@dataclass(frozen=True, kw_only=True, repr=False)
class ResponsePlan(FramePlan, StoredPlan):
    """What randomized response will do to a column, and what it costs. Prints as a table.

    Attributes
    ----------
    name, expression
        The name of the column, and its expression as canonical text.
    categories, rule
        All possible responses, and where they came from.
    channel
        The probabilities of each response.
    """

    question: ClassVar[str] = "randomized_response"

    name: str
    expression: str
    categories: pl.Series
    rule: str
    channel: Channel

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of each response. `dp.estimate_frequencies` takes it, unless there is a `resample`."""
        return self.channel.epsilon

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The one column of the answer."""
        return {self.name: self.categories.dtype}

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal questions, in every process. Stored responses are found by them."""
        plain = [
            "randomized_response", self.name, self.expression, public_digest(self.categories.to_frame()),
            str(self.channel.epsilon), str(self.channel.resample), self.unit, self.steps, self.unchecked,
        ]  # fmt: skip
        return json.dumps(plain).encode()

    def summary(self) -> str:
        """Return what is asked, for the ledger."""
        law = f"epsilon {float(self.epsilon):.6g} each"
        if self.channel.resample is not None:
            law = f"resample {float(self.channel.resample):.6g}, {law}"
        return f"randomized_response of {self.name}, {self.channel.size} categories, {law}"

    def title(self) -> str:
        """Return the question in a few words."""
        return f"randomized_response of {self.name}"

    def protects(self) -> str:
        """Return who is protected against what, in words."""
        return protected_text(self.terms, self.unit, what=": values, not presence")

    def noise_in_short(self) -> str:
        """Return what hides a value, in a few words."""
        return f"each response is the truth with probability {self.channel.truthful:.4g}"

    def error_in_short(self) -> str:
        """Return how far off an estimated frequency may be."""
        return f"an estimated frequency is within {1.96 * self.channel.deviation(0.5):.4g} / sqrt(n), {USUALLY}"

    def facts(self) -> Facts:
        """Return the rows about the categories and their probabilities."""
        channel = self.channel
        form = "the truth, or else one of the other categories"
        if channel.resample is not None:
            form = f"the truth, or with probability {float(channel.resample):.6g} any category (resample)"
        return [
            ("rows", "one response of each unit, in random order"),
            ("categories", f"{channel.size} ({self.rule})"),
            ("form", form),
            ("truth", f"with probability {channel.truthful:.6g}, each other category {channel.other:.6g}"),
            ("epsilon of each response", f"{float(self.epsilon):.6g}"),
        ]

    def accuracy(self) -> Facts:
        """Return the standard error of an estimated frequency."""
        error = self.channel.deviation(0.5)
        return [("standard error", f"{error:.6g} / sqrt(n) of a frequency of 1/2 among n units")]


def channel_and_cost(terms: Terms, size: int, spend: Spend | None, resample: Fraction | None) -> tuple[Channel, Cost]:
    """Return the probabilities of a response and the price of all responses, from a spend or from `resample`.

    `epsilon=` is the epsilon of each response, and the price is `group_size` times that. A share or a rho is the whole
    price, which the responses of `group_size` units divide.
    """
    units = terms.group_size
    if spend is None or spend.epsilon is not None:
        channel = channel_of(size, None if spend is None else spend.epsilon, resample)
        cost = pure_cost(channel.epsilon * units)
        check_price(terms, cost)
        return channel, cost
    whole, cost = pure_spend(terms, spend, "a response")
    return Channel(size=size, epsilon=whole / units), cost


def check_presence(terms: Terms, steps: tuple[str, ...]) -> None:
    """Refuse questions whose number of responses would reveal something: responses hide values, not presence."""
    if terms.adjacency != "replace":
        raise InvalidParameterError(
            "Randomized response hides what each unit says, not whether it is there: one row comes back for each unit. "
            "That protects only in a session with adjacency='replace'. Open such a session, or ask for noisy "
            "frequencies in this one: df.dp.count(column, ...)."
        )
    for step in steps:
        kind, detail = json.loads(step)[:2]
        if kind == UNIT_STEP and detail[0] != "coarser":
            continue
        if kind == UNIT_STEP:
            raise InvalidParameterError(
                "With a coarser unit than the session's, the number of responses could change with one of the "
                "session's units, and randomized response does not hide it. Ask with the session's own unit."
            )
        if kind not in _KEEP_ALL_ROWS and not (kind == "join" and detail["how"] == "left"):
            what = f"{detail['how']} join" if kind == "join" else kind
            raise InvalidParameterError(
                f"After a {what} the number of responses would reveal how many units are left, which randomized "
                "response does not hide. Ask the frame without this step: make the condition a category of the column "
                "with with_columns(pl.when(...).then(...)), or join with how='left'."
            )
