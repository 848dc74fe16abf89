"""The local model: a column of randomized responses, one of each unit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar, Unpack, cast

import polars as pl

from dp_polars._engines.polars.rows import PrivateRows
from dp_polars._expressions import apply
from dp_polars._expressions.check import check_expression
from dp_polars._frame.options import ExpressionLike, Options, check_options, spend_of
from dp_polars._frame.queries import View, check_unit, unit_columns
from dp_polars._local.plan import ResponsePlan, channel_and_cost, check_presence
from dp_polars._numbers import Number, exact
from dp_polars._plan.query import Spend
from dp_polars._session.session import Session
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms.randomized_response import categories_of

Answer = TypeVar("Answer")


class ResponseOptions(TypedDict, total=False):
    """Options of randomized responses.

    Attributes
    ----------
    epsilon
        The epsilon of each response; charged for each of the session's `group_size` units.
    share, rho
        Instead: the whole price, as a part of the session's budget or as its rho.
    fresh
        Pays for new responses although the same release is stored.
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
    """The words of a call."""

    column: ExpressionLike
    categories: Sequence[Any] | None
    resample: Number | None
    options: ResponseOptions

    @property
    def general(self) -> Options:
        """The options, as those of any question."""
        return cast(Options, self.options)


@dataclass(frozen=True)
class ResponseQuestion:
    """A plan and the rows it will be asked of: `unit0`, ... and `value`."""

    plan: ResponsePlan
    rows: PrivateRows
    session: Session


class Responses(Generic[Answer]):
    """Randomized responses of a private frame, or their plan."""

    @abstractmethod
    def _ask_responses(self, asking: Asking) -> Answer: ...

    def randomized_response(
        self,
        column: ExpressionLike,
        *,
        categories: Sequence[Any] | None = None,
        resample: Number | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Answer:
        """Return a random category for each unit, which is the true one more often than any other.

        The answer has this column alone, one row of each unit (of several rows one is chosen at random; rows without a
        unit are left out), in random order. `dp.estimate_frequencies` tells how frequent each category was.

        It hides values, not who is there: it is for sessions with `adjacency="replace"`, and for frames without a
        filter or an inner, semi or anti join.

        Parameters
        ----------
        column
            The values: a name or a row-wise expression. Boolean, Enum, text, whole numbers or dates.
        categories
            Every possible value, fixed without looking at the data; None can be one of them. Of Boolean and Enum all
            values and null, if not given. A value that is not listed is answered by a uniformly random category.
        resample
            Instead of a spend, the classroom form: with this probability a response is a uniformly random category,
            else the truth. Of k categories the epsilon of each response is ln(1 + k * (1 - resample) / resample).
        **options
            `epsilon` (of each response; the price is `group_size` times that), `share` or `rho` (the whole price),
            `fresh` and `session`.

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
        return self._ask_responses(Asking(column, categories, resample, options))


def response_question_of(view: View, asking: Asking) -> ResponseQuestion:
    """Return the question that a call means, or say what is missing. Nothing is read or spent."""
    check_options(asking.general, "randomized_response", ResponseOptions)
    terms, schema = view.terms, view.rows.schema
    check_presence(terms, view.steps)
    check_unit(view.unit, schema)
    checked = check_expression(asking.column, schema=schema, what="randomized_response")
    tree = checked.tree
    if isinstance(tree.dtype, pl.Categorical):  # its codes follow the data; a released column is text
        tree = apply("cast", tree, to=pl.String())
    dtype = tree.dtype
    try:
        categories = categories_of(dtype, asking.categories)
    except InvalidDataError as problem:  # of the type, not of a value
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
    return ResponseQuestion(plan, rows, view.session)


def _law(asking: Asking, session: Session) -> tuple[Spend | None, Any]:
    """Return what a response may cost, or with which probability it is resampled."""
    said = [name for name in ("epsilon", "share", "rho") if asking.options.get(name) is not None]
    if asking.resample is not None:
        if said:
            raise InvalidParameterError(f"resample= is the law of a response, and so its price: leave {said[0]}= out.")
        return None, exact(asking.resample, "resample")
    if not said and session.defaults.queries is None:
        raise InvalidParameterError(
            "What may these responses cost? Say epsilon=1.0 (of each response), share=0.1 (of the session) or rho=; or "
            "resample=0.5, the probability with which a response is a uniformly random category."
        )
    return spend_of(asking.general, session), None


def _kind(dtype: pl.DataType) -> str:
    return "Boolean" if dtype == pl.Boolean else "the Enum"
