"""Suggested caps and bounds that a session adopted from a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class Suggestions:
    """What a profile suggests for later questions about the same source. All of it comes from noisy numbers.

    Attributes
    ----------
    source
        The identity of the table that was profiled.
    unit
        The expressions of the unit columns over the columns of the source.
    keys
        The expressions of the keys that the suggested caps are about, over the columns of the source. None if they
        are not known, for example because a join added them.
    max_groups, max_rows_per_group
        The suggested caps; None if there is nothing to cap.
    bounds
        The suggested bounds by the expression of the column over the columns of the source.
    beyond
        For "max_groups", "max_rows_per_group" and "max_rows": possible caps in rising order, each with the noisy share
        of units that have more.
    outside
        For the expression of a column: its bins in rising order, each with the stored numbers that enclose it and the
        noisy share of values in it.
    reliable
        Whether the noise of the profile is small beside the number of units.
    rule
        Where the suggestions came from, in words, for plans.

    Examples
    --------
    >>> Suggestions(source=b"visits", unit=("user",), keys=(), max_rows_per_group=8).max_groups is None
    True
    """

    source: bytes
    unit: tuple[str | None, ...]
    keys: tuple[str, ...] | None
    max_groups: int | None = None
    max_rows_per_group: int | None = None
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    beyond: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    outside: Mapping[str, tuple[tuple[Fraction, Fraction, float], ...]] = field(default_factory=dict)
    reliable: bool = True
    rule: str = "from the profile"

    def share_beyond(self, name: str, cap: int) -> float | None:
        """Return the share of units that have more than a cap, or None if it was not measured.

        Between two caps of the profile, the share of the lower one is returned, which is never less.
        """
        shares = [share for measured, share in self.beyond.get(name, ()) if measured <= cap]
        return shares[-1] if shares else None

    def share_outside(self, expression: str | None, lower: Fraction, upper: Fraction) -> float | None:
        """Return the share of values outside bounds, or None if it was not measured.

        Bins that lie partly inside count as outside, so only noise can make the share too small.
        """
        bins = self.outside.get(expression or "")
        if bins is None:
            return None
        return sum(share for low, high, share in bins if low < lower or high > upper)


class HasSuggestions(Protocol):
    """Something that suggests caps and bounds, such as `dp.TableProfile`."""

    @property
    def suggestions(self) -> Suggestions:
        """The suggested caps and bounds."""
