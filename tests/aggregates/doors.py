"""One question through every door and on every engine.

The doors are frames, files that are streamed, the guarded connection, functions on a connection, rows in parts, and
Spark frames. Questions to Spark run on the server that the tests of `tests/engines/spark` share.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._sql import functions as sql_functions
from dp_polars._sql import queries as sql_queries
from tests.engines.spark.server import shared_session
from tests.sql.registered import let_functions_charge

HUGE = 10**5  # Laplace noise of scale 0.01 on counts: not 0 with a probability below 1e-40
SQL = {"n_unique": "dp_count_distinct", "mean": "dp_avg", "std": "dp_stddev", "cov": "dp_covar"}
"""What an aggregate is called in SQL, if not by its own name."""
BY_FIRST = ("count", "count_units")


def session(**words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        given = {"epsilon": 10**6, "delta": 1e-6, "unit": "who", "max_groups": 20, "max_rows_per_group": 50}
        return dp.Session(**{**given, **words})


def columns_of(column):
    return [] if column is None else [column] if isinstance(column, str) else list(column)


class Polars:
    """`df.dp`."""

    errors = dp.DPError

    def __init__(self, frame, paying):
        self.frame, self.paying = frame, paying

    def _call(self, preview, aggregate, column, by, where, words):
        frame = self.frame.dp if where is None else self.frame.dp.filter(where[0])
        asked = getattr(frame.preview if preview else frame, aggregate)
        words = {**words, "session": self.paying}
        if aggregate in BY_FIRST:
            return asked(by, **words, **({} if column is None else {"column": column}))
        return asked(*columns_of(column), by=by, **words)

    def ask(self, aggregate, column=None, by=None, where=None, **words):
        found = self._call(False, aggregate, column, by, where, words).lazy().collect()
        parts = {"histogram": ["bin_low", "bin_high", "count"], "linear_regression": ["slope", "intercept"]}
        if aggregate not in parts:
            return found.rename({found.columns[-1]: "answer"})
        found = found.select(*columns_of(by), answer=pl.struct(parts[aggregate]))
        if aggregate == "linear_regression":
            return found
        keys = columns_of(by) or [pl.lit(0).alias("all")]
        return found.group_by(*keys, maintain_order=True).agg("answer").select(*columns_of(by), "answer")

    def plan(self, aggregate, column=None, by=None, where=None, **words):
        """Return the plan, which is the same in every door."""
        return self._call(True, aggregate, column, by, where, words)


class Lazy(Polars):
    """`lf.dp`."""

    errors = (dp.DPError, pl.exceptions.ComputeError)  # Polars 1.x wraps what a lazy source raises, with its text

    def __init__(self, frame, paying):
        super().__init__(frame.lazy(), paying)


class Scanned(Lazy):
    """`pl.scan_parquet(...).dp`: rows are streamed from a file of several row groups."""

    def __init__(self, frame, paying):
        super().__init__(pl.scan_parquet(files().of(frame)), paying)


class Files:
    """A folder in which each frame has a file."""

    def __init__(self):
        self.folder, self._frames = Path(tempfile.mkdtemp()), []

    def of(self, frame):
        """Return the file of a frame. A file never changes, and its frame is held, so no other has its number."""
        path = self.folder / f"{id(frame)}.parquet"
        if not path.exists():
            self._frames.append(frame)
            frame.write_parquet(path, row_group_size=1500)
        return path


@cache
def files():
    """Return the folder of the files that scanned frames read."""
    return Files()


class OnSpark(Polars):
    """`spark_df.dp`. Columns of types that Spark does not have are left out, and categories are texts."""

    def __init__(self, frame, paying):
        super().__init__(spark_frames().of(frame), paying)


class SparkFrames:
    """The last frame that was brought to Spark: most tests ask several questions about one."""

    def __init__(self):
        self._session, self._frame, self._made = shared_session(), None, None
        import dp_polars.spark  # noqa: F401 - it registers the namespace

    def of(self, frame):
        """Return a Polars frame as a Spark frame. It has one row more if there are none, because Spark infers types."""
        if self._frame is not frame:
            given = frame.with_columns(pl.selectors.categorical().cast(pl.String), pl.selectors.enum().cast(pl.String))
            given = (given if given.height else given.clear(1)).to_arrow(compat_level=pl.CompatLevel.oldest())
            made = self._session.createDataFrame(given)
            self._frame, self._made = frame, made if frame.height else made.limit(0)
        return self._made


@cache
def spark_frames():
    """Return the frames on the Spark server of this process."""
    return SparkFrames()


class Rows:
    """A database whose table `rows` is filled anew for each frame: opening a database takes longer than asking it."""

    def __init__(self):
        self.raw, self._frame = duckdb.connect(), None

    def of(self, frame):
        """Return the database with the rows of a frame. Another door may have put other rows there."""
        if self._frame is not frame:
            self.raw.register("given", frame.to_arrow())
            self.raw.execute("CREATE OR REPLACE TABLE rows AS FROM given")
            self._frame = frame
        return self.raw


@cache
def plain_database():
    """Return the database that guarded connections share."""
    return Rows()


@cache
def registered_database():
    """Return the database that has the functions of `dp.register`."""
    shared = Rows()
    sql_functions.register(shared.raw, session())
    return shared


def close_all():
    """Close the databases and delete the files. DuckDB complains at exit about functions that are still there."""
    if files.cache_info().currsize:
        shutil.rmtree(files().folder)
        files.cache_clear()
    for database in (plain_database, registered_database):
        if database.cache_info().currsize:
            database().raw.close()
            database.cache_clear()


class Guarded:
    """`dp.connect`."""

    errors = dp.DPError

    def __init__(self, frame, paying):
        self.frame, self.paying = frame, paying
        self.con = dp.connect(plain_database().of(frame), paying)

    def ask(self, aggregate, column=None, by=None, where=None, **words):
        arguments = columns_of(column) or (["*"] if aggregate == "count" else [])
        call = f"{SQL.get(aggregate, 'dp_' + aggregate)}({', '.join(arguments)})"
        query = f"SELECT {by + ',' if by else ''} {call} AS answer FROM rows"
        query += f" WHERE {where[1]}" if where else ""
        query += f" GROUP BY {by}" if by else ""
        plain_database().of(self.frame)
        return self.con.sql(query, **words).pl()


class Functions:
    """`dp.register`."""

    errors = duckdb.Error

    def __init__(self, frame, paying):
        self.frame, self.paying = frame, paying

    @property
    def raw(self):
        """The database. The session of this door replaces the previous one behind the same macros."""
        raw = registered_database().of(self.frame)
        let_functions_charge(raw, self.paying)
        return raw

    def ask(self, aggregate, column=None, by=None, where=None, bounds=None, **options):
        words = ["'rows'"]
        if aggregate == "count" and column:
            words.append(f"\"column\" := '{column}'")
        else:
            words += [f"'{one}'" for one in columns_of(column)]
        if aggregate == "quantile":
            words.append(str(options.pop("quantile")))
        if aggregate not in (*BY_FIRST, "n_unique"):
            pairs = bounds if isinstance(column, tuple) else [bounds]
            words += [str(one) for pair in pairs or [None, None] for one in pair or ("NULL", "NULL")]
        if by:
            words.append(f"by := '{by}'")
        if where:
            words.append('"where" := \'' + where[1].replace("'", "''") + "'")
        words += [f"{name} := {value!r}" for name, value in options.items()]
        found = self.raw.sql(f"FROM dp.{SQL.get(aggregate, aggregate).removeprefix('dp_')}({', '.join(words)})").pl()
        return found.rename({found.columns[-1]: "answer"})


class InParts(Guarded):
    """`dp.connect`, where memory is short: rows are bounded in parts."""

    def ask(self, *given, **words):
        honest = sql_queries.parts_for
        sql_queries.parts_for = lambda *_: 3
        try:
            return super().ask(*given, **words)
        finally:
            sql_queries.parts_for = honest


WAYS_TO_ROWS = ([Polars, Lazy, Scanned], [Guarded, Functions, InParts], [OnSpark])
"""The doors by how an engine gets the rows: from Polars, from DuckDB, or where they are, on Spark."""
DOORS = [door for way in WAYS_TO_ROWS for door in way]


def rows(frame: pl.DataFrame, by: str | None):
    """Return the answers by key, or the only answer."""
    return dict(frame.select(by, "answer").iter_rows()) if by else frame.select("answer").rows()[0][0]


def charges(frame: pl.DataFrame, *given, **words):
    """Return what each door charges for a question and how it labels it. If all agree, this is a single pair."""
    found = set()
    for kind in DOORS:
        paying = session(epsilon=1)
        kind(frame, paying).ask(*given, **words)
        (entry,) = paying.releases
        found.add((str(entry.cost), entry.label))
    return found


def refused(door, message: str, *given, **words):
    """Check that a door refuses a question and charges nothing."""
    with pytest.raises(door.errors, match=message):
        door.ask(*given, **words)
    assert not door.paying.releases
