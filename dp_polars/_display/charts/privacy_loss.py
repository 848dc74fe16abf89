"""A chart of the distribution of a privacy loss, with the epsilon that was charged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dp_polars._display.charts.base import BLUE, RED, WIDTH, Row, altair, inline, number, title
from dp_polars._display.charts.worst_case_loss import Loss, loss_of
from dp_polars._session.releases import Release
from dp_polars.errors import InvalidParameterError
from dp_polars.theory.privacy_loss import PrivacyLoss

_FEW = 60  # atoms that are drawn one by one; more are gathered in as many bins
_POINTS = 201  # of a curve


def privacy_loss_chart(of: Any, epsilon: float | None) -> Any:
    """Return the chart of the privacy loss of a plan, of a release or of a distribution."""
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
        # Sums of floats may lie a hair above what they stand for.
        beyond = f"; beyond epsilon with probability {loss.tail(epsilon * (1 + 1e-9)):.3g}" if found.exact else ""
        below.insert(0, f"mean loss {loss.mean:.3g}{beyond}")
    if loss.infinite:
        below.append(f"infinite with probability {loss.infinite:.3g}")
    named = title(f"Privacy loss: {found.name}", "; ".join(below))
    return alt.layer(*layers).properties(width=WIDTH, height=220, title=named)


def _found(of: Any) -> Loss:
    if isinstance(of, PrivacyLoss):
        return Loss(of, None, "a distribution")
    if isinstance(of, Release):
        if of.plan is None:
            raise InvalidParameterError("This process did not make that release, so its plan is not known here.")
        return loss_of(of.plan)
    return loss_of(of)


def _bars(loss: PrivacyLoss) -> Any:
    """Return a bar for each loss, or for each range of losses if there are many."""
    alt, losses, masses = altair(), loss.losses, loss.probabilities
    rows: list[Row]
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
    rows = [{"loss": float(one), "density": float(high)} for one, high in zip(x, density, strict=True)]
    marks = alt.Chart(inline(rows)).mark_area(color=BLUE, opacity=0.4, line={"color": BLUE})
    return marks.encode(
        x=alt.X(field="loss", type="quantitative", title="privacy loss"),
        y=alt.Y(field="density", type="quantitative", title="density"),
        tooltip=[number("loss", "loss"), number("density", "density")],
    )
