"""The aggregates as methods of a private frame, which answers them, and of its preview, which plans them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, Never, TypeVar

import polars as pl

from dp_polars import _aggregates as aggregates
from dp_polars._aggregates.base import AggregateCall
from dp_polars._aggregates.quantiles import IntervalOf
from dp_polars._aggregates.values import Bounds
from dp_polars._frame.aggregate_question import question_of
from dp_polars._frame.misplaced import instead_of
from dp_polars._frame.options import By, ExpressionLike, Options, PublicKeys, options_in
from dp_polars._frame.question import FrameMethods, named
from dp_polars._numbers import Number
from dp_polars._plan.query import Cap, MechanismChoice
from dp_polars._session.session import Session
from dp_polars.errors import InvalidParameterError

Answer = TypeVar("Answer")


class Questions(FrameMethods, Generic[Answer]):
    """One method per aggregate. Each takes the grouping keys `by` and the options of `dp.Options`.

    The answer is a frame with the keys and the aggregate. For a DataFrame it is a DataFrame. For a LazyFrame it is a
    LazyFrame, which is released once, at the first collect. The methods of `preview` return the plan and spend nothing.
    """

    def _ask(self, asked: AggregateCall | Mapping[str | None, AggregateCall], by: By, options: Options) -> Answer:
        calls = [asked] if isinstance(asked, AggregateCall) else asked.values()
        name = ", ".join(call.aggregate.kind for call in calls)
        answer: Answer = self._resolve(options, named(name, lambda view: question_of(view, asked, by, options)))
        return answer

    def count(
        self, by: By = None, *, column: ExpressionLike | None = None,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Count rows, or the values of a column that are not null.

        Parameters
        ----------
        by
            The grouping keys: names or row-wise expressions.
        column
            If given, only rows in which this column isn't null are counted.
        epsilon, ..., session
            The spend, the caps and other options: see `dp.Options`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": [1, 1, 2], "region": ["a", "b", "a"]})
        >>> with dp.Session(epsilon=1.0, unit="user"):
        ...     counts = visits.dp.count("region", keys=["a", "b"], max_rows_per_group=1, epsilon=0.5)
        >>> counts.columns
        ['region', 'count']
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.count(column), by, options)

    def len(
        self, by: By = None, *,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Count rows. This is another name for `count`."""
        options = options_in(locals(), Options)
        return self.count(by, **options)

    def count_units(
        self, by: By = None, *,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Count units. Each unit counts once in a group, however many rows it has there.

        The arguments are those of `count`, without `column`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": [i % 3_000 for i in range(9_000)]})
        >>> round(dp.private(visits, dp.Session(epsilon=1.0, unit="user")).count_units(epsilon=0.5).item(), -3)
        3000
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.count_units(), by, options)

    def n_unique(
        self, column: ExpressionLike, by: By = None, *,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Count the distinct values of a column of any type. Null is not a value.

        If a unit has more than `max_rows_per_group` distinct values in a group, only that many of them count, chosen at
        random.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> trips.n_unique("km", epsilon=0.5).columns
        ['km']
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.n_unique(column), by, options)

    def sum(
        self, column: ExpressionLike, by: By = None, *, bounds: Bounds = None, per: Literal["row", "unit"] = "row",
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Add up a column whose values are clipped to `bounds`.

        Parameters
        ----------
        column
            The values: a name or a row-wise expression. Null and NaN are left out.
        by
            The grouping keys.
        bounds
            The smallest and the largest value that counts. Choose them without looking at the data, or say "auto" to
            estimate them privately.
        per
            "row" clips the value of each row. "unit" clips the total of each unit in a group instead, however many rows
            it has.
        epsilon, ..., session
            The spend, the caps and other options: see `dp.Options`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(trips.sum("km", bounds=(0, 10), epsilon=0.5).item(), -4)
        30000
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.sum(column, bounds=bounds, per=per), by, options)

    def mean(
        self, column: ExpressionLike, by: By = None, *, bounds: Bounds = None,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Average a column whose values are clipped to `bounds`. The arguments are those of `sum`, without `per`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(trips.mean("km", bounds=(0, 10), epsilon=0.5).item(), 1)
        3.0
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.mean(column, bounds=bounds), by, options)

    def geometric_mean(
        self, column: ExpressionLike, by: By = None, *, bounds: Bounds = None,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Compute the geometric mean of a column whose values are clipped to positive `bounds`.

        The arguments are those of `mean`, but bounds can't be estimated.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 8] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(trips.geometric_mean("km", bounds=(1, 10), epsilon=0.5).item(), 1)
        4.0
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.geometric_mean(column, bounds=bounds), by, options)

    def var(
        self, column: ExpressionLike, by: By = None, *, bounds: Bounds = None, ddof: int = 1,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Compute the variance of a column whose values are clipped to `bounds`. The divisor is the rows minus `ddof`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(trips.var("km", bounds=(0, 10), epsilon=1.0).item())
        1
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.var(column, bounds=bounds, ddof=ddof), by, options)

    def std(
        self, column: ExpressionLike, by: By = None, *, bounds: Bounds = None, ddof: int = 1,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Compute the standard deviation of a column. The arguments are those of `var`."""
        options = options_in(locals(), Options)
        return self._ask(aggregates.std(column, bounds=bounds, ddof=ddof), by, options)

    def quantile(
        self, column: ExpressionLike, quantile: Number | Sequence[Number], by: By = None, *, bounds: Bounds = None,
        interval: IntervalOf = "rank",
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Estimate one or several quantiles. Several are returned as a list; sorted quantiles never cross.

        Parameters
        ----------
        column
            Numbers, decimals, dates or times: a name or a row-wise expression.
        quantile
            A number between 0 and 1, or a list of them.
        by
            The grouping keys.
        bounds
            The range in which the answer lies. Choose it without looking at the data, or say "auto" to estimate it
            privately.
        interval
            What `confidence=` adds: "rank" tells for free how far the rank of the answer may be off, as
            `<name>_rank_error` in rows. If the same `agg` counts these rows (`dp.count("km")`), it is the range from
            `<name>_rank_low` to `<name>_rank_high`, as fractions of the rows. "value" adds `<name>_low` and
            `<name>_high`, which cover the quantile of the clipped values. They are two more choices, so each
            choice gets a third of the spend.
        epsilon, ..., session
            The spend, the caps and other options: see `dp.Options`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> trips.quantile("km", [0.25, 0.75], bounds=(0, 10), epsilon=0.5).item().to_list()
        [2, 4]
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.quantile(column, quantile, bounds=bounds, interval=interval), by, options)

    def median(
        self, column: ExpressionLike, by: By = None, *, bounds: Bounds = None, interval: IntervalOf = "rank",
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Estimate the median of a column. The arguments are those of `quantile`, without `quantile`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4, 6] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> trips.median("km", bounds=(0, 10), epsilon=0.5, confidence=0.95, interval="value").row(0)
        (4, 4, 4)
        >>> trips.median("km", bounds=(0, 10), epsilon=0.5, confidence=0.95).columns
        ['km', 'km_rank_error']
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.median(column, bounds=bounds, interval=interval), by, options)

    def min(
        self, column: ExpressionLike, by: By = None, *, bounds: Bounds = None, interval: Literal["rank"] = "rank",
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Estimate a value near the smallest one. About 38 * max_rows / epsilon rows lie below it.

        The smallest value itself belongs to one person, so it can't be released.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> trips.min("km", bounds=(0, 10), epsilon=0.5).item() in range(3)  # nearly always 2
        True
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.min(column, bounds=bounds, interval=interval), by, options)

    def max(
        self, column: ExpressionLike, by: By = None, *, bounds: Bounds = None, interval: Literal["rank"] = "rank",
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Estimate a value near the largest one. About 38 * max_rows / epsilon rows lie above it.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> trips.max("km", bounds=(0, 10), epsilon=0.5).item() in range(4, 11)  # nearly always 4
        True
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.max(column, bounds=bounds, interval=interval), by, options)

    def histogram(
        self, column: ExpressionLike, by: By = None, *, edges: Sequence[Any] | None = None, bins: int | None = None,
        bounds: Bounds = None,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Count values by bin: between given `edges`, or in `bins` (10) bins of equal width over `bounds`.

        The answer has one row per group and bin, with `bin_low`, `bin_high` and `count`. A bin includes its lower edge,
        and the last bin includes both edges. Values outside all edges are left out.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> trips.histogram("km", edges=[0, 3, 6], epsilon=0.5).columns
        ['bin_low', 'bin_high', 'count']
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.histogram(column, edges=edges, bins=bins, bounds=bounds), by, options)

    def cov(
        self, first: ExpressionLike, second: ExpressionLike, by: By = None, *,
        bounds: tuple[Bounds, Bounds] | None = None, ddof: int = 1,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Compute the covariance of two columns over the rows that have both. `bounds` takes a pair for each column.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> pairs = pl.DataFrame({"x": [0, 1] * 50_000, "y": [1, 3] * 50_000})
        >>> pairs = dp.private(pairs, dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(pairs.cov("x", "y", bounds=((0, 1), (0, 4)), epsilon=1.0).item(), 1)
        0.5
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.cov(first, second, bounds=bounds, ddof=ddof), by, options)

    def corr(
        self, first: ExpressionLike, second: ExpressionLike, by: By = None, *,
        bounds: tuple[Bounds, Bounds] | None = None,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Compute the correlation (Pearson's) of two columns over the rows that have both.

        `bounds` takes a pair for each column.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> pairs = pl.DataFrame({"x": [0, 1] * 50_000, "y": [1, 3] * 50_000})
        >>> pairs = dp.private(pairs, dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> round(pairs.corr("x", "y", bounds=((0, 1), (0, 4)), epsilon=1.0).item(), 1)
        1.0
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.corr(first, second, bounds=bounds), by, options)

    def linear_regression(
        self, x: ExpressionLike, y: ExpressionLike, by: By = None, *, bounds: tuple[Bounds, Bounds] | None = None,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Fit y by x with least squares, and return `slope` and `intercept`. `bounds` takes a pair for x and one for y.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> pairs = pl.DataFrame({"x": [0, 1] * 50_000, "y": [1, 3] * 50_000})
        >>> pairs = dp.private(pairs, dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> [round(x) for x in pairs.linear_regression("x", "y", bounds=((0, 1), (0, 4)), epsilon=1.0).row(0)]
        [2, 1]
        """
        options = options_in(locals(), Options)
        return self._ask(aggregates.linear_regression(x, y, bounds=bounds), by, options)

    def group_by(self, *keys: ExpressionLike | Iterable[ExpressionLike], **named: ExpressionLike) -> Grouped[Answer]:
        """Group the frame, for several aggregates at once: `group_by("region").agg(n=dp.count(), ...)`.

        Parameters
        ----------
        *keys
            Names or row-wise expressions, or lists of them.
        **named
            Row-wise expressions with the names of their keys. The keys of an answer are always sorted.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> trips.group_by("km").agg(n=dp.count(), keys=[2, 3, 4], epsilon=0.5).columns
        ['km', 'n']
        """
        listed: list[ExpressionLike] = []
        for given in keys:
            listed += [given] if isinstance(given, str | pl.Expr) or not isinstance(given, Iterable) else list(given)
        for name, given in named.items():
            if not isinstance(given, str | pl.Expr):
                raise InvalidParameterError(
                    f"group_by takes keys: names of columns or row-wise expressions. {name}= is neither."
                )
            listed.append((pl.col(given) if isinstance(given, str) else given).alias(name))
        return Grouped(self, listed)


class Grouped(Generic[Answer]):
    """A private frame with its grouping keys. Without keys, all rows are one group."""

    def __init__(self, questions: Questions[Answer], keys: list[ExpressionLike]) -> None:
        self._questions, self._keys = questions, keys

    @property
    def keys(self) -> list[ExpressionLike]:
        """The grouping keys."""
        return list(self._keys)

    def len(
        self, name: str | None = None, *,
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None,
        within: Number | None = None, delta: Number | None = None, mechanism: MechanismChoice | None = None,
        keys: PublicKeys | None = None, max_groups: Cap | None = None, max_rows_per_group: Cap | None = None,
        max_rows: Cap | None = None, min_units: int = 1, confidence: float | None = None, if_rows: int | None = None,
        nonnegative: bool = False, rollup: bool = False, cut: bool = False, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Count the rows of each group. The column of the counts is named `len`, or as you say.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
        >>> trips.group_by("km").len(keys=[2, 3, 4], epsilon=0.5).columns
        ['km', 'len']
        """
        options = options_in(locals(), Options)
        return self._questions._ask({name or "len": aggregates.count()}, self._keys or None, options)

    def agg(self, *asked: AggregateCall | Iterable[AggregateCall], **words: Any) -> Answer:
        """Answer several aggregates in one pass over the data, with one charge.

        Parameters
        ----------
        *asked
            Aggregates, or lists of them, whose answers are named after their column or by `alias`: `dp.count()`,
            `dp.sum("value", bounds=(0, 100)).alias("total")`.
        **words
            Aggregates with the names of their answers, and options: see `dp.Options`. The spend is split in proportion
            to the `weight=` of each aggregate, which is 1 by default. What two of them need is paid for once.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": [1, 1, 2], "region": ["a", "b", "a"], "spent": [3.0, 4.0, 5.0]})
        >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1):
        ...     answer = visits.dp.group_by("region").agg(
        ...         n=dp.count(), typical=dp.median("spent", bounds=(0, 10)), keys=["a", "b"], epsilon=0.5
        ...     )
        >>> answer.columns
        ['region', 'n', 'typical']
        """
        named: dict[str | None, AggregateCall] = {}
        for item in _flat(asked):
            if not isinstance(item, AggregateCall):
                raise instead_of(item)
            name = item.name or item.aggregate.default_name(tuple(map(_column_name, item.columns)))
            if name in named:
                raise InvalidParameterError(f"Two aggregates would be named {name}. Name them: agg(a=..., b=...).")
            named[name] = item
        options = {name: word for name, word in words.items() if not isinstance(word, AggregateCall)}
        for name, word in words.items():
            if isinstance(word, pl.Expr) and not isinstance(word, AggregateCall):
                raise instead_of(word, name)
            if isinstance(word, AggregateCall):
                if name in named:
                    raise InvalidParameterError(f"Two aggregates would be named {name}. Rename one of them.")
                named[name] = word
        if not named:
            raise InvalidParameterError("agg needs an aggregate: agg(n=dp.count(), epsilon=0.5).")
        return self._questions._ask(named, self._keys or None, options)  # type: ignore[arg-type]


def unit_wise_expressions(
    asked: Sequence[Any], words: Mapping[str, Any]
) -> tuple[list[pl.Expr], dict[str, pl.Expr]] | None:
    """Return what `agg` was given if it consists of Polars expressions alone; None if there is anything else."""
    listed = _flat(asked)
    plain = [isinstance(item, pl.Expr) and not isinstance(item, AggregateCall) for item in (*listed, *words.values())]
    return (listed, dict(words)) if plain and all(plain) else None


def _flat(asked: Sequence[Any]) -> list[Any]:
    """Return aggregates that were given one by one or in lists."""
    return [item for given in asked for item in (given if isinstance(given, list | tuple | Iterator) else [given])]


def _column_name(column: ExpressionLike) -> str:
    return column if isinstance(column, str) else column.meta.output_name()
