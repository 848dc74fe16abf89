"""The methods of a private frame for very many questions at one price: `online_queries` and `synthesize`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Never, TypeVar

from dp_polars._frame.adopted import adopted_cap
from dp_polars._frame.aggregate_question import check_unit
from dp_polars._frame.options import ExpressionLike, OpeningOptions, check_options, labelled, options_in, spend_of
from dp_polars._frame.question import FrameMethods, Origin, Question, View
from dp_polars._many.domain import Domain, DomainLike, parse_domain
from dp_polars._many.online_plan import OnlinePlan, online_plan
from dp_polars._many.online_queries import WEIGHT, OnlineQueries
from dp_polars._many.online_release import open_online
from dp_polars._many.predicates import workload_of
from dp_polars._many.synthesis import Synthesis
from dp_polars._many.synthesis_plan import SynthesisPlan, synthesis_plan
from dp_polars._many.synthesis_release import RESERVED, run_synthesis
from dp_polars._numbers import Number, count_of, exact, flag_of, probability_of
from dp_polars._session.session import Session
from dp_polars.errors import InvalidParameterError

Opened = TypeVar("Opened")
Made = TypeVar("Made")

_MOST_ROUNDS = 1_000


class ManyQueries(FrameMethods, Generic[Opened, Made]):
    """Very many questions over a public domain: answered one after another, or by synthetic rows."""

    def online_queries(
        self, domain: DomainLike, *, alpha: Number | None = None, max_updates: int | None = None,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        max_rows_per_group: int | None = None, label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Opened:  # fmt: skip
        """Open an object that answers very many counting questions for one charge: private multiplicative weights.

        Parameters
        ----------
        domain
            The columns that questions are about, with their public values: a list of Enum and Boolean columns, or a
            mapping from columns to a list of values, to `dp.bins`, or to None for Enum and Boolean columns. A None in a
            list of values stands for null. A domain has at most 10**6 combinations. Rows with other values are left
            out.
        alpha
            How far off the hypothesis may be, as a fraction of all rows, before an answer is measured.
        max_updates
            The most answers that are measured; the noise grows with it. The default is 10 + 4 ln(cells), enough for
            most data, or ln(cells) / (1.5 alpha**2), enough for any data, if that is less. Once they are used up, the
            hypothesis answers without being checked.
        epsilon, ..., session
            The spend and the cap on the rows of one unit: see `dp.OpeningOptions`.

        Returns
        -------
        OnlineQueries
            Has `ask`, `ask_many`, `distribution`, `size` and `updates_left`. The rows are read at this call, even those
            of a LazyFrame.

        Notes
        -----
        Hardt and Rothblum 2010. One part of the spend counts the rows, one compares every answer with the hypothesis
        (a sparse vector), and one measures the answers where it is far off.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> people = pl.DataFrame({"user": range(1000), "member": [True, False] * 500, "region": ["n", "s"] * 500})
        >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1):
        ...     online = people.dp.online_queries(
        ...         {"member": None, "region": ["n", "s"]}, alpha=0.1, max_updates=10, epsilon=0.5
        ...     )
        >>> answer = online.ask(pl.col("member") & (pl.col("region") == "n"))
        >>> 0 <= answer.fraction <= 1, answer.checked
        (True, True)
        """
        options = options_in(locals(), OpeningOptions)

        def question(view: View) -> OnlineOpening:
            return online_opening(view, options, domain=domain, alpha=alpha, max_updates=max_updates)

        opened: Opened = self._resolve(options, question)
        return opened

    def synthesize(
        self, columns: DomainLike, *, queries: Sequence[ExpressionLike] | None = None,
        method: Literal["mwem", "small_database"] = "mwem", rounds: int | None = None, alpha: Number | None = None,
        fresh: bool = False,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        max_rows_per_group: int | None = None, label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Made:  # fmt: skip
        """Make synthetic rows that answer many questions nearly as the private rows would.

        Parameters
        ----------
        columns
            The columns and their public values, like `domain` of `online_queries`.
        queries
            Conditions over these columns whose counts should be close. The default is the counts of every pair of
            columns.
        method
            "mwem" measures, round after round, where the synthetic rows are worst (Hardt, Ligett, McSherry 2012).
            "small_database" chooses among all databases of ln(queries) / alpha**2 rows (Blum, Ligett, Roth 2008); it is
            for very small domains.
        rounds
            The number of MWEM's rounds. By default it follows from the noisy number of rows. With as many rounds as
            queries, each query is measured once.
        alpha
            The error that the size of the small database alone allows, as a fraction of all rows.
        fresh
            Pays for new noise even if the same synthesis is stored.
        epsilon, ..., session
            The spend and the cap on the rows of one unit: see `dp.OpeningOptions`.

        Returns
        -------
        Synthesis
            Has `frame`, `distribution`, `size` and `entry`. It is released at this call, even from a LazyFrame.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> people = pl.DataFrame({"user": range(1000), "member": [True, False] * 500, "region": ["n", "s"] * 500})
        >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1):
        ...     made = people.dp.synthesize({"member": None, "region": ["n", "s"]}, epsilon=0.5)
        >>> made.frame.columns, made.frame.height == made.size
        (['member', 'region'], True)
        """
        options = options_in(locals(), OpeningOptions)

        def question(view: View) -> SynthesisQuestion:
            return synthesis_question(
                view, options, columns=columns, queries=queries, method=method, rounds=rounds, alpha=alpha, fresh=fresh
            )

        made: Made = self._resolve(options, question)
        return made


@dataclass(frozen=True)
class OnlineOpening(Question[OnlinePlan]):
    """Planned online queries, and the rows that they will ask."""

    def answer(self, origin: Origin) -> OnlineQueries:
        """Charge the price and open the online queries."""
        return OnlineQueries(open_online(self.plan, self.rows, self.session))


@dataclass(frozen=True)
class SynthesisQuestion(Question[SynthesisPlan]):
    """A planned synthesis, and the rows that it measures."""

    fresh: bool

    def answer(self, origin: Origin) -> Synthesis:
        """Return the stored synthesis, or charge its price and make one."""
        plan = self.plan
        release = run_synthesis(plan, self.rows, self.session, identity=origin.identity, fresh=self.fresh)
        return Synthesis(plan.domain, release)


def online_opening(view: View, options: OpeningOptions, *, domain: Any, alpha: Any, max_updates: Any) -> OnlineOpening:
    """Return the question of a call of `online_queries`, or raise an error that says what is missing."""
    check_options(options, "online_queries", OpeningOptions, ("domain", "alpha", "max_updates"))
    parsed = _domain(view, domain, (WEIGHT,))
    if alpha is None:
        raise InvalidParameterError(
            "online_queries needs alpha=, the fraction of all rows that an answer may be off by before it is measured. "
            "Say alpha=0.05."
        )
    probability_of(alpha, "alpha")
    plan = online_plan(
        view.terms,
        spend_of(options, view.session),
        domain=parsed,
        alpha=exact(alpha, "alpha"),
        max_updates=None if max_updates is None else count_of(max_updates, "max_updates"),
        max_rows=_max_rows(view, options),
        unit=view.unit,
        steps=view.steps,
        unchecked=view.unchecked,
    )
    return OnlineOpening(labelled(plan, options), view.rows, view.session)


def synthesis_question(
    view: View,
    options: OpeningOptions,
    *,
    columns: Any,
    queries: Any,
    method: Any,
    rounds: Any,
    alpha: Any,
    fresh: Any = False,
) -> SynthesisQuestion:
    """Return the question of a call of `synthesize`, or raise an error that says what is missing."""
    check_options(options, "synthesize", OpeningOptions, ("columns", "queries", "method", "rounds", "alpha", "fresh"))
    if method not in ("mwem", "small_database"):
        raise InvalidParameterError(f"method must be 'mwem' or 'small_database', got {method!r}.")
    small = method == "small_database"
    if small and alpha is None:
        raise InvalidParameterError("method='small_database' needs alpha=, the error that its size allows: alpha=0.5.")
    if not small and alpha is not None:
        raise InvalidParameterError("alpha= is for method='small_database'; MWEM takes rounds=.")
    if small and rounds is not None:
        raise InvalidParameterError("rounds= is for method='mwem'; the small database takes alpha=.")
    if small:
        probability_of(alpha, "alpha")
    wanted = None if rounds is None else count_of(rounds, "rounds")
    if wanted is not None and wanted > _MOST_ROUNDS:
        raise InvalidParameterError(f"rounds= must be at most {_MOST_ROUNDS:,}: each gets a part of the spend.")
    domain = _domain(view, columns, RESERVED)
    plan = synthesis_plan(
        view.terms,
        spend_of(options, view.session),
        domain=domain,
        method=method,
        queries=None if queries is None else workload_of(domain, queries),
        rounds=wanted,
        alpha=exact(alpha, "alpha") if small else None,
        max_rows=_max_rows(view, options),
        unit=view.unit,
        steps=view.steps,
        unchecked=view.unchecked,
    )
    return SynthesisQuestion(labelled(plan, options), view.rows, view.session, flag_of(fresh, "fresh"))


def _domain(view: View, given: Any, reserved: Sequence[str]) -> Domain:
    schema = view.rows.schema
    check_unit(view.unit, schema)
    domain = parse_domain(given, schema, view.unit)
    clash = set(domain.names) & set(reserved)
    if clash:
        raise InvalidParameterError(f"{', '.join(sorted(clash))} is a column of the answer; rename the frame's column.")
    return domain


def _max_rows(view: View, options: OpeningOptions) -> tuple[int, str]:
    """Return the most rows that one unit counts with, and where this cap came from."""
    if not view.unit:
        return 1, "every row is a unit"
    cap, rule = adopted_cap(options, "max_rows_per_group", view, [])[:2]
    if not isinstance(cap, int):
        raise InvalidParameterError(
            "Questions over a domain need a cap on the rows of one unit in the whole domain, because the noise grows "
            "with it. Say max_rows_per_group=10 here or in the session. It can't be estimated here.",
            code="row-cap-missing",
        )
    return cap, rule
