"""The privacy loss of a plan on its worst neighbours: what a release can tell about one unit.

The unit of the worst neighbours moves as many answers as the caps allow, each as far as they allow. Where the law of a
part is not known in closed form (choices, streams, rules that show groups), it is that of randomized response, which is
the worst of all with the same epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

from dp_polars._choices.plan import ChoicePlan
from dp_polars._local.plan import ResponsePlan
from dp_polars._many.online_plan import OnlinePlan
from dp_polars._many.synthesis_plan import SynthesisPlan
from dp_polars._plan.plan import Part, Plan
from dp_polars._session.cost import Cost
from dp_polars._streams.plan import StreamPlan
from dp_polars.errors import InvalidParameterError
from dp_polars.theory.privacy_loss import PrivacyLoss

_FINE = 2**17  # atoms of a whole plan, below those that `PrivacyLoss` gathers on a grid
_EACH = 1_000  # atoms of one answer: a larger sensitivity is drawn in coarser steps
_MOST = 20_000  # atoms of a part


@dataclass(frozen=True)
class Loss:
    """A privacy loss, with the price that it was charged as and what it leaves out or bounds from above."""

    loss: PrivacyLoss
    cost: Cost | None
    name: str
    notes: tuple[str, ...] = ()
    exact: bool = True
    """Whether it was not rounded up to a grid, which puts losses a little beyond epsilon."""


def loss_of(plan: Any) -> Loss:
    """Return the privacy loss of what a plan releases."""
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


def _bounded(plan: StreamPlan | OnlinePlan | SynthesisPlan) -> Loss:
    """Return the worst loss of the plan's epsilon, where it has one."""
    cost = plan.cost
    if cost.gaussian_delta or not isinstance(cost.epsilon, Fraction):
        raise InvalidParameterError("The privacy loss of this plan is known by its rho alone; print the plan.")
    loss = PrivacyLoss.randomized_response(cost.epsilon)
    return Loss(loss, cost, plan.label(), ("an upper bound: the worst of this epsilon",))


def _of_responses(plan: ResponsePlan) -> Loss:
    channel = plan.channel
    rest = channel.other * (channel.size - 2)  # all that neither says
    loss = PrivacyLoss.of([channel.truthful, channel.other, rest], [channel.other, channel.truthful, rest])
    loss = loss.self_compose(plan.terms.group_size)
    return Loss(loss, plan.cost, plan.label())


def _of_choice(plan: ChoicePlan) -> Loss:
    notes = ["choices by an upper bound: the worst of their epsilon"]
    if plan.cost.delta:
        notes.append(f"a further delta of {float(plan.cost.delta):.3g}, for keys and units, is not drawn")
    loss = PrivacyLoss.randomized_response(plan.epsilon * plan.prices[0])
    return Loss(loss, plan.cost, plan.label(), tuple(notes))


def _of_plan(plan: Plan) -> Loss:
    if plan.estimates:
        raise InvalidParameterError(
            "What is 'auto' is not known before the release, and neither is the privacy loss. Draw it after: "
            "dp.plot.privacy_loss(session.releases[-1])."
        )
    losses = [_of_part(part, len(plan.parts)) for part in plan.parts]
    if not losses:
        raise InvalidParameterError("This plan has no part with noise.")
    whole = reduce(PrivacyLoss.compose, losses)
    exact = whole.losses[-1] <= (1 + 1e-9) * sum(loss.losses[-1] for loss in losses)
    bounded = any(part.noise is None for part in plan.parts)
    notes = [f"{len(plan.parts)} parts composed"] if len(plan.parts) > 1 else []
    if bounded:
        notes.append("choices by an upper bound: the worst of their epsilon")
    if plan.discovery is not None and plan.discovery.rule is not None:
        notes.append("without the rule that decides which groups are shown")
    if plan.estimated:
        notes.append("without the estimates before it")
    if plan.cost.delta:
        notes.append(f"a further delta of {float(plan.cost.delta):.3g}, for keys and units, is not drawn")
    if not exact:
        notes.append("rounded up to a grid")
    return Loss(whole, plan.cost, plan.label(), tuple(notes), exact=bool(exact))


def _of_part(part: Part, parts: int) -> PrivacyLoss:
    if part.noise is None:
        return PrivacyLoss.randomized_response(part.epsilon * part.piece.prices[0])
    moved = part.sensitivity
    if part.noise.mechanism == "gaussian":
        return PrivacyLoss.gaussian(math.sqrt(part.noise.parameter), math.sqrt(moved.l2_squared))
    # As few answers as possible, each moved as far as possible: the first norm is what the noise is made for.
    answers, rest = divmod(moved.l1, moved.each)
    # Losses of several parts have as many sums as there are pairs, triples, ... of them.
    scale, atoms = part.noise.parameter, max(1, min(_EACH, int(min(_MOST, _FINE ** (1 / parts))) // answers))
    loss = _laplace(scale, moved.each, atoms)
    loss = loss.self_compose(answers) if answers > 1 else loss
    return loss.compose(_laplace(scale, rest, atoms)) if rest else loss


def _laplace(scale: Fraction, moved: int, most: int) -> PrivacyLoss:
    """Return the loss of an answer that moves so many steps; of very many in coarser steps of the same whole."""
    steps = min(moved, most)
    return PrivacyLoss.discrete_laplace(scale * steps / moved, steps)
