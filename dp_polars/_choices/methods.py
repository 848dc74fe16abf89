"""The methods of a private frame that choose among candidates: `noisy_max`, `noisy_min`, `top_k`, `select_best`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Never, TypeVar

import polars as pl

from dp_polars._aggregates.values import Bounds
from dp_polars._choices.question import BestChoice, Choice, Score, ScoreOf, best_question, choice_question
from dp_polars._frame.options import By, ChoiceOptions, ExpressionLike, PublicKeys, options_in
from dp_polars._frame.question import FrameMethods, named
from dp_polars._numbers import Number
from dp_polars._session.session import Session

Answer = TypeVar("Answer")


class Choices(FrameMethods, Generic[Answer]):
    """Choose the candidates with the best scores. Only their names are released; use `count` for the numbers."""

    def _choose(self, choice: Choice, by: By, options: ChoiceOptions) -> Answer:
        chosen: Answer = self._resolve(
            options, named(choice.kind, lambda view: choice_question(view, choice, by, options))
        )
        return chosen

    def noisy_max(
        self, column: ExpressionLike, candidates: Sequence[Any] | pl.Series | None = None, by: By = None, *,
        score: Score = "rows",
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        delta: Number | None = None, keys: PublicKeys | None = None, max_groups: int | None = None,
        max_rows_per_group: int | None = None, fresh: bool = False, label: str | None = None,
        session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Return the value of a column that most rows have, up to noise. With `by`, one for each group.

        The noise doesn't depend on how many candidates one unit counts for: a thousand candidates that everyone may
        approve of need no more noise than two.

        Parameters
        ----------
        column
            The column whose values are the candidates: a name or a row-wise expression. Null is a candidate only if
            it is listed.
        candidates
            The public candidates. Enum and Boolean columns don't need them. In a session with a delta they can be
            discovered; a group without a clear winner then has no row.
        by
            The grouping keys.
        score
            What a candidate is chosen by: "rows", "units", `dp.count("x")` or `dp.sum("x", bounds=(0, 100))`.
        epsilon, ..., session
            The spend and the caps: see `dp.ChoiceOptions`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> votes = pl.DataFrame({"voter": range(500), "party": ["left"] * 400 + ["right"] * 100})
        >>> with dp.Session(epsilon=1.0, unit="voter"):
        ...     winner = votes.dp.noisy_max("party", ["left", "right"], score="units", epsilon=0.5)
        >>> winner["party"].to_list()
        ['left']
        """
        options = options_in(locals(), ChoiceOptions)
        return self._choose(Choice(kind="noisy_max", column=column, score=score, candidates=candidates), by, options)

    def noisy_min(
        self, column: ExpressionLike, candidates: Sequence[Any] | pl.Series | None = None, by: By = None, *,
        score: Score = "rows",
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        delta: Number | None = None, keys: PublicKeys | None = None, max_groups: int | None = None,
        max_rows_per_group: int | None = None, fresh: bool = False, label: str | None = None,
        session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Return the candidate with the lowest score, up to noise. The candidates must be public.

        The arguments are those of `noisy_max`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> votes = pl.DataFrame({"voter": range(500), "party": ["left"] * 400 + ["right"] * 100})
        >>> with dp.Session(epsilon=1.0, unit="voter"):
        ...     votes.dp.noisy_min("party", ["left", "right"], score="units", epsilon=0.5)["party"].to_list()
        ['right']
        """
        options = options_in(locals(), ChoiceOptions)
        return self._choose(Choice(kind="noisy_min", column=column, score=score, candidates=candidates), by, options)

    def top_k(
        self, column: ExpressionLike, k: int, candidates: Sequence[Any] | pl.Series | None = None, by: By = None, *,
        score: Score = "rows",
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        delta: Number | None = None, keys: PublicKeys | None = None, max_groups: int | None = None,
        max_rows_per_group: int | None = None, fresh: bool = False, label: str | None = None,
        session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Return the `k` candidates with the highest scores, up to noise. The column `rank` is 1 for the first.

        If candidates are discovered, fewer than `k` are returned where no more of them stand out. The other arguments
        are those of `noisy_max`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> votes = pl.DataFrame({"voter": range(900), "party": ["a"] * 600 + ["b"] * 300})
        >>> with dp.Session(epsilon=1.0, unit="voter"):
        ...     votes.dp.top_k("party", 2, ["a", "b", "c"], score="units", epsilon=0.5).rows()
        [(1, 'a'), (2, 'b')]
        """
        options = options_in(locals(), ChoiceOptions)
        return self._choose(Choice(kind="top_k", column=column, score=score, candidates=candidates, k=k), by, options)

    def select_best(
        self, candidates: Sequence[Any] | pl.Series, score: ScoreOf, bounds: Bounds = None, by: By = None, *,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        delta: Number | None = None, keys: PublicKeys | None = None, max_groups: int | None = None,
        max_rows_per_group: int | None = None, fresh: bool = False, label: str | None = None,
        session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Return the candidate whose score, summed over all rows, is the largest, up to noise.

        Parameters
        ----------
        candidates
            The public candidates: numbers, texts or dates.
        score
            A function that takes a candidate as an expression and returns a row-wise expression: what a row adds to
            the score of this candidate.
        bounds
            The least and the largest value that one row adds. Values outside are clipped, and the noise grows with
            the bounds.
        by
            The grouping keys, whose values must be public.
        epsilon, ..., session
            The spend and the caps: see `dp.ChoiceOptions`. If a unit has more than `max_rows_per_group` rows in a
            group, that many are chosen at random.

        Returns
        -------
        polars.DataFrame
            The keys and a column `candidate`.

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
        options = options_in(locals(), ChoiceOptions)
        choice = BestChoice(candidates=candidates, score=score, bounds=bounds)
        chosen: Answer = self._resolve(
            options, named("select_best", lambda view: best_question(view, choice, by, options))
        )
        return chosen
