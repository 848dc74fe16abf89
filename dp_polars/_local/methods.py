"""The method of a private frame for the local model: `randomized_response`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar, Unpack, cast

import polars as pl

from dp_polars._expressions import apply
from dp_polars._expressions.check import check_expression
from dp_polars._frame.options import ExpressionLike, Options, check_options, fresh_of, spend_of
from dp_polars._frame.queries import check_unit, unit_columns
from dp_polars._frame.question import Asker, TableQuestion, View
from dp_polars._local.plan import ResponsePlan, channel_and_cost, check_presence
from dp_polars._local.release import run_responses
from dp_polars._numbers import Number, exact
from dp_polars._plan.query import Spend
from dp_polars._release.run import Engine
from dp_polars._session.release_record import Release
from dp_polars._session.session import Session
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms.channel import categories_of

Answer = TypeVar("Answer")


class ResponseOptions(TypedDict, total=False):
    """The options of `randomized_response`.

    Attributes
    ----------
    epsilon
        The epsilon of each response. The price is `group_size` times that.
    share, rho
        Instead of epsilon: the whole price, as a share of the session's budget or as a rho.
    fresh
        Pays for new responses even if the same release is stored.
    session
        The session that pays, if not the current one.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> usual: dp.ResponseOptions = {"epsilon": 1.0, "fresh": True}
    >>> with dp.Session(epsilon=1.0, unit="user", adjacency="replace"):
    ...     pl.DataFrame({"user": [1, 2], "vote": [True, False]}).dp.randomized_response("vote", **usual).height
    2
    """

    epsilon: Number | None
    share: Number | None
    rho: Number | None
    fresh: bool
    session: Session | None


@dataclass(frozen=True)
class Asking:
    """The arguments of `randomized_response`."""

    column: ExpressionLike
    categories: Sequence[Any] | None
    resample: Number | None
    options: ResponseOptions

    @property
    def general(self) -> Options:
        """The options, in the type that all questions share."""
        return cast(Options, self.options)


@dataclass(frozen=True)
class ResponseQuestion(TableQuestion[ResponsePlan]):
    """Planned responses, and the rows with the columns `unit0`, ... and `value`."""

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The one column of the answer."""
        return self.plan.schema

    def release(self, *, name: Callable[[], bytes], engine: Engine | None = None) -> Release:
        """Return the stored responses, or charge their price and draw them."""
        return run_responses(self.plan, self.rows, self.session, name=name, fresh=self.fresh)


class Responses(Asker, Generic[Answer]):
    """Randomized responses: one random category for each unit."""

    def randomized_response(
        self,
        column: ExpressionLike,
        *,
        categories: Sequence[Any] | None = None,
        resample: Number | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Answer:
        """Return a random category for each unit, which is the true one more often than any other.

        The answer has only this column, with one row for each unit, in random order. If a unit has several rows, one is
        chosen at random. Rows without a unit are left out. `dp.estimate_frequencies` estimates from the answer how
        frequent each category was.

        Values are hidden, but not who is there. So the session must have `adjacency="replace"`, and the frame must not
        have been filtered or joined with an inner, semi or anti join.

        Parameters
        ----------
        column
            The values: a name or a row-wise expression. Boolean, Enum, text, whole numbers or dates.
        categories
            Every possible value, fixed without looking at the data; None can be one of them. The default for Boolean
            and Enum columns is all values and null. A value that is not listed is answered by a uniformly random
            category.
        resample
            Instead of a spend: with this probability a response is a uniformly random category, otherwise it is the
            truth. With k categories, the epsilon of each response is ln(1 + k * (1 - resample) / resample).
        **options
            `epsilon` (of each response; the price is `group_size` times that), `share` or `rho` (the whole price),
            `fresh` and `session`: see `dp.ResponseOptions`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> votes = pl.DataFrame({"user": range(1000), "vote": ["yes", "no"] * 500})
        >>> with dp.Session(epsilon=2.0, unit="user", adjacency="replace"):
        ...     responses = votes.dp.randomized_response("vote", categories=["yes", "no"], epsilon=1.0)
        >>> responses.shape
        (1000, 1)
        >>> dp.estimate_frequencies(responses, epsilon=1.0, categories=["yes", "no"]).columns
        ['category', 'frequency', 'standard_error']
        """
        asking = Asking(column, categories, resample, options)
        answer: Answer = self._put(asking.general, lambda view: response_question_of(view, asking))
        return answer


def response_question_of(view: View, asking: Asking) -> ResponseQuestion:
    """Return the question that a call asks, or raise an error that says what is missing. Nothing is read or spent."""
    check_options(asking.general, "randomized_response", ResponseOptions)
    terms, schema = view.terms, view.rows.schema
    check_presence(terms, view.steps)
    check_unit(view.unit, schema)
    checked = check_expression(asking.column, schema=schema, what="randomized_response")
    tree = checked.tree
    if isinstance(tree.dtype, pl.Categorical):  # its codes depend on the data, so the released column is text
        tree = apply("cast", tree, to=pl.String())
    dtype = tree.dtype
    try:
        categories = categories_of(dtype, asking.categories)
    except InvalidDataError as problem:  # about the type of the column, never about a value in it
        raise InvalidParameterError(f"{checked.name}: {problem}") from None
    spend, resample = _law(asking, view.session)
    channel, cost = channel_and_cost(terms, len(categories), spend, resample)
    plan = ResponsePlan(
        name=checked.name,
        expression=checked.canonical,
        categories=categories,
        rule="categories= in the call" if asking.categories is not None else f"all values of {_kind(dtype)}, and null",
        channel=channel,
        cost=cost,
        terms=terms,
        unit=view.unit,
        steps=view.steps,
        unchecked=view.unchecked,
    )
    rows = view.rows.make({**unit_columns(view), "value": tree}, keep=False)
    return ResponseQuestion(plan, rows, view.session, fresh_of(asking.options))


def _law(asking: Asking, session: Session) -> tuple[Spend | None, Any]:
    """Return the spend, or the probability with which a response is resampled."""
    said = [name for name in ("epsilon", "share", "rho") if asking.options.get(name) is not None]
    if asking.resample is not None:
        if said:
            raise InvalidParameterError(
                f"resample= decides the epsilon of a response, and so the price: leave {said[0]}= out."
            )
        return None, exact(asking.resample, "resample")
    if not said and session.defaults.queries is None:
        raise InvalidParameterError(
            "What may these responses cost? Say epsilon=1.0 (for each response), share=0.1 (of the session) or rho=, "
            "or resample=0.5, the probability with which a response is a uniformly random category."
        )
    return spend_of(asking.general, session), None


def _kind(dtype: pl.DataType) -> str:
    return "Boolean" if dtype == pl.Boolean else "the Enum"
