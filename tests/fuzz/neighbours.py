"""What must hold for a question that two neighbours are asked: in SQL, through registered functions, or in Polars.

Nothing that anyone sees may hold a canary: answers, errors, warnings, plans, reprs and ledgers. Whether and how a
question fails, its plan, its price, and the names, types, keys and order of its answer are the same for both neighbours.
No answer holds an exact aggregate, a failure closes no session, and what is answered is paid.

Exact answers and amounts of rows are looked for among the numbers of a result. The noise of a question has a scale of
about 1e5, so that one of them appears by chance with a probability of about 1e-2 per question; it counts if it appears
in each of six sessions, which happens by chance in one of 1e12 questions.
"""

import contextlib
import datetime
import math
import re
import warnings
from dataclasses import dataclass, field
from decimal import Decimal

import duckdb
import polars as pl

import dp_polars as dp
from dp_polars._sql.functions import BUDGET_TYPE
from dp_polars._sql.functions import Functions as Registered
from tests.fuzz.findings import CANARIES, TEXT_CANARIES, Finding, named
from tests.fuzz.private_rows import GONE, beside, people, polars_people, polars_public

_NUMBER = re.compile(r"-?[0-9]+\.?[0-9]*")
_GIVEN = {300.0, 450.0, 1000.0, 32768.0, -32768.0, 65536.0, 777000.0, 778000.0, 2147483648.0, -2147483648.0, 5874897.0}
_FOREVER = 40  # questions for one session


@dataclass
class Seen:
    """What anyone could see of a question."""

    end: tuple = ()
    """("answered", schema), ("answered", "failed above") or ("refused", the class of the error, its text)."""
    plans: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    released: list = field(default_factory=list)
    """What of its releases must not depend on one unit."""
    spent: float = 0.0
    unpaid: str = ""
    """What is wrong with the charge."""
    texts: list = field(default_factory=list)
    """Everything that must not hold a canary."""


class Neighbour:
    """Private rows with or without a unit, and a session that pays for questions about them."""

    truths: frozenset = frozenset()
    """Exact aggregates of the private rows that nobody would meet by chance."""

    def renew(self):
        """Begin a new session."""
        self.session = dp.Session(epsilon=1e-3, delta=1e-12, unit="uid", max_groups=3, max_rows_per_group=3)

    def plans(self, case):
        """Return the plans that a preview of the question shows."""
        return []

    def answer(self, case, seen):
        """Ask the question, and note the schema and the rows of its answer. Return the releases behind it, if known."""
        raise NotImplementedError

    def refusal(self, error):
        """Return the class and the text of an error, or None for an error that is not the library's own."""
        return (type(error).__name__, str(error)) if isinstance(error, dp.DPError) else None

    def more_truths(self, case):
        """Return exact aggregates of the rows that this question is about."""
        return frozenset()

    def ask(self, case):
        """Ask a question and check everything that needs no neighbour."""
        seen = Seen()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            price = self._preview(case, seen)
            before, paid = self.session.spent.epsilon, len(self.session.releases)
            try:
                releases = self.answer(case, seen)
            except (dp.DPError, duckdb.Error) as error:
                self._refused(error, seen, charged=len(self.session.releases) != paid)
            else:
                seen.unpaid = self._unpaid(releases, price, before, paid)
                seen.released = [_public_part(one) for one in releases or () if one.plan is not None]
        if self.session.closed:
            raise Finding("closed: the session")
        seen.spent = self.session.spent.epsilon
        seen.texts += [str(one.message) for one in warned]
        seen.texts += [repr(self.session), self.session.describe()]
        seen.texts += [repr(row) for row in self.session.export().tail(4).rows()]
        leaks = any(map(CANARIES.search, seen.texts)) or any(map(TEXT_CANARIES.search, map(repr, seen.rows)))
        if leaks and not CANARIES.search(str(case)):
            raise Finding("canary: in what is shown")
        return seen

    def _preview(self, case, seen):
        before = self.session.spent.epsilon
        try:
            plans = self.plans(case)
        except dp.DPError as error:
            seen.texts += _chain(error)
            return 0.0
        seen.plans = [str(one) for one in plans]
        seen.texts += [*seen.plans, *map(repr, plans), *(one._repr_html_() for one in plans)]
        if self.session.spent.epsilon != before:
            raise Finding("charge: a preview cost something")
        return sum(float(one.cost.epsilon) for one in plans)

    def _refused(self, error, seen, *, charged):
        refused = self.refusal(error)
        if refused is None:
            raise error
        above = refused[1].startswith("The SQL above")
        seen.end = ("answered", "failed above") if above else ("refused", *refused)
        seen.texts += _chain(error)
        if refused[0] in ("EngineError", "SessionClosed"):
            raise Finding(f"closed: {named(error)}") from None
        if charged and not above:
            raise Finding(f"refused after a charge: {named(error)}") from None

    def _unpaid(self, releases, price, before, paid):
        new = len(self.session.releases) - paid
        if price and not new and not paid:
            return "charge: an answer without a release"
        stored = releases is None or any(one.stored for one in releases)
        short = self.session.spent.epsilon - before < price * 0.999
        return "charge: less than the declared price" if new and not stored and short else ""


def _chain(error):
    """Return the texts of an error and of those that it came from, which a debugger or a server's log shows."""
    texts = []
    while error is not None:
        texts += [str(error), repr(error), *getattr(error, "__notes__", ())]
        error = error.__cause__ or error.__context__
    return texts


def _public_part(release):
    """Return what of a release must not depend on one unit where its keys are public: how many rows, and their keys."""
    if getattr(release.plan, "selection", None) is not None:
        return str(release.frame.schema)
    keys = [key.name for key in release.plan.query.keys] if getattr(release.plan, "query", None) else []
    return str(release.frame.schema), repr(release.frame.select(keys).rows()) if keys else release.frame.height


# ---------------------------------------------------------------------- SQL


def sql_truths(raw):
    """Return exact aggregates of the private columns of the table `people`."""
    numbers = ["i8", "i16", "i32", "i64", "u8", "u64", "f64", "deci", "money"]
    parts = [f"{name}({one})" for one in numbers for name in ("sum", "avg", "max", "min", "count", "median", "stddev")]
    usual = ", ".join(one.replace("(", "(CAST(").replace(")", " AS DOUBLE))") for one in parts)
    found = []
    for where in ("true", "b", "NOT b", "mood = 'ok'", "mood = 'sad'", "i64 > 3"):
        found += raw.execute(
            f"SELECT count(*), count(DISTINCT uid), {usual} FROM people WHERE isfinite(f64) AND {where}"
        ).fetchall()[0]
    return _rare(found)


def _rare(numbers):
    """Return the numbers that are large enough not to appear by chance, and that no grammar writes."""
    known = {float(one) for one in numbers if one is not None}
    return frozenset(one for one in known if 300 <= abs(one) < 1e15) - _GIVEN


class Statements(Neighbour):
    """Statements on a guarded connection."""

    def __init__(self, *, hostile_unit):
        self._raw = duckdb.connect()
        people(self._raw, "true" if hostile_unit else f"uid <> {GONE}")
        self.truths = sql_truths(self._raw)
        beside(self._raw)
        frame = self._raw.execute("SELECT uid, money, i64, i8, t, b, f64 FROM people").to_arrow_table()
        self._frame = pl.DataFrame(frame)
        self.renew()

    def renew(self):
        """Begin a new session."""
        super().renew()
        self.con = dp.connect(self._raw, self.session).public("lookup", "places").private("grown", unit="uid")
        self.con.register("frame", self._frame)

    def plans(self, case):
        """Return the plans of a statement."""
        plans = self.con.preview(case["sql"], params=case["parameters"], **case["options"])
        return plans if isinstance(plans, list) else [plans]

    def answer(self, case, seen):
        """Run a statement."""
        table = self.con.sql(case["sql"], params=case["parameters"], **case["options"]).to_arrow_table()
        seen.end, seen.rows = ("answered", str(table.schema)), table.to_pylist()
        seen.texts.append(repr(self.con))
        return self.con._paid


class Functions(Neighbour):
    """Functions of `dp.register` on the owner's connection. The statements read private tables through them only."""

    _REFUSED = re.compile(r"while executing the UDF: (\w+): (.*)", re.DOTALL)
    _BEFORE = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)

    def __init__(self, *, hostile_unit):
        self._raw = duckdb.connect()
        people(self._raw, "true" if hostile_unit else f"uid <> {GONE}")
        self.truths = sql_truths(self._raw)
        beside(self._raw, macros=False)
        super().renew()
        con = dp.register(self._raw, self.session).public("lookup", "places").private("grown", unit="uid")
        self._database = con._database

    def renew(self):
        """Begin a new session. The macros stay as they are, because to make them all takes longer than many questions."""
        super().renew()
        asked = Registered(self._database, self.session)
        for name, function, given, kind in (
            ("dp_ask", asked.ask, ["VARCHAR"], "VARCHAR"),
            ("dp_left", asked.budget, [], BUDGET_TYPE),
        ):
            self._raw.remove_function(name)
            self._raw.create_function(name, function, given, kind, side_effects=True)

    def close(self):
        """Close the connection: DuckDB complains about open ones that have functions."""
        self._raw.close()

    def answer(self, case, seen):
        """Run a statement of the owner."""
        table = self._raw.cursor().sql(case).to_arrow_table()
        seen.end, seen.rows = ("answered", str(table.schema)), table.to_pylist()

    def refusal(self, error):
        """Return a refusal that came through DuckDB, or an error of DuckDB before anything was asked."""
        found = self._REFUSED.search(str(error))
        if found and issubclass(getattr(dp, found[1], type(None)), dp.DPError):
            return found[1], found[2]
        return (type(error).__name__, str(error)) if isinstance(error, self._BEFORE) else None


# ---------------------------------------------------------------------- Polars


class Pipelines(Neighbour):
    """Transformations and a question of a private frame, in Python."""

    def __init__(self, *, hostile_unit):
        self._frame = polars_people(hostile_unit=hostile_unit)
        self._public = polars_public()
        self._names = {"pl": pl, "dp": dp, "cs": pl.selectors, "Decimal": Decimal, **self._public,
                       **{name: getattr(datetime, name) for name in ("date", "time", "datetime", "timedelta")}}  # fmt: skip
        self.renew()

    def _run(self, text, **names):
        return eval(text, {**self._names, **names})

    def _steps(self, case, frame):
        """Return a frame after the steps of a case, or None if one of its expressions is none for Polars."""
        try:
            given = [self._run(text) for text in case["expressions"]]
        except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - whatever Polars says
            return None, []
        return self._run(f"frame{case['steps']}", frame=frame, e=given), given

    def _private(self, case):
        frame = self._frame.lazy() if case["lazy"] else self._frame
        return dp.private(frame, self.session)

    def plans(self, case):
        """Return the plan of the question."""
        made, given = self._steps(case, self._private(case))
        return [] if made is None else [self._run(f"made.preview{case['question']}", made=made, e=given)]

    def answer(self, case, seen):
        """Take the steps and ask."""
        paid = len(self.session.releases)
        made, given = self._steps(case, self._private(case))
        if made is None:
            seen.end = ("no expression", "")
            return None
        seen.texts += [repr(made), str(made.schema)]
        found = self._run(f"made{case['question']}", made=made, e=given)
        if isinstance(found, pl.LazyFrame):
            seen.texts += [found.explain(), repr(found)]
            announced = found.collect_schema()
            found = found.collect()
            if found.schema != announced:
                raise Finding(f"types: {found.schema} instead of {announced}")
        if isinstance(found, dp.TableProfile):
            seen.texts += [str(found), repr(found), found._repr_html_()]
            found = found.table
        seen.end, seen.rows = ("answered", str(found.schema)), found.rows()
        return self.session.releases[paid:]

    def more_truths(self, case):
        """Return exact aggregates of the rows after the steps, if Polars itself can take them."""
        with contextlib.suppress(Exception, pl.exceptions.PanicException):
            made, _ = self._steps(case, self._frame)
            numbers = made.select(pl.selectors.numeric().cast(pl.Float64, strict=False))
            finite = numbers.select(pl.when(pl.all().is_finite()).then(pl.all()))
            exact = [made.height, made["uid"].n_unique(), made["uid"].drop_nulls().n_unique()]
            for one in (finite.sum(), finite.mean(), finite.median(), finite.max(), finite.min(), finite.count()):
                exact += one.row(0)
            return _rare(exact)
        return frozenset()


# ---------------------------------------------------------------------- two of them


class Neighbours:
    """Asks two neighbours the same question, and compares what is seen."""

    def __init__(self, kind):
        self._pair = (kind(hostile_unit=True), kind(hostile_unit=False))
        self._truths = frozenset().union(*(one.truths for one in self._pair))
        self._asked = 0

    def __call__(self, case):
        """Return whether a question was answered or refused."""
        self._asked += 1
        if self._asked % _FOREVER == 0:
            self._renew()
        try:
            return self._compared(case)
        except BaseException:
            self._renew()
            raise

    def _renew(self):
        for one in self._pair:
            one.renew()

    def _compared(self, case):
        seen, other = (one.ask(case) for one in self._pair)
        if seen.end[0] != other.end[0] or (seen.end[0] == "refused" and seen.end != other.end):
            shown = [f"{one.end[0]} {one.end[-1][:150]!r}" for one in (seen, other)]
            raise Finding(f"neighbours: {' and '.join(shown)}")
        if seen.plans != other.plans:
            raise Finding("neighbours: plans differ")
        if seen.spent != other.spent:
            raise Finding("neighbours: prices differ")
        if "failed above" not in (seen.end[1], other.end[1]):
            if seen.end != other.end:
                raise Finding(f"neighbours: types differ: {seen.end[1]!r} and {other.end[1]!r}")
            if seen.released != other.released:
                raise Finding("neighbours: keys or row counts differ")
        self._check_exact(case, seen, other)
        if seen.unpaid or other.unpaid:
            raise Finding(seen.unpaid or other.unpaid)
        return seen.end[0]

    def _check_exact(self, case, *found):
        if not any(one.rows for one in found):
            return
        given = set(_numbers(str(case), most=10_000))
        truths = self._truths.union(*(one.more_truths(case) for one in self._pair)) - given
        for _ in range(5):
            if not any(_holds(one.rows, truths) for one in found):
                return
            self._renew()
            found = [one.ask(case) for one in self._pair]
        if any(_holds(one.rows, truths) for one in found):
            raise Finding("exact: an exact aggregate in the result")


def _holds(rows, truths):
    """Return whether a number of an answer is an exact aggregate or the amount of a row."""
    return any(
        _is_amount(one) or any(math.isclose(one, true, rel_tol=1e-12) for true in truths) for one in _numbers(rows)
    )


def _is_amount(number):
    return 777_000 <= number < 779_000 and number % 1 == 0.125


def _numbers(value, most=20):
    """Return the numbers in a value, and the first ones in each text."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float | Decimal):
        if math.isfinite(value) and abs(value) < 1e300:
            yield float(value)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _numbers(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, str):
        for text in _NUMBER.findall(value)[:most]:
            yield float(text[:300])
