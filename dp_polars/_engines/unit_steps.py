"""Unit-wise steps: rows that are computed from all rows of a unit, in one or several tables. Nothing here reads a row.

What one unit can change: a step combines rows only if they agree in its partition columns. If the unit columns are
among these, the rows of a unit after the step are a function of its own rows before it, so a unit that comes, goes or
changes leaves all other units' rows as they are, to the last bit. Such steps compose with each other and with row-wise
steps, and caps and clipping apply to what comes out. This holds for adding, removing and replacing a unit, and for
several units together. `with_units` refuses a question whose unit is not among the partition columns.

Rows without a unit are treated as the rows of one unit here. They are dropped when contributions are bounded, as
everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from dp_polars._engines.rows import MOST_COPIES, OWN, Filter, Lookup, PrivateRows, Source, Step, WithColumns
from dp_polars._expressions import apply
from dp_polars._expressions.tree import Column, Expression, written_type
from dp_polars._expressions.unit_functions import SortColumn, UnitValue, is_sortable
from dp_polars.errors import InvalidParameterError

MOST_PAIRS = 1_000_000
"""Pairs of rows that a join of private tables may make for one unit, so that its rows cannot fill the memory.

A unit whose rows would make more pairs, and more than it has rows, keeps `KEPT_IN_JOIN` of them on each side. Salted
hashes of the rows decide which.
"""

KEPT_IN_JOIN = 1_000

OWN_IN_STEPS = OWN * 2
"""First characters of the columns that an engine adds while it computes a step. The inputs of steps have none."""

JoinHow = Literal["inner", "left", "semi", "anti"]


@dataclass(frozen=True)
class GroupRows:
    """Replace the rows with equal keys by one row, with the keys and functions of the rows."""

    keys: tuple[str, ...]
    columns: tuple[tuple[str, UnitValue], ...]


@dataclass(frozen=True)
class AddWindows:
    """Add columns that are functions of the rows with equal partition columns."""

    partition: tuple[str, ...]
    columns: tuple[tuple[str, UnitValue], ...]


@dataclass(frozen=True)
class KeepFirst:
    """Keep the first rows, in an order, among those with equal partition columns. Ties are broken by all columns."""

    partition: tuple[str, ...]
    order: tuple[SortColumn, ...]
    rows: int
    offset: int = 0


@dataclass(frozen=True)
class JoinRows:
    """Join two tables on pairs of columns, and take some columns of the second one under new names.

    `unit` names those columns of the first table that are the unit; `with_units` fills it in.
    """

    on: tuple[tuple[str, str], ...]
    how: JoinHow
    columns: tuple[tuple[str, str], ...]
    unit: tuple[str, ...] = ()


@dataclass(frozen=True)
class StackRows:
    """Stack the rows of several tables, which have the same columns."""


@dataclass(frozen=True)
class LabelRows:
    """Give the rows of a table without units those of another table, whose rows have the same key.

    `on` pairs the columns of the key, and `unit` the unit columns of the second table with their new names. Rows whose
    key the second table does not have get no unit, so they take no part.

    What one unit can change: no two rows of the second table have the same key, so a key belongs to one unit, and with
    it all rows of the first table that have the key. If the unit goes, so do its rows in both tables, and no other row
    gets another label. That the key is unique is a constraint of the database or the owner's word. If it is not, the
    smallest unit gets the rows: nothing fails, no row is lost, and the label does not depend on how rows are stored.
    """

    on: tuple[tuple[str, str], ...]
    unit: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class UnnestRows:
    """Make one row of each element of a list, for the first elements of each list. The other columns stay as they are.

    What one unit can change: its own rows. A row becomes at most `most` rows of the same unit, and fewer if the unit
    would get more than `MOST_PAIRS` rows: its lists are then cut to the same number of elements, at least one, which
    its own number of rows decides. So its rows cannot fill the memory, however many lists are unnested one after the
    other. A list that is empty or null becomes no row. `unit` names the unit columns; `with_units` fills it in.
    """

    column: str
    name: str
    most: int = 100
    unit: tuple[str, ...] = ()


UnitStep = GroupRows | AddWindows | KeepFirst | JoinRows | StackRows | LabelRows | UnnestRows


@dataclass(frozen=True, repr=False, eq=False)
class UnitRows:
    """A source of private rows: the rows of one or several others after a unit-wise step. It is made by `unit_rows`."""

    inputs: tuple[PrivateRows, ...]
    step: UnitStep
    schema: pl.Schema

    def check(self, rows: PrivateRows) -> None:
        """Refuse rows that the engine of one of the first sources cannot compute. See `Source`."""
        for source in first_sources(rows):
            check: Callable[[PrivateRows], None] | None = getattr(source, "check", None)
            if check is not None:
                check(rows)
                return  # it looks at the other sources too


def unit_rows(step: UnitStep, *inputs: PrivateRows) -> PrivateRows:
    """Return rows after a unit-wise step, or refuse columns that it cannot compare or sort.

    Categories become texts, because their order and their codes depend on other rows.
    """
    inputs = tuple(_with_texts(rows) for rows in inputs)
    if any(name.startswith(OWN_IN_STEPS) for rows in inputs for name in rows.schema):
        raise InvalidParameterError(
            "Column names that begin with a null character are reserved for dp_polars; rename yours."
        )
    copies = max(map(_copies, inputs))
    if copies > MOST_COPIES:
        raise InvalidParameterError(
            f"One row becomes up to {copies:,} rows in joins with public rows before a step within a unit, which holds "
            f"them all in memory, so at most {MOST_COPIES:,} are allowed there: the memory must not run out because of "
            "one person's rows. Join the public rows after the step."
        )
    first = inputs[0].schema
    match step:
        case GroupRows():
            _check_compared(step.keys, first)
            schema = {name: first[name] for name in step.keys} | {name: one.dtype for name, one in step.columns}
        case AddWindows():
            _check_compared(step.partition, first)
            if any(one.order for _, one in step.columns):
                _check_sorted(first)
            schema = dict(first) | {name: one.dtype for name, one in step.columns}
        case KeepFirst():
            _check_compared(step.partition, first)
            _check_sorted(first)
            schema = dict(first)
        case JoinRows():
            second = inputs[1].schema
            _check_compared([mine for mine, _ in step.on], first)
            for mine, theirs in step.on:
                if first[mine] != second[theirs]:
                    raise InvalidParameterError(
                        f"{mine} has the type {first[mine]} in the first frame and {second[theirs]} in the second. A "
                        "join compares values of one type. Cast one of them first."
                    )
            if not step.on or len(dict(step.on)) < len(step.on):
                raise InvalidParameterError("A join of private frames names each key of the first frame once.")
            if step.how in ("inner", "left"):
                _check_told_apart(first)
                _check_told_apart(second)
            schema = dict(first) | {name: second[own] for own, name in step.columns}
        case LabelRows():
            second = inputs[1].schema
            _check_compared([theirs for _, theirs in step.on], second)
            different = [mine for mine, theirs in step.on if first[mine] != second[theirs]]
            if different:
                raise InvalidParameterError(f"{', '.join(different)} must have the same type in both tables.")
            _check_compared([own for own, _ in step.unit], second)
            schema = dict(first) | {name: second[own] for own, name in step.unit}
        case UnnestRows():
            listed = first[step.column]
            if not isinstance(listed, pl.List) or step.name in first:
                raise InvalidParameterError(
                    f"{step.column} has the type {listed}; only a list has elements that become rows of their own."
                )
            schema = dict(first) | {step.name: _inner_type(listed)}
        case StackRows():
            for other in inputs[1:]:
                if dict(other.schema) != dict(first):
                    raise InvalidParameterError(
                        "Private frames are stacked only if they have the same columns and types. Select, rename and "
                        "cast their columns first."
                    )
            schema = dict(first)
    source = UnitRows(inputs, step, pl.Schema(schema))
    rows = PrivateRows(source)
    source.check(rows)
    return rows


def _copies(rows: PrivateRows) -> int:
    """Return the largest number of rows that one row becomes in joins with public rows, in all steps together."""
    source = rows.source
    before = max(map(_copies, source.inputs)) if isinstance(source, UnitRows) else 1
    return before * rows.copies


def _inner_type(listed: pl.List | pl.Array) -> pl.DataType:
    inner = listed.inner
    return inner() if isinstance(inner, type) else inner


def _with_texts(rows: PrivateRows) -> PrivateRows:
    schema = rows.schema
    texts = {
        name: apply("cast", Column(name, dtype), to=pl.String())
        for name, dtype in schema.items()
        if dtype == pl.Categorical
    }
    return rows.make(texts) if texts else rows


def _check_compared(names: Sequence[str], schema: pl.Schema) -> None:
    for name in names:
        if not is_sortable(schema[name]):
            raise InvalidParameterError(
                f"{name} has the type {schema[name]}, whose values can't be compared within a unit. Cast it first, or "
                "take a field or an element of it."
            )


def _check_sorted(schema: pl.Schema) -> None:
    unsorted = [name for name, dtype in schema.items() if not is_sortable(dtype)]
    if unsorted:
        raise InvalidParameterError(
            f"This step sorts the rows of a unit, and rows that tie are sorted by all other columns. "
            f"{', '.join(unsorted)} can't be sorted by: it is a list, a struct or another such type. Drop or cast it "
            "first."
        )


def _check_told_apart(schema: pl.Schema) -> None:
    """Refuse columns whose hashes do not tell rows apart: two zeros in a list, 0.0 and -0.0, have the same hash."""
    alike = [name for name, dtype in schema.items() if not (is_sortable(dtype) or _has_hashes(dtype))]
    if alike:
        raise InvalidParameterError(
            f"A join may have to choose among the rows of a unit, and {', '.join(alike)} can't tell them apart: it is "
            "a list or a struct with floats, or another such type. Drop or cast it first."
        )


def _has_hashes(dtype: pl.DataType) -> bool:
    """Return whether two values of a type have the same hash only by chance."""
    if isinstance(dtype, pl.List | pl.Array):
        return _has_hashes(_inner_type(dtype))
    if isinstance(dtype, pl.Struct):
        return all(
            _has_hashes(field.dtype() if isinstance(field.dtype, type) else field.dtype) for field in dtype.fields
        )
    return not (dtype.is_float() or dtype in (pl.Object, pl.Unknown))


# ---------------------------------------------------------------------- who is combined with whom


def with_units(rows: PrivateRows, unit: Sequence[str]) -> PrivateRows:
    """Return rows whose steps know the unit columns, or refuse steps that may have combined rows of different units.

    Row-wise steps may rename the unit columns, but not compute them.
    """
    check_lookups(rows, unit)
    source = rows.source
    if not isinstance(source, UnitRows):
        return rows
    if not unit:
        raise InvalidParameterError(
            "In this session every row is a person of its own (unit=dp.ROW), so there are no rows of one unit to "
            "combine. Open a session whose unit is a column.",
            code="unit-step-of-rows",
        )
    unit = _names_before(rows.steps, unit)
    step, units = source.step, [tuple(unit)] * len(source.inputs)
    match step:
        case GroupRows():
            _check_partition(step.keys, unit, "group_by")
        case AddWindows():
            _check_partition(step.partition, unit, "over")
        case KeepFirst():
            _check_partition(step.partition, unit, "group_by or unique")
        case JoinRows():
            pairs = dict(step.on)
            _check_partition(tuple(pairs), unit, "the keys of the join")
            units[1] = tuple(pairs[name] for name in unit)
            step = replace(step, unit=tuple(unit))
        case UnnestRows() if step.name in unit:
            raise InvalidParameterError(
                f"{', '.join(unit)} says who is protected, but it is an element of a list. Prepare it in the table.",
                code="unit-step-without-unit",
            )
        case UnnestRows():
            step = replace(step, unit=tuple(unit))
        case LabelRows():
            labels = {name: own for own, name in step.unit}
            _check_partition(tuple(labels), unit, "the units of the other table")
            if has_unit_steps(source.inputs[0]):  # nobody could tell whose rows it combined
                raise InvalidParameterError("Rows get their units before any step combines them.")
            second = with_units(source.inputs[1], [labels[name] for name in unit])
            return replace(rows, source=replace(source, inputs=(source.inputs[0], second)))
    inputs = tuple(with_units(one, own) for one, own in zip(source.inputs, units, strict=True))
    return replace(rows, source=replace(source, inputs=inputs, step=step))


def _names_before(steps: Sequence[Step], unit: Sequence[str]) -> tuple[str, ...]:
    """Return the names that unit columns had before row-wise steps, or refuse a step that made one of them."""
    names = tuple(unit)
    for step in reversed(steps):
        made: dict[str, Expression | None] = {}
        if isinstance(step, WithColumns):
            made = dict(step.columns)
        elif isinstance(step, Lookup):
            made = {name: None for _, name in step.columns}
        before = [made.get(name, Column(name, pl.Null())) for name in names]
        if not all(isinstance(one, Column) for one in before):
            raise InvalidParameterError(
                f"{', '.join(unit)} says who is protected, but a step made it. Prepare it in the table.",
                code="unit-step-without-unit",
            )
        names = tuple(one.name for one in before if isinstance(one, Column))
    return names


def _check_partition(partition: Sequence[str], unit: Sequence[str], what: str) -> None:
    missing = [name for name in unit if name not in partition]
    if missing:
        raise InvalidParameterError(
            f"A step combines rows of this private frame by {', '.join(partition) or 'nothing'}, but the session "
            f"protects units by {', '.join(unit)}: rows of different people would be combined, and one person could "
            f"change other people's rows. Name {', '.join(missing)} in {what} too, or release an aggregate "
            "(dp.count(), dp.sum(...)) instead.",
            code="unit-step-without-unit",
        )


def check_lookups(rows: PrivateRows, unit: Sequence[str]) -> None:
    """Refuse public rows that are looked up by the unit, unless somebody said that they are public.

    What one unit can change: a frame that names units is mostly about them, so if a unit comes or goes, its rows change
    there too. Public rows are part of the question: how many there are, and whether they are as before, is seen
    without noise. So if a key is a function of unit columns, or if the frame has columns with their names, the caller
    has to say that it is public.
    """
    unsaid = [step for step in rows.steps if isinstance(step, Lookup) and not step.said_public]
    if not unsaid or not unit:
        return
    for step, known in _functions_of_unit(rows, unit)[0]:
        if step not in unsaid:
            continue
        found = [mine for mine, _ in step.on if mine in known] or [name for name in step.public.columns if name in unit]
        if found:
            raise InvalidParameterError(
                "The other frame of this join was not made private, but it tells who its rows are about "
                f"({', '.join(found)}), and nothing would protect them. If its rows are private, make it private too "
                "and join on the unit: join(other.dp, on=...), or dp.private(other, session). If they are public, say "
                "so: join(other, on=..., public=True).",
                code="not-private",
            )


def _functions_of_unit(
    rows: PrivateRows, unit: Iterable[str]
) -> tuple[list[tuple[Lookup, frozenset[str]]], frozenset[str]]:
    """Return the columns that are functions of the unit alone: for each lookup those before it, and those at the end.

    A column may be such a function although it is not found here, as some columns of a join are.
    """
    before = set(unit)
    for step in reversed(rows.steps):
        if isinstance(step, WithColumns):
            made = dict(step.columns)
            before = {own for name in before for own in (made[name].columns if name in made else {name})}
    known = before | _copied_by(rows.source, before)
    found: list[tuple[Lookup, frozenset[str]]] = []
    for step in rows.steps:
        if isinstance(step, Lookup):
            found.append((step, frozenset(known)))
            known = known - {name for _, name in step.columns}
        elif isinstance(step, WithColumns):
            new = {name for name, one in step.columns if one.columns and one.columns <= known}
            kept = known - {name for name, _ in step.columns} if step.keep else set()
            known = kept | new
    return found, frozenset(known)


def _copied_by(source: Source, unit: Iterable[str]) -> frozenset[str]:
    """Return columns after a unit-wise step that are functions of the unit alone, because they were before it."""
    if not isinstance(source, UnitRows) or isinstance(source.step, LabelRows):
        return frozenset()
    step = source.step
    before = _functions_of_unit(source.inputs[0], unit)[1]
    match step:
        case GroupRows():
            return (before & set(step.keys)) | _taken_from(before, step)
        case AddWindows():
            return (before - {name for name, _ in step.columns}) | _taken_from(before, step)
        case StackRows():  # in one of the tables is enough
            return before.union(*(_functions_of_unit(one, unit)[1] for one in source.inputs[1:]))
        case UnnestRows() if step.column in before:
            return before | {step.name}
        case JoinRows() if step.how in ("inner", "left"):
            pairs = dict(step.on)
            theirs = _functions_of_unit(source.inputs[1], [pairs[name] for name in unit if name in pairs])[1]
            return before | {name for own, name in step.columns if own in theirs}
    return before


_TAKEN = frozenset(
    {
        "min", "max", "first", "last", "mode", "mean", "median", "quantile", "quantile_value", "shift", "cum_min",
        "cum_max", "frame_min", "frame_max", "frame_first", "frame_last",
    }
)  # fmt: skip
"""Functions whose result is one of the values, if all values are the same."""


def _taken_from(known: frozenset[str], step: GroupRows | AddWindows) -> frozenset[str]:
    """Return the columns of a step that take a value of columns that are functions of the unit."""
    return frozenset(name for name, one in step.columns if one.function in _TAKEN and one.column in known)


def constant_columns(rows: PrivateRows, unit: Sequence[str]) -> frozenset[str]:
    """Return the columns that have the same value in all rows of a unit, because they are functions of it.

    Only those are found that this is sure of, whichever rows there are. A cap that follows from it is enforced like all
    others.
    """
    source, before = rows.source, set(unit)
    for step in reversed(rows.steps):
        made: dict[str, Expression | None] = {}
        if isinstance(step, WithColumns):
            made = dict(step.columns)
        elif isinstance(step, Lookup):
            made = {name: None for _, name in step.columns}
        renamed = [made.get(name, Column(name, pl.Null())) for name in before]
        if not all(isinstance(one, Column) for one in renamed):
            return frozenset(unit)
        before = {one.name for one in renamed if isinstance(one, Column)}
    known = set(before)
    if isinstance(source, UnitRows):
        match source.step:
            case GroupRows(keys=keys):
                known |= constant_columns(source.inputs[0], sorted(before)) & set(keys)
            case AddWindows(columns=columns):
                known |= constant_columns(source.inputs[0], sorted(before)) - {name for name, _ in columns}
            case KeepFirst() | JoinRows() | UnnestRows():
                known |= constant_columns(source.inputs[0], sorted(before))
    for step in rows.steps:
        if isinstance(step, Lookup):
            # A row may match several public rows, and one that is unique is a function of its key.
            matched = step.unique and {mine for mine, _ in step.on} <= known
            found = {name for _, name in step.columns}
            known = known | found if matched else known - found
        elif isinstance(step, WithColumns):
            new = {name for name, one in step.columns if one.columns and one.columns <= known}
            known = (known - {name for name, _ in step.columns} if step.keep else set()) | new
    return frozenset(known)


def has_unit_steps(rows: PrivateRows) -> bool:
    """Return whether rows were computed by a unit-wise step."""
    return isinstance(rows.source, UnitRows)


def first_sources(rows: PrivateRows) -> list[Source]:
    """Return the sources that rows come from, in a fixed order, each as often as steps read it."""
    source = rows.source
    if not isinstance(source, UnitRows):
        return [source]
    return [found for one in source.inputs for found in first_sources(one)]


def unique_columns(rows: PrivateRows) -> frozenset[str] | None:
    """Return columns of which no two rows have the same values, if steps make sure of that; otherwise None.

    It follows from the steps alone. Caps that are derived from it are enforced like all others.
    """
    source = rows.source
    found: frozenset[str] | None = None
    if isinstance(source, UnitRows):
        match source.step:
            case GroupRows():
                found = frozenset(source.step.keys)
            case KeepFirst() if source.step.rows == 1:
                found = frozenset(source.step.partition)
            case AddWindows() | KeepFirst():
                found = unique_columns(source.inputs[0])
            case JoinRows():
                found = unique_columns(source.inputs[0])
                if source.step.how in ("inner", "left"):
                    matched = unique_columns(source.inputs[1])
                    found = found if matched is not None and matched <= set(dict(source.step.on).values()) else None
    for step in rows.steps:
        if found is None:
            return None
        if isinstance(step, WithColumns):
            found = _renamed(found, step)
        elif isinstance(step, Lookup) and not step.unique:  # a row may become several
            return None
    return found


def _renamed(found: frozenset[str], step: WithColumns) -> frozenset[str] | None:
    """Return the names of columns after a step that may rename them, or None if one is gone or changed."""
    made = dict(step.columns)
    names: set[str] = set()
    for name in found:
        if step.keep and name not in made:
            names.add(name)
            continue
        copies = [new for new, one in made.items() if isinstance(one, Column) and one.name == name]
        if not copies:
            return None
        names.add(copies[0])
    return frozenset(names)


# ---------------------------------------------------------------------- columns that are read


def without_unread(rows: PrivateRows) -> PrivateRows:
    """Return the same rows, without columns before and after unit-wise steps that no column of the result depends on.

    A column that nobody reads can only matter where rows are sorted, because ties are sorted by all columns. So before
    such steps (`KeepFirst`, and windows with an order) all columns stay. Functions of a group read their own columns,
    and a join chooses the rows of heavy units at random.
    """
    source = rows.source
    if not isinstance(source, UnitRows):
        return rows
    steps, read = _read_columns(rows)
    if not read:  # the columns of a question include its unit, so this is not one
        return rows
    step, inputs, first = source.step, source.inputs, set(source.inputs[0].schema)
    names: list[set[str] | None] = [None] * len(inputs)
    match step:
        case GroupRows():
            step = replace(step, columns=tuple(one for one in step.columns if one[0] in read))
            names = [{*step.keys, *_read_by(step)}]
        case AddWindows():
            step = replace(step, columns=tuple(one for one in step.columns if one[0] in read))
            if not step.columns:  # the rows as they were
                return without_unread(replace(inputs[0], steps=(*inputs[0].steps, *steps)))
            if not any(value.order for _, value in step.columns):
                names = [{*step.partition, *_read_by(step), *(read & first)}]
        case JoinRows():
            step = replace(step, columns=tuple(pair for pair in step.columns if pair[1] in read))
            names = [{*dict(step.on), *(read & first)}, {*dict(step.on).values(), *dict(step.columns)}]
        case StackRows():
            names = [read] * len(inputs)
        case LabelRows():
            names = [{*dict(step.on), *(read & first)}, {*dict(step.on).values(), *dict(step.unit)}]
    kept = [one if own is None else one.keep(sorted(own)) for one, own in zip(inputs, names, strict=True)]
    return PrivateRows(unit_rows(step, *map(without_unread, kept)).source, steps)


def _read_by(step: GroupRows | AddWindows) -> set[str]:
    values = [value for _, value in step.columns]
    named = {value.column for value in values if value.column is not None}
    return named | {one.name for value in values for one in value.order}


def _read_columns(rows: PrivateRows) -> tuple[tuple[Step, ...], set[str]]:
    """Return the steps without columns that no later one reads, and the columns of the source that they read."""
    read, steps = set(rows.schema), list[Step]()
    for step in reversed(rows.steps):
        match step:
            case Filter():
                read = read | {name for condition in step.conditions for name in condition.columns}
                step = replace(step, columns=None)
            case WithColumns():
                made = {name: one for name, one in step.columns if name in read}
                step = replace(step, columns=tuple(made.items()))
                read = {own for name in read for own in (made[name].columns if name in made else {name})}
            case Lookup():
                step = replace(step, columns=tuple(pair for pair in step.columns if pair[1] in read))
                read = (read - {name for _, name in step.columns}) | {mine for mine, _ in step.on}
        steps.append(step)
    return tuple(reversed(steps)), read


# ---------------------------------------------------------------------- texts


def described_step(step: UnitStep) -> list[Any]:
    """Return a step in a form that names it: equal for equal steps, in every process."""
    match step:
        case GroupRows():
            return ["group rows", list(step.keys), [[name, *_described(one)] for name, one in step.columns]]
        case AddWindows():
            return ["windows", list(step.partition), [[name, *_described(one)] for name, one in step.columns]]
        case KeepFirst():
            return ["first rows", list(step.partition), _order(step.order), step.rows, step.offset]
        case JoinRows():
            return ["join rows", [list(pair) for pair in step.on], step.how, [list(pair) for pair in step.columns]]
        case StackRows():
            return ["stack rows"]
        case UnnestRows():
            return ["unnest rows", step.column, step.name, step.most]
        case LabelRows():
            return ["label rows", [list(pair) for pair in step.on], [list(pair) for pair in step.unit]]


def unit_steps_of(rows: PrivateRows) -> list[str]:
    """Return the unit-wise steps of rows in words, in the order in which they are computed."""
    source = rows.source
    if not isinstance(source, UnitRows):
        return []
    before = [words for one in source.inputs for words in unit_steps_of(one)]
    match source.step:
        case GroupRows(keys=keys):
            own = f"rows grouped by {', '.join(keys)}"
        case AddWindows(partition=partition):
            own = f"windows over {', '.join(partition)}"
        case KeepFirst(partition=partition):
            own = f"first rows by {', '.join(partition)}"
        case JoinRows(on=on, how=how):
            own = f"{how} join on {', '.join(mine for mine, _ in on)}"
        case StackRows():
            own = "union of rows"
        case UnnestRows(column=column, most=most):
            own = f"a row for each of up to {most} elements of {column}"
        case LabelRows(on=on):
            own = f"units through {', '.join(mine for mine, _ in on)}"
    return [*before, own]


def why_steps_are_safe(rows: PrivateRows, unit: Sequence[str]) -> str:
    """Return what a plan says about the unit-wise steps of rows, or an empty text if there are none."""
    found = [re.sub(f"{OWN}[^,]*", "an expression", step) for step in dict.fromkeys(unit_steps_of(rows))]
    if not found:
        return ""
    who = ", ".join(unit)
    limit = (
        f". If the rows of one {who} make more than {MOST_PAIRS:,} pairs in a join, {KEPT_IN_JOIN:,} rows on each side "
        "are kept, chosen at random"
    )
    safe = f"{'; '.join(found)}: rows of one {who} are combined, so nobody else's rows change"
    return safe + (limit if _makes_pairs(rows) else "")


def _makes_pairs(rows: PrivateRows) -> bool:
    """Return whether a join may make more pairs of rows than a unit has rows."""
    source = rows.source
    if not isinstance(source, UnitRows):
        return False
    step = source.step
    if isinstance(step, JoinRows) and step.how in ("inner", "left"):
        keys = unique_columns(source.inputs[1])
        if keys is None or not keys <= set(dict(step.on).values()):
            return True
    return any(map(_makes_pairs, source.inputs))


def _described(value: UnitValue, names: Mapping[str, str] | None = None) -> list[Any]:
    """Return a function in a form that names it. `names` replaces the names of columns, if it is given."""
    if names is not None:
        order = tuple(replace(one, name=names[one.name]) for one in value.order)
        value = replace(value, column=None if value.column is None else names[value.column], order=order)
    own: list[Any] = [value.function, value.column, _order(value.order), value.offset, written_type(value.dtype)]
    own += [] if value.parameter is None else [value.parameter]
    if value.frame is None:
        return own
    return [*own, [value.frame.start, value.frame.end], *(["by value"] if value.frame.by_value else [])]


def _order(order: Sequence[SortColumn]) -> list[Any]:
    return [[one.name, one.descending, one.nulls_last] for one in order]


def described_rows(rows: PrivateRows, digest: Callable[[pl.DataFrame], str]) -> list[Any]:
    """Return all steps of rows in a form that names a query, those within a unit and those before them too."""
    steps = rows.describe(digest)
    if not isinstance(rows.source, UnitRows):
        return steps
    inputs = [described_rows(one, digest) for one in rows.source.inputs]
    return [["within units", described_step(rows.source.step), inputs], *steps]


def input_forms(
    source: UnitRows, form: Callable[[PrivateRows], Mapping[str, Any]]
) -> tuple[list[Any], dict[str, list[Any]]]:
    """Return a description of a source, its step and a form of each of its inputs, and one of each of its columns.

    Groups and windows without an order look at the columns that they name, and nowhere else. So neither the names nor
    the order of columns count there. Elsewhere both do: rows that tie are sorted by all columns, one after the other.
    """
    step, inputs = source.step, [dict(form(one)) for one in source.inputs]
    names = {name: [name] for name in source.schema}
    if isinstance(step, GroupRows) or (isinstance(step, AddWindows) and not any(one.order for _, one in step.columns)):
        given = inputs[0].pop("columns")
        by = step.keys if isinstance(step, GroupRows) else step.partition
        kept = step.keys if isinstance(step, GroupRows) else tuple(name for name in source.schema if name in given)
        columns = {name: ["kept", given[name]] for name in kept}
        columns |= {name: ["made", *_described(one, given)] for name, one in step.columns}
        kind = "group rows" if isinstance(step, GroupRows) else "windows"
        return [kind, sorted(given[name] for name in by), inputs[0]], columns
    return [described_step(step), inputs], names
