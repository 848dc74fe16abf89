"""`dp.connect`: a DuckDB connection that answers private questions and refuses everything else."""

from __future__ import annotations

import datetime
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl

from dp_polars._choices.plan import ChoicePlan
from dp_polars._engines.base import object_token
from dp_polars._local.plan import ResponsePlan
from dp_polars._numbers import flag_of
from dp_polars._plan.plan import Plan
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars._session.terms import TableUnit, UnitWords, table_unit
from dp_polars._sql.answers import Asked, ask
from dp_polars._sql.catalog import Catalog, TableKey
from dp_polars._sql.file_sources import OpenedFile, Types, open_source, refuse_public_and_private, same_file
from dp_polars._sql.local_statements import is_local, local_statement, plan_of_local
from dp_polars._sql.sandbox import Sandbox
from dp_polars._sql.statement import cut
from dp_polars._sql.syntax_tree import Node, Parser, fold, parameters_of, path_of, sandbox, without_progress
from dp_polars._sql.tables import closest
from dp_polars._sql.verify import check_parameter
from dp_polars.errors import InvalidParameterError, StatementNotAllowed

Parameters = Sequence[Any] | Mapping[str, Any] | None

_VALUES = (
    bool, int, float, str, bytes, Decimal, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, type(None)
)  # fmt: skip


class Plans(list[Plan | ChoicePlan]):
    """The plans of a statement with several private aggregates; prints one after the other."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(plan._repr_html_() for plan in self)


class GuardedConnection:
    """A DuckDB connection on which every table is private unless it was declared public.

    `sql` and `execute` take one SELECT. Its private aggregates are `dp_count`, `dp_count_units`, `dp_count_distinct`,
    `dp_sum`, `dp_avg`, `dp_var`, `dp_stddev`, `dp_median`, `dp_quantile`, `dp_min`, `dp_max`, `dp_histogram`,
    `dp_corr`, `dp_covar` and `dp_linear_regression`. Below them every step must look at one row at a time; above them
    it is ordinary SQL on the released rows.

    `SELECT dp_randomized_response(vote, epsilon := 1.0) FROM votes` is a statement of its own: a randomized response of
    each unit, in a session with adjacency "replace". So is `FROM dp_estimate_frequencies('responses', 'vote',
    epsilon := 1.0)`, of a public table; it costs nothing.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=1))
    >>> visits = pl.DataFrame({"user_id": range(2_000), "region": ["a", "b"] * 1_000})
    >>> con = con.register("visits", visits).register("names", pl.DataFrame({"region": ["a"]})).public("names")
    >>> query = "SELECT dp_count(*, epsilon := 0.5) AS n FROM visits JOIN names USING (region)"
    >>> con.preview(query).expected_error()
    6.0
    >>> round(con.execute(query).fetchall()[0][0], -3), con.pl().columns
    (1000, ['n'])
    """

    def __init__(self, database: Any, session: Session) -> None:
        if not isinstance(session, Session):
            raise InvalidParameterError(
                "A guarded connection needs a session that pays: dp.connect(database, session)."
            )
        if isinstance(database, str | os.PathLike) and not os.path.exists(database):
            raise InvalidParameterError("There is no database file at this path; None opens an empty one in memory.")
        self._session = session
        self._own = not hasattr(database, "cursor")
        self._raw: Any = (
            duckdb.connect(os.fspath(database) if database is not None else ":memory:") if self._own else database
        )
        self._parser = Parser()
        self._frames: dict[str, OpenedFile] = {}
        self._public: set[TableKey] = set()
        self._units: dict[TableKey, tuple[UnitWords, bool]] = {}
        self._token = object_token(self._raw).hex()
        self._sandbox = Sandbox(self._parser)
        self._results: Any = sandbox()
        self._declared = 0  # how often something was declared: earlier answers may not be for it
        self._result: Any = None
        self._table: Any = None
        self._paid: tuple[Release, ...] = ()  # behind the last answer, found again or made

    # ------------------------------------------------------------------ tables

    def register(self, name: str, source: Any, *, types: Types = None) -> GuardedConnection:
        """Give a frame (Polars, Arrow, pandas) or a Parquet, CSV or Arrow file a name in SQL; its rows are private.

        CSV and Arrow files are read now, into memory. Categories of pandas and dictionaries of Arrow become text, and
        so does a pandas column of type object.

        Parameters
        ----------
        name
            What it is called in SQL.
        source
            A frame, or the path of a file.
        types
            The types of a CSV file's columns, because no line may decide them: `{"amount": "DOUBLE"}`, and others are
            text; or "infer", which finds them once in all lines and records them in the session's ledger, as your word
            that they are public. Recorded types stay, also if the file changes, and need not be said again. A value
            that doesn't fit its type is null.

        Examples
        --------
        >>> import dp_polars as dp, tempfile
        >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=1))
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     print("user_id,amount", *(f"{i},{i % 80}.5" for i in range(900)), sep=chr(10), file=file, flush=True)
        ...     con = con.register("sales", file.name, types={"user_id": "BIGINT", "amount": "DOUBLE"})
        >>> round(con.sql("SELECT dp_avg(amount, 0, 80, epsilon := 0.9) FROM sales").fetchall()[0][0], -1)
        40.0
        """
        opened, own = open_source(name, source, types, self._session), fold(name)
        self._refuse_two_ways({**self._frames, own: opened}, self._public - {("frame", own)})
        self._frames[own] = opened
        self._public.discard(("frame", own))
        self._units.pop(("frame", own), None)
        self._declared += 1
        return self

    def public(self, *names: str) -> GuardedConnection:
        """Declare tables public: their rows belong to nobody, and may be shown and joined."""
        keys = {self._key(name) for name in names}
        self._refuse_two_ways(self._frames, self._public | keys)
        self._public |= keys
        self._declared += 1
        return self

    def private(self, name: str, unit: UnitWords, *, weaker_unit: bool = False) -> GuardedConnection:
        """Declare whose a row of a table or view is, where that isn't the session's unit column.

        For a view this is the owner's word: that each of its rows is made of one unit's rows. The unit is the
        session's, a renaming of it (`unit={"user_id": "customer"}`) or coarser (some of its columns); any other may
        protect less than was agreed and needs `weaker_unit=True`.

        Examples
        --------
        >>> import duckdb, dp_polars as dp
        >>> raw = duckdb.connect()
        >>> raw = raw.execute("CREATE TABLE sales AS SELECT i AS customer, 5 AS amount FROM range(900) t(i)")
        >>> con = dp.connect(raw, dp.Session(epsilon=1.0, unit="user_id"))
        >>> con = con.private("sales", unit={"user_id": "customer"})
        >>> round(con.sql("SELECT dp_count_units(epsilon := 0.5) FROM sales").fetchall()[0][0], -2)
        900
        """
        if unit is None:
            raise InvalidParameterError("unit= names the column, or the columns, that say whose a row is.")
        words = (unit, flag_of(weaker_unit, "weaker_unit"))
        table_unit(self._session.terms.unit, unit, weaker=words[1])  # says so if it protects less
        key = self._key(name)
        self._public.discard(key)
        self._units[key] = words
        self._declared += 1
        return self

    def _refuse_two_ways(self, files: Mapping[str, OpenedFile], public: set[TableKey]) -> None:
        """Refuse a file that would be public under one name and private under another."""
        refuse_public_and_private(files, {key[1] for key in public if key[0] == "frame"})

    def _table_unit(self, key: TableKey) -> TableUnit:
        """Return whose the rows of a table are, in the session that pays."""
        same = [key]
        if key[0] == "frame":  # another name of the same file is the same table
            same += [("frame", name) for name, one in self._frames.items() if same_file(one, self._frames[key[1]])]
        unit, weaker = next((self._units[one] for one in same if one in self._units), (None, False))
        return table_unit(self._session.terms.unit, unit, weaker=weaker)

    def _key(self, name: str) -> TableKey:
        """Return the table that a name stands for, which is read as in a statement."""
        path = path_of(self._parser.table(name))
        catalog = Catalog(self)
        key = catalog.key(path)
        if key is None:
            raise InvalidParameterError(
                f"There is no table {name} here{closest(name, catalog.known_names())}. Make or register it first: what "
                "is declared belongs to the table, not to its name."
            )
        return key

    # ------------------------------------------------------------------ statements

    def sql(self, query: str, *, params: Parameters = None, **options: Any) -> Any:
        """Answer a statement and return a DuckDB relation over the released rows.

        Parameters
        ----------
        query
            One SELECT.
        params
            Values for `?` or `$name`.
        **options
            Options for all private aggregates of the statement; a spend is shared evenly by those without their own.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id"))
        >>> con.register("visits", pl.DataFrame({"user_id": [1, 2, 3], "region": ["a", "b", "a"]}))
        <dp.GuardedConnection ...>
        >>> con.sql("SELECT dp_count_units(epsilon := 0.5) AS people FROM visits").columns
        ['people']
        """
        return self._results.from_arrow(self._answer(query, _parameters(params), options))

    def execute(self, query: str, parameters: Parameters = None) -> GuardedConnection:
        """Answer a statement; its rows are fetched from this connection, as in Python's database API."""
        self._table = self._answer(query, _parameters(parameters), {})
        self._result = self._results.cursor()
        self._result.register("dp_result", self._table)
        self._result.execute("FROM dp_result")
        return self

    def preview(
        self, query: str, *, params: Parameters = None, **options: Any
    ) -> Plan | ChoicePlan | ResponsePlan | list[Plan | ChoicePlan]:
        """Return the plan of a statement's private aggregate, or the plans of several. Spends nothing."""
        if is_local(query) and (local := local_statement(self, query, _parameters(params), options)) is not None:
            return plan_of_local(local)
        plans = self._asked(query, _parameters(params), options).plans
        return plans[0] if len(plans) == 1 else Plans(plans)

    def _answer(self, query: str, parameters: dict[str, Any], options: dict[str, Any]) -> Any:
        """Return the rows of a statement as an Arrow table."""
        self._paid = ()
        if is_local(query) and (local := local_statement(self, query, parameters, options)) is not None:
            return local.answer().to_arrow()
        asked = self._asked(query, parameters, options)
        released = asked.release()
        self._paid = tuple(asked.releases)
        try:
            return asked.catalog.answer(asked.parts.above, released)
        except duckdb.Error as error:
            raise StatementNotAllowed(
                f"What stands above the private aggregates failed: {str(error).splitlines()[0]} Their answers were "
                "released and are stored: a corrected statement finds them again at no cost."
            ) from None

    def _asked(self, query: str, parameters: dict[str, Any], options: dict[str, Any]) -> Asked:
        """Return the questions of a statement, planned; what stands above them can be run."""
        if "confidence" in options:
            raise InvalidParameterError(
                "An answer in a SELECT is one value, so there is no place for an interval; functions of dp.register "
                "have confidence :=, and con.preview says the expected error."
            )
        catalog = Catalog(self, parameters)
        node = self._parser.select(query)
        unused = sorted(set(parameters) - set(parameters_of(node)))
        if unused:
            raise InvalidParameterError(f"The statement has no parameter {', '.join(unused)}.")
        asked = ask(cut(node, query, self._parser, catalog, parameters), self._session, catalog, options)
        if asked.ones:
            catalog.bind(asked.parts.above, asked.empty())
        return asked

    def _released(self, node: Node, options: dict[str, Any]) -> tuple[pl.DataFrame, str, Callable[[], bytes]]:
        """Return the released rows of one private aggregate from parsed parts, the answer's name and the source's."""
        catalog = Catalog(self)
        asked = ask(cut(node, "", self._parser, catalog, {}), self._session, catalog, options)
        ((aggregation, _),) = asked.ones
        frame = asked.release()[aggregation.table]
        sources = aggregation.questions[0].sources
        names = {f"dp_key_{number}": name for number, name in enumerate(aggregation.keys)}
        return frame.rename(names), asked.plans[0].query.aggregates[0].name, lambda: catalog.source(sources)

    def _cursor_for_rows(self) -> Any:
        """Return a cursor on the database that sees no Python variables."""
        cursor = self._raw.cursor()
        cursor.execute("SET python_enable_replacements = false")
        without_progress(cursor)
        return cursor

    # ------------------------------------------------------------------ Python's database API

    @property
    def description(self) -> Any:
        """The columns of the last result."""
        return self._fetching().description

    def fetchone(self) -> Any:
        """Return the next row of the last result."""
        return self._fetching().fetchone()

    def fetchmany(self, size: int = 1) -> Any:
        """Return the next rows of the last result."""
        return self._fetching().fetchmany(size)

    def fetchall(self) -> Any:
        """Return the rows left in the last result."""
        return self._fetching().fetchall()

    def pl(self) -> pl.DataFrame:
        """Return the last result as a Polars frame."""
        self._fetching()
        frame = pl.from_arrow(self._table)
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()

    def df(self) -> Any:
        """Return the last result as a pandas frame."""
        self._fetching()
        return self._table.to_pandas()

    def arrow(self) -> Any:
        """Return the last result as an Arrow table."""
        self._fetching()
        return self._table

    def _fetching(self) -> Any:
        if self._result is None:
            raise InvalidParameterError("Nothing was asked yet: con.execute('SELECT ...').")
        return self._result

    def cursor(self) -> GuardedConnection:
        """Return another guarded connection to the same tables, session and declarations."""
        other = GuardedConnection.__new__(GuardedConnection)
        other.__dict__.update(self.__dict__)
        other._result, other._own = None, False
        return other

    def _paid_by(self, session: Session) -> GuardedConnection:
        """Return another guarded connection to the same tables, paid by another session."""
        other = self.cursor()
        other._session = session
        return other

    def commit(self) -> None:
        """Do nothing: a guarded connection writes nothing."""

    def rollback(self) -> None:
        """Do nothing: a guarded connection writes nothing."""

    def close(self) -> None:
        """Close the connection, and the database if it was opened here."""
        self._result = None
        if self._own:
            self._raw.close()

    def __enter__(self) -> GuardedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dp.GuardedConnection paid by {self._session!r}>"


def _parameters(given: Parameters) -> dict[str, Any]:
    """Return parameters by name; those given by position are named by it."""
    if given is None:
        return {}
    values = given if isinstance(given, Mapping) else {str(place + 1): value for place, value in enumerate(given)}
    for name, value in values.items():
        check_parameter(str(name))
        texts = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, str)]
        if any("\ud800" <= sign <= "\udfff" for text in texts for sign in text):
            raise InvalidParameterError(f"Parameter {name} is no text: it has half a character in it.")
        if not all(isinstance(one, _VALUES) for one in (value if isinstance(value, list | tuple) else [value])):
            raise InvalidParameterError(
                f"Parameter {name} is a {type(value).__name__}; parameters are numbers, texts, dates or lists of them."
            )
    return {str(name): value for name, value in values.items()}


def connect(database: Any = None, session: Session | None = None) -> GuardedConnection:
    """Return a guarded connection: DuckDB SQL with private aggregates, paid by a session.

    Parameters
    ----------
    database
        A path, an open DuckDB connection, or None for an empty database in memory.
    session
        The session that pays and says whose rows are.

    Examples
    --------
    >>> import dp_polars as dp
    >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id"))
    """
    if session is None:
        raise InvalidParameterError("A guarded connection needs a session that pays: dp.connect(database, session).")
    return GuardedConnection(database, session)
