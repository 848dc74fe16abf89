"""`dp.Stream`, which answers many questions for one price, and the methods of a private frame that open it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, Never, NoReturn, TypeVar

import polars as pl

from dp_polars._aggregates.base import AggregateCall
from dp_polars._frame.adopted import adopted_bounds, adopted_cap
from dp_polars._frame.aggregate_question import check_unit
from dp_polars._frame.options import (
    ExpressionLike,
    OpeningOptions,
    cap_of,
    check_options,
    labelled,
    options_in,
    spend_of,
)
from dp_polars._frame.question import FrameMethods, Origin, Question, View, no_panics
from dp_polars._numbers import Number
from dp_polars._sampling import SYSTEM_BITS
from dp_polars._session.session import Session
from dp_polars._streams.plan import StreamPlan, shown, stream_plan
from dp_polars._streams.queries import AdoptedBounds, asked_text, no_bounds, query_of
from dp_polars._streams.release import OpenStream, closed, open_stream
from dp_polars.errors import InvalidParameterError

Opened = TypeVar("Opened")
StreamQuestion = ExpressionLike | bool | AggregateCall


class Stream:
    """An open stream. It answers one question after another until its hits are used up.

    Its whole price was paid when it was opened with `df.dp.sparse_vector` or `df.dp.above_threshold`. It answers from
    the rows as they were then, and holds them in memory until it is closed. Threads can share it, but it can't be
    copied.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = pl.DataFrame({"user": range(10_000), "age": [age % 80 for age in range(10_000)]})
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> stream = dp.private(visits, session).sparse_vector(4_000, hits=1, epsilon=1.0)
    >>> stream.ask(pl.col("age") >= 79)
    False
    >>> stream.ask_many([pl.col("age") >= 60, pl.col("age") >= 20, pl.col("age") >= 0])
    [False, True]
    >>> stream
    <dp.Stream above 4,000, 0 of 1 hits left, epsilon 1, closed>
    >>> stream.hits_left, stream.closed
    (0, True)
    """

    def __init__(
        self, plan: StreamPlan, opened: OpenStream, schema: pl.Schema, bounds: AdoptedBounds = no_bounds
    ) -> None:
        self._plan, self._opened, self._schema, self._bounds = plan, opened, schema, bounds

    @property
    def plan(self) -> StreamPlan:
        """The plan that was paid for when the stream was opened."""
        return self._plan

    @property
    def hits_left(self) -> int:
        """How many more answers can be above the threshold."""
        return self._opened.hits_left

    @property
    def closed(self) -> bool:
        """Whether all hits are used up. Then nothing more can be asked."""
        return not self.hits_left

    def ask(self, query: StreamQuestion) -> bool | float | None:
        """Return whether an answer is above the threshold, up to noise. With `numeric=True`, its noisy value or None.

        Parameters
        ----------
        query
            A condition (a row-wise expression that is true or false, or the name of a Boolean column), which counts
            the rows or units for which it is true; or `dp.count()`, `dp.count("x")`, `dp.count_units()` or
            `dp.sum("x", bounds=(0, 100))`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> stream = visits.sparse_vector(6_000, epsilon=1.0)
        >>> stream.ask(pl.col("km") > 3), stream.ask(dp.sum("km", bounds=(0, 10)))
        (False, True)
        """
        found = self._ask([query])
        if not found:  # another thread got the last hit
            raise closed()
        return found[0]

    def ask_many(self, queries: Iterable[StreamQuestion]) -> list[bool | float | None]:
        """Answer several questions in order, in one pass over the rows. The answers end with the last hit.

        All questions are checked first: if one is refused, none is asked.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> visits.above_threshold(6_000, epsilon=1.0).ask_many([pl.col("km") > 3, pl.col("km") > 1, pl.col("km") > 0])
        [False, True]
        """
        if isinstance(queries, str | bytes | pl.Expr | AggregateCall | dict) or not isinstance(queries, Iterable):
            raise InvalidParameterError("ask_many takes a list of questions; for a single one use ask.")
        return self._ask(list(queries))

    @no_panics
    def _ask(self, queries: list[StreamQuestion]) -> list[bool | float | None]:
        self._opened.refuse_copies()
        with self._opened.questions.asking([asked_text(query) for query in queries]):
            if self.closed:
                raise closed()
            return self._opened.ask([query_of(query, self._plan, self._schema, self._bounds) for query in queries])

    def __reduce__(self) -> NoReturn:
        raise InvalidParameterError("A stream can't be copied: two copies would answer for the price of one.")

    def __repr__(self) -> str:
        plan, state = self._plan, "closed" if self.closed else "open"
        left = f"{self.hits_left:,} of {plan.hits:,} hits left"
        return f"<dp.Stream above {shown(plan.threshold)}, {left}, epsilon {float(plan.epsilon):.6g}, {state}>"


class Streams(FrameMethods, Generic[Opened]):
    """Open streams, with the options of `dp.OpeningOptions`."""

    def above_threshold(
        self, threshold: Number, *, of: Literal["rows", "units"] = "rows", monotone: bool = False,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        max_rows_per_group: int | None = None, label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Opened:  # fmt: skip
        """Open a stream that ends with the first answer above a threshold: `sparse_vector` with one hit.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": range(10_000), "age": [age % 80 for age in range(10_000)]})
        >>> with dp.Session(epsilon=1.0, unit="user"):
        ...     stream = visits.dp.above_threshold(4_000, of="units", monotone=True, epsilon=0.5)
        >>> stream.ask(pl.col("age") >= 60), stream.ask(pl.col("age") >= 20), stream.closed
        (False, True, True)
        """
        options = options_in(locals(), OpeningOptions)
        return self.sparse_vector(threshold, of=of, monotone=monotone, **options)

    def sparse_vector(
        self, threshold: Number, *, hits: int = 1, numeric: bool = False, monotone: bool = False,
        of: Literal["rows", "units"] = "rows",
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        max_rows_per_group: int | None = None, label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Opened:  # fmt: skip
        """Open a stream of questions: it says which answers lie above a threshold, and only hits are paid for.

        The whole price is charged and the rows are read now, even those of a LazyFrame. Asking costs nothing until the
        last hit, for at most a million questions. The rows stay in memory until then, so `select` only the columns that
        you will ask about.

        Parameters
        ----------
        threshold
            The number that answers are compared with.
        hits
            The number of answers above the threshold after which the stream is closed. The noise grows with it.
        numeric
            Release the noisy value of each answer above the threshold. A third of the spend pays for the values.
        monotone
            Take only questions whose answers can't fall when a unit is added: counts, and sums of values that are not
            negative. This needs less noise, and works only in "add_remove" sessions.
        of
            What a condition counts: rows, or units that have such a row.
        epsilon, ..., session
            The spend (`epsilon=`, `share=` or `rho=`), `max_rows_per_group=` (how many rows of a unit count, chosen
            at random once; not needed to count units) and `session=`: see `dp.OpeningOptions`.

        Returns
        -------
        Stream
            Has `ask`, `ask_many`, `hits_left` and `closed`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": range(10_000), "day": [day % 7 for day in range(10_000)]})
        >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1):
        ...     stream = visits.dp.sparse_vector(3_000, hits=2, numeric=True, epsilon=0.5)
        >>> stream.ask_many(pl.col("day") == day for day in range(7))
        [None, None, None, None, None, None, None]
        >>> stream.hits_left
        2
        """
        options = options_in(locals(), OpeningOptions)

        def question(view: View) -> StreamOpening:
            return stream_opening(
                view, options, threshold=threshold, hits=hits, numeric=numeric, monotone=monotone, of=of
            )

        opened: Opened = self._resolve(options, question)
        return opened


@dataclass(frozen=True)
class StreamOpening(Question[StreamPlan]):
    """A planned stream, and the rows that it will be asked about."""

    bounds: AdoptedBounds = no_bounds
    """Returns the bounds that a profile suggests for a value, which questions may leave out."""

    def answer(self, origin: Origin) -> Stream:
        """Charge the price of the stream and open it."""
        opened = open_stream(self.plan, self.rows, self.session, SYSTEM_BITS)
        return Stream(opened.plan, opened, self.rows.schema, self.bounds)


def stream_opening(
    view: View,
    options: OpeningOptions,
    *,
    threshold: Number,
    hits: int,
    numeric: bool,
    monotone: bool,
    of: Literal["rows", "units"],
) -> StreamOpening:
    """Return the planned stream of a call, or raise an error that says what is missing. Nothing is read or spent."""
    check_options(options, "A stream", OpeningOptions, ("threshold", "hits", "numeric", "monotone", "of"))
    check_unit(view.unit, view.rows.schema)
    # Rows of units that are only counted once need no cap, so a profile sets none for them.
    if of == "rows":
        cap, rule = adopted_cap(options, "max_rows_per_group", view, [])[:2]
    else:
        cap, rule = cap_of(options, "max_rows_per_group", view.defaults)
    if cap == "auto":
        if of != "units" or options.get("max_rows_per_group") is not None:
            raise InvalidParameterError(
                "A stream can't estimate caps; say max_rows_per_group=10, or count units with of='units'."
            )
        cap = None
    plan = stream_plan(
        terms=view.terms,
        unit=view.unit,
        steps=view.steps,
        unchecked=view.unchecked,
        threshold=threshold,
        hits=hits,
        numeric=numeric,
        monotone=monotone,
        of=of,
        max_rows=cap,
        max_rows_rule=rule,
        spend=spend_of(options, view.session),
    )
    # A view holds the rows, so a stream keeps one only if a profile was adopted.
    bounds: AdoptedBounds = partial(adopted_bounds, view) if view.suggestions or view.rules else no_bounds
    return StreamOpening(labelled(plan, options), view.rows, view.session, bounds=bounds)
