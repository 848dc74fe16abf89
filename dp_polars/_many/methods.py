"""`online_queries` and `synthesize`: very many questions, or rows to ask anything of, for one charge."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack

import polars as pl

from dp_polars._expressions.panics import no_panics
from dp_polars._frame.options import ExpressionLike, OpeningOptions, cap_of, check_options, spend_of
from dp_polars._frame.queries import View, check_unit
from dp_polars._many.domain import Domain
from dp_polars._many.domain_columns import DomainLike, domain_of_words
from dp_polars._many.online_plan import OnlinePlan, online_plan
from dp_polars._many.online_queries import WEIGHT, OnlineQueries
from dp_polars._many.online_release import open_online
from dp_polars._many.predicates import workload_of
from dp_polars._many.synthesis_plan import SynthesisPlan, synthesis_plan
from dp_polars._many.synthesis_release import RESERVED, Synthesis, run_synthesis
from dp_polars._numbers import Number, count_of, exact, flag_of, probability_of
from dp_polars._release.source import source_identity
from dp_polars._session.releases import release_key
from dp_polars.errors import InvalidParameterError

if TYPE_CHECKING:
    from dp_polars._frame.private_frame import PrivateFrame

Opened = TypeVar("Opened")
Made = TypeVar("Made")

_MOST_ROUNDS = 1_000


@dataclass(frozen=True)
class OnlineWords:
    """The arguments of `online_queries`."""

    domain: Any
    alpha: Any
    max_updates: Any


@dataclass(frozen=True)
class SynthesisWords:
    """The arguments of `synthesize`."""

    columns: Any
    queries: Any
    method: Any
    rounds: Any
    alpha: Any


class ManyQueries(Generic[Opened, Made]):
    """Questions over a public domain: answered one after another, or by synthetic rows."""

    @abstractmethod
    def _open_queries(self, words: OnlineWords, options: OpeningOptions) -> Opened: ...

    @abstractmethod
    def _synthesize(self, words: SynthesisWords, options: OpeningOptions, fresh: bool) -> Made: ...

    def online_queries(
        self,
        domain: DomainLike,
        *,
        alpha: Number | None = None,
        max_updates: int | None = None,
        **options: Unpack[OpeningOptions],
    ) -> Opened:
        """Open an object that answers very many counting questions for one charge: private multiplicative weights.

        Parameters
        ----------
        domain
            The columns that questions are about and their public values: a list of Enum and Boolean columns, or a
            mapping of columns to None (Enum, Boolean), a list of values (None: null), or `dp.bins`. At most 10**6
            combinations. Rows with other values are left out.
        alpha
            How far off an answer may be before it is measured, as a part of all rows.
        max_updates
            How many answers are measured at most; the noise grows with them. Without it 10 + 4 ln(cells), enough for
            most data, or if that is less the number that is enough for any data, ln(cells) / (1.5 alpha**2). Once they
            are used up the hypothesis answers unchecked.
        **options
            The spend and the most rows of one unit: see `dp.OpeningOptions`.

        Returns
        -------
        OnlineQueries
            With `ask`, `ask_many`, `distribution`, `size` and `updates_left`. On a LazyFrame too, the rows are read
            at this call.

        Notes
        -----
        Hardt and Rothblum 2010. One part of the spend counts the rows, one compares every answer with the hypothesis
        (a sparse vector), one measures where it is far off.

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
        return self._open_queries(OnlineWords(domain, alpha, max_updates), options)

    def synthesize(
        self,
        columns: DomainLike,
        *,
        queries: Sequence[ExpressionLike] | None = None,
        method: Literal["mwem", "small_database"] = "mwem",
        rounds: int | None = None,
        alpha: Number | None = None,
        fresh: bool = False,
        **options: Unpack[OpeningOptions],
    ) -> Made:
        """Make synthetic rows that answer many questions nearly as the private rows do.

        Parameters
        ----------
        columns
            The columns and their public values, as `domain` of `online_queries`.
        queries
            Conditions over these columns whose counts shall be near; without it those of every pair of columns.
        method
            "mwem": measure, round after round, where the synthetic rows are worst (Hardt, Ligett, McSherry 2012).
            "small_database": choose among all databases of ln(queries) / alpha**2 rows (Blum, Ligett, Roth 2008),
            for very small domains.
        rounds
            Of MWEM; without it by the noisy number of rows. As many as there are queries: each is measured once.
        alpha
            Of the small database: the error that its size alone would allow, as a part of all rows.
        fresh
            Pays for new noise although the same synthesis is stored.
        **options
            The spend and the most rows of one unit: see `dp.OpeningOptions`.

        Returns
        -------
        Synthesis
            With `frame`, `distribution`, `size` and `entry`. On a LazyFrame too, it is released at this call.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> people = pl.DataFrame({"user": range(1000), "member": [True, False] * 500, "region": ["n", "s"] * 500})
        >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1):
        ...     made = people.dp.synthesize({"member": None, "region": ["n", "s"]}, epsilon=0.5)
        >>> made.frame.columns, made.frame.height == made.size
        (['member', 'region'], True)
        """
        return self._synthesize(SynthesisWords(columns, queries, method, rounds, alpha), options, fresh)


class PrivateMany(ManyQueries[OnlineQueries, Synthesis]):
    """What a private frame does with them: charge, read and release."""

    @no_panics
    def _open_queries(self: PrivateFrame[Any], words: OnlineWords, options: OpeningOptions) -> OnlineQueries:  # type: ignore[misc]
        view = self._view(options)
        plan = online_plan_of(view, words, options)
        return OnlineQueries(open_online(plan, view.rows, view.session))

    @no_panics
    def _synthesize(  # type: ignore[misc]
        self: PrivateFrame[Any], words: SynthesisWords, options: OpeningOptions, fresh: bool
    ) -> Synthesis:
        view, fresh = self._view(options), flag_of(fresh, "fresh")
        plan = synthesis_plan_of(view, words, options)

        def name() -> bytes:
            source = source_identity(self._origin, self._name, self._data_version)
            return release_key(plan.fingerprint(), source)

        return run_synthesis(plan, view.rows, view.session, name=name, fresh=fresh)


class PreviewMany(ManyQueries[OnlinePlan, SynthesisPlan]):
    """What a preview does with them: plan."""

    _frame: PrivateFrame[Any]

    @no_panics
    def _open_queries(self, words: OnlineWords, options: OpeningOptions) -> OnlinePlan:
        return online_plan_of(self._frame._view(options), words, options)

    @no_panics
    def _synthesize(self, words: SynthesisWords, options: OpeningOptions, fresh: bool) -> SynthesisPlan:
        flag_of(fresh, "fresh")
        return synthesis_plan_of(self._frame._view(options), words, options)


def online_plan_of(view: View, words: OnlineWords, options: OpeningOptions) -> OnlinePlan:
    """Return the plan that the words mean, or say what is missing."""
    check_options(options, "online_queries", OpeningOptions, ("domain", "alpha", "max_updates"))
    domain = _domain(view, words.domain, (WEIGHT,))
    if words.alpha is None:
        raise InvalidParameterError(
            "How far off may an answer be before it is measured? Say alpha=0.05, a part of all rows."
        )
    probability_of(words.alpha, "alpha")
    updates = None if words.max_updates is None else count_of(words.max_updates, "max_updates")
    return online_plan(
        view.terms,
        spend_of(options, view.session),
        domain=domain,
        alpha=exact(words.alpha, "alpha"),
        max_updates=updates,
        max_rows=_max_rows(view, options),
        unit=view.unit,
        steps=view.steps,
        unchecked=view.unchecked,
    )


def synthesis_plan_of(view: View, words: SynthesisWords, options: OpeningOptions) -> SynthesisPlan:
    """Return the plan that the words mean, or say what is missing."""
    check_options(options, "synthesize", OpeningOptions, ("columns", "queries", "method", "rounds", "alpha", "fresh"))
    if words.method not in ("mwem", "small_database"):
        raise InvalidParameterError(f"method must be 'mwem' or 'small_database', got {words.method!r}.")
    small = words.method == "small_database"
    if small and words.alpha is None:
        raise InvalidParameterError("method='small_database' needs alpha=, the error that its size allows: alpha=0.5.")
    if not small and words.alpha is not None:
        raise InvalidParameterError("alpha= is for method='small_database'; MWEM takes rounds=.")
    if small and words.rounds is not None:
        raise InvalidParameterError("rounds= is for method='mwem'; the small database takes alpha=.")
    if small:
        probability_of(words.alpha, "alpha")
    rounds = None if words.rounds is None else count_of(words.rounds, "rounds")
    if rounds is not None and rounds > _MOST_ROUNDS:
        raise InvalidParameterError(f"rounds= must be at most {_MOST_ROUNDS:,}: each gets a part of the spend.")
    domain = _domain(view, words.columns, RESERVED)
    return synthesis_plan(
        view.terms,
        spend_of(options, view.session),
        domain=domain,
        method=words.method,
        queries=None if words.queries is None else workload_of(domain, words.queries),
        rounds=rounds,
        alpha=exact(words.alpha, "alpha") if small else None,
        max_rows=_max_rows(view, options),
        unit=view.unit,
        steps=view.steps,
        unchecked=view.unchecked,
    )


def _domain(view: View, given: Any, reserved: Sequence[str]) -> Domain:
    schema: pl.Schema = view.rows.schema
    check_unit(view.unit, schema)
    domain = domain_of_words(given, schema, view.unit)
    clash = set(domain.names) & set(reserved)
    if clash:
        raise InvalidParameterError(f"{', '.join(sorted(clash))} is a column of the answer; rename the frame's column.")
    return domain


def _max_rows(view: View, options: OpeningOptions) -> tuple[int, str]:
    """Return the most rows that one unit counts with, and which rule says so."""
    if not view.unit:
        return 1, "every row is a unit"
    cap, rule = cap_of(options, "max_rows_per_group", view.session)
    if not isinstance(cap, int):
        raise InvalidParameterError(
            "How many rows may one unit count with, in the whole domain? Say max_rows_per_group=10 here or for the "
            "session; the noise grows with it. It can't be estimated here.",
            code="row-cap-missing",
        )
    return cap, rule
