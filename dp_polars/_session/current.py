"""The current session: the one thing that is global, and only within a context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dp_polars._session.session import Session

_STACK: ContextVar[tuple[Session | None, ...]] = ContextVar("dp_polars_sessions", default=())

_MAY_SPEND: ContextVar[Session | Literal["any", "none"]] = ContextVar("dp_polars_may_spend", default="any")


def set_session(session: Session | None) -> None:
    """Make a session the current one for what follows, as in a notebook; None for no session.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.set_session(dp.Session(epsilon=1.0, unit="user_id"))
    >>> dp.current_session().terms.unit
    ('user_id',)
    >>> dp.set_session(None)
    """
    _STACK.set((*_STACK.get()[:-1], session))


def current_session() -> Session | None:
    """Return the current session: of the innermost `with session:`, or what `set_session` set.

    Examples
    --------
    >>> import dp_polars as dp
    >>> with dp.Session(epsilon=1.0, unit="user_id") as session:
    ...     dp.current_session() is session
    True
    """
    stack = _STACK.get()
    return stack[-1] if stack else None


@contextmanager
def without_spending() -> Iterator[None]:
    """Refuse every charge within the block, whichever session would pay."""
    with _spending("none"):
        yield


@contextmanager
def spending_only(session: Session) -> Iterator[None]:
    """Make a session the current one within the block, and refuse the charges of all others."""
    with _spending(session):
        enter(session)
        try:
            yield
        finally:
            leave()


@contextmanager
def _spending(allowed: Session | Literal["none"]) -> Iterator[None]:
    token = _MAY_SPEND.set(allowed)
    try:
        yield
    finally:
        _MAY_SPEND.reset(token)


def may_spend(session: Session) -> bool:
    """Whether charges of a session are not refused here."""
    allowed = _MAY_SPEND.get()
    return allowed == "any" or allowed is session


def enter(session: Session) -> None:
    """Make a session the current one until `leave`."""
    _STACK.set((*_STACK.get(), session))


def leave() -> None:
    """Go back to the session before."""
    _STACK.set(_STACK.get()[:-1])
