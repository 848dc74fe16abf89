"""Reading private rows with Polars: a plan over the source, and passes over it that provably see every row.

Each pass compares the number of rows that it read with an independent count of the source, or of the rows of a frame in
memory that plain conditions leave. Steps that Polars can apply safely by itself (plain conditions, lookups by unique
keys) are part of the plan; `evaluation` applies the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from queue import Queue

import polars as pl

from dp_polars._engines.polars.evaluation import Evaluation
from dp_polars._engines.polars.held_frame import HeldFrame
from dp_polars._engines.polars.lowering import is_plain, plain
from dp_polars._engines.polars.program import BATCH, RowCountError
from dp_polars._engines.rows import OWN, Filter, Lookup, PrivateRows, Step, WithColumns
from dp_polars._engines.workers import Workers
from dp_polars._expressions.tree import Column, Expression

_SMALL = 1 << 16  # public rows up to which the values that a lookup may find are listed


@dataclass(frozen=True, repr=False, eq=False)
class PolarsSource:
    """A Polars plan as a source of private rows.

    Parameters
    ----------
    frame
        The plan.
    height
        Returns the number of rows, if there is a cheaper way than to ask the plan.
    held
        The frame in memory that the plan starts from, if it does. Then rows can be counted again at little cost.
    memory
        The rows of the plan, if they are in memory.
    narrowed
        Returns the source without some of the rows for which plain conditions (`lowering.is_plain`) are not true, if
        the source can drop rows by itself.
    batches
        Yields all rows with some of the columns, if there is a cheaper way than to run the plan: functions that return
        a few rows each, and that several threads may call.
    never_null
        The columns that a constraint of the database keeps from being null.
    """

    frame: pl.LazyFrame
    height: Callable[[], int] | None = None
    held: HeldFrame | None = None
    memory: pl.DataFrame | None = None
    narrowed: Callable[[Sequence[Expression]], PolarsSource] | None = None
    batches: Callable[[Sequence[str]], Generator[Callable[[], pl.DataFrame], None, None]] | None = None
    never_null: frozenset[str] = frozenset()

    @cached_property
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self.frame.collect_schema()

    def count_rows(self) -> int:
        """Return the number of rows, counted in another way than by reading them."""
        if self.height is not None:
            return self.height()
        return int(self.frame.select(pl.len()).collect(engine="streaming").item())


def polars_rows(frame: pl.LazyFrame | pl.DataFrame) -> PrivateRows:
    """Return the rows of a Polars plan, or of a frame in memory, as private rows without steps."""
    return PrivateRows(PolarsSource(frame)) if isinstance(frame, pl.LazyFrame) else held_rows(HeldFrame(frame))


def held_rows(held: HeldFrame) -> PrivateRows:
    """Return the rows of a frame in memory as private rows without steps."""
    return PrivateRows(PolarsSource(held.frame.lazy(), lambda: held.frame.height, held, held.frame))


def source_of(rows: PrivateRows) -> PolarsSource:
    """Return the Polars plan that rows come from."""
    if not isinstance(rows.source, PolarsSource):
        raise TypeError("these rows are for another engine")
    return rows.source


# ---------------------------------------------------------------------- plans


@dataclass(frozen=True, repr=False, eq=False)
class Scan:
    """A plan that reads private rows, and a check that one pass over it has read all of them."""

    frame: pl.LazyFrame
    evaluation: Evaluation
    height: Callable[[], int]
    multiplies: bool
    """Whether a row may become several rows: only if it may match several public rows."""
    memory: pl.DataFrame | None = None
    """The rows that the plan reads, if they are in memory and no step computes or drops anything."""
    batches: Callable[[], Generator[Callable[[], pl.DataFrame], None, None]] | None = None
    """Yields the same rows without the plan, if the source can do that and no step computes or drops anything."""

    def begin(self, among: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> None:
        """Reset the counts before a pass that returns the rows picked by `among`. Passes must not overlap."""
        self.evaluation.read = self.evaluation.given = 0
        self.evaluation.among = among

    def check_passes(self, passes: int) -> None:
        """Fail unless this many passes since `begin` have read every row of the source."""
        if self.evaluation.read != passes * self.height():
            raise RowCountError

    def check(self, received: int, height: int | None = None) -> None:
        """Fail unless the pass has read every row of the source, and everything that it returned was received.

        A pass that picks some of the rows has read all of them too: it picks after reading. It never returns more
        rows than it read, unless rows may match several public rows. `height` is the number of rows, if they were
        counted before.
        """
        read, given = self.evaluation.read, self.evaluation.given
        if (
            given != received
            or read != (self.height() if height is None else height)
            or (given > read and not self.multiplies)
        ):
            raise RowCountError


def scan_rows(rows: PrivateRows, columns: Sequence[str] | None = None) -> Scan:
    """Return a plan that reads these columns of the rows, or all of them, and counts the rows that pass through."""
    source = source_of(rows)
    names = list(rows.schema if columns is None else columns)
    kept = rows if columns is None else rows.keep(names)
    schema = pl.Schema({name: kept.schema[name] for name in names})
    wanted, steps = _needed(kept)
    # A plan without columns has no rows either, so one column is read to stand for them.
    read = [name for name in rows.source_schema if name in wanted] or list(rows.source_schema)[:1]
    conditions, steps = _plain_first(steps)
    narrowed = source.narrowed(conditions) if conditions and source.narrowed is not None else source
    native, steps = _native_first(read, steps)
    frame, height = narrowed.frame.select([pl.col(name) for name in read]), narrowed.count_rows
    # Polars applies conditions and native steps by itself. Rows that are left after plain conditions can be counted
    # once more if they are in memory, which is cheaper than handing all rows to Python. Others are counted before.
    again = bool(conditions) and not native and narrowed.held is not None
    evaluation = Evaluation(steps, names, counts=again or not (conditions or native))
    if (conditions or native) and not again:
        frame = _watched(frame, evaluation.counted)
    if conditions:
        frame = frame.filter([plain(one) for one in conditions])
    if again:
        left = frame.select(pl.len())
        height = lambda: int(left.collect(engine="in-memory").item())  # noqa: E731 - another engine than the passes use
    for step in native:
        frame = _natively(frame, step)
    chosen = _chosen(frame.collect_schema() if native else read, steps)
    if chosen is None:
        frame = _by_batch(frame, evaluation, schema)
    else:  # nothing is computed, so a pass can leave out columns that it does not need
        frame = _watched(frame.select([pl.col(chosen[name]).alias(name) for name in names]), evaluation.passed)
    multiplies = any(isinstance(step, Lookup) and not step.unique for step in rows.steps)
    memory, batches = None, None
    if chosen is not None and not (conditions or native):
        origins = {name: chosen[name] for name in names}
        memory = None if source.memory is None else _renamed(source.memory, origins)
        batches = None if source.batches is None else partial(_renamed_batches, source.batches, read, origins)
    return Scan(frame, evaluation, height, multiplies, memory, batches)


def _renamed(frame: pl.DataFrame, origins: Mapping[str, str]) -> pl.DataFrame:
    """Return columns of a frame under other names. A select would cost 60 microseconds, four times as much."""
    return pl.DataFrame([frame[origin].alias(name) for name, origin in origins.items()])


def _renamed_batches(
    batches: Callable[[Sequence[str]], Generator[Callable[[], pl.DataFrame], None, None]],
    read: Sequence[str],
    origins: Mapping[str, str],
) -> Generator[Callable[[], pl.DataFrame], None, None]:
    """Yield batches of a source with other names."""
    with closing(batches(read)) as found:
        for batch in found:
            yield lambda batch=batch: _renamed(batch(), origins)  # type: ignore[misc]


def lazy_rows(rows: PrivateRows, columns: Sequence[str] | None = None) -> pl.LazyFrame:
    """Return a plan that evaluates the rows batch by batch, with these columns or all of them."""
    return scan_rows(rows, columns).frame


def wider_rows(rows: PrivateRows, names: Sequence[str]) -> PrivateRows:
    """Return rows in which these columns have all the values that they have in `rows`, and perhaps more.

    Finding out which values occur should not pay for lookups. Columns that do not come from a lookup lose no value
    without it, and columns that do have values of the public rows.
    """
    wanted = set(names)
    for place in range(len(rows.steps) - 1, -1, -1):
        step = rows.steps[place]
        if isinstance(step, WithColumns):
            made = [one for name, one in step.columns if name in wanted]
            wanted = (wanted - {name for name, _ in step.columns}) if step.keep else set()
            wanted = wanted.union(*(one.columns for one in made))
        elif isinstance(step, Lookup) and (found := wanted & {name for _, name in step.columns}):
            if found != wanted or step.public.height > _SMALL:
                return rows
            public = polars_rows(_possible_matches(step).lazy())
            return replace(public, steps=_makes(rows.steps[place + 1 :]))
    if not wanted or not any(isinstance(step, Lookup) for step in rows.steps):
        return rows
    first = rows.steps[:1] if isinstance(rows.steps[0], Filter) else ()
    return replace(rows, steps=(*first, *_makes(rows.steps)))


def _makes(steps: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(step for step in steps if isinstance(step, WithColumns))


def _possible_matches(step: Lookup) -> pl.DataFrame:
    """Return the public rows that a lookup may find, and a row of nulls for rows without a match."""
    rows = pl.DataFrame([step.public[own].alias(name) for own, name in step.columns])
    return pl.concat([rows, pl.DataFrame(schema=rows.schema).clear(1)])


def _needed(rows: PrivateRows) -> tuple[set[str], list[Step]]:
    """Return the source columns that the result depends on, and the steps without columns that nothing needs."""
    steps: list[Step] = []
    wanted = set(rows.schema)
    for step in reversed(rows.steps):
        if isinstance(step, Filter):
            steps.append(Filter(step.conditions, tuple(sorted(wanted))))
            wanted = wanted.union(*(one.columns for one in step.conditions))
        elif isinstance(step, WithColumns):
            made = tuple((name, one) for name, one in step.columns if name in wanted)
            if not step.keep and not made:  # a frame without columns has no rows either
                made = step.columns[:1]
            wanted = (wanted - {name for name, _ in step.columns}) if step.keep else set()
            wanted = wanted.union(*(one.columns for _, one in made))
            steps.append(WithColumns(made, step.keep))
        else:
            wanted -= {name for _, name in step.columns}
            wanted |= {mine for mine, _ in step.on}
            steps.append(step)
    return wanted, steps[::-1]


def needed_columns(rows: PrivateRows) -> set[str]:
    """Return the columns of the source that the rows depend on."""
    return _needed(rows)[0]


def _by_batch(frame: pl.LazyFrame, function: Callable[[pl.DataFrame], pl.DataFrame], schema: pl.Schema) -> pl.LazyFrame:
    """Return a plan that passes every batch through a function. The optimizer moves nothing past it."""
    return frame.map_batches(
        function,
        schema=schema,
        streamable=True,
        predicate_pushdown=False,
        projection_pushdown=False,
        slice_pushdown=False,
        validate_output_schema=False,
    )


def _watched(frame: pl.LazyFrame, function: Callable[[pl.DataFrame], pl.DataFrame]) -> pl.LazyFrame:
    """Return a plan that passes every batch through a function which works with whichever columns are read."""
    return frame.map_batches(
        function,
        streamable=True,
        predicate_pushdown=False,
        projection_pushdown=True,
        slice_pushdown=False,
        validate_output_schema=False,
    )


def _chosen(read: Iterable[str], steps: Sequence[Step]) -> dict[str, str] | None:
    """Return the source column behind each column if the steps only select and rename; otherwise None."""
    found = {name: name for name in read}
    for step in steps:
        if not isinstance(step, WithColumns) or not all(isinstance(one, Column) for _, one in step.columns):
            return None
        made = {name: found[one.name] for name, one in step.columns if isinstance(one, Column)}
        found = {**found, **made} if step.keep else made
    return found


def _plain_first(steps: Sequence[Step]) -> tuple[list[Expression], list[Step]]:
    """Return the plain conditions of a filter that comes first, and the steps without them."""
    first, rest = (steps[0], list(steps[1:])) if steps else (None, [])
    if not isinstance(first, Filter):
        return [], list(steps)
    conditions = [one for one in first.conditions if is_plain(one)]
    others = tuple(one for one in first.conditions if not is_plain(one))
    return conditions, [replace(first, conditions=others), *rest] if others else rest


def _native_first(read: Iterable[str], steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Split the steps into those that Polars may apply by itself, up to the last such lookup, and the rest.

    A lookup by unique keys of the same type gives each row at most one public row. Polars' streaming join does this in
    a third of the time that it takes batch by batch. Plain filters before the first lookup and bare columns are
    included. Filters after a lookup are not: Polars may apply them to the public rows first, and if none is left, or
    there is none to begin with, it stops reading the private side early.
    """
    columns, last = set(read), 0
    for place, step in enumerate(steps):
        if isinstance(step, Lookup):
            names = {name for _, name in step.columns}
            nested = any(step.public.schema[own].is_nested() for own, _ in step.columns)
            if not step.unique or not step.on or nested or names & columns or not step.public.height:
                break
            columns |= names
            last = place + 1
        elif isinstance(step, Filter):
            if last or not all(map(is_plain, step.conditions)):
                break
            columns = columns if step.columns is None else set(step.columns)
        else:
            if not all(isinstance(one, Column) for _, one in step.columns):
                break
            made = {name for name, _ in step.columns}
            columns = columns | made if step.keep else made
    return list(steps[:last]), list(steps[last:])


def _natively(frame: pl.LazyFrame, step: Step) -> pl.LazyFrame:
    """Return a plan after a step that Polars applies by itself."""
    match step:
        case Filter():
            kept = frame.filter([plain(one) for one in step.conditions])
            return kept if step.columns is None else kept.select([pl.col(name) for name in step.columns])
        case WithColumns():
            made = [pl.col(one.name).alias(name) for name, one in step.columns if isinstance(one, Column)]
            return frame.with_columns(made) if step.keep else frame.select(made)
    keys = [f"{OWN}key {place}" for place in range(len(step.on))]
    added = [step.public[own].alias(name) for own, name in step.columns]
    public = pl.DataFrame([*(step.public[own].alias(key) for key, (_, own) in zip(keys, step.on, strict=True)), *added])
    return frame.join(
        public.lazy(),
        left_on=[mine for mine, _ in step.on],
        right_on=keys,
        how=step.how,
        nulls_equal=step.nulls_equal,
        coalesce=True if step.how == "left" else None,
    )


# ---------------------------------------------------------------------- passes


def workers() -> Workers:
    """Return as many workers as Polars has threads."""
    return Workers(pl.thread_pool_size())


def pass_over(frame: pl.LazyFrame, work: Callable[[pl.DataFrame], object]) -> None:
    """Run a plan on the streaming engine and do some work on all of its rows, batch by batch, in several threads."""
    with closing(_batches(frame)) as batches:
        workers().each(batches, work)


@dataclass(frozen=True)
class ComputedColumn:
    """A column that a function computes from another one, without a plan of Polars."""

    name: str
    origin: str
    function: Callable[[pl.Series], pl.Series]


def pass_over_memory(
    scan: Scan, columns: Sequence[pl.Expr | ComputedColumn], work: Callable[[pl.DataFrame, int], object]
) -> None:
    """Compute columns from rows in memory and do some work on them, batch by batch, in several threads.

    The work is given the place of the first row of each batch, too.
    """
    memory, evaluation = scan.memory, scan.evaluation
    if memory is None:
        raise ValueError("these rows are not in memory")
    direct = [one for one in map(_direct, columns) if one is not None]
    planned = [one for one in columns if isinstance(one, pl.Expr) and _direct(one) is None]

    def select(ends: tuple[int, int]) -> None:
        batch = evaluation.passed(memory.slice(ends[0], ends[1] - ends[0]))
        # A select takes longer and hands the work to Polars' own threads, so it has only the columns that need it.
        found = [one.function(batch[one.origin]).alias(one.name) for one in direct]
        if planned:
            found += batch.select(planned).iter_columns()
        work(pl.DataFrame(found), ends[0])

    workers().each(_slices(memory), select)


def _direct(column: pl.Expr | ComputedColumn) -> ComputedColumn | None:
    """Return a column that needs no plan, such as one that is taken as it is; None if it needs one."""
    if isinstance(column, ComputedColumn):
        return column
    if not column.meta.is_column_selection(allow_aliasing=True):
        return None
    (origin,) = column.meta.root_names()
    return ComputedColumn(column.meta.output_name(), origin, lambda own: own)


def _slices(frame: pl.DataFrame) -> Iterable[tuple[int, int]]:
    """Yield the start and end of slices of a frame that lie in one piece of memory each, if its columns agree."""
    lengths = [column.chunk_lengths() for column in frame.iter_columns()]
    pieces = lengths[0] if all(own == lengths[0] for own in lengths) else [frame.height]
    first = 0
    for length in pieces:
        for start in range(first, first + length, BATCH):
            yield start, min(start + BATCH, first + length)
        first += length


def pass_over_batches(scan: Scan, columns: Sequence[pl.Expr], work: Callable[[pl.DataFrame], object]) -> None:
    """Compute columns from the batches of a source, which are read one by one, and do some work on them in threads."""
    batches, evaluation = scan.batches, scan.evaluation
    if batches is None:
        raise ValueError("this source has no batches")

    def select(batch: Callable[[], pl.DataFrame]) -> None:
        for part in batch().iter_slices(BATCH):
            work(evaluation.passed(part).select(columns))

    with closing(batches()) as found:
        workers().each(found, select)


def _batches(frame: pl.LazyFrame) -> Generator[pl.DataFrame, None, None]:
    """Run a plan on the streaming engine and yield its rows in batches, in any order.

    `collect_batches` of Polars ends quietly if the engine fails, and the rows so far would look complete. Here the
    engine hands batches to a function and then either returns or raises.
    """
    queue: Queue[pl.DataFrame | None] = Queue(maxsize=4 + pl.thread_pool_size())
    failed: list[BaseException] = []
    stopped = threading.Event()

    def hand_over(batch: pl.DataFrame) -> bool | None:
        while not stopped.is_set():
            try:
                queue.put(batch, timeout=0.1)
            except Exception:  # noqa: BLE001, S112 - the queue is full: wait for the reader, or for the end
                continue
            return None
        return True

    def work() -> None:
        try:
            frame.sink_batches(hand_over, maintain_order=False, engine="streaming")
        except BaseException as error:  # noqa: BLE001 - raised again by the reader
            failed.append(error)
        finally:
            queue.put(None)

    thread = threading.Thread(target=work, name="dp_polars rows", daemon=True)
    thread.start()
    try:
        while (batch := queue.get()) is not None:
            yield from batch.iter_slices(BATCH)
    finally:
        stopped.set()
        while thread.is_alive():
            while not queue.empty():
                queue.get_nowait()
            thread.join(0.01)
    if failed:
        raise failed[0]


def collect(frame: pl.LazyFrame) -> pl.DataFrame:
    """Run a plan on the streaming engine."""
    return frame.collect(engine="streaming")


def read_rows(
    rows: PrivateRows, columns: Sequence[str] | None = None, select: Sequence[pl.Expr] | None = None
) -> pl.DataFrame:
    """Read all rows in one pass, with some of the columns or with row-wise Polars expressions over them."""
    scan = scan_rows(rows, columns)
    scan.begin()
    frame = collect(scan.frame if select is None else scan.frame.select(select))
    scan.check(frame.height)
    return frame
