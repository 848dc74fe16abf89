"""The chart of the privacy loss of a plan: what a release can tell about one unit.

The loss is that on the worst pair of neighbours, where the unit that differs moves as many answers as the caps allow,
each as far as they allow. Parts whose loss has no closed form (choices, streams, rules that show groups) are bounded by
randomized response, which is the worst mechanism with the same epsilon (Kairouz, Oh and Viswanath 2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from dp_polars._choices.plan import ChoicePlan
from dp_polars._display.charts.base import BLUE, RED, WIDTH, ChartRow, altair, inline, number, title
from dp_polars._local.plan import ResponsePlan
from dp_polars._many.online_plan import OnlinePlan
from dp_polars._many.synthesis_plan import SynthesisPlan
from dp_polars._plan.plan import Measurement, Plan
from dp_polars._session.cost import Cost
from dp_polars._session.releases import Release
from dp_polars._streams.plan import StreamPlan
from dp_polars.errors import InvalidParameterError
from dp_polars.theory.privacy_loss import PrivacyLoss

_FEW = 60  # atoms that are drawn one by one; more atoms are gathered into this many bins
_POINTS = 201  # points of a density curve
_FINE = 2**17  # atoms of a whole plan, fewer than `PrivacyLoss` keeps exactly
_EACH = 1_000  # atoms of one answer; a larger sensitivity is represented by coarser steps
_MOST = 20_000  # atoms of a part


def privacy_loss_chart(of: Any, epsilon: float | None) -> Any:
    """Return the chart of the privacy loss of a plan, a release or a `PrivacyLoss`."""
    alt, found = altair(), _found(of)
    loss, cost = found.loss, found.cost
    if epsilon is None and cost is not None and math.isfinite(cost.epsilon):
        epsilon = float(cost.epsilon)
    chart = _curve(loss) if loss.mu > 0 else _bars(loss)
    layers = [chart]
    below = [*found.notes]
    if epsilon is not None:
        line = alt.Chart(inline([{"epsilon": epsilon, "text": f"epsilon {epsilon:.4g}"}]))
        x = alt.X(field="epsilon", type="quantitative", title="privacy loss")
        layers.append(line.mark_rule(color=RED, strokeDash=[6, 4]).encode(x=x))
        words = line.mark_text(color=RED, align="right", dx=-4, baseline="top")
        layers.append(words.encode(x=x, y=alt.value(2), text=alt.Text(field="text", type="nominal")))
        # Sums of floats may lie slightly above the exact sum.
        beyond = f"; beyond epsilon with probability {loss.tail(epsilon * (1 + 1e-9)):.3g}" if found.exact else ""
        below.insert(0, f"mean loss {loss.mean:.3g}{beyond}")
    if loss.infinite:
        below.append(f"infinite with probability {loss.infinite:.3g}")
    named = title(f"Privacy loss: {found.name}", "; ".join(below))
    return alt.layer(*layers).properties(width=WIDTH, height=220, title=named)


def _found(of: Any) -> WorstCaseLoss:
    if isinstance(of, PrivacyLoss):
        return WorstCaseLoss(of, None, "a distribution")
    if isinstance(of, Release):
        if of.plan is None:
            raise InvalidParameterError(
                "The plan of this release is not known here: another process made it, or it was charged by hand. "
                "Draw a plan instead: dp.plot.privacy_loss(df.dp.preview.count(...))."
            )
        return loss_of(of.plan)
    return loss_of(of)


def _bars(loss: PrivacyLoss) -> Any:
    """Return a bar for each loss, or for each bin if there are many losses."""
    alt, losses, masses = altair(), loss.losses, loss.probabilities
    rows: list[ChartRow]
    if losses.size > _FEW:
        edges = np.linspace(losses[0], losses[-1], _FEW + 1)
        place = np.clip(np.searchsorted(edges, losses, side="right") - 1, 0, _FEW - 1)
        gathered = np.bincount(place, weights=masses, minlength=_FEW)
        rows = [
            {"loss": float(edges[i]), "end": float(edges[i + 1]), "probability": float(gathered[i])}
            for i in range(_FEW)
        ]
        ends = {"x2": alt.X2(field="end")}
    else:
        rows = [{"loss": float(x), "probability": float(p)} for x, p in zip(losses, masses, strict=True)]
        ends = {}
    marks = alt.Chart(inline(rows)).mark_bar(color=BLUE, opacity=0.75, **({} if ends else {"size": 6}))
    return marks.encode(
        x=alt.X(field="loss", type="quantitative", title="privacy loss"),
        y=alt.Y(field="probability", type="quantitative", title="probability"),
        tooltip=[number("loss", "loss"), number("probability", "probability")],
        **ends,
    )


def _curve(loss: PrivacyLoss) -> Any:
    """Return the density of a loss with a Gaussian part."""
    alt, mu = altair(), loss.mu
    centres = loss.losses + mu * mu / 2
    x = np.linspace(centres.min() - 4 * mu, centres.max() + 4 * mu, _POINTS)
    density = np.zeros_like(x)
    for centre, mass in zip(centres, loss.probabilities, strict=True):
        density += mass * np.exp(-(((x - centre) / mu) ** 2) / 2) / (mu * math.sqrt(2 * math.pi))
    rows = [{"loss": float(loss), "density": float(high)} for loss, high in zip(x, density, strict=True)]
    marks = alt.Chart(inline(rows)).mark_area(color=BLUE, opacity=0.4, line={"color": BLUE})
    return marks.encode(
        x=alt.X(field="loss", type="quantitative", title="privacy loss"),
        y=alt.Y(field="density", type="quantitative", title="density"),
        tooltip=[number("loss", "loss"), number("density", "density")],
    )


@dataclass(frozen=True)
class WorstCaseLoss:
    """A privacy loss with the cost that was charged for it, and notes on what it leaves out or bounds from above."""

    loss: PrivacyLoss
    cost: Cost | None
    name: str
    notes: tuple[str, ...] = ()
    exact: bool = True
    """Whether no loss was rounded up to a grid, which can place losses slightly beyond epsilon."""


def loss_of(plan: Any) -> WorstCaseLoss:
    """Return the privacy loss of a plan."""
    if isinstance(plan, ResponsePlan):
        return _of_responses(plan)
    if isinstance(plan, ChoicePlan):
        return _of_choice(plan)
    if isinstance(plan, Plan):
        return _of_plan(plan)
    if isinstance(plan, StreamPlan | OnlinePlan | SynthesisPlan):
        return _bounded(plan)
    raise InvalidParameterError(
        "privacy_loss draws a plan (df.dp.preview.count(...)), a release with its plan (session.releases[-1]) or a "
        f"dp.theory.PrivacyLoss, got {type(plan).__name__}."
    )


def _of_choice(plan: ChoicePlan) -> WorstCaseLoss:
    notes = ["choices by an upper bound: the worst of their epsilon"]
    if plan.cost.delta:
        notes.append(f"a further delta of {float(plan.cost.delta):.3g}, for keys and units, is not drawn")
    loss = PrivacyLoss.randomized_response(plan.epsilon * plan.prices[0])
    return WorstCaseLoss(loss, plan.cost, plan.label(), tuple(notes))


def _bounded(plan: StreamPlan | OnlinePlan | SynthesisPlan) -> WorstCaseLoss:
    """Return the worst loss for the plan's epsilon, if it has one."""
    cost = plan.cost
    if cost.gaussian_delta or not isinstance(cost.epsilon, Fraction):
        raise InvalidParameterError(
            "Only the rho of this plan is known, not the distribution of its privacy loss. Print the plan to see it."
        )
    loss = PrivacyLoss.randomized_response(cost.epsilon)
    return WorstCaseLoss(loss, cost, plan.label(), ("upper bound by the worst mechanism with this epsilon",))


def _of_responses(plan: ResponsePlan) -> WorstCaseLoss:
    channel = plan.channel
    rest = channel.other * (channel.size - 2)  # the probability of all other categories, which is the same for both
    loss = PrivacyLoss.of([channel.truthful, channel.other, rest], [channel.other, channel.truthful, rest])
    loss = loss.self_compose(plan.terms.group_size)
    return WorstCaseLoss(loss, plan.cost, plan.label())


def _of_plan(plan: Plan) -> WorstCaseLoss:
    if plan.estimates:
        raise InvalidParameterError(
            "What 'auto' chooses, and with it the privacy loss, is not known before the release. Draw it afterwards: "
            "dp.plot.privacy_loss(session.releases[-1])."
        )
    losses = [_of_measurement(measurement, len(plan.measurements)) for measurement in plan.measurements]
    if not losses:
        raise InvalidParameterError("This plan adds no noise to any number, so there is no privacy loss to draw.")
    whole = reduce(PrivacyLoss.compose, losses)
    exact = whole.losses[-1] <= (1 + 1e-9) * sum(loss.losses[-1] for loss in losses)
    bounded = any(measurement.noise is None for measurement in plan.measurements)
    notes = [f"{len(plan.measurements)} parts composed"] if len(plan.measurements) > 1 else []
    if bounded:
        notes.append("choices bounded by the worst mechanism with their epsilon")
    if plan.discovery is not None and plan.discovery.rule is not None:
        notes.append("without the rule that decides which groups are shown")
    if plan.estimated:
        notes.append("without the estimates made before it")
    if plan.cost.delta:
        notes.append(f"the delta of {float(plan.cost.delta):.3g} for keys and units is not drawn")
    if not exact:
        notes.append("rounded up to a grid")
    return WorstCaseLoss(whole, plan.cost, plan.label(), tuple(notes), exact=bool(exact))


def _of_measurement(measurement: Measurement, parts: int) -> PrivacyLoss:
    if measurement.noise is None:
        return PrivacyLoss.randomized_response(measurement.epsilon * measurement.statistic.prices[0])
    moved = measurement.sensitivity
    if measurement.noise.mechanism == "gaussian":
        return PrivacyLoss.gaussian(math.sqrt(measurement.noise.parameter), math.sqrt(moved.l2_squared))
    # As few answers as possible move as far as possible. The noise is calibrated to the L1 norm, which limits them.
    answers, rest = divmod(moved.l1, moved.each)
    # The number of sums over several parts is the product of their numbers of atoms.
    scale, atoms = measurement.noise.parameter, max(1, min(_EACH, int(min(_MOST, _FINE ** (1 / parts))) // answers))
    loss = _laplace(scale, moved.each, atoms)
    loss = loss.self_compose(answers) if answers > 1 else loss
    return loss.compose(_laplace(scale, rest, atoms)) if rest else loss


def _laplace(scale: Fraction, moved: int, most: int) -> PrivacyLoss:
    """Return the loss of an answer that moves by this many steps, or by fewer, coarser steps if these are too many."""
    steps = min(moved, most)
    return PrivacyLoss.discrete_laplace(scale * steps / moved, steps)
