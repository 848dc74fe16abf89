"""From a choice in a user's words to a question: a planned query and the rows it will be asked of."""

from __future__ import annotations

from typing import Any

import polars as pl

from dp_polars._aggregates.functions import Asked, count, count_units
from dp_polars._choices.methods import Choice
from dp_polars._choices.plan import selection_plan
from dp_polars._choices.release import RANK
from dp_polars._engines.rows import PrivateRows
from dp_polars._expressions import Column, Expression, apply
from dp_polars._frame.options import By, ChoiceOptions, candidates_of, cap_of, check_options, domain_of, spend_of
from dp_polars._frame.queries import Question, View, aggregate_of, check_unit, engine_rows, is_integer, keys_of
from dp_polars._numbers import count_of
from dp_polars._plan.query import Aggregate, Key, Query, Selection
from dp_polars.errors import InvalidParameterError

_MOST = 10_000_000
_SCORES = ("count", "count_units", "sum")


def choice_question(view: View, choice: Choice, by: By, options: ChoiceOptions, *, unfolded: bool = True) -> Question:
    """Return the question that a choice means, or say what is missing."""
    check_options(options, choice.kind, ChoiceOptions, ("column", "candidates", "by", "score", "k"))
    check_unit(view.unit, view.rows.schema)
    groups, group_columns = keys_of(by, view)
    (column,), (candidate,) = keys_of([choice.column], view, choice.kind)
    _check_names(groups, column, choice.kind)
    expressions: dict[str, Expression] = {}
    score = aggregate_of(None, _score(choice.score), view, expressions)
    if any(value.auto for value in score.values):
        raise InvalidParameterError("The bounds of a score can't be estimated; give them.")
    candidates, rule = candidates_of(choice.candidates, column)
    public, _ = domain_of(options, groups)
    selection = Selection(
        kind=choice.kind,
        k=_wanted(choice.k, candidates),
        largest=choice.kind != "noisy_min",
        candidates=candidates,
        candidates_rule=rule,
        groups=public,
    )
    query = choice_query(view, selection, (*groups, column), score, options, unfolded=unfolded)
    plan = selection_plan(query, selection, view.terms)
    rows = engine_rows(view, [*group_columns, candidate], expressions, plan)
    return Question(plan, _limited_rows(rows, selection, len(groups)), view.session)


def choice_query(
    view: View,
    selection: Selection,
    keys: tuple[Key, ...],
    score: Aggregate,
    options: ChoiceOptions,
    *,
    unfolded: bool = True,
) -> Query:
    """Return the query of a choice. Its public keys are all pairs of a group and a candidate, if both are public."""
    max_groups, groups_rule = cap_of(options, "max_groups", view.session)
    max_rows, rows_rule = cap_of(options, "max_rows_per_group", view.session)
    return Query(
        aggregates=(score,),
        unit=view.unit,
        keys=keys,
        domain=_pairs(selection, keys),
        domain_rule="public keys",
        max_groups=max_groups if len(keys) > 1 else None,
        max_groups_rule=groups_rule,
        max_rows=max_rows,
        max_rows_rule=rows_rule,
        min_units=1,
        interval=None,
        nonnegative=False,
        spend=spend_of(options, view.session),
        steps=view.steps,
        unchecked=view.unchecked,
        integer_unit=is_integer(view.unit, view.rows.schema),
        unfolded=unfolded,
        selection=selection,
    )


def _pairs(selection: Selection, keys: tuple[Key, ...]) -> pl.DataFrame | None:
    if selection.candidates is None or (len(keys) > 1 and selection.groups is None):
        return None
    if selection.groups is None:
        return selection.candidates
    if selection.groups.height * selection.candidates.height > _MOST:
        raise InvalidParameterError(
            f"{selection.groups.height:,} groups with {selection.candidates.height:,} candidates each are too many; "
            f"at most {_MOST:,} pairs are scored at once."
        )
    return selection.groups.join(selection.candidates, how="cross", maintain_order="left_right")


def _limited_rows(rows: PrivateRows, selection: Selection, groups: int) -> PrivateRows:
    """Leave out rows of no candidate, and of no public group: where the engine is not told what is public."""
    column = f"key{groups}"
    if selection.candidates is None:
        rows = rows.filter(apply("is_not_null", Column(column, rows.schema[column])))
    elif groups and selection.groups is None:
        rows = _among(rows, selection.candidates, [column])
    if selection.groups is not None and selection.candidates is None:
        rows = _among(rows, selection.groups, [f"key{i}" for i in range(selection.groups.width)])
    return rows


def _among(rows: PrivateRows, public: pl.DataFrame, names: list[str]) -> PrivateRows:
    pairs = list(zip(names, public.columns, strict=True))
    return rows.lookup(public, on=pairs, how="semi", columns={}, nulls_equal=True)


def _score(given: Any) -> Asked:
    if isinstance(given, Asked) and given.kind in _SCORES:
        return given
    if isinstance(given, str) and given in ("rows", "units"):
        return count() if given == "rows" else count_units()
    raise InvalidParameterError(
        "score= is 'rows', 'units', dp.count('x') or dp.sum('x', bounds=(0, 100)): what a candidate is chosen by."
    )


def _wanted(k: Any, candidates: pl.DataFrame | None) -> int:
    wanted = count_of(k, "k")
    if candidates is not None and wanted > candidates.height:
        raise InvalidParameterError(f"k={wanted} is more than the {candidates.height} candidates.")
    if wanted > 1000:
        raise InvalidParameterError("At most 1,000 candidates are chosen at once; ask `count` for a whole table.")
    return wanted


def _check_names(groups: tuple[Key, ...], column: Key, kind: str) -> None:
    names = [key.name for key in groups]
    if column.name in names:
        raise InvalidParameterError(f"{column.name} is the candidate and a key of by=; give one an alias.")
    if kind == "top_k" and RANK in (*names, column.name):
        raise InvalidParameterError(f"top_k adds a column {RANK}; rename yours.")
