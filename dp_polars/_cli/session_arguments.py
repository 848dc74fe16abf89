"""The session that pays: that of a ledger, with its terms, a new ledger's, or one in memory."""

from __future__ import annotations

import argparse
import os
from typing import Any

from dp_polars._session.session import Session
from dp_polars._session.terms import ROW, Terms
from dp_polars.errors import InvalidParameterError

_TERMS = ("epsilon", "delta", "rho", "key_delta", "unit", "adjacency", "group_size")
_DEFAULTS = ("per_unit", "max_groups", "max_rows_per_group", "queries")


class Agreement:
    """What was agreed on, by the options of a command and by the ledger that they name.

    `is_new` says that there is a ledger to be made.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.ledger: str | None = options.ledger
        # Looked at once: if another process makes the ledger meanwhile, its terms are compared when it is opened.
        self.is_new = self.ledger is not None and not os.path.exists(self.ledger)
        said = {name: getattr(options, name) for name in (*_TERMS, *_DEFAULTS)}
        if options.each_row:
            said["unit"] = ROW
        self._said: dict[str, Any] = {name: value for name, value in said.items() if value is not None}

    def rehearsal(self) -> Session:
        """Return a session with these terms that makes no file: that of an existing ledger, else one in memory."""
        return Session(**self._said) if self.ledger is None or self.is_new else self.session()

    def recorded_in(self) -> str | None:
        """Return the ledger that keeps what is recorded now; None if there is none yet, or none at all."""
        return None if self.is_new else self.ledger

    def paying(self, rehearsal: Session) -> Session:
        """Return the session that pays after a rehearsal in memory, with the facts that were recorded there."""
        session = self.session()
        for fact in rehearsal.facts:
            if session._record(fact.kind, fact.subject, fact.value) != fact.value:
                session.close()
                raise InvalidParameterError(
                    f"Another process has recorded other {fact.kind} of {fact.subject} meanwhile; run this again."
                )
        return session

    def session(self) -> Session:
        """Return the session; refuses words that contradict an existing ledger."""
        if self.ledger is None or self.is_new:
            return Session(**self._said, ledger=self.ledger)
        found = Session.from_ledger(self.ledger)
        if not self._said:
            return found
        terms, defaults = found.terms, {name: getattr(found.defaults, name) for name in _DEFAULTS}
        found.close()
        return Session(**{**defaults, **_with(terms, self._said)}, ledger=self.ledger)


def _with(terms: Terms, said: dict[str, Any]) -> dict[str, Any]:
    """Return what was said, and for what wasn't the words that mean the terms of a ledger."""
    unit = terms.unit if terms.unit is ROW else list(terms.unit)  # type: ignore[arg-type]
    words: dict[str, Any] = {
        "delta": terms.delta, "unit": unit, "adjacency": terms.adjacency, "group_size": terms.group_size, **said
    }  # fmt: skip
    if "epsilon" not in said and "rho" not in said:
        words |= {"epsilon": terms.epsilon, "rho": terms.rho}
    if terms.measure == "approximate" and words["delta"] == terms.delta and "rho" not in said:
        words.setdefault("key_delta", terms.native_delta)
    return words
