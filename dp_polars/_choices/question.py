"""From the arguments of a choice to a planned question. Nothing is read and nothing is spent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from dp_polars._aggregates.base import Aggregate, AggregateCall
from dp_polars._aggregates.counts import count, count_units
from dp_polars._aggregates.sums import Sum
from dp_polars._aggregates.values import Bounds
from dp_polars._choices.plan import ChoicePlan, Selection, choice_plan
from dp_polars._choices.release import (
    OWN,
    RANK,
    SLOTS,
    CandidateScores,
    ChoiceRun,
    choice_schema,
    run_choice,
    slot_name,
)
from dp_polars._engines.normal_form import normal_form
from dp_polars._engines.registry import engine_for
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.unit_steps import why_steps_are_safe
from dp_polars._expressions import Column, Expression, apply
from dp_polars._expressions.check import CheckedExpression, check_expression
from dp_polars._frame.adopted import AdoptedCap, adopted_candidates, adopted_cap, adopted_domain
from dp_polars._frame.aggregate_question import aggregate_of, check_unit, engine_rows, is_integer, keys_of, unit_columns
from dp_polars._frame.options import (
    By,
    ChoiceOptions,
    ExpressionLike,
    check_options,
    domain_of,
    fresh_of,
    labelled,
    spend_of,
)
from dp_polars._frame.question import TableQuestion, View
from dp_polars._numbers import count_of
from dp_polars._plan.digest import public_digest
from dp_polars._plan.query import Key, Query
from dp_polars._release.charge import Identity
from dp_polars._release.run import ExactAnswers
from dp_polars._session.releases import Release
from dp_polars.errors import InvalidParameterError

Score = AggregateCall | Literal["rows", "units"]
ScoreOf = Callable[[pl.Expr], pl.Expr]

CANDIDATE = "candidate"
"""The column of the answer to `select_best`."""

_MOST_PAIRS = 10_000_000
_MOST_CANDIDATES = 1_000_000
_MOST_CHOICES = 1_000
_SCORES = ("count", "count_units", "sum")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The arguments of `noisy_max`, `noisy_min` and `top_k`: the values of a column are the candidates."""

    kind: Literal["noisy_max", "noisy_min", "top_k"]
    column: ExpressionLike
    score: Score
    candidates: Any
    k: int = 1


@dataclass(frozen=True, kw_only=True)
class BestChoice:
    """The arguments of `select_best`: candidates with a score that the user defines, summed over rows."""

    candidates: Any
    score: ScoreOf
    bounds: Bounds


@dataclass(frozen=True)
class ChoiceQuestion(TableQuestion[ChoicePlan]):
    """A planned choice, and the rows with the columns that the engine reads."""

    engine: ExactAnswers | None = None
    """The engine that computes the scores, if it is not the usual one."""

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The names and types of the released table, known before it exists."""
        return choice_schema(self.plan)

    def release(self, identity: Identity) -> Release:
        """Return the stored release of this choice, or charge its price and choose."""
        return run_choice(self._run(), self.session, identity=identity, fresh=self.fresh)

    def _run(self) -> ChoiceRun:
        drawn = self.plan.fingerprint()
        if self.plan.selection.kind != "select_best":  # whose scores are not columns of the rows
            drawn = self.plan.draw_fingerprint(normal_form(self.rows, public_digest))
        return ChoiceRun(self.plan, self.rows, self.engine or engine_for(self.rows).aggregate, drawn)


# ---------------------------------------------------------------- noisy_max, noisy_min, top_k


def choice_question(
    view: View, choice: Choice, by: By, options: ChoiceOptions, *, unfolded: bool = True
) -> ChoiceQuestion:
    """Return the question that a call of `noisy_max`, `noisy_min` or `top_k` asks, or say what is missing.

    Unless `unfolded`, the answer to `top_k` has one row for each group, with a list.
    """
    check_options(options, choice.kind, ChoiceOptions, ("column", "candidates", "by", "score", "k"))
    check_unit(view.unit, view.rows.schema)
    groups, group_columns = keys_of(by, view)
    (column,), (candidate,) = keys_of([choice.column], view, choice.kind)
    _check_names(groups, column, choice.kind)
    expressions: dict[str, Expression] = {}
    score = aggregate_of(None, _score_aggregate(choice.score), view, expressions)
    if any(value.auto for value in score.values):
        raise _no_estimate()
    candidates, rule = adopted_candidates(choice.candidates, column, candidate.tree, view)
    by_trees = [item.tree for item in group_columns]
    public, _ = adopted_domain(options, groups, by_trees, view)
    selection = Selection(
        kind=choice.kind,
        k=_number_of_choices(choice.k, candidates),
        largest=choice.kind != "noisy_min",
        candidates=candidates,
        candidates_rule=rule,
        groups=public,
    )
    caps = _caps(view, options, by_trees, [*by_trees, candidate.tree])
    query = _score_query(view, selection, (*groups, column), score, options, caps, unfolded=unfolded)
    plan = labelled(choice_plan(query, selection, view.terms), options)
    rows = engine_rows(view, [*group_columns, candidate], expressions, plan.columns)
    return ChoiceQuestion(plan, _public_rows(rows, selection, len(groups)), view.session, fresh_of(options))


_Caps = tuple[AdoptedCap, AdoptedCap]
"""The caps on groups and on rows, each with where it came from."""


def _caps(view: View, options: ChoiceOptions, groups: Sequence[Expression], cells: Sequence[Expression]) -> _Caps:
    """Return the caps of a choice: from the call, an adopted profile or the session.

    `groups` are the keys of `by`, and `cells` are the keys within which the rows of a unit are capped.
    """
    return (
        adopted_cap(options, "max_groups", view, groups),
        adopted_cap(options, "max_rows_per_group", view, cells),
    )


def _score_query(
    view: View,
    selection: Selection,
    keys: tuple[Key, ...],
    score: Aggregate,
    options: ChoiceOptions,
    caps: _Caps,
    *,
    unfolded: bool = True,
) -> Query:
    """Return the query for the scores. If groups and candidates are public, its domain has all pairs of them."""
    max_groups, max_rows = caps
    return Query(
        aggregates=(score,),
        unit=view.unit,
        keys=keys,
        domain=_pairs(selection, keys),
        domain_rule="public keys",
        max_groups=max_groups.most if len(keys) > 1 else None,
        max_groups_rule=max_groups.rule,
        groups_from_steps=max_groups.from_steps,
        max_rows=max_rows.most,
        max_rows_rule=max_rows.rule,
        rows_from_steps=max_rows.from_steps,
        within_units=why_steps_are_safe(view.rows, view.unit),
        min_units=1,
        interval=None,
        nonnegative=False,
        spend=spend_of(options, view.session, instead=view.spend),
        steps=view.steps,
        unchecked=view.unchecked,
        integer_unit=is_integer(view.unit, view.rows.schema),
        unfolded=unfolded,
    )


def _pairs(selection: Selection, keys: tuple[Key, ...]) -> pl.DataFrame | None:
    if selection.candidates is None or (len(keys) > 1 and selection.groups is None):
        return None
    if selection.groups is None:
        return selection.candidates
    if selection.groups.height * selection.candidates.height > _MOST_PAIRS:
        raise InvalidParameterError(
            f"{selection.groups.height:,} groups with {selection.candidates.height:,} candidates each are too many; "
            f"at most {_MOST_PAIRS:,} pairs are scored at once."
        )
    return selection.groups.join(selection.candidates, how="cross", maintain_order="left_right")


def _public_rows(rows: PrivateRows, selection: Selection, groups: int) -> PrivateRows:
    """Leave out rows that match no public candidate or group, if only candidates or only groups are public.

    If both are public, the engine leaves these rows out itself. A discovered candidate is never null.
    """
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


def _score_aggregate(given: Any) -> AggregateCall:
    if isinstance(given, AggregateCall) and given.kind in _SCORES:
        return given
    if isinstance(given, str) and given in ("rows", "units"):
        return count() if given == "rows" else count_units()
    raise InvalidParameterError(
        "score= says what a candidate is chosen by: 'rows', 'units', dp.count('x') or dp.sum('x', bounds=(0, 100))."
    )


def _no_estimate() -> InvalidParameterError:
    return InvalidParameterError("The bounds of a score can't be estimated; give them, for example bounds=(0, 100).")


def _number_of_choices(k: Any, candidates: pl.DataFrame | None) -> int:
    wanted = count_of(k, "k")
    if candidates is not None and wanted > candidates.height:
        raise InvalidParameterError(f"k={wanted} is more than the {candidates.height} candidates.")
    if wanted > _MOST_CHOICES:
        raise InvalidParameterError(
            f"At most {_MOST_CHOICES:,} candidates are chosen at once; for a whole table use `count`."
        )
    return wanted


def _check_names(groups: tuple[Key, ...], column: Key, kind: str) -> None:
    names = [key.name for key in groups]
    if column.name in names:
        raise InvalidParameterError(f"{column.name} is the candidate and a key of by=; give one an alias.")
    if kind == "top_k" and RANK in (*names, column.name):
        raise InvalidParameterError(f"top_k adds a column {RANK}; rename yours.")


# ---------------------------------------------------------------- select_best


def best_question(view: View, choice: BestChoice, by: By, options: ChoiceOptions) -> ChoiceQuestion:
    """Return the question that a call of `select_best` asks, or say what is missing."""
    check_options(options, "select_best", ChoiceOptions, ("candidates", "score", "bounds", "by"))
    schema = view.rows.schema
    check_unit(view.unit, schema)
    candidates = _listed_candidates(choice.candidates)
    groups, group_columns = keys_of(by, view)
    if CANDIDATE in {key.name for key in groups}:
        raise InvalidParameterError(f"The answer has a column {CANDIDATE}; give the key an alias.")
    checked = _score_by_slot(choice, candidates, view)
    call = Sum.call("score", bounds=choice.bounds)
    # The canonical text names the candidate by its slot, so it is the same score for all of them.
    value = Sum.value(replace(checked[0], name="score"), choice.bounds, call, can_estimate=False)
    if value.auto:
        raise _no_estimate()
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
    by_trees = [item.tree for item in group_columns]  # a row counts for every candidate
    caps = _caps(view, options, by_trees, by_trees)
    query = _score_query(view, selection, (*groups, key), score, options, caps)
    plan = labelled(choice_plan(query, selection, view.terms), options)
    wanted = sorted(set().union(*(item.columns for item in checked)) & set(schema))
    made = unit_columns(view, OWN)
    made |= {f"{OWN}key{i}": item.tree for i, item in enumerate(group_columns)}
    made |= {name: Column(name, schema[name]) for name in wanted}
    rows = view.rows.make(made, keep=False)
    scores = CandidateScores(plan=plan, candidates=candidates, scores=[item.tree for item in checked])
    return ChoiceQuestion(plan, rows, view.session, fresh_of(options), scores)


def _score_by_slot(choice: BestChoice, candidates: pl.Series, view: View) -> list[CheckedExpression]:
    """Return the score of the candidate in each slot, checked."""
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


def _listed_candidates(given: Any) -> pl.Series:
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise InvalidParameterError("candidates= is a list of what may be chosen: candidates=[1, 2, 5].")
    try:
        series = given.alias(CANDIDATE) if isinstance(given, pl.Series) else pl.Series(CANDIDATE, list(given))
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise InvalidParameterError("candidates= must all be of one type.") from None
    if isinstance(series.dtype, pl.Categorical):
        series = series.cast(pl.String)
    if not 1 <= len(series) <= _MOST_CANDIDATES:
        raise InvalidParameterError(
            f"candidates= must list between 1 and {_MOST_CANDIDATES:,} values, got {len(series):,}."
        )
    if series.dtype.is_nested() or series.dtype in (pl.Object, pl.Null):
        raise InvalidParameterError(f"candidates= are of the type {series.dtype}; list numbers, texts or dates.")
    if series.null_count() or (series.dtype.is_float() and not series.is_finite().all()):
        raise InvalidParameterError("candidates= must not hold nulls, NaN or infinities.")
    if series.n_unique() != len(series):
        raise InvalidParameterError("candidates= lists a value twice.")
    return series
