"""`dp.connect`: a DuckDB connection that answers private queries and refuses everything else."""

from __future__ import annotations

import datetime
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import duckdb
import polars as pl

from dp_polars._choices.plan import ChoicePlan
from dp_polars._engines.spark.source import is_spark_frame
from dp_polars._local.plan import ResponsePlan
from dp_polars._numbers import Number, confidence_of, exact, flag_of
from dp_polars._plan.plan import Plan
from dp_polars._profile.plan import ProfilePlan
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars._session.terms import UnitWords, table_unit
from dp_polars._sql.aggregate_calls import CUT_HAS_NO_COLUMN
from dp_polars._sql.analysis import analyse
from dp_polars._sql.catalog import Catalog, Database, TableKey, Through
from dp_polars._sql.descriptions import DescriptionStatement, description_statement, is_description
from dp_polars._sql.files import Types, open_source
from dp_polars._sql.interval_ends import WantedIntervals
from dp_polars._sql.local_statements import LocalStatement, is_local, local_statement
from dp_polars._sql.option_words import in_sql
from dp_polars._sql.public_facts import with_budget
from dp_polars._sql.queries import PlannedStatement, plan_statement
from dp_polars._sql.relations import Context
from dp_polars._sql.sandbox import check_parameter
from dp_polars._sql.spark_tables import SparkDatabase, is_spark_session, spark_table
from dp_polars._sql.summaries import SummaryStatement, is_summary, summary_statement
from dp_polars._sql.syntax_tree import Node, Parser, fold, parameters_of, sandbox
from dp_polars.errors import InvalidParameterError

Parameters = Sequence[Any] | Mapping[str, Any] | None

_PARAMETER_TYPES = (
    bool, int, float, str, bytes, Decimal, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, type(None)
)  # fmt: skip


_LARGEST_SHOWN = 10**40  # Python refuses to write integers of thousands of digits


class Plans(list[Plan | ChoicePlan]):
    """The plans of a statement with several private queries, or with none. They print one after the other.

    `statement` has each aggregate of the statement and what it is, as the first plan has.
    """

    def __init__(self, plans: Sequence[Plan | ChoicePlan], statement: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(plans)
        self.statement = tuple(statement)

    def __str__(self) -> str:
        alone = [f"{text} is {what}" for text, what in self.statement] if not self else []
        return "\n\n".join(map(str, self)) or "\n".join(["no private answer, nothing to pay", *alone])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(plan._repr_html_() for plan in self)


class GuardedConnection:
    """A DuckDB connection on which every table is private unless its owner declares it public.

    `sql` and `execute` take one SELECT. The private aggregates are `dp_count`, `dp_count_units`, `dp_count_distinct`,
    `dp_sum`, `dp_avg`, `dp_geometric_mean`, `dp_var`, `dp_stddev`, `dp_median`, `dp_quantile`, `dp_min`, `dp_max`,
    `dp_histogram`, `dp_corr`, `dp_covar` and `dp_linear_regression`; the choices are `dp_noisy_max`, `dp_noisy_min` and
    `dp_top_k`. Below a private aggregate a step looks at one row at a time, or at rows of one unit. Above it, ordinary
    SQL runs on the released rows.

    `SELECT dp_randomized_response(vote, epsilon := 1.0) FROM votes` is a statement by itself: it returns one
    randomized response per unit, in a session with adjacency "replace". So is
    `FROM dp_estimate_frequencies('responses', 'vote', epsilon := 1.0)`, which reads a public table and costs nothing.

    `SUMMARIZE visits` is a profile of a private table: see `df.dp.profile`. Options are given in Python:
    `con.sql("SUMMARIZE visits", by=["region"], columns=["amount"], share=0.1)`. `DESCRIBE visits` and `SHOW TABLES`
    tell names, types and units, at no cost.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=1))
    >>> visits = pl.DataFrame({"user_id": range(2_000), "region": ["a", "b"] * 1_000})
    >>> con = con.register("visits", visits).register("names", pl.DataFrame({"region": ["a"]})).public("names")
    >>> query = "SELECT dp_count(*, epsilon := 0.5) AS n FROM visits JOIN names USING (region)"
    >>> con.preview(query).expected_error()
    6.0
    >>> round(con.execute(query).fetchall()[0][0], -3), con.pl().columns, con.rowcount
    (1000, ['n'], 1)
    """

    def __init__(
        self,
        database: Database,
        session: Session,
        *,
        owns: bool = False,
        spend: Mapping[str, Number | None] | None = None,
    ) -> None:
        if not isinstance(session, Session):
            raise InvalidParameterError(
                "A guarded connection needs a session to charge: dp.connect(database, session)."
            )
        self._database, self._session, self._owns = database, session, owns
        self._usual_spend = _usual_spend(spend or {})
        """The spend of statements that name none."""
        self._parser = Parser()
        self._result: Any = None
        self._table: Any = None
        self._description: Any = None
        self._paid: tuple[Release, ...] = ()
        """The releases behind the last answer, new or stored."""

    @cached_property
    def _results(self) -> Any:
        """The database of released rows. The first answer opens it, because opening takes longer than most refusals."""
        return sandbox()

    # ------------------------------------------------------------------ tables

    def register(self, name: str, source: Any, *, types: Types = None) -> GuardedConnection:
        """Register a frame (Polars, Arrow, pandas, Spark) or a Parquet, CSV or Arrow file. Its rows are private.

        CSV and Arrow files are read into memory at once. Categories of pandas and dictionaries of Arrow become text,
        and so do pandas columns of type object.

        Parameters
        ----------
        name
            The name of the table in SQL.
        source
            A frame, or the path of a file. A folder, or a pattern such as `visits/*.parquet`, is one table of all its
            files. They must have one format and the same columns, and the list of files counts as public.
        types
            The types of a CSV file's columns, such as `{"amount": "DOUBLE"}`. Columns that are not listed are text. The
            types are declared so that no line of the file can change them. With "infer" they are inferred once from
            all lines and recorded in the session's ledger, which is your declaration that they are public. Recorded
            types stay the same when the file changes, and you needn't repeat them. A value that doesn't fit its type
            becomes null.

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
        spark = is_spark_frame(source) and types is None
        opened = spark_table(source) if spark else open_source(name, source, types, self._session)
        self._database.register(name, opened)
        return self

    def public(self, *names: str) -> GuardedConnection:
        """Declare tables public: their rows contain no personal data, and queries may show and join them."""
        catalog = self._catalog()
        self._database.declare_public({catalog.declared_key(name) for name in names})
        return self

    def private(
        self,
        name: str,
        unit: UnitWords = None,
        *,
        weaker_unit: bool = False,
        data_version: str | None = None,
        through: str | None = None,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        unique: bool = False,
    ) -> GuardedConnection:
        """Declare the unit of a table or view that lacks the session's unit column, or the version of its rows.

        For a view this is the owner's promise that each of its rows is computed from the rows of one unit. The unit may
        be the session's unit, the same unit under another name (`unit={"user_id": "customer"}`), or a coarser one (some
        of its columns). Any other unit could protect less than the session promises and needs `weaker_unit=True`.

        Stored releases of a table are found again until its database file is written to, even if another table was
        changed. `data_version` is the owner's promise that the rows of this table stay the same as long as its version
        does: releases are then found by it, in every process. Change the version whenever the rows change. Otherwise
        old answers are returned for the new rows.

        A table without a unit column may get its units from another table: a line item belongs to the customer of its
        order. `through` names that table, and `on` the column that both have, or `{"order": "id"}` if it has another
        name there. No two rows of the other table may have the same key. A PRIMARY KEY or UNIQUE constraint of the
        database says so, or your word: `unique=True`, which the plan repeats. Rows without a match take no part.

        Examples
        --------
        >>> import duckdb, dp_polars as dp
        >>> raw = duckdb.connect()
        >>> raw = raw.execute("CREATE TABLE sales AS SELECT i AS customer, 5 AS amount FROM range(900) t(i)")
        >>> con = dp.connect(raw, dp.Session(epsilon=1.0, unit="user_id"))
        >>> con = con.private("sales", unit={"user_id": "customer"})
        >>> round(con.sql("SELECT dp_count_units(epsilon := 0.5) FROM sales").fetchall()[0][0], -2)
        900
        >>> con = con.private("sales", unit={"user_id": "customer"}, data_version="2026-11")
        """
        if unit is None and data_version is None and through is None and on is None:
            raise InvalidParameterError("unit= must name the column or columns that identify the unit of a row.")
        if data_version is not None and (not isinstance(data_version, str) or not data_version.strip()):
            raise InvalidParameterError(
                'data_version= must be a text that changes whenever the rows of the table do, such as "2026-11".'
            )
        weaker = flag_of(weaker_unit, "weaker_unit")
        table_unit(self._session.terms.unit, unit, weaker=weaker)  # refuses a unit that protects less
        catalog = self._catalog()
        key = catalog.declared_key(name)
        label = None if through is None and on is None else _through(catalog, key, name, unit, through, on, unique)
        self._database.declare_private(key, unit, data_version, weaker=weaker, through=label)
        return self

    def _catalog(self, parameters: Mapping[str, Any] | None = None) -> Catalog:
        return Catalog(self._database, self._session, parameters)

    # ------------------------------------------------------------------ statements

    def sql(self, query: str, *, params: Parameters = None, **options: Any) -> Any:
        """Run a statement and return a DuckDB relation over the released rows.

        Parameters
        ----------
        query
            One SELECT.
        params
            Values for `?` or `$name`.
        **options
            Options for all private aggregates of the statement. A spend is divided evenly among the aggregates that
            don't have their own. `confidence=0.95` adds the ends of intervals, `_low` and `_high`, behind each private
            aggregate of the outermost SELECT; `dp_low(n)` and `dp_high(n)` name them one by one.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id"))
        >>> con.register("visits", pl.DataFrame({"user_id": [1, 2, 3], "region": ["a", "b", "a"]}))
        <dp.GuardedConnection ...>
        >>> con.sql("SELECT dp_count_units(epsilon := 0.5) AS people FROM visits").columns
        ['people']
        """
        # A cursor of its own: DuckDB refuses a connection that another thread is using.
        return self._results.cursor().from_arrow(self._answer(query, params, options))

    def execute(self, query: str, parameters: Parameters = None, **options: Any) -> GuardedConnection:
        """Run a statement. Fetch its rows from this connection, as in Python's database API.

        Options are those of `sql`. Tools that pass none get the spend of the connection.
        """
        cursor = self._results.cursor()
        self._table = self._answer(query, parameters, options)
        self._result = cursor
        self._result.register("dp_result", self._table)
        self._result.execute("FROM dp_result")
        self._description = self._result.description
        return self

    def preview(
        self, query: str, *, params: Parameters = None, **options: Any
    ) -> Plan | ChoicePlan | ResponsePlan | ProfilePlan | list[Plan | ChoicePlan]:
        """Return the plan of a statement's private query, or a list of plans if it has several. Nothing is spent.

        The (first) plan labels each aggregate of the statement: a private answer, a step within one unit, or ordinary.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id"))
        >>> con = con.register("visits", pl.DataFrame({"user_id": [1, 2, 3], "minutes": [5, 6, 7]}))
        >>> plan = con.preview('''
        ...     SELECT dp_count(*, epsilon := 0.5) AS regulars
        ...     FROM (SELECT user_id, count(*) AS n FROM visits GROUP BY user_id) WHERE n > 3
        ... ''')
        >>> plan.statement
        (('count(*)', 'a step within one unit'), ('dp_count(*, epsilon := 0.5)', 'a private answer'))
        """
        plans: list[Any] = []
        spent = self._session._total()
        statement = self._planned(query, _parameters(params), options)
        labels = statement.analysis.labels if isinstance(statement, PlannedStatement) else ()
        for plan in statement.plans:
            plans.append(replace(plan.after(spent), statement=() if plans else labels))
            spent = spent + plan.cost
        return plans[0] if len(plans) == 1 else Plans(plans, labels)

    def _answer(self, query: str, parameters: Parameters, options: dict[str, Any]) -> Any:
        """Run a statement and return its rows as an Arrow table."""
        self._paid = ()
        if not isinstance(query, str):
            raise InvalidParameterError("A statement must be a text: con.sql('SELECT ...').")
        asked = _with_parameters(query, parameters)
        with self._session._asking(asked, statement=asked):
            statement = self._planned(query, _parameters(parameters), options)
            try:
                return statement.answer()
            finally:
                self._paid = tuple(statement.releases)

    def _planned(
        self, query: str, parameters: dict[str, Any], options: dict[str, Any]
    ) -> PlannedStatement | LocalStatement | SummaryStatement | DescriptionStatement:
        """Parse, analyse and plan a statement. Nothing is spent, and no private row is read."""
        if "session" in options:
            raise InvalidParameterError(
                "The session of this connection pays for its statements, so they take no session=. If another one "
                "should pay, open another connection: dp.connect(database, session)."
            )
        node = self._parser.select(query)
        unused = sorted(set(parameters) - set(parameters_of(node)))
        if unused:
            raise InvalidParameterError(f"The statement has no parameter {', '.join(unused)}.")
        if "dp_budget" in fold(query):
            node = with_budget(node, self._session, self._parser)
        context = Context(query, parameters, self._parser, self._catalog(parameters))
        if is_summary(node):
            return summary_statement(node, context, self._session, options)
        if is_description(node):
            return description_statement(node, context)
        if is_local(query):
            local = local_statement(node, context, self._session, options)
            if local is not None:
                return local
        if "cut" in options:
            raise InvalidParameterError(CUT_HAS_NO_COLUMN)
        confidence, wanted = options.get("confidence"), None
        if confidence is not None:
            wanted = WantedIntervals(confidence_of(confidence), of_values=options.get("interval") == "value")
        options = {name: value for name, value in options.items() if name != "confidence"}
        with self._for_analysts(), in_sql(options):
            planned = self._analysed(node, context, wanted, options)
            ranks = {} if wanted is None else planned.rank_ends()
            if wanted is not None and ranks:  # what is counted beside a quantile decides which ranks it has
                planned = self._analysed(node, context, replace(wanted, ranks=ranks), options)
        if wanted is not None and not any(query.query.ends for query in planned.queries):
            raise InvalidParameterError(
                "confidence= adds the ends of intervals beside the private aggregates of the outermost SELECT, but "
                "none of its columns is an aggregate with such ends. Select dp_low(n) and dp_high(n) beside the "
                "aggregate n, and dp_rank_error(m) beside a median m."
            )
        planned.check_above()
        return planned

    @contextmanager
    def _for_analysts(self) -> Iterator[None]:
        """Say in an error about a missing cap where a question over a policy's tables takes its options."""
        try:
            yield
        except InvalidParameterError as error:
            code: str = error.code
            if self._database.rules and code in ("row-cap-missing", "group-cap-missing"):
                name = "max_groups" if code == "group-cap-missing" else "max_rows_per_group"
                where = f"(in a dp_ aggregate, or for the statement: con.sql(query, {name}=10))"
                error.args = (error.args[0].replace("(here or in the session)", where), *error.args[1:])
            raise

    def _analysed(
        self, node: Node, context: Context, wanted: WantedIntervals | None, options: dict[str, Any]
    ) -> PlannedStatement:
        analysis = analyse(node, context, wanted)
        if analysis.aggregations and all(options.get(name) is None for name in ("epsilon", "share", "rho", "within")):
            options = {**options, **self._usual_spend}
        return plan_statement(analysis, self._session, context.catalog, options)

    @property
    def notes(self) -> list[str]:
        """What a reader of the last answer should know besides its noise, in one line each.

        A relation has no place for them. Intervals are about the noise alone, so read here what caps and bounds cut
        off, or how to learn it, and which groups are too small for their noise. The same lines stand below each of
        `session.releases`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=2))
        >>> con = con.register("visits", pl.DataFrame({"user_id": [i % 300 for i in range(900)]}))
        >>> answer = con.sql("SELECT dp_count(*) AS n, dp_low(n) AS low, dp_high(n) AS high FROM visits", epsilon=0.5)
        >>> con.notes
        ['cut off: unknown for max_rows_per_group: select dp_cut_by_cap(), or SUMMARIZE the table']
        """
        return [f"{name}: {text}" for release in self._paid for name, text in release.notes]

    # ------------------------------------------------------------------ Python's database API

    @property
    def description(self) -> Any:
        """The columns of the last result, also after it is closed; None before the first statement."""
        return self._description

    @property
    def rowcount(self) -> int:
        """The number of rows of the last answer; -1 before the first statement."""
        return -1 if self._table is None else int(self._table.num_rows)

    def fetchone(self) -> Any:
        """Return the next row of the last result."""
        return self._fetching().fetchone()

    def fetchmany(self, size: int = 1) -> Any:
        """Return the next rows of the last result."""
        return self._fetching().fetchmany(size)

    def fetchall(self) -> Any:
        """Return the remaining rows of the last result."""
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
            raise InvalidParameterError("There is no result yet. Run a statement first: con.execute('SELECT ...').")
        return self._result

    def cursor(self) -> GuardedConnection:
        """Return another guarded connection with the same tables, session and declarations."""
        other = GuardedConnection.__new__(GuardedConnection)
        other.__dict__.update(self.__dict__)
        other._result, other._table, other._description, other._owns = None, None, None, False
        return other

    def _paid_by(self, session: Session) -> GuardedConnection:
        """Return another guarded connection with the same tables, charged to another session."""
        other = self.cursor()
        other._session = session
        return other

    def commit(self) -> None:
        """Do nothing, because a guarded connection writes nothing."""

    def rollback(self) -> None:
        """Do nothing, because a guarded connection writes nothing."""

    def close(self) -> None:
        """Close the connection. The database is closed too if `dp.connect` opened it."""
        self._result = None
        if self._owns:
            self._database.connection.close()

    def __enter__(self) -> GuardedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dp.GuardedConnection charged to {self._session!r}>"


def _through(
    catalog: Catalog,
    key: TableKey,
    name: str,
    unit: UnitWords,
    through: str | None,
    on: str | Sequence[str] | Mapping[str, str] | None,
    unique: bool,
) -> Through:
    """Return where the units of a table stand, or say what is wrong with it."""
    if unit is not None or through is None or not on:
        raise InvalidParameterError(
            "through= names the table in which the units stand, and on= the columns by which its rows are found: "
            f"con.private({name!r}, through='orders', on='order_id'). It takes the place of unit=."
        )
    word = flag_of(unique, "unique")
    pairs = dict(on) if isinstance(on, Mapping) else {one: one for one in ([on] if isinstance(on, str) else on)}
    if not all(isinstance(one, str) for pair in pairs.items() for one in pair):
        raise InvalidParameterError("on= takes names of columns.")
    other = catalog.declared_key(through)
    mine, theirs = catalog.known_columns(key), catalog.known_columns(other)
    for table, names, columns in ((name, list(pairs), mine), (through, list(pairs.values()), theirs)):
        missing = [one for one in names if fold(one) not in map(fold, columns)]
        if missing:
            raise InvalidParameterError(
                f"{table} has no column {missing[0]}; it has {', '.join(columns)}.", code="unknown-column"
            )
    catalog.check_path(key, other, name)
    label = Through(other, tuple(pairs.items()), word)
    if not word and not catalog.is_unique(catalog.known_table(other), pairs.values()):
        raise InvalidParameterError(
            f"{through} has no PRIMARY KEY or UNIQUE constraint on {', '.join(pairs.values())}, so a row of {name} may "
            "belong to several units there. Add one, or say unique=True if you know that no two rows have the same key."
        )
    return label


def _with_parameters(query: str, given: Parameters) -> str:
    """Return a statement with its parameters, as the audit log shows it."""
    if not given or not isinstance(given, Mapping | Sequence):
        return query
    pairs = given.items() if isinstance(given, Mapping) else enumerate(given, start=1)
    return f"{query} -- with {', '.join(f'{name} = {_shown_parameter(value)}' for name, value in pairs)}"


def _shown_parameter(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown_parameter, value))}]"
    if not isinstance(value, _PARAMETER_TYPES):
        return f"a {type(value).__name__}"  # it will be refused
    return repr(value) if not isinstance(value, int) or abs(value) < _LARGEST_SHOWN else "a large integer"


def _parameters(given: Parameters) -> dict[str, Any]:
    """Return parameters by name. Positional parameters are named by their position, from 1."""
    if given is None:
        return {}
    values = given if isinstance(given, Mapping) else {str(place + 1): value for place, value in enumerate(given)}
    for name, value in values.items():
        check_parameter(str(name))
        parts = value if isinstance(value, list | tuple) else [value]
        if any("\ud800" <= sign <= "\udfff" for part in parts if isinstance(part, str) for sign in part):
            raise InvalidParameterError(f"Parameter {name} is not valid Unicode text: it contains half a character.")
        if not all(isinstance(part, _PARAMETER_TYPES) for part in parts):
            raise InvalidParameterError(
                f"Parameter {name} is a {type(value).__name__}; parameters must be numbers, texts, dates or lists of "
                "these."
            )
    return {str(name): value for name, value in values.items()}


def _usual_spend(given: Mapping[str, Number | None]) -> dict[str, Any]:
    """Return the spend of statements that name none, or say what is wrong with it."""
    said = {name: exact(value, name) for name, value in given.items() if value is not None}
    if len(said) > 1:
        raise InvalidParameterError(
            f"A connection has one spend for statements that name none; choose one of {', '.join(said)}."
        )
    for name, value in said.items():
        if value <= 0 or (name == "share" and value > 1):
            raise InvalidParameterError(f"{name}= of a connection is what each statement may spend: {name}=0.05.")
    return dict(said)


def connect(
    database: Any = None,
    session: Session | None = None,
    *,
    epsilon: Number | None = None,
    share: Number | None = None,
    rho: Number | None = None,
) -> GuardedConnection:
    """Open a guarded connection: DuckDB SQL with private aggregates, charged to a session.

    Parameters
    ----------
    database
        A path, an open DuckDB connection, or None for an empty database in memory. A Spark session works,
        too: its tables are looked up in Spark's catalog and read on Spark. A `dp.Policy` brings its tables and its
        session.
    session
        The session that is charged, and whose terms name the unit.
    epsilon, share, rho
        The spend of each statement that names none, in one of these words: `con.sql(query, epsilon=0.1)` says another.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit="user_id")
    >>> con = dp.connect(None, session, epsilon=0.1).register("visits", pl.DataFrame({"user_id": range(500)}))
    >>> _ = con.sql("SELECT dp_count_units() AS people FROM visits")
    >>> session.spent.epsilon
    0.1
    """
    spend = {"epsilon": epsilon, "share": share, "rho": rho}
    of_policy = getattr(database, "_guarded_connection", None)
    if of_policy is not None:
        if session is not None:
            raise InvalidParameterError("A policy has its own session, so dp.connect(policy) takes no other.")
        return of_policy(**spend)  # type: ignore[no-any-return]
    if is_spark_session(database):
        return GuardedConnection(SparkDatabase(database), session, spend=spend)  # type: ignore[arg-type]
    if hasattr(database, "cursor"):
        return GuardedConnection(Database(database), session, spend=spend)  # type: ignore[arg-type]
    if isinstance(database, str) and database.startswith("sc://"):
        raise InvalidParameterError(
            "This is the address of a Spark server. Open a Spark session first (pip install 'dp-polars[spark]') and "
            "pass it: dp.connect(SparkSession.builder.remote(address).getOrCreate(), session)."
        )
    if database is not None and not os.path.exists(database):
        raise InvalidParameterError("There is no database file at this path; None opens an empty database in memory.")
    path = ":memory:" if database is None else os.fspath(database)
    return GuardedConnection(Database(duckdb.connect(path)), session, owns=True, spend=spend)  # type: ignore[arg-type]
