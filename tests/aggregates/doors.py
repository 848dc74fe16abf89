"""One question through every door: frames, the guarded connection, functions on a connection, and both engines."""

from __future__ import annotations

import warnings

import duckdb
import polars as pl

import dp_polars as dp
from dp_polars.engines.duckdb import spilling

HUGE = 10**5  # Laplace noise of scale 0.01 on counts: not 0 with a probability below 1e-40


def session(**words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        given = {"epsilon": 10**6, "delta": 1e-6, "unit": "who", "max_groups": 20, "max_rows_per_group": 50}
        return dp.Session(**{**given, **words})


class Polars:
    """`df.dp`."""

    errors = dp.DPError

    def __init__(self, frame, paying):
        self.frame, self.paying = frame, paying

    def _call(self, root, aggregate, column, by, where, bounds, options):
        frame = root if where is None else root.filter(where[0])
        words = {**options, "session": self.paying}
        if aggregate in ("sum", "mean"):
            return getattr(frame, aggregate)(column, by=by, bounds=bounds, **words)
        if aggregate == "count" and column is not None:
            words["column"] = column
        return getattr(frame, aggregate)(by, **words)

    def ask(self, aggregate, column=None, by=None, where=None, bounds=None, **options):
        found = self._call(self.frame.dp, aggregate, column, by, where, bounds, options)
        found = found.lazy().collect()
        return found.rename({found.columns[-1]: "answer"})


class Lazy(Polars):
    """`lf.dp`."""

    errors = (dp.DPError, pl.exceptions.ComputeError)  # Polars 1.x wraps what a lazy source raises, with its text

    def __init__(self, frame, paying):
        super().__init__(frame.lazy(), paying)


class Guarded:
    """`dp.connect`."""

    errors = dp.DPError

    def __init__(self, frame, paying):
        self.raw = duckdb.connect()
        self.raw.register("given", frame.to_arrow())
        self.raw.execute("CREATE TABLE rows AS FROM given")
        self.con = dp.connect(self.raw, paying)

    def ask(self, aggregate, column=None, by=None, where=None, bounds=None, **options):
        call = {"count": "dp_count", "count_units": "dp_count_units", "sum": "dp_sum", "mean": "dp_avg"}[aggregate]
        arguments = [column] if column else ["*"] if aggregate == "count" else []
        words = {**options, **({"bounds": bounds} if bounds is not None else {})}
        query = f"SELECT {by + ',' if by else ''} {call}({', '.join(arguments)}) AS answer FROM rows"
        query += f" WHERE {where[1]}" if where else ""
        query += f" GROUP BY {by}" if by else ""
        return self.con.sql(query, **words).pl()


class Functions:
    """`dp.register`."""

    errors = duckdb.Error

    def __init__(self, frame, paying):
        self.raw = duckdb.connect()
        self.raw.register("given", frame.to_arrow())
        self.raw.execute("CREATE TABLE rows AS FROM given")
        dp.register(self.raw, paying)

    def ask(self, aggregate, column=None, by=None, where=None, bounds=None, **options):
        words = ["'rows'"]
        if aggregate in ("sum", "mean"):
            low, high = bounds or ("NULL", "NULL")
            words += [f"'{column}'", str(low), str(high)]
        if by:
            words.append(f"by := '{by}'")
        if where:
            words.append('"where" := \'' + where[1].replace("'", "''") + "'")
        if column and aggregate == "count":
            words.append('"where" := \'' + column + " IS NOT NULL'")
        words += [f"{name} := {value!r}" for name, value in options.items()]
        found = self.raw.sql(f"FROM dp.dp_{aggregate}({', '.join(words)})").pl()
        return found.rename({found.columns[-1]: "answer"})


class Spilling(Guarded):
    """`dp.connect`, with the engine that takes over where memory is short."""

    def __init__(self, frame, paying):
        super().__init__(frame, paying)

    def ask(self, *given, **words):
        from dp_polars.sql import asking

        honest = asking.must_spill
        asking.must_spill = lambda *_: True
        try:
            return super().ask(*given, **words)
        finally:
            asking.must_spill = honest


DOORS = [Polars, Lazy, Guarded, Functions, Spilling]
assert spilling  # the engine behind the last door


def rows(frame: pl.DataFrame, by: str | None):
    """Return answers by key, or the one answer."""
    return dict(frame.select(by, "answer").iter_rows()) if by else frame["answer"].item()
