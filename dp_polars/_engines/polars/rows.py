"""The rows of a private frame: a source and the steps that were applied to it, evaluated batch by batch.

What one unit can change: a step gives each row a value that depends on that row and public constants alone, leaves the
row out, or looks public rows up by it; so a unit's rows after all steps depend on that unit's rows before them.

This holds by construction, not by trust in Polars' planner: a batch of rows is a frame in memory of which every step
computes whole columns, of exactly the height of the batch; conditions are masks that are applied here; public rows are
found by their number. A batch on which Polars fails is halved until the failing rows stand alone; their value is null.
Each pass compares the rows that it read with an independent count of the source.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from queue import Queue
from typing import Any, Literal, Protocol

import polars as pl

from dp_polars._engines.polars.lowering import is_pattern, is_plain, lowered, plain
from dp_polars._engines.polars.memory import Sizes, cuts_texts, largest_value, makes_texts, own_copy, text_bytes
from dp_polars._expressions.tree import Apply, Column, Constant, Expression, canonical, walk
from dp_polars._expressions.types import MOST_TEXT, kind_of
from dp_polars._plan.digest import public_digest
from dp_polars.errors import InvalidParameterError

_BATCH = 1 << 17  # rows whose columns fit the cache; a file gives whole row groups
_MEMORY = 1 << 28  # bytes that one part of a batch may grow to
_VALUE = 16  # bytes of a value that is no text or list
_MOST_COPIES = 100  # public rows that a row may meet
_OWN = "\0"  # how the names of columns begin that are not the user's

How = Literal["inner", "left", "semi", "anti"]
_FAILURES = (Exception, pl.exceptions.PanicException)

_SMALL = 1 << 16  # public rows that stand for what is found among them
_MOST_KEPT = 16  # constants that are kept as columns: up to 2 MB each
_LARGEST = 400  # steps of an expression that Polars gets as a whole


class RowCountError(Exception):
    """The rows that were read are not as many as the source has."""


# ---------------------------------------------------------------------- steps


@dataclass(frozen=True)
class Filter:
    """Keeps the rows for which all conditions are true."""

    conditions: tuple[Expression, ...]
    columns: tuple[str, ...] | None = None
    """Those that are still needed afterwards; None: all."""


@dataclass(frozen=True)
class Make:
    """Adds or replaces columns; without `keep` exactly these remain."""

    columns: tuple[tuple[str, Expression], ...]
    keep: bool


@dataclass(frozen=True, repr=False, eq=False)
class Lookup:
    """Finds the public rows that have a row's keys. `columns` says what their columns are called afterwards."""

    public: pl.DataFrame
    on: tuple[tuple[str, str], ...]
    how: How
    columns: tuple[tuple[str, str], ...]
    unique: bool
    """Whether no two public rows have the same keys."""
    nulls_equal: bool = False


Step = Filter | Make | Lookup


@dataclass(frozen=True, repr=False, eq=False)
class PrivateRows:
    """The rows of a source after steps. Private: they are never shown.

    Parameters
    ----------
    source
        The rows before the steps.
    steps
        What was applied, in order.
    height
        Returns how many rows the source has, if there is a cheaper way than to ask it.
    narrowed
        Returns the rows of the source without some for which plain conditions (`lowering.is_plain`) are not true, if
        the source can leave them out by itself.
    """

    source: pl.LazyFrame
    steps: tuple[Step, ...] = ()
    height: Callable[[], int] | None = None
    narrowed: Callable[[Sequence[Expression]], PrivateRows] | None = None

    @cached_property
    def source_schema(self) -> pl.Schema:
        """The columns of the source."""
        schema = self.source.collect_schema()
        check_names(schema)
        return schema

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns after the steps."""
        return _schema_after(self.source_schema, self.steps)

    def filter(self, condition: Expression) -> PrivateRows:
        """Return the rows for which a condition is true."""
        if condition.dtype != pl.Boolean:
            raise InvalidParameterError("filter takes conditions: expressions that are true or false in each row.")
        *before, last = self.steps or (None,)
        if isinstance(last, Filter):  # conditions are computed together: each is total, so their order is nothing
            return replace(self, steps=(*before, Filter((*last.conditions, condition))))
        return replace(self, steps=(*self.steps, Filter((condition,))))

    def make(self, columns: Mapping[str, Expression], *, keep: bool = True) -> PrivateRows:
        """Return rows with more or other columns; without `keep` they have no others."""
        if not keep and not columns:  # without a column there would be no rows
            columns = {f"{_OWN}row": Constant(None, pl.Boolean())}
        return replace(self, steps=(*self.steps, Make(tuple(columns.items()), keep)))

    def keep(self, names: Iterable[str]) -> PrivateRows:
        """Return rows with these columns only."""
        return self.make({name: Column(name, self.schema[name]) for name in names}, keep=False)

    def lookup(
        self,
        public: pl.DataFrame,
        *,
        on: Sequence[tuple[str, str]],
        how: How,
        columns: Mapping[str, str],
        unique: bool = True,
        nulls_equal: bool = False,
    ) -> PrivateRows:
        """Return rows with the columns of the public rows that have their keys.

        Parameters
        ----------
        public
            The public rows.
        on
            Pairs of a private and a public column, of the same types, that are equal.
        how
            "inner" and "semi" leave rows out that find nothing, "anti" those that find something, "left" keeps all.
        columns
            Which public columns are added, and under which names.
        unique
            Whether the keys must be unique among the public rows. If not, a row that finds several becomes several
            rows of the same unit: what caps enforce comes afterwards.
        nulls_equal
            Whether a null key finds a null key.
        """
        for mine, theirs in on:
            if self.schema[mine] != public.schema[theirs]:
                raise InvalidParameterError(
                    f"{mine} has the type {self.schema[mine]} and its public counterpart {public.schema[theirs]}: a "
                    "lookup compares values of one type. Cast one of them first."
                )
            if kind_of(self.schema[mine]) in ("float", "list", "array", "struct", "categorical", "null", "other"):
                raise InvalidParameterError(
                    f"{mine} has the type {self.schema[mine]}, by which rows can't be looked up; cast it first."
                )
        long = [name for name in columns if largest_value(public[name]) > MOST_TEXT]
        if long:
            raise InvalidParameterError(
                f"The public frame has values of more than {MOST_TEXT:,} characters or elements in {', '.join(long)}. "
                "Each row that finds one holds it, and memory that runs out for one person's rows would tell that the "
                "person is there. Shorten them, or leave the column out."
            )
        keys = [theirs for _, theirs in on]
        are_unique = public.height <= 1 or (bool(keys) and public.select(keys).n_unique() == public.height)
        if unique and not are_unique:
            raise InvalidParameterError(
                f"The public frame has {', '.join(keys)} more than once: a join would multiply rows and with them "
                "what one unit can change. Make the keys unique first."
            )
        if not unique and public.height and _most_copies(public, keys) > _MOST_COPIES:
            raise InvalidParameterError(
                f"A row may meet {_MOST_COPIES:,} public rows at most, and these have more of the same "
                f"{', '.join(keys) or 'kind: the join has no equal columns'}."
            )
        step = Lookup(public, tuple(on), how, tuple(columns.items()), are_unique, nulls_equal)
        return replace(self, steps=(*self.steps, step))

    def describe(self) -> list[Any]:
        """Return the steps for fingerprints: public frames as digests, nothing of the rows."""
        return [_described(step) for step in self.steps]

    # ------------------------------------------------------------------ evaluation

    def lazy(self, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """Return the rows as a plan that evaluates them batch by batch, with these columns or all."""
        return self.scan(columns).frame

    def scan(self, columns: Sequence[str] | None = None) -> Scan:
        """Return the plan of `lazy` with a count of the rows that went through it."""
        names = list(self.schema if columns is None else columns)
        rows = self if columns is None else self.keep(names)
        schema = pl.Schema({name: rows.schema[name] for name in names})
        wanted, steps = _needs(rows)
        # Without a column there would be no rows: the first one stands for them.
        read = [name for name in self.source_schema if name in wanted] or list(self.source_schema)[:1]
        conditions, steps = _plain_first(steps)
        narrowed = self.narrowed(conditions) if conditions and self.narrowed is not None else self
        native, steps = _native_first(read, steps)
        evaluation = Evaluation(steps, names, counts=not (conditions or native))
        frame = narrowed.source.select([pl.col(name) for name in read])
        if conditions or native:  # Polars takes these steps by itself; what it reads is counted before
            frame = _watched(frame, evaluation.counted)
        if conditions:
            frame = frame.filter([plain(one) for one in conditions])
        for step in native:
            frame = _natively(frame, step)
        chosen = _chosen(frame.collect_schema() if native else read, steps)
        if chosen is None:
            frame = _by_batch(frame, evaluation, schema)
        else:  # nothing is computed, so a pass reads the columns that it needs and no others
            frame = _watched(frame.select([pl.col(chosen[name]).alias(name) for name in names]), evaluation.passed)
        return Scan(frame, evaluation, narrowed.rows_of_source)

    def wider(self, names: Sequence[str]) -> PrivateRows:
        """Return rows in which these columns have all the values that they have here, and maybe more.

        A look at what values there are needn't pay for lookups: columns that don't come from one have no more values
        without it, and those that do have values of the public rows.
        """
        wanted = set(names)
        for place in range(len(self.steps) - 1, -1, -1):
            step = self.steps[place]
            if isinstance(step, Make):
                made = [one for name, one in step.columns if name in wanted]
                wanted = (wanted - {name for name, _ in step.columns}) if step.keep else set()
                wanted = wanted.union(*(one.columns for one in made))
            elif isinstance(step, Lookup) and (found := wanted & {name for _, name in step.columns}):
                if found != wanted or step.public.height > _SMALL:
                    return self
                return PrivateRows(_what_is_found(step).lazy(), _makes(self.steps[place + 1 :]))
        if not wanted or not any(isinstance(step, Lookup) for step in self.steps):
            return self
        first = self.steps[:1] if isinstance(self.steps[0], Filter) else ()
        return replace(self, steps=(*first, *_makes(self.steps)))

    def rows_of_source(self) -> int:
        """Return how many rows the source has, counted in another way than by reading them."""
        if self.height is not None:
            return self.height()
        return int(self.source.select(pl.len()).collect(engine="streaming").item())


def _makes(steps: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(step for step in steps if isinstance(step, Make))


def _what_is_found(step: Lookup) -> pl.DataFrame:
    """Return the public rows that a lookup may find, and one of nulls for rows that find none."""
    rows = pl.DataFrame([step.public[own].alias(name) for own, name in step.columns])
    return pl.concat([rows, pl.DataFrame(schema=rows.schema).clear(1)])


def _by_batch(frame: pl.LazyFrame, function: Callable[[pl.DataFrame], pl.DataFrame], schema: pl.Schema) -> pl.LazyFrame:
    """Return a plan that hands every batch over to a function, and of which nothing is moved past it."""
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
    """Return a plan that hands every batch over to a function which looks at rows as a whole, of whichever columns."""
    return frame.map_batches(
        function,
        streamable=True,
        predicate_pushdown=False,
        projection_pushdown=True,
        slice_pushdown=False,
        validate_output_schema=False,
    )


def _chosen(read: Iterable[str], steps: Sequence[Step]) -> dict[str, str] | None:
    """Return which column of the source each column is after steps that only choose and rename; None after others."""
    found = {name: name for name in read}
    for step in steps:
        if not isinstance(step, Make) or not all(isinstance(one, Column) for _, one in step.columns):
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
    """Return the steps that come first and that Polars may take by itself, up to the last lookup, and the others.

    A lookup by unique keys of the same type gives a row the public row that it finds, or none: Polars' streaming join
    does that for a third of the time that it takes batch by batch. Filters and bare columns between lookups go along.
    """
    columns, last = set(read), 0
    for place, step in enumerate(steps):
        if isinstance(step, Lookup):
            names = {name for _, name in step.columns}
            nested = any(step.public.schema[own].is_nested() for own, _ in step.columns)
            if not step.unique or not step.on or nested or names & columns:
                break
            columns |= names
            last = place + 1
        elif isinstance(step, Filter):
            if not all(map(is_plain, step.conditions)):
                break
            columns = columns if step.columns is None else set(step.columns)
        else:
            if not all(isinstance(one, Column) for _, one in step.columns):
                break
            made = {name for name, _ in step.columns}
            columns = columns | made if step.keep else made
    return list(steps[:last]), list(steps[last:])


def _natively(frame: pl.LazyFrame, step: Step) -> pl.LazyFrame:
    """Return a plan after a step that Polars takes by itself."""
    match step:
        case Filter():
            kept = frame.filter([plain(one) for one in step.conditions])
            return kept if step.columns is None else kept.select([pl.col(name) for name in step.columns])
        case Make():
            made = [pl.col(one.name).alias(name) for name, one in step.columns if isinstance(one, Column)]
            return frame.with_columns(made) if step.keep else frame.select(made)
    keys = [f"{_OWN}key {place}" for place in range(len(step.on))]
    added = [] if step.how in ("semi", "anti") else [step.public[own].alias(name) for own, name in step.columns]
    public = pl.DataFrame([*(step.public[own].alias(key) for key, (_, own) in zip(keys, step.on, strict=True)), *added])
    return frame.join(
        public.lazy(),
        left_on=[mine for mine, _ in step.on],
        right_on=keys,
        how=step.how,
        nulls_equal=step.nulls_equal,
        coalesce=True if step.how == "left" else None,
    )


def rows_of(given: PrivateRows | pl.LazyFrame) -> PrivateRows:
    """Return a plan as rows without steps; rows as they are."""
    return given if isinstance(given, PrivateRows) else PrivateRows(given)


def check_names(names: Iterable[str]) -> None:
    """Refuse names of columns that could be taken for others: patterns of Polars, and names that differ by case alone.

    `pl.col("^x$")` is every column that the pattern matches and `pl.col("*")` all of them; SQL knows no case.
    """
    seen: dict[str, str] = {}
    for name in names:
        if is_pattern(name):
            raise InvalidParameterError(
                f"This frame has a column named {name!r}, which Polars reads as a pattern for other columns: it could "
                "not be told who is protected. Rename it before .dp."
            )
        folded = "".join(sign.lower() if sign.isascii() else sign for sign in name)
        if folded in seen:
            raise InvalidParameterError(
                f"This frame has the columns {seen[folded]!r} and {name!r}, which differ by case alone, and SQL takes "
                "one for the other: it could not be told who is protected. Rename one before it is asked."
            )
        seen[folded] = name


def _most_copies(public: pl.DataFrame, keys: Sequence[str]) -> int:
    if not keys:
        return public.height
    return int(public.group_by(keys).len()["len"].max())  # type: ignore[arg-type]


def _schema_after(schema: pl.Schema, steps: Sequence[Step]) -> pl.Schema:
    found: dict[str, pl.DataType] = dict(schema)
    for step in steps:
        if isinstance(step, Make):
            made = {name: one.dtype for name, one in step.columns}
            found = {**found, **made} if step.keep else made
        elif isinstance(step, Lookup) and step.how in ("inner", "left"):
            found |= {name: step.public.schema[own] for own, name in step.columns}
    return pl.Schema(found)


def _described(step: Step) -> Any:
    match step:
        case Filter():
            return ["filter", [canonical(one) for one in step.conditions]]
        case Make():
            return ["make", [[name, canonical(one)] for name, one in step.columns], step.keep]
    on = [list(pair) for pair in step.on]
    columns = [list(pair) for pair in step.columns]
    return ["lookup", public_digest(step.public), on, step.how, columns, step.unique, step.nulls_equal]


# ---------------------------------------------------------------------- what is needed


def _needs(rows: PrivateRows) -> tuple[set[str], list[Step]]:
    """Return the columns of the source that matter in the end, and the steps without what does not."""
    steps: list[Step] = []
    wanted = set(rows.schema)
    for step in reversed(rows.steps):
        if isinstance(step, Filter):
            steps.append(Filter(step.conditions, tuple(sorted(wanted))))
            wanted = wanted.union(*(one.columns for one in step.conditions))
        elif isinstance(step, Make):
            made = tuple((name, one) for name, one in step.columns if name in wanted)
            if not step.keep and not made:  # without a column there would be no rows
                made = step.columns[:1]
            wanted = (wanted - {name for name, _ in step.columns}) if step.keep else set()
            wanted = wanted.union(*(one.columns for _, one in made))
            steps.append(Make(made, step.keep))
        else:
            wanted -= {name for _, name in step.columns}
            wanted |= {mine for mine, _ in step.on}
            steps.append(step)
    return wanted, steps[::-1]


# ---------------------------------------------------------------------- evaluation


class Evaluation:
    """Applies steps to batches of rows. Each batch is evaluated by itself, in any order, by any thread."""

    def __init__(self, steps: Sequence[Step], names: Sequence[str], *, counts: bool = True) -> None:
        self._steps, self._names, self._counts = tuple(_prepared(step) for step in steps), list(names), counts
        self._lock = threading.Lock()
        self.read = self.given = 0
        self.among: Callable[[pl.DataFrame], pl.DataFrame] | None = None
        """What a pass takes of the rows after all steps; None: all of them."""

    def counted(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch as it is, and count its rows as read: some of them don't reach the steps."""
        with self._lock:
            self.read += batch.height
        return batch

    def passed(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch after steps that Polars made by itself."""
        done = batch if self.among is None else self.among(batch)
        with self._lock:
            self.read += batch.height if self._counts else 0
            self.given += done.height
        return done

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch after all steps."""
        parts = [self._evaluated(part) for part in batch.iter_slices(_BATCH)] or [self._evaluated(batch)]
        done = parts[0] if len(parts) == 1 else pl.concat(parts)
        with self._lock:
            self.read += batch.height if self._counts else 0
            self.given += done.height
        return done

    def _evaluated(self, batch: pl.DataFrame, first: int = 0) -> pl.DataFrame:
        """Return a batch after the steps from `first` on; halved where a step could fill the memory."""
        for place, step in enumerate(self._steps[first:], first):
            if batch.height > 1 and step.needs(batch) + _VALUE * batch.height * batch.width > _MEMORY:
                half = batch.height // 2
                return pl.concat([self._evaluated(part, place) for part in (batch.head(half), batch.tail(-half))])
            batch = step(batch)
        done = batch.select([pl.col(name) for name in self._names])
        return done if self.among is None else self.among(done)


@dataclass(frozen=True, repr=False, eq=False)
class Scan:
    """A plan that reads private rows, and how to see that one pass over it read all of them."""

    frame: pl.LazyFrame
    evaluation: Evaluation
    height: Callable[[], int]

    def begin(self, among: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> None:
        """Begin to count; passes over one scan come one after another. They give the rows that `among` returns."""
        self.evaluation.read = self.evaluation.given = 0
        self.evaluation.among = among

    def check_passes(self, passes: int) -> None:
        """Fail unless so many passes since the beginning have read every row of the source."""
        if self.evaluation.read != passes * self.height():
            raise RowCountError

    def check(self, received: int) -> None:
        """Fail unless the pass has read every row of the source, and all that it gave were received.

        A pass that takes some rows alone has read all of them too: it chooses after reading.
        """
        if self.evaluation.given != received or self.evaluation.read != self.height():
            raise RowCountError


class Prepared(Protocol):
    """A step that is ready to be applied to batches."""

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch after the step."""
        ...

    def needs(self, batch: pl.DataFrame) -> int:
        """Return how many bytes the step makes of a batch at most, while it runs and after it."""
        ...


def _prepared(step: Step) -> Prepared:
    match step:
        case Filter():
            return _Sieve(step)
        case Make():
            return _Maker(step)
    return _Finder(step)


class _Maker:
    """Adds or replaces columns."""

    def __init__(self, step: Make) -> None:
        self._names, self._keep = [name for name, _ in step.columns], step.keep
        self._program = Program([one for _, one in step.columns])
        self.needs = self._program.needs

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch with the columns."""
        made = [one.alias(name) for name, one in zip(self._names, self._program.columns(batch), strict=True)]
        return batch.with_columns(made) if self._keep else pl.DataFrame(made)


class _Sieve:
    """Keeps the rows for which all conditions are true; null is not true."""

    def __init__(self, step: Filter) -> None:
        self._columns = step.columns
        self._program = Program(step.conditions)
        self.needs = self._program.needs

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that are kept."""
        mask, *more = self._program.columns(batch)
        for one in more:
            mask = mask & one
        if self._columns is not None:
            # Without a column there would be no rows: the first one stands for them.
            batch = batch.select(self._columns or batch.columns[:1])
        return batch.filter(mask)


class Program:
    """Expressions that are computed together on a frame in memory, each as a column of the frame's height."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._expressions = tuple(expressions)
        found = dict.fromkeys(one for own in expressions for one in walk(own) if isinstance(one, Constant))
        self._constants = {one: f"{_OWN}constant{place}" for place, one in enumerate(found)}
        self._values = {name: one.series(name) for one, name in self._constants.items()}
        self._pieces = [Pieces(one, place, self._constants) for place, one in enumerate(expressions)]
        self._read = sorted(frozenset[str]().union(*(one.columns for one in expressions)))
        self._nodes = sum(1 for own in expressions for _ in walk(own))
        self._grows = any(makes_texts(own) for own in expressions)
        self._cuts = [cuts_texts(own) for own in expressions]

    def columns(self, batch: pl.DataFrame) -> list[pl.Series]:
        """Return the expressions in each row; null where the engine fails on a row."""
        if all(isinstance(one, Column) for one in self._expressions):
            return [batch[one.name] for one in self._expressions if isinstance(one, Column)]
        # As Series of their own: a column that Polars keeps as one value for all rows would be computed as such.
        frame = pl.DataFrame([batch[name].rechunk() for name in self._read]) if self._read else None
        parts = [self._slice(frame, start, height) for start, height in self._slices(frame, 0, batch.height)]
        if not parts:
            return [pl.Series([], dtype=one.dtype) for one in self._expressions]
        return [pl.concat([part[place] for part in parts]) for place in range(len(self._expressions))]

    @cached_property
    def _kept(self) -> dict[str, pl.Series]:
        """Constants as columns of a whole batch: to make one costs as much as what is computed with it."""
        simple = [(name, one) for name, one in self._values.items() if not one.dtype.is_nested()]
        return {name: one.new_from_index(0, _BATCH) for name, one in simple[:_MOST_KEPT]}

    def problem(self, frame: pl.DataFrame) -> str | None:
        """Return what Polars says about the expressions on public rows, None if nothing is wrong."""
        try:
            self._computed(frame if frame.width else None, max(frame.height, 2), range(len(self._pieces)))
        except RowCountError:
            return "another number of rows, or another type, than announced"
        except _FAILURES as error:
            return (str(error).strip().splitlines() or [""])[0].rstrip(".")
        return None

    def _slices(self, frame: pl.DataFrame | None, start: int, height: int) -> Iterator[tuple[int, int]]:
        """Yield where the slices begin of which no step can fill the memory, and their heights."""
        if not height:
            return
        if (
            height == 1
            or self.needs(pl.DataFrame() if frame is None else frame.slice(start, height), height) <= _MEMORY
        ):
            yield start, height
            return
        half = height // 2
        yield from self._slices(frame, start, half)
        yield from self._slices(frame, start + half, height - half)

    def needs(self, batch: pl.DataFrame, height: int | None = None) -> int:
        """Return how many bytes a batch needs at most: for each value on the way, and for texts that are made."""
        rows = height or batch.height
        if not self._grows:
            return _VALUE * rows * self._nodes
        sizes = Sizes(rows, {one.name: text_bytes(one) for one in batch.iter_columns()})
        return sum(sizes.of(one) for one in self._expressions) + sizes.total + _VALUE * rows * self._nodes

    def _slice(self, frame: pl.DataFrame | None, start: int, height: int) -> list[pl.Series]:
        part = None if frame is None else frame.slice(start, height)
        try:
            return self._computed(part, height, range(len(self._pieces)))
        except _FAILURES:
            # One after another, so that a row is null only where it fails.
            return [self._isolated(part, height, place) for place in range(len(self._pieces))]

    def _isolated(self, part: pl.DataFrame | None, height: int, place: int) -> pl.Series:
        """Return one expression, null in the rows on which it fails: they are found by halving."""
        try:
            return self._computed(part, height, [place])[0]
        except _FAILURES:
            if height == 1 or part is None:
                return pl.repeat(None, height, dtype=self._expressions[place].dtype, eager=True)
        half = height // 2
        pieces = ((part.head(half), half), (part.tail(height - half), height - half))
        return pl.concat([self._isolated(piece, size, place) for piece, size in pieces])

    def _computed(self, part: pl.DataFrame | None, height: int, places: Iterable[int]) -> list[pl.Series]:
        """Return expressions over at least two rows: one row alone would be taken for a value of all rows."""
        rows = max(height, 2)
        padded = (
            [] if part is None else [one if height >= 2 else one.extend_constant(None, rows - height) for one in part]
        )
        kept = self._kept if _BATCH // 16 < rows <= _BATCH else {}
        constants = [
            kept[name].head(rows) if name in kept else one.new_from_index(0, rows) for name, one in self._values.items()
        ]
        frame = pl.DataFrame([*padded, *constants])
        wanted = list(places)
        whole = [place for place in wanted if not self._pieces[place].before]
        found = {}
        if whole:
            selected = frame.select([self._pieces[place].last.alias(str(place)) for place in whole])
            found = {place: selected[str(place)] for place in whole}
        for place in wanted:
            if place not in found:
                found[place] = self._pieces[place].computed(frame)
        checked = []
        for place in wanted:
            one, expression = found[place], self._expressions[place]
            if len(one) != rows or one.dtype != expression.dtype:
                raise RowCountError
            cut = one.head(height)
            checked.append(own_copy(cut) if cut.dtype == pl.String and self._cuts[place] else cut)
        return checked


class Pieces:
    """An expression as Polars expressions that are computed one after another, each of them small.

    An operation may name its argument several times, and one inside of another multiplies that: 60 additions would be
    a tree of 3**60 steps. So what would become too large is computed first, as a column of its own.
    """

    def __init__(self, expression: Expression, place: int, constants: Mapping[Constant, str]) -> None:
        self._prefix, self._constants = f"{_OWN}piece{place} ", constants
        self._names: dict[Expression, str] = {}
        self.before: list[tuple[str, pl.Expr]] = []
        small, _ = self._small(expression)
        self.last = lowered(small, constants)
        self._drop = self._last_uses(small)

    def computed(self, frame: pl.DataFrame) -> pl.Series:
        """Return the expression over a frame that has its columns and constants."""
        for place, (name, expr) in enumerate(self.before):
            frame = frame.with_columns(expr.alias(name))
            if place in self._drop:
                frame = frame.drop(self._drop[place])
        return frame.select(self.last.alias("last")).to_series()

    def _small(self, node: Expression) -> tuple[Expression, int]:
        """Return an expression in which large parts are columns, and an upper bound of its size for Polars."""
        if not isinstance(node, Apply):
            return node, 1
        if node in self._names:
            return Column(self._names[node], node.dtype), 1
        parts = [self._small(one) for one in node.arguments]
        times = self._times(node)
        size = sum(times) + sum(n * own for n, (_, own) in zip(times, parts, strict=True))
        small = [part for part, _ in parts]
        if size > _LARGEST:
            pairs = zip(node.arguments, small, strict=True)
            small = [self._column(one, part) if isinstance(part, Apply) else part for one, part in pairs]
            size = 2 * sum(times)
        return replace(node, arguments=tuple(small)), size

    def _times(self, node: Apply) -> list[int]:
        """Return how often Polars' form of an operation names each of its arguments."""
        if not any(isinstance(one, Apply) for one in node.arguments):
            return [1] * len(node.arguments)
        names = [f"{_OWN}argument{place}" for place in range(len(node.arguments))]
        marked = [Column(name, one.dtype) for name, one in zip(names, node.arguments, strict=True)]
        # A constant stays one, because some are treated apart.
        given = [one if isinstance(one, Constant) else mark for one, mark in zip(node.arguments, marked, strict=True)]
        found = lowered(replace(node, arguments=tuple(given)), self._constants).meta.root_names()
        return [max(found.count(name), 1) for name in names]

    def _column(self, node: Expression, small: Apply) -> Column:
        """Return a part as a column that is computed before."""
        if node not in self._names:
            self._names[node] = f"{self._prefix}{len(self.before)}"
            self.before.append((self._names[node], lowered(small, self._constants)))
        return Column(self._names[node], small.dtype)

    def _last_uses(self, small: Expression) -> dict[int, list[str]]:
        """Return the columns that nobody needs any more after each piece: many of them would fill the memory."""
        needed = {name for name in small.columns if name.startswith(self._prefix)}
        drop: dict[int, list[str]] = {}
        for place in range(len(self.before) - 1, -1, -1):
            used = {name for name in self.before[place][1].meta.root_names() if name.startswith(self._prefix)}
            drop[place] = sorted(used - needed)
            needed |= used
        return {place: names for place, names in drop.items() if names}


# ---------------------------------------------------------------------- public rows


class _Finder:
    """Finds public rows by their keys: each row of a batch gets the number of its public row, and nothing else."""

    def __init__(self, step: Lookup) -> None:
        self._step = step
        self._mine = [mine for mine, _ in step.on]
        keys = [step.public[theirs].alias(mine) for mine, theirs in step.on]
        # By number, so that what Polars joins are keys and numbers alone.
        self._numbers = _numbered(f"{_OWN}public", keys, step.public.height)
        self._added = {name: step.public[own].rechunk() for own, name in step.columns}
        copies = 1 if step.unique or not step.public.height else _most_copies(step.public, [on for _, on in step.on])
        found = self._added.values() if step.how in ("inner", "left") else ()
        each = sum(4 * largest_value(one) for one in found if one.dtype == pl.String or one.dtype.is_nested())
        self._each, self._copies = each, copies

    def needs(self, batch: pl.DataFrame) -> int:
        """Return how many bytes the rows of a batch may become with what they find."""
        width = batch.width + len(self._added) if self._copies > 1 else 0
        return (self._each + _VALUE * width) * self._copies * batch.height

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch with what was found."""
        step = self._step
        numbered = _numbered(f"{_OWN}row", [batch[name] for name in self._mine], batch.height)
        if not self._mine:
            found = numbered.join(self._numbers, how="cross")
        else:
            found = numbered.join(
                self._numbers, on=self._mine, how="inner", nulls_equal=step.nulls_equal, maintain_order="left"
            )
        rows, places = found[f"{_OWN}row"], found[f"{_OWN}public"]
        if step.unique and rows.n_unique() != len(rows):
            raise RowCountError  # a row that met two public rows
        if step.how in ("semi", "anti"):
            met = pl.repeat(False, batch.height, dtype=pl.Boolean, eager=True).scatter(rows, True)
            return batch.filter(met if step.how == "semi" else ~met)
        if step.how == "left":
            everyone = _numbered(f"{_OWN}row", [], batch.height)
            found = everyone.join(found, on=f"{_OWN}row", how="left", maintain_order="left")
            rows, places = found[f"{_OWN}row"], found[f"{_OWN}public"]
        kept = batch[rows] if batch.height else batch
        added = [one.gather(places).alias(name) for name, one in self._added.items()]
        return kept.with_columns(added) if added else kept


def _numbered(name: str, columns: Sequence[pl.Series], height: int) -> pl.DataFrame:
    """Return columns beside the number of each row; without columns the numbers alone."""
    return pl.DataFrame([pl.int_range(height, dtype=pl.UInt32, eager=True).alias(name), *columns])


# ---------------------------------------------------------------------- reading


def batches(frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Run a plan on the streaming engine and yield its rows in pieces, in any order.

    The engine hands over batches to a function and then returns or fails: `collect_batches` ends quietly if it fails,
    and the rows so far would be taken for all.
    """
    queue: Queue[pl.DataFrame | None] = Queue(maxsize=4)
    failed: list[BaseException] = []
    stopped = threading.Event()

    def hand_over(batch: pl.DataFrame) -> bool | None:
        while not stopped.is_set():
            try:
                queue.put(batch, timeout=0.1)
            except Exception:  # noqa: BLE001, S112 - full: wait for the reader, or for the end
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
            yield from batch.iter_slices(_BATCH)
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
