"""Sessions that are thrown away: how their releases were made is noted, so that an audit can make them again.

Only a rehearsal makes such a session, in memory and with a budget of its own, and only `dp.audit` makes a rehearsal. Of
any other session nothing is noted, so nothing of an ordinary release can be made twice for one price.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import polars as pl

from dp_polars._session.session import Session

Make = Callable[[], tuple[pl.DataFrame, object]]
"""Reads the rows and returns what may be released, noise and all, and its plan."""


class Rehearsal:
    """A throwaway session with the terms of another one, and what was asked in it.

    `made` has for each charge what made its release, or None for what is charged once and asked later. `seen` is called
    with what makes a release, before it is made and while its rows can be read.
    """

    def __init__(self, like: Session, seen: Callable[[Make], None] | None = None) -> None:
        self.session = like._throwaway()
        self.made: list[Make | None] = []
        self._seen = seen
        _REHEARSALS[id(self.session)] = self

    @property
    def plans(self) -> list[Any]:
        """The plans of what was asked, in order."""
        return [release.plan for release in self.session.releases]

    def note(self, make: Make | None) -> None:
        """Note how a release is made."""
        self.made.append(make)
        if self._seen is not None and make is not None:
            self._seen(make)


_REHEARSALS: weakref.WeakValueDictionary[int, Rehearsal] = weakref.WeakValueDictionary()
"""Those that somebody holds, by their session, which they hold."""


def note(session: Session, make: Make | None) -> None:
    """Note how a release is made, if the session is a rehearsal's own; of no other session."""
    rehearsal = _REHEARSALS.get(id(session))
    if rehearsal is not None and rehearsal.session is session:
        rehearsal.note(make)
