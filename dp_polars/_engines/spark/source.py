"""A Spark DataFrame as a source of private rows, and how a SQL text is run on its session.

A text calls Spark's functions with a mark before their names. Where the server knows the schema `system.builtin`, the
mark becomes that schema, so no function of the user's session can take the place of Spark's own. Where it does not
(Sail, and Spark before 4.2), a question is refused while the session has a function of its own with one of the names.
"""

from __future__ import annotations

import logging
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Protocol, TypeGuard, TypeVar

import polars as pl

from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.spark.steps import rows_text
from dp_polars._engines.spark.types import (
    BIGINT,
    CALL,
    STRING,
    column_type,
    false_in_each_row,
    literal,
    stored_type,
    stored_values,
)
from dp_polars._engines.unit_steps import UnitRows, first_sources
from dp_polars.errors import DPError, InvalidParameterError


class SparkFrame(Protocol):
    """A DataFrame of pyspark, classic or Connect. The package works without pyspark, so it cannot name its type."""

    @property
    def sparkSession(self) -> Any:  # noqa: N802 - pyspark's name
        """The session that the frame belongs to."""
        ...

    @property
    def schema(self) -> Any:
        """The names and types of the columns."""
        ...

    def selectExpr(self, *expr: str) -> Any:  # noqa: N802 - pyspark's name
        """Return the frame with columns given as SQL."""
        ...


# pyspark logs errors there, and they quote values.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging")
_PER_UNIT_STEP = 2  # steps that one within a unit counts as
_MOST_STEPS = 60  # Apache Spark fails at 200, and the process of Sail dies; 105 worked on both

FUNCTIONS = frozenset(
    {
        *("ceil", "char_length", "coalesce", "concat", "contains", "conv", "count", "date_from_unix_date"),
        *("date_part", "day", "dayofyear", "dense_rank", "endswith", "first_value", "floor", "greatest"),
        *("hour", "lag", "last_value", "lead", "least", "make_date", "make_valid_utf8", "max", "md5"),
        *("min", "minute", "month", "nanvl", "octet_length", "pmod", "quarter", "rank"),
        *("replace", "row_number", "shiftright", "sqrt", "startswith", "substring", "sum", "try_add"),
        *("try_multiply", "try_subtract", "unix_date", "unix_micros", "weekofyear", "xxhash64", "year"),
    }
)
"""The functions of Spark that texts may call. `conv` and `md5` are there for tests."""


def is_spark_frame(thing: object) -> TypeGuard[SparkFrame]:
    """Return whether an object is a DataFrame of pyspark. Nothing is imported to find out."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(thing).__mro__
    )


Result = TypeVar("Result")


def ask_spark(question: Callable[[], Result]) -> Result:
    """Return what Spark says about something public, such as a schema; nothing is charged for it.

    Its errors are dropped with their tracebacks. They show how the frame is made, and may quote rows.
    """
    try:
        with _silent():
            return question()
    except DPError:
        raise
    except Exception:  # noqa: BLE001, S110 - each server has errors of its own
        pass
    # Raised outside the handler so that Spark's error is not even the context.
    raise DPError(
        "Spark gave no answer when it was asked for names and types, and nothing was charged for it. Its message is "
        "not shown because it may quote rows. See whether the server still runs and the table still exists, for "
        "example with spark_df.printSchema(), and ask again."
    )


class SparkSource:
    """The rows of a Spark DataFrame. Columns of types that the engine does not support are left out."""

    def __init__(self, frame: SparkFrame) -> None:
        self._frame = frame
        self.reads: dict[str, str] = {}
        """How SQL reads each column. It calls the columns of the frame `c0`, `c1`, ..., whatever their names are."""
        self.per_row = "FALSE"
        """A condition that is false in each row. See `types.false_in_each_row`."""
        types: dict[str, pl.DataType] = {}
        fields = ask_spark(lambda: list(frame.schema.fields))
        names = [field.name for field in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidParameterError(
                f"This Spark frame has the column {twice[0]!r} more than once, so it would be unclear which one is "
                "meant. Rename one of them first."
            )
        for place, field in enumerate(fields):
            found = column_type(field.dataType.simpleString())
            if found is not None:
                types[field.name], read = found
                self.reads[field.name] = read.replace("{}", f"c{place}")
                stored = stored_type(found[0])
                if self.per_row == "FALSE" and stored is not None and "CASE" not in read:
                    self.per_row = false_in_each_row(self.reads[field.name], stored)
                elif self.per_row == "FALSE" and stored == STRING:
                    self.per_row = false_in_each_row(f"c{place}", stored)
        self._schema = pl.Schema(types)
        self._columns = [(field.name, field.dataType.simpleString()) for field in fields]

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self._schema

    def check(self, rows: PrivateRows) -> None:
        """Refuse rows with steps that Spark cannot compute exactly, or with so many that its planner gives up."""
        if _steps_of(rows) > _MOST_STEPS:
            raise InvalidParameterError(
                f"Spark's planner can fail on plans of more than {_MOST_STEPS} steps, and these rows have more. "
                "Compute several columns in one with_columns, or prepare the rows in Spark before dp.private."
            )
        session = self._frame.sparkSession
        if not all(isinstance(one, SparkSource) and one._frame.sparkSession is session for one in first_sources(rows)):
            raise InvalidParameterError(
                "A step within a unit reads rows of this Spark session and rows from elsewhere, and neither side can "
                "read the other's. Put both tables into one Spark session before dp.private."
            )
        rows_text(rows)
        self._check_functions()

    # ------------------------------------------------------------------ texts

    def run(self, text: str, public: Mapping[str, pl.DataFrame], sources: Mapping[str, SparkSource]) -> pl.DataFrame:
        """Return the answer to a SQL text, in which `{rows}` and the like are sources and other names public frames.

        The text is read once, as a whole. It calls no function that is not deterministic, so a task that runs twice
        gives the same rows.
        """
        self._check_functions()
        if not set(re.findall(rf"{CALL}(\w+)", text)) <= FUNCTIONS:
            raise ValueError("a text calls a function that is not listed")
        session = self._frame.sparkSession
        for name, frame in public.items():  # pyspark cannot make an empty frame from Arrow
            text = text if frame.height else text.replace(f"{{{name}}}", _empty(frame))
        named = {name: session.createDataFrame(_arrow(frame)) for name, frame in public.items() if frame.height}
        with _silent():
            named |= {name: source._bound() for name, source in sources.items()}
            table = session.sql(text.replace(CALL, self._schema_of_functions), **named).toArrow()
        found = pl.from_arrow(table)
        return found if isinstance(found, pl.DataFrame) else found.to_frame()

    def _bound(self) -> Any:
        """Return the frame with the names that texts use, bound to its columns by their names.

        Spark resolves a table or view anew in each run. If somebody has replaced it, a column of another name or type
        must not take the place of the one that was planned with: it could be the unit.
        """
        quoted = ("`" + name.replace("`", "``") + "`" for name, _ in self._columns)
        frame = self._frame.selectExpr(*(f"{name} AS c{place}" for place, name in enumerate(quoted)))
        if [field.dataType.simpleString() for field in frame.schema.fields] != [kind for _, kind in self._columns]:
            raise ValueError("the columns have changed since the question was planned")
        return frame

    def _check_functions(self) -> None:
        """Refuse a session with a function of its own that could take the place of one that our texts call."""
        if self._schema_of_functions:
            return
        taken = sorted(FUNCTIONS & {name.lower() for name in self._user_functions()})
        if taken:
            raise InvalidParameterError(
                f"This Spark session has a function of its own named {taken[0]}, which would take the place of Spark's "
                "in every question. Register it under another name, and drop this one."
            )

    def _user_functions(self) -> list[str]:
        session = self._frame.sparkSession
        return [str(row[0]) for row in ask_spark(lambda: session.sql("SHOW USER FUNCTIONS").collect())]

    @cached_property
    def _schema_of_functions(self) -> str:
        """What stands before the name of a function: the schema of built-in functions, if the server knows it.

        Each session is asked once. If it gave no answer then, its own functions are looked at before every question.
        """
        session = self._frame.sparkSession
        if session not in _SCHEMAS:
            _SCHEMAS[session] = _schema_of_functions(session)
        return _SCHEMAS[session]


def _steps_of(rows: PrivateRows) -> int:
    """Return how many steps a plan has, where one within a unit counts as several."""
    if not isinstance(rows.source, UnitRows):
        return len(rows.steps)
    return len(rows.steps) + _PER_UNIT_STEP + sum(map(_steps_of, rows.source.inputs))


_SCHEMAS: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def _schema_of_functions(session: Any) -> str:
    try:
        with _silent():
            found = session.sql("SELECT system.builtin.abs(-1L) AS one").collect()
    except Exception:  # noqa: BLE001 - each server has errors of its own; nothing private was asked
        return ""
    return "system.builtin." if found[0][0] == 1 else ""


def _arrow(frame: pl.DataFrame) -> Any:
    """Return public rows as an Arrow table of the types in which SQL stores them."""
    return pl.DataFrame([stored_values(column) for column in frame.iter_columns()]).to_arrow(
        compat_level=pl.CompatLevel.oldest()
    )


def _empty(frame: pl.DataFrame) -> str:
    """Return the text of a frame without rows."""
    columns = [f"{literal(None, stored_type(one.dtype) or BIGINT)} AS {one.name}" for one in frame.iter_columns()]
    return f"(SELECT {', '.join(columns)} WHERE FALSE)"


@contextmanager
def _silent() -> Iterator[None]:
    """Keep pyspark from logging what fails in this thread: its errors quote values of rows."""
    own = threading.get_ident()

    def other_threads_only(record: logging.LogRecord) -> bool:
        return record.thread != own

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(other_threads_only)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(other_threads_only)
