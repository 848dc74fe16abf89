"""A session: one budget, the door through which every release is charged and kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import polars as pl

from dp_polars._numbers import Number
from dp_polars._session.affordability import Mechanism, affordable_count, largest_affordable
from dp_polars._session.budget import Budget
from dp_polars._session.cost import Cost
from dp_polars._session.current import enter, leave, may_spend
from dp_polars._session.defaults import Cap, Defaults, read_defaults
from dp_polars._session.facts import Fact
from dp_polars._session.filters import accepts, share_of
from dp_polars._session.interrupts import Deferred
from dp_polars._session.ledger import Closing, Entry, Ledger
from dp_polars._session.minimum_price import check_price
from dp_polars._session.release_record import Release
from dp_polars._session.reservation import Reservation, from_ipc
from dp_polars._session.terms import Adjacency, Terms, _Row, agree
from dp_polars.errors import BudgetExceeded, DPError, InvalidParameterError

_PLANS = 100  # of the last releases are kept to be shown
_LONGEST_REASON = 1000


class Session:
    """One privacy budget, agreed once and never overspent.

    Parameters
    ----------
    epsilon
        The total privacy loss. Alone: a pure session. With `delta`: an approximate one.
    delta
        The probability with which the guarantee may fail; keep it far below one over the number of people.
    rho
        Instead of epsilon: a zero-concentrated session (with a `delta` for discovering keys).
    unit
        Who is protected: the column that identifies a person, several columns, or `dp.ROW`.
    adjacency
        "add_remove": all rows of one unit appear or vanish. "replace": they are swapped for another unit's.
    group_size
        How many units are protected together.
    per_unit
        Columns that are constant for each unit.
    max_groups, max_rows_per_group
        Default contribution bounds: groups per unit, rows per unit and group ("auto" to estimate them).
    queries
        How many queries the session is planned for; each then spends a share of 1/queries by default.
    key_delta
        The part of delta for discovering keys (`select_partitions`) and other (epsilon, delta) mechanisms; a quarter
        if not given. The rest is for Gaussian noise and concentrated accounting.
    ledger
        A path keeps the session in a file that several processes can share; without it, in memory.

    Examples
    --------
    >>> import dp_polars as dp
    >>> import polars as pl
    >>> session = dp.Session(epsilon=1.0, unit="user_id")
    >>> with session.reserve(dp.pure_cost(0.1), label="my own mechanism", key=b"mine") as reservation:
    ...     noisy = dp.mechanisms.laplace(1_000, sensitivity=1, epsilon=0.1)
    ...     release = reservation.commit(pl.DataFrame({"count": [noisy]}))
    >>> session.spent.epsilon, session.remaining.epsilon
    (0.1, 0.9)
    >>> session.can_afford(dp.pure_cost(1.0)), session.largest_affordable()
    (False, 0.9)
    >>> session.stored(b"mine").frame.equals(release.frame), session.release(1).state, session.export().height
    (True, 'committed', 1)
    >>> session.closed, session.closings, session.reopenings
    (False, (), 0)
    """

    def __init__(
        self,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        rho: Number | None = None,
        unit: str | Sequence[str] | _Row | None = None,
        adjacency: Adjacency = "add_remove",
        group_size: int = 1,
        per_unit: str | Sequence[str] = (),
        max_groups: Cap = None,
        max_rows_per_group: Cap = None,
        queries: int | None = None,
        key_delta: Number | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        terms = agree(
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            unit=unit,
            adjacency=adjacency,
            group_size=group_size,
            key_delta=key_delta,
        )
        defaults = read_defaults(
            per_unit=per_unit, max_groups=max_groups, max_rows_per_group=max_rows_per_group, queries=queries
        )
        if ledger == ":memory:":
            raise InvalidParameterError("Without ledger= a session is in memory; ':memory:' is not a path.")
        if ledger is None:
            opened = Ledger.in_memory(terms, defaults.to_json())
        else:
            opened = Ledger.at(Path(ledger), terms, defaults.to_json())
        self._start(terms, defaults, opened)

    def _start(self, terms: Terms, defaults: Defaults, ledger: Ledger) -> None:
        self._terms, self._defaults, self._ledger = terms, defaults, ledger
        self._plans: dict[int, object] = {}

    def _throwaway(self) -> Session:
        """Return a new session in memory with the same terms and defaults, of which nothing is spent."""
        session = Session.__new__(Session)
        session._start(self._terms, self._defaults, Ledger.in_memory(self._terms, self._defaults.to_json()))
        return session

    @classmethod
    def from_ledger(cls, path: str | Path) -> Session:
        """Open the session kept in a ledger file, with its own terms and defaults.

        Examples
        --------
        >>> import dp_polars as dp, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dp.Session(epsilon=1.0, unit="user_id", ledger=f"{folder}/budget.db").close()
        ...     session = dp.Session.from_ledger(f"{folder}/budget.db")
        ...     print(session)
        ...     session.close()
        <dp.Session epsilon=1, unit=user_id, 0.0% used>
        """
        ledger = Ledger.open(Path(path))
        terms, defaults = ledger.agreement()
        session = cls.__new__(cls)
        session._start(terms, Defaults.from_json(defaults), ledger)
        return session

    # ------------------------------------------------------------------ what was agreed and what is left

    @property
    def terms(self) -> Terms:
        """What was agreed at opening."""
        return self._terms

    @property
    def defaults(self) -> Defaults:
        """The session's default bounds and spend."""
        return self._defaults

    @property
    def spent(self) -> Budget:
        """What all charges sum to."""
        return self._budget(self._ledger.spent())

    @property
    def remaining(self) -> Budget:
        """What is left in each measure. A release fits if it fits one of epsilon and rho, and delta."""
        terms, spent = self._terms, self._ledger.spent()
        epsilon = None if terms.epsilon is None else max(0.0, float(terms.epsilon - spent.epsilon))
        rho = None if terms.measure == "pure" else max(0.0, float(terms.rho_allowed - spent.rho))
        return Budget(
            epsilon=epsilon,
            rho=rho,
            delta=max(0.0, float(terms.native_delta - spent.delta)),
            share=max(0.0, 1 - share_of(terms, spent)),
        )

    def _budget(self, cost: Cost) -> Budget:
        return Budget(
            epsilon=None if self._terms.epsilon is None else float(cost.epsilon),
            rho=None if self._terms.measure == "pure" else float(cost.rho),
            delta=float(cost.delta),
            share=share_of(self._terms, cost),
        )

    def can_afford(self, cost: Cost) -> bool:
        """Whether a release of this cost would be accepted now. Charges nothing."""
        return self.affordable_count(cost, most=1) == 1

    def affordable_count(self, cost: Cost, *, most: int = 10**9) -> int:
        """Return how many releases of this cost would be accepted now, up to `most`. Charges nothing.

        Examples
        --------
        >>> import dp_polars as dp
        >>> session = dp.Session(epsilon=1.0, delta=1e-6, unit="user_id")
        >>> session.affordable_count(dp.pure_cost(0.1)), session.affordable_count(dp.pure_cost(0.01))
        (10, 458)
        """
        self._check_cost(cost)
        return affordable_count(self._terms, self._ledger.spent(), cost, most)

    def largest_affordable(
        self, *, mechanism: Mechanism = "laplace", measure: Literal["epsilon", "rho"] = "epsilon"
    ) -> float:
        """Return the largest spend that would be accepted now, as the epsilon or rho of one release (0: none)."""
        return largest_affordable(self._terms, self._ledger.spent(), mechanism, measure)

    # ------------------------------------------------------------------ charging

    def reserve(self, cost: Cost, *, label: str, key: bytes | None = None) -> Reservation:
        """Charge `cost` before data are read, or raise `BudgetExceeded` or `SessionClosed` and charge nothing.

        Parameters
        ----------
        cost
            What the release declares; see `dp.pure_cost` and `dp.gaussian_cost`.
        label
            A public description for the ledger. It must not hold anything that was read from the data.
        key
            Any bytes that stand for one query on one version of the data; `stored(key)` finds the release again.

        Returns
        -------
        Reservation
            To be committed with the released frame. Whatever happens, the charge stays.
        """
        self._check_cost(cost)
        if not may_spend(self):
            raise InvalidParameterError(
                "Nothing may be spent here by this session: ask for the plan, df.dp.preview.count(...) or so; in an "
                "audit, ask with dp.current_session(), which is thrown away."
            )
        check_text(label, "label= describes the release for the ledger")
        if key is not None and not isinstance(key, bytes):
            raise InvalidParameterError("key= must be bytes, the same for the same query on the same source.")
        reservation: Reservation | None = None
        try:
            with Deferred():
                charge = self._ledger.reserve(cost, label, key, lambda total: accepts(self._terms, total))
                if charge is None:
                    raise self._refusal(cost)
                reservation = Reservation(self._ledger, charge)
            return reservation  # noqa: RET504 - what `with` does at its end may raise
        except BaseException:
            if reservation is not None:  # Ctrl-C came meanwhile; nobody will use the charge, and nothing was read yet
                reservation.fail(closes=False)
            raise

    def stored(self, key: bytes) -> Release | None:
        """Return the newest release kept under a key, or None. Charges nothing."""
        found = self._ledger.find(key)
        if found is None:
            return None
        entry, frame = found
        return self._released(entry, frame)

    def check(self, cost: Cost) -> None:
        """Raise `SessionClosed` or `BudgetExceeded` if a cost would be refused now; charge nothing."""
        self._ledger.refuse_closed()
        if not self.can_afford(cost):
            raise self._refusal(cost)

    def _check_cost(self, cost: Cost) -> None:
        if type(cost) is not Cost:  # a subclass could add up otherwise
            raise InvalidParameterError(
                f"The cost of a release is a dp.Cost, got {type(cost).__name__}: pass for example dp.pure_cost(0.1)."
            )
        if not (cost.epsilon and cost.rho):
            raise InvalidParameterError("A release costs something in epsilon and in rho; this cost says it is free.")
        check_price(self._terms, cost)

    # ------------------------------------------------------------------ closed by a failure, reopened by the owner

    @property
    def closed(self) -> bool:
        """Whether private questions are refused because one failed on private rows or died; see `reopen`."""
        return any(one.reopened_at is None for one in self.closings)

    @property
    def closings(self) -> tuple[Closing, ...]:
        """Every time that a charge closed the session, and when and why it was reopened."""
        return tuple(self._ledger.closings())

    @property
    def reopenings(self) -> int:
        """How often the session was reopened."""
        return self._ledger.reopenings()

    def reopen(self, *, reason: str) -> None:
        """Open a session again that a failure closed. The owner's act: it is counted and shown wherever the session is.

        A question that fails depending on the rows tells something that nobody paid for. Find out first why it failed,
        on data that you may see.

        Parameters
        ----------
        reason
            Why questions may be asked again. It is kept in the ledger with the time.

        Examples
        --------
        >>> import dp_polars as dp
        >>> session = dp.Session(epsilon=1.0, unit="user_id")
        >>> session.reserve(dp.pure_cost(0.1), label="my own mechanism").fail()
        >>> session.closed
        True
        >>> session.reopen(reason="A file was missing.")
        >>> session.closed, session.reopenings, session.closings[0].reason
        (False, 1, 'A file was missing.')
        """
        check_text(reason, "reason= says for the ledger why the session is reopened")
        if len(reason) > _LONGEST_REASON:
            raise InvalidParameterError(f"reason= is kept for everybody to read: at most {_LONGEST_REASON} characters.")
        self._ledger.reopen(reason)

    def _refuse_closed(self) -> int:
        """Raise `SessionClosed` if the session is closed; else return how often it was closed so far."""
        return self._ledger.refuse_closed()

    def _close_by(self, release: Release) -> None:
        """Close the session because a question failed that an earlier charge paid for, as those of a stream."""
        self._ledger.close_by(release.id)

    # ------------------------------------------------------------------ what the owner says about the data

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What was recorded about the data as the owner's word that it is public: types of a text file's columns.

        >>> import dp_polars as dp
        >>> dp.Session(epsilon=1.0, unit="user_id").facts
        ()
        """
        return tuple(self._ledger.facts())

    def _fact(self, kind: str, subject: str) -> str | None:
        """Return a recorded fact."""
        return next((one.value for one in self.facts if (one.kind, one.subject) == (kind, subject)), None)

    def _record(self, kind: str, subject: str, value: str) -> str:
        """Record a fact for good, if there is none yet; return the one that counts."""
        return self._ledger.record(kind, subject, value)

    def _refusal(self, cost: Cost) -> BudgetExceeded:
        remaining = self.remaining
        keys = remaining.delta if cost.delta else None
        parts = {"epsilon": remaining.epsilon, "rho": remaining.rho, "delta for keys": keys}
        kind: Mechanism = "gaussian" if cost.gaussian_delta or self._terms.measure == "zcdp" else "laplace"
        measure: Literal["epsilon", "rho"] = "rho" if self._terms.measure == "zcdp" else "epsilon"
        largest = self.largest_affordable(mechanism=kind, measure=measure)
        fitting = f"{measure} {largest:.12g} ({kind})" if largest else "nothing"
        if cost.delta:
            fitting += f" with at most {remaining.delta:.6g} of delta for keys"
        left = ", ".join(f"{name} {x:.6g}" for name, x in parts.items() if x is not None)
        return BudgetExceeded(
            requested=f"epsilon {float(cost.epsilon):.6g}" if self._terms.measure == "pure" else str(cost),
            remaining=f"{remaining.share:.2%} of the session ({left})",
            largest_affordable=fitting,
        )

    def release(self, identifier: int) -> Release:
        """Return a committed release by its number in the ledger, as `releases` and `export` show it."""
        found = self._ledger.result(identifier)
        if found is None:
            raise InvalidParameterError(f"The ledger holds no committed release number {identifier}.")
        entry, frame = found
        return self._released(entry, frame)

    def _released(self, entry: Entry, frame: bytes) -> Release:
        return Release(entry, lambda: from_ipc(frame, entry.id), stored=True, plan=self._plans.get(entry.id))

    def plan(self, release: int | None = None) -> Any:
        """Return the plan of a release that this process made, by its number in the ledger; without one, of the last.

        It has the estimated values, where caps or bounds were "auto".
        """
        found = self._plans.get(max(self._plans, default=-1) if release is None else release)
        if found is None:
            raise InvalidParameterError("This process holds no plan of such a release.")
        return found

    def remember(self, release: Release, plan: object) -> None:
        """Keep the plan of a release, to be shown."""
        release.plan = self._plans[release.id] = plan
        while len(self._plans) > _PLANS:
            self._plans.pop(min(self._plans))

    # ------------------------------------------------------------------ showing

    @property
    def releases(self) -> tuple[Release, ...]:
        """Every charge so far, in order: its state, price and plan, and the frame that was released."""
        return tuple(
            Release(entry, partial(self._read, entry.id), stored=False, plan=self._plans.get(entry.id))
            for entry in self._ledger.entries()
        )

    def _read(self, identifier: int) -> pl.DataFrame | None:
        found = self._ledger.result(identifier)
        return None if found is None else from_ipc(found[1], identifier)

    def export(self) -> pl.DataFrame:
        """Return the ledger as a frame: one row per charge.

        Of a charge that closed the session `closed_at` says when, `reopened_at` and `reopened_because` how it was
        opened again. What was recorded about the data is in `facts`.
        """
        closings = {one.charge: one for one in self.closings}
        unclosed = Closing(0, "failed", "", None, None)
        return pl.DataFrame(
            [
                {
                    "id": entry.id,
                    "label": entry.label,
                    "state": entry.state,
                    "epsilon": float(entry.cost.epsilon),
                    "rho": float(entry.cost.rho),
                    "delta": float(entry.cost.delta),
                    "share": share_of(self._terms, entry.cost),
                    "reserved_at": entry.reserved_at,
                    "finished_at": entry.finished_at,
                    "closed_at": closings[entry.id].closed_at if entry.id in closings else None,
                    "reopened_at": closings.get(entry.id, unclosed).reopened_at,
                    "reopened_because": closings.get(entry.id, unclosed).reason,
                }
                for entry in self.releases
            ],
            schema={
                "id": pl.Int64, "label": pl.String, "state": pl.String, "epsilon": pl.Float64, "rho": pl.Float64,
                "delta": pl.Float64, "share": pl.Float64, "reserved_at": pl.String, "finished_at": pl.String,
                "closed_at": pl.String, "reopened_at": pl.String, "reopened_because": pl.String,
            },
        )  # fmt: skip

    @property
    def ledger_path(self) -> Path | None:
        """The file that keeps the session; None if it is in memory.

        >>> import dp_polars as dp
        >>> dp.Session(epsilon=1.0, unit="user_id").ledger_path is None
        True
        """
        return self._ledger.path

    def describe(self) -> str:
        """Return what was agreed, spent and is left, and the last releases, as text."""
        from dp_polars._display.session import session_text

        return session_text(self)

    def _repr_html_(self) -> str:
        from dp_polars._display.session import session_html

        return session_html(self)

    def plot(self) -> Any:
        """Return a chart of how the releases used up the budget. Needs the extra `plot`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> session = dp.Session(epsilon=1.0, unit=dp.ROW)
        >>> answer = dp.private(pl.DataFrame({"x": [1, 2]}), session).count(epsilon=0.5)
        >>> "layer" in session.plot().to_dict()
        True
        """
        from dp_polars._display.session import budget_chart

        return budget_chart(self)

    def __repr__(self) -> str:
        terms = self._terms.described()
        bound = "rho" if self._terms.measure == "zcdp" else "epsilon"
        delta = f", delta={terms['delta']}" if self._terms.delta else ""
        state = ", closed" if self.closed else ""
        times = f", reopened {self.reopenings} times" if self.reopenings > 1 else ", reopened once"
        state += times if self.reopenings else ""
        return f"<dp.Session {bound}={terms[bound]}{delta}, unit={terms['unit']}, {self.spent.share:.1%} used{state}>"

    def close(self) -> None:
        """Close the ledger; the budget of a session in memory is gone with it."""
        self._ledger.close()

    def __enter__(self) -> Session:
        """Make this the current session within the block; the session stays open after it."""
        enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        leave()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._ledger.path is None:
            raise DPError(
                "A session in memory can't be copied to another process: its budget could be spent twice. Use "
                "Session(..., ledger='budget.db')."
            )
        return Session.from_ledger, (str(self._ledger.path.resolve()),)

    def __copy__(self) -> Session:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self


def check_text(text: str, what: str) -> None:
    """Refuse what is no text, is empty, or can't be stored: half of a character that takes two."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidParameterError(f"{what}: a text that is not empty.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidParameterError(
            f"{what}: it has a surrogate, half of a character, which can't be stored."
        ) from None
