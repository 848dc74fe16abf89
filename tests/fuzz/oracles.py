"""What must hold for a fuzzed expression, and the list of all oracles.

Each oracle returns how a case ended. It raises a `Finding` for what must not happen.
"""

import datetime
import os
import random
import signal
import time
import warnings
from decimal import Decimal

import duckdb
import polars as pl

import dp_polars as dp
from dp_polars._engines.polars.program import Program
from dp_polars._expressions import Column
from dp_polars._expressions.check import check_expressions
from dp_polars._sql.expressions import Reader
from dp_polars._sql.scope import Scope, ScopeTable
from dp_polars._sql.syntax_tree import Parser
from dp_polars._sql.types import polars_type
from tests.expressions.test_evidence import bits as bits_of
from tests.fuzz.findings import Finding
from tests.fuzz.grammar_sql import COLUMNS, UNUSABLE
from tests.fuzz.neighbours import Functions, Neighbours, Pipelines, Statements
from tests.fuzz.private_rows import HEIGHT, POLARS, hostile_rows


class Strict(Program):
    """A program that fails where Polars does, instead of making the rows null."""

    def _isolated(self, part, height, place):
        raise Finding("not total: Polars failed on a hostile value")


def bits(series):
    """Return values as they are stored: Python has no dates beyond the year 9999, inside of lists either."""
    by_name = isinstance(series.dtype, pl.Enum | pl.Categorical) or series.dtype == pl.Decimal
    return bits_of(series if by_name else series.to_physical())


def check_row_wise(tree, rows):
    """Check that an accepted expression has one value for a row, of the announced type, whatever stands beside it."""
    program = Strict([tree])
    whole = bits(_one(program, rows, tree))
    dice = random.Random(7)
    places = [[row] for row in dice.sample(range(HEIGHT), 6)]
    places += [
        dice.sample(range(HEIGHT), 2),
        dice.sample(range(HEIGHT), HEIGHT),
        list(range(40)),
        list(range(40, HEIGHT)),
    ]
    for some in places:
        if bits(_one(program, rows[some], tree)) != [whole[row] for row in some]:
            raise Finding("not row-wise: a value changed with the rows around it")
    if len(_one(program, rows.head(0), tree)):
        raise Finding("height: rows out of none")


def _one(program, rows, tree):
    (found,) = program.columns(rows)
    if found.dtype != tree.dtype:
        raise Finding(f"type: {found.dtype} instead of {tree.dtype}")
    if len(found) != rows.height:
        raise Finding("height: another number of rows")
    return found


class SqlExpressions:
    """Reads SQL expressions over the columns of the fuzzed table."""

    def __init__(self):
        types = {name.strip('"').replace('""', '"'): duckdb.sqltype(kind) for name, kind in COLUMNS.items()}
        known = {name: polars_type(kind) for name, kind in types.items()}
        self._rows = hostile_rows({**known, "money": pl.Float64()})
        columns = {name: Column(name, dtype) for name, dtype in self._rows.schema.items()}
        self._scope = Scope((ScopeTable("people", {**columns, **UNUSABLE}),), "")
        self._parser = Parser()

    def __call__(self, text):
        """Return whether an expression was accepted or refused."""
        parameters = {"p": 3, "1": "a"}
        try:
            tree = Reader(self._scope, self._parser, parameters).checked(self._parser.expression(text))
        except dp.DPError:
            return "refused"
        check_row_wise(tree, self._rows)
        return "accepted"


class PolarsExpressions:
    """Reads Polars expressions over a frame with a column of each type."""

    def __init__(self):
        self._rows = hostile_rows(POLARS)
        self._names = {"pl": pl, "Decimal": Decimal, **{name: getattr(datetime, name) for name in
                       ("date", "time", "datetime", "timedelta")}}  # fmt: skip

    def __call__(self, text):
        """Return whether an expression was accepted or refused, or is none at all."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expr = eval(text, dict(self._names))
        except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - whatever Polars says
            return "no expression"
        if not isinstance(expr, pl.Expr):
            return "no expression"
        try:
            found = check_expressions(expr, schema=self._rows.schema, what="with_columns")
        except dp.DPError:
            return "refused"
        for one in found[:3]:
            check_row_wise(one.tree, self._rows)
        return "accepted"


class Faults:
    """Does what a case says: the fuzzer must see it."""

    def __call__(self, case):
        """Die, wait, fail, print, or hold."""
        if case == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        if case == "wait":
            time.sleep(600)
        if case == "print":
            os.write(2, b"thread panicked: CANARY-7")
        if case == "fail":
            raise KeyError(case)
        return case


ORACLES = {
    "sql": SqlExpressions,
    "polars": PolarsExpressions,
    "statements": lambda: Neighbours(Statements),
    "functions": lambda: Neighbours(Functions),
    "pipelines": lambda: Neighbours(Pipelines),
    "faults": Faults,
}
"""What `tests.fuzz.child` can run."""
