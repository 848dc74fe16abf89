"""`dp.audit`: ask a question of two neighbouring inputs very often, and see whether the answers reveal too much."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from dp_polars._audit.copies import can_be_copied, copies_of, draws_at_random, numbers_in
from dp_polars._audit.events import Judgement, judged
from dp_polars._audit.limits import gaussian_epsilon, mu_of
from dp_polars._audit.result import AuditResult
from dp_polars._audit.samples import Names, Samples, joined, samples_of
from dp_polars._choices.release import ChoiceRun
from dp_polars._numbers import Number, count_of, delta_of, epsilon_of, probability_of
from dp_polars._plan.plan import Plan
from dp_polars._release.rehearsal import MakeRelease, Rehearsal
from dp_polars._release.run import QueryRun
from dp_polars._session.cost import NOTHING, Cost
from dp_polars._session.session import Session, spending_only
from dp_polars._session.terms import Terms, _Row
from dp_polars.errors import InvalidParameterError
from dp_polars.theory import zcdp_to_epsilon

AuditedQuestion = Callable[[pl.DataFrame], Any]

RUNS, REPEATS, WHOLE = 1_000_000, 2_000, 1_000
"""Default numbers of answers: if only noise is redrawn, if a release is repeated, and if everything is repeated."""

_FEWEST = 100
_COUNT = "\0count"  # a column name that no frame has
_MOST_NUMBERS = 20_000_000  # how many numbers are kept for one input
_LIMITS = 2  # a lower limit of the event's probability on one input, an upper limit on the other
_DELTA = 1e-6  # the delta at which a rho is shown as an epsilon if the session has none


def audit(
    question: AuditedQuestion,
    first: pl.DataFrame,
    second: pl.DataFrame,
    *,
    session: Session,
    made_up: Literal[True] | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
    runs: int | None = None,
    reads: int = 400,
    confidence: float = 0.99,
) -> AuditResult:
    """Try to refute the guarantee of a question by computing a lower bound on the epsilon that it really has.

    Use it on made-up data only. The question is answered again and again on two neighbouring inputs, and no budget
    protects what all these answers reveal together. The audit runs in sessions of its own, which are thrown away; no
    other session can be charged meanwhile.

    Parameters
    ----------
    question
        A function that takes a frame and queries it with the current session:
        `lambda frame: frame.dp.count("region", epsilon=1.0)`. For SQL, use
        `dp.connect(None, dp.current_session()).register("visits", frame).sql(...)`. It may open streams, online queries
        or synthetic rows, and make several queries one after another. Its return values are compared.
    first, second
        Two made-up frames that are neighbours: all rows of one unit are added, removed or replaced, depending on the
        session. The unit whose rows differ should be the worst case, with more rows, more groups and larger values
        than the caps and bounds allow.
    session
        The session that defines the terms. It is neither queried nor charged. A session with a ledger file is refused.
    made_up
        Say `made_up=True` to confirm that both frames are made up.
    epsilon, delta
        The claim. By default it is the price that the question is charged.
    runs
        The number of answers on each input. By default it is a million if the noise of one query can be drawn many
        times at once, 2,000 if a release can be repeated after its charge (synthetic rows, totals), and 1,000 if the
        whole question has to be asked again (streams, online queries, several queries).
    reads
        How often the rows are read if something random happens before the noise: a cap that keeps some groups or rows
        of a unit, or bounds that are "auto". Many answers then share a read, and fewer reads prove less.
    confidence
        A question that keeps its claim is called a violation with probability at most 1 - confidence.

    Returns
    -------
    AuditResult
        The result, with `verdict`, `epsilon_lower_bound` and `plot()`. An audit can refute a guarantee, but never prove
        it.

    Notes
    -----
    A quarter of the answers is used to learn what tells the inputs apart, a quarter to choose one event, and half of
    them to judge it by the limits of Clopper and Pearson 1934. Answers that share a read are judged read by read. If
    the event has probability at least p on one input and at most q on the other, then epsilon is at least log((p -
    delta) / q). If all noise is Gaussian, an event proves the mu of a Gaussian trade-off curve instead (Dong, Roth and
    Su 2022), and mu**2 / 2 is compared with the rho that was charged.

    The million draws run through the library's own noise path, on exact numbers that it read itself. Presentation, such
    as the rounding of a mean, comes later and can reveal no more.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> people = pl.DataFrame({"user": range(50), "age": [20, 30, 40, 50, 90] * 10})
    >>> without = people.filter(pl.col("user") != 4)
    >>> asked = lambda frame: frame.dp.sum("age", bounds=(0, 90), epsilon=1.0)
    >>> found = dp.audit(asked, people, without, session=session, made_up=True, confidence=1 - 1e-7)
    >>> found.verdict
    'no violation found'

    The audit notices noise that is half of what a claim needs:

    >>> dp.audit(asked, people, without, session=session, made_up=True, epsilon=0.5).verdict
    'violation'
    """
    _check(question, first, second, session, made_up)
    checked = check_neighbours(first, second, session.terms)
    miss = (1 - probability_of(confidence, "confidence")) / _LIMITS
    wanted = None if runs is None else count_of(runs, "runs", least=_FEWEST)
    wanted_reads = count_of(reads, "reads", least=8) // 4 * 4
    probes = [_asked(question, frame, session) for frame in (first, second)]
    claim = _claim_of([probe for probe, _ in probes], session, epsilon, delta)
    drawn = _draw(question, (first, second), session, [probe for probe, _ in probes], wanted, wanted_reads)
    found = judged(
        drawn.first, drawn.second, miss=miss, delta=claim.delta, gaussian=claim.mu is not None, reads=drawn.reads
    )
    return claim.result(found, drawn, checked, confidence)


def _check(question: Any, first: Any, second: Any, session: Any, made_up: Any) -> None:
    problems = []
    if not callable(question):
        problems.append("question must be a function of a frame: lambda frame: frame.dp.count('region', epsilon=1.0)")
    if not isinstance(first, pl.DataFrame) or not isinstance(second, pl.DataFrame):
        problems.append("first and second must be pl.DataFrame, made up in memory")
    if not isinstance(session, Session):
        problems.append("session= must define the terms: dp.Session(epsilon=1.0, unit='user_id')")
    elif session.ledger_path is not None:
        problems.append("session= has a ledger file, so it may protect real data; pass dp.Session(...) without ledger=")
    if made_up is not True:
        problems.append(
            "an audit repeats the same question without limit, and no budget protects the rows it reads; if both "
            "frames are made up, say made_up=True, and never pass real rows"
        )
    if problems:
        raise InvalidParameterError("This can't be audited: " + "; ".join(problems) + ".")


def _asked(
    question: AuditedQuestion, frame: pl.DataFrame, session: Session, seen: Callable[[MakeRelease], None] | None = None
) -> tuple[Rehearsal, Any]:
    """Ask a question once in a session that is thrown away. Return the rehearsal and the answer."""
    rehearsal = Rehearsal(session, seen)
    # Clone the frame, because the same object would be recognised as the same source.
    with spending_only(rehearsal.session):
        answer = question(frame.clone())
        samples_of([answer], Names())  # lazy answers are computed now
    if not rehearsal.made:
        raise InvalidParameterError(
            "The question charged nothing to the session of the audit. Query the frame that is passed in with the "
            "current session: frame.dp.count(...), or dp.connect(None, dp.current_session()) for SQL, without session=."
        )
    return rehearsal, answer


# ---------------------------------------------------------------- the claim


@dataclass(frozen=True)
class _PrivacyClaim:
    epsilon: float
    delta: float
    mu: float | None
    """The mu of a Gaussian trade-off curve, or None if the claim is in epsilon and delta."""
    coarse: float
    """Bound on the relative difference between the curves of discrete and continuous Gaussian noise."""

    def result(self, found: Judgement, drawn: _Drawn, checked: bool, confidence: float) -> AuditResult:
        bound, least_rho, rho = found.worth, None, None
        if self.mu is not None:
            least_mu = found.worth / (1 + self.coarse)
            rho, least_rho, bound = self.mu**2 / 2, least_mu**2 / 2, gaussian_epsilon(least_mu, self.delta)
            violated = least_mu > self.mu
        else:
            violated = bound > self.epsilon
        return AuditResult(
            verdict="violation" if violated else "no violation found",
            epsilon_lower_bound=bound,
            epsilon=self.epsilon,
            delta=self.delta,
            rho=rho,
            rho_lower_bound=least_rho,
            confidence=confidence,
            runs=drawn.runs,
            reads=drawn.reads,
            how=drawn.how,
            likely=found.likely,
            unlikely=found.unlikely,
            likely_limit=found.limits[0],
            unlikely_limit=found.limits[1],
            checked=checked,
            curve=found.curve,
        )


def _claim_of(
    probes: Sequence[Rehearsal], session: Session, epsilon: Number | None, delta: Number | None
) -> _PrivacyClaim:
    """Return the claim that the user stated, or else what was charged."""
    cost = max((_price(probe) for probe in probes), key=lambda price: (price.epsilon, price.rho))
    plans = [plan for probe in probes for plan in probe.plans]
    gaussian = all(_is_gaussian(plan) for plan in plans)
    said_delta = None if delta is None else float(delta_of(delta, zero=True))
    charged = float(cost.delta + cost.gaussian_delta)
    coarse = 0.0
    if gaussian:
        # A value of discrete noise is likelier than the Gaussian over its step by 1 / (24 variance). Allow twice that.
        coarse = max(
            1 / (12 * float(measurement.noise.parameter)) for plan in plans for measurement in plan.measurements
        )
    if epsilon is not None:
        wanted = float(epsilon_of(epsilon))
        at = charged if said_delta is None else said_delta
        return _PrivacyClaim(wanted, at, mu_of(wanted, at) if gaussian and at else None, coarse)
    at = said_delta if said_delta is not None else charged
    if gaussian:
        mu = math.sqrt(2 * float(cost.rho))
        at = at or float(session.terms.delta) or _DELTA
        return _PrivacyClaim(gaussian_epsilon(mu, at), at, mu, coarse)
    if cost.epsilon == math.inf:
        # A rho has an epsilon at every delta. The delta for keys and units comes on top.
        shown = said_delta or float(session.terms.conversion_delta) or _DELTA
        return _PrivacyClaim(zcdp_to_epsilon(float(cost.rho), shown), shown + float(cost.delta), None, 0.0)
    return _PrivacyClaim(float(cost.epsilon), at, None, 0.0)


def _price(probe: Rehearsal) -> Cost:
    return sum((release.cost for release in probe.session.releases), NOTHING)


def _is_gaussian(plan: Any) -> bool:
    """Return whether a plan releases numbers with Gaussian noise and nothing else."""
    if not isinstance(plan, Plan) or plan.discovery is not None or plan.estimated:
        return False
    return bool(plan.measurements) and all(
        measurement.noise and measurement.noise.mechanism == "gaussian" for measurement in plan.measurements
    )


# ---------------------------------------------------------------- the answers


@dataclass(frozen=True)
class _Drawn:
    """The answers on both inputs, and how they were produced."""

    first: Samples
    second: Samples
    reads: int
    """The number of independent reads that the runs share. With 1, all runs are independent."""
    how: str

    @property
    def runs(self) -> int:
        return self.first.runs


def _draw(
    question: AuditedQuestion,
    inputs: tuple[pl.DataFrame, pl.DataFrame],
    session: Session,
    probes: Sequence[Rehearsal],
    wanted: int | None,
    wanted_reads: int,
) -> _Drawn:
    """Answer the question very often, in the fastest way that keeps all of its randomness."""
    names = Names()
    single = all(len(probe.made) == 1 for probe in probes)
    makes = [probe.made[0] for probe in probes]
    if single and all(can_be_copied(make) for make in makes):
        return _copied(question, inputs, session, wanted or RUNS, wanted_reads, names)
    if single and None not in makes:
        runs = wanted or REPEATS

        def repeat(make: MakeRelease) -> Any:
            return [make()[0] for _ in range(runs)]

        tables = [samples_of(_within(question, frame, session, repeat), names) for frame in inputs]
        how = "the rows were read, noise was drawn and the answer was computed anew each time"
        return _Drawn(tables[0], tables[1], reads=1, how=how)
    runs = wanted or WHOLE
    tables = [samples_of([_asked(question, frame, session)[1] for _ in range(runs)], names) for frame in inputs]
    return _Drawn(
        tables[0], tables[1], reads=1, how="the whole question was asked anew each time, in a session of its own"
    )


def _within(
    question: AuditedQuestion, frame: pl.DataFrame, session: Session, work: Callable[[MakeRelease], Any]
) -> Any:
    """Ask a question that makes one release, and call `work` with what makes it while its rows can be read."""
    found: list[Any] = []
    _asked(question, frame, session, lambda make: found.append(work(make)))
    if len(found) != 1:
        raise InvalidParameterError(
            "The question made a different number of releases than before. What it asks may depend on earlier answers "
            "and on nothing else."
        )
    return found[0]


def _copied(
    question: AuditedQuestion,
    inputs: tuple[pl.DataFrame, pl.DataFrame],
    session: Session,
    runs: int,
    reads: int,
    names: Names,
) -> _Drawn:
    """Draw the noise of one query many times at once, for one or several reads of the rows."""
    chance = any(_within(question, frame, session, _chooses) for frame in inputs)
    reads = reads if chance else 1

    def exact(make: MakeRelease) -> Any:
        return [make.read() for _ in range(reads)] if isinstance(make, QueryRun | ChoiceRun) else []

    found = [_within(question, frame, session, exact) for frame in inputs]
    numbers = max(numbers_in(exact, plan) for exacts in found for exact, plan in exacts)
    runs = max(_FEWEST, min(runs, _MOST_NUMBERS // max(1, numbers)))
    each = max(1, runs // reads) if chance else runs // 4 * 4
    tables = [joined([copies_of(exact, plan, each, names) for exact, plan in exacts]) for exacts in found]
    how = "their noise was drawn all at once by the library's own code"
    how += f", {each:,} times for each of {reads:,} reads of the rows" if chance else "; the rows were read once"
    return _Drawn(tables[0], tables[1], reads=reads, how=how)


def _chooses(make: MakeRelease) -> bool:
    return isinstance(make, QueryRun | ChoiceRun) and draws_at_random(make)


def check_neighbours(first: pl.DataFrame, second: pl.DataFrame, terms: Terms) -> bool:
    """Refuse frames that are not neighbours. Return whether this could be checked."""
    if first.schema != second.schema:
        raise InvalidParameterError(
            "first and second have different columns or types, but neighbours differ only in rows. Cast them alike."
        )
    units = [] if isinstance(terms.unit, _Row) else list(terms.unit)
    if not set(units) <= set(first.columns):
        return False  # the question itself names the column of the unit
    counted = [frame.group_by(frame.columns).len(_COUNT) for frame in (first, second)]
    only = [
        table.join(other, on=table.columns, how="anti", nulls_equal=True) for table, other in (counted, counted[::-1])
    ]
    if isinstance(terms.unit, _Row):
        both = counted[0].join(counted[1], on=first.columns, how="full", nulls_equal=True, suffix="\0", coalesce=True)
        change = both.select(
            pl.col(_COUNT).fill_null(0).cast(pl.Int64) - pl.col(f"{_COUNT}\0").fill_null(0)
        ).to_series()
        gone, new = int(change.clip(lower_bound=0).sum()), int((-change).clip(lower_bound=0).sum())
        changed, replaced = max(gone, new), gone > 0 and new > 0
        same_size = gone == new
    else:
        touched = pl.concat([table.select(units) for table in only]).unique()
        changed = touched.height
        there = [
            touched.join(frame.select(units).unique(), on=units, how="semi", nulls_equal=True).height
            for frame in (first, second)
        ]
        replaced = sum(there) > changed
        same_size = there[0] == there[1]
    if not changed:
        raise InvalidParameterError(
            "first and second have the same rows, so there is nothing to tell apart. Remove a unit from one of them."
        )
    most = terms.group_size
    if terms.adjacency == "replace":
        # Either the rows of a unit change, or one unit leaves and another one comes.
        if isinstance(terms.unit, _Row):
            fits = same_size and changed <= most
        else:
            fits = same_size and changed <= most * 2 and max(there) <= most
        wanted = f"the rows of {_units(most)} are replaced by others"
    else:
        fits = changed <= most and (not replaced if not isinstance(terms.unit, _Row) else gone + new <= most)
        wanted = f"all rows of {_units(most)} are added or removed"
    if not fits:
        raise InvalidParameterError(
            f"first and second are not neighbours in this session. Neighbours differ in that {wanted}, and here more "
            "changed, so a bound on epsilon would mean nothing. Make one frame from the other, for example "
            "first.filter(pl.col('user_id') != 1)."
        )
    return True


def _units(number: int) -> str:
    return "one unit" if number == 1 else f"at most {number} units"
