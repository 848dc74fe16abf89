"""The way of a bounded aggregation through Polars: codes and hashes of batches of rows, then `bounding`."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import polars as pl

from dp_polars._engines.bounding import ORDER_BITS, GroupCap, LaneBounding, LaneResult, Rows
from dp_polars._engines.bounding.blocks import Numbers
from dp_polars._engines.bounding.lane import needs_order
from dp_polars._engines.polars.codes import (
    Codes,
    HashCollisionError,
    Salts,
    Words,
    domain_codes,
    found_codes,
    hash_name,
    hashed,
    mixed,
)
from dp_polars._engines.polars.row_units import every_row_a_unit
from dp_polars._engines.polars.rows import PrivateRows, Scan, batches, collect, rows_of
from dp_polars._engines.polars.units import MIXER, Units, combined, part_of_units, units_of
from dp_polars._engines.polars.whole_numbers import one_form, whole_numbers
from dp_polars._engines.request import BoundedRequest, Column, Exact

_MOST_GROUPS = 1 << 40
_GROWTH = 4  # bytes of memory for a byte of a file: a row is 2 to 30 bytes there, and 8 to 40 while it is bounded
_MOST_PARTS = 64  # each is a pass over the source


def parts_for(bytes_of_source: int, memory_limit: float) -> int:
    """Return in how many parts rows are bounded, so that a part fits the memory.

    The answer is the same for every number of parts, to the last bit given the same salts, so its distribution does
    not depend on it either. What can be seen is how long a question takes, and therefore only public facts count: the
    sizes of files and the limit that the engine was given, never how many rows there are.

    Parameters
    ----------
    bytes_of_source
        The size of the files that rows come from; 0 where it isn't known, or rows are in memory already.
    memory_limit
        How many bytes the engine may use.
    """
    if bytes_of_source <= 0 or not memory_limit < math.inf:
        return 1
    return min(_MOST_PARTS, math.ceil(_GROWTH * bytes_of_source / max(memory_limit, 1)))


def run_bounded(rows: PrivateRows | pl.LazyFrame, request: BoundedRequest, *, parts: int = 1) -> Exact:
    """Return exact bounded aggregates of rows with the columns that the request names.

    In several `parts` the source is read once for each, and only the rows of a part of the units are held at a time.
    A unit is whole in its part, so its caps bind there as they do among all rows, and what units keep is added up
    before anything is rounded: the outcome is the same.
    """
    if parts < 1:
        raise ValueError("rows are bounded in one part or more")
    # Once, whichever codes are used: nothing that depends on data chooses them.
    salts = Salts(lambda: secrets.randbits(64))
    source = rows_of(rows)
    scan = source.scan()
    frame = _with_numbers(_in_one_form(scan.frame), request, salts)
    if request.units == 0:
        scan.begin()
        answer = every_row_a_unit(frame, request)
        # For the sums of each lane, and for its cells.
        scan.check_passes(sum(1 + (lane.cells is not None) for lane in request.lanes))
        return answer
    try:
        return _run(frame, request, salts, scan, joined=False, parts=parts, source=source)
    except HashCollisionError:
        return _run(frame, request, salts, scan, joined=True, parts=parts, source=source)


def _in_one_form(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return rows whose units and keys have one zero and one NaN, before anything is joined, hashed or compared."""
    schema = frame.collect_schema()
    floats = [name for name in schema if schema[name].is_float() and name.startswith(("unit", "key"))]
    return frame.with_columns(one_form(pl.col(name), schema[name]).alias(name) for name in floats) if floats else frame


def _columns(request: BoundedRequest) -> list[Column]:
    """Return the value columns, in the order in which lanes name them."""
    return [column for lane in request.lanes for column in lane.columns]


def number_name(place: int) -> str:
    """Return the name of the whole numbers of a lane's column: by its place among all of them."""
    return f"number{place}"


def _with_numbers(frame: pl.LazyFrame, request: BoundedRequest, salts: Salts) -> pl.LazyFrame:
    """Put whole numbers in the place of values; lanes may see the same values in several ways."""
    schema = frame.collect_schema()
    columns = _columns(request)
    if not columns:
        return frame
    names = {column.name for column in columns}
    numbers = [
        whole_numbers(column, schema[column.name], salts.of(column.name)).alias(number_name(place))
        for place, column in enumerate(columns)
    ]
    return frame.with_columns(numbers).drop(sorted(names))


Found = TypeVar("Found")


def _first_look(
    look: Callable[[pl.LazyFrame], tuple[pl.LazyFrame, Found]],
    frame: pl.LazyFrame,
    source: PrivateRows,
    names: Sequence[str],
) -> tuple[pl.LazyFrame, Found]:
    """Look at some columns alone, so that no others are read or computed; at the whole frame if it has to change."""
    if not names:
        return look(frame)
    narrow = _in_one_form(source.wider(names).scan(names).frame)
    after, found = look(narrow)
    return (frame, found) if after is narrow else look(frame)


def _run(
    frame: pl.LazyFrame,
    request: BoundedRequest,
    salts: Salts,
    scan: Scan,
    *,
    joined: bool,
    parts: int,
    source: PrivateRows,
) -> Exact:
    keys, unit_names = [f"key{i}" for i in range(request.keys)], [f"unit{i}" for i in range(request.units)]
    schema = frame.collect_schema()
    scan.begin()  # codes are found among all rows, once for all parts
    if request.domain is not None:
        frame, codes = domain_codes(frame, request.domain, salts, joined=joined)
    elif joined:
        frame, codes = found_codes(frame, keys, salts, joined=True)
    else:
        frame, codes = _first_look(lambda own: found_codes(own, keys, salts, joined=False), frame, source, keys)
    groups = math.prod(code.size for code in codes)
    if groups > _MOST_GROUPS and request.domain is None:
        # Too many combinations for a number: the ones that occur are numbered, in the order of their values.
        found = collect(frame.select(keys).unique()).sort(keys)
        numbered = replace(request, domain=found)
        return _shown(_run(frame, numbered, salts, scan, joined=True, parts=parts, source=source))
    hashed_units = request.hashed_units
    if joined:
        frame, units = units_of(frame, unit_names, salts, by_hash=hashed_units, joined=True)
    else:
        frame, units = _first_look(
            lambda own: units_of(own, unit_names, salts, by_hash=hashed_units, joined=False), frame, source, unit_names
        )
    cap = _cap_of(request, codes)
    lanes = [
        LaneBounding(lane, unit_bits=units.bits, groups=groups, cap=cap, salt=salts.of("cells"))
        for lane in request.lanes
    ]
    ordered = any(needs_order(lane, request.max_groups) for lane in request.lanes)
    leading = keys[: request.leading]
    wanted = (unit_names, keys, leading, units, codes, salts, len(_columns(request)), ordered)
    for part in range(parts):
        among = part_of_units(unit_names, schema, salts, part, parts) if parts > 1 else None
        for rows, values in _rows(frame, scan, among, *wanted):
            start = 0
            for lane, bounding in zip(request.lanes, lanes, strict=True):
                bounding.add(rows, values[start : start + len(lane.columns)])
                start += len(lane.columns)
        for bounding in lanes:
            bounding.end_part()
    return _exact([bounding.finish() for bounding in lanes], codes, request)


def _cap_of(request: BoundedRequest, codes: Sequence[Codes]) -> GroupCap | None:
    """Return the cap on groups; numbers of groups rise with their keys: those of the same first keys are together."""
    if request.max_groups is None or request.leading == request.keys:
        return None if request.max_groups is None else GroupCap(request.max_groups)
    if request.domain is not None:
        names = [f"key{i}" for i in range(request.leading)]
        same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in names)
        numbers = request.domain.select((~same).cum_sum().cast(pl.Int64)).to_series().to_numpy()
        return GroupCap(request.max_groups, lambda group: numbers[group])
    inner = math.prod(code.size for code in codes[request.leading :])
    return GroupCap(request.max_groups, lambda group: group // inner)


def _rows(
    frame: pl.LazyFrame,
    scan: Scan,
    among: Callable[[pl.DataFrame], pl.DataFrame] | None,
    unit_names: Sequence[str],
    key_names: Sequence[str],
    leading: Sequence[str],
    units: Units,
    codes: Sequence[Codes],
    salts: Salts,
    values: int,
    ordered: bool,
) -> Iterator[tuple[Rows, list[Numbers]]]:
    """Yield the rows that have a unit and a key of the domain, with their values, batch by batch.

    If only a part of the units is wanted, `among` takes their rows out of each batch. The order in which a unit keeps
    its groups is by the `leading` keys. Fails if not every row of the source was read.
    """
    schema = frame.collect_schema()
    columns = {**units.columns(), **{name: expr for code in codes for name, expr in code.columns().items()}}
    columns |= {number_name(place): pl.col(number_name(place)) for place in range(values)}
    wanted = [name for name in unit_names if ordered or units.by_hash]
    wanted += [name for name in key_names if ordered or any(code.by_hash for code in codes)]
    hashes = [hashed(name, schema[name], salts) for name in wanted]
    missing = [pl.col(name).is_null() for name in unit_names]
    selected = frame.select(*hashes, missing=pl.any_horizontal(missing), **columns)
    unit_hashes, key_hashes = ([hash_name(name) for name in names] for names in (unit_names, leading))
    received = 0
    scan.begin(among)
    for whole in batches(selected):
        received += whole.height
        batch = whole.filter(~whole["missing"]) if whole["missing"].any() else whole
        if not batch.height:
            continue
        group, valid = mixed(codes, batch)
        unit, more, told_apart = units.words(batch)
        if told_apart is not None:
            valid = told_apart if valid is None else valid & told_apart
        order = order_of(batch, unit_hashes, key_hashes) if ordered else None
        yield (
            Rows(unit, more, order, group, None, valid),
            [batch[number_name(place)].to_numpy() for place in range(values)],
        )
    scan.check(received)


def order_of(batch: pl.DataFrame, unit_hashes: Sequence[str], key_hashes: Sequence[str]) -> Words:
    """Return the order in which a unit's groups are kept: a hash of salt, unit and key by their values, not codes."""
    order = combined(batch, unit_hashes)
    order = order ^ combined(batch, key_hashes) if key_hashes else order.copy()
    order *= MIXER
    order >>= np.uint64(64 - ORDER_BITS)
    return order


def _exact(results: Sequence[LaneResult], codes: Sequence[Codes], request: BoundedRequest) -> Exact:
    """Return the sums of all lanes with their key values, and the cells by the rows that they belong to."""
    names, table = _side_by_side(results)
    if request.domain is not None:
        every = np.arange(request.domain.height)
        if len(names) < len(every):  # more keys than places: those that nobody has are 0
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
        kept = table[shown.tolist()] if len(shown) else table.clear()
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
    """Return the numbers of groups, and the sums of all lanes; `runs` is 0 where no lane has a row."""
    names = results[0].names
    if any(len(result.names) != len(names) or (result.names != names).any() for result in results[1:]):
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
    """Return the groups that a kept row falls into."""
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
