"""Exit codes, and error messages with a hint that says the same in terms of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from dp_polars._display.text import escaped
from dp_polars.errors import BudgetExceeded, Code, DPError, LedgerError, LedgerMismatch, PolicyError

REFUSED, OVER_BUDGET, UNREADABLE = 1, 3, 4

CODES = """\
exit codes:
  0    success
  1    the request was refused or can't be answered; the message says why
  2    wrong usage
  3    the budget doesn't allow it; nothing was charged
  4    a file or ledger doesn't exist, or can't be read or written
  130  interrupted (what was charged stays charged)
  141  the reader of the output closed it early"""

WITHHELD = "an internal error; its message is withheld because it may quote rows. What was charged stays charged."


class CommandParser(argparse.ArgumentParser):
    """A parser of arguments whose messages can't control a terminal."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the arguments, and exit."""
        super().error(escaped(message))


class FileProblem(DPError):  # noqa: N818 - named after what happened
    """A file doesn't exist, or can't be read or written."""

    code = "file-unusable"


class OptionsMissing(DPError):  # noqa: N818 - named after what happened
    """Several options are missing, or one whose message lists the columns.

    Attributes
    ----------
    codes
        The codes of the errors that ask for them.
    columns
        The columns of the private tables, if they are known.
    """

    code = "invalid-parameter"

    def __init__(self, codes: Sequence[Code], columns: Sequence[str]) -> None:
        super().__init__(f"Before this statement can run, add{' all of these' if len(codes) > 1 else ''}:")
        self.codes, self.columns = codes, columns

    def lines(self) -> list[str]:
        """Return what to write for each missing option."""
        texts = [HINTS[code] for code in self.codes]
        named = ", ".join(self.columns[:20]) + (", ..." if len(self.columns) > 20 else "")
        columns = f"; the columns are {named}" if self.columns else ""
        return [text + columns * (code == "unit-missing") for code, text in zip(self.codes, texts, strict=True)]


_WHOSE_ROWS = (
    "--unit-of TABLE=COLUMN gives the unit of a table, and --public FILE_OR_TABLE says that its rows are public"
)
_TABLES = (
    "tables are the files that come before the statement, each with the file's name without its extension; a folder, "
    "or a pattern in quotes, is one table"
)
_POLICY_TABLES = "tables are those of the policy: SHOW TABLES lists them, and DESCRIBE the columns of one"
_BOUNDS = "bounds go into the call: dp_sum(amount, 0, 100), or bounds := 'auto' to estimate them privately"

HINTS: dict[Code, str] = {
    "spend-missing": "--spend 0.1, --share 0.05 or --queries 20, or epsilon := 0.1 inside the private aggregate",
    "budget-exceeded": "--share for share=, and --spend for epsilon=",
    "response-spend-missing": "--spend 1.0 or --share 0.1, or epsilon := 1.0 inside the call",
    "group-cap-missing": "--max-groups auto to estimate it privately, or --max-groups 3; or max_groups := 3 inside the "
    "private aggregate",
    "row-cap-missing": "--max-rows-per-group auto to estimate it privately, or --max-rows-per-group 10; or "
    "max_rows_per_group := 10 inside the private aggregate; or --max-rows 20 for all groups together",
    "column-types-missing": "--type TABLE.COLUMN=DOUBLE for every column that is not text, or --infer-types once with "
    "a --ledger; or --public FILE if its rows are public",
    "bounds-missing": _BOUNDS,
    "invalid-bounds": _BOUNDS,
    "unit-may-protect-less": "--unit-of TABLE=user_id:customer says that user_id is called customer there",
    "unit-column-missing": _WHOSE_ROWS,
    "view-unit-missing": _WHOSE_ROWS,
    "private-join": _WHOSE_ROWS,
    "unknown-table": _TABLES,
    "table-function-not-allowed": _TABLES,
    "ledger-mismatch": "leave those options out to use the ledger as it is, or give another --ledger",
    "budget-missing": "--epsilon 1 (and --delta 1e-6), or --rho 0.02, or --ledger with an existing file",
    "unit-missing": "--unit COLUMN (several: --unit A --unit B), or --each-row if every row is a person",
    "ledger-not-found": "dp-polars sql ... --ledger FILE creates a ledger with its first answer",
    "no-delta-for-keys": "keys := ['a', 'b'] inside the private aggregate, or --delta 1e-6 when the budget is agreed",
}
"""What to write on the command line, by the code of an error."""


def exit_code_of(error: DPError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, BudgetExceeded):
        return OVER_BUDGET
    if isinstance(error, FileProblem) or (isinstance(error, LedgerError) and not isinstance(error, LedgerMismatch)):
        return UNREADABLE
    return REFUSED


def has_policy(words: Sequence[str]) -> bool:
    """Return whether the arguments of a command name a policy."""
    return any(word == "--policy" or word.startswith("--policy=") for word in words)


def message_of(error: DPError, *, with_policy: bool = False) -> str:
    """Return the message of an error, with a hint if there is one for its code.

    Hints about files and their units are of no use with a policy, which names the tables.
    """
    if isinstance(error, OptionsMissing):
        return "\n  ".join([str(error), *map(escaped, error.lines())])
    hint = HINTS.get(error.code)
    if with_policy and hint in (_TABLES, _WHOSE_ROWS):
        hint = _POLICY_TABLES if hint == _TABLES else None
    if isinstance(error, PolicyError):
        return "\n".join(map(escaped, str(error).split("\n")))
    return escaped(str(error)) + ("" if hint is None else f"\n  here: {hint}")
