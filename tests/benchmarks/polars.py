"""Questions through `df.dp` against the plain Polars query: CPU seconds of one run, and the peak memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl

import dp_polars as dp
from tests.benchmarks import data
from tests.benchmarks.measure import Row, cpu_seconds, generous_session, show

ROWS = 10_000_000
MEMORY_ONLY = 20_000_000  # above this many rows nothing is held in memory: only the file is asked
SPEND = {"epsilon": 1, "fresh": True}
BOUNDS = (0, 100)
REPEATS = 3
PEAK = "import sys; from tests.benchmarks import polars; polars.peak(*sys.argv[1:])"

Work = Callable[[], object]


def run(rows: int = ROWS, opendp: str | None = None) -> bool:
    """Measure with this many rows. `opendp` is a Python that has opendp[polars], to compare with."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        # First, while this process is small: a process begins with the peak of the one that started it.
        _child("write", path, rows)
        fine = show(f"memory, {rows:,} rows of parquet, peak of a process", _memory(path))
        fine = _from_file(path, rows) and fine
        if rows <= MEMORY_ONLY:
            fine = _in_memory(data.frame(rows)) and fine
        _opendp(path, opendp)
    return fine


# ---------------------------------------------------------------------- time


class _Report:
    """The rows of a report: each question compared with the plain query, and with half of a count by unit and group."""

    def __init__(self, frame: pl.LazyFrame | pl.DataFrame) -> None:
        self.frame, self.rows, self._pairs = frame, [], {}

    def add(self, what: str, ask: Work, plain: Work, limit: float | None, key: str | None = None) -> float:
        """Add a question that may cost `limit` times the plain query; return its CPU seconds."""
        seconds, plainly = cpu_seconds(ask, REPEATS), cpu_seconds(plain, REPEATS)
        shown = f"{seconds:6.2f} CPU s   plain {plainly:6.3f} s   {seconds / plainly:5.2f} x"
        if key is not None:
            shown += f"   {seconds / self._half_of_pairs(key):5.2f} x half of the pairs"
        self.rows.append(Row(what, shown, seconds / plainly, limit))
        return seconds

    def _half_of_pairs(self, key: str) -> float:
        if key not in self._pairs:
            pairs = self.frame.lazy().group_by("user", key).len()
            self._pairs[key] = cpu_seconds(lambda: pairs.collect().height, REPEATS - 1) / 2
        return self._pairs[key]


def _from_file(path: Path, rows: int) -> bool:
    lazy = pl.scan_parquet(path)
    report = _Report(lazy)
    with generous_session():
        report.add(
            "count by 50 strings",
            lambda: lazy.dp.count("region", **SPEND).collect(),
            lambda: lazy.group_by("region").len().collect(),
            8,
            "region" if rows <= MEMORY_ONLY else None,  # the pairs of 100 million rows don't fit a small machine
        )
    return show(f"from parquet, {rows:,} rows", report.rows)


def _in_memory(frame: pl.DataFrame) -> bool:
    fine = _by_keys(frame)
    fine = _other_aggregates(frame) and fine
    fine = _several_at_once(frame) and fine
    fine = _rows_as_units(frame) and fine
    fine = _strings_as_units(frame) and fine
    return _planning(frame) and fine


def _by_keys(frame: pl.DataFrame) -> bool:
    """Compare first questions: each is asked of another frame, about which nothing is known yet."""
    report = _Report(frame)
    regions = data.region_names()
    with generous_session():
        for what, key, words, limit in (
            ("count by 50 strings", "region", {}, 5),
            ("count by 50 public strings", "region", {"keys": regions}, None),
            ("count by 100,000 integers", "shop", {}, 3),
            ("count by 100,000 strings", "product", {}, 8),
        ):
            report.add(
                what,
                lambda key=key, words=words: frame.clone().dp.count(key, **words, **SPEND),
                lambda key=key: frame.group_by(key).len(),
                limit,
                key,
            )
        for what, key in (("50 strings", "region"), ("100,000 integers", "shop"), ("100,000 strings", "product")):
            report.add(
                f"count_units by {what}",
                lambda key=key: frame.clone().dp.count_units(key, **SPEND),
                lambda key=key: frame.group_by(key).agg(pl.col("user").n_unique()),
                1,
                key,
            )
        report.add(
            "sum and count (dp.mean) by 50 strings",
            lambda: frame.clone().dp.mean("value", by="region", bounds=BOUNDS, **SPEND),
            lambda: frame.group_by("region").agg(pl.col("value").sum(), pl.len()),
            7,
            "region",
        )
        report.add(
            "sum by 50 public strings",
            lambda: frame.clone().dp.sum("value", by="region", bounds=BOUNDS, keys=regions, **SPEND),
            lambda: frame.group_by("region").agg(pl.col("value").sum()),
            None,
            "region",
        )
    return show(f"in memory, {frame.height:,} rows, {data.users_of(frame.height):,} users", report.rows)


def _other_aggregates(frame: pl.DataFrame) -> bool:
    report = _Report(frame)
    value, words = pl.col("value"), {"by": "region", "bounds": BOUNDS, **SPEND}
    pairs = {**words, "bounds": (BOUNDS, (0, 100_000))}
    with generous_session():
        for what, ours, plain, limit in (
            ("median", lambda: frame.clone().dp.median("value", **words), value.median(), 8),
            (
                "quartiles",
                lambda: frame.clone().dp.quantile("value", [0.25, 0.5, 0.75], **words),
                value.quantile(0.5),
                None,
            ),
            ("variance", lambda: frame.clone().dp.var("value", **words), value.var(), None),
            ("histogram", lambda: frame.clone().dp.histogram("value", **words), value.sum(), None),
            ("correlation", lambda: frame.clone().dp.corr("value", "shop", **pairs), pl.corr("value", "shop"), None),
            (
                "distinct",
                lambda: frame.clone().dp.n_unique("shop", by="region", **SPEND),
                pl.col("shop").n_unique(),
                None,
            ),
        ):
            report.add(f"{what} by 50 strings", ours, lambda plain=plain: frame.group_by("region").agg(plain), limit)
    return show("other aggregates", report.rows)


def _several_at_once(frame: pl.DataFrame) -> bool:
    """Compare five aggregates in one agg with one of them, over one column and over two."""
    report = _Report(frame)
    five = {
        "n": dp.count(),
        "total": dp.sum("value", bounds=BOUNDS),
        "average": dp.mean("value", bounds=BOUNDS),
        "spread": dp.var("value", bounds=BOUNDS),
        "typical": dp.median("value", bounds=BOUNDS),
    }
    two = {**five, "average": dp.mean("shop", bounds=(0, 100_000)), "spread": dp.count_units()}
    with generous_session():
        for what, asked in (("one column", five), ("two columns", two)):
            report.add(
                f"five aggregates of {what}",
                lambda asked=asked: frame.clone().dp.group_by("region").agg(**asked, **SPEND),
                lambda: frame.clone().dp.mean("value", by="region", bounds=BOUNDS, **SPEND),
                2.5,
            )
    return show("several at once (plain: one mean)", report.rows)


def _rows_as_units(frame: pl.DataFrame) -> bool:
    report = _Report(frame)
    with generous_session(dp.ROW):
        report.add(
            "count by 50 strings",
            lambda: frame.clone().dp.count("region", **SPEND),
            lambda: frame.group_by("region").len(),
            1.3,
        )
        report.add(
            "sum by 50 strings",
            lambda: frame.clone().dp.sum("value", by="region", bounds=BOUNDS, **SPEND),
            lambda: frame.group_by("region").agg(pl.col("value").sum()),
            2,
        )
    return show("rows as units (dp.ROW)", report.rows)


def _strings_as_units(frame: pl.DataFrame) -> bool:
    """Compare text and integers as unit ids, read from a file. Keys are public, so both sessions do the same work."""
    regions = data.region_names()
    rows = []
    for length in (12, 32):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "named.parquet"
            named = frame.select(data.user_names(frame["user"]).str.tail(length).alias("user"), "region")
            named.write_parquet(path, row_group_size=data.BLOCK)
            named = pl.read_parquet(path).rechunk()
        plain = cpu_seconds(lambda named=named: named.group_by("user", "region").len(), REPEATS)
        for what, words, limit in (("a session with delta", {}, 2.5), ("a pure session", {"delta": None}, 5)):
            with generous_session(epsilon=100, **words):  # each question has a hundredth of the delta
                integers, strings = (
                    cpu_seconds(lambda asked=asked: asked.clone().dp.count("region", keys=regions, **SPEND), REPEATS)
                    for asked in (frame, named)
                )
            shown = f"{strings:6.2f} CPU s   integers {integers:6.3f} s   {strings / integers:5.2f} x"
            shown += f"   {strings / plain:5.2f} x the plain pairs"
            rows.append(Row(f"count by 50 strings, {length} characters, {what}", shown, strings / integers, limit))
    return show("units named by text against integers", rows)


def _planning(frame: pl.DataFrame) -> bool:
    rows = []
    regions = data.region_names()
    with generous_session():
        preview = frame.dp.preview
        for what, ask in (
            ("count", lambda: preview.count("region", epsilon=1)),
            ("count, public keys", lambda: preview.count("region", keys=regions, epsilon=1)),
            ("count within 300", lambda: preview.count("region", within=300)),
            ("mean", lambda: preview.mean("value", by="region", bounds=BOUNDS, epsilon=1)),
        ):
            milliseconds = cpu_seconds(ask, calls=20) * 1e3
            rows.append(Row(f"preview of {what}", f"{milliseconds:6.2f} ms", milliseconds, 10))
    return show("planning, CPU", rows)


# ---------------------------------------------------------------------- memory


def _memory(path: Path) -> list[Row]:
    rows = []
    for what, name, limit in (
        ("plain count by 50 strings", "plain", None),
        ("count by 50 strings", "count", 1.5),
        ("sum and count (dp.mean) by 50 strings", "mean", 1.5),
        ("count by 100,000 strings", "strings", 1.5),
    ):
        gigabytes = float(_child(name, path))
        rows.append(Row(what, f"{gigabytes:6.2f} GB", gigabytes, limit))
    return rows


def _child(*words: object) -> str:
    """Run `peak` in a separate process and return what it printed."""
    command = [sys.executable, "-c", PEAK, *map(str, words)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def peak(name: str, path: str, rows: str = "0") -> None:
    """Do one thing and print the peak memory of this process in gigabytes: the body of a child process."""
    import resource  # not on every system, and only needed here

    lazy = pl.scan_parquet(path) if name != "write" else pl.LazyFrame()
    with generous_session():
        if name == "write":
            data.write(Path(path), int(rows))
        elif name == "plain":
            lazy.group_by("region").len().collect()
        elif name == "count":
            lazy.dp.count("region", **SPEND).collect()
        elif name == "mean":
            lazy.dp.mean("value", by="region", bounds=BOUNDS, **SPEND).collect()
        else:
            lazy.dp.count("product", **SPEND).collect()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9)


# ---------------------------------------------------------------------- OpenDP

# OpenDP 0.16 fails to choose groups at random for one key column (a duplicate name in its plan): it keeps the first.
OPENDP = """
import resource, sys, time, warnings
warnings.simplefilter("ignore")
import opendp.prelude as dp
import polars as pl
dp.enable_features("contrib")
lazy = pl.scan_parquet(sys.argv[1])

def ask():
    context = dp.Context.compositor(
        data=lazy.select("user", "region"),
        privacy_unit=dp.unit_of(
            contributions=[
                dp.polars.Bound(per_group=10), dp.polars.Bound(by=["region"], num_groups=5, per_group=10)
            ],
            identifier=pl.col("user"),
        ),
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-7),
        split_evenly_over=1,
        margins=[dp.polars.Margin(by=(), max_length=10**9)],
    )
    query = context.query().truncate_per_group(10, by=["region"]).truncate_num_groups(5, by=["region"], keep="first")
    return query.group_by("region").agg(dp.len()).release().collect()

def seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start

plain = min(seconds(lambda: lazy.group_by("region").len().collect()) for _ in range(5))
asked = seconds(ask)  # once: it takes a minute
print(pl.__version__, plain, asked, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9)
"""


def _opendp(path: Path, python: str | None) -> None:
    if python is None:
        print("\nOpenDP: skipped, no Python that has it was named (--opendp PYTHON, with opendp[polars] installed)")
        return
    done = subprocess.run([python, "-c", OPENDP, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"\nOpenDP: skipped, it failed: {done.stderr.strip().splitlines()[-1]}")
        return
    version, plain, asked, memory = done.stdout.split()
    ratio = float(asked) / float(plain)
    shown = f"{float(asked):6.2f} CPU s   plain {float(plain):6.3f} s   {ratio:5.2f} x   {float(memory):.2f} GB at most"
    show(f"OpenDP, with Polars {version}", [Row("count by 50 strings, from parquet", shown, ratio)])
