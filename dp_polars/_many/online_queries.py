"""`dp.OnlineQueries`: what `online_queries` returns. It answers one predicate after another."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

import polars as pl

from dp_polars._frame.options import ExpressionLike
from dp_polars._frame.question import no_panics
from dp_polars._many.online_plan import OnlinePlan
from dp_polars._many.online_release import OnlineAnswer, OnlineStream
from dp_polars._many.predicates import Predicates
from dp_polars._streams.queries import asked_text
from dp_polars.errors import InvalidParameterError

WEIGHT = "weight"


class OnlineQueries:
    """Answers very many counting questions over a public domain after one charge. Made by `online_queries`.

    Most answers come from a public hypothesis and are free. Each time it is compared with the data, and where it is far
    off it learns a noisy count, at most `max_updates` times.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> people = pl.DataFrame({"user": range(1000), "member": [True, False] * 500, "region": ["n", "s"] * 500})
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> domain = {"member": None, "region": ["n", "s"]}
    >>> online = dp.private(people, session).online_queries(domain, alpha=0.1, max_updates=5, epsilon=0.5)
    >>> first = online.ask(pl.col("member"))
    >>> others = online.ask_many([pl.col("region") == "n", pl.col("member") & (pl.col("region") == "s")])
    >>> len(others), online.updates_left <= 5, online.distribution().columns
    (2, True, ['member', 'region', 'weight'])
    """

    def __init__(self, stream: OnlineStream) -> None:
        self._stream = stream
        self._predicates = Predicates(stream.plan.domain)

    @no_panics
    def ask(self, predicate: ExpressionLike) -> OnlineAnswer:
        """Return how many rows fulfil a condition.

        Parameters
        ----------
        predicate
            A row-wise condition over the domain's columns. The value of a binned column is the lower edge of the bin,
            so `pl.col("age") < 18` is exact if 18 is an edge.

        Returns
        -------
        OnlineAnswer
            The count and its fraction, whether it was free and checked, and how many updates are left.
        """
        self._stream.refuse_copies()
        with self._asking([predicate]):
            return self._stream.ask(*self._predicates.cells(self._predicates.check(predicate, "ask")))

    @no_panics
    def ask_many(self, predicates: Iterable[ExpressionLike]) -> list[OnlineAnswer]:
        """Answer several conditions in order. All of them are checked before the first one is asked."""
        if isinstance(predicates, str | pl.Expr) or not isinstance(predicates, Iterable):
            raise InvalidParameterError("ask_many takes a list of conditions; for a single one use ask.")
        self._stream.refuse_copies()
        asked = list(predicates)
        with self._asking(asked):
            checked = [self._predicates.check(predicate, "ask_many") for predicate in asked]
            return [self._stream.ask(*self._predicates.cells(condition)) for condition in checked]

    def _asking(self, predicates: list[ExpressionLike]) -> AbstractContextManager[None]:
        """Record what an analyst asks in the audit log."""
        questions = self._stream.questions
        return (
            nullcontext()
            if questions is None
            else questions.asking([asked_text(predicate) for predicate in predicates])
        )

    @no_panics
    def distribution(self) -> pl.DataFrame:
        """Return the hypothesis: the domain's columns and the `weight` of each cell."""
        weights = pl.Series(WEIGHT, self._stream.weights().ravel())
        return self.plan.domain.frame().with_columns(weights)

    @property
    def plan(self) -> OnlinePlan:
        """The plan that was paid for when the queries were opened."""
        return self._stream.plan

    @property
    def size(self) -> int:
        """The noisy number of rows in the domain, at least 1."""
        return self._stream.size

    @property
    def updates_left(self) -> int:
        """How many times the hypothesis can still learn."""
        return self._stream.updates_left

    def __repr__(self) -> str:
        names = ", ".join(self.plan.domain.names)
        return (
            f"<dp.OnlineQueries over {names}: {self.plan.domain.size:,} cells, {self.updates_left:,} of "
            f"{self.plan.max_updates:,} updates left>"
        )

    def __reduce__(self) -> NoReturn:
        raise InvalidParameterError("Online queries can't be copied: two copies would answer for the price of one.")
