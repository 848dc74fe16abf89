"""The Polars engine, and how it runs a bounded aggregation: rows become integers, and `bounding` sums them up."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from dp_polars._engines.base import Snapshot
from dp_polars._engines.bounding import CodedRows, GroupCap, LaneBounding, LaneResult
from dp_polars._engines.bounding.blocks import AnyWords, Numbers
from dp_polars._engines.bounding.lane import needs_order
from dp_polars._engines.polars.codes import (
    Codes,
    HashCollisionError,
    Salts,
    Seen,
    Words,
    codes_of,
    domain_codes,
    hash_name,
    hashed,
    is_enough,
    joined_codes,
    look_at,
    mixed,
)
from dp_polars._engines.polars.file_plans import plan_over_files
from dp_polars._engines.polars.group_order import GroupOrder, group_order, order_of
from dp_polars._engines.polars.growing_codes import GrowingCodes
from dp_polars._engines.polars.held_frame import HeldFrame
from dp_polars._engines.polars.kept_rows import kept_rows
from dp_polars._engines.polars.known_columns import KnownCodes, KnownPlaces, Ranges, known_columns
from dp_polars._engines.polars.program import Program, RowCountError
from dp_polars._engines.polars.read_once import read_once
from dp_polars._engines.polars.row_units import every_row_a_unit
from dp_polars._engines.polars.scan import (
    ComputedColumn,
    PolarsSource,
    Scan,
    collect,
    pass_over,
    pass_over_memory,
    polars_rows,
    read_rows,
    scan_rows,
    source_of,
    wider_rows,
    workers,
)
from dp_polars._engines.polars.sorted_rows import RowsShape, SortedRows, UnitSums
from dp_polars._engines.polars.unit_steps import without_unit_steps
from dp_polars._engines.polars.units import (
    IntegerUnits,
    UnitCoder,
    columns_to_look_at,
    combined,
    combined_words,
    is_one_integer,
    part_of_units,
    units_of,
)
from dp_polars._engines.polars.value_codes import codes_of_floats, one_form, value_codes
from dp_polars._engines.request import BoundedRequest, Exact, ValueColumn
from dp_polars._engines.rows import Lookup, PrivateRows, Source
from dp_polars._engines.unit_steps import UnitRows
from dp_polars._expressions.tree import Expression
from dp_polars._sampling import BitSource

_MOST_GROUPS = 1 << 40


class PolarsEngine:
    """The engine that runs Polars plans. See `_engines.base.Engine` for what each method does."""

    def reads(self, source: Source) -> bool:
        """Return whether a source is a Polars plan, or a unit-wise step over such plans."""
        if isinstance(source, UnitRows):
            return all(self.reads(one.source) for one in source.inputs)
        return isinstance(source, PolarsSource)

    def aggregate(self, rows: PrivateRows, request: BoundedRequest, *, parts: int = 1) -> Exact:
        """Return the exact bounded aggregates of rows."""
        return run_bounded(without_unit_steps(rows, parts), request, parts=parts)

    def read(
        self, rows: PrivateRows, *, columns: Sequence[str] | None = None, select: Sequence[pl.Expr] | None = None
    ) -> pl.DataFrame:
        """Return all rows in memory."""
        return read_rows(without_unit_steps(rows), columns, select)

    def snapshot(
        self,
        rows: PrivateRows,
        units: Sequence[str],
        bits: BitSource,
        *,
        max_rows: int | None,
        keys: Sequence[str] = (),
        max_groups: int | None = None,
    ) -> Snapshot:
        """Return all rows in memory, and mark those that each unit keeps."""
        frame = read_rows(without_unit_steps(rows))
        return Snapshot(frame, kept_rows(frame, units, bits, max_rows=max_rows, keys=keys, max_groups=max_groups))

    def problem(self, expressions: Sequence[Expression], public: pl.DataFrame) -> str | None:
        """Return why expressions fail on public rows, or None if they do not fail."""
        return Program(expressions).problem(public)

    def identify(self, origin: object) -> bytes | None:
        """Return what identifies the files that a lazy frame reads."""
        return plan_over_files(origin) if isinstance(origin, pl.LazyFrame) else None


def run_bounded(rows: PrivateRows | pl.LazyFrame, request: BoundedRequest, *, parts: int = 1) -> Exact:
    """Return the exact bounded aggregates of rows with the columns that the request names.

    With several `parts`, the source is read once per part, and only the rows of some of the units are held at a time.
    Each unit belongs to one part as a whole, so its caps bind there as they do among all rows. The contributions of
    units are added up before anything is rounded, so the answer is the same.
    """
    if parts < 1:
        raise ValueError("rows are bounded in one part or more")
    # Salts are drawn once, before any row is read, so that nothing that depends on data chooses them.
    salts = Salts(lambda: secrets.randbits(64))
    source = rows if isinstance(rows, PrivateRows) else polars_rows(rows)
    if request.units == 0:
        scan = scan_rows(source)
        scan.begin()
        answer = every_row_a_unit(_with_numbers(_in_one_form(scan.frame), request, salts), request)
        # Each lane takes one pass for its sums, and one for its cells if it has any.
        scan.check_passes(sum(1 + (lane.cells is not None) for lane in request.lanes))
        return answer
    keys, units = key_names(request), unit_names(request)
    coded, codes, ranges = known_columns(source, keys, units)
    if math.prod(code.size for code in codes.values()) > _MOST_GROUPS:  # groups are numbered by their values instead
        coded, codes = source, {}
    reading = _RowReading.of(coded, request, salts, codes, ranges)
    texts = [name for name in keys if GrowingCodes.suit(source.schema[name]) and name not in codes]
    if parts == 1 and (texts or source_of(source).held is None):
        reading = reading.once(request, salts)
    try:
        return _run(reading, request, salts, joined=False, parts=parts)
    except HashCollisionError:
        return _run(_RowReading.of(source, request, salts, {}, ranges), request, salts, joined=True, parts=parts)


def key_names(request: BoundedRequest) -> list[str]:
    """Return the names of the key columns."""
    return [f"key{i}" for i in range(request.keys)]


def unit_names(request: BoundedRequest) -> list[str]:
    """Return the names of the unit columns."""
    return [f"unit{i}" for i in range(request.units)]


@dataclass(frozen=True, repr=False, eq=False)
class _RowReading:
    """Rows, a plan that reads them for a request, and what is known about their columns before they are read."""

    source: PrivateRows
    scan: Scan
    frame: pl.LazyFrame
    codes: Mapping[str, KnownCodes]
    """Keys that are replaced by their codes."""
    ranges: Ranges
    numbers: Sequence[pl.Expr]
    """The integers of values, as columns of the scan."""
    computed: Mapping[str, ComputedColumn]
    """The integers that a function computes from one column, by the names of their columns."""

    @classmethod
    def of(
        cls,
        source: PrivateRows,
        request: BoundedRequest,
        salts: Salts,
        codes: Mapping[str, KnownCodes],
        ranges: Ranges,
    ) -> _RowReading:
        scan = scan_rows(source)
        numbers = _numbers(scan.frame.collect_schema(), request, salts, short=True)
        frame = _with_numbers(_in_one_form(scan.frame), request, salts, short=True)
        return cls(source, scan, frame, codes, ranges, numbers, _computed(scan.frame.collect_schema(), request))

    def once(self, request: BoundedRequest, salts: Salts) -> _RowReading:
        """Return the same rows in memory if they are few enough and their texts can be replaced by codes."""
        keys, units = key_names(request), unit_names(request)
        numbers = [number_name(place) for place in range(len(_columns(request)))]
        plain = _in_one_form(self.scan.frame) is self.scan.frame
        computed = dict(zip(numbers, self.numbers, strict=True)) if plain else None
        waiting = read_once(self.frame, self.scan, keys, [*units, *numbers], salts, computed)
        if waiting is None:
            return self
        scan = scan_rows(waiting.rows)
        codes = {**self.codes, **waiting.codes}
        named = [name for name in (*keys, *units) if name not in codes]
        return _RowReading(waiting.rows, scan, scan.frame, codes, waiting.ranges(named), list(map(pl.col, numbers)), {})

    def in_memory(self, columns: Sequence[pl.Expr]) -> list[pl.Expr | ComputedColumn]:
        """Return these columns and the integers of values, in the form that `pass_over_memory` takes."""
        numbers = [self.computed.get(number_name(place), number) for place, number in enumerate(self.numbers)]
        return [*columns, *numbers]


def _in_one_form(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return rows whose float units and keys have a single zero and a single NaN, so that equal ones hash alike."""
    schema = frame.collect_schema()
    floats = [name for name in schema if schema[name].is_float() and name.startswith(("unit", "key"))]
    return frame.with_columns(one_form(pl.col(name), schema[name]).alias(name) for name in floats) if floats else frame


def _columns(request: BoundedRequest) -> list[ValueColumn]:
    """Return the value columns of all lanes, in order."""
    return [column for lane in request.lanes for column in lane.columns]


def number_name(place: int) -> str:
    """Return the name of the integers of a value column, by its place among the columns of all lanes."""
    return f"number{place}"


def _with_numbers(frame: pl.LazyFrame, request: BoundedRequest, salts: Salts, *, short: bool = False) -> pl.LazyFrame:
    """Replace values by integers. Lanes may use the same values in several ways."""
    numbers = _numbers(frame.collect_schema(), request, salts, short=short)
    return frame.with_columns(numbers).drop(sorted({column.name for column in _columns(request)})) if numbers else frame


def _numbers(schema: pl.Schema, request: BoundedRequest, salts: Salts, *, short: bool) -> list[pl.Expr]:
    """Return the integers of all value columns, with `short` as 32-bit integers where they fit."""
    return [
        value_codes(column, schema[column.name], salts.of(column.name), short=short).alias(number_name(place))
        for place, column in enumerate(_columns(request))
    ]


def _computed(schema: pl.Schema, request: BoundedRequest) -> dict[str, ComputedColumn]:
    """Return the integers that a function can compute from one column, by the names of their columns."""
    found = {}
    for place, column in enumerate(_columns(request)):
        function = codes_of_floats(column, schema[column.name], short=True)
        if function is not None:
            found[number_name(place)] = ComputedColumn(number_name(place), column.name, function)
    return found


def _first_look(
    source: PrivateRows,
    keys: Sequence[str],
    units: Sequence[str],
    schema: pl.Schema,
    salts: Salts,
    ranges: Ranges,
) -> dict[str, Seen]:
    """Look at the values of key and unit columns alone, so that no others are read, in one pass if possible.

    If rows are looked up in public ones, keys and units are looked at one after the other: `wider_rows` may spare one
    of the two the lookup. Columns whose ranges are known and enough are not looked at.
    """
    apart = any(isinstance(step, Lookup) for step in source.steps)
    exact = units if is_one_integer(units, schema) else ()
    known = {name: ranges[name]() for name in (*keys, *units) if name in ranges}
    seen = {name: found for name, found in known.items() if is_enough(found, name, exact)}
    keys, units = ([name for name in names if name not in seen] for names in (keys, units))
    for names in [keys, units] if apart else [[*keys, *units]]:
        if not names:
            continue
        narrow = _in_one_form(scan_rows(wider_rows(source, names), names).frame)
        types = narrow.collect_schema()
        if any(types[name] != schema[name] for name in names):  # these are not the columns that will be read
            raise RowCountError
        seen |= look_at(narrow, names, salts, only_ranges=exact)
    return seen


def _run(reading: _RowReading, request: BoundedRequest, salts: Salts, *, joined: bool, parts: int) -> Exact:
    keys, units_named, frame, scan = key_names(request), unit_names(request), reading.frame, reading.scan
    schema = frame.collect_schema()
    scan.begin()  # codes are found among all rows, once for all parts
    by_hash = request.hashed_units
    seen = None
    if not joined:
        discovered = [name for name in keys if request.domain is None and name not in reading.codes]
        units_seen = columns_to_look_at(units_named, schema, by_hash=by_hash)
        seen = _first_look(reading.source, discovered, units_seen, schema, salts, reading.ranges)
    codes: list[Codes]
    if request.domain is not None:
        frame, codes = _domain_codes(frame, request.domain, reading.codes, salts, joined=joined)
    elif seen is None:
        frame, codes = joined_codes(frame, keys, salts)
    else:
        codes = [reading.codes.get(name) or codes_of(name, schema[name], seen[name]) for name in keys]
    groups = math.prod(code.size for code in codes)
    if groups > _MOST_GROUPS and request.domain is None:
        if reading.codes:  # combinations of values are needed, not of codes
            raise HashCollisionError
        # There are too many combinations to number, so those that occur are numbered in the order of their values.
        found = collect(frame.select(keys).unique()).sort(keys)
        numbered = replace(request, domain=found)
        return _shown(_run(reading, numbered, salts, joined=True, parts=parts))
    frame, units = units_of(frame, units_named, salts, seen, by_hash=by_hash)
    cap = _cap_of(request, codes)
    order = None
    if any(needs_order(lane, request.max_groups) for lane in request.lanes):
        types = {**schema, **{name: code.dtype for name, code in reading.codes.items()}}
        order = group_order(units, codes, request, types, salts)
    lanes = [
        LaneBounding(
            lane,
            unit_bits=units.bits,
            groups=groups,
            cap=cap,
            salt=salts.of("cells"),
            workers=workers(),
            order=order,
            expected=scan.memory.height if scan.memory is not None and parts == 1 else 0,
        )
        for lane in request.lanes
    ]
    ordered = any(bounding.ordered for bounding in lanes)
    coder = _RowCoder(
        units,
        codes,
        units_named,
        keys[: request.leading] if ordered else None,
        {name: code.hashes(salts) for name, code in reading.codes.items()} if ordered and order is None else {},
        order=order if ordered else None,
        salts=salts,
        values=len(_columns(request)),
    )
    # Rows in memory are read from there unless a join or a single form of floats is part of the plan.
    memory = scan.memory if frame is reading.frame and _in_one_form(scan.frame) is scan.frame else None
    nulls = memory is None or any(memory[name].null_count() for name in units_named)
    columns = coder.columns(frame.collect_schema(), keys, nulls=nulls)

    heights: list[int] = []

    def add(batch: pl.DataFrame, first: int = 0) -> None:
        heights.append(batch.height)
        coded, start = coder(batch), 0
        if coded is None:
            return
        rows, values = coded
        if noted is not None and rows.keep is None and len(rows.unit) == batch.height:
            noted.add(first, rows.unit)
        for lane, bounding in zip(request.lanes, lanes, strict=True):
            bounding.add(rows, values[start : start + len(lane.columns)])
            start += len(lane.columns)

    held = source_of(reading.source).held
    shape = None
    if memory is not None and held is not None and parts == 1 and len(lanes) == 1 and lanes[0].is_unsalted:
        shape = _shape_of(units, codes, scan)
    if held is not None and shape is not None and (words := _words_before(held, shape, scan, units)) is not None:
        lanes[0].add_part(words)
        return _exact([lanes[0].finish()], codes, request)
    noted = UnitSums() if shape is not None else None
    for part in range(parts):
        heights.clear()
        scan.begin(part_of_units(units_named, schema, salts, part, parts) if parts > 1 else None)
        if memory is not None:
            pass_over_memory(scan, reading.in_memory(columns), add)
        else:
            pass_over(frame.select(*columns, *(pl.col(name) for name in coder.numbers)), add)
        scan.check(sum(heights))
        sorted_words = [bounding.end_part() for bounding in lanes]
        if held is not None and shape is not None and noted is not None and sorted_words[0] is not None:
            sorted_words[0].setflags(write=False)
            rows_in_order = SortedRows(shape, noted, sorted_words[0])
            held.keep_in_order(rows_in_order, rows_in_order.size)
        del sorted_words
    return _exact([bounding.finish() for bounding in lanes], codes, request)


def _shape_of(units: UnitCoder, codes: Sequence[Codes], scan: Scan) -> RowsShape | None:
    """Return what packed rows mean if they may be kept: units are integers, and keys have codes that are kept too."""
    known = [code.column for code in codes if isinstance(code, KnownCodes)]
    if not isinstance(units, IntegerUnits) or len(known) < len(codes) or scan.memory is None:
        return None
    return RowsShape(known, units.low, units.bits, scan.memory.height)


def _words_before(held: HeldFrame, shape: RowsShape, scan: Scan, units: UnitCoder) -> AnyWords | None:
    """Return the sorted rows of an earlier question if they are those of this one.

    All units are read again and compared, in a pass that is counted like any other.
    """
    found = held.in_order
    if not isinstance(found, SortedRows) or not found.shape.equals(shape):
        return None
    changed, heights = threading.Event(), []

    def compare(batch: pl.DataFrame, first: int) -> None:
        heights.append(batch.height)
        words, _, valid = units.words(batch)
        if batch["unit"].null_count() or valid is not None or not found.units.has(first, words):
            changed.set()

    scan.begin()
    pass_over_memory(scan, [form.alias(name) for name, form in units.columns().items()], compare)
    scan.check(sum(heights))
    return None if changed.is_set() else found.words


def _domain_codes(
    frame: pl.LazyFrame, domain: pl.DataFrame, known: Mapping[str, KnownCodes], salts: Salts, *, joined: bool
) -> tuple[pl.LazyFrame, list[Codes]]:
    """Return codes for the rows of a public domain, some of whose columns may be replaced by their codes."""
    if not known:
        return domain_codes(frame, domain, salts, joined=joined)
    schema = frame.collect_schema()
    if domain.width == 1:
        name = domain.columns[0]
        return frame, [KnownPlaces(known[name], domain[name])]
    # A value of the domain that does not occur has no code, and no row matches null.
    coded = [known[name].places_of(domain[name]).cast(schema[name]).alias(name) for name in known]
    return domain_codes(frame, domain.with_columns(coded), salts, joined=True)


def _cap_of(request: BoundedRequest, codes: Sequence[Codes]) -> GroupCap | None:
    """Return the cap on groups. Group numbers rise with the keys, so groups with equal first keys are adjacent."""
    if request.max_groups is None or request.leading == request.keys:
        return None if request.max_groups is None else GroupCap(request.max_groups)
    if request.domain is not None:
        names = [f"key{i}" for i in range(request.leading)]
        same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in names)
        numbers = request.domain.select((~same).cum_sum().cast(pl.Int64)).to_series().to_numpy()
        return GroupCap(request.max_groups, lambda group: numbers[group])
    inner = math.prod(code.size for code in codes[request.leading :])
    return GroupCap(request.max_groups, lambda group: group // inner)


class _RowCoder:
    """Turns batches of rows into integers: the rows that have a unit and a key of the domain, with their values.

    Several threads may use it at the same time. The `leading` keys determine the order in which a unit keeps its
    groups; they are None if no order is needed. `order` gives it if it can be computed from the numbers of units and
    groups; otherwise it is computed from hashes, of which `known` has those of keys that are replaced by their codes.
    """

    def __init__(
        self,
        units: UnitCoder,
        codes: Sequence[Codes],
        unit_names: Sequence[str],
        leading: Sequence[str] | None,
        known: Mapping[str, Words],
        *,
        order: GroupOrder | None,
        salts: Salts,
        values: int,
    ) -> None:
        self._salts, self._order = salts, order
        self._unit_hashes = units.hashes(salts) if isinstance(units, IntegerUnits) else None
        self._units, self._codes, self._unit_names, self._leading = units, codes, unit_names, leading
        self._known = {name: hashes for name, hashes in known.items() if name in (leading or ())}
        self.numbers = [number_name(place) for place in range(values)]

    def columns(self, schema: pl.Schema, key_names: Sequence[str], *, nulls: bool) -> list[pl.Expr]:
        """Return the columns that a batch must have, apart from numbers. `nulls` tells whether units may be null."""
        hashing = self._leading is not None and self._order is None
        columns = {
            **self._units.columns(),
            **{name: expr for code in self._codes for name, expr in code.columns().items()},
        }
        columns |= {f"{name}_code": pl.col(name) for name in self._known}
        by_hash = (hashing or self._units.by_hash) and self._unit_hashes is None
        wanted = list(self._unit_names) if by_hash else []
        wanted += [name for name in key_names if hashing or any(code.by_hash for code in self._codes)]
        hashes = [hashed(name, schema[name], self._salts) for name in wanted if name not in self._known]
        named = [expr.alias(name) for name, expr in columns.items()]
        if not nulls:
            return [*hashes, *named]
        missing = [pl.col(name).is_null() for name in self._unit_names]
        return [*hashes, *named, pl.any_horizontal(missing).alias("missing")]

    def __call__(self, whole: pl.DataFrame) -> tuple[CodedRows, list[Numbers]] | None:
        """Return the rows of a batch that take part, or None if there are none."""
        missing = "missing" in whole.columns and whole["missing"].any()
        batch = whole.filter(~whole["missing"]) if missing else whole
        if not batch.height:
            return None
        group, valid = mixed(self._codes, batch)
        unit, more, told_apart = self._units.words(batch)
        if told_apart is not None:
            valid = told_apart if valid is None else valid & told_apart
        order = None
        if self._order is not None:
            order = self._order.of_rows(unit, group)
        elif self._leading is not None:
            units = [hash_name(name) for name in self._unit_names]
            own = combined(batch, units) if self._unit_hashes is None else self._unit_hashes(unit)
            keys = [self._key_hashes(name, batch) for name in self._leading]
            order = order_of(own, combined_words(keys) if keys else None)
        return CodedRows(unit, more, order, group, None, valid), [batch[name].to_numpy() for name in self.numbers]

    def _key_hashes(self, name: str, batch: pl.DataFrame) -> Words:
        """Return the hash of each row's value in a key column."""
        known = self._known.get(name)
        return batch[hash_name(name)].to_numpy() if known is None else known.take(batch[f"{name}_code"].to_numpy())


def _exact(results: Sequence[LaneResult], codes: Sequence[Codes], request: BoundedRequest) -> Exact:
    """Return the sums of all lanes with their key values, and the cells with the rows that they belong to."""
    names, table = _side_by_side(results)
    if request.domain is not None:
        every = np.arange(request.domain.height)
        if len(names) < len(every):  # keys that nobody has are 0
            found = table.with_columns(name=pl.Series(names))
            numbered = pl.DataFrame({"name": every}).join(found, on="name", how="left", maintain_order="left")
            table = numbered.drop("name").fill_null(0)
        names, groups = every, request.domain.hstack(table)
    elif not codes:
        groups = table
    else:
        shown = np.flatnonzero(table["runs"].to_numpy() > 0)
        names, rest, columns = names[shown], names[shown], []
        for code in reversed(codes):
            rest, own = np.divmod(rest, code.size) if code.size else (rest, rest)
            columns.append(code.decode(own))
        kept = table if len(shown) == table.height else table[pl.Series(shown)] if len(shown) else table.clear()
        groups = pl.DataFrame(columns[::-1]).hstack(kept)
    cells = {}
    for result in results:
        for name, (group, values, counts) in result.cells.items():
            frame = pl.DataFrame({"value": values, "count": counts})
            if group is not None:
                frame = frame.with_columns(group=pl.Series(np.searchsorted(names, group), dtype=pl.Int64))
            cells[name] = frame
    return Exact(groups, cells)


def _side_by_side(results: Sequence[LaneResult]) -> tuple[Numbers, pl.DataFrame]:
    """Return the group numbers and the sums of all lanes. `runs` is 0 where no lane has a row."""
    names = results[0].names
    same = all(np.array_equal(result.names, names) for result in results[1:])
    if same:  # as where each possible group has a place, and there may be millions of them
        sums = {name: numbers for result in results for name, numbers in result.sums.items()}
        return names, pl.DataFrame({"runs": sum(result.runs for result in results), **sums})
    names = np.unique(np.concatenate([result.names for result in results]))
    columns: dict[str, Numbers] = {"runs": np.zeros(len(names), np.int64)}
    for result in results:
        places = np.searchsorted(names, result.names)
        columns["runs"][places] += result.runs
        for name, numbers in result.sums.items():
            columns[name] = np.zeros(len(names), np.int64)
            columns[name][places] = numbers
    return names, pl.DataFrame(columns)


def _shown(exact: Exact) -> Exact:
    """Return only the groups that contain a kept row."""
    groups = exact.groups.with_row_index("group")
    kept = groups.filter(pl.col("runs") > 0)
    places = kept.select(pl.col("group").cast(pl.Int64)).with_row_index("place")
    cells = {
        name: frame
        if "group" not in frame.columns
        else frame.join(places, on="group", maintain_order="left").with_columns(group=pl.col("place").cast(pl.Int64))
        for name, frame in exact.cells.items()
    }
    return Exact(kept.drop("group"), {name: frame.drop("place", strict=False) for name, frame in cells.items()})
