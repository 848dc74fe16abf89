"""Every error and warning of the library, under one base class.

A message says what went wrong, why it matters and how to fix it, in the user's own words. It never quotes a
private value: no cell of a frame, no exact aggregate, no engine's own message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_polars._session.ledger import Closing


class DPError(Exception):
    """Base class of every error that dp_polars raises on purpose."""


class InvalidParameterError(DPError, ValueError):
    """A parameter (epsilon, delta, sensitivity, scale, ...) has no meaning or no proof for its value."""


class InvalidDataError(DPError, ValueError):
    """The values have a type or content that a mechanism cannot protect (NaN, null, text, empty)."""


class BudgetExceeded(DPError):  # noqa: N818 - the contract's name
    """The session's filter refused a release; nothing was charged and nothing was released.

    Attributes
    ----------
    requested, remaining, largest_affordable
        Short texts for the message: what was asked, what is left, and the largest spend that would fit.

    Examples
    --------
    >>> import dp_polars as dp
    >>> try:
    ...     dp.Session(epsilon=1.0, unit="user").reserve(dp.pure_cost(2.0), label="too much")
    ... except dp.BudgetExceeded as refused:
    ...     print(refused.requested, "|", refused.largest_affordable)
    epsilon 2 | epsilon 1 (laplace)
    """

    def __init__(self, *, requested: str, remaining: str, largest_affordable: str) -> None:
        self.requested = requested
        self.remaining = remaining
        self.largest_affordable = largest_affordable
        super().__init__(
            f"This release does not fit the session's budget: requested {requested}; remaining {remaining}; "
            f"the largest spend that fits is {largest_affordable}. Nothing was charged. Ask with a smaller "
            "spend, reuse an earlier release, or agree on a new budget with the owner of the data."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_budget_exceeded, (self.requested, self.remaining, self.largest_affordable)


def _rebuild_budget_exceeded(requested: str, remaining: str, largest: str) -> BudgetExceeded:
    return BudgetExceeded(requested=requested, remaining=remaining, largest_affordable=largest)


class EngineError(DPError):
    """An engine failed after the charge; its own message is withheld because it may quote private values."""


class SessionClosed(DPError):  # noqa: N818 - what happened, in the user's words
    """A session is closed because a question failed on private rows, or its process died; nothing was charged.

    Attributes
    ----------
    code
        "session_closed", for programs.
    closing
        Which charge closed it, why and when.

    Examples
    --------
    >>> import dp_polars as dp
    >>> session = dp.Session(epsilon=1.0, unit="user")
    >>> session.reserve(dp.pure_cost(0.5), label="my own mechanism").fail()
    >>> try:
    ...     session.reserve(dp.pure_cost(0.1), label="another")
    ... except dp.SessionClosed as refused:
    ...     print(refused.code, refused.closing.charge, refused.closing.cause)
    session_closed 1 failed
    >>> session.reopen(reason="The mechanism was mended.")
    """

    code = "session_closed"

    def __init__(self, closing: Closing) -> None:
        self.closing = closing
        what = "failed while it read private rows" if closing.cause == "failed" else "died before it was finished"
        meanwhile = " It was reopened since, but this question began before." if closing.reopened_at else ""
        super().__init__(
            f"This session is closed: the question with charge number {closing.charge} {what} ({closing.closed_at})."
            f"{meanwhile} Why it did may tell about a single row, so nothing more is asked of private rows; stored "
            "releases stay readable. The owner of the data can find the cause and go on with "
            'session.reopen(reason="...").'
        )

    def __reduce__(self) -> tuple[object, ...]:
        return SessionClosed, (self.closing,)


class ExpressionNotAllowed(DPError, ValueError):  # noqa: N818 - what happened, in the user's words
    """An expression may look at other rows, or may fail depending on a value."""


class StatementNotAllowed(DPError, ValueError):  # noqa: N818 - what happened, in the user's words
    """A SQL statement would show private rows, or is not understood well enough to be sure that it doesn't."""


class LedgerError(DPError):
    """The ledger could not be read or written, so nothing may be released."""


class LedgerMismatch(LedgerError):  # noqa: N818 - the contract's name
    """The ledger was opened with other terms than it was created with."""


class DPWarning(UserWarning):
    """A legal choice that weakens what people usually expect from the guarantee."""
