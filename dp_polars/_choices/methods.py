"""Choices among candidates on a private frame: `noisy_max`, `noisy_min`, `top_k`, `select_best`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, Unpack

import polars as pl

from dp_polars._aggregates.base import AggregateCall
from dp_polars._aggregates.values import Bounds
from dp_polars._frame.options import By, ChoiceOptions, ExpressionLike

Answer = TypeVar("Answer")
Score = AggregateCall | Literal["rows", "units"]
ScoreOf = Callable[[pl.Expr], pl.Expr]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A choice in a user's words: among the values of a column, or of candidates by a score of their own."""

    kind: Literal["noisy_max", "noisy_min", "top_k"]
    column: ExpressionLike
    score: Score
    candidates: Any
    k: int = 1


@dataclass(frozen=True, kw_only=True)
class BestChoice:
    """A choice of the candidate with the largest sum of a score over rows, in a user's words."""

    candidates: Any
    score: ScoreOf
    bounds: Bounds


class Choices(Generic[Answer]):
    """Which candidates have the best scores. Only their names come back; ask `count` for the numbers."""

    @abstractmethod
    def _choose(self, choice: Choice | BestChoice, by: By, options: ChoiceOptions) -> Answer: ...

    def noisy_max(
        self,
        column: ExpressionLike,
        candidates: Sequence[Any] | pl.Series | None = None,
        by: By = None,
        *,
        score: Score = "rows",
        **options: Unpack[ChoiceOptions],
    ) -> Answer:
        """Return the value of a column that most rows have, or nearly so; with `by`, of each group.

        However many values a unit has, it costs no more: a thousand candidates that everyone may approve of need no
        more noise than two.

        Parameters
        ----------
        column
            Whose values are the candidates: a name or a row-wise expression. Null is one only if it is listed.
        candidates
            The public candidates. Not needed for Enum and Boolean columns; with a delta they can be discovered, and
            then a group without a clear winner has no row.
        by
            The grouping keys.
        score
            What a candidate is chosen by: "rows", "units", or `dp.count("x")` or `dp.sum("x", bounds=(0, 100))`.
        **options
            The spend and the bounds: see `dp.ChoiceOptions`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> votes = pl.DataFrame({"voter": range(500), "party": ["left"] * 400 + ["right"] * 100})
        >>> with dp.Session(epsilon=1.0, unit="voter"):
        ...     winner = votes.dp.noisy_max("party", ["left", "right"], score="units", epsilon=0.5)
        >>> winner["party"].to_list()
        ['left']
        """
        return self._choose(Choice(kind="noisy_max", column=column, score=score, candidates=candidates), by, options)

    def noisy_min(
        self,
        column: ExpressionLike,
        candidates: Sequence[Any] | pl.Series | None = None,
        by: By = None,
        *,
        score: Score = "rows",
        **options: Unpack[ChoiceOptions],
    ) -> Answer:
        """Return the candidate with the lowest score, or nearly so. Candidates must be public.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> votes = pl.DataFrame({"voter": range(500), "party": ["left"] * 400 + ["right"] * 100})
        >>> with dp.Session(epsilon=1.0, unit="voter"):
        ...     votes.dp.noisy_min("party", ["left", "right"], score="units", epsilon=0.5)["party"].to_list()
        ['right']
        """
        return self._choose(Choice(kind="noisy_min", column=column, score=score, candidates=candidates), by, options)

    def top_k(
        self,
        column: ExpressionLike,
        k: int,
        candidates: Sequence[Any] | pl.Series | None = None,
        by: By = None,
        *,
        score: Score = "rows",
        **options: Unpack[ChoiceOptions],
    ) -> Answer:
        """Return the `k` candidates with the highest scores, one after another: `rank` is 1 for the first.

        Fewer than `k` where candidates are discovered and no more of them stand out. Arguments are those of
        `noisy_max`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> votes = pl.DataFrame({"voter": range(900), "party": ["a"] * 600 + ["b"] * 300})
        >>> with dp.Session(epsilon=1.0, unit="voter"):
        ...     votes.dp.top_k("party", 2, ["a", "b", "c"], score="units", epsilon=0.5).rows()
        [(1, 'a'), (2, 'b')]
        """
        return self._choose(Choice(kind="top_k", column=column, score=score, candidates=candidates, k=k), by, options)

    def select_best(
        self,
        candidates: Sequence[Any] | pl.Series,
        score: ScoreOf,
        bounds: Bounds = None,
        by: By = None,
        **options: Unpack[ChoiceOptions],
    ) -> Answer:
        """Return the candidate with the largest sum of a score over all rows, or nearly so.

        Parameters
        ----------
        candidates
            What is chosen from: numbers, texts, dates.
        score
            Takes a candidate as an expression and returns a row-wise expression: what a row adds to its score.
        bounds
            The least and the largest that one row adds; what is beyond is clipped. They decide the noise.
        by
            Grouping keys, which must be public.
        **options
            The spend and the bounds: see `dp.ChoiceOptions`. Of a unit with more than `max_rows_per_group` rows in a
            group, that many chosen at random count.

        Returns
        -------
        polars.DataFrame
            With a column `candidate`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> bids = pl.DataFrame({"bidder": range(400), "bid": [1.0] * 300 + [3.01] * 100})
        >>> with dp.Session(epsilon=1.0, unit="bidder", max_rows_per_group=1):
        ...     price = bids.dp.select_best(
        ...         [0.5, 1.0, 3.01],
        ...         lambda price: pl.when(pl.col("bid") >= price).then(price).otherwise(0),
        ...         bounds=(0, 5),
        ...         epsilon=0.9,
        ...     )
        >>> price.columns
        ['candidate']
        """
        return self._choose(BestChoice(candidates=candidates, score=score, bounds=bounds), by, options)
