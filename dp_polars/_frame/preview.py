"""`df.dp.preview`: the same questions, answered with their plan. Nothing is read and nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dp_polars._aggregates.base import AggregateCall
from dp_polars._choices.methods import BestChoice, Choice, Choices
from dp_polars._display.completion import PublicNames
from dp_polars._expressions.panics import no_panics
from dp_polars._frame.methods import Questions
from dp_polars._frame.options import By, ChoiceOptions, OpeningOptions, Options
from dp_polars._frame.queries import View
from dp_polars._local.methods import Asking, Responses, response_question_of
from dp_polars._local.plan import ResponsePlan
from dp_polars._many.methods import PreviewMany
from dp_polars._plan.plan import Plan
from dp_polars._streams.plan import StreamPlan
from dp_polars._streams.stream import Streams

if TYPE_CHECKING:
    from dp_polars._frame.private_frame import PrivateFrame


class Preview(PreviewMany, Questions[Plan], Choices[Plan], Streams[StreamPlan], Responses[ResponsePlan], PublicNames):
    """The questions of a private frame, answered with their plan.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = pl.DataFrame({"user": [1, 2], "region": ["a", "b"]})
    >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1) as session:
    ...     plan = visits.dp.preview.count("region", keys=["a", "b"], epsilon=0.5)
    >>> plan.expected_error(), session.spent.epsilon
    (12.0, 0.0)
    """

    def __init__(self, frame: PrivateFrame[Any]) -> None:
        self._frame = frame

    def _ask(self, asked: AggregateCall | Mapping[str | None, AggregateCall], by: By, options: Options) -> Plan:
        return self._frame._question(asked, by, options).plan

    @no_panics
    def _ask_responses(self, asking: Asking) -> ResponsePlan:
        return response_question_of(self._frame._view(asking.general), asking).plan

    def _choose(self, choice: Choice | BestChoice, by: By, options: ChoiceOptions) -> Plan:
        return self._frame._choice(choice, by, options).plan

    def _view(self, options: Options | OpeningOptions) -> View:
        return self._frame._view(options)

    def _stream(self, plan: StreamPlan, view: View) -> StreamPlan:
        return plan
