"""The plan of randomized responses: the local model. It holds no data.

What one unit can change: its one response, whose law moves by a factor of at most e**epsilon; `group_size` units change
as many independent responses, so their epsilons add up. How many responses there are is not hidden: under "replace" it
is the same for neighbours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction

import polars as pl

from dp_polars._display.fact_table import AsTable
from dp_polars._plan.description import price_text, protected_text, steps_text, unit_text
from dp_polars._plan.pure_spend import pure_opening
from dp_polars._plan.query import UNIT_STEP, Spend, public_digest
from dp_polars._session.cost import Cost
from dp_polars._session.minimum_price import check_price
from dp_polars._session.pricing import pure_cost
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.randomized_response import Channel, channel_of

_KEEP_ALL_ROWS = ("with_columns", "select", "drop", "rename", "SQL table")


@dataclass(frozen=True, kw_only=True, repr=False)
class ResponsePlan(AsTable):
    """What will happen to a column that is released by randomized response.

    Attributes
    ----------
    name, expression
        The column: its name, and its expression as canonical text.
    categories, rule
        All possible responses, and where they came from, in words.
    channel
        The law of each response.
    cost
        The price of all.
    """

    name: str
    expression: str
    categories: pl.Series
    rule: str
    channel: Channel
    cost: Cost
    terms: Terms
    unit: tuple[str, ...]
    steps: tuple[str, ...]
    unchecked: bool

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of each response: what `dp.estimate_frequencies` takes, if there is no `resample`."""
        return self.channel.epsilon

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The one column of the answer."""
        return {self.name: self.categories.dtype}

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal questions, in every process."""
        plain = [
            "randomized_response", self.name, self.expression, public_digest(self.categories.to_frame()),
            str(self.channel.epsilon), str(self.channel.resample), self.unit, self.steps, self.unchecked,
        ]  # fmt: skip
        return json.dumps(plain).encode()

    def label(self) -> str:
        """Return a short public description for the ledger."""
        law = f"epsilon {float(self.epsilon):.6g} each"
        if self.channel.resample is not None:
            law = f"resample {float(self.channel.resample):.6g}, {law}"
        unit = unit_text(self.terms, self.unit)
        return f"randomized_response of {self.name}, {self.channel.size} categories, {law}, {unit}"

    def rows(self) -> list[tuple[str, str]]:
        """Return what it says of itself, as names and texts."""
        channel = self.channel
        form = "the truth, or else one of the other categories"
        if channel.resample is not None:
            form = f"the truth, or with probability {float(channel.resample):.6g} any category (resample)"
        rows = [
            ("query", f"randomized_response of {self.name}{steps_text(self.steps)}"),
            ("protects", f"{protected_text(self.terms, self.unit)}: values, not presence"),
            ("rows", "one response of each unit, in random order"),
            ("categories", f"{channel.size} ({self.rule})"),
            ("form", form),
            ("truth", f"with probability {channel.truthful:.6g}, each other category {channel.other:.6g}"),
            ("epsilon of each response", f"{float(self.epsilon):.6g}"),
            ("price", price_text(self.terms, self.cost)),
            ("standard error", f"{channel.deviation(0.5):.6g} / sqrt(n) of a frequency of 1/2 among n units"),
        ]
        if self.unchecked:
            rows.append(("unchecked", "a step was not checked; the guarantee rests on the user's word"))
        return rows


def channel_and_cost(terms: Terms, size: int, spend: Spend | None, resample: Fraction | None) -> tuple[Channel, Cost]:
    """Return the law of a response and the price of all, of a spend or of the classroom form.

    `epsilon=` is each response's own, and the price is that for each of `group_size` units; a share or a rho is the
    whole price, of which each response has its part.
    """
    units = terms.group_size
    if spend is None or spend.epsilon is not None:
        channel = channel_of(size, None if spend is None else spend.epsilon, resample)
        cost = pure_cost(channel.epsilon * units)
        check_price(terms, cost)
        return channel, cost
    whole, cost = pure_opening(terms, spend, "a response")
    return Channel(size=size, epsilon=whole / units), cost


def check_presence(terms: Terms, steps: tuple[str, ...]) -> None:
    """Refuse where the number of responses would tell something: they hide values, not who is there."""
    if terms.adjacency != "replace":
        raise InvalidParameterError(
            "Randomized response hides what each unit says, not whether it is there: one row comes back for each. That "
            "protects in a session with adjacency='replace' only. Open one for it, or ask for noisy frequencies in "
            "this one: df.dp.count(column, ...)."
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
                f"After a {what} the number of responses would tell how many units are left, which randomized response "
                "does not hide. Ask the frame without it: make what it looks at a category of the column, with "
                "with_columns(pl.when(...).then(...)), or join with how='left'."
            )
