"""`df.dp` and `lf.dp`: a private frame, its checked transformations and its questions."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, NoReturn, TypeVar

import polars as pl

from dp_polars.accounting.current import current_session
from dp_polars.accounting.reservation import release_key
from dp_polars.accounting.session import Session
from dp_polars.accounting.terms import ROW, TableUnit, UnitWords, check_columns, table_unit
from dp_polars.asking.aggregates import Asked
from dp_polars.asking.best import best_question
from dp_polars.asking.choice import choice_question
from dp_polars.asking.choices import BestChoice, Choice, Choices
from dp_polars.asking.expressions import CheckedExpression, check_expression, check_expressions
from dp_polars.asking.many import PrivateMany
from dp_polars.asking.options import AnyOptions, By, ChoiceOptions, ExpressionLike, Options
from dp_polars.asking.preview import Preview
from dp_polars.asking.question import Question, View, question_of
from dp_polars.asking.questions import Questions
from dp_polars.asking.responses import Asking, Responses, response_question_of
from dp_polars.asking.streams import Stream, Streams, opened
from dp_polars.errors import InvalidParameterError
from dp_polars.planning.query import public_digest
from dp_polars.planning.stream import StreamPlan
from dp_polars.quantities import flag_of
from dp_polars.releasing.deferred import deferred
from dp_polars.releasing.present import result_schema
from dp_polars.releasing.responses import run_responses
from dp_polars.releasing.run import run_plan
from dp_polars.releasing.source import source_identity
from dp_polars.showing.names import PublicNames

JoinHow = Literal["inner", "left", "semi", "anti"]


Frame = TypeVar("Frame", bound=pl.DataFrame | pl.LazyFrame)


class PrivateFrame(
    PrivateMany, Questions[Frame], Choices[Frame], Streams[Stream], Responses[Frame], PublicNames, Generic[Frame]
):
    """A frame whose rows stay private: it can be transformed and asked, not seen.

    The guarantee is about the rows of the frame that `.dp` was called on; what happened to it before is the caller's
    business. Transformations are checked: each row of the result depends on one row of the frame.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> visits = pl.DataFrame({"user": range(4_000), "km": [1, 2, 3, 40] * 1_000, "city": ["a", "b"] * 2_000})
    >>> cities = pl.DataFrame({"city": ["a", "b"], "land": ["x", "y"]})
    >>> far = dp.private(visits, session).filter(pl.col("km") > 2).join(cities, on="city")
    >>> far.with_columns(miles=pl.col("km") / 1.6).drop("city").rename({"land": "country"}).select("miles", "country")
    <dp.PrivateFrame with user, miles, country>
    >>> round(far.count(epsilon=0.5).item(), -3), far.preview.count(epsilon=0.5).cost
    (2000, <dp.Cost epsilon 0.5, rho 0.122459>)
    """

    def __init__(
        self,
        frame: Frame,
        *,
        session: Session | None = None,
        unit: UnitWords = None,
        name: str | None = None,
        data_version: str | None = None,
        weaker_unit: bool = False,
    ) -> None:
        self._origin: pl.DataFrame | pl.LazyFrame = frame
        self._rows: pl.LazyFrame = frame.lazy()
        self._session = session
        self._unit, self._weaker_unit = unit, flag_of(weaker_unit, "weaker_unit")
        self._unit_of(session)  # says so if it is no unit
        self._name, self._data_version = name, data_version
        self._steps: tuple[str, ...] = ()
        self._made: frozenset[str] = frozenset()
        self._unchecked = False

    # ------------------------------------------------------------------ transformations

    def filter(self, *predicates: pl.Expr, unchecked: bool = False, **constraints: Any) -> PrivateFrame[Frame]:
        """Keep the rows for which every predicate is true, and in which columns have the values of constraints."""
        equal = [pl.col(name) == value for name, value in constraints.items()]
        checked = [one for item in (*predicates, *equal) for one in self._check_all(item, "filter", unchecked)]
        schema = self._rows.select([item.expr.alias(str(i)) for i, item in enumerate(checked)]).collect_schema()
        if any(dtype != pl.Boolean for dtype in schema.values()):
            raise InvalidParameterError("filter takes conditions: expressions that are true or false in each row.")
        rows = self._rows.filter([item.expr for item in checked])
        return self._after(rows, "filter", [item.canonical for item in checked], unchecked)

    def with_columns(self, *expressions: ExpressionLike, unchecked: bool = False, **named: Any) -> PrivateFrame[Frame]:
        """Add or replace columns; the unit column can't be replaced."""
        checked = self._checked_columns(expressions, named, "with_columns", unchecked)
        self._keep_unit(set(checked), "replace")
        rows = self._rows.with_columns([item.expr.alias(name) for name, item in checked.items()])
        texts = {name: item.canonical for name, item in checked.items()}
        return self._after(rows, "with_columns", texts, unchecked, made=checked)

    def select(self, *expressions: ExpressionLike, unchecked: bool = False, **named: Any) -> PrivateFrame[Frame]:
        """Keep these columns; the unit column stays in any case."""
        checked = self._checked_columns(expressions, named, "select", unchecked)
        known = self._schema()
        changed = [n for n, item in checked.items() if n not in known or item.canonical != self._plain(n)]
        self._keep_unit(set(changed), "replace")
        kept = [pl.col(name) for name in self._unit_columns() if name not in checked]
        # With all columns first: a constant alone would be one row.
        made_here = self._rows.with_columns(item.expr.alias(name) for name, item in checked.items())
        rows = made_here.select([*kept, *checked])
        texts = {name: item.canonical for name, item in checked.items()}
        return self._after(rows, "select", texts, unchecked, made=changed)

    def drop(self, *columns: str) -> PrivateFrame[Frame]:
        """Leave these columns out; the unit column can't be."""
        self._known(columns)
        self._keep_unit(set(columns), "drop")
        return self._after(self._rows.drop(columns), "drop", list(columns), False)

    def rename(self, mapping: dict[str, str]) -> PrivateFrame[Frame]:
        """Rename columns; the unit column keeps its name."""
        self._known(mapping)
        self._keep_unit({*mapping, *mapping.values()}, "rename")
        return self._after(self._rows.rename(mapping), "rename", mapping, False, made=[*mapping, *mapping.values()])

    def join(
        self, public: pl.DataFrame, on: str | Sequence[str], *, how: JoinHow = "inner", suffix: str = "_right"
    ) -> PrivateFrame[Frame]:
        """Join a public frame by equal keys, which must be unique in it, so that no row is multiplied."""
        if how not in ("inner", "left", "semi", "anti"):
            raise InvalidParameterError(f"A private frame joins by 'inner', 'left', 'semi' or 'anti', not {how!r}.")
        names = [on] if isinstance(on, str) else list(on)
        self._known(names)
        if not isinstance(public, pl.DataFrame) or not set(names) <= set(public.columns):
            raise InvalidParameterError("join takes a public DataFrame that has the columns of on=.")
        if public.select(names).n_unique() != public.height:
            raise InvalidParameterError(
                f"The public frame has {', '.join(names)} more than once: a join would multiply rows and with them "
                "what one unit can change. Make the keys unique first."
            )
        added = {n if n not in self._schema() else n + suffix for n in public.columns if n not in names}
        self._keep_unit(added, "replace")
        rows = self._rows.join(public.lazy(), on=names, how=how, suffix=suffix)
        # Public rows are part of the question, so they may be part of its name.
        step = {"on": names, "how": how, "suffix": suffix, "public": public_digest(public)}
        return self._after(rows, "join", step, False, made=added)

    @property
    def preview(self) -> Preview:
        """The same questions, answered with their plan: what they would do and cost. Spends nothing."""
        return Preview(self)

    # ------------------------------------------------------------------ from words to a question

    def _ask(self, asked: Asked | Mapping[str | None, Asked], by: By, options: Options) -> Any:
        return self._answer(self._question(asked, by, options), options)

    def _choose(self, choice: Choice | BestChoice, by: By, options: ChoiceOptions) -> Any:
        return self._answer(self._choice(choice, by, options), options)

    def _choice(self, choice: Choice | BestChoice, by: By, options: ChoiceOptions) -> Question:
        question = best_question if isinstance(choice, BestChoice) else choice_question
        return question(self._view(options), choice, by, options)  # type: ignore[arg-type]

    def _question(self, asked: Asked | Mapping[str | None, Asked], by: By, options: Options) -> Question:
        return question_of(self._view(options), asked, by, options)

    def _view(self, options: AnyOptions) -> View:
        """Return what a question sees of this frame, or say why nobody can ask."""
        session = self._paying(options)
        table = self._unit_of(session)
        unit = table.columns
        missing = [name for name in unit if name not in self._schema()]
        if missing:
            raise InvalidParameterError(
                f"The session protects units by {', '.join(missing)} (unit=), which this frame doesn't have; it has "
                f"{', '.join(self._schema())}. If it is called otherwise here, say dp.private(frame, "
                f"unit={{{missing[0]!r}: 'the column here'}})."
            )
        self._own_unit(unit)
        if any(name.startswith("\0") for name in self._schema()):
            raise InvalidParameterError("Names of columns that begin with a null character are dp_polars' own; rename.")
        return View(self._rows, self._steps, self._unchecked, unit, session, table)

    def _stream(self, plan: StreamPlan, view: View) -> Stream:
        return opened(plan, view)

    def _answer(self, question: Question, options: Options | ChoiceOptions) -> Any:
        plan, fresh = question.plan, flag_of(options.get("fresh", False), "fresh")

        def name() -> bytes:
            source = source_identity(self._origin, self._name, self._data_version)
            return release_key(plan.query.fingerprint(), source)

        def release() -> pl.DataFrame:
            return run_plan(plan, question.rows, question.session, name=name, fresh=fresh, engine=question.engine).frame

        if isinstance(self._origin, pl.DataFrame):
            return release()
        return deferred(release, result_schema(plan))

    def _ask_responses(self, asking: Asking) -> Any:
        question = response_question_of(self._view(asking.general), asking)
        plan, fresh = question.plan, flag_of(asking.options.get("fresh", False), "fresh")

        def name() -> bytes:
            return release_key(plan.fingerprint(), source_identity(self._origin, self._name, self._data_version))

        def release() -> pl.DataFrame:
            return run_responses(plan, question.rows, question.session, name=name, fresh=fresh).frame

        return release() if isinstance(self._origin, pl.DataFrame) else deferred(release, plan.schema)

    def _paying(self, options: AnyOptions) -> Session:
        session = options.get("session") or self._session or current_session()
        if session is None:
            raise InvalidParameterError(
                "No session pays for this question. Ask inside `with session:`, call dp.set_session(session) once, or "
                "pass session=; a session is dp.Session(epsilon=1.0, unit='user_id')."
            )
        return session

    def _unit_of(self, session: Session | None) -> TableUnit:
        """Return who is protected here in a session; without one, what was said of this table alone."""
        agreed = session.terms.unit if session is not None else ROW
        weaker = self._weaker_unit or session is None
        return table_unit(agreed, self._unit, weaker=weaker)

    def _unit_columns(self) -> tuple[str, ...]:
        """Return the unit columns as far as they are known before a question: those of the session at hand."""
        return self._unit_of(self._session or current_session()).columns

    def _own_unit(self, unit: tuple[str, ...]) -> None:
        """Refuse a unit column that a step made: whichever session pays, units are those of the frame itself."""
        made = self._made & set(unit)
        if made:
            raise InvalidParameterError(
                f"{', '.join(sorted(made))} says who is protected, but a step of this private frame made it. "
                "Prepare it before .dp."
            )

    # ------------------------------------------------------------------ checks

    def _schema(self) -> pl.Schema:
        schema = self._rows.collect_schema()
        check_columns(schema.names())
        return schema

    def _check(self, expression: Any, what: str, unchecked: bool) -> CheckedExpression:
        if not flag_of(unchecked, "unchecked"):
            return check_expression(expression, schema=self._schema(), what=what)
        # What was not checked may not even have a canonical text: it gets a name that no other question has.
        expr = pl.col(expression) if isinstance(expression, str) else expression
        name = expr.meta.output_name()
        return CheckedExpression(expr, secrets.token_hex(16), name, frozenset(expr.meta.root_names()))

    def _check_all(self, expression: Any, what: str, unchecked: bool) -> tuple[CheckedExpression, ...]:
        """Return what an expression with selectors stands for, checked."""
        if flag_of(unchecked, "unchecked"):
            return (self._check(expression, what, unchecked),)
        return check_expressions(expression, schema=self._schema(), what=what)

    def _checked_columns(
        self, expressions: Sequence[Any], named: dict[str, Any], what: str, unchecked: bool
    ) -> dict[str, CheckedExpression]:
        checked = {}
        for given in expressions:
            for item in given if isinstance(given, list | tuple) else [given]:
                checked.update({one.name: one for one in self._check_all(item, what, unchecked)})
        for name, item in named.items():
            checked[name] = self._check(item, what, unchecked)
        return checked

    def _known(self, columns: Any) -> None:
        missing = [name for name in columns if name not in self._schema()]
        if missing:
            raise InvalidParameterError(
                f"The frame has no column {', '.join(missing)}; it has {', '.join(self._schema())}."
            )

    def _keep_unit(self, touched: set[str], what: str) -> None:
        hit = touched & set(self._unit_columns())
        if hit:
            raise InvalidParameterError(
                f"{', '.join(sorted(hit))} says who is protected; a private frame can't {what} it."
            )

    def _plain(self, name: str) -> str:
        return self._check(name, "select", False).canonical

    def _after(
        self, rows: pl.LazyFrame, kind: str, detail: Any, unchecked: bool, made: Iterable[str] = ()
    ) -> PrivateFrame[Frame]:
        after: PrivateFrame[Frame] = PrivateFrame.__new__(PrivateFrame)
        after.__dict__.update(self.__dict__)
        after._rows = rows
        after._steps = (*self._steps, json.dumps([kind, detail], sort_keys=True))
        after._made = self._made.union(made)
        after._unchecked = self._unchecked or unchecked
        return after

    def __repr__(self) -> str:
        columns = ", ".join(self._rows.collect_schema())
        return f"<dp.PrivateFrame with {columns}>"

    def __reduce__(self) -> NoReturn:
        raise InvalidParameterError(
            "A private frame can't be copied or pickled: the copy would hold the rows. Pass what was released, or make "
            "the frame private where it is asked."
        )
