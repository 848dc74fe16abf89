"""`python -m tests.benchmarks [name ...]`: run the named benchmarks, or all; exit with 1 if a limit is passed.

`polars` also takes `--rows 100000000` (`streams` and `spark` too) and `--opendp PYTHON`, a Python that has
opendp[polars] to compare with; `peers` takes these, the Pythons of other libraries, `--repeats`, `--seconds` for one
question to one library, and `--markdown`; `accuracy` takes the same except `--rows` and `--seconds`, and
`--only TEXT` for the rows that contain a text, such as "std of dep_delay" or "mean of air_time, epsilon 1 each";
`versions` takes `--before FOLDER`, another checkout to compare with; `spark` takes `--server apache` and `--repeats`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from typing import Any

NAMES = (
    "sampling",
    "ledger",
    "imports",
    "polars",
    "selection",
    "duckdb",
    "people",
    "spark",
    "threads",
    "streams",
    "many",
    "accuracy",
    "collapses",
    "caps",
    "peers",
    "versions",
)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--rows", type=int, default=argparse.SUPPRESS)
    for peer in ("--opendp", "--pipeline-dp", "--tumult", "--diffprivlib"):
        parser.add_argument(peer, metavar="PYTHON", default=argparse.SUPPRESS)
    parser.add_argument("--before", metavar="FOLDER", default=argparse.SUPPRESS)
    parser.add_argument("--only", metavar="TEXT", default=argparse.SUPPRESS)
    parser.add_argument("--server", choices=("sail", "apache"), default=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=argparse.SUPPRESS)
    parser.add_argument("--markdown", action="store_true")
    options: dict[str, Any] = vars(parser.parse_args(words))
    names = options.pop("names")
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    fine = []
    for name in names or NAMES:
        run = importlib.import_module(f"tests.benchmarks.{name}").run
        taken = inspect.signature(run).parameters
        fine.append(run(**{option: value for option, value in options.items() if option in taken}))
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
