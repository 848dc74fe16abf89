"""`dp.audit`: ask a question of two neighbouring inputs very often, and see whether the answers tell too much."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import polars as pl

from dp_polars._audit.copies import can_be_copied, copies_of, draws_at_random, numbers_in
from dp_polars._audit.events import Event, chosen_event, worth_of
from dp_polars._audit.limits import (
    binomial_lower,
    binomial_upper,
    gaussian_epsilon,
    mean_lower,
    mean_upper,
    mu_of,
)
from dp_polars._audit.neighbours import check_neighbours
from dp_polars._audit.result import AuditResult
from dp_polars._audit.samples import Floats, Names, Samples, joined, samples_of
from dp_polars._choices.release import ChoiceRun
from dp_polars._numbers import Number, count_of, delta_of, epsilon_of, probability_of
from dp_polars._plan.plan import Plan
from dp_polars._release.rehearsal import Make, Rehearsal
from dp_polars._release.run import QueryRun
from dp_polars._session.cost import NOTHING, Cost
from dp_polars._session.current import spending_only
from dp_polars._session.session import Session
from dp_polars.errors import InvalidParameterError
from dp_polars.theory import zcdp_to_epsilon

Question = Callable[[pl.DataFrame], Any]

RUNS, REPEATS, WHOLE = 1_000_000, 2_000, 1_000
"""How often a question is answered if nobody says: with its noise alone, with what follows the charge, all of it."""

_FEWEST = 100
_MOST_NUMBERS = 20_000_000  # that are kept of one input
_LIMITS = 2  # a lower one of the event on one input, an upper one on the other
_POINTS = 100
_DELTA = 1e-6  # at which a rho is shown as an epsilon, where the session has no delta


def audit(
    question: Question,
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
    """Try to refute the guarantee of a question: a lower bound on the epsilon that it really has.

    For made-up data only. The question is answered again and again on two neighbouring inputs, and what all these
    answers tell together is protected by no budget. It runs in sessions of its own that are thrown away; no other
    session can be charged meanwhile.

    Parameters
    ----------
    question
        Takes a frame and asks with the current session: `lambda frame: frame.dp.count("region", epsilon=1.0)`. For
        SQL, `dp.connect(None, dp.current_session()).register("visits", frame).sql(...)`. It may open streams, online
        queries or synthetic rows, and ask several things one after another; what it returns is compared.
    first, second
        Two made-up frames that are neighbours: as the session says, all rows of one unit are added, removed or
        replaced. The unit whose rows differ should be the worst one, with more rows, groups and larger values than
        the caps and bounds allow.
    session
        Says the terms. It is neither asked nor charged; one with a ledger file is refused.
    made_up
        Say `made_up=True`: both frames are made up.
    epsilon, delta
        The claim. If it is not given, the price that the question is charged.
    runs
        How many answers on each input. If it is not given, a million where the noise of one query can be drawn many
        times at once; 2,000 where a release can be repeated after its charge (synthetic rows, totals); 1,000 where the
        whole question has to be asked again (streams, online queries, several questions).
    reads
        How often rows are read, where something random happens before the noise: a cap that keeps some groups or rows
        of a unit, or bounds that are "auto". Many answers then share a read, and fewer reads show less.
    confidence
        A question that keeps its claim is found in violation with a probability of at most 1 - confidence.

    Returns
    -------
    AuditResult
        With `verdict`, `epsilon_lower_bound` and `plot()`. An audit can refute a guarantee, never prove it.

    Notes
    -----
    A quarter of the answers learns what tells the inputs apart, a quarter chooses one event by that, and half of them
    judge it by the limits of Clopper and Pearson; answers that share a read are judged read by read. If the event has
    at least the probability p on one input and at most q on the other, epsilon is at least
    log((p - delta) / q). Where all noise is Gaussian, an event shows the mu of a Gaussian trade-off curve instead
    (Dong, Roth and Su 2022), which is compared with the rho that was charged: mu**2 / 2.

    What is drawn a million times is the noise path of the library itself, on exact numbers that it read itself.
    Presentation, such as the rounding of a mean, comes after it and can tell no more.

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

    Half of the noise that a claim needs is noticed:

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
        problems.append("question is a function of a frame: lambda frame: frame.dp.count('region', epsilon=1.0)")
    if not isinstance(first, pl.DataFrame) or not isinstance(second, pl.DataFrame):
        problems.append("first and second are pl.DataFrame, made up in memory")
    if not isinstance(session, Session):
        problems.append("session= says the terms: dp.Session(epsilon=1.0, unit='user_id')")
    elif session.ledger_path is not None:
        problems.append("session= has a ledger file, so it may guard real data; pass dp.Session(...) without ledger=")
    if made_up is not True:
        problems.append(
            "an audit repeats the same question without limit, and no budget protects what it reads: if both frames "
            "are made up, say made_up=True; never pass real rows"
        )
    if problems:
        raise InvalidParameterError("This can't be audited: " + "; ".join(problems) + ".")


def _asked(
    question: Question, frame: pl.DataFrame, session: Session, seen: Callable[[Make], None] | None = None
) -> tuple[Rehearsal, Any]:
    """Ask a question once in a session that is thrown away; return what was noted, and the answer."""
    rehearsal = Rehearsal(session, seen)
    # A frame of its own: the same object would be found again as the same source.
    with spending_only(rehearsal.session):
        answer = question(frame.clone())
        samples_of([answer], Names())  # what is lazy happens now
    if not rehearsal.made:
        raise InvalidParameterError(
            "The question was charged to no session of the audit. Ask with the current one: frame.dp.count(...), or "
            "dp.connect(None, dp.current_session()) for SQL, without session= and without a frame from outside."
        )
    return rehearsal, answer


# ---------------------------------------------------------------- what is claimed


@dataclass(frozen=True)
class _Claim:
    epsilon: float
    delta: float
    mu: float | None
    """Of a Gaussian trade-off curve; None: the claim is that of events."""
    coarse: float
    """By how much the curve of discrete Gaussian noise may differ from the continuous one."""

    def result(self, found: _Found, drawn: _Drawn, checked: bool, confidence: float) -> AuditResult:
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


def _claim_of(probes: Sequence[Rehearsal], session: Session, epsilon: Number | None, delta: Number | None) -> _Claim:
    """Return what was said, or else what was charged."""
    cost = max((_price(probe) for probe in probes), key=lambda own: (own.epsilon, own.rho))
    plans = [plan for probe in probes for plan in probe.plans]
    gaussian = all(_is_gaussian(plan) for plan in plans)
    said_delta = None if delta is None else float(delta_of(delta, zero=True))
    charged = float(cost.delta + cost.gaussian_delta)
    coarse = 0.0
    if gaussian:
        # A step of discrete noise is 1 / (24 variance) likelier than the Gaussian over it; twice that is allowed for.
        coarse = max(1 / (12 * float(part.noise.parameter)) for plan in plans for part in plan.parts)
    if epsilon is not None:
        wanted = float(epsilon_of(epsilon))
        at = charged if said_delta is None else said_delta
        return _Claim(wanted, at, mu_of(wanted, at) if gaussian and at else None, coarse)
    at = said_delta if said_delta is not None else charged
    if gaussian:
        mu = math.sqrt(2 * float(cost.rho))
        at = at or float(session.terms.delta) or _DELTA
        return _Claim(gaussian_epsilon(mu, at), at, mu, coarse)
    if cost.epsilon == math.inf:
        # A rho has an epsilon at every delta; what keys and units cost comes on top.
        shown = said_delta or float(session.terms.conversion_delta) or _DELTA
        return _Claim(zcdp_to_epsilon(float(cost.rho), shown), shown + float(cost.delta), None, 0.0)
    return _Claim(float(cost.epsilon), at, None, 0.0)


def _price(probe: Rehearsal) -> Cost:
    return sum((release.cost for release in probe.session.releases), NOTHING)


def _is_gaussian(plan: Any) -> bool:
    """Whether what is released is numbers with Gaussian noise and nothing else."""
    if not isinstance(plan, Plan) or plan.discovery is not None or plan.estimated:
        return False
    return bool(plan.parts) and all(part.noise and part.noise.mechanism == "gaussian" for part in plan.parts)


# ---------------------------------------------------------------- the answers


@dataclass(frozen=True)
class _Drawn:
    """The answers on both inputs."""

    first: Samples
    second: Samples
    reads: int
    """How many independent reads the runs share; 1: nothing random is shared, all runs are independent."""
    how: str

    @property
    def runs(self) -> int:
        return self.first.runs


def _draw(
    question: Question,
    inputs: tuple[pl.DataFrame, pl.DataFrame],
    session: Session,
    probes: Sequence[Rehearsal],
    wanted: int | None,
    wanted_reads: int,
) -> _Drawn:
    """Answer the question very often, in the fastest way that keeps all its randomness."""
    names = Names()
    single = all(len(probe.made) == 1 for probe in probes)
    makes = [probe.made[0] for probe in probes]
    if single and all(can_be_copied(make) for make in makes):
        return _copied(question, inputs, session, wanted or RUNS, wanted_reads, names)
    if single and None not in makes:
        runs = wanted or REPEATS

        def repeat(make: Make) -> Any:
            return [make()[0] for _ in range(runs)]

        tables = [samples_of(_within(question, frame, session, repeat), names) for frame in inputs]
        how = "each time the rows were read, noise was drawn and the answer was made again"
        return _Drawn(tables[0], tables[1], reads=1, how=how)
    runs = wanted or WHOLE
    tables = [samples_of([_asked(question, frame, session)[1] for _ in range(runs)], names) for frame in inputs]
    return _Drawn(
        tables[0], tables[1], reads=1, how="the whole question was asked anew each time, in a session of its own"
    )


def _within(question: Question, frame: pl.DataFrame, session: Session, work: Callable[[Make], Any]) -> Any:
    """Ask a question with one release, and do something with what makes it while its rows can be read."""
    found: list[Any] = []
    _asked(question, frame, session, lambda make: found.append(work(make)))
    if len(found) != 1:
        raise InvalidParameterError(
            "The question made another number of releases than before; what it asks may depend on answers, not on "
            "anything else."
        )
    return found[0]


def _copied(
    question: Question,
    inputs: tuple[pl.DataFrame, pl.DataFrame],
    session: Session,
    runs: int,
    reads: int,
    names: Names,
) -> _Drawn:
    """Draw the noise of one query many times at once, for one read of the rows or for several."""
    chance = any(_within(question, frame, session, _chooses) for frame in inputs)
    reads = reads if chance else 1

    def exact(make: Make) -> Any:
        return [make.read() for _ in range(reads)] if isinstance(make, QueryRun | ChoiceRun) else []

    found = [_within(question, frame, session, exact) for frame in inputs]
    numbers = max(numbers_in(exact, plan) for own in found for exact, plan in own)
    runs = max(_FEWEST, min(runs, _MOST_NUMBERS // max(1, numbers)))
    each = max(1, runs // reads) if chance else runs // 4 * 4
    tables = [joined([copies_of(exact, plan, each, names) for exact, plan in own]) for own in found]
    how = "their noise was drawn by the library's own code, all at once"
    how += f", {each:,} times for each of {reads:,} reads of the rows" if chance else "; the rows were read once"
    return _Drawn(tables[0], tables[1], reads=reads, how=how)


def _chooses(make: Make) -> bool:
    return isinstance(make, QueryRun | ChoiceRun) and draws_at_random(make)


# ---------------------------------------------------------------- the judgement


@dataclass(frozen=True)
class _Found:
    worth: float
    likely: float
    unlikely: float
    limits: tuple[float, float]
    curve: tuple[tuple[float, float], ...]


def judged(
    first: Samples, second: Samples, *, miss: float, delta: float = 0.0, gaussian: bool = False, reads: int = 1
) -> _Found:
    """Return what the most telling event shows; a half of the runs finds it, the other half judges it.

    Each of two limits is missed with a probability of at most `miss`.
    """
    worth = worth_of(delta, gaussian=gaussian)
    runs, shared = first.runs, reads > 1
    each = runs // reads if shared else 1  # reads are never torn apart
    quarters = [0, runs // each // 4 * each, runs // each // 2 * each, runs]
    learn, choose, judge = (
        (first.slice(start, end), second.slice(start, end)) for start, end in itertools.pairwise(quarters)
    )
    loose = math.log(1 / miss) / (reads - reads // 2) if shared else 0.0
    event = chosen_event(learn, choose, worth, NormalDist().inv_cdf(1 - miss), loose)
    hits = [event.hits(samples) for samples in event.ordered(judge)]
    if shared:
        before = [event.hits(samples) for samples in event.ordered(choose)]
        parts: list[Floats] = [own.reshape(-1, each).mean(axis=1) for own in (*hits, *before)]
        limits = mean_lower(parts[0], miss, parts[2]), mean_upper(parts[1], miss, parts[3])
    else:
        (p, q), (n, m) = (int(own.sum()) for own in hits), (len(own) for own in hits)
        limits = binomial_lower(p, n, miss), binomial_upper(q, m, miss)
    likely, unlikely = (float(own.mean()) for own in hits)
    return _Found(max(0.0, worth(*limits)), likely, unlikely, limits, _curve(event, judge))


def _curve(event: Event, judge: tuple[Samples, Samples]) -> tuple[tuple[float, float], ...]:
    """Return how often the highest scores come from the one input and the other, threshold by threshold."""
    sign = 1 if event.forward else -1
    here, there = (np.sort(sign * event.score(samples)) for samples in event.ordered(judge))
    places = np.linspace(0, len(here) - 1, _POINTS).astype(np.int64)
    thresholds = np.unique(np.concatenate([here[places], there[places]]))
    points = {
        (
            float(1 - np.searchsorted(there, threshold, side="left") / len(there)),
            float(1 - np.searchsorted(here, threshold, side="left") / len(here)),
        )
        for threshold in thresholds
    }
    return tuple(sorted({(0.0, 0.0), *points, (1.0, 1.0)}))
