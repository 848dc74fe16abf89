"""Other libraries asked the same questions of the same rows under the same privacy: errors, CPU, memory, lines of code.

Each peer runs in an environment of its own, named by its Python (3.11 tried), and one that isn't named is skipped:

    --opendp       pip install 'opendp[polars]==0.16.*'
    --pipeline-dp  pip install 'pipeline-dp==0.3.*' pyarrow
    --tumult       pip install 'tmlt.analytics==0.21.*'  (needs Java; 17 tried)
    --diffprivlib  pip install 'diffprivlib==0.6.*' 'scikit-learn<1.6' polars

The scripts beside this file import nothing of this project but `shared`; they are run by their paths, so the folder
must hold no module named as a package they import.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tests.benchmarks import data

ROWS = 1_000_000
REPEATS = 10
SECONDS = 30  # by the clock for the answers of one peer to one question; two are asked for anyway
ASK = {"epsilon": 1, "delta": 1e-6, "max_groups": 5, "max_rows": 10, "lower": 0, "upper": 100, "queries": 1}
HERE = Path(__file__).parent
OURS = "dp-polars"
SCRIPTS = {OURS: "ours.py", "OpenDP": "opendp_.py", "PipelineDP": "pipeline_dp_.py", "Tumult": "tumult.py",
           "diffprivlib": "diffprivlib_.py"}  # fmt: skip
VALUE = pl.col("value")
TRUTHS = {"count": pl.len(), "sum": VALUE.sum(), "mean": VALUE.mean(), "variance": VALUE.var(),
          "median": VALUE.median()}  # fmt: skip

HEADING = """{rows:,} rows, {users:,} users, 50 public regions; epsilon {epsilon}, delta {delta} for one question;
each user in at most {max_groups} regions with {max_rows} rows in each, values from {lower} to {upper}.
error: mean relative error against the truth of all rows, what the caps and bounds cut off included.
spread: mean distance of answers from the mean of the library's answers to the same question, relative to the truth:
    what its noise costs, whichever rows its caps keep.
CPU s: the median of the answers; reading the file is included for {ours}, and not for the others.
peak MB: of all processes of the library. lines: of code that a user writes for the question.
*: better than {ours}; ~: better, but by less than two standard errors of the difference."""


def run(
    rows: int = ROWS,
    opendp: str | None = None,
    pipeline_dp: str | None = None,
    tumult: str | None = None,
    diffprivlib: str | None = None,
    repeats: int = REPEATS,
    seconds: float = SECONDS,
    markdown: bool = False,
) -> bool:
    """Compare with the peers whose Pythons are named."""
    named = dict(zip(SCRIPTS, (sys.executable, opendp, pipeline_dp, tumult, diffprivlib), strict=True))
    for name, python in named.items():
        if python is None:
            print(f"{name}: skipped, no Python that has it was named")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        truths = _write(path, rows)
        lines = [
            _Line.of(question, name, answers_of(name, python, path, question, ASK, repeats, seconds), truth)
            for question, truth in truths.items()
            for name, python in named.items()
            if python is not None
        ]
    print("\n" + HEADING.format(rows=rows, users=data.users_of(rows), ours=OURS, **ASK) + "\n")
    print(_markdown(list(_cells(lines))) if markdown else _plain(list(_cells(lines))))
    return True


def _write(path: Path, rows: int) -> dict[str, dict[str, float]]:
    """Write the rows and return the truth of each question by region."""
    frame = data.frame(rows).select("user", "region", "value")
    frame.write_parquet(path)
    return {question: dict(frame.group_by("region").agg(truth).rows()) for question, truth in TRUTHS.items()}


def answers_of(
    name: str, python: str, path: Path, question: str, ask: Mapping[str, float], repeats: int, seconds: float
) -> dict[str, Any]:
    """Return what a library's script printed about the rows of a file, or why there is nothing."""
    print(f"{name} is asked for {question}", file=sys.stderr)
    command = [python, HERE / SCRIPTS[name], path, question, *ask.values(), repeats, seconds]
    project = {"PYTHONPATH": str(HERE.parents[2])} if name == OURS else {}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env={**os.environ, **project}
    )
    if done.returncode:
        return {"cannot": f"failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}"}
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------------- numbers


@dataclass(frozen=True)
class _Number:
    """A number of the table; `doubt` is its standard error."""

    value: float
    doubt: float
    form: str

    def shown(self, ours: _Number | None) -> str:
        """Return the number, with a mark where it is smaller than ours."""
        text = "-" if math.isnan(self.value) else format(self.value, self.form)
        if ours is None or not self.value < ours.value:
            return text
        return text + ("*" if ours.value - self.value > 2 * math.hypot(self.doubt, ours.doubt) else "~")


@dataclass(frozen=True)
class _Line:
    """A question and a library: its numbers, none if it has no answer, and a note."""

    question: str
    library: str
    numbers: tuple[_Number, ...]
    note: str

    @classmethod
    def of(cls, question: str, library: str, found: dict[str, Any], truth: dict[str, float]) -> _Line:
        if "cannot" in found:
            return cls(question, library, (), found["cannot"])
        # By region, over the repeats; no answer counts as zero.
        answers = [[(given[region] or 0) / value for given in found["answers"]] for region, value in truth.items()]
        numbers = (_error(answers), _spread(answers), _Number(found["cpu_seconds"], 0, ".2f"))
        numbers += (_Number(found["peak_mb"], 0, ".0f"), _Number(found["lines"], 0, "d"))
        notes = (f"{len(found['answers'])} answers", found["note"])
        return cls(question, f"{library} {found['version']}", numbers, "; ".join(filter(None, notes)))


def _error(answers: list[list[float]]) -> _Number:
    """Return the mean distance from the truth. Only repeats cause doubt, because the regions are the same for all."""
    errors = [[abs(answer - 1) for answer in own] for own in answers]
    variances = [statistics.variance(own) / len(own) if len(own) > 1 else math.inf for own in errors]
    mean = statistics.fmean(map(statistics.fmean, errors))
    return _Number(mean, math.sqrt(sum(variances)) / len(errors), ".2%")


def _spread(answers: list[list[float]]) -> _Number:
    """Return the mean distance from each region's mean, enlarged because the mean of few answers is too close to them.

    The doubt assumes that the standard deviation of distances equals their mean, as for Laplace noise: with two
    answers, both distances from the mean are equal and say nothing about it.
    """
    repeats = len(answers[0])
    if repeats < 2:
        return _Number(math.nan, math.nan, ".2%")
    factor = math.sqrt(repeats / (repeats - 1))
    centres = map(statistics.fmean, answers)
    spreads = [
        factor * statistics.fmean(abs(answer - centre) for answer in own)
        for own, centre in zip(answers, centres, strict=True)
    ]
    doubt = math.sqrt(sum(spread**2 for spread in spreads) / (repeats - 1)) / len(spreads)
    return _Number(statistics.fmean(spreads), doubt, ".2%")


# ---------------------------------------------------------------------- tables

COLUMNS = ("question", "library", "error", "spread", "CPU s", "peak MB", "lines", "note")


def _cells(lines: list[_Line]) -> Iterator[tuple[str, ...]]:
    yield COLUMNS
    ours: tuple[_Number, ...] = ()
    for line in lines:
        first = line.library.split()[0] == OURS
        ours = line.numbers if first else ours
        numbers = [number.shown(own) for number, own in zip(line.numbers, (None,) * 5 if first else ours, strict=False)]
        yield (line.question, line.library, *(numbers or ["-"] * 5), line.note)


def _plain(table: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if 1 < place < 7 else cell.ljust(width)
                  for place, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in table
    )  # fmt: skip


def _markdown(table: list[tuple[str, ...]]) -> str:
    head, *rows = [f"| {' | '.join(cell.replace('*', chr(92) + '*') for cell in row)} |" for row in table]
    return "\n".join([head, "|---|---|--:|--:|--:|--:|--:|---|", *rows])
