"""`python -m tests.long soak ...`: run the named modules of this folder one after another; without a name, all."""

import importlib
import pkgutil
import sys

import tests.long


def main(names: list[str]) -> int:
    """Return 0 if everything held."""
    known = [one.name for one in pkgutil.iter_modules(tests.long.__path__) if not one.name.startswith("_")]
    unknown = set(names) - set(known)
    if unknown:
        print(f"There is no {', '.join(sorted(unknown))}; there are {', '.join(known)}.")
        return 2
    held = [importlib.import_module(f"tests.long.{name}").main() for name in names or known]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
