"""`dp.Policy`: what the owner of data says once about budget, units, tables and columns."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, overload

import duckdb
import polars as pl

from dp_polars._aggregates.values import is_number, stored_bounds
from dp_polars._display.text import escaped
from dp_polars._engines.duckdb.rows import TableColumn, quoted
from dp_polars._frame.options import given_domain
from dp_polars._frame.private_frame import PrivateFrame
from dp_polars._frame.table_rules import TableRules
from dp_polars._numbers import Number
from dp_polars._plan.query import Key
from dp_polars._policy.analyst import AnalystConnection
from dp_polars._policy.document import Document, KeyColumn, TablePolicy, folded, read_document
from dp_polars._policy.sources import FoundSource, find_sources, ledger_problem
from dp_polars._session.periods import Period, period_of, together
from dp_polars._session.session import Session, check_name
from dp_polars._session.terms import ROW
from dp_polars._sql.catalog import Catalog, Database, TableKey, Through
from dp_polars._sql.connection import GuardedConnection
from dp_polars._sql.files import OpenedFile, inferred_types, is_text, open_file
from dp_polars._sql.relations import Context, PrivateRelation, table_relation
from dp_polars._sql.spark_tables import SparkDatabase, is_spark_session
from dp_polars._sql.syntax_tree import Parser, fold
from dp_polars.errors import DPError, InvalidDataError, InvalidParameterError, PolicyError, PolicyProblem


class Policy:
    """What the owner of data agreed to: a budget, who is protected, and the tables with their caps, bounds and keys.

    With a policy, a question needs no option but its spend, and not even that if the budget has `queries`. Inside one
    process, a policy serves analysts who cooperate: whoever runs code in the process can also open the files. A real
    boundary needs a process that owns the data.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> orders = pl.DataFrame({"customer": range(3_000), "total": [10.0, 20.0, 30.0] * 1_000, "status": "new"})
    >>> orders.write_parquet(folder / "orders.parquet")
    >>> _ = (folder / "policy.toml").write_text('''
    ... unit = "customer"
    ... [budget]
    ... epsilon = 2.0
    ... queries = 4
    ... [tables.orders]
    ... source = "orders.parquet"
    ... public = false
    ... max_rows_per_group = 1
    ... [tables.orders.columns.total]
    ... bounds = [0, 100]
    ... [tables.orders.columns.status]
    ... keys = ["new", "paid"]
    ... ''')
    >>> policy = dp.Policy.load(folder / "policy.toml")
    >>> policy
    <dp.Policy policy.toml with orders>
    >>> round(policy.scan("orders").mean("total").item(), -1)
    20.0
    >>> con = dp.connect(policy)
    >>> con.sql("SELECT status, COUNT(*) AS n FROM orders GROUP BY status").columns
    ['status', 'n']
    """

    def __init__(self, document: Document, folder: str, name: str, spark: Any = None) -> None:
        self._document, self._folder, self._name = document, folder, name
        self._spark = SparkDatabase(spark) if is_spark_session(spark) else None
        self._spark_names: dict[str, str] = {}
        """The tables of Spark by their full names, and what the policy calls them."""
        self._files: dict[str, OpenedFile] = {}
        self._keys: dict[str, TableKey] = {}
        self._lists: dict[str, dict[str, list[Any]]] = {}
        self._columns: dict[str, list[str]] = {}
        self._session: Session | None = None
        self._lock = threading.Lock()
        found, problems = find_sources(document, folder)
        problems += [one for one in [ledger_problem(document, folder)] if one is not None]
        trial = self._trial_session(problems)
        if problems or trial is None:
            raise PolicyError(name, problems)
        self._connection = duckdb.connect()
        self._open_all(found, trial, problems)
        if not problems:
            self._check_all(trial, problems)
        if problems:
            raise PolicyError(name, problems)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, spark: Any = None) -> Policy:
        r"""Read a policy from a TOML file, check it and open its tables. No budget is opened and no answer is made.

        Every mistake is reported at once, with its line and what to write instead. Sources are relative to the folder
        of the file. Only the names and types of columns, public tables, and CSV and Arrow files are read; these files
        are held in memory.

        Parameters
        ----------
        path
            The TOML file.
        spark
            The Spark session in which tables with `source = "spark"` are found, if the policy has any.

        Examples
        --------
        >>> import dp_polars as dp, tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "policy.toml"
        >>> _ = file.write_text('unit = "customer"\n[budget]\nepsilom = 1.0')
        >>> dp.Policy.load(file)
        Traceback (most recent call last):
        ...
        dp_polars.errors.PolicyError: The policy policy.toml has 2 mistakes:
          line 1: There is no table. Write [tables.orders] with source = "orders.parquet".
          line 3: [budget] has no key epsilom. Did you mean epsilon?
        """
        name = os.path.basename(os.fspath(path))
        try:
            text = Path(path).read_bytes().decode("utf-8")
        except OSError:
            raise InvalidParameterError(f"There is no policy at {os.fspath(path)}, or it can't be read.") from None
        except UnicodeDecodeError:
            raise PolicyError(name, [PolicyProblem(0, "It is not a text in UTF-8.")]) from None
        folder = os.path.dirname(os.path.realpath(path))
        if spark is not None and not is_spark_session(spark):
            raise InvalidParameterError("spark= must be a Spark session, in which the policy's tables are found.")
        return cls(read_document(text, name), folder, name, spark)

    # ------------------------------------------------------------------ what is public

    @property
    def tables(self) -> list[str]:
        """The names of the tables."""
        return list(self._document.tables)

    @property
    def session(self) -> Session:
        """The session that pays. The first use opens it, and creates the ledger if the policy names one."""
        with self._lock:
            if self._session is None:
                ledger = self._document.open_ledger
                place = None if ledger is None else os.path.join(self._folder, ledger)
                earlier = self._earlier_periods()
                session = Session(**self._terms(), ledger=place)
                if self._document.periods:
                    session._begin_period(self._document.periods[-1], earlier)
                for name, share in (self._document.analysts or {}).items():
                    session.grant(name, share=share, overcommit=True)  # the document was checked
                self._session = session
            return self._session

    def _earlier_periods(self) -> list[Period]:
        """Return the periods before the open one with what they promised.

        A period without a ledger counts as if it had the present terms: it may have been moved away.
        """
        agreed = Session(**self._terms()).terms
        found = []
        for name in self._document.periods[:-1]:
            path = os.path.join(self._folder, self._document.ledger_of(name))
            terms = agreed
            if os.path.exists(path):
                with closing(Session.from_ledger(path)) as session:
                    terms = session.terms
            found.append(period_of(name, terms, agreed))
        return found

    def _session_of(self, analyst: str | None) -> Session:
        """Return the session of the owner, or an analyst's share of it.

        Where the policy lists no analysts, everybody who gives a name asks as the owner does: a failure then stops
        everybody, because a new name would otherwise go on after each failure.
        """
        if analyst is None:
            return self.session
        check_name(analyst)
        listed = self._document.analysts
        if listed is None:
            return self.session
        if analyst not in listed:
            raise InvalidParameterError(
                "The policy lists its analysts, and this name is not among them. Its owner adds a line to [analysts]: "
                "a name and a share of the budget.",
                code="no-such-analyst",
            )
        return self.session.analyst(analyst)

    @property
    def has_ledger(self) -> bool:
        """Whether the budget is kept in a file. Otherwise it begins anew whenever the policy is loaded."""
        return self._document.open_ledger is not None

    def describe(self) -> str:
        """Return the policy as a reviewer reads it: who is protected, what may be spent, and each table."""
        document, lines = self._document, []
        unit = document.unit if isinstance(document.unit, str) else ", ".join(document.unit)
        lines.append(f"protects: {unit}")
        lines.append("budget: " + ", ".join(f"{name} {_number(value)}" for name, value in document.terms.items()))
        limits = {"smallest share of one question": document.smallest, "largest": document.largest}
        shown = [f"{name} {float(share):g}" for name, share in limits.items() if share is not None]
        lines += [f"limits: {', '.join(shown)}"] if shown else []
        if document.periods:
            agreed = Session(**self._terms()).terms
            total = together([*self._earlier_periods(), period_of(document.periods[-1], agreed, agreed)])
            lines.append(f"periods: {', '.join(document.periods)} (open), which together promise {total.promise()}")
        if document.analysts is not None:
            shares = (f"{name} {float(share):g}" for name, share in document.analysts.items())
            more = "; together more than the budget" if sum(document.analysts.values()) > 1 else ""
            lines.append(f"analysts: {', '.join(shares)}{more}")
        else:
            lines.append("analysts: anybody, within the whole budget")
        if document.questions is not None:
            lines.append(f"questions: {', '.join(sorted(document.questions))}")
        ledger = document.open_ledger
        lines.append(f"ledger: {ledger or 'none, so the budget begins anew whenever the policy is loaded'}")
        for name in document.tables:
            lines += self._described(name)
        return escaped("\n".join(lines), keep="\n")

    def _described(self, name: str) -> list[str]:
        """Return what the policy says about a table, and which columns it says nothing about."""
        table = self._document.tables[name]
        whole = table.source if table.table is None else f"{table.source}, table {table.table}"
        lines = [f"{name}: {'public' if table.public else 'private'}, {whole}"]
        if table.public:
            return lines
        if table.on is not None:
            pairs = (mine if mine == theirs else f"{mine} = {theirs}" for mine, theirs in table.on.items())
            same = f"no two rows of {table.through} have the same {', '.join(table.on.values())}"
            word = f"; by the owner's word, {same}" if table.unique else ""
            lines.append(f"  through: {table.through} on {', '.join(pairs)}{word}")
        if table.unit is not None:
            named = table.unit.items() if isinstance(table.unit, dict) else ()
            renamed = ", ".join(f"{ours} is called {here}" for ours, here in named)
            lines.append(f"  unit: {renamed or table.unit}")
        caps = [f"{cap} {most}" for cap, most in table.caps.items() if most is not None]
        lines.append(f"  caps: {', '.join(caps) or 'none: each question says its rules'}")
        lines += [f"  data_version: {table.data_version}"] if table.data_version is not None else []
        for column, rules in table.columns.items():
            said = [] if rules.ask else ["may not be asked"]
            if rules.bounds is not None:
                said.append(
                    "bounds are estimated" if rules.bounds == "auto" else f"from {rules.bounds[0]} to {rules.bounds[1]}"
                )
            keys = self._lists.get(name, {}).get(column)
            said += [f"{len(keys)} public keys"] if keys is not None else ["keys by its type"] if rules.keys else []
            lines.append(f"  {column}: {', '.join(said)}")
        others = [column for column in self._columns.get(name, []) if column not in table.columns]
        lines += [f"  no rules, so it may be asked: {', '.join(others)}"] if others else []
        return lines

    def __repr__(self) -> str:
        return f"<dp.Policy {escaped(self._name)} with {', '.join(self.tables)}>"

    # ------------------------------------------------------------------ asking

    def scan(self, table: str, *, analyst: str | None = None) -> PrivateFrame[pl.DataFrame]:
        """Return a private table as a private frame, with the policy's caps, bounds and keys as defaults.

        Parameters
        ----------
        table
            The name of the table in the policy.
        analyst
            Who asks: within the share that the policy gives this analyst, and with an entry in the audit log. None
            stands for the owner.
        """
        name = self._known(table)
        if self._document.tables[name].public:
            raise InvalidParameterError(f"{name} is public. policy.scan_public({name!r}) reads its rows.")
        session = self._session_of(analyst)
        catalog = Catalog(self._database(session, analyst), session)
        relation = table_relation(Parser().table(name), Context("", {}, Parser(), catalog))
        if not isinstance(relation, PrivateRelation):
            raise ValueError("a private table gave public rows")
        state = catalog.state(relation.sources)

        def identity() -> bytes:
            if catalog.state(relation.sources) != state:
                raise InvalidDataError(f"The rows of {name} were replaced. Load the policy and scan the table again.")
            return catalog.private_source(relation.sources, relation.rows)

        unit = self._unit_of(name)
        return PrivateFrame._of_policy(relation.rows, catalog.rules(), session, unit, identity)

    def scan_public(self, table: str) -> pl.LazyFrame:
        """Return the rows of a table that the policy declares public, for a join or as keys."""
        name = self._known(table)
        if not self._document.tables[name].public:
            raise InvalidParameterError(f"{name} is private in this policy. policy.scan({name!r}) asks about its rows.")
        return self._catalog(self.session).public_frame(_everything(name)).lazy()

    @overload
    def connect(
        self,
        *,
        analyst: None = None,
        epsilon: Number | None = None,
        share: Number | None = None,
        rho: Number | None = None,
    ) -> GuardedConnection: ...

    @overload
    def connect(
        self, *, analyst: str, epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None
    ) -> AnalystConnection: ...

    def connect(
        self,
        *,
        analyst: str | None = None,
        epsilon: Number | None = None,
        share: Number | None = None,
        rho: Number | None = None,
    ) -> GuardedConnection | AnalystConnection:
        """Return a guarded connection on which every table of the policy is registered and plain SQL is private SQL.

        Parameters
        ----------
        analyst
            Who asks. The connection of an analyst can ask and preview, and has no `public`, `private`, `register` and
            `reopen`; it asks within the share that the policy gives this analyst, and with entries in the audit log.
            None stands for the owner, whose connection has them.
        epsilon, share, rho
            The spend of each statement that names none, in one of these words.
        """
        connection = self._guarded_connection(analyst, epsilon=epsilon, share=share, rho=rho)
        return connection if analyst is None else AnalystConnection(connection, analyst)

    def _guarded_connection(self, analyst: str | None = None, **spend: Number | None) -> GuardedConnection:
        """Return the connection of the owner or of an analyst, for `dp.connect(policy)` and the command line."""
        session = self._session_of(analyst)
        return GuardedConnection(self._database(session, analyst), session, spend=spend)

    # ------------------------------------------------------------------ opening

    def _terms(self) -> dict[str, Any]:
        unit = self._document.unit
        return {**self._document.terms, "unit": ROW if unit == "row" else unit}

    def _trial_session(self, problems: list[PolicyProblem]) -> Session | None:
        """Return a session in memory with the policy's terms, which checks them."""
        try:
            return Session(**self._terms())
        except DPError as error:
            problems.append(PolicyProblem(self._document.line("budget"), f"[budget]: {error}"))
            return None

    def _open_all(self, found: Mapping[str, FoundSource], trial: Session, problems: list[PolicyProblem]) -> None:
        numbers: dict[tuple[int, int], str] = {}
        for name, table in self._document.tables.items():
            source = found[name]
            try:
                if source.is_spark:
                    self._files[name] = self._spark_table(table)
                    self._keys[name] = ("frame", fold(name))
                elif source.is_database:
                    self._keys[name] = self._attached(table, source, numbers)
                else:
                    self._files[name] = self._opened(table, source, trial)
                    self._keys[name] = ("frame", fold(name))
            except DPError as error:
                line = self._document.line("tables", name, "source")
                problems.append(PolicyProblem(line, f"source {table.source}: {_types_hint(error)}"))

    def _spark_table(self, table: TablePolicy) -> OpenedFile:
        """Return a table of Spark as it is now. No table of Spark belongs to two tables of the policy."""
        if self._spark is None:
            raise InvalidParameterError(
                "its rows are in Spark. Hand over the session: dp.Policy.load(path, spark=session)."
            )
        wanted = str(table.table)
        name = self._spark.find(tuple(fold(part) for part in wanted.split(".")))
        if name is None:
            raise InvalidParameterError(f"Spark has no table {wanted}; it has {', '.join(self._spark.names())}.")
        other = self._spark_names.setdefault(name, table.name)
        if other != table.name:
            raise InvalidParameterError(f"{wanted} is the table {other} already: name each table once.")
        opened = self._spark.registered[name]
        if not table.public:
            return opened
        if opened.is_view:
            raise InvalidParameterError(
                f"{wanted} is a view, which may read private tables that the policy doesn't show. Store its rows in a "
                "table."
            )
        rows = opened.public_rows()
        return OpenedFile(_rows=rows.lazy(), _origin=rows)

    def _opened(self, table: TablePolicy, source: FoundSource, trial: Session) -> OpenedFile:
        types = table.types
        if types is None and table.public and is_text(source.path):
            types = inferred_types(table.name, source.path)
        opened = open_file(table.name, source.path, types, trial)
        if not opened.identities() <= {one[:2] for one in source.files}:
            raise InvalidDataError("the files changed while the policy was read. Load it again.")
        return opened

    def _attached(self, table: TablePolicy, source: FoundSource, numbers: dict[tuple[int, int], str]) -> TableKey:
        """Attach a DuckDB file to be read, once however many tables it has, and return the key of a table in it."""
        ((device, inode, _),) = source.files
        name = numbers.get((device, inode))
        if name is None:
            name = numbers[(device, inode)] = f"dp_policy_{len(numbers)}"
            path = os.path.realpath(source.path).replace("'", "''")
            try:
                self._connection.execute(f"ATTACH '{path}' AS {quoted(name)} (READ_ONLY)")
            except duckdb.Error:
                raise InvalidDataError("it can't be opened as a DuckDB file.") from None
        wanted = (table.table or "").split(".")
        path_of = (name, *(wanted if len(wanted) > 1 else ("main", *wanted)))
        catalog = Catalog(Database(self._connection), Session(epsilon=1, unit=ROW))
        key = catalog.key(path_of)
        if key is None:
            there = [one[-1] for one in catalog.known_paths() if one[0] == name]
            raise InvalidParameterError(f"it has no table {table.table}; it has {', '.join(there) or 'none'}.")
        if table.public and catalog.is_view(key):
            raise InvalidParameterError(
                f"{table.table} is a view, which may read private tables and files that the policy doesn't show. Store "
                "its rows in a table, or name the source itself."
            )
        return key

    def _database(self, session: Session, analyst: str | None = None) -> Database:
        """Return the tables with everything that the policy declares about them."""
        database = Database(self._connection)
        database.aliases = {fold(name): key for name, key in self._keys.items() if key[0] != "frame"}
        for name, file in self._files.items():
            database.register(name, file)
        tables = self._document.tables
        database.declare_public({self._keys[name] for name, table in tables.items() if table.public})
        for name, table in tables.items():
            if table.public:
                continue
            key, through = self._keys[name], None
            if table.through is not None and table.on is not None:
                through = Through(self._keys[table.through], tuple(table.on.items()), table.unique)
            database.declare_private(key, self._unit_of(name), table.data_version, weaker=False, through=through)
            database.rules[key] = self._rules(name, table, session, analyst)
        return database

    def _unit_of(self, name: str) -> Any:
        """Return the unit of a table by its own names, if the policy says one."""
        return self._document.tables[name].unit

    def _rules(self, name: str, table: TablePolicy, session: Session, analyst: str | None) -> TableRules:
        document = self._document
        return TableRules(
            table=name,
            session=session,
            caps=table.caps,
            bounds={column: own.bounds for column, own in table.columns.items() if own.bounds is not None},
            keys=self._lists.get(name, {}),
            withheld=frozenset(column for column, own in table.columns.items() if not own.ask),
            questions=document.questions,
            smallest=document.smallest,
            largest=document.largest,
            analyst=analyst,
        )

    def _catalog(self, session: Session) -> Catalog:
        return Catalog(self._database(session), session)

    def _known(self, table: str) -> str:
        for name in self.tables:
            if isinstance(table, str) and fold(name) == fold(table):
                return name
        raise InvalidParameterError(
            f"The policy has no table {table!r}; it has {', '.join(self.tables)}.", code="unknown-table"
        )

    # ------------------------------------------------------------------ checks that need schemas

    def _check_all(self, trial: Session, problems: list[PolicyProblem]) -> None:
        """Compare what the policy says with the names and types of columns. Only rows of public tables are read."""
        tables = self._document.tables
        try:
            catalog = self._catalog(trial)
        except DPError as error:  # two declarations that contradict each other
            problems.append(PolicyProblem(self._document.line("tables"), str(error)))
            return
        columns = self._columns
        for name in tables:
            columns[name] = catalog.known_columns(self._keys[name])
            seen: dict[str, str] = {}
            for one in columns[name]:
                if seen.setdefault(folded(one), one) != one:
                    text = f"{name} has columns that differ only by case or look alike: {one!a}. Rename one."
                    problems.append(PolicyProblem(self._document.line("tables", name, "source"), text))
        if problems:
            return
        for name, table in tables.items():
            before = len(problems)
            if not table.public:
                self._check_unit(name, table, columns, catalog, problems)
            if len(problems) == before:  # otherwise the types of its columns are not known
                self._check_columns(name, table, columns, catalog, problems)

    def _check_unit(
        self,
        name: str,
        table: TablePolicy,
        columns: dict[str, list[str]],
        catalog: Catalog,
        problems: list[PolicyProblem],
    ) -> None:
        def wrong(key: str, text: str) -> None:
            problems.append(PolicyProblem(self._document.line("tables", name, key), text))

        if table.through is not None and table.on is not None:
            for mine, theirs in table.on.items():
                for where, own in ((name, mine), (table.through, theirs)):
                    if own not in columns[where]:
                        wrong("on", f"{where} has no column {own}; it has {', '.join(columns[where])}.")
                    elif not getattr(self._document.tables[where].columns.get(own), "ask", True):
                        wrong("on", f"{where}.{own} is the path to the unit of {name}. Leave ask = false out there.")
            try:
                catalog.check_path(self._keys[name], self._keys[table.through], name)
                if not table.unique and not catalog.is_unique(
                    catalog.known_table(self._keys[table.through]), table.on.values()
                ):
                    wrong(
                        "through",
                        f"No two rows of {table.through} may have the same {', '.join(table.on.values())}. If you know "
                        "that, write unique = true.",
                    )
            except DPError as error:
                wrong("through", str(error))
        try:
            known = catalog.known_table(self._keys[name])
        except DPError as error:
            wrong("unit", str(error))
            return
        missing = [one for one in known.unit.columns if fold(one) not in map(fold, columns[name])]
        if missing and table.through is None:
            wrong(
                "unit",
                f"{name} has no unit column {missing[0]}; it has {', '.join(columns[name])}. Write "
                f'unit = {{ {missing[0]} = "its name here" }}, or {_path_example(name, columns, self._document)}, or '
                "public = true.",
            )
        for one in known.unit.columns:
            if not getattr(table.columns.get(one), "ask", True):
                wrong("unit", f"{one} tells who is protected, and can only be counted. Leave ask = false out.")

    def _check_columns(
        self,
        name: str,
        table: TablePolicy,
        columns: dict[str, list[str]],
        catalog: Catalog,
        problems: list[PolicyProblem],
    ) -> None:
        for column, rules in table.columns.items():
            line = partial(self._document.line, "tables", name, "columns", column)
            if column not in columns[name]:
                same = [one for one in columns[name] if folded(one) == folded(column)]
                hint = f" Did you mean {same[0]}?" if same else f" It has {', '.join(columns[name])}."
                problems.append(PolicyProblem(line(), f"{name} has no column {ascii(column)[1:-1]}.{hint}"))
                continue
            if rules.bounds is None and rules.keys is None:
                continue
            meant = catalog.known_table(self._keys[name]).columns[column]
            if not isinstance(meant, TableColumn):
                problems.append(
                    PolicyProblem(line(), f"{column} has the type {meant}, which can't be asked. Write ask = false.")
                )
                continue
            try:
                if rules.bounds == "auto":
                    _check_estimated(column, meant.dtype)
                elif rules.bounds is not None:
                    stored_bounds(rules.bounds, column, meant.dtype, "the policy", can_estimate=False)
            except DPError as error:
                problems.append(PolicyProblem(line("bounds"), str(error)))
            try:
                if rules.keys is not None:
                    self._list_keys(name, column, meant.dtype, rules.keys, catalog)
            except DPError as error:
                problems.append(PolicyProblem(line("keys"), f"{column}: {error}"))

    def _list_keys(self, name: str, column: str, dtype: pl.DataType, keys: Any, catalog: Catalog) -> None:
        """Keep the public keys of a column, after checking that they fit its type."""
        if keys == "enum":
            if not isinstance(dtype, pl.Enum) and dtype != pl.Boolean:
                raise InvalidParameterError(f'its type {dtype} lists no values. Write keys = ["a", "b"].')
            return
        values: list[Any]
        if isinstance(keys, KeyColumn):
            frame = catalog.public_frame(_everything(keys.table))
            if keys.column not in frame.columns:
                raise InvalidParameterError(
                    f"{keys.table} has no column {keys.column}; it has {', '.join(frame.columns)}."
                )
            values = frame[keys.column].drop_nulls().unique().sort().to_list()
        else:
            values = list(keys)
        shown = pl.String() if isinstance(dtype, pl.Categorical) else dtype
        given_domain(values, (Key(name=column, expression="", dtype=shown, constant_per_unit=False),))
        self._lists.setdefault(name, {})[column] = values


def _everything(table: str) -> Any:
    return Parser().select(f"SELECT * FROM {quoted(table)}")  # noqa: S608 - quoted


def _types_hint(error: DPError) -> str:
    if error.code == "column-types-missing":
        return 'lines of a CSV file must not decide types. Write types = { total = "DOUBLE" }; other columns are text.'
    return str(error)


def _path_example(name: str, columns: Mapping[str, list[str]], document: Document) -> str:
    """Return how a path to the unit is written, with tables and columns of the policy where they can be told."""
    others = [other for other, table in document.tables.items() if other != name and not table.public]
    for other in others:
        shared = [column for column in columns[name] if column in columns[other]]
        if shared:
            return f'through = "{other}" and on = "{shared[0]}"'
    through = others[0] if others else "orders"
    return f'through = "{through}" and on = {{ {_bare(columns[name][0])} = "its name in {through}" }}'


def _bare(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _check_estimated(column: str, dtype: pl.DataType) -> None:
    """Refuse estimated bounds of a column whose bounds can't be estimated."""
    if not is_number(dtype):
        raise InvalidParameterError(
            f"{column} has the type {dtype}, whose bounds can't be estimated. Write the smallest and the largest value."
        )


def _number(value: Any) -> str:
    return f"{float(value):g}" if not isinstance(value, str | tuple) else str(value)
