"""Exit codes, and messages that say what to do on a command line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from dp_polars._display.text import escaped
from dp_polars.errors import BudgetExceeded, DPError, LedgerError, LedgerMismatch

REFUSED, OVER_BUDGET, UNREADABLE = 1, 3, 4

CODES = """\
exit codes:
  0    done
  1    refused, or a request that can't be answered; the message says why
  2    wrong usage
  3    the budget doesn't allow it; nothing was charged
  4    a file or ledger isn't there, or can't be read or written
  130  interrupted (what was charged stays charged); 141 nobody read the output to its end"""

WITHHELD = "something failed inside; its message is withheld, because it may quote rows. What was charged stays."


class Parser(argparse.ArgumentParser):
    """A parser of words whose messages can't make a terminal do anything."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the words, and end."""
        super().error(escaped(message))


class FileProblem(Exception):  # noqa: N818 - what happened, in the user's words
    """A file isn't there, or can't be read or written."""


_HINTS = (
    (
        "What may this release cost",
        "--spend 0.1, --share 0.05 or --queries 20, or epsilon := 0.1 inside the private aggregate",
    ),
    ("What may these responses cost", "--spend 1.0 or --share 0.1, or epsilon := 1.0 inside the call"),
    ("max_groups=", "--max-groups 3, or max_groups := 3 and keys := ['a', 'b'] inside the private aggregate"),
    ("max_rows_per_group=", "--max-rows-per-group 10, or max_rows_per_group := 10 inside the private aggregate"),
    (
        'types="infer"',
        "--type TABLE.COLUMN=DOUBLE for every column that is not text, or --infer-types once, with a --ledger; or "
        "--public FILE if its rows belong to nobody",
    ),
    ("bounds=", "bounds go into the call: dp_sum(amount, 0, 100)"),
    ("say which column is which", "--unit-of TABLE=user_id:customer says that user_id is called customer there"),
    (
        "con.private",
        "--unit-of TABLE=COLUMN says whose the rows of a table are, --public FILE_OR_TABLE that they are nobody's",
    ),
    ("con.register", "tables are the files that are named before the statement, each under its name without ending"),
    ("was created with other terms", "leave those options out to use the ledger as it is, or name another --ledger"),
    ("A session needs its budget", "--epsilon 1 (and --delta 1e-6), or --rho 0.02, or --ledger with an existing file"),
    (
        "unit= says who is protected",
        "--unit COLUMN (several: --unit A --unit B), or --each-row if every row is a person",
    ),
    ("There is no ledger at", "dp-polars sql ... --ledger FILE creates one with its first answer"),
    (
        "no delta to discover",
        "keys := ['a', 'b'] inside the private aggregate, or --delta 1e-6 when the budget is agreed",
    ),
)
"""What a message of the library is about, and how the same is said on a command line; the first that fits."""


def code_of(error: Exception) -> int | None:
    """Return the exit code for an error, None for one that nobody has foreseen."""
    if isinstance(error, BudgetExceeded):
        return OVER_BUDGET
    if isinstance(error, FileProblem) or (isinstance(error, LedgerError) and not isinstance(error, LedgerMismatch)):
        return UNREADABLE
    return REFUSED if isinstance(error, DPError) else None


def message_of(error: Exception) -> str:
    """Return what to show for an error that was raised on purpose."""
    text = str(error)
    hint = next((f"\n  here: {hint}" for sign, hint in _HINTS if sign in text), "")
    return escaped(text) + hint
