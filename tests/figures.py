"""Print figures about the shape of the code: how far a call travels, how big the package is, how deep imports go.

Run `python -m tests.figures`. Compare the output before and after a reorganisation.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl

import dp_polars as dp

PACKAGE = Path(dp.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """Return the dotted name of a module: `dp_polars._plan.query`, and `dp_polars._plan` for its `__init__`."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path: Path) -> str:
    """Return the first folder or module below dp_polars."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def trace(call: Callable[[], Any]) -> list[Path]:
    """Return the file of every Python function of dp_polars that a call enters, in order."""
    entered: list[Path] = []
    prefix = str(PACKAGE)

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(prefix):
            entered.append(Path(frame.f_code.co_filename))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def describe_call(name: str, call: Callable[[], Any]) -> str:
    """Return one line on a call: how many functions, files and packages it enters and how often it changes package."""
    call()  # The first call imports modules and fills caches.
    entered = trace(call)
    packages = [package_of(path) for path in entered]
    changes = sum(one != other for one, other in itertools.pairwise(packages))
    return (
        f"{name}: {len(entered):,} function calls through {len(set(entered))} files "
        f"and {len(set(packages))} packages, {changes} package changes"
    )


@cache
def top_level_imports() -> dict[str, frozenset[str]]:
    """Return for each module the modules of dp_polars that it imports at the top of its file.

    Imports under `if TYPE_CHECKING:` never run, so they don't count.
    """
    names = {module_name(path) for path in MODULES}
    found: dict[str, frozenset[str]] = {}
    for path in MODULES:
        own = module_name(path)
        package = own if path.name == "__init__.py" else own.rpartition(".")[0]
        imported: set[str] = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parents = package.split(".")
                    start = parents[: len(parents) - node.level + 1]
                    base = ".".join([*start, base] if base else start)
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    imported.add(whole if whole in names else base)
        found[own] = frozenset((imported & names) - {own})
    return found


def longest_chain() -> list[str]:
    """Return the longest chain of modules in which each imports the next.

    Modules that import each other in a circle count as one link, shown as `a+b`.
    """
    imports = top_level_imports()
    circle = {module: group for group in circles(imports) for module in group}
    links = {
        group: {circle[other] for module in group for other in imports[module]} - {group}
        for group in set(circle.values())
    }

    @cache
    def chain(group: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        return (group, *max((chain(other) for other in links[group]), key=len, default=()))

    best = max(sorted(map(chain, links)), key=len)
    return ["+".join(module.removeprefix("dp_polars.") for module in group) for group in best]


def circles(imports: dict[str, frozenset[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components of the import graph: single modules, and circles of imports."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for other in imports[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reached = {module: reachable(module) for module in imports}
    groups = {
        tuple(sorted({module, *(other for other in reached[module] if module in reached[other])})) for module in imports
    }
    return sorted(groups)


def function_level_imports() -> int:
    """Return how many imports of dp_polars modules stand inside functions."""
    count = 0
    for path in MODULES:
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom):
                        count += node.level > 0 or (node.module or "").startswith("dp_polars")
                    elif isinstance(node, ast.Import):
                        count += any(alias.name.startswith("dp_polars") for alias in node.names)
    return count


def main() -> None:
    """Print all figures."""
    visits = pl.DataFrame({"user_id": [i % 900 for i in range(3000)], "region": ["north", "south", "west"] * 1000})
    terms: dict[str, Any] = {"delta": 1e-7, "unit": "user_id", "max_groups": 3, "max_rows_per_group": 5}
    session = dp.Session(epsilon=10.0, **terms)
    con = dp.connect(None, dp.Session(epsilon=10.0, **terms))
    con.register("visits", visits)

    def count() -> None:
        with session:
            visits.dp.count("region", keys=["north", "south", "west"], epsilon=0.5, fresh=True)

    def sql() -> None:
        con.sql(
            "SELECT region, dp_count(*, keys := ['north', 'south', 'west'], fresh := true) AS n "
            "FROM visits GROUP BY region",
            epsilon=0.5,
        )

    print(describe_call("df.dp.count", count))
    print(describe_call("con.sql", sql))
    lines = [len(path.read_text().splitlines()) for path in MODULES]
    packages = {package_of(path) for path in MODULES}
    print(f"dp_polars: {len(MODULES)} modules, {sum(lines):,} lines, {len(packages)} packages and modules at the top")
    biggest = sorted(zip(lines, MODULES, strict=True), reverse=True)[:3]
    print("longest modules: " + ", ".join(f"{path.relative_to(PACKAGE)} ({size})" for size, path in biggest))
    print(f"modules of under 80 lines: {sum(size < 80 for size in lines)}")
    print(f"function-level imports of dp_polars modules: {function_level_imports()}")
    print(f"circles of top-level imports: {[group for group in circles(top_level_imports()) if len(group) > 1] or 0}")
    chain = longest_chain()
    print(f"longest import chain: {len(chain)} modules")
    print("  " + " -> ".join(chain))


if __name__ == "__main__":
    main()
