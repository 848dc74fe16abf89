"""`python -m tests.benchmarks [name ...]`: run the named benchmarks, or all; exit with 1 if a limit is passed."""

from __future__ import annotations

import importlib
import sys

NAMES = ("sampling", "ledger", "imports")


def main(names: list[str]) -> int:
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    fine = [importlib.import_module(f"tests.benchmarks.{name}").run() for name in names or NAMES]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
