"""Every error and warning of the library. All errors share one base class and have a code.

A message says what went wrong, why it matters and how to fix it. It never quotes a private value: no cell of a frame,
no exact aggregate, and no engine's own message. Messages may change between versions. Programs should choose by the
error's class or by its `code`, a short text such as "budget-exceeded" that stays the same. `Code` lists all codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dp_polars._session.ledger import Closing


Code = Literal[
    # the codes of classes, for errors that have none of their own
    "error",
    "invalid-parameter",
    "invalid-data",
    "budget-exceeded",
    "engine-failed",
    "session-closed",
    "expression-not-allowed",
    "statement-not-allowed",
    "ledger-unusable",
    "ledger-mismatch",
    "file-unusable",
    "invalid-policy",
    # the terms of a session, and its spend
    "budget-missing",
    "unit-missing",
    "unit-may-protect-less",
    "spend-missing",
    "spend-too-small",
    "noise-too-large",
    "response-spend-missing",
    "spending-not-allowed",
    "session-in-memory",
    "no-such-analyst",
    # queries
    "unknown-column",
    "unknown-option",
    "bounds-missing",
    "invalid-bounds",
    "group-cap-missing",
    "row-cap-missing",
    "no-delta-for-keys",
    "private-frame",
    "not-private",
    "not-in-policy",
    # SQL statements and files
    "unknown-table",
    "table-function-not-allowed",
    "private-join",
    "unit-step-of-rows",
    "unit-step-without-unit",
    "unit-column-missing",
    "view-unit-missing",
    "column-types-missing",
    # ledgers
    "ledger-not-found",
    "not-a-ledger",
    "ledger-format",
    "ledger-damaged",
    "ledger-outdated",
    "ledger-replaced",
    "ledger-closed",
    "ledger-in-use",
]
"""Every code that an error can have."""


class DPError(Exception):
    """Base class of every error that dp_polars raises on purpose.

    Attributes
    ----------
    code
        What went wrong, as a short text for programs. It is that of the class unless the error has its own.

    Examples
    --------
    >>> import dp_polars as dp
    >>> try:
    ...     dp.Session(epsilon=1.0)
    ... except dp.DPError as error:
    ...     print(type(error).__name__, error.code)
    InvalidParameterError unit-missing
    """

    code: Code = "error"

    def __init__(self, message: str = "", *, code: Code | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidParameterError(DPError, ValueError):
    """A parameter (epsilon, delta, sensitivity, scale, ...) has a value without a meaning or without a proof."""

    code = "invalid-parameter"


class InvalidDataError(DPError, ValueError):
    """The values have a type or content that a mechanism cannot protect (NaN, null, text, empty)."""

    code = "invalid-data"


class BudgetExceeded(DPError):  # noqa: N818 - a refusal that users name in `except`, not a fault
    """The session refused a release that does not fit its budget. Nothing was charged and nothing was released.

    Attributes
    ----------
    requested, remaining, largest_affordable
        Short texts: the part of the budget that was requested, the part that is left, and the largest `share=` and
        `epsilon=` that would fit ("nothing" if none does).
    note
        Why a share and an epsilon that fit are different parts of the budget, or an empty text.

    Examples
    --------
    >>> import dp_polars as dp
    >>> try:
    ...     dp.Session(epsilon=1.0, unit="user").reserve(dp.pure_cost(2.0), label="too much")
    ... except dp.BudgetExceeded as refused:
    ...     print(refused.code, "|", refused.requested, "|", refused.largest_affordable)
    budget-exceeded | 200 % of the budget | share=1 or epsilon=1
    """

    code = "budget-exceeded"

    def __init__(self, *, requested: str, remaining: str, largest_affordable: str, note: str = "") -> None:
        self.requested = requested
        self.remaining = remaining
        self.largest_affordable = largest_affordable
        self.note = note
        nothing = largest_affordable == "nothing"
        fits = "nothing more fits" if nothing else f"the largest spend that fits is {largest_affordable}"
        ways = "Reuse an earlier release," if nothing else "Use a smaller spend, reuse an earlier release,"
        super().__init__(
            f"This release does not fit the session's budget: requested {requested}; remaining {remaining}; {fits}. "
            f"{note}{' ' if note else ''}Nothing was charged. {ways} or agree on a new budget with the owner of the "
            "data."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_budget_exceeded, (self.requested, self.remaining, self.largest_affordable, self.note)


def _rebuild_budget_exceeded(requested: str, remaining: str, largest: str, note: str = "") -> BudgetExceeded:
    return BudgetExceeded(requested=requested, remaining=remaining, largest_affordable=largest, note=note)


class EngineError(DPError):
    """An engine failed after the charge. Its own message is withheld, because it may quote private values."""

    code = "engine-failed"


class SessionClosed(DPError):  # noqa: N818 - a state that users name in `except`, not a fault
    """The session is closed because a query failed on private rows or its process died. Nothing was charged.

    Attributes
    ----------
    closing
        Which charge closed the session, why and when.

    Examples
    --------
    >>> import dp_polars as dp
    >>> session = dp.Session(epsilon=1.0, unit="user")
    >>> session.reserve(dp.pure_cost(0.5), label="my own mechanism").fail()
    >>> try:
    ...     session.reserve(dp.pure_cost(0.1), label="another")
    ... except dp.SessionClosed as refused:
    ...     print(refused.code, refused.closing.charge, refused.closing.cause)
    session-closed 1 failed
    >>> session.reopen(reason="The mechanism was mended.")
    """

    code = "session-closed"

    def __init__(self, closing: Closing) -> None:
        self.closing = closing
        what = "failed while it read private rows" if closing.cause == "failed" else "died before it was finished"
        meanwhile = " It has been reopened since, but this query began before." if closing.reopened_at else ""
        whose = "This session" if closing.analyst is None else f"The share of {closing.analyst}"
        argument = "" if closing.analyst is None else f", analyst={closing.analyst!r}"
        super().__init__(
            f"{whose} is closed: the query with charge number {closing.charge} {what} ({closing.closed_at})."
            f"{meanwhile} The cause may depend on a single row, so no more queries read private rows; stored releases "
            "stay readable. The owner of the data can find the cause and then continue with "
            f'session.reopen(reason="..."{argument}).'
        )

    def __reduce__(self) -> tuple[object, ...]:
        return SessionClosed, (self.closing,)


class ExpressionNotAllowed(DPError, ValueError):  # noqa: N818 - a refusal that users name in `except`, not a fault
    """An expression may depend on other rows, or may fail depending on a value."""

    code = "expression-not-allowed"


class StatementNotAllowed(DPError, ValueError):  # noqa: N818 - a refusal that users name in `except`, not a fault
    """A SQL statement would show private rows, or is not understood well enough to rule that out."""

    code = "statement-not-allowed"


@dataclass(frozen=True)
class PolicyProblem:
    """A mistake in a policy: the line where it stands (0 if the text tells it, or it stands nowhere), and the text."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class PolicyError(DPError, ValueError):
    """A policy has mistakes. The message lists all of them, each with its line and what to write.

    Attributes
    ----------
    problems
        The mistakes in the order of their lines.
    """

    code = "invalid-policy"

    def __init__(self, name: str, problems: Sequence[PolicyProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda one: one.line))
        self._name = name
        count = "a mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        super().__init__("\n".join([f"The policy {name} has {count}:", *(f"  {one}" for one in self.problems)]))

    def __reduce__(self) -> tuple[object, ...]:
        return PolicyError, (self._name, self.problems)


class LedgerError(DPError):
    """The ledger could not be read or written, so nothing may be released."""

    code: Code = "ledger-unusable"


class LedgerMismatch(LedgerError):  # noqa: N818 - a refusal that users name in `except`, not a fault
    """The ledger was created with terms other than those it was opened with."""

    code = "ledger-mismatch"


class DPWarning(UserWarning):
    """A choice is allowed but weakens what people usually expect from the guarantee."""
