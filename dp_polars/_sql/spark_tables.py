"""Tables of a Spark session, as `dp.connect(spark, session)` sees them.

Statements are parsed and checked by DuckDB as always. Only the names of tables are looked up in Spark's catalog, and
the rows of a table are read on Spark. Names are compared without case and resolved to the table itself, so another
spelling of a name has the same declarations.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from dp_polars._engines.registry import engine_for
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.spark.source import SparkSource, ask_spark
from dp_polars._sql.catalog import Database, TableKey
from dp_polars._sql.files import OpenedFile
from dp_polars._sql.syntax_tree import fold
from dp_polars.errors import DPError, StatementNotAllowed


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkTable(OpenedFile):
    """A table, view or DataFrame of Spark.

    Its snapshot identifies it, or its DataFrame if it has none, or the version that its owner gives it.
    """

    source: SparkSource
    view: bool = False
    snapshot: tuple[str, ...] = ()
    """What names the rows of a table that keeps its history: its name, its identifier and its version."""

    @property
    def is_view(self) -> bool:
        """Whether this is a view, whose rows may be computed in any way."""
        return self.view

    def source_name(self) -> bytes:
        """Return the identity of the rows for stored releases: their snapshot, or else the DataFrame object."""
        return b"spark:" + json.dumps(self.snapshot).encode() if self.snapshot else super().source_name()

    def schema(self) -> pl.Schema:
        """Return the names and types of the columns."""
        return self.source.schema

    def private_rows(self) -> PrivateRows:
        """Return the rows as private ones."""
        return PrivateRows(self.source)

    def public_rows(self) -> pl.DataFrame:
        """Read all rows, which are public."""
        rows = self.private_rows()
        return engine_for(rows).read(rows)


def spark_table(frame: Any, *, is_view: bool = False, snapshot: tuple[str, ...] = ()) -> SparkTable:
    """Return a Spark DataFrame as a table."""
    return SparkTable(_origin=frame, source=SparkSource(frame), view=is_view, snapshot=snapshot)


class SparkDatabase(Database):
    """The tables of a Spark session, and what their owner declared about them."""

    def __init__(self, spark: Any) -> None:
        super().__init__(duckdb.connect())  # for tables that are registered, and for what is public
        self._spark = spark
        self._looked_up: set[str] = set()

    def find(self, path: tuple[str, ...]) -> str | None:
        """Return the name under which a table is registered. Tables of Spark are looked up in each statement.

        A table that is dropped, or hidden by a temporary view, is another table from then on. What was declared about a
        table whose columns change is forgotten.
        """
        registered = super().find(path)
        if registered is not None and registered not in self._looked_up:
            return registered
        found = ask_spark(lambda: self._look_up(path))
        if found is None:
            return None
        name, spelled, is_view = found
        if ("frame", name) in self.public:  # its rows were read when it was declared
            return name
        snapshot = () if is_view else self._snapshot(name, spelled)
        frame, schema = ask_spark(lambda: (table := self._read(spelled, snapshot), table.schema))
        known = self.registered.get(name)
        is_same_table = isinstance(known, SparkTable) and known._origin.schema == schema
        if not is_same_table:
            self._looked_up.add(name)
            self.units.pop(("frame", name), None)
            self.throughs.pop(("frame", name), None)
            self.versions.pop(("frame", name), None)
        if not isinstance(known, SparkTable) or not is_same_table or known.snapshot != snapshot:
            self.registered[name] = spark_table(frame, is_view=is_view, snapshot=snapshot)
        return name

    def _snapshot(self, name: str, spelled: str) -> tuple[str, ...]:
        """Return what names the present rows of a Delta or Iceberg table; nothing for tables without a history.

        It is taken from what the table says about itself, which counts as public, and never from its rows. A Delta
        table counts its versions, so its identifier belongs to them; Iceberg numbers snapshots at random.
        """
        for texts in (
            (f"DESCRIBE DETAIL {spelled}", f"DESCRIBE HISTORY {spelled} LIMIT 1"),
            (f"SELECT snapshot_id AS version FROM {spelled}.refs WHERE name = 'main'",),  # noqa: S608 - Spark's names
        ):
            with contextlib.suppress(DPError):
                rows = [ask_spark(lambda text=text: self._spark.sql(text).collect()[0].asDict()) for text in texts]  # type: ignore[misc]
                if rows[-1].get("version") is not None and (len(rows) == 1 or rows[0].get("id")):
                    return (name, *(str(row["id"]) for row in rows[:-1]), str(rows[-1]["version"]))
        return ()

    def _read(self, spelled: str, snapshot: tuple[str, ...]) -> Any:
        """Return the rows of a table, those of its snapshot if it has one, whatever is written to it meanwhile."""
        if not snapshot:
            return self._spark.table(spelled)
        return self._spark.sql(f"SELECT * FROM {spelled} VERSION AS OF {int(snapshot[-1])}")  # noqa: S608

    def declare_public(self, keys: set[TableKey]) -> None:
        """Declare tables public and read their rows, once.

        Spark resolves the name of a view anew whenever it is read. If it were replaced later, its new rows might be
        private, and a copy cannot show them.
        """
        super().declare_public(keys)
        for kind, name, *_ in keys:
            table = self.registered.get(str(name)) if kind == "frame" else None
            if isinstance(table, SparkTable):
                rows = table.public_rows()
                self.registered[str(name)] = OpenedFile(_rows=rows.lazy(), _origin=rows)

    def _look_up(self, path: tuple[str, ...]) -> tuple[str, str, bool] | None:
        """Return the full name of a table, how Spark spells it, and whether it is a view; None if there is none."""
        catalog = self._spark.catalog
        here = (catalog.currentCatalog(), catalog.currentDatabase())
        if len(path) > 3 or (len(path) == 3 and path[0] != fold(here[0])):
            return None
        wanted = path[-2] if len(path) > 1 else fold(here[1])
        spaces = (
            [here[1]]
            if len(path) == 1
            else [database.name for database in catalog.listDatabases() if fold(database.name) == wanted]
        )
        tables = [table for space in spaces for table in catalog.listTables(space) if fold(table.name) == path[-1]]
        tables = [table for table in tables if len(path) == 1 or not table.isTemporary]
        temporary = [table for table in tables if table.isTemporary]
        found = temporary or tables  # as in Spark, a temporary view hides a table
        if len(found) > 1:
            raise StatementNotAllowed(f"{'.'.join(path)} could mean two tables, whose names differ only by case.")
        if not found:
            return None
        parts = [found[0].name] if temporary else [here[0], spaces[0], found[0].name]
        name = fold(f"{parts[0]} (temporary view)" if temporary else ".".join(parts))
        spelled = ".".join("`" + part.replace("`", "``") + "`" for part in parts)
        return name, spelled, bool(temporary) or found[0].tableType == "VIEW"

    def names(self) -> list[str]:
        """Return the names of the tables in the current schema."""
        return [table.name for table in ask_spark(self._spark.catalog.listTables)]


def is_spark_session(thing: object) -> bool:
    """Return whether an object is a Spark session. Nothing is imported to find out."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "SparkSession" for kind in type(thing).__mro__
    )
