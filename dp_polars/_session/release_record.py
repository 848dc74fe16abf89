"""A charge and what came of it, as people see it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import polars as pl

from dp_polars._display.text import escaped
from dp_polars._session.cost import Cost
from dp_polars._session.ledger import Entry, State
from dp_polars.errors import InvalidParameterError


class Release:
    """One charge of a session and the frame that was released for it.

    Attributes
    ----------
    entry
        Its row in the ledger: number, label, state, cost, and when it was reserved and finished.
    stored
        Whether it was found again, which cost nothing.
    plan
        What was done, from the unit to the noise; None if another process did it.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit=dp.ROW)
    >>> counted = dp.private(pl.DataFrame({"km": [2, 4] * 50}), session).count(epsilon=0.5)
    >>> release = session.releases[0]
    >>> release.frame.equals(counted), release.state, release.cost, release.error
    (True, 'committed', <dp.Cost epsilon 0.5, rho 0.122459>, {'count': 6.0})
    """

    def __init__(
        self, entry: Entry, read: Callable[[], pl.DataFrame | None], *, stored: bool, plan: Any = None
    ) -> None:
        self.entry, self.stored, self.plan = entry, stored, plan
        self._read = read

    @cached_property
    def frame(self) -> pl.DataFrame:
        """What was released."""
        frame = self._read()
        if frame is None:
            raise InvalidParameterError(
                f"Charge number {self.id} released nothing: it is {self.state}. The charge stays in any case."
            )
        return frame

    @property
    def id(self) -> int:
        """Its number in the ledger."""
        return self.entry.id

    @property
    def label(self) -> str:
        """The question in a few words."""
        return self.entry.label

    @property
    def state(self) -> State:
        """Whether it was committed, failed, or is still reserved."""
        return self.entry.state

    @property
    def cost(self) -> Cost:
        """What it cost, in every measure."""
        return self.entry.cost

    @property
    def reserved_at(self) -> str:
        """When it was charged."""
        return self.entry.reserved_at

    @property
    def finished_at(self) -> str | None:
        """When it was released, or failed."""
        return self.entry.finished_at

    @property
    def error(self) -> dict[str, float]:
        """The expected error of each answer at 95 %, where it is known without looking at the data."""
        found: dict[str, float] = {} if self.plan is None else getattr(self.plan, "expected_errors", dict)()
        return found

    def __repr__(self) -> str:
        shown = f", {self._shape()}" if self.state == "committed" else ""
        again = ", found again" if self.stored else ""
        return f"<dp.Release {self.id}: {escaped(self.label)}; {self.state}, {self.cost}{shown}{again}>"

    def __str__(self) -> str:
        from dp_polars._display.session import release_text

        return release_text(self)

    def _repr_html_(self) -> str:
        from dp_polars._display.session import release_html

        return release_html(self)

    def _shape(self) -> str:
        rows, columns = self.frame.shape
        return f"{rows:,} {'row' if rows == 1 else 'rows'} of {columns} {'column' if columns == 1 else 'columns'}"
