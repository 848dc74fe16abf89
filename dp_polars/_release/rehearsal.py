"""Rehearsals: throwaway sessions that record how their releases were made so that an audit can repeat them.

Such a session lives in memory and has a budget of its own. Only a rehearsal creates one, and only `dp.audit` creates a
rehearsal. Nothing is recorded for any other session, so no ordinary release can be made twice for one price.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import polars as pl

from dp_polars._session.session import Session

MakeRelease = Callable[[], tuple[pl.DataFrame, object]]
"""A function that reads rows, adds noise, and returns the frame to release and its plan."""


class Rehearsal:
    """A throwaway session with the terms of another session, and a record of the releases made in it.

    Parameters
    ----------
    like
        The session whose terms are copied.
    seen
        Called with the function that makes a release, before it runs and while its rows can be read.

    Attributes
    ----------
    session
        The throwaway session.
    made
        For each charge, the function that made its release, or None for something that is charged once and queried
        later.
    """

    def __init__(self, like: Session, seen: Callable[[MakeRelease], None] | None = None) -> None:
        self.session = like._throwaway()
        self.made: list[MakeRelease | None] = []
        self._seen = seen
        _REHEARSALS[id(self.session)] = self

    @property
    def plans(self) -> list[Any]:
        """The plans of the releases, in order."""
        return [release.plan for release in self.session.releases]

    def note(self, make: MakeRelease | None) -> None:
        """Record how a release is made."""
        self.made.append(make)
        if self._seen is not None and make is not None:
            self._seen(make)


_REHEARSALS: weakref.WeakValueDictionary[int, Rehearsal] = weakref.WeakValueDictionary()
"""Rehearsals that are still in use, by the id of their session, which they keep alive."""


def note(session: Session, make: MakeRelease | None) -> None:
    """Record how a release is made if the session belongs to a rehearsal. For any other session, do nothing."""
    rehearsal = _REHEARSALS.get(id(session))
    if rehearsal is not None and rehearsal.session is session:
        rehearsal.note(make)
