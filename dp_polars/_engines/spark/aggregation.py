"""A bounded request as one SQL text, which is deterministic and reads the rows once for its sums.

    base    one row per row: unit, keys, and the integers of its values
    runs    one row per unit and group: counts and partial sums, which Spark computes before it moves any row
    ordered the same, brought together by unit, with the hash that orders the groups of a unit and a hash of the unit
    ranked  the same, with the place of each group in the order in which its unit keeps groups

Nested SELECTs over these compute what each unit contributes to each sum, capped, and one row per group.

What one unit can change: the order of a unit's groups is a hash of a secret salt, the unit and the keys, ties by the
keys, so it depends on the unit's own rows alone, and each unit keeps exactly min(its groups, max_groups) groups. For
each sum, a unit with more than `max_rows` rows in a group is scaled down with the rounding of `bounding.sums.scaled`
(of `scaled_across` if the cap is on the rows in all groups), and the sum over units is rounded on the driver as
`bounding.sums.shortened` does. For cells, a unit keeps `max_rows` rows by a hash of salt, unit, keys, value and the
number of equal values before. Nothing in the text is random.

The cap on groups is a window over the unit, because a window spills to disk however many groups a unit has. An array of
all groups of a unit would have to fit into memory, and Spark fails beyond 2**31 elements, so one person could make a
question fail.

No sum wraps. A number that may have more than 21 bits is cut into limbs of 21 bits, and the limbs are summed
separately. A sum of 64 bits holds 2**42 limbs, and no table has 4 trillion rows. The limbs are put together on
the driver. SQL needs wider numbers, of type DECIMAL(38, 0), only where a unit is scaled down or its total is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import polars as pl

from dp_polars._engines.request import HASH_BITS, LIMIT, BoundedRequest, Cells, GroupSum, Lane, Profile, ValueColumn
from dp_polars._engines.spark.lowering import call
from dp_polars._engines.spark.texts import Hash, RowsText, one_form, with_tables
from dp_polars._engines.spark.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    LEAST,
    MOST,
    WIDE,
    false_in_each_row,
    literal,
    stored_type,
)

LIMB = 21
"""Bits of a limb."""

_MOST_ROWS = 1 << 62  # no unit has so many rows
_MOST_ROUNDED = 1 << 51  # three times this, plus or minus this, are the floats whose distance to the next one is 1
_SORTED_BITS = 24  # bits of each hash by which rows are sorted first; a radix sort passes over the rows for each byte
_MOST_RANK = (1 << 31) - 1  # largest place that Spark's windows count to


@dataclass(frozen=True)
class SumParts:
    """How a sum is put together from columns of the answer: the sum of column * factor, shortened by some bits."""

    name: str
    parts: tuple[tuple[str, int], ...]
    shortened: int | None
    """Bits by which the sum is shortened at the end; None for counts, which are neither shortened nor clipped."""


@dataclass(frozen=True)
class Statement:
    """A SQL text, the public frames in it, and what its columns mean.

    The answer has the columns `part`, `k0`, ... and `x0`, ...: part 0 has the sums, other parts cells and profiles with
    the value in `x0` and the count in `x1`.
    """

    text: str
    public: dict[str, pl.DataFrame]
    sums: tuple[SumParts, ...]
    runs: tuple[str, ...]
    """The columns that add up to the number of units in a group."""
    cells: tuple[str, ...]
    """The names of parts 1, 2, ..."""


def statement(
    rows: RowsText, schema: pl.Schema, request: BoundedRequest, order: Hash, tag: Hash, value: Hash
) -> Statement:
    """Return the statement for a request. `order`, `tag` and `value` are salted hashes.

    Parameters
    ----------
    rows, schema
        The rows, with the columns that the request names.
    request
        What to compute.
    order
        The hash that orders the groups of a unit.
    tag
        The hash that chooses the rows of a unit in a group.
    value
        The hash by which distinct values are counted.
    """
    return _Builder(rows, schema, request, order, tag, value).build()


@dataclass
class _Branch:
    """One part of the answer: its keys and its integers."""

    source: str
    integers: list[str]
    keys: bool = True
    rest: str = ""


@dataclass
class _Runs:
    """Columns of the runs, each text once."""

    columns: dict[str, str] = field(default_factory=dict)

    def name(self, text: str, letter: str) -> str:
        return self.columns.setdefault(text, f"{letter}{len(self.columns)}")


class _Builder:
    def __init__(
        self, rows: RowsText, schema: pl.Schema, request: BoundedRequest, order: Hash, tag: Hash, value: Hash
    ) -> None:
        self._rows, self._schema, self._request = rows, schema, request
        self._order, self._tag, self._value = order, tag, value
        self._units = [f"u{i}" for i in range(request.units)]
        self._keys = [f"k{i}" for i in range(request.keys)]
        self._numbers: list[list[str]] = []
        start = 0
        for lane in request.lanes:
            self._numbers.append([f"n{start + i}" for i in range(len(lane.columns))])
            start += len(lane.columns)
        needed = {frozenset(map(self._there, lane.columns)) for lane in request.lanes if not lane.everyone}
        alike = len(needed) == 1 and all(lane.columns and not lane.everyone for lane in request.lanes)
        self._needed = needed.pop() if alike else frozenset()
        """What must be there for all lanes alike. Other rows are dropped first, so no lane has to look at them."""
        self._ctes: list[tuple[str, str]] = list(rows.named.tables.items())
        self._unit_columns: dict[str, str] = {}
        self._public = dict(rows.public)

    def build(self) -> Statement:
        self._base()
        branches, sums, runs = self._sums() if self._units else self._rows_as_units()
        names: list[str] = []
        for place, lane in enumerate(self._request.lanes):
            if lane.cells is not None:
                branches.append(self._cells(place, lane, lane.cells))
                names.append(lane.cells.name)
            for profile in lane.profiles:
                branches.append(self._profile(place, lane, profile))
                names.append(profile.name)
        width = max(len(one.integers) for one in branches)
        parts = [self._part(number, one, width) for number, one in enumerate(branches)]
        text = with_tables(dict(self._ctes), " UNION ALL ".join(parts))
        return Statement(text, self._public, tuple(sums), tuple(runs), tuple(names))

    def _part(self, number: int, branch: _Branch, width: int) -> str:
        none = [f"CAST(NULL AS {stored_type(self._schema[f'key{i}'])})" for i in range(len(self._keys))]
        keys = [f"{own if branch.keys else no} AS {own}" for own, no in zip(self._keys, none, strict=True)]
        filled = [*branch.integers, *["0L"] * (width - len(branch.integers))]
        integers = [f"{text} AS x{place}" for place, text in enumerate(filled)]
        return f"SELECT {', '.join([f'{number}L AS part', *keys, *integers])} FROM {branch.source}{branch.rest}"  # noqa: S608

    # ------------------------------------------------------------------ rows as integers

    def _base(self) -> None:
        columns = []
        for name, own in [
            *zip(self._unit_names, self._units, strict=True),
            *zip(self._key_names, self._keys, strict=True),
        ]:
            columns.append(f"{one_form(self._rows.columns[name], self._schema[name])} AS {own}")
        stages: list[list[str]] = []
        for lane, names in zip(self._request.lanes, self._numbers, strict=True):
            for column, own in zip(lane.columns, names, strict=True):
                *inner, last = self._code(column, own)
                for place, (name, code) in enumerate(inner):
                    stages += [[]] if place == len(stages) else []
                    stages[place].append(f"{code} AS {name}")
                columns.append(f"{last[1]} AS {own}")
        text = self._rows.text
        for stage in stages:
            text = f"SELECT *, {', '.join(stage)} FROM ({text})"  # noqa: S608
        text = f"SELECT {', '.join([*columns, 'here'])} FROM ({text})"  # noqa: S608
        # Conditions on the columns that are read. Servers repeat the text of a computed column in each condition on it.
        there = [f"{self._rows.columns[name]} IS NOT NULL" for name in self._unit_names] + sorted(self._needed)
        text += f" WHERE {' AND '.join(there)}" if there else ""
        domain = self._request.domain
        if domain is not None and self._keys:
            shown = [_one_zero(domain[name]).alias(f"d{i}") for i, name in enumerate(self._key_names)]
            self._public["domain"] = pl.DataFrame(shown)
            on = " AND ".join(f"b.{own} <=> d.d{i}" for i, own in enumerate(self._keys))
            text = f"SELECT b.* FROM ({text}) b LEFT SEMI JOIN {{domain}} d ON {on}"  # noqa: S608
        self._ctes.append(("base", text))

    @property
    def _unit_names(self) -> list[str]:
        return [f"unit{i}" for i in range(self._request.units)]

    @property
    def _key_names(self) -> list[str]:
        return [f"key{i}" for i in range(self._request.keys)]

    def _there(self, column: ValueColumn) -> str:
        """Return the condition for a row to have a value."""
        own, dtype = self._rows.columns[column.name], self._schema[column.name]
        if column.kind == "bin":
            number, edges = _number(own, dtype), _edges(column, dtype)
            return f"{number} >= {edges[0]} AND {number} <= {edges[-1]}"
        return f"{own} <= {literal(math.inf, DOUBLE)}" if dtype.is_float() else f"{own} IS NOT NULL"

    def _code(self, column: ValueColumn, name: str) -> list[tuple[str, str]]:
        """Return a value as an integer in [low, high], or null if it is missing, as columns of nested SELECTs."""
        own, dtype = self._rows.columns[column.name], self._schema[column.name]
        inner: list[tuple[str, str]] = []
        if column.kind == "presence":
            code = "0L"
        elif column.kind == "hash":
            code = f"{self._value([one_form(own, dtype), self._per_row])} & {(1 << HASH_BITS) - 1}L"
        elif column.kind == "bin":
            code = _bin(_number(own, dtype), _edges(column, dtype))
        elif dtype.is_float():
            *inner, (_, code) = _float_steps(own, column, name)
        else:
            code = _integer_steps(_number(own, dtype), column, dtype)
        return [*inner, (name, code if self._needed else f"CASE WHEN {self._there(column)} THEN {code} END")]

    @property
    def _per_row(self) -> str:
        """A condition that is false in each row, for hashes. See `types.false_in_each_row`."""
        if not self._units:
            return "here"
        return false_in_each_row(self._rows.columns["unit0"], stored_type(self._schema["unit0"]) or BIGINT)

    # ------------------------------------------------------------------ sums of runs

    def _member(self, place: int) -> str | None:
        """Return the condition for a row to be part of a lane; None means all rows."""
        lane, names = self._request.lanes[place], self._numbers[place]
        return None if lane.everyone or not names or self._needed else _all_there(names)

    def _present(self, place: int) -> str | None:
        """Return the condition for a row to have a value in a lane; None means all rows."""
        names = self._numbers[place]
        return _all_there(names) if names and not self._needed else None

    def _sums(self) -> tuple[list[_Branch], list[SumParts], list[str]]:
        request = self._request
        runs = _Runs()
        counted = [
            (runs.name(_count(self._member(i)), "a"), runs.name(_count(self._present(i)), "a"))
            for i in range(len(request.lanes))
        ]
        stages: list[dict[str, str]] = [{}, {}, {}, {}]  # columns of four SELECTs, one inside the other
        members = [f"{counted[i][0]} > 0" if self._member(i) is not None else None for i in range(len(request.lanes))]
        kept = self._ranks(members)
        integers: dict[str, str] = {}
        sums, run_columns = [], []

        def column(text: str) -> str:
            return integers.setdefault(text, f"x{len(integers)}")

        once = kept[0] if len(set(kept)) == 1 else None  # then one filter serves all sums
        for place, lane in enumerate(request.lanes):
            mine = kept[place] if once is None else None
            run_columns.append(column(_total("1L", mine)))
            for group_sum in lane.sums:
                rows = counted[place][0 if group_sum.everyone else 1]
                everywhere, kept_column = self._everywhere(rows, kept[place]), partial(_kept_column, column, mine)
                sums.append(self._sum(group_sum, place, lane, rows, everywhere, runs, stages, kept_column))
        grouped = ", ".join([*self._units, *self._keys])
        listed = ", ".join([grouped, *(f"{text} AS {name}" for text, name in runs.columns.items())])
        self._ctes.append(("runs", f"SELECT {listed} FROM base GROUP BY {grouped}"))  # noqa: S608
        source = "runs"
        if self._rank_columns:
            by_order = all(member is None for member in members)  # other windows order by membership first
            self._ctes.append(("ordered", self._in_order(source, sort=by_order)))
            ranks = ", ".join(f"{text} AS {name}" for name, text in self._rank_columns.items())
            self._ctes.append(("ranked", f"SELECT *, {ranks} FROM ordered"))  # noqa: S608
            source = "ranked"
        if self._unit_columns:
            windows = ", ".join(f"{text} AS {name}" for text, name in self._unit_columns.items())
            source = f"(SELECT *, {windows} FROM {source})"  # noqa: S608
        if kept and all(kept):
            source = f"(SELECT * FROM {source} WHERE {' OR '.join(dict.fromkeys(f'({one})' for one in kept if one))})"  # noqa: S608
        for stage in stages:
            if stage:
                source = f"(SELECT *, {', '.join(f'{text} AS {name}' for text, name in stage.items())} FROM {source})"  # noqa: S608
        branch = _Branch(source, list(integers))
        if self._keys:
            branch.rest = f" GROUP BY {', '.join(self._keys)}"
        return [branch], sums, run_columns

    @property
    def _partition(self) -> str:
        """The columns that windows over ordered rows partition by: the unit, after the hash that rows are sorted by."""
        return ", ".join(["h", *self._units])

    def _in_order(self, source: str, *, sort: bool = True) -> str:
        """Return the text of runs or rows with the order `o` of the groups of their unit, and a hash `h` of the unit.

        A window over `_partition` sorts by several columns, for which Apache Spark has a merge sort. Its comparisons
        within a unit are slow, and by itself the window takes more than a third of a question. For a single integer,
        Spark has a radix sort. So rows are first sorted by some bits of both hashes, and the merge sort finds them
        almost in order. `sort` is False if windows order by something else first. Sail ignores SORT BY.

        The rows of a unit are brought together before the hashes are computed, because hashes would double the bytes
        that are moved.
        """
        units = ", ".join(self._units)
        order = self._order([*self._units, *self._keys[: self._request.leading]])
        hashes = f"{self._order(self._units)} & {(1 << _SORTED_BITS) - 1}L AS h, {order} AS o"
        text = f"SELECT *, {hashes} FROM (SELECT /*+ REPARTITION({units}) */ * FROM {source})"  # noqa: S608
        if not sort:
            return text
        first = f"h * {1 << _SORTED_BITS}L + {call('shiftright', 'o', str(64 - _SORTED_BITS))}"
        return f"SELECT * FROM ({text}) SORT BY {first}"  # noqa: S608

    def _ranks(self, members: Sequence[str | None]) -> list[str | None]:
        """Return, for each lane, the condition for a run to be kept; None means that all are."""
        self._rank_columns: dict[str, str] = {}
        if self._request.max_groups is None:
            return list(members)
        by, keys = self._partition, self._keys[: self._request.leading]
        names: dict[str | None, str] = {}
        kept: list[str | None] = []
        for member in members:
            first = [] if member is None else [f"CASE WHEN {member} THEN 0 ELSE 1 END"]
            if member not in names:
                names[member] = f"r{len(names)}"
                # With all keys, no two runs of a unit have the same place. Numbers are then cheaper than ranks.
                kind = call("row_number" if len(keys) == len(self._keys) else "dense_rank")
                place = f"{kind} OVER (PARTITION BY {by} ORDER BY {', '.join([*first, 'o', *keys])})"
                self._rank_columns[names[member]] = place
            inside = f"{names[member]} <= {min(self._request.max_groups, _MOST_RANK)}"
            kept.append(inside if member is None else f"{member} AND {inside}")
        return kept

    def _sum(
        self,
        group_sum: GroupSum,
        place: int,
        lane: Lane,
        rows: str,
        everywhere: Callable[[], str],
        runs: _Runs,
        stages: Sequence[dict[str, str]],
        column: Callable[[str], str],
    ) -> SumParts:
        """Return how a sum is put together. Its columns are added to the runs, to the stages and to the answer.

        `everywhere` adds the column with a unit's rows in all groups that it keeps, and returns its name.
        """
        cap = None if group_sum.max_rows is None or group_sum.max_rows >= _MOST_ROWS else group_sum.max_rows
        if group_sum.of == "rows" and group_sum.across and cap is not None:
            name = stages[3].setdefault(
                _scaled_across(group_sum, rows, everywhere(), cap, stages), f"z{len(stages[3])}"
            )
            return SumParts(group_sum.name, ((column(name), 1),), None)
        if group_sum.of == "rows":
            return SumParts(group_sum.name, ((column(_at_most(rows, cap)), 1),), None)
        if group_sum.of == "units":
            everyone = self._present(place) is None
            return SumParts(
                group_sum.name, ((column("1L" if everyone else f"CASE WHEN {rows} > 0 THEN 1L ELSE 0L END"), 1),), None
            )
        if group_sum.of == "over":
            over = f"{everywhere()} > {cap}L AND {rows} > 0" if group_sum.across else f"{rows} > {cap}L"
            text = "0L" if cap is None else f"CASE WHEN {over} THEN 1L ELSE 0L END"
            return SumParts(group_sum.name, ((column(text), 1),), None)
        number, largest = _row_number(group_sum, lane, self._numbers[place])
        present = self._present(place)
        if group_sum.of == "basis" and (group_sum.place, group_sum.degree) == (0, 1) and largest.bit_length() <= LIMB:
            # The two numbers of a row add up to `largest`, so one of their sums is known from the other.
            other, _ = _row_number(replace(group_sum, place=1), lane, self._numbers[place])
            known = f"{largest}L * {_count(present)} - {_total(other, present)}"
            limbs = [(runs.name(known, "a"), 0)]
        else:
            cut = _limbs(number, largest.bit_length())
            limbs = [(runs.name(_total(limb, present), "a"), shift) for limb, shift in cut]
        shortened = group_sum.inner - group_sum.fine
        if cap is None and group_sum.clip is None:
            parts = [(column(name), 1 << (shift + group_sum.inner)) for name, shift in limbs]
            parts += [(column(rows), group_sum.shift << group_sum.inner)] if group_sum.shift else []
            return SumParts(group_sum.name, tuple(parts), shortened)
        if group_sum.clip is not None:
            term, bound = _clipped(limbs, *group_sum.clip), max(map(abs, group_sum.clip))
        else:
            bound = (largest + abs(group_sum.shift)) * (cap or 0) << group_sum.inner
            if group_sum.across:
                term = _scaled_across(group_sum, self._shifted(group_sum, limbs, rows), everywhere(), cap or 0, stages)
            else:
                term = self._scaled(group_sum, limbs, rows, cap or 0, stages)
        name = stages[3].setdefault(term, f"z{len(stages[3])}")
        parts = [(column(limb), 1 << shift) for limb, shift in _limbs(name, bound.bit_length())]
        return SumParts(group_sum.name, tuple(parts), shortened)

    def _scaled(
        self,
        group_sum: GroupSum,
        limbs: Sequence[tuple[str, int]],
        rows: str,
        cap: int,
        stages: Sequence[dict[str, str]],
    ) -> str:
        """Return total * min(1, cap / rows) in steps of 2**-inner, to the nearest, ties to even, plus the shift."""
        over = f"{rows} > {cap}L"
        total = " + ".join(name if not shift else f"{name} * {1 << shift}L" for name, shift in limbs)
        wide = stages[0].setdefault(f"CASE WHEN {over} THEN {_wide_total(limbs)} END", f"w{len(stages[0])}")
        # The numerator without its sign: rounding is symmetric, and SQL divides towards zero.
        factor = literal(cap << group_sum.inner, WIDE)
        size = f"CASE WHEN {wide} < 0 THEN {literal(0, WIDE)} - {wide} ELSE {wide} END"
        numerator = f"CASE WHEN {over} THEN ({size}) * {factor} END"
        top = stages[1].setdefault(numerator, f"y{len(stages[1])}")
        whole = f"CASE WHEN {over} THEN {top} div {rows} END"
        quotient = stages[2].setdefault(whole, f"q{len(stages[2])}")
        rest = f"({top} - CAST({quotient} AS {WIDE}) * CAST({rows} AS {WIDE}))"
        up = f"CASE WHEN {rest} * 2 + ({quotient} & 1L) > CAST({rows} AS {WIDE}) THEN 1L ELSE 0L END"
        sign = f"CASE WHEN {wide} < 0 THEN CAST('-1' AS BIGINT) ELSE 1L END"
        scaled = f"CASE WHEN {over} THEN ({quotient} + {up}) * {sign} ELSE ({total}) * {1 << group_sum.inner}L END"
        if not group_sum.shift:
            return scaled
        return f"{scaled} + {literal(group_sum.shift << group_sum.inner, BIGINT)} * {_at_most(rows, cap)}"

    @staticmethod
    def _shifted(group_sum: GroupSum, limbs: Sequence[tuple[str, int]], rows: str) -> str:
        """Return the sum of a run with its shift, as a wide number."""
        shifted = f" + {literal(group_sum.shift, WIDE)} * CAST({rows} AS {WIDE})" if group_sum.shift else ""
        return _wide_total(limbs) + shifted

    def _everywhere(self, rows: str, kept: str | None) -> Callable[[], str]:
        """Return a function that adds the column with a unit's rows in all kept groups, and returns its name."""

        def added() -> str:
            capped = kept is not None and self._request.max_groups is not None
            number = f"CASE WHEN {kept} THEN {rows} ELSE 0L END" if capped else rows
            by = self._partition if self._rank_columns else ", ".join(self._units)
            text = f"{call('sum', number)} OVER (PARTITION BY {by})"
            return self._unit_columns.setdefault(text, f"t{len(self._unit_columns)}")

        return added

    def _rows_as_units(self) -> tuple[list[_Branch], list[SumParts], list[str]]:
        """Return the sums if every row is a unit of its own: no cap can bind, so groups are summed at once."""
        integers: dict[str, str] = {}
        sums, run_columns = [], []

        def column(text: str) -> str:
            return integers.setdefault(text, f"x{len(integers)}")

        for place, lane in enumerate(self._request.lanes):
            member, present = self._member(place), self._present(place)
            run_columns.append(column(_count(member)))
            for one in lane.sums:
                rows = column(_count(member if one.everyone else present))
                if one.of in ("rows", "units", "over"):
                    sums.append(SumParts(one.name, () if one.of == "over" else ((rows, 1),), None))
                    continue
                number, largest = _row_number(one, lane, self._numbers[place])
                if one.clip is not None:
                    number, largest = _clip(number, *one.clip, BIGINT), max(map(abs, one.clip))
                parts = [
                    (column(_total(limb, present)), 1 << shift) for limb, shift in _limbs(number, largest.bit_length())
                ]
                parts += [(rows, one.shift)] if one.shift else []
                sums.append(SumParts(one.name, tuple(parts), 0))
        members = [self._member(place) for place in range(len(self._request.lanes))]
        source = "base"
        if all(members):
            source = f"(SELECT * FROM base WHERE {' OR '.join(dict.fromkeys(f'({one})' for one in members if one))})"  # noqa: S608
        rest = f" GROUP BY {', '.join(self._keys)}" if self._keys else ""
        return [_Branch(source, list(integers), rest=rest)], sums, run_columns

    # ------------------------------------------------------------------ cells and profiles

    def _cells(self, place: int, lane: Lane, cells: Cells) -> _Branch:
        """Return the counts of the values that units keep in each group."""
        number = self._numbers[place][0]
        member = self._member(place)
        units, keys = self._units, self._keys
        each = [*units, *keys, number]
        by_row = cells.max_rows is not None and not cells.distinct and bool(units)
        where = f" WHERE {member}" if member else ""
        if by_row:
            source = f"SELECT {', '.join(each)}, 1L AS c FROM base{where}"  # noqa: S608
        else:
            source = f"SELECT {', '.join(each)}, {call('count', '*')} AS c FROM base{where} GROUP BY {', '.join(each)}"  # noqa: S608
        if units and self._request.max_groups is not None:
            leading = keys[: self._request.leading]
            rank = f"{call('dense_rank')} OVER (PARTITION BY {self._partition} ORDER BY {', '.join(['o', *leading])})"
            most = min(self._request.max_groups, _MOST_RANK)
            source = f"SELECT * FROM (SELECT *, {rank} AS r FROM ({self._in_order(f'({source})')})) WHERE r <= {most}"  # noqa: S608
        if not cells.missing and member is None and not self._needed:
            source = f"SELECT * FROM ({source}) WHERE {number} IS NOT NULL"  # noqa: S608
        if units and cells.max_rows is not None:
            repeat = "0L"
            if by_row:
                equal = f"{call('row_number')} OVER (PARTITION BY {', '.join(each)} ORDER BY {number})"
                source, repeat = f"SELECT *, CAST({equal} AS BIGINT) AS i FROM ({source})", "i"  # noqa: S608
            tag = f"SELECT *, {self._tag([*each, repeat])} AS g FROM ({source})"  # noqa: S608
            ties = [number, "i"] if by_row else [number]
            if cells.across:
                ties = [*keys, *ties]
            by, places = ", ".join(units if cells.across else [*units, *keys]), ", ".join(["g", *ties])
            first = f"{call('row_number')} OVER (PARTITION BY {by} ORDER BY {places})"
            most = min(cells.max_rows, _MOST_RANK)
            source = f"SELECT * FROM (SELECT *, {first} AS f FROM ({tag})) WHERE f <= {most}"  # noqa: S608
        value = f"CASE WHEN {number} IS NULL THEN {literal(lane.columns[0].low - 1, BIGINT)} ELSE {number} END"
        count = call("sum", "1L" if cells.distinct else "c")
        return _Branch(f"({source})", [value, count], rest=f" GROUP BY {', '.join([*keys, number])}")

    def _profile(self, place: int, lane: Lane, profile: Profile) -> _Branch:
        """Return how many units have each number of groups, or of rows in the first of their groups or in all."""
        rows = _count(self._member(place))
        grouped = ", ".join([*self._units, *self._keys])
        runs = f"SELECT {grouped}, {rows} AS c FROM base GROUP BY {grouped}"  # noqa: S608
        runs = f"SELECT * FROM ({runs}) WHERE c > 0"  # noqa: S608
        units = ", ".join(self._units)
        if profile.of == "groups":
            numbers = f"SELECT {call('count', '*')} AS c FROM ({runs}) GROUP BY {units}"  # noqa: S608
        elif profile.of == "all rows":
            numbers = f"SELECT {call('sum', 'c')} AS c FROM ({runs}) GROUP BY {units}"  # noqa: S608
        else:
            by, places = self._partition, ", ".join(["o", *self._keys])
            first = f"{call('row_number')} OVER (PARTITION BY {by} ORDER BY {places})"
            numbers = f"SELECT c FROM (SELECT *, {first} AS f FROM ({self._in_order(f'({runs})')})) WHERE f = 1"  # noqa: S608
        value = f"SELECT {_at_most('c', profile.most)} AS v FROM ({numbers})"  # noqa: S608
        return _Branch(f"({value})", ["v", call("count", "*")], keys=False, rest=" GROUP BY v")


# ---------------------------------------------------------------------- texts of numbers


def _scaled_across(group_sum: GroupSum, total: str, everywhere: str, cap: int, stages: Sequence[dict[str, str]]) -> str:
    """Return total * min(1, cap / rows of the unit in all groups) in steps of 2**-inner, rounded towards 0.

    `bounding.sums.scaled_across` says why this bounds what a unit adds. SQL divides towards 0.
    """
    wide = stages[0].setdefault(f"CAST({total} AS {WIDE})", f"w{len(stages[0])}")
    factor = literal(cap << group_sum.inner, WIDE)
    top = stages[1].setdefault(f"CASE WHEN {everywhere} > {cap}L THEN {wide} * {factor} END", f"y{len(stages[1])}")
    within = f"CAST({wide} * {literal(1 << group_sum.inner, WIDE)} AS BIGINT)"
    # Each branch is computed only where its numbers fit: a total beyond the cap may have too many bits.
    return f"CASE WHEN {everywhere} > {cap}L THEN {top} div {everywhere} ELSE {within} END"


def _all_there(names: Sequence[str]) -> str:
    return " AND ".join(f"{name} IS NOT NULL" for name in names)


def _kept_column(column: Callable[[str], str], kept: str | None, text: str) -> str:
    return column(_total(text, kept))


def _one_zero(column: pl.Series) -> pl.Series:
    return column + 0.0 if column.dtype.is_float() else column


def _count(condition: str | None) -> str:
    return call("count", "*") if condition is None else call("count", f"CASE WHEN {condition} THEN 1L END")


def _total(number: str, condition: str | None) -> str:
    """Return the sum of a number over the rows for which a condition is true. It is 0 if there are none."""
    summed = call("sum", number if condition is None else f"CASE WHEN {condition} THEN {number} ELSE 0L END")
    return call("coalesce", summed, "0L")


def _at_most(number: str, most: int | None) -> str:
    return number if most is None else f"CASE WHEN {number} > {most}L THEN {most}L ELSE {number} END"


def _clip(number: str, low: int, high: int, stored: str) -> str:
    least, most = literal(low, stored), literal(high, stored)
    return f"CASE WHEN {number} < {least} THEN {least} WHEN {number} > {most} THEN {most} ELSE {number} END"


def _limbs(number: str, bits: int) -> list[tuple[str, int]]:
    """Return the limbs of a number of at most `bits` bits and a sign, each with the place of its lowest bit."""
    if bits <= LIMB:
        return [(number, 0)]
    mask = f"{(1 << LIMB) - 1}L"
    found = [(f"({number} & {mask})", 0)]
    if bits > 2 * LIMB:
        found.append((f"({call('shiftright', number, str(LIMB))} & {mask})", LIMB))
    shift = LIMB * len(found)
    return [*found, (call("shiftright", number, str(shift)), shift)]


def _wide_total(limbs: Sequence[tuple[str, int]]) -> str:
    terms = [
        f"CAST({name} AS {WIDE}) * {literal(1 << shift, WIDE)}" if shift else f"CAST({name} AS {WIDE})"
        for name, shift in limbs
    ]
    return f"({' + '.join(terms)})"


def _clipped(limbs: Sequence[tuple[str, int]], low: int, high: int) -> str:
    return f"CAST({_clip(_wide_total(limbs), low, high, WIDE)} AS BIGINT)"


def _row_number(group_sum: GroupSum, lane: Lane, names: Sequence[str]) -> tuple[str, int]:
    """Return the number of a row that is summed, and a bound on its absolute value."""
    if group_sum.of == "basis":
        column = lane.columns[0]
        whole = column.high - column.low
        up, down = f"({names[0]} - {literal(column.low, BIGINT)})", f"({literal(column.high, BIGINT)} - {names[0]})"
        factors = [up] * group_sum.place + [down] * (group_sum.degree - group_sum.place)
        return " * ".join([f"{math.comb(group_sum.degree, group_sum.place)}L", *factors]), whole**group_sum.degree
    largest = 1
    for letter in group_sum.of:
        column = lane.columns["xy".index(letter)]
        largest *= max(abs(column.low), abs(column.high))
    return " * ".join(names["xy".index(letter)] for letter in group_sum.of), largest


def _number(own: str, dtype: pl.DataType) -> str:
    return f"CASE WHEN {own} THEN 1L ELSE 0L END" if stored_type(dtype) == BOOLEAN else own


def _float_steps(own: str, column: ValueColumn, name: str) -> list[tuple[str, str]]:
    """Return the steps of a float, rounded to the nearest, ties to even, and clipped.

    They are columns of SELECTs, each inside the next. Written as one text, they would repeat each other many times.
    """
    low, high = max(column.low, -LIMIT), min(column.high, LIMIT)
    number = f"({own} - {literal(float(column.offset), DOUBLE)})" if column.offset else own
    if column.exponent:
        number = f"({number} * {literal(2.0**-column.exponent, DOUBLE)})"
    # Clipping to whole numbers first changes nothing, and keeps what is rounded within 64 bits.
    least, most = literal(float(low), DOUBLE), literal(float(high), DOUBLE)
    inside = call("least", call("greatest", number, least), most)
    if max(-low, high) <= _MOST_ROUNDED:
        # Adding this constant leaves no bits for fractions, so the addition itself rounds, ties to even.
        shift = literal(3.0 * _MOST_ROUNDED, DOUBLE)
        return [(name, f"CAST(({inside} + {shift}) - {shift} AS BIGINT)")]
    clipped, down, whole = (f"{name}_{stage}" for stage in ("inside", "down", "whole"))
    there = f"CASE WHEN {own} <= {literal(math.inf, DOUBLE)} THEN {inside} END"
    part, half = f"({clipped} - CAST({down} AS DOUBLE))", literal(0.5, DOUBLE)
    up = f"CASE WHEN {part} > {half} OR ({part} = {half} AND ({down} & 1L) = 1L) THEN 1L ELSE 0L END"
    return [
        (clipped, there),
        (down, call("floor", clipped)),
        (whole, f"{down} + {up}"),
        (name, _clip(whole, low, high, BIGINT)),
    ]


def _integer_steps(number: str, column: ValueColumn, dtype: pl.DataType) -> str:
    """Return the steps of an integer, rounded down and clipped."""
    offset, exponent = int(column.offset), max(column.exponent, 0)
    low, high = (column.low << exponent) + offset, ((column.high + 1) << exponent) - 1 + offset
    wide = stored_type(dtype) == WIDE
    if not wide and (low > MOST or high < LEAST):  # all integers of 64 bits are on the same side of the bounds
        return literal(column.low if low > MOST else column.high, BIGINT)
    low, high = max(low, LEAST), min(high, MOST)
    number = _clip(number, low, high, WIDE if wide else BIGINT)
    if low - offset >= LEAST and high - offset <= MOST:
        number = f"CAST({number} AS BIGINT)" if wide else number
        moved = f"({number} - {literal(offset, BIGINT)})" if offset else f"({number})"
        return call("shiftright", moved, str(exponent)) if exponent else moved
    moved, step = f"(CAST({number} AS {WIDE}) - {literal(offset, WIDE)})", literal(1 << exponent, WIDE)
    down = f"0L - ({step} - 1 - {moved}) div {step}"
    return f"CASE WHEN {moved} < 0 THEN {down} ELSE {moved} div {step} END"


def _edges(column: ValueColumn, dtype: pl.DataType) -> list[str]:
    stored = DOUBLE if dtype.is_float() else stored_type(dtype) or BIGINT
    stored = BIGINT if stored == BOOLEAN else stored
    return [literal(edge if dtype.is_float() else int(edge), stored) for edge in column.edges]


def _bin(number: str, edges: Sequence[str]) -> str:
    """Return the bin of a number inside all bins, by a binary search."""

    def search(first: int, last: int) -> str:
        if first == last:
            return f"{first}L"
        middle = (first + last + 1) // 2
        return f"CASE WHEN {number} < {edges[middle]} THEN {search(first, middle - 1)} ELSE {search(middle, last)} END"

    return search(0, len(edges) - 2)
