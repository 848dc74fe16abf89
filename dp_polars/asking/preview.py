"""`df.dp.preview`: the same questions, answered with their plan. Nothing is read and nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dp_polars.asking.aggregates import Asked
from dp_polars.asking.choices import BestChoice, Choice, Choices
from dp_polars.asking.many import PreviewMany
from dp_polars.asking.options import By, ChoiceOptions, OpeningOptions, Options
from dp_polars.asking.panics import no_panics
from dp_polars.asking.question import View
from dp_polars.asking.questions import Questions
from dp_polars.asking.responses import Asking, Responses, response_question_of
from dp_polars.asking.streams import Streams
from dp_polars.planning.plan import Plan
from dp_polars.planning.responses import ResponsePlan
from dp_polars.planning.stream import StreamPlan
from dp_polars.showing.names import PublicNames

if TYPE_CHECKING:
    from dp_polars.asking.frame import PrivateFrame


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

    def _ask(self, asked: Asked | Mapping[str | None, Asked], by: By, options: Options) -> Plan:
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
