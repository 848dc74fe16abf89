"""A charge that waits for its release, and releases that are kept to be found again."""

from __future__ import annotations

import contextlib
import hashlib
import io
from types import TracebackType

import polars as pl
import polars.selectors as cs

from dp_polars._session.exclusive_lock import Exclusive
from dp_polars._session.ledger import Charge, Ledger
from dp_polars._session.release_record import Release
from dp_polars.errors import InvalidDataError, LedgerError, SessionClosed


class Reservation:
    """A charge in the ledger that waits for its release. It can be finished once and never given back.

    Use it in a `with` block and read private rows nowhere else. If the block fails, or ends without `commit`, the
    charge is marked as failed and the session is closed: whether something fails may depend on one person's row. An
    interrupt (Ctrl-C) doesn't close it, except in the few steps of the interpreter between the end of `reserve` and the
    beginning of the block: then the charge stays open, and counts as dead when the process ends. `id` is the charge's
    number.

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

    def __init__(self, ledger: Ledger, charge: Charge) -> None:
        self._ledger, self._charge, self.id = ledger, charge, charge.id
        self._open = True
        self._unfit: InvalidDataError | None = None  # why a frame can't be stored: by its type alone
        self._guard = Exclusive(None)  # knows a forked copy

    def commit(self, frame: pl.DataFrame | pl.Series) -> Release:
        """Store the released frame (or Series); only what this returns may be handed out."""
        self._check_open()
        try:
            stored = to_ipc(frame.to_frame() if isinstance(frame, pl.Series) else frame)
        except InvalidDataError as error:
            self._unfit = error
            raise
        try:
            self._ledger.commit(self._charge, stored)
        except SessionClosed:
            self._open = False
            raise
        self._open = False
        entry = self._ledger.entry(self.id)
        return Release(entry, lambda: from_ipc(stored, entry.id), stored=False)

    def fail(self, *, closes: bool = True) -> None:
        """Mark the release as failed. The charge stays: what happened after it may have touched data.

        Parameters
        ----------
        closes
            Close the session, because the failure may depend on private rows. False where it surely does not.
        """
        self._check_open()
        self._open = False
        standing = self._ledger.fail(self._charge, closes=closes)
        if standing is not None and closes:  # no more than one of the questions under way tells that it failed
            raise SessionClosed(standing)

    def _check_open(self) -> None:
        if self._guard.inherited():
            raise LedgerError("This charge belongs to the process that this one was forked from; it is finished there.")
        if not self._open:
            raise LedgerError("This reservation is finished already; a release happens once.")

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
            with contextlib.suppress(LedgerError):  # interrupted in the middle of the commit, it may be finished
                self.fail(closes=False)
        else:
            # What fails in `commit` doesn't depend on a row: rows are read before.
            self.fail(closes=not isinstance(error, LedgerError) and (error is None or error is not self._unfit))


def release_key(query: bytes, source: bytes) -> bytes:
    """Return the key of a stored release: the same query on the same source has the same one.

    Both are canonical bytes of public descriptions; neither is ever computed from rows.
    """
    digest = hashlib.sha256(len(query).to_bytes(8, "big"))
    digest.update(query)
    digest.update(source)
    return digest.digest()


def to_ipc(frame: pl.DataFrame) -> bytes:
    """Return a frame as Arrow IPC that holds what the frame shows and nothing else.

    A frame's buffers can hold more than it shows: strings of rows that were filtered out, values behind a null, the
    categories of a Categorical in the order in which the data had them. Parquet writes values one by one, so a round
    trip through it leaves all of that behind.
    """
    if not isinstance(frame, pl.DataFrame):
        raise InvalidDataError(f"A release is a Polars DataFrame or Series, got {type(frame).__name__}.")
    frame = frame.with_columns(cs.categorical().cast(pl.String))
    unfit = [name for name, dtype in frame.schema.items() if "Categorical" in str(dtype) or dtype == pl.Object]
    values, buffer = io.BytesIO(), io.BytesIO()
    try:
        if not unfit:
            frame.write_parquet(values)
            values.seek(0)
            pl.read_parquet(values).cast(frame.schema).write_ipc(buffer, compression="zstd")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        unfit = frame.columns
    if unfit:
        raise InvalidDataError(f"A type in {', '.join(unfit)} can't be stored; cast it before the release.")
    return buffer.getvalue()


def from_ipc(stored: bytes, identifier: int) -> pl.DataFrame:
    """Return the frame that `to_ipc` wrote for a charge."""
    found: list[pl.DataFrame] = []
    with contextlib.suppress(Exception, pl.exceptions.PanicException):
        found.append(pl.read_ipc(io.BytesIO(stored)))
    if not found:
        raise LedgerError(
            f"The stored release of charge number {identifier} is damaged. Restore the ledger from a backup that has "
            "every release, or pay for a new one with fresh=True."
        )
    return found[0]
