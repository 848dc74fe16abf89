"""Releases as people see them, reservations that become releases, and the form in which frames are stored."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from types import TracebackType
from typing import Any

import polars as pl
import polars.selectors as cs

from dp_polars._display.report import Report, report_of
from dp_polars._display.session import release_html, release_text
from dp_polars._display.text import budget_text, escaped
from dp_polars._session.cost import Cost
from dp_polars._session.exclusive_lock import Exclusive
from dp_polars._session.filters import part_of
from dp_polars._session.ledger import Charge, Entry, Ledger, State, StoredDraw
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidDataError, InvalidParameterError, LedgerError, SessionClosed


class Release:
    """One charge of a session, and the frame that was released for it.

    Attributes
    ----------
    entry
        Its row in the ledger: number, label, state, cost, and when it was reserved and finished.
    stored
        Whether it was found in the ledger, which costs nothing.
    plan
        The plan of the release, from the unit to the noise; None if another process made the release.
    part
        The part of the session's budget that it used, as a number between 0 and 1. The parts of all releases add up to
        `session.spent.share`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit=dp.ROW)
    >>> counted = dp.private(pl.DataFrame({"km": [2, 4] * 50}), session).count(epsilon=0.5)
    >>> release = session.releases[0]
    >>> release.frame.equals(counted), release.state, release.part, release.cost, release.error
    (True, 'committed', 0.5, <dp.Cost epsilon 0.5, rho 0.122459>, {'count': 6.0})
    >>> release.title, release.keys
    ('Count', ())
    >>> release.notes  # every row is a unit here, so no cap cuts anything off
    []
    """

    def __init__(
        self,
        entry: Entry,
        read: Callable[[], pl.DataFrame | None],
        *,
        part: Callable[[], float],
        terms: Terms,
        stored: bool,
        plan: Any = None,
    ) -> None:
        self.entry, self.stored, self.plan = entry, stored, plan
        self._read, self._part, self._terms = read, part, terms

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The released frame."""
        frame = self._read()
        if frame is None:
            raise InvalidParameterError(
                f"Charge number {self.id} released nothing: its state is {self.state!r}. It stays charged."
            )
        return frame

    @cached_property
    def part(self) -> float:
        """The part of the session's budget that it used."""
        return self._part()

    @property
    def id(self) -> int:
        """Its number in the ledger."""
        return self.entry.id

    @property
    def label(self) -> str:
        """A short description of the query."""
        return self.entry.label

    @property
    def state(self) -> State:
        """Its state: "committed", "failed", or still "reserved"."""
        return self.entry.state

    @property
    def cost(self) -> Cost:
        """Its cost in every measure."""
        return self.entry.cost

    @property
    def reserved_at(self) -> str:
        """The time at which it was charged."""
        return self.entry.reserved_at

    @property
    def finished_at(self) -> str | None:
        """The time at which it was committed or failed; None while it is reserved."""
        return self.entry.finished_at

    @property
    def error(self) -> dict[str, float]:
        """The expected error of each answer at 95 % confidence, where it follows from public facts alone.

        An error that was planned for a group of a certain size (`if_rows=`) says little about groups of other sizes, so
        it is not part of it.
        """
        found: dict[str, float] = {} if self.plan is None else getattr(self.plan, "expected_errors", dict)()
        planned = {name for name, _ in getattr(self.plan, "errors_if_rows", ())}
        return {name: error for name, error in found.items() if name not in planned}

    @property
    def notes(self) -> list[tuple[str, str]]:
        """What a reader of the frame should know besides its noise, each with a name.

        This is what caps and bounds cut off, which groups are too small for their noise, and so on. All of it follows
        from the plan and from released numbers.
        """
        found: list[tuple[str, str]] = getattr(self.plan, "notes", list)()
        return found

    @property
    def title(self) -> str:
        """What was asked, as a title: the label that the user gave, or the question and its filters."""
        return self.label if self.plan is None else str(self.plan.in_words())

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns of the frame.

        If another process made the release, these are the columns before the first number.
        """
        query = getattr(self.plan, "query", None)
        if query is not None:
            return tuple(key.name for key in query.keys if key.name in self.frame.columns)
        names = self.frame.columns
        numbers = [place for place, dtype in enumerate(self.frame.dtypes) if dtype.is_numeric()]
        return tuple(names[: numbers[0]]) if numbers else tuple(names)

    def report(self) -> Report:
        """Return the release as a paragraph and a table for a memo, in Markdown and HTML.

        The paragraph says how the data are protected, how much of each unit counts, how accurate the numbers are, and
        what is missing. It follows from the plan and from released numbers, and it costs nothing.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": range(200), "region": ["north", "south"] * 100})
        >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1) as session:
        ...     counts = visits.dp.count("region", keys=["north", "south"], epsilon=0.5)
        >>> print(session.releases[-1].report().markdown)
        ## Count by region
        ...
        | region | count |
        |:--|--:|
        | north | ... |
        | south | ... |
        """
        return report_of(self, self._terms if self.plan is None else self.plan.terms)

    def __repr__(self) -> str:
        shown = f", {self._shape()}" if self.state == "committed" else ""
        again = ", found again" if self.stored else ""
        return f"<dp.Release {self.id}: {escaped(self.label)}; {self.state}, {budget_text(self.part)}{shown}{again}>"

    def __str__(self) -> str:
        return release_text(self)

    def _repr_html_(self) -> str:
        return release_html(self)

    def _shape(self) -> str:
        rows, columns = self.frame.shape
        return f"{rows:,} {'row' if rows == 1 else 'rows'} of {columns} {'column' if columns == 1 else 'columns'}"


@dataclass(frozen=True)
class Chosen:
    """A cap or a pair of bounds that was estimated, and the noisy number of units that it rests on."""

    values: tuple[Fraction, ...]
    units: int


@dataclass(frozen=True, repr=False)
class Draw:
    """Noisy numbers that were released, from which every presentation of them is made.

    Attributes
    ----------
    numbers
        The keys that are shown and their noisy numbers. Groups that are not shown are not among them.
    estimates
        The caps and bounds that were estimated first, in the order of the plan.
    """

    numbers: pl.DataFrame
    estimates: tuple[Chosen, ...] = ()

    def stored(self, key: bytes, *, streamed: bool) -> StoredDraw:
        """Return the numbers in the form that the ledger keeps."""
        estimates = [[[str(value) for value in estimate.values], estimate.units] for estimate in self.estimates]
        return StoredDraw(key, _written(as_shown(self.numbers), streamed=streamed), json.dumps(estimates))

    @classmethod
    def read(cls, stored: StoredDraw, identifier: int) -> Draw:
        """Return the numbers that the ledger keeps for a charge."""
        numbers = from_ipc(stored.numbers, identifier)
        try:
            estimates = [
                Chosen(tuple(map(Fraction, values)), int(units)) for values, units in json.loads(stored.estimates)
            ]
            return cls(numbers, tuple(estimates))
        except (ValueError, TypeError, ZeroDivisionError):
            raise _damaged(identifier) from None


class Reservation:
    """A charge in the ledger that waits for its release. It can be finished once and is never given back.

    Use it in a `with` block, and read private rows only there. If the block fails, or ends without `commit`, the charge
    is marked as failed and the session is closed, because a failure may depend on one person's row. An interrupt
    (Ctrl-C) does not close the session, unless it comes in the few interpreter steps between the end of `reserve` and
    the start of the block: then the charge stays open, and counts as dead once the process ends.

    Attributes
    ----------
    id
        The number of the charge.
    before
        What the session had spent before this charge.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit="user")
    >>> with session.reserve(dp.pure_cost(0.5), label="people") as reservation:
    ...     noisy = dp.mechanisms.laplace(1_000, sensitivity=1, epsilon=0.5)
    ...     release = reservation.commit(pl.DataFrame({"people": [noisy]}))
    >>> release.id, release.frame.columns
    (1, ['people'])
    """

    def __init__(self, ledger: Ledger, charge: Charge, terms: Terms) -> None:
        self._ledger, self._charge, self.id = ledger, charge, charge.id
        self._terms, self.before = terms, charge.before
        self._open = True
        self._unfit: InvalidDataError | None = None  # why the type of a frame, whatever its rows, can't be stored
        self._guard = Exclusive(None)  # only to recognise a forked copy

    def commit(self, frame: pl.DataFrame | pl.Series) -> Release:
        """Store the released frame or Series. Hand out only what this returns."""
        return self._commit(frame)

    def _commit(self, frame: pl.DataFrame | pl.Series, draw: Draw | None = None, draw_key: bytes = b"") -> Release:
        """Store the released frame, and the noisy numbers that it was made from."""
        self._check_open()
        try:
            shown = as_shown(frame.to_frame() if isinstance(frame, pl.Series) else frame)
            streamed = self._ledger.path is None
            stored = _written(shown, streamed=streamed)
            numbers = None if draw is None else draw.stored(draw_key, streamed=streamed)
        except InvalidDataError as error:
            self._unfit = error
            raise
        try:
            self._ledger.commit(self._charge, stored, numbers)
        except SessionClosed:
            self._open = False
            raise
        self._open = False
        entry = self._ledger.entry(self.id)
        part = partial(part_of, self._terms, self.before, entry.cost)
        return Release(entry, lambda: shown, part=part, terms=self._terms, stored=False)

    def fail(self, *, closes: bool = True) -> None:
        """Mark the release as failed. The charge stays, because data may have been read after it was made.

        Parameters
        ----------
        closes
            Close the session, because the failure may depend on private rows. Pass False only where it cannot.
        """
        self._check_open()
        self._open = False
        closing = self._ledger.fail(self._charge, closes=closes)
        if closing is not None and closes:  # of several queries under way, only one may tell that it failed
            raise SessionClosed(closing)

    def _check_open(self) -> None:
        if self._guard.inherited():
            raise LedgerError(
                "This charge belongs to the process that this one was forked from. Only that process can finish it."
            )
        if not self._open:
            raise LedgerError("This reservation is already finished: it can be released once.")

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._open or self._guard.inherited():
            return
        if isinstance(error, KeyboardInterrupt):
            with contextlib.suppress(LedgerError):  # the interrupt may have come after the commit was written
                self.fail(closes=False)
        else:
            # A failure inside `commit` does not depend on a row, because all rows were read before it.
            self.fail(closes=not isinstance(error, LedgerError) and (error is None or error is not self._unfit))


def release_key(query: bytes, source: bytes) -> bytes:
    """Return the key under which a release is stored: the same query on the same source has the same key.

    Both arguments are canonical bytes of public descriptions. Neither is ever computed from rows.
    """
    digest = hashlib.sha256(len(query).to_bytes(8, "big"))
    digest.update(query)
    digest.update(source)
    return digest.digest()


_FEW_BYTES = 1 << 14
_PLAIN = frozenset(
    {
        *(pl.Boolean, pl.String, pl.Float32, pl.Float64),
        *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
    }
)
"""Types whose values Python holds exactly."""


def to_ipc(frame: pl.DataFrame) -> bytes:
    """Return a frame as Arrow IPC bytes that hold what the frame shows and nothing else."""
    return _written(as_shown(frame), streamed=False)


def as_shown(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a copy of a frame that holds what the frame shows and nothing else.

    The buffers of a frame can hold more than it shows: strings of rows that were filtered out, values behind nulls, the
    categories of a Categorical in the order of the data. A small frame of plain types is made anew from its values.
    Parquet writes values one by one, so a round trip through it drops everything else from other frames.
    """
    if not isinstance(frame, pl.DataFrame):
        raise InvalidDataError(f"A release must be a Polars DataFrame or Series, got {type(frame).__name__}.")
    if frame.width and frame.estimated_size() <= _FEW_BYTES and all(map(_is_plain, frame.dtypes)):
        # By name, because Polars gives a list of columns new names where they have none.
        return pl.DataFrame({column.name: pl.Series(column.name, column.to_list(), column.dtype) for column in frame})
    if any(isinstance(dtype, pl.Categorical) for dtype in frame.schema.values()):
        frame = frame.with_columns(cs.categorical().cast(pl.String))
    unfit = [name for name, dtype in frame.schema.items() if "Categorical" in str(dtype) or dtype == pl.Object]
    values = io.BytesIO()
    try:
        if not unfit:
            frame.write_parquet(values)
            values.seek(0)
            plain = pl.read_parquet(values)
            return plain if plain.schema == frame.schema else plain.cast(frame.schema)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        unfit = frame.columns
    raise _not_storable(unfit)


def _is_plain(dtype: pl.DataType) -> bool:
    return dtype in _PLAIN or (isinstance(dtype, pl.Array | pl.List) and dtype.inner in _PLAIN)


def _written(frame: pl.DataFrame, *, streamed: bool) -> bytes:
    """Return a frame as Arrow IPC bytes: a file, or a stream, which Polars handles in a tenth of the time.

    The ledger in a file stores files, which older versions can read. A ledger in memory ends with its process, so it
    stores streams.
    """
    buffer = io.BytesIO()
    with contextlib.suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException):
        (frame.write_ipc_stream if streamed else frame.write_ipc)(buffer, compression="zstd")
        return buffer.getvalue()
    raise _not_storable(frame.columns)


def _not_storable(names: list[str]) -> InvalidDataError:
    return InvalidDataError(f"The type of {', '.join(names)} can't be stored: cast it before the release.")


def from_ipc(stored: bytes, identifier: int) -> pl.DataFrame:
    """Return the frame that was stored for a charge."""
    found: list[pl.DataFrame] = []
    with contextlib.suppress(Exception, pl.exceptions.PanicException):
        found.append((pl.read_ipc if stored.startswith(b"ARROW1") else pl.read_ipc_stream)(io.BytesIO(stored)))
    if not found:
        raise _damaged(identifier)
    return found[0]


def _damaged(identifier: int) -> LedgerError:
    return LedgerError(
        f"The stored release of charge number {identifier} is damaged. Restore the ledger from a backup that has "
        "every release, or pay for a new release with fresh=True.",
        code="ledger-damaged",
    )
