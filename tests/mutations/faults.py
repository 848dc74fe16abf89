"""Deliberate faults, and the check that catches each.

A fault changes one function or constant of the package, as a mistake would. Faults of another
front end or engine can be added with their own switches and checks.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars._choices import plan as selection
from dp_polars._engines import unit_steps as engine_steps
from dp_polars._engines.bounding import blocks, cells
from dp_polars._engines.bounding import sums as moments
from dp_polars._engines.polars import codes, engine, group_order, lowering, program, scan, units
from dp_polars._engines.polars import unit_steps as unit_computation
from dp_polars._engines.spark import engine as spark_engine
from dp_polars._engines.spark import unit_steps as spark_unit_steps
from dp_polars._engines.spark.texts import salted
from dp_polars._expressions.unit_functions import SortColumn, unit_value
from dp_polars._frame import aggregate_question, private_frame
from dp_polars._frame import question as questions
from dp_polars._plan import compile as making
from dp_polars._plan import discovery, draw, plan, spend
from dp_polars._plan.grid import Scaling
from dp_polars._plan.statistics import Statistic
from dp_polars._release import answers, noise, quantiles, run
from dp_polars._release import charge as charging
from dp_polars._release.intervals import ConfidenceLimits
from dp_polars._session import filters, ledger, open_charges, prices, session
from dp_polars._sql import analysis, catalog, connection, private_joins, relations, sandbox, unit_steps
from dp_polars._sql.scope import ScopeTable
from dp_polars.mechanisms import sparse_vector
from tests.bits import SeededBits
from tests.mutations import checks

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Fault:
    """A mistake that somebody could make.

    Attributes
    ----------
    switch
        Puts it into the package.
    check
        What catches it.
    says
        A pattern of what the check says is broken.
    """

    switch: Callable[[Patch], None]
    check: Callable[[], None]
    says: str


# ---------------------------------------------------------------------- scales and prices


def scale_off_by_a_tenth(patch: Patch) -> None:
    honest = spend._laplace
    patch.setattr(spend, "_laplace", lambda *given: _narrower(honest(*given)))


def _narrower(found):
    return None if found is None else replace(found, parameter=found.parameter * Fraction(9, 10))


def draw_off_by_a_tenth(patch: Patch) -> None:
    honest = noise.discrete_laplace
    patch.setattr(noise, "discrete_laplace", lambda scale, *given: honest(scale * Fraction(9, 10), *given))


def epsilon_of_the_session(patch: Patch) -> None:
    honest = spend.allowances_of

    def wrong(terms, wanted):
        found = honest(terms, wanted)
        return [replace(own, amount=terms.epsilon) if own.measure == "pure" else own for own in found]

    patch.setattr(spend, "allowances_of", wrong)


def replacing_priced_as_adding(patch: Patch) -> None:
    for module in (making,):
        for name in ("sensitivity_of", "sensitivity_of_bins"):
            if hasattr(module, name):
                honest = getattr(module, name)
                patch.setattr(
                    module, name, lambda bounds, terms, *given, honest=honest, **more: honest(
                        bounds, replace(terms, adjacency="add_remove"), *given, **more)
                )  # fmt: skip


def group_size_forgotten(patch: Patch) -> None:
    for module in (making,):
        for name in ("sensitivity_of", "sensitivity_of_bins"):
            if hasattr(module, name):
                honest = getattr(module, name)
                patch.setattr(
                    module, name, lambda bounds, terms, *given, honest=honest, **more: honest(
                        bounds, replace(terms, group_size=1), *given, **more)
                )  # fmt: skip


def gaussian_from_the_first_norm(patch: Patch) -> None:
    honest = spend._gaussian
    patch.setattr(
        spend, "_gaussian", lambda own, sensitivity: honest(own, replace(sensitivity, l2_squared=sensitivity.l1))
    )


def price_that_is_not_that_of_the_noise(patch: Patch) -> None:
    honest = spend._pure_price
    patch.setattr(spend, "_pure_price", lambda epsilon: honest(epsilon / 2))


def choice_without_its_groups(patch: Patch) -> None:
    for module in (making, selection):
        patch.setattr(
            module,
            "choice_prices",
            lambda bounds, terms, replacement, **more: (Fraction(terms.group_size), Fraction(terms.group_size**2)),
        )


def one_cap_for_each_group(patch: Patch) -> None:
    patch.setattr(moments, "_rows_of_unit", lambda block, rows: rows)


def one_cap_on_kept_values_for_each_group(patch: Patch) -> None:
    patch.setattr(cells, "_units_of_runs", lambda block: np.arange(len(block.unit)))


def one_cap_rounded_to_the_nearest(patch: Patch) -> None:
    honest = moments.scaled_across

    def wrong(total, rows, everywhere, most, shift, inner, bits):
        finer = honest(total, rows, everywhere, most, shift, inner + 1, bits)
        return (finer + np.sign(finer)) >> 1

    patch.setattr(moments, "scaled_across", wrong)


def units_cut_by_one_cap_as_if_in_one_group(patch: Patch) -> None:
    honest = making.noisy_sum

    def wrong(compiler, name, what, weight, grid, cap, low, high):
        across = what == "units over the cap"
        return honest(compiler, name, what, weight, grid, replace(cap, across=across or cap.across), low, high)

    patch.setattr(making, "noisy_sum", wrong)


def choices_of_one_cap_at_half_their_price(patch: Patch) -> None:
    honest = making.choice_prices

    def wrong(bounds, terms, replacement, *, across=False):
        return tuple(price / (2 if across else 1) for price in honest(bounds, terms, replacement, across=across))

    patch.setattr(making, "choice_prices", wrong)


def rows_of_one_cap_hidden_as_if_in_whole_steps(patch: Patch) -> None:
    patch.setattr(Statistic, "most", property(lambda self: self.max_rows * (self.whole if self.columns else 1)))


def half_the_sensitivity_of_a_quantile(patch: Patch) -> None:
    honest = quantiles._Descent._target

    def wrong(self, quantile):
        target, rate = honest(self, quantile)
        return target, 2 * rate

    patch.setattr(quantiles._Descent, "_target", wrong)


def one_end_of_an_interval_is_free(patch: Patch) -> None:
    honest = making._ends

    def wrong(compiler, need, cap, weight):
        found = honest(compiler, need, cap, weight)
        own = compiler.statistics[found["ends"]]
        compiler.statistics[own.name] = replace(own, prices=tuple(price / 2 for price in own.prices))
        return found

    patch.setattr(making, "_ends", wrong)


def ends_of_an_interval_too_near(patch: Patch) -> None:
    honest = quantiles.end_rows
    patch.setattr(quantiles, "end_rows", lambda *given, **words: honest(*given, **words) // 2)


# ---------------------------------------------------------------------- caps and bounds


def row_cap(patch: Patch, most: Callable[[int | None], int | None]) -> None:
    honest = moments._term
    patch.setattr(moments, "_term", lambda one, *given: honest(replace(one, max_rows=most(one.max_rows)), *given))


def row_cap_off_by_one(patch: Patch) -> None:
    row_cap(patch, lambda most: None if most is None else most + 1)


def row_cap_not_enforced(patch: Patch) -> None:
    row_cap(patch, lambda most: None if most is None else 10**6)


def kept_values_off_by_one(patch: Patch) -> None:
    honest = cells._least
    patch.setattr(cells, "_least", lambda run, tags, most: honest(run, tags, most + 1))


def kept_values_not_enforced(patch: Patch) -> None:
    patch.setattr(cells.CellCounts, "_chosen", lambda *_: None)


def group_cap(patch: Patch, kept: Callable[..., object]) -> None:
    for module in (moments, cells):
        patch.setattr(module, "kept_runs", kept)


def group_cap_off_by_one(patch: Patch) -> None:
    honest = blocks.kept_runs
    group_cap(patch, lambda block, cap: honest(block, None if cap is None else replace(cap, most=cap.most + 1)))


def group_cap_not_enforced(patch: Patch) -> None:
    group_cap(patch, lambda block, cap: None)


def null_keys_escape(patch: Patch) -> None:
    honest = blocks.kept_runs

    def wrong(block, cap):
        kept = honest(block, cap)
        return kept if kept is None else kept | (block.group == len(checks.KEYS) - 1)  # where the domain has null

    group_cap(patch, wrong)


def null_units_counted(patch: Patch) -> None:
    honest = engine._RowCoder.__call__
    wrong = lambda self, batch: honest(self, batch.with_columns(missing=pl.lit(False)))  # noqa: E731
    patch.setattr(engine._RowCoder, "__call__", wrong)


def groups_kept_by_position(patch: Patch) -> None:
    order_of_groups(patch, lambda unit_hashes, key_hashes: key_hashes >> np.uint64(64 - blocks.ORDER_BITS))


def groups_kept_by_the_company(patch: Patch) -> None:
    honest = group_order.order_of

    def wrong(unit_hashes, key_hashes):
        places = honest(unit_hashes, key_hashes) * np.uint64(2 * len(unit_hashes) + 1)
        return places & np.uint64((1 << blocks.ORDER_BITS) - 1)

    order_of_groups(patch, wrong)


def order_of_groups(patch: Patch, wrong: Callable[..., object]) -> None:
    for module in (engine, group_order):
        patch.setattr(module, "order_of", wrong)


def values_clipped_too_far(patch: Patch) -> None:
    honest = making.column_of

    def wrong(*given):
        found = honest(*given)
        return replace(found, low=4 * found.low, high=4 * found.high)

    patch.setattr(making, "column_of", wrong)


def totals_not_clipped(patch: Patch) -> None:
    honest = moments._term
    patch.setattr(moments, "_term", lambda one, *given: honest(replace(one, clip=None), *given))


def coarse_grid(patch: Patch) -> None:
    patch.setattr(making, "scaling_of", lambda *_, **__: Scaling(capped=True))


def zeros_of_two_signs(patch: Patch) -> None:
    for module in (engine, codes, lowering):
        patch.setattr(module, "one_form", lambda column, dtype: column)


def short_hash_of_units(patch: Patch) -> None:
    honest = units.HashedUnits.words

    def wrong(self, batch):
        first, _, valid = honest(self, batch)
        return first & np.uint64(0xFFFFFFFF), np.zeros_like(first), valid

    patch.setattr(units.HashedUnits, "words", wrong)


def hash_of_units_for_free(patch: Patch) -> None:
    honest = plan.unit_delta_for
    patch.setattr(plan, "unit_delta_for", lambda *given: honest(*given) / 2**20)


# ---------------------------------------------------------------------- noise


def noise_of_one_group_for_all(patch: Patch) -> None:
    honest = noise.discrete_laplace
    patch.setattr(
        noise,
        "discrete_laplace",
        lambda scale, size, source: np.repeat(honest(scale, (size + 1) // 2, source), 2)[:size],
    )


class _Stuck:
    """Gives the same bits to everybody."""

    def words(self, count, dtype):
        return SeededBits(0).words(count, dtype)


def same_noise_for_two_releases(patch: Patch) -> None:
    patch.setattr(run, "SYSTEM_BITS", _Stuck())


def rows_of_a_mean_are_public(patch: Patch) -> None:
    honest = noise._noisy
    patch.setattr(
        noise,
        "_noisy",
        lambda numbers, own, source: numbers if own.statistic.what == "rows" and own.statistic.weight < 1 else honest(
            numbers, own, source),
    )  # fmt: skip


def noise_from_a_float(patch: Patch) -> None:
    def wrong(scale, size, source):
        uniform = (source.words(size, np.uint64) >> np.uint64(11)).astype(np.float64) / 2.0**53
        signs = np.where(uniform < 0.5, -1, 1)
        return np.rint(-float(scale) * np.log1p(-np.abs(2 * uniform - 1)) * signs).astype(np.int64)

    patch.setattr(noise, "discrete_laplace", wrong)


def interval_from_exact_values(patch: Patch) -> None:
    exact: dict[str, np.ndarray] = {}
    noisy = noise._noisy

    def remembering(numbers, measurement, source):
        exact[measurement.statistic.name] = numbers.copy()
        return noisy(numbers, measurement, source)

    def wrong(frame, compiled, plan, confidence):
        known = [pl.Series(name, numbers) for name, numbers in exact.items() if name in frame.columns]
        return ConfidenceLimits(frame.with_columns(known), compiled, plan, confidence)

    patch.setattr(noise, "_noisy", remembering)
    patch.setattr(answers, "ConfidenceLimits", wrong)


def interval_as_if_every_group_were_shown(patch: Patch) -> None:
    patch.setattr(ConfidenceLimits, "_decider", None)


def threshold_without_noise(patch: Patch) -> None:
    patch.setattr(sparse_vector.SparseVector, "_draw", lambda self, scale: 0)


def threshold_anew_for_each_question(patch: Patch) -> None:
    honest = sparse_vector.SparseVector._ask

    def wrong(self, answer):
        self._threshold = self._base + self._draw(self._scales.threshold)
        return honest(self, answer)

    patch.setattr(sparse_vector.SparseVector, "_ask", wrong)


# ---------------------------------------------------------------------- discovered keys


def delta_of_keys_used_twice(patch: Patch) -> None:
    honest = plan.discovery_by_count

    def wrong(*given):
        *rest, delta = given
        return replace(honest(*rest, 2 * delta), delta=delta)

    patch.setattr(plan, "discovery_by_count", wrong)


def count_that_decides_is_free(patch: Patch) -> None:
    honest = plan.compile_query

    def wrong(*given, way=None, **words):
        found = honest(*given, way=way, **words)
        if way is None or not way.share:
            return found
        whole = [
            one if one.name == found.counted else replace(one, weight=one.weight / (1 - way.share))
            for one in found.statistics
        ]
        return replace(found, statistics=tuple(whole))

    patch.setattr(plan, "compile_query", wrong)


def delta_of_keys_not_charged(patch: Patch) -> None:
    honest = plan.discovery_by_count
    patch.setattr(plan, "discovery_by_count", lambda *given: replace(honest(*given), delta=Fraction(0)))


def delta_of_keys_charged_twice(patch: Patch) -> None:
    honest = charging.release_once

    def wrong(paying, own, **words):
        return honest(paying, replace(own, cost=replace(own.cost, delta=2 * own.cost.delta)), **words)

    patch.setattr(run, "release_once", wrong)


def threshold_of_keys_one_too_low(patch: Patch) -> None:
    honest = discovery._margin
    patch.setattr(discovery, "_margin", lambda *given: honest(*given) - 1)


def groups_of_few_units_hidden_by_their_exact_number(patch: Patch) -> None:
    honest = noise._shown

    def wrong(exact, noisy, own, source):
        return honest(exact, noisy, own, source) & (exact.groups[own.units].to_numpy() >= own.query.min_units)

    patch.setattr(noise, "_shown", wrong)


# ---------------------------------------------------------------------- charges, ledgers, stored releases


def charge_after_the_read(patch: Patch) -> None:
    honest = charging.release_once

    def wrong(*given, make, **words):
        made = make()
        return honest(*given, make=lambda: made, **words)

    patch.setattr(run, "release_once", wrong)


def draws_found_whatever_the_noise(patch: Patch) -> None:
    honest = aggregate_question.draw_fingerprint
    patch.setattr(aggregate_question, "draw_fingerprint", lambda own, rows: honest(replace(own, measurements=()), rows))


def draws_found_whatever_is_capped(patch: Patch) -> None:
    honest = draw._estimates
    patch.setattr(draw, "_estimates", lambda own, written: {**honest(own, written), "across": None})


def draws_found_whatever_the_conditions(patch: Patch) -> None:
    honest = aggregate_question.normal_form
    patch.setattr(aggregate_question, "normal_form", lambda *given: {**honest(*given), "conditions": []})


def source_named_by_its_rows(patch: Patch) -> None:
    def wrong(frame, name, data_version):
        return hashlib.sha256(pl.DataFrame(frame._columns).write_json().encode()).digest()

    patch.setattr(questions, "source_identity", wrong)


def no_smallest_price(patch: Patch) -> None:
    patch.setattr(prices, "is_too_small", lambda terms, cost: False)


def any_account_will_do(patch: Patch) -> None:
    def wrong(terms, spent):
        return filters._satisfies_a(terms, spent) or spent.rho <= terms.rho_allowed or spent.delta <= terms.native_delta

    for module in (session, filters):
        patch.setattr(module, "accepts", wrong)


def delta_is_not_looked_at(patch: Patch) -> None:
    def wrong(terms, spent):
        return filters._satisfies_a(terms, spent) or spent.rho <= terms.rho_allowed

    for module in (session, filters):
        patch.setattr(module, "accepts", wrong)


def dead_processes_are_not_looked_for(patch: Patch) -> None:
    patch.setattr(open_charges.OpenCharges, "dead", lambda self, charges: [])


def a_dead_charge_is_given_back(patch: Patch) -> None:
    honest = ledger.Ledger._spent

    def wrong(self):
        (waiting,) = self._connection.execute("SELECT count(*) FROM charge WHERE state != 'committed'").fetchone()
        return ledger.NOTHING if waiting else honest(self)

    patch.setattr(ledger.Ledger, "_spent", wrong)
    patch.setattr(ledger.Ledger, "_verify", lambda self: None)


def failures_close_nothing(patch: Patch) -> None:
    patch.setattr(ledger.Ledger, "_close_by", lambda *_: None)


# ---------------------------------------------------------------------- rows


def operation(patch: Patch, name: str, lower: Callable[..., pl.Expr]) -> None:
    patch.setitem(lowering._LOWERINGS, name, lower)


def operation_that_ranks(patch: Patch) -> None:
    honest = lowering._LOWERINGS["abs"]

    def wrong(node, given):
        if node.dtype != pl.Float64:
            return honest(node, given)
        return given[0].rank().cast(node.dtype)

    operation(patch, "abs", wrong)


def operation_that_fails(patch: Patch) -> None:
    operation(patch, "floor", lambda node, given: given[0].cast(pl.Int64, strict=True).cast(node.dtype))


def operation_that_looks_at_its_neighbour(patch: Patch) -> None:
    operation(patch, "upper", lambda node, given: given[0].fill_null(strategy="forward").str.to_uppercase())


def failing_rows_take_all_with_them(patch: Patch) -> None:
    def wrong(self, part, height, place):
        return pl.repeat(None, height, dtype=self._expressions[place].dtype, eager=True)

    patch.setattr(program.Program, "_isolated", wrong)


def failing_rows_are_not_isolated(patch: Patch) -> None:
    def wrong(self, part, height, place):
        raise checks.Broken("a row on which Polars fails takes others with it: the whole question fails")

    patch.setattr(program.Program, "_isolated", wrong)


def rows_are_not_counted(patch: Patch) -> None:
    patch.setattr(scan.Scan, "check", lambda self, *given: None)


def passes_are_not_counted(patch: Patch) -> None:
    patch.setattr(scan.Scan, "check_passes", lambda self, passes: None)


NEIGHBOURS = checks.neighbours_differ_by_at_most_the_sensitivity

# ---------------------------------------------------------------------- SQL


def tables_kept_by_their_spelling(patch: Patch) -> None:
    honest = catalog.Catalog._known

    def by_spelling(self, key, path):
        known = honest(self, key, path)
        return replace(known, public=path in self._database.__dict__.setdefault("spelled", set()))

    def public(self, *names):
        self._database.__dict__.setdefault("spelled", set()).update(tuple(name.split(".")) for name in names)
        return self

    patch.setattr(catalog.Catalog, "_known", by_spelling)
    patch.setattr(connection.GuardedConnection, "public", public)


def every_table_is_public_to_the_sandbox(patch: Patch) -> None:
    honest = catalog.Catalog._known
    patch.setattr(catalog.Catalog, "_known", lambda self, key, path: replace(honest(self, key, path), public=True))


def ordinary_sql_on_the_users_connection(patch: Patch) -> None:
    guards = []
    honest = connection.GuardedConnection.__init__

    def noted(self, database, paying, **options):
        honest(self, database, paying, **options)
        guards.append(self)

    patch.setattr(connection.GuardedConnection, "__init__", noted)
    patch.setattr(sandbox, "shared_sandbox", lambda: guards[-1]._database.connection.cursor())


def any_column_may_be_the_unit(patch: Patch) -> None:
    patch.setattr(relations.PrivateRelation, "is_unit", lambda self, meaning: True)


def steps_combine_any_rows(patch: Patch) -> None:
    patch.setattr(private_frame, "with_units", lambda rows, unit: rows)


def ties_are_left_as_they_are_stored(patch: Patch) -> None:
    honest = unit_computation._in_order
    patch.setattr(
        unit_computation,
        "_in_order",
        lambda frame, partition, order, ties: honest(frame.with_row_index("place"), partition, order, ["place"]).drop(
            "place"
        ),
    )


def floats_within_a_unit_are_added_up_as_they_come(patch: Patch) -> None:
    def parts(sums):
        added = pl.col(sums._name).cast(pl.Float64).sum()
        return [*honest(sums), added.alias(f"{sums._prefix}plain")]

    honest = unit_computation.ExactSums.parts
    patch.setattr(unit_computation.ExactSums, "parts", parts)
    patch.setattr(
        unit_computation.ExactSums, "finish", lambda sums, frame, groups, keys, *, mean: groups[f"{sums._prefix}plain"]
    )


def frames_reach_beyond_the_unit(patch: Patch) -> None:
    honest = unit_computation._ends_by_value

    def ends(frame, *given):
        group, place, size = (getattr(unit_computation, name) for name in ("_GROUP", "_PLACE", "_SIZE"))
        everyone = (pl.lit(0).alias(group), pl.int_range(pl.len()).alias(place), pl.len().cast(pl.Int64).alias(size))
        return honest(frame.with_columns(everyone), *given)

    patch.setattr(unit_computation, "_ends_by_value", ends)


def lists_are_not_cut(patch: Patch) -> None:
    honest = private_frame.UnnestRows
    patch.setattr(private_frame, "UnnestRows", lambda column, name, most: honest(column, name, 10**9))


def joined_texts_are_not_cut(patch: Patch) -> None:
    patch.setattr(unit_computation, "MOST_TEXT", 1 << 40)


def functions_of_a_unit_are_not_told_apart(patch: Patch) -> None:
    patch.setattr(engine_steps, "_described", lambda value, names=None: [])


def tables_are_named_in_any_order(patch: Patch) -> None:
    patch.setattr(catalog, "has_unit_steps", lambda rows: False)


def units_are_not_asked_for(patch: Patch) -> None:
    patch.setattr(unit_steps._UnitSelect, "_check_unit", lambda *given: None)
    patch.setattr(relations, "with_units", lambda rows, unit: rows)
    patch.setattr(analysis, "with_units", lambda rows, unit: rows)


def rows_are_joined_without_the_unit(patch: Patch) -> None:
    honest = private_joins.JoinRows
    patch.setattr(private_joins, "JoinRows", lambda on, how, columns: honest(on[1:] or on, how, columns))
    _units_of_steps_are_believed(patch)


def rows_are_compared_without_the_unit(patch: Patch) -> None:
    honest = private_joins.GroupRows

    def without_first(keys, values):
        first = unit_value("first", keys[0], pl.Schema({keys[0]: pl.Int64()}), order=(SortColumn(keys[0]),))
        return honest(keys[1:], (*values, (keys[0], first)))

    patch.setattr(private_joins, "GroupRows", without_first)
    _units_of_steps_are_believed(patch)


def _units_of_steps_are_believed(patch: Patch) -> None:
    patch.setattr(relations, "with_units", lambda rows, unit: rows)
    patch.setattr(analysis, "with_units", lambda rows, unit: rows)


def private_rows_are_turned(patch: Patch) -> None:
    every_table_is_public_to_the_sandbox(patch)

    def pivot(self, node, ctes):
        source = self._from(node["source"], ctes)
        tables = tuple(ScopeTable.public(one.alias, one.columns) for one in source.tables)
        source = relations.PublicRelation(node["source"], tables, source.sources)
        return self._aliased(
            self._public_select(analysis.pivot_select(node, source, self._context), source, ctes), node
        )

    patch.setattr(analysis._Analyser, "_pivot", pivot)


# ---------------------------------------------------------------------- Spark


def spark_request(patch: Patch, change: Callable[..., object]) -> None:
    honest = spark_engine.statement

    def wrong(rows, schema, request, *hashes):
        return honest(rows, schema, change(request), *hashes)

    patch.setattr(spark_engine, "statement", wrong)


def spark_group_cap_not_enforced(patch: Patch) -> None:
    spark_request(patch, lambda request: replace(request, max_groups=None))


def spark_row_cap_not_enforced(patch: Patch) -> None:
    def wrong(request):
        lanes = [replace(one, sums=tuple(replace(own, max_rows=None) for own in one.sums)) for one in request.lanes]
        return replace(request, lanes=tuple(lanes))

    spark_request(patch, wrong)


def spark_null_units_counted(patch: Patch) -> None:
    honest = spark_engine.rows_text

    def wrong(rows):
        found = honest(rows)
        own = found.columns["unit0"]
        found.text = f"SELECT *, CASE WHEN {own} IS NULL THEN -1L ELSE {own} END AS somebody FROM ({found.text})"
        found.columns["unit0"] = "somebody"
        return found

    patch.setattr(spark_engine, "rows_text", wrong)


def spark_salt_reused(patch: Patch) -> None:
    patch.setattr(spark_engine, "fresh_hash", lambda: salted([1, 2]))


def spark_windows_over_all_units(patch: Patch) -> None:
    patch.setattr(spark_unit_steps._StepInput, "partition", lambda rows, names: ", ".join(rows.names(names)[1:]))


def spark_pairs_not_limited(patch: Patch) -> None:
    patch.setattr(spark_unit_steps, "MOST_PAIRS", 10**12)


def shares_not_enforced(patch):
    patch.setattr(
        session.Session, "_accepts", lambda self, total, of_analyst, share: filters.accepts(self._terms, total)
    )


def nothing_in_the_audit_log(patch):
    patch.setattr(ledger.Ledger, "_note", lambda *_: None)


def errors_not_in_the_audit_log(patch):
    noted = session.Session._note

    def only_refusals(self, asked, outcome, *, charge=None, reason=None):
        if reason != "internal-error":
            noted(self, asked, outcome, charge=charge, reason=reason)

    patch.setattr(session.Session, "_note", only_refusals)


FAULTS = {
    # scales and prices
    "the noise scale is off by a tenth": Fault(
        scale_off_by_a_tenth, checks.noise_is_what_the_spend_buys, "noise of the count is not 12 wide"
    ),
    "noise is drawn with a scale that is off by a tenth": Fault(
        draw_off_by_a_tenth, checks.every_released_number_has_the_declared_noise, "another law than the plan says"
    ),
    "the scale comes from the epsilon of the session": Fault(
        epsilon_of_the_session, checks.noise_is_what_the_spend_buys, "noise of the count is not 12 wide"
    ),
    "replacing is priced as adding: the scale": Fault(
        replacing_priced_as_adding, checks.noise_is_what_the_spend_buys, "noise of the count, replaced is not 24"
    ),
    "replacing is priced as adding": Fault(replacing_priced_as_adding, NEIGHBOURS, "one unit moves .*replace"),
    "group_size is forgotten": Fault(group_size_forgotten, NEIGHBOURS, "one unit moves .*group_size"),
    "Gaussian noise is made from the first norm": Fault(
        gaussian_from_the_first_norm, checks.noise_is_what_the_spend_buys, "noise of the count with Gaussian noise"
    ),
    "the price is half of what buys the noise": Fault(
        price_that_is_not_that_of_the_noise, checks.prices_are_what_was_asked_for, "does not cost the epsilon"
    ),
    "a grouped choice forgets how many groups a unit has": Fault(
        choice_without_its_groups, checks.every_group_that_a_choice_touches_is_paid_for, "in 2 groups of each unit"
    ),
    "a quantile is scored with half its sensitivity": Fault(
        half_the_sensitivity_of_a_quantile, checks.choices_of_values_stay_within_their_epsilon, "loses .* by one unit"
    ),
    "one cap is enforced in each group alone": Fault(
        one_cap_for_each_group, NEIGHBOURS, "one unit moves the count with"
    ),
    "one cap on kept values is enforced in each group alone": Fault(
        one_cap_on_kept_values_for_each_group, NEIGHBOURS, "one unit moves the distinct values with one cap"
    ),
    "one cap rounds what a unit adds to the nearest step": Fault(
        one_cap_rounded_to_the_nearest, NEIGHBOURS, "one unit moves the (count|sum) with one cap"
    ),
    "units cut by one cap are priced as if each had one group": Fault(
        units_cut_by_one_cap_as_if_in_one_group, NEIGHBOURS, "one unit moves the units cut by one cap"
    ),
    "choices of one cap are priced at half": Fault(
        choices_of_one_cap_at_half_their_price, checks.choices_of_one_cap_cost_at_most_their_price, "in all lose"
    ),
    "a group of one unit is hidden as if its rows had no fractions": Fault(
        rows_of_one_cap_hidden_as_if_in_whole_steps, checks.groups_of_one_unit_stay_hidden_but_for_delta, "is shown"
    ),
    "one end of an interval is free": Fault(
        one_end_of_an_interval_is_free, checks.an_interval_of_a_median_is_paid_for_and_covers_it, "costs .* in all"
    ),
    "the ends of an interval are too near": Fault(
        ends_of_an_interval_too_near, checks.an_interval_of_a_median_is_paid_for_and_covers_it, "ends miss the median"
    ),
    # caps and bounds
    "the row cap is off by one": Fault(row_cap_off_by_one, NEIGHBOURS, "one unit moves the count"),
    "the row cap is not enforced": Fault(row_cap_not_enforced, NEIGHBOURS, "one unit moves the count"),
    "one value too many is kept": Fault(kept_values_off_by_one, NEIGHBOURS, "one unit moves the distinct values"),
    "all values are kept": Fault(kept_values_not_enforced, NEIGHBOURS, "one unit moves the distinct values"),
    "the group cap is off by one": Fault(group_cap_off_by_one, NEIGHBOURS, "one unit moves the count"),
    "the group cap is not enforced": Fault(group_cap_not_enforced, NEIGHBOURS, "one unit moves the count"),
    "null keys escape the group cap": Fault(null_keys_escape, NEIGHBOURS, "one unit moves the count"),
    "rows without a unit are counted": Fault(
        null_units_counted, checks.rows_without_a_unit_count_nowhere, "rows without a unit are counted"
    ),
    "groups are kept by their key alone, not by unit and key": Fault(
        groups_kept_by_position, checks.units_keep_groups_at_random_and_by_themselves, "two units keep the same groups"
    ),
    "groups are kept by who else is there": Fault(groups_kept_by_the_company, NEIGHBOURS, "one unit moves the count"),
    "values are clipped to four times their bounds": Fault(
        values_clipped_too_far, NEIGHBOURS, "one unit moves the sum"
    ),
    "totals of units are not clipped": Fault(totals_not_clipped, NEIGHBOURS, "one unit moves the clipped totals"),
    "scaled sums are rounded on the grid of a row": Fault(
        coarse_grid, checks.sums_beyond_a_cap_lose_nothing, "sum of scaled rows is .* instead of 500"
    ),
    "zeros keep their sign": Fault(zeros_of_two_signs, checks.equal_floats_are_one_value, "zeros of two signs"),
    "the hash of units is cut to 32 bits": Fault(
        short_hash_of_units, checks.units_are_told_apart, "units are taken for others"
    ),
    "the hash of units is not paid for": Fault(
        hash_of_units_for_free, checks.units_are_told_apart, "hash of units is not paid for"
    ),
    # noise
    "two groups share their noise": Fault(
        noise_of_one_group_for_all, checks.noise_of_groups_is_independent, "pairs of groups have the same noise"
    ),
    "two releases share their noise": Fault(
        same_noise_for_two_releases, checks.two_releases_have_noise_of_their_own, "two releases have the same noise"
    ),
    "the number of rows of a mean is taken as public": Fault(
        rows_of_a_mean_are_public, checks.every_released_number_has_the_declared_noise, "released without noise"
    ),
    "noise comes from a float": Fault(noise_from_a_float, checks.noise_is_exact_in_its_last_bit, "from floats"),
    "an interval is made from exact values": Fault(
        interval_from_exact_values, checks.an_interval_comes_from_the_noisy_value, "not that of the noisy value"
    ),
    "an interval forgets that only lucky groups are shown": Fault(
        interval_as_if_every_group_were_shown, checks.a_shown_group_lies_in_its_interval, "shown groups miss"
    ),
    "the threshold of a stream has no noise": Fault(
        threshold_without_noise, checks.a_stream_is_compared_with_one_noisy_threshold, "one noisy threshold"
    ),
    "the threshold of a stream is drawn anew for each question": Fault(
        threshold_anew_for_each_question, checks.a_stream_is_compared_with_one_noisy_threshold, "one noisy threshold"
    ),
    # discovered keys
    "the delta of keys is used twice": Fault(
        delta_of_keys_used_twice, checks.groups_of_one_unit_stay_hidden_but_for_delta, "group of one unit is shown"
    ),
    "the delta of keys is not charged": Fault(
        delta_of_keys_not_charged, checks.groups_of_one_unit_stay_hidden_but_for_delta, "group of one unit is shown"
    ),
    "the count that decides on keys is free": Fault(
        count_that_decides_is_free, checks.a_count_that_decides_on_keys_is_paid, "noise for rho"
    ),
    "the delta of keys is charged twice": Fault(
        delta_of_keys_charged_twice, checks.the_session_pays_for_keys_once, "not charged once"
    ),
    "the threshold of keys is one too low": Fault(
        threshold_of_keys_one_too_low, checks.groups_of_one_unit_stay_hidden_but_for_delta, "group of one unit is shown"
    ),
    "min_units is compared with exact counts": Fault(
        groups_of_few_units_hidden_by_their_exact_number,
        checks.whether_a_group_is_shown_depends_on_its_noisy_count_alone,
        "hidden by their exact number",
    ),
    # charges, ledgers, stored releases
    "rows are read before the charge": Fault(
        charge_after_the_read, checks.rows_are_read_after_the_charge, "read before their price is charged"
    ),
    "a source is named by its rows": Fault(
        source_named_by_its_rows, checks.equal_rows_are_not_the_same_source, "gets the stored release"
    ),
    "noisy numbers are found whatever their noise": Fault(
        draws_found_whatever_the_noise, checks.other_noise_and_other_rows_are_paid_for, "another spend gets"
    ),
    "noisy numbers with estimated caps are found whatever the cap on rows counts": Fault(
        draws_found_whatever_is_capped, checks.other_noise_and_other_rows_are_paid_for, "another kind of cap gets"
    ),
    "noisy numbers are found whatever the conditions": Fault(
        draws_found_whatever_the_conditions, checks.other_noise_and_other_rows_are_paid_for, "another condition gets"
    ),
    "there is no smallest price": Fault(
        no_smallest_price, checks.every_question_has_a_smallest_price, "below the smallest price is charged"
    ),
    "any account that is left will do": Fault(any_account_will_do, checks.no_account_is_overdrawn, "is accepted"),
    "the filter does not look at delta": Fault(
        delta_is_not_looked_at, checks.no_account_is_overdrawn, "delta exceeded is accepted"
    ),
    "dead processes are not looked for": Fault(
        dead_processes_are_not_looked_for,
        checks.a_question_that_died_stays_charged_and_closes_the_session,
        "died in the middle",
    ),
    "the charge of a dead process is given back": Fault(
        a_dead_charge_is_given_back,
        checks.a_question_that_died_stays_charged_and_closes_the_session,
        "charge of a dead process is forgotten",
    ),
    "failures close nothing": Fault(
        failures_close_nothing, checks.a_failure_on_private_rows_closes_the_session, "closes nothing"
    ),
    # rows
    "an operation looks at other rows: rank": Fault(
        operation_that_ranks, checks.the_evidence_for_operations_holds, "abs gives a row another value"
    ),
    "an operation looks at the row before": Fault(
        operation_that_looks_at_its_neighbour, checks.the_evidence_for_operations_holds, "upper gives a row another"
    ),
    "an operation fails on some values": Fault(
        operation_that_fails, checks.the_evidence_for_operations_holds, "floor fails on some value"
    ),
    "a failing row makes others null": Fault(
        failing_rows_take_all_with_them, checks.a_row_that_fails_is_null_and_no_other, "takes others with it"
    ),
    "a failing row is not isolated": Fault(
        failing_rows_are_not_isolated, checks.a_row_that_fails_is_null_and_no_other, "takes others with it"
    ),
    "rows that get lost are not noticed": Fault(
        rows_are_not_counted, checks.rows_that_get_lost_are_noticed, "a pass over units that misses a row"
    ),
    "rows that are units get lost unnoticed": Fault(
        passes_are_not_counted, checks.rows_that_get_lost_are_noticed, "a pass over rows that misses a row"
    ),
    "steps within a unit combine any rows": Fault(
        steps_combine_any_rows, checks.a_step_never_combines_different_units, "rows of different units"
    ),
    "ties are left as they are stored": Fault(
        ties_are_left_as_they_are_stored, checks.a_step_within_a_unit_depends_on_its_rows_alone, "row_number depends on"
    ),
    "floats within a unit are added up as they come": Fault(
        floats_within_a_unit_are_added_up_as_they_come,
        checks.a_step_within_a_unit_depends_on_its_rows_alone,
        "sum depends on",
    ),
    # analysts
    "shares are not enforced": Fault(
        shares_not_enforced, checks.shares_of_analysts_are_enforced, "charges more than the share"
    ),
    "charges are not written to the audit log": Fault(
        nothing_in_the_audit_log, checks.every_charge_of_an_analyst_is_in_the_audit_log, "has no entry"
    ),
    "only refusals are written to the audit log": Fault(
        errors_not_in_the_audit_log, checks.errors_of_the_library_are_in_the_audit_log, "an error leaves no entry"
    ),
    # SQL
    "tables are known by the spelling of their names": Fault(
        tables_kept_by_their_spelling, checks.a_table_is_the_same_under_every_name, "another spelling"
    ),
    "private tables reach the sandbox": Fault(
        every_table_is_public_to_the_sandbox, checks.private_tables_never_reach_ordinary_sql, "reads a private table"
    ),
    "ordinary SQL runs on the user's connection": Fault(
        ordinary_sql_on_the_users_connection, checks.macros_of_the_database_are_not_called, "macro of the database"
    ),
    "frames by value reach beyond a unit": Fault(
        frames_reach_beyond_the_unit, checks.a_frame_ends_with_its_unit, "another unit's rows are in a frame"
    ),
    "lists become rows without limit": Fault(
        lists_are_not_cut, checks.a_list_becomes_a_few_rows, "more rows than its public limit"
    ),
    "texts of a unit are joined without limit": Fault(
        joined_texts_are_not_cut, checks.joined_texts_have_a_limit, "a text of 40000 characters"
    ),
    "functions of a unit are taken for each other": Fault(
        functions_of_a_unit_are_not_told_apart,
        checks.another_function_is_another_question,
        "answer of another function",
    ),
    "tables of a join are named in any order": Fault(
        tables_are_named_in_any_order, checks.a_join_turned_round_is_another_question, "turned round gets the answer"
    ),
    "rows of several units are grouped": Fault(
        units_are_not_asked_for, checks.only_rows_of_one_unit_are_combined, "rows of several units are combined"
    ),
    "a full join forgets the unit": Fault(
        rows_are_joined_without_the_unit, checks.full_joins_meet_within_their_unit, "others in FULL JOIN"
    ),
    "an intersection forgets the unit": Fault(
        rows_are_compared_without_the_unit, checks.intersections_meet_within_their_unit, "others in INTERSECT"
    ),
    "a difference forgets the unit": Fault(
        rows_are_compared_without_the_unit, checks.differences_meet_within_their_unit, "others in EXCEPT"
    ),
    "private rows are turned": Fault(private_rows_are_turned, checks.only_answers_are_turned, "PIVOT shows sums"),
    "a query may replace the unit": Fault(
        any_column_may_be_the_unit, checks.a_query_can_not_make_another_unit, "in the place of the unit"
    ),
    "Spark lets units keep all groups": Fault(
        spark_group_cap_not_enforced, checks.spark_enforces_caps, "keep 16 groups each instead of 3"
    ),
    "Spark counts all rows of a unit": Fault(
        spark_row_cap_not_enforced, checks.spark_enforces_caps, "have 2 rows in each group instead of 1"
    ),
    "Spark counts rows without a unit": Fault(
        spark_null_units_counted, checks.spark_counts_no_rows_without_a_unit, "without a unit are counted on Spark"
    ),
    "Spark combines rows of several units": Fault(
        spark_windows_over_all_units, checks.spark_combines_rows_of_one_unit, "on Spark changes rows of others"
    ),
    "Spark joins all rows of a unit": Fault(
        spark_pairs_not_limited, checks.spark_limits_the_pairs_of_a_join, "makes 2,250,000 pairs instead of 1,000,000"
    ),
    "Spark chooses groups with the same salt": Fault(
        spark_salt_reused, checks.spark_draws_its_salts_anew, "with the same salt"
    ),
}
