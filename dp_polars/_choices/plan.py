"""The plan of a choice: which candidates have the best scores.

What one unit can change: in each of its groups it moves every score by at most `moves` = rows * max(|low|, |high|)
steps, all in one direction if low >= 0 or high <= 0. How many candidates it counts for makes no difference, so only its
rows for one candidate are capped, and its groups. With the weights exp(rate * score) a choice costs rate * moves if all
scores move in one direction, and twice that otherwise, when a unit is added or removed; replaced, scores move by
rows * (max(high, 0) - min(low, 0)) either way. Several are chosen one after another (peeled), each of them for that
price. `choice_prices` has what all groups cost together.

Candidates from the data (Durfee and Rogers 2019, by a proof that fits the session's accounts). In a group let D be the
`most` candidates of the highest positive scores, and let "nobody" compete with the score of the next one plus a gap
g + s, where g is the most by which a candidate of D on one side, but not on the other, can lie above that next one:
t * moves if units are added or removed, 2 t * moves if replaced (t units together). What is released are the candidates
chosen before nobody is. Take neighbours with D and D', and M, M' the same peeling among nobody and what is in both. One
draw finds a candidate outside of both with weight at most m exp(-rate * s) of nobody's own, m = |D - D'|. So every
outcome of M has at least (1 + m exp(-rate * s))**-k of its probability there, and the rest, k m exp(-rate * s) at most,
is a bad event that delta pays; M and M' are a peeling whose scores, nobody's too, move as above. A group that only one
side has is one in which nobody was chosen. All changed groups share delta.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from dp_polars._plan.compile import pieces_of
from dp_polars._plan.contribution import Bounds, bounds_of
from dp_polars._plan.plan import Choosing, Limited, Part, Plan, delta_for, unit_delta_for
from dp_polars._plan.query import Query, Selection
from dp_polars._plan.sensitivity import choice_prices
from dp_polars._plan.spend import Wanted, allot
from dp_polars._sampling.noise import MAX_SCALE
from dp_polars._session.cost import Cost
from dp_polars._session.prices import check_price
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError

_FEWEST, _EACH = 100, 10  # so many candidates of a group compete if they come from the data: at least, for each wanted


def selection_plan(query: Query, selection: Selection, terms: Terms) -> Plan:
    """Return the plan of a choice, or raise with what is missing."""
    _check(query, selection, terms)
    bounds = bounds_of(replace(query, keys=query.keys[:-1], domain=selection.groups))
    pieces = pieces_of(query, bounds, terms, "split", scales=selection.kind != "select_best")
    (score,) = pieces.pieces
    low, high = score.grid.low, score.grid.high
    moves = score.max_rows * max(abs(low), abs(high))
    one_way = low >= 0 or high <= 0
    # Replaced, scores move by `width` either way; added or removed, by `moves` one way or either.
    width = score.max_rows * (max(high, 0) - min(low, 0))
    replacement = Fraction(2 * width, moves if one_way else 2 * moves)
    pure, squared = choice_prices(bounds, terms, replacement)
    flips = terms.measure == "pure"
    prices = (pure * selection.k, squared * selection.k)
    granted, cost = allot(terms, query.spend, [Wanted(weight=Fraction(1), prices=prices, ranged=not flips)])
    check_price(terms, cost)
    epsilon = granted[0].epsilon
    rate = epsilon / (moves if one_way else 2 * moves)
    unit_delta, limited = _deltas(query, selection, terms, bounds, cost, moves, rate)
    used = unit_delta + (Fraction(0) if limited is None else limited.delta)
    piece = replace(score, source="scores", what="scores", sensitivity=None, prices=prices)
    return Plan(
        query=query,
        terms=terms,
        bounds=bounds,
        lanes=pieces.lanes,
        made=pieces.made,
        columns=pieces.columns,
        parts=(Part(piece=piece, noise=None, epsilon=epsilon),),
        units="",
        discovery=None,
        unit_delta=unit_delta,
        cost=cost + Cost(epsilon=Fraction(0), rho=Fraction(0), delta=used),
        choosing=Choosing(rate=rate, flips=flips, moves=moves, limited=limited),
    )


def regret(plan: Plan, confidence: float = 0.95) -> float | None:
    """Return how far a chosen score lies from the best one at most, with this confidence; None where it isn't known.

    Candidates of a group weigh exp(rate * score), so those that are worse than the best by (ln n + ln 1/miss) / rate
    weigh less than `miss` in all; permute-and-flip is never worse.
    """
    choosing, selection = plan.choosing, plan.query.selection
    if choosing is None or selection is None:
        return None
    count = selection.candidates.height if selection.candidates is not None else None
    if choosing.limited is not None:
        count = min(choosing.limited.most, count or choosing.limited.most) + 1
    if not count:
        return None
    piece = plan.parts[0].piece
    steps = math.log(count / (1 - confidence)) / float(choosing.rate)
    one = plan.query.aggregates[0]
    unit = one.values[0].unit if one.kind == "sum" else Fraction(1)
    return steps * float(piece.grid.step * unit)


def _deltas(
    query: Query, selection: Selection, terms: Terms, bounds: Bounds, cost: Cost, moves: int, rate: Fraction
) -> tuple[Fraction, Limited | None]:
    """Return what telling units apart by a hash costs, and how candidates that come from the data are limited."""
    delta = delta_for(query, terms, cost)
    unit_delta = Fraction(0) if selection.kind == "select_best" else unit_delta_for(query, terms, delta, 1)
    if query.domain is not None:
        return unit_delta, None
    times, sides = terms.group_size, 2 if terms.adjacency == "replace" else 1
    most = max(_FEWEST, _EACH * selection.k)
    if selection.candidates is not None:
        most = selection.candidates.height  # nothing to limit, only groups that are nobody else's
    apart = min(most, times * sides) if not query.unit else most
    own = delta - unit_delta
    groups = times * sides * bounds.max_groups
    steps = math.log(groups * selection.k * apart / float(own)) / float(rate) * (1 + 1e-9)
    gap = times * sides * moves + math.ceil(steps)
    if gap > MAX_SCALE:
        raise InvalidParameterError("The scores would not fit 64-bit numbers: use tighter bounds or a larger spend.")
    return unit_delta, Limited(most=most, gap=gap, delta=own)


def _check(query: Query, selection: Selection, terms: Terms) -> None:
    column = query.keys[-1].name
    if query.spend.within is not None or query.spend.mechanism is not None:
        raise InvalidParameterError(f"Say what {selection.kind} may cost with epsilon=, share= or rho=.")
    if "auto" in (query.max_rows, query.max_groups):
        raise InvalidParameterError(
            f"Caps of {selection.kind} can't be estimated; say max_rows_per_group=1 and so on.", code="row-cap-missing"
        )
    if query.domain is not None:
        return
    if selection.kind == "select_best":
        raise InvalidParameterError("select_best chooses in groups with public keys: pass keys=[...] for by=.")
    if not terms.native_delta:
        missing = column if selection.candidates is None else ", ".join(key.name for key in query.keys[:-1])
        given = "candidates=[...]" if selection.candidates is None else "keys=[...]"
        raise InvalidParameterError(
            f"Which values of {missing} exist is private, and this session has no delta to discover them with. Give "
            f"the public values with {given}, use an Enum or Boolean column, or open the session with a delta.",
            code="no-delta-for-keys",
        )
    if not selection.largest:
        raise InvalidParameterError(
            f"{selection.kind} needs public candidates: nobody has the values that are not in the data. Pass "
            "candidates=[...] (and keys=[...] with by=)."
        )
    one = query.aggregates[0]
    if one.values and one.values[0].bounds is not None and one.values[0].lower < 0:
        raise InvalidParameterError(
            "Candidates that come from the data are scored by what only adds up: give bounds= from 0 on, or public "
            "candidates."
        )
