"""The table that a plan prints, from who is protected to the expected error."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from dp_polars._aggregates.base import Aggregate, RowRule
from dp_polars._aggregates.values import Value
from dp_polars._display.text import amount, listed, one_line
from dp_polars._plan.auto import depends_on
from dp_polars._plan.base import UNCHECKED, USUALLY, hashed_text, protected_text, question_rows, steps_text
from dp_polars._plan.ranks import distance_within, rank_error
from dp_polars._plan.statistics import CompiledAggregate
from dp_polars._plan.units_needed import is_released, keys_text, needed_rows

if TYPE_CHECKING:
    from dp_polars._plan.auto import Estimate
    from dp_polars._plan.plan import Measurement, Plan

_HIDDEN = ("cut_by_",)
"""The prefixes of answers that the one-sentence form of a plan leaves out."""
_Shown = TypeVar("_Shown")
_WORDS = {"rows": "count", "distinct values": "distinct values", "rows by bin": "bins"}


_CAPS = {
    "max_groups": "max_groups",
    "max_rows_per_group": "max_rows_per_group",
    "max_rows": "cap on rows in all groups",
}
_ROWS = {False: "rows per unit and group", True: "rows per unit in all groups"}


def plan_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return the rows of a plan's table."""
    query, terms, bounds = plan.query, plan.terms, plan.bounds
    rows = [
        ("query", query.title() + steps_text(query.steps)),
        *question_rows(plan),
        ("protects", protected_text(terms, query.unit)),
        *([("within each unit", query.within_units)] if query.within_units else []),
    ]
    asked = [compiled for compiled in plan.compiled if not compiled.aggregate.hidden]
    unknown = {estimate.what: unknown_text(estimate) for estimate in plan.estimates if estimate.value is None}
    across = query.across or "max_rows" in unknown
    groups = unknown.get("max_groups", f"{bounds.max_groups} ({bounds.max_groups_rule})")
    if not across or bounds.enforce_groups or "max_groups" in unknown:
        rows.append(("groups per unit", groups))
    later = unknown.get("max_rows", unknown.get("max_rows_per_group"))
    if later is not None:
        rows.append((_ROWS[across], later))
    else:
        caps = dict.fromkeys(compiled.cap for compiled in asked)
        rows += _different((_ROWS[cap.across], f"{cap.max_rows} ({cap.rule})") for cap in caps)
    limits = _different([text for compiled in asked for text in bounds_texts(compiled, plan)])
    rows += [("value bounds", text) for text in limits]
    rows += plan.unreliable_rows()
    several = len(plan.measurements) > 1 and len(plan.compiled) > 1
    for measurement in plan.measurements:
        note = "" if query.rollup or is_released(plan, measurement.name) else ", not released"
        with_share = several or bool(note) or (measurement.noise is None and len(plan.measurements) > 1)
        rows += [(name + note, text) for name, text in _measurement_rows(measurement, with_share)]
    if query.keys and query.domain is None:
        rows += [("keys", keys_text(plan)), *needed_rows(plan)]
    elif query.keys:
        rows.append(("keys", f"{bounds.domain_size} public ({query.domain_rule})"))
    if plan.unit_delta:
        rows.append(("units", hashed_text(plan.unit_delta)))
    rows += [("price", plan.price()), *plan.counted_rows()]
    rows += vague_errors(plan)
    in_group = {name for name, _ in plan.errors_if_rows}
    errors = plan.expected_errors()
    for name, error in errors.items():
        whose = f" of {name}" if several or len(errors) > 1 else ""
        noise = "privacy noise, not what caps and bounds cut off"
        size = f", in a group of {plan.if_rows:,} rows spread evenly between the bounds" if name in in_group else ""
        text = f"within {amount(error, 6)} for 95 % of answers{size} ({noise})"
        if math.isinf(error):
            text = f"unlimited: in a group of {plan.if_rows:,} rows the noise can hide the answer"
        rows.append((f"expected error{whose}", text))
    rows += plan.cut_rows()
    if query.unchecked:
        rows.append(UNCHECKED)
    return rows


def noise_in_short(plan: Plan) -> str:
    """Return what hides a unit in the answers, in a few words: the kind of the noise and its scales."""
    if plan.estimates and not plan.measurements:
        return "noise that depends on caps or bounds, which are estimated first"
    noisy = [measurement for measurement in plan.measurements if measurement.noise is not None]
    kinds = {measurement.noise.mechanism: "" for measurement in noisy if measurement.noise is not None}
    for mechanism in kinds:
        # The scale of a basis is in steps that mean nothing to a reader.
        if all(measurement.statistic.source != "basis" for measurement in noisy):
            same = [item for item in noisy if item.noise is not None and item.noise.mechanism == mechanism]
            kinds[mechanism] = _scales("scale" if mechanism == "laplace" else "standard deviation", same)
    said = [f"{mechanism.capitalize()} noise{scales}" for mechanism, scales in kinds.items()]
    if len(noisy) < len(plan.measurements):
        said.append("values chosen by the exponential mechanism")
    return " and ".join(said)


def _scales(symbol: str, measurements: Iterable[Measurement]) -> str:
    scales = sorted({_scale(measurement) for measurement in measurements})
    if len(scales) == 1:
        return f" of {symbol} {amount(scales[0])}"
    if len(scales) == 2:
        return f" of {symbol}s {amount(scales[0])} and {amount(scales[1])}"
    return f" of {symbol}s {amount(scales[0])} to {amount(scales[-1])}"


def error_in_short(plan: Plan) -> str:
    """Return how far off the answers may be, in a few words; empty if it depends on the data alone."""
    errors = {name: error for name, error in plan.expected_errors().items() if not name.startswith(_HIDDEN)}
    size = f" in a group of {plan.if_rows:,} rows" if plan.errors_if_rows else ""
    if any(math.isinf(error) for error in errors.values()):
        return f"the noise can hide the answer{size}"
    if len(errors) == 1 and sum(not aggregate.hidden for aggregate in plan.query.aggregates) == 1:
        (error,) = errors.values()
        return f"answers within {amount(error)}{size}, {USUALLY}"
    if errors:
        named = [f"{name} within {amount(error)}" for name, error in errors.items()]
        return f"{listed(named)}{size}, {USUALLY}"
    vague = [text for _, text in vague_errors(plan)]
    return vague[0] if len(vague) == 1 else ""


def caps_in_words(plan: Plan) -> str:
    """Return who is protected and how much of each unit counts, in one sentence."""
    query, bounds = plan.query, plan.bounds
    if not query.unit:
        return "Every row counts on its own."
    who = f"Each {' and '.join(query.unit)}"
    unknown = {estimate.what for estimate in plan.estimates}
    caps = [compiled.cap for compiled in plan.compiled if not compiled.aggregate.hidden]
    if unknown & {"max_groups", "max_rows_per_group", "max_rows"}:
        return f"{who} counts with caps that are estimated first."
    across = [cap.max_rows for cap in caps if cap.across]
    if across:
        groups = f" in at most {bounds.max_groups:,} groups" if bounds.enforce_groups else " in all groups"
        return f"{who} counts with at most {_many(max(across), 'row')}{groups} together."
    rows = sorted({cap.max_rows for cap in caps})
    some = f"at most {_many(rows[0], 'row')}" if len(rows) == 1 else f"{listed([f'{n:,}' for n in rows])} rows at most"
    once = rows == [1]
    if not query.keys or (once and bounds.max_groups == 1):
        return f"{who} counts {'once' if once else f'with {some}'}."
    if bounds.max_groups == 1:
        return f"{who} counts in one group, with {some}."
    return f"{who} counts in at most {bounds.max_groups:,} groups, {'once' if once else f'with {some}'} in each."


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def vague_errors(plan: Plan) -> list[tuple[str, str]]:
    """Return the rows on errors that depend on the rows of a group, which the plan knows in part."""
    several = len(plan.measurements) > 1 and len(plan.compiled) > 1
    return [row for compiled in plan.compiled for row in _vague_error(compiled, plan, several)]


def _vague_error(compiled: CompiledAggregate, plan: Plan, several: bool) -> list[tuple[str, str]]:
    """Return what is known about an error that depends on the rows of a group, as a rank or divided by their number."""
    if plan.if_rows is not None or not plan.is_reliable(compiled.aggregate):
        return []
    name = f"expected error of {compiled.aggregate.name}" if several else "expected error"
    if "values" in compiled.statistics and plan.measurements:
        return [(name, _rank_text(plan.measurement(compiled.statistics["values"])))]
    if "basis" in compiled.statistics and plan.measurements:
        measurement = plan.measurement(compiled.statistics["basis"])
        width = (measurement.grid.high - measurement.grid.low) * float(
            measurement.grid.step * compiled.aggregate.values[0].unit
        )
        off = measurement.error(0.975) / measurement.statistic.whole * width
        text = _error_by_rows(compiled.aggregate, off, width)
        return [] if text is None else [(name, text)]
    return []


def _error_by_rows(aggregate: Aggregate, error: float, width: float) -> str | None:
    """Return the error of a sum divided by the rows of a group: in a group that makes it useful, and in general.

    A tenth of the distance between the bounds is where an answer begins to be useful. The division is a good
    approximation from there on. In smaller groups the noise of the count matters as well.
    """
    rows = rounded_up(max(1, math.ceil(10 * error / width))) if width else 1
    useful = aggregate.error_in_words(amount(error / rows))
    general = aggregate.error_in_words(f"{amount(error)} / n")
    if useful is None:
        return None
    often = f"{USUALLY}, and further off in smaller ones"
    return f"{useful} in a group in which {rows:,} rows count, {often} ({general} with n rows)"


def _rank_text(measurement: Measurement) -> str:
    """Return the rank error that chosen values stay within, in 95 % of groups."""
    statistic, miss = measurement.statistic, 0.05
    off = rank_error(statistic, measurement.epsilon, miss)
    if off is None:
        levels = len(statistic.targets).bit_length()
        off = levels * math.ceil(distance_within(statistic, measurement.epsilon, Fraction(1), miss / levels))
        return f"ranks within {off:,} rows of the wanted ones in 95 % of groups, if few rows share a value"
    if statistic.targets[0] in (0, 1):
        return f"at most {off:,} rows lie beyond the answer in 95 % of groups"
    fewest = math.ceil(off / max(statistic.targets[0], 1 - statistic.targets[0]))
    return (
        f"a rank within {off:,} rows of the wanted one in 95 % of groups, so the answer can be anything in a group of "
        f"fewer than about {rounded_up(fewest):,} rows"
    )


def _different(given: Iterable[_Shown]) -> list[_Shown]:
    return list(dict.fromkeys(given))


def unknown_text(estimate: Estimate) -> str:
    """Return what is known about an estimate before it is made: its price, and how many units it needs."""
    needs = f"; reliable from about {rounded_up(estimate.needed_units):,} units" if estimate.needed_units else ""
    other = " with a value other than 0" if needs and estimate.value is not None else ""
    return f"unknown until estimated ({float(estimate.part):.0%} of the spend{needs}{other})"


def rounded_up(number: int) -> int:
    """Return a number rounded up to two digits."""
    step = int(10 ** max(0, len(str(number)) - 2))
    return -(-number // step) * step


def unreliable_texts(plan: Plan) -> list[tuple[str, str]]:
    """Return the estimates that had too few units, each with the reason. All of this is public or released."""
    found = []
    for estimated in plan.estimated:
        if estimated.reliable:
            continue
        value = estimated.estimate.value
        name = _CAPS[estimated.estimate.what] if value is None else f"bounds of {value.name}"
        other = "" if value is None else " with a value other than 0"
        needs = rounded_up(estimated.estimate.needed_units)
        why = f"estimated from about {estimated.units:,} units{other}, but this spend needs about {needs:,}"
        whose = [compiled.aggregate.name for compiled in plan.compiled if depends_on(compiled.aggregate, estimated)]
        found.append((name, f"{why}, so the error of {', '.join(whose)} is unknown"))
    return found


def small_rows(plan: Plan, ways: bool = True) -> list[tuple[str, str]]:
    """Return the rows on groups that are too small for their noise. All of this is public or released.

    Without `ways`, they don't say what would help.
    """
    found = []
    for one in plan.too_small:
        more = ", ..." if one.count > len(one.names) else ""
        named = f" ({'; '.join(one_line(name, 20) for name in one.names)}{more})" if one.names else ""
        where = f" in {one.count:,} of {one.of:,} groups{named}" if plan.query.keys else ""
        fewer = ", or merge groups" if plan.query.keys else ""
        text = f"the {one.answer} tells next to nothing{where}: its noise is large against its range"
        found.append(("too small", f"{text}; spend more, narrow the bounds, lower the caps{fewer}" if ways else text))
    return found


def bounds_texts(compiled: CompiledAggregate, plan: Plan) -> list[str]:
    """Return the bounds of each value of an aggregate, in words."""
    aggregate = compiled.aggregate
    later = {
        estimate.value.expression: unknown_text(estimate) for estimate in plan.estimates if estimate.value is not None
    }
    found = {
        estimated.estimate.value.expression: estimated.estimate.part
        for estimated in plan.estimated
        if estimated.estimate.value
    }
    per = "unit's total" if aggregate.row_rule is RowRule.CLIP_TOTAL else "row"
    return [
        (
            later[value.expression]
            if value.auto and value.expression in later
            else f"{shown(value, 0)} to {shown(value, 1)}, each {per}"
            + (f", estimated ({float(found[value.expression]):.0%} of the spend)" if value.expression in found else "")
            + (f", {value.bounds_rule}" if value.bounds_rule else "")
        )
        + (f", of {value.name}" if len(aggregate.values) > 1 else "")
        for value in aggregate.values
        if value.bounds is not None
    ]


def shown(value: Value, end: int) -> str:
    """Return the lower (0) or upper (1) bound of a value, as people write it."""
    number = (value.lower, value.upper)[end]
    if isinstance(value.dtype, pl.Decimal):
        return f"{float(number / 10**value.dtype.scale):g}"
    if value.dtype.is_temporal():
        return str(pl.Series([int(number)]).cast(value.dtype).item())
    return f"{float(number):g}"


def _scale(measurement: Measurement) -> float:
    """Return the scale of Laplace noise, or the standard deviation of Gaussian noise, in the unit of the sum."""
    if measurement.noise is None:
        raise ValueError("a choice has no noise")
    parameter = measurement.noise.parameter
    scale = float(parameter) if measurement.noise.mechanism == "laplace" else math.sqrt(parameter)
    return scale * float(measurement.grid.step)


def _measurement_rows(measurement: Measurement, several: bool) -> list[tuple[str, str]]:
    name = _WORDS.get(measurement.statistic.what, measurement.statistic.what)
    share = f", {float(measurement.statistic.weight):.0%} of the spend" if several else ""
    if measurement.noise is None:
        targets = ", ".join(f"{float(target):g}" for target in measurement.statistic.targets)
        confidence = measurement.statistic.confidence
        where = f"at {targets}" if confidence is None else f"on either side of {targets} ({confidence:g} confidence)"
        each = f"epsilon {float(measurement.epsilon):.6g} for each group"
        if measurement.statistic.chosen > 1:
            each = f"epsilon {float(measurement.epsilon):.6g} for each choice in each group"
        return [(f"choice of {name}", f"exponential mechanism {where}, {each}{share}")]
    step = float(measurement.grid.step)
    sensitivity = measurement.sensitivity
    scale = _scale(measurement)
    symbol = "scale" if measurement.noise.mechanism == "laplace" else "sigma"
    return [
        (
            f"sensitivity of {name}",
            f"L1 {sensitivity.l1 * step:.6g}, L2 {math.sqrt(sensitivity.l2_squared) * step:.6g}, "
            f"each {sensitivity.each * step:.6g}",
        ),
        (f"noise on {name}", f"discrete {measurement.noise.mechanism.capitalize()}, {symbol} {scale:.6g}{share}"),
    ]
