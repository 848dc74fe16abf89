"""`df.dp.preview`: the same questions, answered with their plan. Nothing is read and nothing is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack

from dp_polars.asking.options import By, ExpressionLike, Options
from dp_polars.planning.plan import Plan
from dp_polars.quantities import Number

if TYPE_CHECKING:
    from dp_polars.asking.frame import PrivateFrame


class Preview:
    """The questions of a private frame, answered with their plan."""

    def __init__(self, frame: PrivateFrame) -> None:
        self._frame = frame

    def count(self, by: By = None, *, column: ExpressionLike | None = None, **options: Unpack[Options]) -> Plan:
        """Return the plan of `count`."""
        return self._frame._question("count", by, column, None, "row", options).plan

    def len(self, by: By = None, **options: Unpack[Options]) -> Plan:
        """Return the plan of `len`."""
        return self.count(by, **options)

    def count_units(self, by: By = None, **options: Unpack[Options]) -> Plan:
        """Return the plan of `count_units`."""
        return self._frame._question("count_units", by, None, None, "row", options).plan

    def sum(
        self,
        column: ExpressionLike,
        by: By = None,
        *,
        bounds: tuple[Number, Number] | None = None,
        per: Literal["row", "unit"] = "row",
        **options: Unpack[Options],
    ) -> Plan:
        """Return the plan of `sum`."""
        return self._frame._question("sum", by, column, bounds, per, options).plan

    def mean(
        self,
        column: ExpressionLike,
        by: By = None,
        *,
        bounds: tuple[Number, Number] | None = None,
        **options: Unpack[Options],
    ) -> Plan:
        """Return the plan of `mean`."""
        return self._frame._question("mean", by, column, bounds, "row", options).plan
