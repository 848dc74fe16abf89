"""From exact scores to chosen candidates. No other module of this folder sees exact numbers.

The scores of `noisy_max`, `noisy_min` and `top_k` are counts and sums by group and candidate, which the usual engine
computes. `CandidateScores` computes those of `select_best` without ever pairing all rows with all candidates: it
chooses the rows that count once, counts equal rows together (they have equal scores), then puts a few candidates at a
time into slots, as constants, and sums their scores over blocks of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from dp_polars._choices.plan import CandidateLimit, ChoicePlan
from dp_polars._engines.polars.kept_rows import kept_rows
from dp_polars._engines.polars.program import Program
from dp_polars._engines.polars.value_codes import one_form, value_codes
from dp_polars._engines.registry import engine_for
from dp_polars._engines.request import LIMIT, BoundedRequest, Exact, ValueColumn
from dp_polars._engines.rows import PrivateRows
from dp_polars._expressions import Expression
from dp_polars._plan.grid import Grid
from dp_polars._release.charge import Drawing, Identity, release_once
from dp_polars._release.run import ExactAnswers, bounded_request, first_level_outside
from dp_polars._sampling import SYSTEM_BITS, BitSource
from dp_polars._session.releases import Draw, Release
from dp_polars._session.session import Session
from dp_polars.errors import DPWarning
from dp_polars.mechanisms.selection import peel

RANK = "rank"
"""The column with the rank of a choice in its group: 1 for the first."""

OWN = "\0"
"""The prefix of columns that belong to the library and not to the user."""

SLOTS = 32
"""How many candidates of `select_best` are scored at a time."""

_BLOCK = 1 << 17
_SHORT = (pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_GROUP, _WEIGHT = f"{OWN}group", f"{OWN}weight"

Numbers = NDArray[np.int64]


def run_choice(make: ChoiceRun, session: Session, *, identity: Identity, fresh: bool) -> Release:
    """Return the stored release of a choice on a source, or charge the plan's price and choose."""
    release = release_once(session, make.plan, identity=identity, fresh=fresh, make=make)
    warn_if_nothing_is_chosen(release, make.plan)
    return release


def warn_if_nothing_is_chosen(release: Release, plan: ChoicePlan) -> None:
    """Warn if candidates or groups were discovered and none is shown.

    What one unit can change: nothing beyond the release. Whether a released frame has choices is known to whoever gets
    it, and the text follows from the plan.
    """
    listed = plan.selection.kind == "top_k" and not plan.query.unfolded
    chosen = release.frame.select(cs.list().list.len().sum()).item() if listed else release.frame.height
    if plan.limit is None or chosen:
        return
    warnings.warn(plan.nothing_chosen_text(release.label), DPWarning, stacklevel=first_level_outside())


@dataclass(frozen=True, repr=False)
class ChoiceRun(Drawing):
    """What happens between the charge for a choice and its release: read the exact scores, then choose."""

    plan: ChoicePlan
    rows: PrivateRows
    engine: ExactAnswers
    drawn: bytes

    def draw(self) -> Draw:
        """Return the keys of the chosen candidates."""
        exact, plan = self.read()
        return Draw(choose_candidates(exact, plan, SYSTEM_BITS))

    def show(self, draw: Draw) -> tuple[pl.DataFrame, ChoicePlan]:
        """Return what may be released, and the plan."""
        return present_choices(draw.numbers, self.plan), self.plan

    def read(self) -> tuple[Exact, ChoicePlan]:
        """Return the exact scores, which are private, and the plan."""
        return self.engine(self.rows, score_request(self.plan)), self.plan


def score_request(plan: ChoicePlan) -> BoundedRequest:
    """Return what the engine has to compute: a score for each group and candidate.

    A unit keeps its rows for all candidates of the groups that it keeps.
    """
    groups = len(plan.query.keys) - 1
    return bounded_request(plan.query, plan.bounds, plan.lanes, plan.unit_delta, capped_keys=groups)


# ---------------------------------------------------------------- the choice


def choose_candidates(exact: Exact, plan: ChoicePlan, source: BitSource) -> pl.DataFrame:
    """Return the keys of chosen candidates and their rank in their group. The scores are dropped here."""
    starts = _starts(exact.groups, len(plan.query.keys) - 1)
    rows, ranks = choose_rows(exact.groups[plan.score.name].to_numpy(), starts, plan, source)
    keys = exact.groups.select([f"key{i}" for i in range(len(plan.query.keys))])
    return keys[rows].with_columns(pl.Series(RANK, ranks, dtype=pl.Int64))


def choose_rows(scores: Numbers, starts: Numbers, plan: ChoicePlan, source: BitSource) -> tuple[Numbers, Numbers]:
    """Return the rows of chosen candidates and their rank in their group. A group begins at each of `starts`.

    Groups with the same number of candidates are chosen from together.
    """
    scores = scores if plan.selection.largest else -scores
    sizes = np.append(starts[1:], len(scores)) - starts
    groups: list[Numbers] = []
    rows: list[Numbers] = []
    ranks: list[Numbers] = []
    for size in np.unique(sizes[sizes > 0]).tolist():
        alike = np.flatnonzero(sizes == size)
        table = scores[starts[alike][:, None] + np.arange(size)]
        if plan.limit is None:
            chosen = peel(table, plan.selection.k, plan.rate, source, flips=plan.flips)
        else:
            chosen = _choose_before_nobody(table, plan, plan.limit, source)
        place, rank = np.nonzero(chosen >= 0)
        groups.append(alike[place])
        rows.append(starts[alike][place] + chosen[place, rank])
        ranks.append(rank + 1)
    if not groups:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(np.concatenate(groups), kind="stable")
    return np.concatenate(rows)[order], np.concatenate(ranks)[order]


def _choose_before_nobody(scores: Numbers, plan: ChoicePlan, limit: CandidateLimit, source: BitSource) -> Numbers:
    """Return, row by row, the candidates that are chosen before nobody is, and -1 after that.

    Ties are broken by the order of the candidates.
    """
    k = plan.selection.k
    order = np.argsort(-scores, axis=1, kind="stable")[:, : limit.most + 1]
    ranked = np.take_along_axis(scores, order, axis=1)
    positive = (ranked > 0).sum(axis=1)
    width = min(k, order.shape[1])  # where nobody competes with all of these, the last choice comes after nobody
    found = np.full((len(scores), width), -1, np.int64)
    for number in np.unique(positive).tolist():
        alike = np.flatnonzero(positive == number)
        nobody = min(number, limit.most)
        following = ranked[alike, limit.most] if number > limit.most else np.zeros(len(alike), np.int64)
        competing = np.column_stack([ranked[alike, :nobody], following + limit.gap])
        chosen = peel(competing, k, plan.rate, source, flips=plan.flips)[:, :width]
        before = np.cumsum(chosen == nobody, axis=1) == 0
        places = np.take_along_axis(order[alike], np.minimum(chosen, order.shape[1] - 1), axis=1)
        found[alike, : chosen.shape[1]] = np.where(before, places, -1)
    return found


def _starts(table: pl.DataFrame, keys: int) -> Numbers:
    """Return where each group of the first keys begins. The rows of a group stand together."""
    if not keys:
        return np.zeros(1, np.int64)
    same = pl.all_horizontal(pl.col(f"key{i}").eq_missing(pl.col(f"key{i}").shift()) for i in range(keys))
    new = table.select(new=~same).to_series().to_numpy().copy()
    new[:1] = True
    return np.flatnonzero(new)


# ---------------------------------------------------------------- the released table


def choice_schema(plan: ChoicePlan) -> dict[str, pl.DataType]:
    """Return the names and types of the released table, known before it exists."""
    *by, column = plan.query.keys
    schema: dict[str, pl.DataType] = {key.name: key.dtype for key in by}
    several = plan.selection.kind == "top_k"
    if several and plan.query.unfolded:
        schema[RANK] = pl.Int64()
    schema[column.name] = pl.List(column.dtype) if several and not plan.query.unfolded else column.dtype
    return schema


def present_choices(chosen: pl.DataFrame, plan: ChoicePlan) -> pl.DataFrame:
    """Return the released table: a row for each choice, or a row for each group with the list of its choices."""
    query, several, schema = plan.query, plan.selection.kind == "top_k", choice_schema(plan)
    chosen = chosen if several and query.unfolded else chosen.drop(RANK)
    named = chosen.rename({f"key{i}": key.name for i, key in enumerate(query.keys)})
    if several and not query.unfolded:
        *by, column = (key.name for key in query.keys)
        listed = pl.col(column).implode()
        named = named.group_by(by, maintain_order=True).agg(column) if by else named.select(listed)
    return named.select(list(schema)).cast(dict(schema))  # type: ignore[arg-type]


# ---------------------------------------------------------------- the scores of select_best


def slot_name(slot: int) -> str:
    """Return the name of the column in which a score finds its candidate."""
    return f"{OWN}candidate{slot}_"


@dataclass(frozen=True)
class CandidateScores:
    """The engine of one `select_best`: computes the exact scores of all candidates in all groups."""

    plan: ChoicePlan
    candidates: pl.Series
    scores: Sequence[Expression]

    @property
    def dtype(self) -> pl.DataType:
        """The type of the scores."""
        return self.scores[0].dtype

    def __call__(self, rows: PrivateRows, request: BoundedRequest) -> Exact:
        """Return the score of each group and candidate, in the order of the public keys."""
        if request.domain is None:
            raise ValueError("the candidates of select_best are public")
        groups = self.plan.selection.groups
        read = engine_for(rows).read(rows)
        frame = self._kept(read, request, groups)
        table = self._summed(frame, 1 if groups is None else groups.height)
        scores = np.clip(table, -LIMIT, LIMIT).astype(np.int64).ravel()
        return Exact(request.domain.with_columns(pl.Series(self.plan.score.name, scores)))

    def _kept(self, frame: pl.DataFrame, request: BoundedRequest, groups: pl.DataFrame | None) -> pl.DataFrame:
        """Return the different rows that count, with the number of their group and how often each occurs."""
        keys = [f"{OWN}key{i}" for i in range(request.leading)]
        units = [f"{OWN}unit{i}" for i in range(request.units)]
        if groups is not None:
            named = groups.rename(dict(zip(groups.columns, keys, strict=True))).with_row_index(_GROUP)
            frame = frame.join(named, on=keys, how="inner", nulls_equal=True)
        else:
            frame = frame.with_columns(pl.lit(0, dtype=pl.UInt32).alias(_GROUP))
        kept = kept_rows(
            frame,
            units,
            SYSTEM_BITS,
            max_rows=self.plan.cap.enforced,
            keys=[_GROUP],
            max_groups=request.max_groups,
        )
        frame = frame.filter(kept).drop(*units, *keys)
        # Equal rows are counted together, but 1/x tells the two zeros of floats apart.
        floats = cs.expand_selector(frame, cs.float())
        frame = frame.with_columns(one_form(pl.col(name), frame.schema[name]).alias(name) for name in floats)
        plain = not any(dtype.is_nested() or dtype == pl.Object for dtype in frame.schema.values())
        if plain and len(self.candidates) > SLOTS:
            return frame.group_by(frame.columns).agg(pl.len().cast(pl.Int64).alias(_WEIGHT))
        return frame.with_columns(pl.lit(1, dtype=pl.Int64).alias(_WEIGHT))

    def _summed(self, frame: pl.DataFrame, groups: int) -> NDArray[Any]:
        """Return the scores as Python integers, with a row for each group and a column for each candidate."""
        steps = self._steps(int(frame[_WEIGHT].sum()))
        table = np.zeros((groups, len(self.candidates)), dtype=object)
        for start in range(0, len(self.candidates), SLOTS):
            some = self.candidates[start : start + SLOTS]
            program = Program(self.scores[: len(some)])
            sums = [(steps(slot) * pl.col(_WEIGHT)).sum().alias(f"sum{slot}") for slot in range(len(some))]
            if (frame[_WEIGHT] == 1).all():
                sums = [steps(slot).sum().alias(f"sum{slot}") for slot in range(len(some))]
            for block in frame.iter_slices(_BLOCK):
                slots = [some.slice(slot, 1).new_from_index(0, block.height) for slot in range(len(some))]
                with_slots = block.with_columns(column.alias(slot_name(slot)) for slot, column in enumerate(slots))
                scores = [
                    column.cast(pl.Int8) if self.dtype == pl.Boolean else column
                    for column in program.columns(with_slots)
                ]
                values = [column.alias(f"value{slot}") for slot, column in enumerate(scores)]
                found = pl.DataFrame([block[_GROUP], block[_WEIGHT], *values]).lazy()
                added = found.group_by(_GROUP).agg(sums) if groups > 1 else found.select(pl.lit(0).alias(_GROUP), *sums)
                total = added.collect(engine="in-memory")
                places = total[_GROUP].to_numpy()
                for slot in range(len(some)):
                    table[places, start + slot] += np.array([int(x) for x in total[f"sum{slot}"]], dtype=object)
        return table

    def _steps(self, rows: int) -> Callable[[int], pl.Expr]:
        """Return a function that turns the scores of a slot into whole steps, 0 where there is none.

        Floats become whole numbers. As long as no sum can reach 2**53, sums of floats are exact in any order; otherwise
        they are added up as 128-bit integers. The sum is the same in both cases.
        """
        grid, dtype = self.plan.score.grid, self.dtype
        most = grid.largest * max(rows, 1)
        if dtype.is_float():
            return lambda slot: _float_steps(pl.col(f"value{slot}"), grid, exact=most < 1 << 53)
        if dtype in _SHORT and not grid.exponent and most < LIMIT:
            return lambda slot: pl.col(f"value{slot}").cast(pl.Int64).clip(grid.low, grid.high)
        return lambda slot: _integer_steps(slot, pl.Int8() if dtype == pl.Boolean else dtype, grid)


def _float_steps(score: pl.Expr, grid: Grid, *, exact: bool) -> pl.Expr:
    whole = (score.cast(pl.Float64) * 2.0**-grid.exponent + 0.5).floor().clip(float(grid.low), float(grid.high))
    whole = whole.fill_nan(0.0)
    return whole if exact else whole.cast(pl.Int64).cast(pl.Int128)


def _integer_steps(slot: int, dtype: pl.DataType, grid: Grid) -> pl.Expr:
    column = ValueColumn(place=slot, low=grid.low, high=grid.high, exponent=grid.exponent)
    number = value_codes(column, dtype, 0)
    return pl.when(number >= grid.low).then(number).otherwise(0).cast(pl.Int128)
