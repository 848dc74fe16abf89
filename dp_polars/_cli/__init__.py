"""The command line, `dp-polars`. `main` runs one of the commands and turns errors into messages and exit codes.

Answers go to stdout and everything else to stderr. A failure prints what to do and ends with an exit code. It never
prints a traceback, which could quote rows.

- `demo`, `sql`, `preview`, `policy`, `budget`, `audit`: one module per command, each with `read` (the arguments) and
  `run`.
- `arguments`: the arguments that `sql` and `preview` share, and the session that pays.
- `files`: files as tables of a guarded connection.
- `missing`: all options that a statement still needs, in one message.
- `output`: the formats of answers, and the elapsed time on a terminal.
- `exit_codes`: exit codes, messages and hints.

May import: everything else. Commands are imported only when they are called so that the others start faster.
Never imported by any other package.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TextIO

import polars as pl

import dp_polars as dp
from dp_polars._cli.exit_codes import CODES, REFUSED, WITHHELD, CommandParser, exit_code_of, has_policy, message_of
from dp_polars._display.text import escaped

COMMANDS = {
    "demo": "run one query in Polars and in SQL on made-up data: the plan, the answers, the budget left",
    "sql": "answer one SELECT with private aggregates over Parquet, CSV, Arrow or DuckDB files",
    "preview": "show the plan of such a SELECT without spending anything",
    "policy": "check a policy, or make a first draft of one from the schemas of files",
    "budget": "show a ledger: its terms, the budget that is spent and left, and every release",
    "audit": "show what analysts asked, and whether it was answered, refused or failed",
}

_EXAMPLES = """
examples:
  dp-polars demo
  dp-polars sql visits.parquet --unit user_id --epsilon 1 --delta 1e-6 --max-groups 3 --max-rows-per-group 10 \\
      --ledger budget.db --spend 0.2 "SELECT region, dp_count(*) AS n FROM visits GROUP BY region"
  dp-polars budget budget.db
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _plain_warnings():
            _run(words)
        sys.stdout.flush()
    except SystemExit as done:  # argparse has printed what is wrong, or its help
        return done.code if isinstance(done.code, int) else 0 if done.code is None else REFUSED
    except BrokenPipeError:  # the reader closed the output, so there is nobody to tell
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted; what was charged stays charged", file=sys.stderr)
        return 130
    except dp.DPError as error:
        print(f"dp-polars: {message_of(error, with_policy=has_policy(words))}", file=sys.stderr)
        return exit_code_of(error)
    except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001 - a traceback could quote rows
        print(f"dp-polars: {WITHHELD}\ndp-polars: ({type(error).__name__})", file=sys.stderr)
        return REFUSED
    return 0


def _run(words: list[str]) -> None:
    if words and words[0] in COMMANDS:
        command: Any = import_module(f"dp_polars._cli.{words[0]}")
        command.run(command.read(words[1:]))
        return
    parser = _parser()
    if not words:
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    parser.parse_args(words)


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<8} {text}" for name, text in COMMANDS.items())
    parser = CommandParser(
        prog="dp-polars",
        usage="dp-polars COMMAND ...",
        description="Differential privacy inside Polars, DuckDB and Spark, with one budget that cannot be overspent."
        "\n\n"
        f"commands (see dp-polars COMMAND --help):\n{listed}",
        epilog=f"{_EXAMPLES}\n{CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help=", ".join(COMMANDS))
    parser.add_argument("-v", "--version", action="version", version=f"dp-polars {dp.__version__}")
    return parser


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print each of the library's own warnings once, as a line. Hide those of engines, which may quote rows."""
    shown: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, dp.DPWarning) and str(message) not in shown:
            shown.add(str(message))
            print(f"warning: {escaped(str(message))}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", dp.DPWarning)
        warnings.showwarning = show
        yield
