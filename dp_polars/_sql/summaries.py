"""`SUMMARIZE t` and `SUMMARIZE SELECT ...` on a guarded connection: a profile of private rows, in one release.

It must be the whole statement, and it profiles every selected column except the unit. Options choose otherwise:
`con.sql("SUMMARIZE t", by=["region"], columns=["amount"], share=0.1)`.
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from dp_polars._engines.base import parts_for
from dp_polars._engines.registry import engine_for
from dp_polars._engines.request import BoundedRequest, Exact
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.unit_steps import described_rows, has_unit_steps, with_units
from dp_polars._expressions import Column, Expression
from dp_polars._frame.options import ProfileOptions
from dp_polars._frame.question import View
from dp_polars._plan.digest import public_digest
from dp_polars._profile.methods import ProfileQuestion, profile_question
from dp_polars._profile.plan import ProfilePlan
from dp_polars._profile.profile import TableProfile
from dp_polars._release.run import first_level_outside
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars._sql.analysis import private_relation
from dp_polars._sql.catalog import Catalog
from dp_polars._sql.option_words import in_sql_words
from dp_polars._sql.relations import Context, PrivateRelation
from dp_polars._sql.syntax_tree import Node, fold
from dp_polars.errors import DPWarning, InvalidDataError, InvalidParameterError, StatementNotAllowed

_SUMMARY = "SUMMARY"


def is_summary(node: Node) -> bool:
    """Return whether a statement is a SUMMARIZE with nothing around it."""
    table = node.get("from_table") or {}
    return table.get("type") == "SHOW_REF" and table.get("show_type") == _SUMMARY


def stands_alone(node: Node, context: Context) -> bool:
    """Return whether a SUMMARIZE, DESCRIBE or SHOW is the whole statement, with no clause around it."""
    own = {"select_list": None, "from_table": None}
    return {**node, **own} == {**context.parser.select("SELECT 1 FROM t"), **own}


@dataclass(frozen=True)
class SummaryStatement:
    """A planned SUMMARIZE."""

    question: ProfileQuestion
    sources: frozenset[Any]
    catalog: Catalog
    state: bytes
    """The state of the tables when the statement was planned."""
    releases: list[Release] = field(default_factory=list)
    """The release behind the answer, new or stored, once `answer` has been called."""

    @property
    def plans(self) -> list[ProfilePlan]:
        """The plan, as a list."""
        return [self.question.plan]

    def answer(self) -> Any:
        """Release the profile and return it as an Arrow table with a row for each column."""
        try:
            if self.catalog.state(self.sources) != self.state:  # a plan for some columns must not be used on others
                raise InvalidDataError("The data changed after this query was planned. Run the statement again.")
            release = replace(self.question, engine=self._counts).release(self._identity)
        finally:
            self.catalog.close()
        self.releases.append(release)
        profile = TableProfile(release)
        if not profile.reliable:  # the table has no column for it
            why = profile.unreliable().removeprefix("no: ")
            warnings.warn(f"The profile is not reliable: {why}.", DPWarning, stacklevel=first_level_outside())
        table = profile.table
        suggested = [None if text is None else in_sql_words(text) for text in table["suggested"]]
        return table.with_columns(pl.Series("suggested", suggested, pl.String)).to_arrow()

    def _identity(self) -> bytes:
        rows = self.question.rows
        within = has_unit_steps(rows)
        return self.catalog.private_source(self.sources, rows) if within else self.catalog.source(self.sources)

    def _counts(self, rows: PrivateRows, request: BoundedRequest) -> Exact:
        size = self.catalog.file_bytes(self.sources)
        parts = parts_for(size, self.catalog.memory_limit() if size else math.inf)
        found = engine_for(rows).aggregate(rows, request, parts=parts)
        self.catalog.check_versions(self.sources, self.state)
        return found


def summary_statement(node: Node, context: Context, session: Session, options: dict[str, Any]) -> SummaryStatement:
    """Plan a SUMMARIZE of private rows, or refuse it. Nothing is read or spent."""
    if not stands_alone(node, context):
        raise StatementNotAllowed("SUMMARIZE must be the whole statement. Read its answer in Python or in a table.")
    query = node["from_table"].get("query")
    relation = None if query is None else private_relation(query, context)
    if not isinstance(relation, PrivateRelation):
        raise StatementNotAllowed(
            "SUMMARIZE profiles private rows: SUMMARIZE visits, or SUMMARIZE SELECT region, amount FROM visits. Public "
            "tables need no profile; read them with SELECT."
        )
    catalog = context.catalog
    state = catalog.state(relation.sources)
    schema = relation.rows.schema
    units = zip(relation.table_unit.columns, relation.unit, strict=True)
    made: dict[str, Expression] = {shown: Column(name, schema[name]) for shown, name in units}
    taken, names = {fold(name) for name in made}, dict[str, str]()
    for name, meaning in relation.tables[0].columns.items():
        if isinstance(meaning, Column) and fold(name) not in taken:
            made[name], names[fold(name)] = meaning, name
    words = dict(options)
    by = _names("by", words.pop("by", None), names)
    columns = _names("columns", words.pop("columns", None), names)
    if columns is None:
        columns = [name for name in names.values() if name not in (by or [])]
    rows = with_units(relation.rows, relation.unit).make(made, keep=False)
    step = f'["SUMMARIZE",{_text(rows)}]'
    view = View(
        rows, (step,), relation.declared, relation.table_unit.columns, session, relation.table_unit,
        sources=None if has_unit_steps(rows)
        else lambda: tuple(catalog.source(frozenset({source})) for source in relation.sources),
        rules=catalog.rules(),
    )  # fmt: skip
    question = profile_question(view, by, columns, ProfileOptions(**words))  # type: ignore[typeddict-item]
    view.check(question.plan)
    return SummaryStatement(question, relation.sources, catalog, state)


def _text(rows: PrivateRows) -> str:
    return json.dumps(described_rows(rows, public_digest), sort_keys=True)


def _names(option: str, given: Any, known: dict[str, str]) -> list[str] | None:
    """Return listed columns as the table spells them."""
    if given is None:
        return None
    if not isinstance(given, str | list | tuple):
        raise InvalidParameterError(f"{option}= takes the names of columns, as a list or as text with commas.")
    listed = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
    missing = [str(name) for name in listed if not isinstance(name, str) or fold(name) not in known]
    if missing:
        raise InvalidParameterError(
            f"{option}= names {', '.join(missing)}, which the summarized rows don't have. They have "
            f"{', '.join(known.values())}.",
            code="unknown-column",
        )
    return [known[fold(name)] for name in listed]
