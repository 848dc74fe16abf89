"""`df.dp.preview`: the methods of a private frame, which return their plan instead of an answer."""

from __future__ import annotations

from collections.abc import Callable

from dp_polars._choices.methods import Choices
from dp_polars._choices.plan import ChoicePlan
from dp_polars._display.completion import PublicNames
from dp_polars._frame.methods import Questions
from dp_polars._frame.options import AnyOptions, RowsStayPrivate
from dp_polars._frame.question import Question, View, no_panics, planned
from dp_polars._local.methods import Responses
from dp_polars._local.plan import ResponsePlan
from dp_polars._many.methods import ManyQueries
from dp_polars._many.online_plan import OnlinePlan
from dp_polars._many.synthesis_plan import SynthesisPlan
from dp_polars._plan.base import BasePlan
from dp_polars._plan.plan import Plan
from dp_polars._profile.methods import Profiling
from dp_polars._profile.plan import ProfilePlan
from dp_polars._streams.plan import StreamPlan
from dp_polars._streams.stream import Streams


class Preview(
    Questions[Plan],
    Choices[ChoicePlan],
    Streams[StreamPlan],
    ManyQueries[OnlinePlan, SynthesisPlan],
    Responses[ResponsePlan],
    Profiling[ProfilePlan],
    PublicNames,
    RowsStayPrivate,
):
    """The methods of a private frame. Each returns the plan of its question; nothing is read and nothing is spent.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = pl.DataFrame({"user": [1, 2], "region": ["a", "b"]})
    >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1) as session:
    ...     plan = visits.dp.preview.count("region", keys=["a", "b"], epsilon=0.5)
    >>> plan.expected_error(), session.spent.epsilon
    (12.0, 0.0)
    """

    def __init__(self, view: Callable[[AnyOptions], View]) -> None:
        self._view = view

    @no_panics
    def _resolve(self, options: AnyOptions, question: Callable[[View], Question[BasePlan]]) -> BasePlan:
        made = planned(question, self._view(options))
        return made.plan.after(made.session._total())
