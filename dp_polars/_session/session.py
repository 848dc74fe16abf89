"""A session: one privacy budget, to which every release is charged. This module also holds the current session."""

from __future__ import annotations

import math
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import polars as pl

from dp_polars._display.charts.base import portable
from dp_polars._display.session import budget_chart, session_html, session_text
from dp_polars._display.text import percent, refused_parts
from dp_polars._numbers import Number, exact, flag_of
from dp_polars._session.accounts import chosen_account, share_in_epsilon
from dp_polars._session.cost import NOTHING, Budget, Cost
from dp_polars._session.filters import (
    Mechanism,
    accepts,
    affordable_count,
    beyond_share,
    largest_affordable,
    largest_epsilon,
    largest_share,
    part_of,
    share_left,
    share_of,
)
from dp_polars._session.interrupts import Deferred
from dp_polars._session.ledger import Asker, Closing, Entry, Fact, Ledger, Outcome, StoredDraw
from dp_polars._session.periods import KIND as PERIOD
from dp_polars._session.periods import Period, check_period, check_recorded, period_of, period_value, periods_in
from dp_polars._session.prices import check_price
from dp_polars._session.releases import Release, Reservation, from_ipc
from dp_polars._session.suggestions import HasSuggestions, Suggestions
from dp_polars._session.terms import Adjacency, Cap, Defaults, Terms, _Row, agree, read_defaults
from dp_polars.errors import BudgetExceeded, DPError, DPWarning, InvalidParameterError

if TYPE_CHECKING:
    from dp_polars._choices.plan import ChoicePlan
    from dp_polars._local.plan import ResponsePlan
    from dp_polars._many.online_plan import OnlinePlan
    from dp_polars._many.synthesis_plan import SynthesisPlan
    from dp_polars._plan.plan import Plan
    from dp_polars._profile.plan import ProfilePlan
    from dp_polars._streams.plan import StreamPlan

    SomePlan: TypeAlias = Plan | ChoicePlan | StreamPlan | OnlinePlan | SynthesisPlan | ResponsePlan | ProfilePlan

_PLANS = 100  # the number of latest plans that are kept
_LONGEST_REASON = 1000
_LONGEST_NAME = 100
_LONGEST_QUESTION = 100_000  # characters of a statement in the audit log


class Session:
    """One privacy budget, which is agreed once and can never be overspent.

    Parameters
    ----------
    epsilon
        The total privacy loss. Given alone, the session is pure; with `delta`, it is approximate.
    delta
        The probability with which the guarantee may fail. Keep it far below one over the number of people.
    rho
        The total privacy loss of a zero-concentrated (zCDP) session, instead of epsilon. Add `delta` to discover keys.
    unit
        Who is protected: the column that identifies a person, several columns, or `dp.ROW`.
    adjacency
        What one unit may change. "add_remove": all of its rows appear or vanish. "replace": they are replaced by
        another unit's rows.
    group_size
        How many units are protected together.
    per_unit
        The columns that are constant for each unit.
    max_groups, max_rows_per_group
        The default contribution bounds: groups per unit, and rows per unit and group. "auto" estimates them.
    max_rows
        The default cap on the rows of a unit in all groups together. Aggregates use it in place of `max_rows_per_group`
        and, where it is enough, of `max_groups`; see `dp.Options`. Choices, streams and syntheses use
        `max_rows_per_group`.
    queries
        The number of queries that the session is planned for, profiles included. A query that names no spend gets the
        share 1/queries, and all of them fit. In an approximate session, a share is a part of the sum of epsilons or of
        the sum of rhos, whichever means less noise for this number of queries over `max_groups` groups.
    key_delta
        The part of delta for discovering keys (`select_partitions`) and for other (epsilon, delta) mechanisms; by
        default a quarter. The rest is for Gaussian noise and zCDP accounting.
    ledger
        The path of a file that keeps the session and that several processes can share. By default the session is kept
        in memory.

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
        max_rows: Cap = None,
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
            per_unit=per_unit,
            max_groups=max_groups,
            max_rows_per_group=max_rows_per_group,
            max_rows=max_rows,
            queries=queries,
        )
        chosen = replace(defaults, account=chosen_account(terms, defaults.queries, defaults.max_groups))
        if ledger == ":memory:":
            raise InvalidParameterError("':memory:' is not a path. Leave ledger= out to keep the session in memory.")
        if ledger is None:
            opened = Ledger.in_memory(terms, chosen.to_json())
        else:
            opened = Ledger.at(Path(ledger), terms, chosen.to_json())
        # A ledger that existed before keeps its account, because earlier shares were counted in it.
        account = Defaults.from_json(opened.agreement()[1]).account
        self._start(terms, replace(defaults, account=account), opened)

    def _start(self, terms: Terms, defaults: Defaults, ledger: Ledger) -> None:
        self._terms = replace(terms, share_account=defaults.account)
        self._defaults, self._ledger = defaults, ledger
        self._plans: dict[int, object] = {}
        self._adopted: tuple[Suggestions, ...] = ()
        self._analyst: str | None = None
        self._analyst_sessions: dict[str, Session] = {}

    def _throwaway(self) -> Session:
        """Return a new session in memory with the same terms and defaults and its whole budget."""
        session = Session.__new__(Session)
        session._start(self._terms, self._defaults, Ledger.in_memory(self._terms, self._defaults.to_json()))
        session._adopted = self._adopted
        return session

    @classmethod
    def from_ledger(cls, path: str | Path) -> Session:
        """Open the session that a ledger file keeps, with its own terms and defaults.

        Examples
        --------
        >>> import dp_polars as dp, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dp.Session(epsilon=1.0, unit="user_id", ledger=f"{folder}/budget.db").close()
        ...     session = dp.Session.from_ledger(f"{folder}/budget.db")
        ...     print(session)
        ...     session.close()
        <dp.Session epsilon=1, unit=user_id, 0 % used>
        """
        ledger = Ledger.open(Path(path))
        terms, defaults = ledger.agreement()
        session = cls.__new__(cls)
        session._start(terms, Defaults.from_json(defaults), ledger)
        return session

    # ------------------------------------------------------------------ terms and budget

    @property
    def terms(self) -> Terms:
        """The terms that were agreed when the session was opened."""
        return self._terms

    @property
    def defaults(self) -> Defaults:
        """The session's default contribution bounds and number of queries."""
        return self._defaults

    @property
    def spent(self) -> Budget:
        """The sum of all charges, or of those of the analyst. Its `share` is the part of the budget that is used."""
        return self._budget(self._ledger.spent() if self._analyst is None else self._ledger.spent_by(self._analyst)[0])

    @property
    def remaining(self) -> Budget:
        """The budget that is left in each measure, and the part of the whole that is left as its `share`.

        A release fits if it fits delta and one of epsilon and rho.
        """
        terms, spent = self._terms, self._total()
        epsilon = None if terms.epsilon is None else max(0.0, float(terms.epsilon - spent.epsilon))
        rho = None if terms.measure == "pure" else max(0.0, float(terms.rho_allowed - spent.rho))
        return Budget(
            epsilon=epsilon,
            rho=rho,
            delta=max(0.0, float(terms.native_delta - spent.delta)),
            share=share_left(terms, spent),
        )

    def _total(self) -> Cost:
        """Return the exact sum after which the next charge must fit: that of all charges.

        For an analyst, it is this sum or what counts against the analyst's share, whichever leaves less.
        """
        return min(self._totals(), key=lambda total: share_left(self._terms, total))

    def _totals(self) -> list[Cost]:
        """Return every sum after which the next charge must fit."""
        if self._analyst is None:
            return [self._ledger.spent()]
        spent, share = self._ledger.spent_by(self._analyst)
        return [self._ledger.spent(), beyond_share(self._terms, share) + spent]

    def _budget(self, cost: Cost) -> Budget:
        return Budget(
            epsilon=None if self._terms.epsilon is None else float(cost.epsilon),
            rho=None if self._terms.measure == "pure" else float(cost.rho),
            delta=float(cost.delta),
            share=share_of(self._terms, cost),
        )

    def can_afford(self, cost: Cost) -> bool:
        """Return whether a release of this cost would be accepted now. Charge nothing."""
        return self.affordable_count(cost, most=1) == 1

    def affordable_count(self, cost: Cost, *, most: int = 10**9) -> int:
        """Return how many releases of this cost would be accepted now, up to `most`. Charge nothing.

        Examples
        --------
        >>> import dp_polars as dp
        >>> session = dp.Session(epsilon=1.0, delta=1e-6, unit="user_id")
        >>> session.affordable_count(dp.pure_cost(0.1)), session.affordable_count(dp.pure_cost(0.01))
        (10, 458)
        """
        self._check_cost(cost)
        return min(affordable_count(self._terms, total, cost, most) for total in self._totals())

    def largest_affordable(
        self, *, mechanism: Mechanism = "laplace", measure: Literal["epsilon", "rho"] = "epsilon"
    ) -> float:
        """Return the largest epsilon or rho of one release that would be accepted now; 0 if none would."""
        return min(largest_affordable(self._terms, total, mechanism, measure) for total in self._totals())

    # ------------------------------------------------------------------ analysts

    def grant(self, analyst: str, *, share: Number, overcommit: bool = False) -> None:
        """Give an analyst or a team a share of this budget, or change it. Only the owner of the data should do this.

        Every charge of an analyst must fit the whole budget as well as the share, so the session's promise holds
        whatever the shares are. A share limits what an analyst spends, not what the analyst may learn: stored releases
        are free for everybody.

        Parameters
        ----------
        analyst
            The name of the analyst, which is kept in the ledger.
        share
            The part of the whole budget that the analyst may spend, between 0 and 1. It is counted as `share=` in a
            question is. What the analyst spent before counts.
        overcommit
            Whether shares may sum to more than 1. Then the first to ask get their answers.

        Examples
        --------
        >>> import dp_polars as dp
        >>> session = dp.Session(epsilon=1.0, unit="user_id")
        >>> session.grant("team-a", share=0.25)
        >>> team = session.analyst("team-a")
        >>> team.reserve(dp.pure_cost(0.2), label="my own mechanism").fail(closes=False)
        >>> team.spent.share, team.largest_affordable(), session.largest_affordable()
        (0.2, 0.05, 0.8)
        >>> session.shares
        {'team-a': 0.25}
        """
        self._check_owner("grant shares")
        check_name(analyst)
        part = exact(share, "share")
        if not 0 < part <= 1:
            raise InvalidParameterError("share= must be a part of the budget, above 0 and at most 1: share=0.25.")
        most = None if flag_of(overcommit, "overcommit") else Fraction(1)
        total = self._ledger.grant(analyst, part, most)
        if most is not None and total > most:
            raise InvalidParameterError(
                f"All shares would sum to {float(total):.4g}, so not everybody could use all of theirs. The session's "
                "promise would hold all the same. If this is intended, say overcommit=True."
            )

    def analyst(self, name: str) -> Session:
        """Return this session as an analyst uses it: within the share that the owner granted.

        It can neither grant shares nor reopen. A question that fails on private rows closes this share only. What the
        analyst asks is kept in the audit log. Inside one process this serves analysts who cooperate; to keep others
        out, a process of its own must hold the data.

        Examples
        --------
        >>> import dp_polars as dp
        >>> session = dp.Session(epsilon=1.0, unit="user_id")
        >>> session.grant("team-a", share=0.25)
        >>> team = session.analyst("team-a")
        >>> team, team.analyst_name, team.remaining.share
        (<dp.Session epsilon=1, unit=user_id, 0 % used, analyst=team-a>, 'team-a', 0.25)
        """
        self._check_owner("open the share of an analyst")
        check_name(name)
        self._ledger.spent_by(name)  # raises an error if there is no such share
        # One object for each name, because frames of different sessions can't be combined.
        session = self._analyst_sessions.get(name)
        if session is None:
            session = Session.__new__(Session)
            session._start(self._terms, self._defaults, self._ledger)
            session._adopted, session._analyst = self._adopted, name
            session = self._analyst_sessions.setdefault(name, session)
        return session

    @property
    def analyst_name(self) -> str | None:
        """The analyst whose share of the budget this is; None for the owner's session.

        >>> import dp_polars as dp
        >>> dp.Session(epsilon=1.0, unit="user_id").analyst_name is None
        True
        """
        return self._analyst

    @property
    def shares(self) -> dict[str, float]:
        """The share of each analyst, as `grant` gave it.

        >>> import dp_polars as dp
        >>> dp.Session(epsilon=1.0, unit="user_id").shares
        {}
        """
        return {name: float(share) for name, share in self._ledger.shares().items()}

    def audit_log(self) -> pl.DataFrame:
        """Return what analysts asked, one row per question, in order. It holds nothing that was read from the data.

        `analyst` is who asked, as the process claimed, and `asked` the SQL statement or a description of the question.
        `outcome` is "committed", "failed" or "reserved" for a question that was charged, "stored" if its answer was
        found again, and "refused" if it did not fit the budget or was not allowed; `reason` is then the code of the
        error: "internal-error" stands for an error of the library itself, and "interrupted" for a question that was
        stopped before it was charged. `question` is the plan of a charge in short. `share` is the part of the budget
        that it used, and `epsilon`, `delta` and `rho` its price.

        Examples
        --------
        >>> import dp_polars as dp
        >>> session = dp.Session(epsilon=1.0, unit="user_id")
        >>> session.grant("team-a", share=0.25)
        >>> session.analyst("team-a").reserve(dp.pure_cost(0.2), label="people").fail(closes=False)
        >>> session.audit_log().select("analyst", "asked", "outcome", "share").rows()
        [('team-a', 'people', 'failed', 0.2)]
        """
        records = self._ledger.audit()
        charges = {row["id"]: row for row in self.export().iter_rows(named=True)}  # read later, so none is missing
        rows = []
        for record in records:
            charge = {} if record.charge is None else charges[record.charge]
            paid = {} if record.outcome in ("stored", "refused") else charge
            rows.append(
                {
                    "at": record.at,
                    "analyst": record.analyst,
                    "asked": record.asked,
                    "outcome": record.outcome,
                    "reason": record.reason,
                    "charge": record.charge,
                    "question": charge.get("label"),
                    **{name: paid.get(name, 0.0) for name in ("share", "epsilon", "delta", "rho")},
                }
            )
        texts = ("at", "analyst", "asked", "outcome", "reason")
        return pl.DataFrame(
            rows,
            schema={
                **dict.fromkeys(texts, pl.String()), "charge": pl.Int64(), "question": pl.String(),
                **dict.fromkeys(("share", "epsilon", "delta", "rho"), pl.Float64()),
            },
        )  # fmt: skip

    def _note(self, asked: str, outcome: Outcome, *, charge: int | None = None, reason: str | None = None) -> None:
        """Record an analyst's question that was not charged. The owner's are not recorded."""
        if self._analyst is not None:
            self._ledger.note(self._asker(asked), outcome, charge=charge, reason=reason)

    def _asker(self, asked: str) -> Asker:
        question = _ASKED.get()
        if question is not None:
            question.noted = True
            asked = question.text or f"{question.steps}{asked}"
        # Half of a surrogate pair can't be stored.
        whole = asked[:_LONGEST_QUESTION].encode("utf-8", "backslashreplace").decode()
        return Asker(self._analyst or "", whole)

    @contextmanager
    def _asking(self, described: str, *, statement: str | None = None, steps: str = "") -> Iterator[_Asked]:
        """Record a question that is asked within the block in the audit log, whatever comes of it.

        `statement` is the question as it was asked. Without it, an entry has the `steps` before the question and the
        label of what was charged, or `described` if it was refused. An error of the library itself is recorded, too.
        """
        question = _Asked(statement, steps)
        token = _ASKED.set(question)
        try:
            yield question
        except BaseException as error:
            if not question.noted:
                self._note(described, "refused", reason=_reason(error))
            raise
        finally:
            _ASKED.reset(token)

    def _check_owner(self, what: str) -> None:
        if self._analyst is not None:
            raise InvalidParameterError(f"Only the owner's session can {what}. This is the share of {self._analyst}.")

    # ------------------------------------------------------------------ periods

    def next_period(self, name: str, *, ledger: str | Path) -> Session:
        """Begin a new period: a new promise with the same terms, in a ledger of its own.

        The people in the data are promised both, so the promises add up: after k periods of epsilon 1, the promise is
        epsilon k. The new ledger records all periods before it, and `periods` and every display show the total. What
        is left of this period can still be asked, and its stored releases stay in its own ledger. Only the owner of
        the data should do this.

        Parameters
        ----------
        name
            What the new period is called, such as "2026-12".
        ledger
            The path of the new period's ledger. Calling this again with the same path opens it again.

        Examples
        --------
        >>> import dp_polars as dp, tempfile
        >>> november = dp.Session(epsilon=1.0, unit="user_id")
        >>> december = november.next_period("2026-12", ledger=f"{tempfile.mkdtemp()}/december.db")
        >>> december.remaining.epsilon, [period.name for period in december.periods]
        (1.0, ['first', '2026-12'])
        >>> print(december.describe().splitlines()[7].strip())
        period: 2026-12, after first; all 2 periods together promise epsilon 2
        """
        self._check_owner("begin a period")
        check_period(name)
        earlier = self.periods or (period_of("first", self._terms, self._terms),)
        if name in {period.name for period in earlier}:
            raise InvalidParameterError(f"There is a period {name} already, and a new period is a new promise.")
        path = Path(ledger)
        if self.ledger_path is not None and path.exists() and path.samefile(self.ledger_path):
            raise InvalidParameterError("A new period needs a ledger of its own, and this is the ledger of this one.")
        session = Session.__new__(Session)
        session._start(self._terms, self._defaults, Ledger.at(path, self._terms, self._defaults.to_json()))
        session._begin_period(name, earlier)
        return session

    def _begin_period(self, name: str, earlier: Sequence[Period]) -> None:
        """Record this session's period and those before it, or compare them with what is recorded."""
        given = [*earlier, period_of(name, self._terms, self._terms)]
        wanted = {period.name: period_value(number, period) for number, period in enumerate(given, start=1)}
        check_recorded({fact.subject: fact.value for fact in self.facts if fact.kind == PERIOD}, wanted)
        # A process that dies here leaves some of them, and the next one records the rest.
        check_recorded({one: self._ledger.record(PERIOD, one, value) for one, value in wanted.items()}, wanted)

    @property
    def periods(self) -> tuple[Period, ...]:
        """The periods up to this one, if the session belongs to a period. Their promises add up.

        >>> import dp_polars as dp
        >>> dp.Session(epsilon=1.0, unit="user_id").periods
        ()
        """
        return periods_in(self.facts)

    # ------------------------------------------------------------------ suggestions of a profile

    def adopt(self, profile: HasSuggestions) -> None:
        """Make what a profile suggests the default for later questions about the same table.

        The suggested caps are used where a question groups by the same keys and leaves `max_groups` or
        `max_rows_per_group` out, and the suggested bounds where it leaves `bounds` out. They come before the defaults
        of the session. What a question says itself comes first, and its plan says what is "from the profile". If the
        table changes, the suggestions no longer apply. Choices, streams, online queries and syntheses take them, too; a
        stream takes those that were adopted before it was opened.

        Adopting costs nothing. It lasts as long as this object; after opening a ledger again, ask for the same
        profile, which is free, and adopt it again.

        Parameters
        ----------
        profile
            What `df.dp.profile(...)` returned, or `dp.TableProfile(release)` for the release of a `SUMMARIZE`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": [i % 9_000 for i in range(27_000)], "spent": [5.0, 7.0, 9.0] * 9_000})
        >>> with dp.Session(epsilon=2.0, unit="user") as session:
        ...     session.adopt(visits.dp.profile(columns=["spent"], epsilon=1.0))
        ...     plan = visits.dp.preview.sum("spent", epsilon=0.5)
        >>> [text for name, text in plan.rows() if name in ("rows per unit and group", "value bounds")]
        ['3 (max_rows_per_group from the profile)', '3 to 10, each row, from the profile']
        """
        suggestions = getattr(profile, "suggestions", None)
        if not isinstance(suggestions, Suggestions):
            raise InvalidParameterError(
                "adopt takes a profile: session.adopt(df.dp.profile(...)), or dp.TableProfile(release) for the release "
                "of a SUMMARIZE."
            )
        if not suggestions.reliable:
            warnings.warn(
                "The noise of this profile is large against the number of units, so what it suggests is not reliable. "
                "Ask for it with a larger spend, for example share=0.2.",
                DPWarning,
                stacklevel=2,
            )
        self._adopted = (*self._adopted, suggestions)

    @property
    def adopted(self) -> tuple[Suggestions, ...]:
        """The suggestions that `adopt` made defaults, in order. The last one that applies to a question is used.

        >>> import dp_polars as dp
        >>> dp.Session(epsilon=1.0, unit="user_id").adopted
        ()
        """
        return self._adopted

    # ------------------------------------------------------------------ charging

    def reserve(self, cost: Cost, *, label: str, key: bytes | None = None) -> Reservation:
        """Charge `cost` before any data are read. If it is refused, raise an error and charge nothing.

        Parameters
        ----------
        cost
            The cost of the release, from `dp.pure_cost`, `dp.gaussian_cost` or `dp.exponential_cost`.
        label
            A public description for the ledger. It must not contain anything that was read from the data.
        key
            Any bytes that stand for one query on one version of the data. `stored(key)` finds the release again.

        Returns
        -------
        Reservation
            The charge, to be committed with the released frame. It stays charged whatever happens.

        Raises
        ------
        BudgetExceeded
            If the cost does not fit the budget.
        SessionClosed
            If the session is closed.
        """
        self._check_cost(cost)
        if not may_spend(self):
            raise InvalidParameterError(
                "This session must not spend anything here. Where a plan is expected, use a preview such as "
                "df.dp.preview.count(...). In an audit, use dp.current_session(), which is a throwaway session.",
                code="spending-not-allowed",
            )
        check_text(label, "label")
        if key is not None and not isinstance(key, bytes):
            raise InvalidParameterError("key= must be bytes that are the same for the same query on the same source.")
        reservation: Reservation | None = None
        try:
            with Deferred():
                asker = None if self._analyst is None else self._asker(label)
                charge = self._ledger.reserve(cost, label, key, self._accepts, asker)
                if charge is None:
                    raise self._refusal(cost)
                reservation = Reservation(self._ledger, charge, self._terms)
            return reservation  # noqa: RET504 - the end of the `with` block may raise
        except BaseException:
            if reservation is not None:  # Ctrl-C came meanwhile: nobody will use the charge, and no rows were read
                reservation.fail(closes=False)
            raise

    def check(self, cost: Cost) -> None:
        """Raise `SessionClosed` or `BudgetExceeded` if a cost would be refused now. Charge nothing."""
        try:
            self._ledger.refuse_closed(self._analyst)
            self._check_cost(cost)
            if not all(accepts(self._terms, total + cost) for total in self._totals()):
                raise self._refusal(cost)
        except DPError as refusal:
            self._note("several questions", "refused", reason=refusal.code)
            raise

    def _accepts(self, total: Cost, of_analyst: Cost | None, share: Fraction) -> bool:
        """Return whether these sums may be charged: of the session, and of an analyst with a share."""
        if not accepts(self._terms, total):
            return False
        return of_analyst is None or accepts(self._terms, beyond_share(self._terms, share) + of_analyst)

    def _check_cost(self, cost: Cost) -> None:
        if type(cost) is not Cost:  # a subclass could add up differently
            raise InvalidParameterError(
                f"The cost of a release must be a dp.Cost, got {type(cost).__name__}; pass dp.pure_cost(0.1)."
            )
        if not (cost.epsilon and cost.rho):
            raise InvalidParameterError(
                "A release must cost something in epsilon and in rho, but this cost says it is free."
            )
        check_price(self._terms, cost)

    def _refusal(self, cost: Cost) -> BudgetExceeded:
        """Return the refusal of a cost, with the largest spends that would fit instead."""
        terms = self._terms
        refusing = [total for total in self._totals() if not accepts(terms, total + cost)]
        spent = min(refusing or [self._total()], key=lambda total: share_left(terms, total))
        left = share_left(terms, spent)
        part, alone = part_of(terms, spent, cost), share_of(terms, cost)
        requested, remaining = refused_parts(part, left)
        if alone < 0.98 * part < math.inf:  # another account is the better one after what was spent before
            requested += f" ({percent(alone)} as a first release)"
        remaining = remaining if left else "none of the budget"
        keys = max(0.0, float(terms.native_delta - spent.delta))
        if cost.delta > terms.native_delta - spent.delta:  # otherwise it is not the reason, and not worth a number
            requested += f" and {float(cost.delta):.6g} of delta for keys"
            remaining += f" and {keys:.6g} of delta for keys"
        share = largest_share(terms, spent, keys=bool(cost.delta))
        epsilon = largest_epsilon(terms, spent, "laplace", keys=bool(cost.delta))
        fitting = [f"share={share:.4g}"] if share else []
        fitting += [f"epsilon={epsilon:.4g}"] if epsilon else []
        note = ""
        scarce_delta = bool(cost.delta) and keys < 0.95 * left * float(terms.native_delta)
        counts_in_rho = terms.measure == "approximate" and share_in_epsilon(terms, Fraction(1)) is None
        if counts_in_rho and terms.epsilon and share and epsilon and not scarce_delta:
            if share < 0.95 * left:
                fitting.reverse()
                note = "What was spent before counts in epsilon, and share= in rho, so epsilon= goes further here."
            elif epsilon / float(terms.epsilon) < 0.95 * left:
                note = "What was spent before counts in rho, so share= goes further than epsilon= here."
        if cost.gaussian_delta and terms.measure == "approximate":
            gaussian = largest_epsilon(terms, spent, "gaussian", keys=bool(cost.delta))
            if gaussian > epsilon:
                fitting.append(f"epsilon={gaussian:.4g} with mechanism='gaussian'")
        if cost.delta and not fitting and share_left(terms, spent):
            fitting.append("a release with public keys, which needs no delta")
        return BudgetExceeded(
            requested=requested, remaining=remaining, largest_affordable=" or ".join(fitting) or "nothing", note=note
        )

    # ------------------------------------------------------------------ closing and reopening

    @property
    def closed(self) -> bool:
        """Whether private queries are refused because one failed on private rows or died. See `reopen`."""
        return any(
            closing.reopened_at is None and closing.analyst in (None, self._analyst) for closing in self.closings
        )

    @property
    def closings(self) -> tuple[Closing, ...]:
        """Every closing of the session: the charge that closed it, and when and why it was reopened.

        The owner also sees the closings of analysts' shares. An analyst sees those of the session and of the analyst's
        own share.
        """
        found = self._ledger.closings()
        return tuple(closing for closing in found if self._analyst is None or closing.analyst in (None, self._analyst))

    @property
    def reopenings(self) -> int:
        """How often the session was reopened."""
        return self._ledger.reopenings()

    def reopen(self, *, reason: str, analyst: str | None = None) -> None:
        """Reopen a session that a failure closed, or an analyst's share. Only the owner of the data should do this.

        Whether a query fails may depend on private rows, and that tells something that nobody paid for. First find out
        why it failed, on data that you are allowed to see. Reopenings are counted and shown wherever the session is.

        Parameters
        ----------
        reason
            Why queries may run again. It is kept in the ledger together with the time.
        analyst
            The analyst whose share is reopened; None for the session itself.

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
        self._check_owner("reopen a session or a share")
        check_text(reason, "reason")
        if len(reason) > _LONGEST_REASON:
            raise InvalidParameterError(
                f"reason= must have at most {_LONGEST_REASON} characters, because everybody sees it."
            )
        self._ledger.reopen(reason, analyst)

    def _refuse_closed(self) -> int:
        """Raise `SessionClosed` if the session is closed. Otherwise return a number that grows with each closing."""
        return self._ledger.refuse_closed(self._analyst)

    def _last_closing(self) -> Closing:
        """Return the last closing that stops this session's questions."""
        return [closing for closing in self.closings if closing.analyst in (None, self._analyst)][-1]

    def _close_by(self, release: Release) -> None:
        """Close the session because of a failure that belongs to a finished release, such as that of a stream."""
        self._ledger.close_by(release.id)

    # ------------------------------------------------------------------ public facts

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts about the data that its owner declared to be public, such as the column types of a text file.

        >>> import dp_polars as dp
        >>> dp.Session(epsilon=1.0, unit="user_id").facts
        ()
        """
        return tuple(self._ledger.facts())

    def _fact(self, kind: str, subject: str) -> str | None:
        """Return the value of a recorded fact, or None."""
        return next((fact.value for fact in self.facts if (fact.kind, fact.subject) == (kind, subject)), None)

    def _record(self, kind: str, subject: str, value: str) -> str:
        """Record a fact unless there is one already, and return the value that is recorded."""
        return self._ledger.record(kind, subject, value)

    # ------------------------------------------------------------------ releases and plans

    @property
    def releases(self) -> tuple[Release, ...]:
        """Every charge so far, in order, with its state, its cost, its plan and the released frame."""
        return tuple(
            Release(
                entry,
                partial(self._read, entry.id),
                part=partial(self._part, entry),
                terms=self._terms,
                stored=False,
                plan=self._plans.get(entry.id),
            )
            for entry in self._ledger.entries()
        )

    def _read(self, identifier: int) -> pl.DataFrame | None:
        found = self._ledger.result(identifier)
        return None if found is None else from_ipc(found[1], identifier)

    def release(self, identifier: int) -> Release:
        """Return a committed release by its number in the ledger, which `releases` and `export` show."""
        found = self._ledger.result(identifier)
        if found is None:
            raise InvalidParameterError(f"The ledger holds no committed release number {identifier}.")
        entry, frame = found
        return self._released(entry, frame)

    def stored(self, key: bytes) -> Release | None:
        """Return the newest release that is stored under a key, or None. Charge nothing."""
        found = self._ledger.find(key)
        if found is None:
            return None
        entry, frame = found
        return self._released(entry, frame)

    def _drawn(self, key: bytes) -> tuple[Entry, StoredDraw] | None:
        """Return the newest noisy numbers that are stored under a key, and the charge that paid for them, or None."""
        return self._ledger.find_draw(key)

    def _shown(self, entry: Entry, frame: pl.DataFrame, plan: object) -> Release:
        """Return a stored release with a frame that presents its noisy numbers in another way."""
        return Release(entry, lambda: frame, part=partial(self._part, entry), terms=self._terms, stored=True, plan=plan)

    def _released(self, entry: Entry, frame: bytes) -> Release:
        return Release(
            entry,
            lambda: from_ipc(frame, entry.id),
            part=partial(self._part, entry),
            terms=self._terms,
            stored=True,
            plan=self._plans.get(entry.id),
        )

    def _part(self, entry: Entry) -> float:
        return part_of(self._terms, self._spent_before(entry), entry.cost)

    def _spent_before(self, entry: Entry) -> Cost:
        return self._ledger.spent_before(entry.id)

    def plan(self, release: int | None = None) -> SomePlan:
        """Return the plan of a release that this process made, by its number in the ledger (by default, the last one).

        Where caps or bounds were "auto", the plan has the values that were estimated.
        """
        found = self._plans.get(max(self._plans, default=-1) if release is None else release)
        if found is None:
            raise InvalidParameterError("This process has no plan of such a release. Plans are not kept in the ledger.")
        return cast("SomePlan", found)

    def remember(self, release: Release, plan: object) -> None:
        """Keep the plan of a release so that it can be shown."""
        release.plan = self._plans[release.id] = plan
        while len(self._plans) > _PLANS:
            self._plans.pop(min(self._plans))

    def export(self) -> pl.DataFrame:
        """Return the ledger as a frame with one row per charge.

        `analyst` is who asked, and null for the owner. `share` is the part of the budget that the charge used; all of
        them add up to the part that the session has used. For a charge that closed the session, `closed_at` says when,
        and `reopened_at` and `reopened_because` say when and why the session was reopened. Facts about the data are in
        `facts`.
        """
        closings = {closing.charge: closing for closing in self.closings}
        before, parts = NOTHING, {}
        entries = self._ledger.entries()
        for entry in entries:
            parts[entry.id] = part_of(self._terms, before, entry.cost)
            before = before + entry.cost
        unclosed = Closing(0, "failed", "", None, None)
        return pl.DataFrame(
            [
                {
                    "id": entry.id,
                    "analyst": entry.analyst,
                    "label": entry.label,
                    "state": entry.state,
                    "epsilon": float(entry.cost.epsilon),
                    "rho": float(entry.cost.rho),
                    "delta": float(entry.cost.delta),
                    "share": parts[entry.id],
                    "reserved_at": entry.reserved_at,
                    "finished_at": entry.finished_at,
                    "closed_at": closings[entry.id].closed_at if entry.id in closings else None,
                    "reopened_at": closings.get(entry.id, unclosed).reopened_at,
                    "reopened_because": closings.get(entry.id, unclosed).reason,
                }
                for entry in entries
            ],
            schema={
                "id": pl.Int64, "analyst": pl.String, "label": pl.String, "state": pl.String, "epsilon": pl.Float64,
                "rho": pl.Float64, "delta": pl.Float64, "share": pl.Float64, "reserved_at": pl.String,
                "finished_at": pl.String, "closed_at": pl.String, "reopened_at": pl.String,
                "reopened_because": pl.String,
            },
        )  # fmt: skip

    @property
    def ledger_path(self) -> Path | None:
        """The path of the file that keeps the session; None if it is in memory.

        >>> import dp_polars as dp
        >>> dp.Session(epsilon=1.0, unit="user_id").ledger_path is None
        True
        """
        return self._ledger.path

    # ------------------------------------------------------------------ display

    def describe(self, *, accounts: bool = False) -> str:
        """Return the terms, the part of the budget that is used, and the last releases, as text.

        Parameters
        ----------
        accounts
            Also show each account of the session: the sum of epsilons, the sum of rhos, and the delta for keys.

        Examples
        --------
        >>> import dp_polars as dp
        >>> session = dp.Session(epsilon=1.0, unit="user_id", queries=4)
        >>> session.reserve(dp.pure_cost(0.25), label="my own mechanism").fail(closes=False)
        >>> print(session.describe(accounts=True))  # doctest: +ELLIPSIS
        dp_polars session (pure)
          epsilon: 1
          delta: 0
          unit: user_id
          adjacency: add_remove
          group_size: 1
          planned for: 4 queries, 1/4 of the budget each
          ledger: in memory
          releases: 1
          budget: [#####---------------] 25 % used, 75 % left
          accounts:
            epsilon  [#####---------------]   25 %  0.25 of 1
          the release so far:
            1  my own mechanism  25 %  failed  ...
        """
        return session_text(self, accounts=flag_of(accounts, "accounts"))

    def _repr_html_(self) -> str:
        return session_html(self)

    def plot(self) -> Any:
        """Return a chart of how the releases used the budget. This needs the extra `plot`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> session = dp.Session(epsilon=1.0, unit=dp.ROW)
        >>> answer = dp.private(pl.DataFrame({"x": [1, 2]}), session).count(epsilon=0.5)
        >>> "layer" in session.plot().to_dict()
        True
        """
        return portable(budget_chart(self))

    def __repr__(self) -> str:
        terms = self._terms.described()
        bound = "rho" if self._terms.measure == "zcdp" else "epsilon"
        delta = f", delta={terms['delta']}" if self._terms.delta else ""
        state = ", closed" if self.closed else ""
        state = state if self._analyst is None else f", analyst={self._analyst}{state}"
        times = f", reopened {self.reopenings} times" if self.reopenings > 1 else ", reopened once"
        state += times if self.reopenings else ""
        return (
            f"<dp.Session {bound}={terms[bound]}{delta}, unit={terms['unit']}, {percent(self.spent.share)} used{state}>"
        )

    def close(self) -> None:
        """Close the ledger. A session in memory is lost with it."""
        self._ledger.close()

    def __enter__(self) -> Session:
        """Make this the current session within the block. It stays open afterwards."""
        enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        leave()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._ledger.path is None:
            raise DPError(
                "A session in memory can't be copied to another process, because its budget could be spent twice. Use "
                "Session(..., ledger='budget.db').",
                code="session-in-memory",
            )
        path = str(self._ledger.path.resolve())
        return (Session.from_ledger, (path,)) if self._analyst is None else (_opened_by, (path, self._analyst))

    def __copy__(self) -> Session:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self


def _opened_by(path: str, analyst: str) -> Session:
    return Session.from_ledger(path).analyst(analyst)


def check_name(analyst: str) -> None:
    """Refuse the name of an analyst that is empty, very long, or that could pass for another one."""
    check_text(analyst, "analyst")
    if len(analyst) > _LONGEST_NAME or not analyst.isprintable() or analyst != unicodedata.normalize("NFKC", analyst):
        raise InvalidParameterError(
            f"analyst= must be a name of at most {_LONGEST_NAME} printable characters, without look-alike forms "
            "(Unicode NFKC), because it stands in the ledger."
        )
    if analyst != analyst.strip():
        raise InvalidParameterError("analyst= must not begin or end with a space, because nobody would see it.")


def check_text(text: str, name: str) -> None:
    """Refuse an argument that is not text, is empty, or can't be stored because it has half a surrogate pair."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidParameterError(f"{name}= is kept in the ledger and must be a text that is not empty.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidParameterError(
            f"{name}= is kept in the ledger and must be valid Unicode, but it has half of a surrogate pair."
        ) from None


# ---------------------------------------------------------------------- the current session

_STACK: ContextVar[tuple[Session | None, ...]] = ContextVar("dp_polars_sessions", default=())


class _Asked:
    """A question under way: its text, and whether the audit log has an entry for it."""

    def __init__(self, text: str | None, steps: str) -> None:
        self.text, self.steps, self.noted = text, steps, False


_ASKED: ContextVar[_Asked | None] = ContextVar("dp_polars_asked", default=None)


def _reason(error: BaseException) -> str:
    """Return why a question was refused, as one word that reveals nothing of the error's text."""
    if isinstance(error, DPError):
        return str(error.code)
    return "internal-error" if isinstance(error, Exception) else "interrupted"


_MAY_SPEND: ContextVar[Session | Literal["any", "none"]] = ContextVar("dp_polars_may_spend", default="any")


def set_session(session: Session | None) -> None:
    """Make a session the current one from now on, for example in a notebook. None means no session.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.set_session(dp.Session(epsilon=1.0, unit="user_id"))
    >>> dp.current_session().terms.unit
    ('user_id',)
    >>> dp.set_session(None)
    """
    _STACK.set((*_STACK.get()[:-1], session))


def current_session() -> Session | None:
    """Return the session of the innermost `with session:` block, or else the one that `set_session` set.

    Examples
    --------
    >>> import dp_polars as dp
    >>> with dp.Session(epsilon=1.0, unit="user_id") as session:
    ...     dp.current_session() is session
    True
    """
    stack = _STACK.get()
    return stack[-1] if stack else None


@contextmanager
def without_spending() -> Iterator[None]:
    """Refuse the charges of all sessions within the block."""
    with _spending("none"):
        yield


@contextmanager
def spending_only(session: Session) -> Iterator[None]:
    """Make a session the current one within the block, and refuse the charges of all other sessions."""
    with _spending(session):
        enter(session)
        try:
            yield
        finally:
            leave()


@contextmanager
def _spending(allowed: Session | Literal["none"]) -> Iterator[None]:
    token = _MAY_SPEND.set(allowed)
    try:
        yield
    finally:
        _MAY_SPEND.reset(token)


def may_spend(session: Session) -> bool:
    """Return whether a session may make charges here."""
    allowed = _MAY_SPEND.get()
    return allowed == "any" or allowed is session


def enter(session: Session) -> None:
    """Make a session the current one until `leave`."""
    _STACK.set((*_STACK.get(), session))


def leave() -> None:
    """Go back to the previous session."""
    _STACK.set(_STACK.get()[:-1])
