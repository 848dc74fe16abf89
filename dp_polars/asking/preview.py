"""`df.dp.preview`: the same questions, answered with their plan. Nothing is read and nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dp_polars.asking.aggregates import Asked
from dp_polars.asking.many import PreviewMany
from dp_polars.asking.options import By, Options
from dp_polars.asking.questions import Questions
from dp_polars.planning.plan import Plan

if TYPE_CHECKING:
    from dp_polars.asking.frame import PrivateFrame


class Preview(PreviewMany, Questions[Plan]):
    """The questions of a private frame, answered with their plan."""

    def __init__(self, frame: PrivateFrame) -> None:
        self._frame = frame

    def _ask(self, asked: Asked | Mapping[str | None, Asked], by: By, options: Options) -> Plan:
        return self._frame._question(asked, by, options).plan
