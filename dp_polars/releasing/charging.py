"""Reserve, read, add noise, commit: in this order, here and nowhere else. Streams, asked later, open alike."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from dp_polars.accounting.cost import Cost
from dp_polars.accounting.release import Release
from dp_polars.accounting.session import Session
from dp_polars.errors import EngineError


def release_once(
    session: Session,
    cost: Cost,
    label: str,
    *,
    name: Callable[[], bytes],
    fresh: bool,
    make: Callable[[], tuple[pl.DataFrame, object]],
) -> Release:
    """Return the stored release of a question on a source, or charge its price and make one.

    `name()` names the question and the source as it is now. `make()` reads the rows and returns what may be released,
    noise and all, and its plan. Rows are read more than once, so of a source that changes in between nothing is
    released. Whatever happens after the charge, it stays.
    """
    key = name()
    if not fresh:
        stored = session.stored(key)
        if stored is not None:
            return stored
    with session.reserve(cost, label=label, key=key) as reservation:
        frame, plan = make()
        if name() != key:
            raise EngineError(
                "The source changed while it was read, so nothing is released; the charge stays. Ask again when nobody "
                "writes to it, or ask a copy."
            )
        release = reservation.commit(frame)
        session.remember(release, plan)
        return release
