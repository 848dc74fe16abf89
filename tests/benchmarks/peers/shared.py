"""What the peers' scripts share: the question asked, CPU and memory of the whole process tree, and the line printed."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import math
import os
import resource
import statistics
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUESTIONS = ("count", "sum", "mean", "variance", "median")
KEYS_SUFFIX = ".keys.json"
STATISTICS = {"count": 1, "sum": 1, "mean": 2, "variance": 3, "median": 1}  # released numbers for one region


def _regions() -> list[str]:
    """Return the public regions: those of a file beside the data, if there is one, or those of the benchmarks."""
    beside = Path(sys.argv[1] + KEYS_SUFFIX) if len(sys.argv) > 1 else None
    if beside is not None and beside.exists():
        return json.loads(beside.read_text())
    return [f"region-{number:02}" for number in range(50)]


REGIONS = _regions()


@dataclass(frozen=True)
class Ask:
    """One of `queries` equal questions by region that share epsilon and delta, with caps on a user and bounds."""

    question: str
    epsilon: float
    delta: float
    max_groups: int
    max_rows: int
    lower: float
    upper: float
    queries: int = 1

    @property
    def own_epsilon(self) -> float:
        """The epsilon of this question by basic composition."""
        return self.epsilon / self.queries

    @property
    def own_rho(self) -> float:
        """The rho of this question if all of them are composed under zCDP."""
        return rho_of(self.epsilon, self.delta) / self.queries

    @property
    def middle(self) -> float:
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> float:
        return (self.upper - self.lower) / 2


def main(
    load: Callable[[str], Any],
    functions: dict[str, tuple[Callable[..., Any], ...]],
    version: str,
    note: Callable[[Ask], str] = lambda ask: "",
) -> None:
    """Answer the question of the command line and print the JSON line.

    `functions[question]` are what a user writes: the first is called with the data and the `Ask`, and returns the
    answer by region; the others are what it calls. A question without functions can't be expressed.
    """
    path, question, epsilon, delta, groups, rows, lower, upper, queries, repeats, seconds = sys.argv[1:]
    caps_and_bounds = (int(groups), int(rows), float(lower), float(upper))
    ask = Ask(question, float(epsilon), float(delta), *caps_and_bounds, int(queries))
    if question not in functions:
        print(json.dumps({"cannot": f"no {question}", "version": version}))
        return
    data, load_seconds = _timed(lambda: load(path))
    runs = _repeated(lambda: functions[question][0](data, ask), int(repeats), float(seconds))
    print(
        json.dumps(
            {
                "cpu_seconds": statistics.median(seconds for _, seconds in runs),
                "first_cpu_seconds": runs[0][1],
                "load_cpu_seconds": load_seconds,
                "peak_mb": _peak_mb(),
                "answers": [{region: _number(answer.get(region), ask) for region in REGIONS} for answer, _ in runs],
                "lines": sum(map(_lines, functions[question])),
                "version": version,
                "note": note(ask),
            }
        )
    )


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP implies (epsilon, delta): Canonne, Kamath, Steinke 2020, proposition 7."""

    def enough(rho: float) -> bool:
        orders = (1 + 10 ** (step / 50) for step in range(-100, 250))
        return any(
            (a - 1) * (a * rho - epsilon) + a * math.log1p(-1 / a) - math.log(a - 1) <= math.log(delta) for a in orders
        )

    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def prefers_gaussian(ask: Ask) -> bool:
    """Whether zCDP gives the smaller expected error: Gaussian over Laplace, or composed choices for a median."""
    if not ask.delta:
        return False
    if ask.question == "median":
        return math.sqrt(ask.max_groups / (8 * ask.own_rho)) < ask.max_groups / ask.own_epsilon
    released = STATISTICS[ask.question] * ask.max_groups
    return math.sqrt(2 / math.pi) * math.sqrt(released / (2 * ask.own_rho)) < released / ask.own_epsilon


# ---------------------------------------------------------------------- measuring


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = _cpu_seconds()
    result = work()
    return result, _cpu_seconds() - start


def _repeated(work: Callable[[], Any], repeats: int, seconds: float) -> list[tuple[Any, float]]:
    """Return the results and CPU seconds of this many calls, or of as many (at least two) as fit the time limit."""
    start, runs = time.monotonic(), []
    while len(runs) < repeats:
        runs.append(_timed(work))
        if len(runs) > 1 and (time.monotonic() - start) * (1 + 1 / len(runs)) > seconds:
            break
    return runs


def _tree() -> dict[int, list[str]]:
    """Return the fields after the name in /proc/PID/stat for this process and its descendants; none without /proc."""
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended
    found = [os.getpid()] if os.getpid() in stats else []
    for pid in found:
        found += [child for child, fields in stats.items() if int(fields[1]) == pid]
    return {pid: stats[pid] for pid in found}


def _cpu_seconds() -> float:
    tree = _tree()
    if len(tree) < 2:  # more exact than /proc
        return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    return sum(sum(map(int, fields[11:15])) for fields in tree.values()) / os.sysconf("SC_CLK_TCK")


def _peak_mb() -> float:
    """Return the sum of the peaks of the processes. ru_maxrss would start with the peak of the parent process."""
    kilobytes = 0
    for pid in _tree():
        with contextlib.suppress(OSError):  # it ended
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return (kilobytes or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024 / 1e6


def _lines(function: Callable[..., Any]) -> int:
    """Return how many lines the body of the function has, without its docstring, comments and blank lines."""
    source = textwrap.dedent(inspect.getsource(function))
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    lines = source.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


def _number(value: Any, ask: Ask) -> float | None:
    """Return an answer clipped to the range that its bounds allow, which costs nothing and which some libraries do."""
    if value is None or math.isnan(value):
        return None
    low, high = {"mean": (ask.lower, ask.upper), "median": (ask.lower, ask.upper), "variance": (0, ask.half**2)}.get(
        ask.question, (-math.inf, math.inf)
    )
    return min(max(float(value), low), high)
