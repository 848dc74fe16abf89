"""The bounded aggregation as SQL queries, for more rows than fit memory. Slower, and the same guarantee.

It orders a unit's groups by another hash than the Polars engine. So which of the two runs must not depend on private
rows: one unit more could make everyone choose anew. It is chosen by DuckDB's memory limit and the sizes of files, which
are public.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any

import polars as pl

from dp_polars.engines.duckdb.numbers import number_text, one_form
from dp_polars.engines.duckdb.rows import Cursor
from dp_polars.engines.request import LIMIT, BoundedRequest, Exact, Lane, Profile, Sum
from dp_polars.engines.tables import side_by_side
from dp_polars.sql.texts import sql_text

_LITTLE = 1 << 30  # with a lower memory limit than this, rows are left to DuckDB
_RUN_BYTES = 100  # what a row may need in DuckDB's group-by and window


def must_spill(cursor: Cursor, file_bytes: int) -> bool:
    """Whether memory is short: by the limit, and by the size of the files that rows come from."""
    limit = _limit(cursor)
    return limit < _LITTLE or file_bytes > limit


def _limit(cursor: Cursor) -> float:
    return _bytes(cursor.execute("SELECT system.main.current_setting('memory_limit')").fetchall()[0][0])


def _bytes(text: str) -> float:
    """Return what DuckDB writes as '1.5 GiB'."""
    number, _, unit = str(text).partition(" ")
    powers = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
    return float(number) * powers.get(unit, 2**40)


@dataclass(frozen=True)
class _Source:
    """Rows as a query, what kinds of values they have, and in how many parts they are read."""

    cursor: Cursor
    sql: str
    parameters: dict[str, Any]
    kinds: dict[str, str]
    request: BoundedRequest
    order_salt: int
    value_salt: int
    parts: int

    @property
    def keys(self) -> list[str]:
        return [f"key_{i}" for i in range(self.request.keys)]

    @property
    def units(self) -> list[str]:
        return [f"unit_{i}" for i in range(self.request.units)]

    def run(self, text: str) -> pl.DataFrame:
        table: pl.DataFrame = self.cursor.sql(text, params=self.parameters or None).pl()
        return table


def run_spilling(cursor: Cursor, sql: str, parameters: dict[str, Any], request: BoundedRequest) -> Exact:
    """Return what the Polars engine's `run_bounded` returns, computed by DuckDB."""
    keys = [f"key_{i}" for i in range(request.keys)]
    if request.domain is not None and keys:
        domain = request.domain.rename({f"key{i}": name for i, name in enumerate(keys)})
        name = f"dp_domain_{secrets.token_hex(8)}"
        cursor.register(name, domain.to_arrow())
        equal = " AND ".join(f"given.{key} IS NOT DISTINCT FROM domain.{key}" for key in keys)
        sql = f"SELECT * FROM ({sql}) AS given SEMI JOIN temp.main.{name} AS domain ON {equal}"  # noqa: S608 - own names
    cursor.begin()  # all parts and lanes see the same rows
    try:
        source = _source(cursor, sql, parameters, request)
        sums = [_added(_lane_sums(lane, source), keys, lane) for lane in request.lanes]
        found = {lane.cells.name: _cells(lane, source) for lane in request.lanes if lane.cells is not None}
        profiles = {
            profile.name: _profile(lane, profile, source) for lane in request.lanes for profile in lane.profiles
        }
    finally:
        cursor.rollback()
    own = [f"key{i}" for i in range(request.keys)]
    named = [table.rename(dict(zip(keys, own, strict=True))) for table in sums]
    if request.domain is not None and own:
        schema = request.domain.schema
        named = [table.cast({name: schema[name] for name in own}) for table in named]
    groups = side_by_side(named, request.domain if own else None, own)
    places = groups.select(own).with_row_index("group").with_columns(pl.col("group").cast(pl.Int64))
    cells = {name: _placed(frame, places, keys, own) for name, frame in found.items()}
    return Exact(groups, cells | profiles)


def _source(cursor: Cursor, sql: str, parameters: dict[str, Any], request: BoundedRequest) -> _Source:
    relation = cursor.sql(f"SELECT * FROM ({sql}) LIMIT 0", params=parameters or None)  # noqa: S608 - checked
    kinds = {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}
    parts = 1
    if request.units:
        counted = f"SELECT system.main.count_star() FROM ({sql})"  # noqa: S608 - checked
        rows = cursor.execute(counted, parameters or None).fetchall()[0][0]
        parts = max(1, math.ceil(rows * _RUN_BYTES / (_limit(cursor) / 4)))
    names = [name for name in kinds if not name.startswith("value_")]
    forms = [f"{one_form(name, kinds[name])} AS {name}" for name in names if one_form(name, kinds[name]) != name]
    if forms:  # equal units and keys have equal bytes, before anything is grouped or hashed
        sql = f"SELECT * REPLACE ({', '.join(forms)}) FROM ({sql})"  # noqa: S608 - own names
    return _Source(cursor, sql, parameters, kinds, request, secrets.randbits(64), secrets.randbits(64), parts)


# ---------------------------------------------------------------------- texts


def _words(lane: Lane, source: _Source, part: int) -> dict[str, Any]:
    """Return what both texts have in common. Every row a unit: one number per row tells them apart."""
    units, keys = source.units, source.keys
    mine = [f"{name} IS NOT NULL" for name in units]
    mine.append(f"system.main.hash({', '.join(units)}) % {source.parts}::UBIGINT = {part}::UBIGINT")
    numbers = [
        f"{number_text(column, source.kinds[f'value_{column.place}'], source.value_salt)} AS {letter}, "
        for letter, column in zip("xy", lane.columns, strict=False)
    ]
    present = " AND ".join(f"{letter} IS NOT NULL" for letter, _ in zip("xy", lane.columns, strict=False)) or "true"
    return {
        "units": ", ".join(units),
        "keys": "".join(f"{name}, " for name in keys),
        "numbers": "".join(numbers) + f"({present})",
        "rows": source.sql,
        "mine": " AND ".join(mine),
        "hashed": "".join(f"{name}, " for name in (*units, *keys[: source.request.leading])),
        "salt": source.order_salt,
        "ties": "".join(f", {name} NULLS FIRST" for name in keys[: source.request.leading]),
    }


def _lane_sums(lane: Lane, source: _Source) -> list[pl.DataFrame]:
    if not source.request.units:
        return [source.run(_plain_text(lane, source))]
    most = source.request.max_groups
    kept = "true" if most is None else f"position <= {int(most)}"
    moments = {_key(one): _number(one, lane) for one in lane.sums if one.of not in ("rows", "units")}
    sums = [f"{_capped(one, kept)} AS {one.name}" for one in lane.sums]
    scaled = [one for one in lane.sums if _scales(one)]
    sums.append(f"system.main.count(*) FILTER (WHERE {kept}) AS runs")
    texts = [
        sql_text("bounded").format(
            **_words(lane, source, part),
            moments="".join(f"coalesce(system.main.sum({n}), 0) AS sum_{key}, " for key, n in moments.items()),
            taking_part="true" if lane.everyone else "present",
            scaled="".join(f", {_scaled(one)}" for one in scaled),
            divided="".join(f", {_divided(one)}" for one in scaled),
            sums=", ".join(sums),
            grouped="GROUP BY ALL" if source.keys else "",
        )
        for part in range(source.parts)
    ]
    return [source.run(text) for text in texts]


def _key(one: Sum) -> str:
    return f"{one.of}{one.place}{one.degree}"


def _number(one: Sum, lane: Lane) -> str:
    """Return the whole number of a row that is summed."""
    if one.of != "basis":
        return " * ".join(one.of)
    low, high = lane.columns[0].low, lane.columns[0].high
    factors = [str(math.comb(one.degree, one.place))]
    factors += [f"(x - ({low})::HUGEINT)"] * one.place + [f"(({high})::HUGEINT - x)"] * (one.degree - one.place)
    return " * ".join(factors)


def _capped(one: Sum, kept: str) -> str:
    """Return the sum of what each run adds: scaled down beyond max_rows, or clipped; as text where it is long."""
    rows = _rows(one)
    if one.of == "units":
        return f"system.main.count(*) FILTER (WHERE {kept} AND {rows} > 0)"
    if one.of == "rows":
        capped = rows if one.max_rows is None else f"system.main.least({rows}, {int(one.max_rows)})"
        return f"coalesce(system.main.sum({capped}) FILTER (WHERE {kept}), 0)::BIGINT"
    total = f"sum_{_key(one)}"
    if one.clip is not None:
        total = f"system.main.least(system.main.greatest({total}, {one.clip[0]}), {one.clip[1]})"
    elif one.max_rows is not None:
        cap = int(one.max_rows)
        # The rounding of `engines.bounding.moments`, of a number without its sign; shifted after it, too.
        number, whole = f"number_{one.name}", f"whole_{one.name}"
        rest = f"({number} - {whole} * {rows})"
        rounded = f"({whole} + CASE WHEN 2 * {rest} + ({whole} & 1) > {rows} THEN 1 ELSE 0 END)"
        own = f"CASE WHEN {rows} > {cap} THEN {rounded} ELSE {number} END"
        total = f"CASE WHEN {total} < 0 THEN -({own}) ELSE {own} END"
        if one.shift:
            total = f"{total} + system.main.least({rows}, {cap}) * ({one.shift << one.inner})::HUGEINT"
    elif one.shift:
        total = f"{total} + {rows} * ({one.shift})::HUGEINT"
    return _limited(f"coalesce(system.main.sum({total}) FILTER (WHERE {kept}), 0)", LIMIT << (one.inner - one.fine))


def _scales(one: Sum) -> bool:
    """Whether rows beyond a cap are scaled down."""
    return one.of not in ("rows", "units") and one.max_rows is not None and one.clip is None


def _scaled(one: Sum) -> str:
    """Return the total of a run in its inner steps, without its sign, times the cap where that binds."""
    rows, cap, step = _rows(one), int(one.max_rows or 0), 1 << one.inner
    factor = f"CASE WHEN {rows} > {cap} THEN {cap * step} ELSE {step} END::HUGEINT"
    return f"system.main.abs(sum_{_key(one)}) * {factor} AS number_{one.name}"


def _divided(one: Sum) -> str:
    """Return that by the rows where the cap binds, rounded down: one division of 128 bits, the rest is cheap."""
    rows, cap = _rows(one), int(one.max_rows or 0)
    return f"CASE WHEN {rows} > {cap} THEN number_{one.name} // {rows} END AS whole_{one.name}"


def _rows(one: Sum) -> str:
    return "row_count" if one.everyone else "value_count"


def _limited(whole: str, limit: int = LIMIT) -> str:
    most = f"'{limit}'::HUGEINT"
    return f"system.main.least(system.main.greatest({whole}, -{most}), {most})::VARCHAR"


def _plain_text(lane: Lane, source: _Source) -> str:
    """Return the query where every row is a unit of its own: no cap can bind."""
    words = _words(lane, source, 0)
    sums = []
    for one in lane.sums:
        there = "true" if one.everyone else "present"
        if one.of in ("rows", "units"):
            sums.append(f"system.main.count(*) FILTER (WHERE {there}) AS {one.name}")
            continue
        number = f"{_number(one, lane)} + ({one.shift})::HUGEINT"
        if one.clip is not None:
            number = f"system.main.least(system.main.greatest({_number(one, lane)}, {one.clip[0]}), {one.clip[1]})"
        whole = f"coalesce(system.main.sum({number}) FILTER (WHERE {there}), 0)"
        sums.append(f"{_limited(whole)} AS {one.name}")
    sums.append("system.main.count(*) AS runs")
    inner = f"SELECT {words['keys']}{words['numbers']} AS present FROM ({source.sql}) AS given"  # noqa: S608 - own names
    where = "" if lane.everyone else "WHERE present"
    grouped = "GROUP BY ALL" if source.keys else ""
    return f"SELECT {words['keys']}{', '.join(sums)} FROM ({inner}) {where} {grouped}"  # noqa: S608 - own names


def _cells(lane: Lane, source: _Source) -> pl.DataFrame:
    """Return keys, values and counts of a lane's cells."""
    if lane.cells is None:
        raise ValueError("a lane without cells")
    keys, cells = source.keys, lane.cells
    if not source.request.units:
        words = _words(lane, source, 0)
        inner = f"SELECT {words['keys']}{words['numbers']} AS present FROM ({source.sql}) AS given"  # noqa: S608 - own
        counted = 'x::BIGINT AS value, system.main.count(*) AS "count"'
        text = f"SELECT {words['keys']}{counted} FROM ({inner}) WHERE present GROUP BY ALL"  # noqa: S608 - own names
        pieces = [source.run(text)]
    else:
        caps = {"position": source.request.max_groups, "rank": cells.max_rows}
        kept = [f"{name} <= {int(most)}" for name, most in caps.items() if most is not None] or ["true"]
        pieces = [
            source.run(
                sql_text("kept").format(
                    **_words(lane, source, part),
                    distinct="DISTINCT" if cells.distinct else "",
                    also_keys="".join(f", {name}" for name in keys),
                    kept=" AND ".join(kept),
                )
            )
            for part in range(source.parts)
        ]
    table = pl.concat(pieces).with_columns(pl.col("count").cast(pl.Int64))
    return table.group_by(*keys, "value").agg(pl.col("count").sum())


def _profile(lane: Lane, profile: Profile, source: _Source) -> pl.DataFrame:
    """Return how many units have so many groups, or so many rows in one of them chosen by hash."""
    counts: list[pl.DataFrame] = []
    for part in range(source.parts):
        first = "system.main.sum(row_count) FILTER (WHERE position = 1)"
        number = "system.main.count(*)" if profile.of == "groups" else first
        text = sql_text("bounded").format(
            **_words(lane, source, part),
            moments="",
            taking_part="true" if lane.everyone else "present",
            scaled="",
            divided="",
            sums="system.main.count(*) AS runs",
            grouped="GROUP BY ALL" if source.keys else "",
        )
        before = text[: text.rindex("SELECT")]
        value = f"system.main.least({number}, {int(profile.most)})::BIGINT AS value"
        by_unit = f"SELECT {value} FROM ordered GROUP BY {', '.join(source.units)}"  # noqa: S608 - own names
        counted = f'SELECT value, system.main.count(*) AS "count" FROM ({by_unit}) GROUP BY ALL'  # noqa: S608 - own
        counts.append(source.run(before + counted))
    table = pl.concat(counts).with_columns(pl.col("count").cast(pl.Int64))
    return table.group_by("value").agg(pl.col("count").sum()).sort("value")


# ---------------------------------------------------------------------- tables


def _added(pieces: list[pl.DataFrame], keys: list[str], lane: Lane) -> pl.DataFrame:
    """Return the sums of all parts, each unit being in one; rounded once, as `engines.bounding.sums` does."""
    table = pl.concat(pieces)
    texts = [name for name, kind in table.schema.items() if kind == pl.String and name not in keys]
    table = table.with_columns(pl.col(texts).cast(pl.Int128))
    bits = {one.name: one.inner - one.fine for one in lane.sums}
    sums = [
        _shortened(pl.col(name).cast(pl.Int128).sum(), bits.get(name, 0)).clip(-LIMIT, LIMIT).cast(pl.Int64)
        for name in table.columns
        if name not in keys
    ]
    return table.group_by(keys).agg(sums) if keys else table.select(sums)


def _shortened(number: pl.Expr, bits: int) -> pl.Expr:
    """Return a number by 2**bits, to the nearest whole number, of two the upper one."""
    whole, half = (pl.lit(n, dtype=pl.Int128) for n in (1 << bits, 1 << bits >> 1))
    return (number + half) // whole if bits else number


def _placed(cells: pl.DataFrame, places: pl.DataFrame, keys: list[str], own: list[str]) -> pl.DataFrame:
    """Return cells by the row of their group."""
    if not own:
        found = cells.with_columns(group=pl.lit(0, dtype=pl.Int64))
    else:
        named = cells.rename(dict(zip(keys, own, strict=True))).cast({name: places.schema[name] for name in own})
        found = named.join(places, on=own, nulls_equal=True)
    return found.select("value", "count", "group").sort("group", "value")
