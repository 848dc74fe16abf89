"""A charge that waits for its release, and releases that are kept to be found again."""

from __future__ import annotations

import hashlib
import io
from types import TracebackType

import polars as pl
import polars.selectors as cs

from dp_polars.accounting.ledger import Ledger
from dp_polars.accounting.release import Release
from dp_polars.errors import InvalidDataError, LedgerError


class Reservation:
    """A charge in the ledger that waits for its release. It can be finished once and never given back.

    Use it in a `with` block: if the block ends without `commit`, the charge is marked as failed. `id` is its number.

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

    def __init__(self, ledger: Ledger, identifier: int) -> None:
        self._ledger, self.id = ledger, identifier
        self._open = True

    def commit(self, frame: pl.DataFrame | pl.Series) -> Release:
        """Store the released frame (or Series); only what this returns may be handed out."""
        frame = frame.to_frame() if isinstance(frame, pl.Series) else frame
        stored = to_ipc(frame)
        self._close()
        self._ledger.finish(self.id, "committed", stored)
        return Release(self._ledger.entry(self.id), lambda: from_ipc(stored), stored=False)

    def fail(self) -> None:
        """Mark the release as failed. The charge stays: what happened after it may have touched data."""
        self._close()
        self._ledger.finish(self.id, "failed")

    def _close(self) -> None:
        if not self._open:
            raise LedgerError("This reservation is finished already; a release happens once.")
        self._open = False

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open:
            self.fail()


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
    except pl.exceptions.PolarsError:
        unfit = frame.columns
    if unfit:
        raise InvalidDataError(f"A type in {', '.join(unfit)} can't be stored; cast it before the release.")
    return buffer.getvalue()


def from_ipc(stored: bytes) -> pl.DataFrame:
    """Return the frame that `to_ipc` wrote."""
    return pl.read_ipc(io.BytesIO(stored))
