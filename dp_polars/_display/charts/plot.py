"""`dp.plot`: charts of releases and plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import polars as pl

from dp_polars._choices.plan import ChoicePlan
from dp_polars._display.charts.base import portable
from dp_polars._display.charts.privacy_loss import privacy_loss_chart
from dp_polars._display.charts.releases import answer_chart
from dp_polars._display.charts.tradeoff import tradeoff_chart
from dp_polars._local.plan import ResponsePlan
from dp_polars._plan.plan import Plan
from dp_polars._profile.profile import TableProfile
from dp_polars._session.releases import Release
from dp_polars._streams.plan import StreamPlan
from dp_polars.theory.privacy_loss import PrivacyLoss


class Plot:
    """Charts for Altair: `dp.plot(release)`, `dp.plot.tradeoff(...)`, `dp.plot.privacy_loss(...)`.

    Charts need the extra `plot` (`pip install 'dp-polars[plot]'`). They contain released values only and spend nothing.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> visits = dp.private(pl.DataFrame({"user": range(200), "region": ["north", "south"] * 100}), session)
    >>> counts = visits.count("region", keys=["north", "south"], epsilon=0.5)
    >>> chart = dp.plot(counts)
    >>> chart.to_dict()["title"] is not None
    True
    """

    def __call__(
        self, released: Release | TableProfile | pl.DataFrame, *, x: str | None = None, y: str | None = None
    ) -> Any:
        """Return the chart of a release, with the interval of the privacy noise where it is known.

        Keys that are names are drawn as bars, keys that are numbers or dates as lines, and histograms as adjacent bars.
        The notes of a release stand below the title: what caps and bounds cut off, which estimates are unreliable, and
        which groups are too small.

        Parameters
        ----------
        released
            A release (`session.releases[-1]`), a profile, or a released DataFrame.
        x, y
            The key on the horizontal axis and the value to draw. By default these are the first key and all values.

        Returns
        -------
        altair.Chart
            A chart that a notebook shows, and that `save` writes to a file.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": range(200), "region": ["north", "south"] * 100})
        >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1) as session:
        ...     counts = visits.dp.count("region", keys=["north", "south"], epsilon=0.5)
        >>> chart = dp.plot(session.releases[-1])
        >>> (rows,) = chart.to_dict()["datasets"].values()
        >>> [row["key"] for row in rows]
        ['north', 'south']
        """
        return portable(answer_chart(released, x=x, y=y))

    def tradeoff(
        self, question: Callable[..., Any], *args: Any, epsilons: Iterable[float] | None = None, **options: Any
    ) -> Any:
        """Return the chart of the expected error, or of the regret of a choice, against epsilon. Nothing is spent.

        Parameters
        ----------
        question
            A query method of `preview`, or a function of `epsilon` that calls one.
        *args, **options
            The arguments of the query, without `epsilon`.
        epsilons
            The epsilons to try, by default 21 from 0.05 to 5.

        Returns
        -------
        altair.Chart
            A line for each answer of the query.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": range(200), "region": ["north", "south"] * 100})
        >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1):
        ...     preview = visits.dp.preview
        ...     chart = dp.plot.tradeoff(preview.count, "region", keys=["north", "south"], epsilons=[0.1, 0.5, 1])
        >>> (rows,) = chart.to_dict()["datasets"].values()
        >>> [row["error"] for row in rows]
        [60.0, 12.0, 6.0]
        """
        return portable(tradeoff_chart(question, args, epsilons, options))

    def privacy_loss(
        self, of: Plan | ChoicePlan | StreamPlan | ResponsePlan | Release | PrivacyLoss, *, epsilon: float | None = None
    ) -> Any:
        """Return the chart of the privacy loss of a release on its worst pair of neighbours, with epsilon marked.

        Parameters
        ----------
        of
            A plan, a release that this process made, or a `dp.theory.PrivacyLoss`.
        epsilon
            The epsilon to mark. By default it is the price of the release.

        Returns
        -------
        altair.Chart
            The distribution of the loss.

        Examples
        --------
        >>> import dp_polars as dp
        >>> coin = dp.theory.PrivacyLoss.randomized_response(0.5)
        >>> (rows,) = dp.plot.privacy_loss(coin).to_dict()["datasets"].values()
        >>> [row["loss"] for row in rows]
        [-0.5, 0.5]
        """
        return portable(privacy_loss_chart(of, epsilon))

    def __repr__(self) -> str:
        return "<dp.plot: dp.plot(release), dp.plot.tradeoff(question, ...), dp.plot.privacy_loss(plan)>"


plot = Plot()
