"""The command line, `dp-polars`: one module per command, and this one, which calls them.

Answers go to stdout and everything else to stderr. Whatever fails ends in one line that says what to do and in an exit
code, never in a traceback: a traceback may quote rows.

- `demo`, `sql`, `preview`, `budget`: the commands, each with `read` (the words of the user) and `run`;
- `words`: what `sql` and `preview` have in common; `agreement`: the session that pays; `tables`: files as tables;
- `output`: the formats of answers; `progress`: the elapsed time, on a terminal; `problems`: exit codes and messages.
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
from dp_polars._cli.exit_codes import CODES, REFUSED, WITHHELD, Parser, code_of, message_of
from dp_polars._display.text import escaped

COMMANDS = {
    "demo": "one question in Polars and in SQL, on made-up data: the plan, the answers, the budget left",
    "sql": "answer one SELECT with private aggregates over Parquet, CSV, Arrow or DuckDB files",
    "preview": "show the plan of such a SELECT, spend nothing",
    "budget": "show a ledger: its terms, what was spent, what is left, every release",
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
    except SystemExit as done:  # argparse has said what is wrong, or has shown its help
        return done.code if isinstance(done.code, int) else 0 if done.code is None else REFUSED
    except BrokenPipeError:  # nobody reads on, and nobody wants to know
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted; what was charged stays charged", file=sys.stderr)
        return 130
    except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001 - the last stop: no traceback, which may quote rows
        code = code_of(error)
        told = escaped(WITHHELD if code is None else message_of(error), keep="\n")
        print(f"dp-polars: {told}", file=sys.stderr)
        if code is None:
            print(f"dp-polars: ({type(error).__name__})", file=sys.stderr)
        return REFUSED if code is None else code
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
    parser = Parser(
        prog="dp-polars",
        usage="dp-polars COMMAND ...",
        description="Differential privacy inside Polars and DuckDB, with one budget that cannot overspend.\n\n"
        f"commands (dp-polars COMMAND --help says more):\n{listed}",
        epilog=f"{_EXAMPLES}\n{CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help=", ".join(COMMANDS))
    parser.add_argument("-v", "--version", action="version", version=f"dp-polars {dp.__version__}")
    return parser


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show the library's own warnings as lines, each once; those of engines may quote anything and are left out."""
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
