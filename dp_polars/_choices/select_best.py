"""From `select_best` in a user's words to a question: a score for every candidate, checked once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import polars as pl

from dp_polars._aggregates.sums import Sum
from dp_polars._choices.methods import BestChoice
from dp_polars._choices.plan import selection_plan
from dp_polars._choices.query import choice_query
from dp_polars._choices.scores import OWN, SLOTS, Scores, slot_name
from dp_polars._expressions import Column
from dp_polars._expressions.check import CheckedExpression, check_expression
from dp_polars._frame.options import By, ChoiceOptions, check_options, domain_of
from dp_polars._frame.queries import Question, View, check_unit, keys_of, unit_columns
from dp_polars._plan.query import Key, Selection
from dp_polars.errors import InvalidParameterError

CANDIDATE = "candidate"
"""The column of the answer."""

_MOST = 1_000_000


def best_question(view: View, choice: BestChoice, by: By, options: ChoiceOptions) -> Question:
    """Return the question that a choice by a score means, or say what is missing."""
    check_options(options, "select_best", ChoiceOptions, ("candidates", "score", "bounds", "by"))
    schema = view.rows.schema
    check_unit(view.unit, schema)
    candidates = _candidates(choice.candidates)
    groups, group_columns = keys_of(by, view)
    if CANDIDATE in {key.name for key in groups}:
        raise InvalidParameterError(f"The answer has a column {CANDIDATE}; give the key an alias.")
    checked = _score(choice, candidates, view)
    call = Sum.call("score", bounds=choice.bounds)
    # The canonical text names the candidate by its slot: one score for all of them.
    value = Sum.value(replace(checked[0], name="score"), choice.bounds, call, can_estimate=False)
    if value.auto:
        raise InvalidParameterError("The bounds of a score can't be estimated; give them.")
    public, _ = domain_of(options, groups)
    selection = Selection(
        kind="select_best",
        k=1,
        largest=True,
        candidates=candidates.to_frame(),
        candidates_rule="candidates= in the call",
        groups=public,
    )
    key = Key(name=CANDIDATE, expression="", dtype=candidates.dtype, constant_per_unit=False)
    score = Sum(name="score", values=(value,))
    query = choice_query(view, selection, (*groups, key), score, options)
    plan = selection_plan(query, selection, view.terms)
    wanted = sorted(set().union(*(item.columns for item in checked)) & set(schema))
    made = unit_columns(view, OWN)
    made |= {f"{OWN}key{i}": item.tree for i, item in enumerate(group_columns)}
    made |= {name: Column(name, schema[name]) for name in wanted}
    rows = view.rows.make(made, keep=False)
    engine = Scores(plan=plan, candidates=candidates, scores=[item.tree for item in checked])
    return Question(plan, rows, view.session, engine)


def _score(choice: BestChoice, candidates: pl.Series, view: View) -> list[CheckedExpression]:
    """Return the score of the candidates in each slot, checked."""
    if not callable(choice.score):
        raise InvalidParameterError(
            "score= is a function of a candidate that returns a row-wise expression: "
            "lambda price: pl.when(pl.col('bid') >= price).then(price).otherwise(0)."
        )
    slots = [slot_name(i) for i in range(min(SLOTS, len(candidates)))]
    schema = pl.Schema({**view.rows.schema, **dict.fromkeys(slots, candidates.dtype)})
    checked: list[CheckedExpression] = []
    for slot in slots:
        try:
            given = choice.score(pl.col(slot))
        except TypeError:
            given = None
        if not isinstance(given, pl.Expr):
            raise InvalidParameterError(
                "score= is called with the candidate as an expression, and must return an expression: write "
                "pl.when(pl.col('bid') >= price).then(price).otherwise(0) instead of `if`, arithmetic for look-ups."
            )
        item = check_expression(given, schema=schema, what="score")
        if item.columns & (set(slots) - {slot}):
            raise InvalidParameterError("score= must use the candidate that it is given, not one of another call.")
        checked.append(item)
    if len({item.canonical.replace(json.dumps(slot), "") for slot, item in zip(slots, checked, strict=True)}) > 1:
        raise InvalidParameterError("score= must return the same expression for every candidate but for the candidate.")
    return checked


def _candidates(given: Any) -> pl.Series:
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise InvalidParameterError("candidates= is a list of what may be chosen: candidates=[1, 2, 5].")
    try:
        series = given.alias(CANDIDATE) if isinstance(given, pl.Series) else pl.Series(CANDIDATE, list(given))
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise InvalidParameterError("candidates= must all be of one type.") from None
    if isinstance(series.dtype, pl.Categorical):
        series = series.cast(pl.String)
    if not 1 <= len(series) <= _MOST:
        raise InvalidParameterError(f"candidates= must list between 1 and {_MOST:,} values, got {len(series):,}.")
    if series.dtype.is_nested() or series.dtype in (pl.Object, pl.Null):
        raise InvalidParameterError(f"candidates= are of the type {series.dtype}; list numbers, texts or dates.")
    if series.null_count() or (series.dtype.is_float() and not series.is_finite().all()):
        raise InvalidParameterError("candidates= must not hold nulls, NaN or infinities.")
    if series.n_unique() != len(series):
        raise InvalidParameterError("candidates= lists a value twice.")
    return series
