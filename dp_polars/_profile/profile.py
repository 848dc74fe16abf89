"""`TableProfile`: quantiles and suggestions, read off the noisy counts of a released profile. This costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._display.charts.base import portable
from dp_polars._display.fact_table import AsTable
from dp_polars._display.html import facts, heading, whole
from dp_polars._display.text import percent
from dp_polars._profile.chart import profile_chart
from dp_polars._profile.ladders import COUNTS
from dp_polars._profile.plan import Part, ProfiledColumn, ProfilePlan, What
from dp_polars._session.releases import Release
from dp_polars._session.suggestions import Suggestions
from dp_polars.errors import InvalidParameterError

Shares = NDArray[np.float64]

QUANTILES = (Fraction(1, 100), Fraction(2, 100), Fraction(1, 2), Fraction(98, 100), Fraction(99, 100))
"""The quantiles that a profile shows."""

TAIL = 0.02
"""The share of units beyond a suggested cap, and of values beyond each suggested bound, up to the noise."""

LARGEST_NOISE = 0.04
"""A profile is reliable if the noise of one count is at most this share of all units."""

_SUGGESTED: dict[What, str] = {"groups per unit": "max_groups", "rows per unit and group": "max_rows_per_group"}
_TABLE: dict[str, pl.DataType] = {
    **dict.fromkeys(("name", "type", "q1", "q2", "q50", "q98", "q99"), pl.String()),
    "missing": pl.Float64(),
    "missing_error": pl.Float64(),
    "distinct": pl.Int64(),
    "distinct_error": pl.Int64(),
    "suggested": pl.String(),
    "cut": pl.Float64(),
    "cut_error": pl.Float64(),
}
"""The columns of a profile's table."""

_NEAR = 4  # bins beyond a cap or a bound whose noise counts as the error of the share that is cut
_NEAR_ZERO = 50  # a bound that is this many times smaller than the other one becomes 0


@dataclass(frozen=True)
class CapSuggestion:
    """A suggested cap, the noisy share of units that it would cut, and the error of that share."""

    name: str
    cap: int
    cut: float
    error: float


@dataclass(frozen=True)
class BoundsSuggestion:
    """Suggested bounds, as stored numbers, the noisy share of values outside them, and the error of that share."""

    column: ProfiledColumn
    lower: Fraction
    upper: Fraction
    cut: float
    error: float

    @property
    def pair(self) -> tuple[Any, Any]:
        """The bounds in the type of the column, as `bounds=` takes them."""
        return self.column.value(self.lower), self.column.value(self.upper)


class TableProfile(AsTable):
    """What a careful analyst should know about a table before choosing caps and bounds. Prints as a table.

    Everything in it is computed from the noisy counts of one release, so looking at it costs nothing.

    Parameters
    ----------
    release
        The release of a profile. `df.dp.profile(...)` returns the profile itself; after `SUMMARIZE t` in SQL, pass
        `session.releases[-1]`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = pl.DataFrame({"user": [i % 9_000 for i in range(27_000)], "spent": [5.0, 7.0, 9.0] * 9_000})
    >>> session = dp.Session(epsilon=2.0, unit="user")
    >>> profile = dp.private(visits, session).profile(columns=["spent"], epsilon=1.0)
    >>> profile.max_rows_per_group, profile.bounds, profile.reliable
    (3, {'spent': (3.0, 10.0)}, True)
    >>> profile.table["name"].to_list()
    ['units', 'rows per unit', 'spent']
    """

    def __init__(self, release: Release) -> None:
        if not isinstance(release, Release) or not isinstance(release.plan, ProfilePlan):
            raise InvalidParameterError(
                "dp.TableProfile takes the release of a profile that this process asked for: df.dp.profile(...), or "
                "session.releases[-1] after SUMMARIZE."
            )
        self.release, self.plan = release, release.plan
        self.counts: pl.DataFrame = release.frame

    # ------------------------------------------------------------------ noisy numbers

    @cached_property
    def units(self) -> int:
        """The noisy number of units, at least 1."""
        part = self._part("units")
        return max(1, int(self.counts["units"][part.start]))

    @property
    def reliable(self) -> bool:
        """Whether the noise of each count is small beside the number of units and hides no large part of them."""
        return self._largest_noise() <= LARGEST_NOISE * self.units and self._unseen() is None

    def _unseen(self) -> tuple[str, float] | None:
        """Return a histogram that misses more units than noise explains, with their share; None if there is none.

        All bins of a histogram together hold every unit. If the bins that seem to be occupied hold clearly fewer, the
        rest lies where no bin stands out from the noise, and the quantiles are wrong.
        """
        for part in self.plan.parts:
            if part.what == "values" or part.what in self.capped():
                noisy = self.counts["units"].slice(part.start, part.size).to_numpy().astype(np.float64)
                there = self._occupied(part, noisy)
                unseen = (self.units - noisy[there].sum()) / self.units
                error = (part.error(max(2, int(there.sum()))) + self._part("units").error()) / self.units
                if unseen > max(error, 2 * TAIL):
                    return self.plan.subtitle(part), float(min(unseen, 1.0))
        return None

    def _occupied(self, part: Part, noisy: Shares) -> NDArray[np.bool_]:
        """Return which bins of a part seem to have units."""
        first = 1 if part.what == "values" else 0  # missing values are always possible
        there = np.ones(part.size, np.bool_)
        there[first:] = occupied(noisy[first:], part.sure, part.noise.deviation)
        return there

    def _largest_noise(self) -> float:
        """Return the noise of a count in the histograms that suggest something, or that of the number of units."""
        suggesting = [part.error() for part in self.plan.parts if part.what == "values" or part.what in self.capped()]
        return max(suggesting, default=self._part("units").error())

    def _part(self, what: What, column: int | None = None) -> Part:
        found = self.plan.find(what, column)
        if found is None:
            raise InvalidParameterError(f"This profile has no {what}.")
        return found

    def shares(self, part: Part) -> Shares:
        """Return the share of units in each bin. Shares are made to sum to 1, which removes much of the noise."""
        noisy = self.counts["units"].slice(part.start, part.size).to_numpy().astype(np.float64)
        there = self._occupied(part, noisy)
        found = np.zeros(part.size)
        found[there] = on_simplex(noisy[there], float(self.units)) / self.units
        return found

    # ------------------------------------------------------------------ suggestions

    @cached_property
    def caps(self) -> tuple[CapSuggestion, ...]:
        """The suggested caps, with the share of units that each would cut."""
        found = []
        for what, name in self.capped().items():
            part = self._part(what)
            above = _above(self.shares(part))
            place = int(np.argmax(above <= TAIL)) if (above <= TAIL).any() else len(COUNTS) - 1
            place = min(place, len(COUNTS) - 1)
            error = part.error(min(_NEAR, part.size - 1 - place)) / self.units
            found.append(CapSuggestion(name, COUNTS[place], float(above[place]), error))
        return tuple(found)

    def capped(self) -> dict[What, str]:
        """Return the histograms that suggest a cap, with the name of the cap."""
        if not self.plan.unit:
            return {}
        return _SUGGESTED if self.plan.keys else {"rows per unit": "max_rows_per_group"}

    @property
    def max_groups(self) -> int | None:
        """The suggested cap on groups per unit; None without keys."""
        return next((suggestion.cap for suggestion in self.caps if suggestion.name == "max_groups"), None)

    @property
    def max_rows_per_group(self) -> int | None:
        """The suggested cap on rows per unit and group; None if every row is a unit."""
        return next((suggestion.cap for suggestion in self.caps if suggestion.name == "max_rows_per_group"), None)

    @property
    def max_rows_for_ratios(self) -> int | None:
        """A smaller cap on rows for means and other ratios, if units with many rows have values like the others.

        Half of the units have more rows than this in a group. Their rows would count less, and no interval shows how
        far that moves an answer, while intervals show the noise of a larger cap. So this cap is not adopted; give it to
        a question as `max_rows_per_group=`. docs/howto/caps-and-bounds.md has measured examples of both.
        """
        part = next((self._part(what) for what, name in self.capped().items() if name == "max_rows_per_group"), None)
        return None if part is None else COUNTS[min(_bin_at(self.shares(part), 0.5), len(COUNTS) - 1)]

    @cached_property
    def column_bounds(self) -> tuple[BoundsSuggestion, ...]:
        """The suggested bounds of each column that can have them, with the share of values outside."""
        found = (self._bounds_of(place, column) for place, column in enumerate(self.plan.columns))
        return tuple(suggestion for suggestion in found if suggestion is not None)

    @property
    def bounds(self) -> dict[str, tuple[Any, Any]]:
        """The suggested bounds by the name of the column."""
        return {suggestion.column.name: suggestion.pair for suggestion in self.column_bounds}

    def _bounds_of(self, place: int, column: ProfiledColumn) -> BoundsSuggestion | None:
        ladder = column.ladder
        if ladder is None:
            return None
        if column.dtype == pl.Boolean:
            return BoundsSuggestion(column, Fraction(0), Fraction(1), 0.0, 0.0)
        part = self._part("values", place)
        there = self._present(part)
        first, last = (_bin_at(there, TAIL), _bin_at(there, 1 - TAIL))
        lower, upper = ladder.lows[first], ladder.highs[last]
        if not column.dtype.is_temporal():  # a bound close to 0 becomes 0, which costs nothing and is easier to read
            lower = Fraction(0) if 0 < lower <= upper / _NEAR_ZERO else lower
            upper = Fraction(0) if 0 > upper >= lower / _NEAR_ZERO else upper
        if lower >= upper:  # all values seem to be equal, or to lie beyond the ladder
            wider = next((high for high in ladder.highs if high > lower), None)
            upper = upper if wider is None else wider
            lower = max(low for low in ladder.lows if low < upper) if wider is None else lower
        inside = sum(
            share
            for low, high, share in zip(ladder.lows, ladder.highs, there, strict=True)
            if lower <= low and high <= upper
        )
        bins = min(_NEAR, first) + min(_NEAR, ladder.size - 1 - last)
        return BoundsSuggestion(
            column, lower, upper, max(0.0, round(float(1 - inside), 12)), part.error(max(1, bins)) / self.units
        )

    def _present(self, part: Part) -> Shares:
        """Return the share of each bin among the values that are not missing."""
        values = self.shares(part)[1:]
        return values / values.sum() if values.sum() > 0 else np.full(len(values), 1 / len(values))

    @property
    def suggestions(self) -> Suggestions:
        """The suggestions that `session.adopt` makes defaults."""
        plan = self.plan
        if plan.identity is None:
            raise InvalidParameterError(
                "This profile can't be adopted, because it is about several tables, or follows an unchecked step or "
                "a step within a unit. Profile one table without such steps."
            )
        beyond = {}
        measured: dict[What, str] = {"rows per unit": "max_rows"} if plan.unit else {}
        for what, name in (measured | self.capped()).items():
            above = _above(self.shares(self._part(what)))
            beyond[name] = tuple((cap, float(share)) for cap, share in zip(COUNTS, above, strict=False))
        outside = {}
        for place, column in enumerate(plan.columns):
            if column.ladder is not None and column.source is not None:
                there = self._present(self._part("values", place)).tolist()
                outside[column.source] = tuple(zip(column.ladder.lows, column.ladder.highs, there, strict=True))
        return Suggestions(
            source=plan.identity,
            unit=plan.source_unit,
            keys=plan.source_keys,
            max_groups=self.max_groups,
            max_rows_per_group=self.max_rows_per_group,
            bounds={
                suggestion.column.source: suggestion.pair
                for suggestion in self.column_bounds
                if suggestion.column.source is not None
            },
            beyond=beyond,
            outside=outside,
            reliable=self.reliable,
            rule="from the profile" if self.reliable else "from the profile, which is not reliable",
        )

    # ------------------------------------------------------------------ what people see

    @cached_property
    def table(self) -> pl.DataFrame:
        """The profile as a frame, with a row for each number and each column. Its columns do not depend on the data.

        `q1`, `q2`, `q50`, `q98` and `q99` are quantiles: over units for numbers of rows and groups, and over one value
        of each unit for columns. They are texts because columns have different types. In the first row, `distinct` is
        the number of units. `missing_error`, `distinct_error` and `cut_error` are the most that the noise moves these
        numbers by, in 95 % of profiles.
        """
        rows: list[dict[str, Any]] = [
            {"name": "units", "distinct": self.units, "distinct_error": self._part("units").error()}
        ]
        suggested = {cap.name: cap for cap in self.caps}
        capped = self.capped()
        for part in self.plan.parts:
            if part.what in ("rows per unit", "groups per unit", "rows per unit and group"):
                row: dict[str, Any] = {"name": part.what, **_by_name(self._count_quantiles(part))}
                cap = suggested.get(capped.get(part.what, ""))
                if cap is not None:
                    row |= {"suggested": f"{cap.name}={cap.cap}", "cut": cap.cut, "cut_error": cap.error}
                rows.append(row)
        bounds = {suggestion.column.name: suggestion for suggestion in self.column_bounds}
        for place, column in enumerate(self.plan.columns):
            row = {"name": column.name, "type": str(column.dtype), **_by_name(self._value_quantiles(place))}
            row |= {"missing": self._missing(place), "missing_error": self._missing_error(place)}
            if (distinct := self._distinct(place)) is not None:
                row |= {"distinct": distinct, "distinct_error": self._part("distinct values", place).error()}
            if (found := bounds.get(column.name)) is not None:
                row |= {"suggested": self._bounds_text(found), "cut": found.cut, "cut_error": found.error}
            rows.append(row)
        return pl.DataFrame(rows, schema=_TABLE)

    def _count_quantiles(self, part: Part) -> list[str | None]:
        labels = [*map(str, COUNTS), f"more than {COUNTS[-1]}"]
        shares = self.shares(part)
        return [labels[_bin_at(shares, float(quantile))] for quantile in QUANTILES]

    def _value_quantiles(self, place: int) -> list[str | None]:
        column = self.plan.columns[place]
        if column.ladder is None:
            return [None] * len(QUANTILES)
        there = self._present(self._part("values", place))
        found: list[str | None] = []
        for quantile in QUANTILES:
            bin_ = _bin_at(there, float(quantile))
            ends = column.ladder.lows if quantile < Fraction(1, 2) else column.ladder.highs
            found.append(column.shown(ends[bin_]))
        return found

    def _missing(self, place: int) -> float:
        return float(self.shares(self._part("values", place))[0])

    def _missing_error(self, place: int) -> float:
        return min(1.0, self._part("values", place).error() / self.units)

    def _distinct(self, place: int) -> int | None:
        part = self.plan.find("distinct values", place)
        return None if part is None else max(0, int(self.counts["units"][part.start]))

    def _bounds_text(self, suggestion: BoundsSuggestion) -> str:
        ends = (suggestion.column.shown(bound).replace(",", "") for bound in (suggestion.lower, suggestion.upper))
        return f"bounds=({', '.join(ends)})"

    def rows(self) -> list[tuple[str, str]]:
        """Return the profile as rows of text: what was found, what is suggested, and how far to trust it."""
        return [
            ("profile", self.plan.title().removeprefix("profile").strip() or "of the units"),
            ("protects", self.plan.protects()),
            *self.learned(),
            ("price", self.plan.price()),
            *self.plan.counted_rows(),
        ]

    def learned(self) -> list[tuple[str, str]]:
        """Return what the noisy numbers say, as rows of text."""
        units = self._part("units")
        said = [("units", f"{self.units:,} (within {units.error():,.6g} for 95 % of profiles)")]
        for part in self.plan.parts:
            if part.what in ("rows per unit", "groups per unit", "rows per unit and group"):
                *_, half, most, nearly = self._count_quantiles(part)
                said.append((part.what, f"half of the units have at most {half}, 98 % {most}, 99 % {nearly}"))
        said += [(column.name, self._column_text(place)) for place, column in enumerate(self.plan.columns)]
        for cap in self.caps:
            text = f"{cap.cap}: {percent(cap.cut)} of units have more ({_give_or_take(cap.error)})"
            if cap.name == "max_rows_per_group" and self.max_rows_for_ratios != cap.cap:
                text += f"; {self.max_rows_for_ratios} is enough for means if units with many rows have similar values"
            said.append((f"suggested {cap.name}", text))
        for suggestion in self.column_bounds:
            text = f"{suggestion.column.shown(suggestion.lower)} to {suggestion.column.shown(suggestion.upper)}"
            text += (
                f": {percent(suggestion.cut)} of values lie outside ({_give_or_take(suggestion.error)})"
                if suggestion.error
                else ""
            )
            said.append((f"suggested bounds of {suggestion.column.name}", text))
        said.append(("hidden", self._hidden()))
        if not self.reliable:
            said.append(("reliable", self.unreliable()))
        return said

    def _column_text(self, place: int) -> str:
        column, part = self.plan.columns[place], self._part("values", place)
        parts = [f"{percent(self._missing(place))} missing ({_give_or_take(self._missing_error(place))})"]
        if column.dtype == pl.Boolean:
            parts.append(f"{percent(float(self._present(part)[1]))} of the others true")
        elif column.ladder is not None:
            names = ("1 %", "2 %", "half", "98 %", "99 %")
            found = (f"{name} below {text}" for name, text in zip(names, self._value_quantiles(place), strict=True))
            parts.append(", ".join(found))
        distinct = self._distinct(place)
        if distinct is not None:
            error = self._part("distinct values", place).error()
            known = f"at least about {distinct:,} distinct values (within {error:,.6g})"
            parts.append(known if distinct > error else f"too few distinct values to tell (the noise is {error:,.6g})")
        return "; ".join(parts)

    def _hidden(self) -> str:
        return (
            f"a few heavy units can hide behind the noise, which moves a count by up to {self._largest_noise():,.4g} "
            "units; values and distinct values are those of one row of each unit, which a hash chose"
        )

    def unreliable(self) -> str:
        """Return why the suggestions of an unreliable profile should not be trusted, and what would help."""
        times = self._largest_noise() / (LARGEST_NOISE * self.units)
        if times <= 1:
            what, share = self._unseen() or ("", 0.0)
            return (
                f"no: the noise hides where about {percent(share)} of the units are in the histogram of {what}, so "
                "don't trust the suggestions; spend more on the profile"
            )
        if any(part.noise.mechanism == "gaussian" for part in self.plan.parts):
            times *= times  # Gaussian noise shrinks with the square root of the spend
        return (
            f"no: the noise of a count is more than {LARGEST_NOISE:.0%} of all units, so don't trust the suggestions; "
            + (f"try about {1.5 * times:.2g} times the spend" if times < 1000 else "the table has too few units")
        )

    def _repr_html_(self) -> str:
        (name, title), *rest = self.rows()
        return whole(heading(f"{name.capitalize()} {title}"), facts(rest))

    def plot(self) -> Any:
        """Return a chart of the noisy histograms, with the suggestions as lines. This needs the extra `plot`.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> with dp.Session(epsilon=1.0, unit="user"):
        ...     chart = pl.DataFrame({"user": range(300), "km": [5] * 300}).dp.profile(columns=["km"]).plot()
        >>> "vconcat" in chart.to_dict()
        True
        """
        return portable(profile_chart(self))


def occupied(noisy: Shares, sure: float, deviation: float) -> NDArray[np.bool_]:
    """Return which bins seem to have units: those between the outermost ones that noise alone hardly explains.

    Most bins of a ladder are empty. If all of them counted, their noise would add up and decide the outer quantiles. So
    the range begins with the bins whose count exceeds `sure`. Units that are spread over many bins may exceed it in
    none. Therefore sums of 2, 4, 8, ... adjacent bins outside the range are looked at as well, and the range grows to
    those that exceed five standard deviations of their noise. Finally it grows on both sides as long as the next count
    is larger than a standard deviation.
    """
    found = np.flatnonzero(noisy > sure)
    low, high = (int(found[0]), int(found[-1])) if len(found) else (int(np.argmax(noisy)),) * 2
    before = np.concatenate([[0.0], np.cumsum(noisy)])
    width = 2
    while width <= len(noisy):
        sums = before[width:] - before[:-width]  # the sum that starts at each bin
        large = np.flatnonzero(sums > 5 * deviation * np.sqrt(width))
        left, right = large[large + width <= low], large[large > high]
        if len(left):  # a sum may begin with empty bins
            low = int(left[0]) + int(np.argmax(noisy[left[0] :] > deviation))
        if len(right):
            end = int(right[-1]) + width
            high = end - 1 - int(np.argmax(noisy[:end][::-1] > deviation))
        width *= 2
    while low > 0 and noisy[low - 1] > deviation:
        low -= 1
    while high < len(noisy) - 1 and noisy[high + 1] > deviation:
        high += 1
    places = np.arange(len(noisy))
    return (low <= places) & (places <= high)


def on_simplex(noisy: Shares, total: float) -> Shares:
    """Return the nearest counts that are not negative and add up to `total`.

    All bins lose the same amount, but never more than they have.
    """
    ordered = np.sort(noisy)[::-1]
    excess = np.cumsum(ordered) - total
    kept = int(np.flatnonzero(ordered * np.arange(1, len(noisy) + 1) > excess)[-1])
    found: Shares = np.maximum(noisy - excess[kept] / (kept + 1), 0.0)
    return found


def _by_name(quantiles: list[str | None]) -> dict[str, str | None]:
    """Return the quantiles of a row of the table by the names of their columns."""
    return dict(zip(("q1", "q2", "q50", "q98", "q99"), quantiles, strict=True))


def _above(shares: Shares) -> Shares:
    """Return the share of units above each bin."""
    found: Shares = np.maximum(1 - np.cumsum(shares), 0.0).round(12)
    return found


def _bin_at(shares: Shares, quantile: float) -> int:
    """Return the first bin at which the shares add up to a quantile."""
    return min(int(np.searchsorted(np.cumsum(shares), quantile - 1e-9)), len(shares) - 1)


def _give_or_take(error: float) -> str:
    return f"give or take {percent(min(error, 1.0))}"
