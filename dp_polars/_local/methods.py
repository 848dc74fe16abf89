"""The method of a private frame for the local model: `randomized_response`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Never, TypeVar

import polars as pl

from dp_polars._expressions import apply
from dp_polars._expressions.check import check_expression
from dp_polars._frame.aggregate_question import check_unit, unit_columns
from dp_polars._frame.options import (
    ExpressionLike,
    ResponseOptions,
    check_options,
    fresh_of,
    labelled,
    options_in,
    spend_of,
)
from dp_polars._frame.question import FrameMethods, TableQuestion, View
from dp_polars._local.plan import ResponsePlan, channel_and_cost, check_presence
from dp_polars._local.release import run_responses
from dp_polars._numbers import Number, exact
from dp_polars._plan.query import Spend
from dp_polars._release.charge import Identity
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms.randomized_response import categories_of

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class ResponseQuestion(TableQuestion[ResponsePlan]):
    """Planned responses, and the rows with the columns `unit0`, ... and `value`."""

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The one column of the answer."""
        return self.plan.schema

    def release(self, identity: Identity) -> Release:
        """Return the stored responses, or charge their price and draw them."""
        return run_responses(self.plan, self.rows, self.session, identity=identity, fresh=self.fresh)


class Responses(FrameMethods, Generic[Answer]):
    """Randomized responses: one random category for each unit."""

    def randomized_response(
        self, column: ExpressionLike, *, categories: Sequence[Any] | None = None, resample: Number | None = None,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
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
        epsilon, ..., session
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
        options = options_in(locals(), ResponseOptions)

        def question(view: View) -> ResponseQuestion:
            return response_question(view, options, column=column, categories=categories, resample=resample)

        answer: Answer = self._resolve(options, question)
        return answer


def response_question(
    view: View, options: ResponseOptions, *, column: ExpressionLike, categories: Any, resample: Any
) -> ResponseQuestion:
    """Return the question that a call asks, or raise an error that says what is missing. Nothing is read or spent."""
    check_options(options, "randomized_response", ResponseOptions)
    terms, schema = view.terms, view.rows.schema
    check_presence(terms, view.steps)
    check_unit(view.unit, schema)
    checked = check_expression(column, schema=schema, what="randomized_response")
    tree = checked.tree
    if isinstance(tree.dtype, pl.Categorical):  # its codes depend on the data, so the released column is text
        tree = apply("cast", tree, to=pl.String())
    dtype = tree.dtype
    try:
        listed = categories_of(dtype, categories)
    except InvalidDataError as problem:  # about the type of the column, never about a value in it
        raise InvalidParameterError(f"{checked.name}: {problem}") from None
    spend, probability = _spend_or_resample(options, resample, view.session)
    channel, cost = channel_and_cost(terms, len(listed), spend, probability)
    plan = ResponsePlan(
        name=checked.name,
        expression=checked.canonical,
        categories=listed,
        rule="categories= in the call" if categories is not None else f"all values of {_kind(dtype)}, and null",
        channel=channel,
        spend=spend,
        cost=cost,
        terms=terms,
        unit=view.unit,
        steps=view.steps,
        unchecked=view.unchecked,
    )
    rows = view.rows.make({**unit_columns(view), "value": tree}, keep=False)
    return ResponseQuestion(labelled(plan, options), rows, view.session, fresh_of(options))


def _spend_or_resample(
    options: ResponseOptions, resample: Any, session: Session
) -> tuple[Spend | None, Fraction | None]:
    """Return the spend, or the probability with which a response is resampled."""
    said = [name for name in ("epsilon", "share", "rho") if options.get(name) is not None]
    if resample is not None:
        if said:
            raise InvalidParameterError(
                f"resample= decides the epsilon of a response, and so the price: leave {said[0]}= out."
            )
        return None, exact(resample, "resample")
    if not said and session.defaults.queries is None:
        raise InvalidParameterError(
            "These responses need a spend. Say epsilon=1.0 (for each response), share=0.1 (of the session) or rho=, "
            "or resample=0.5, the probability with which a response is a uniformly random category.",
            code="response-spend-missing",
        )
    return spend_of(options, session), None


def _kind(dtype: pl.DataType) -> str:
    return "Boolean" if dtype == pl.Boolean else "the Enum"
