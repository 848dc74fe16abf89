"""The plan of a profile: what is counted, what one unit can change, and what it costs. It never sees data.

What one unit can change. Each part of a profile uses one number of each unit, so a unit that is added or removed
changes one count by one:

- units: the number of units changes by 1.
- rows of a unit, groups of a unit, rows of a unit in one of its groups: a unit is in one bin, so one count of the
  histogram changes by 1. A hash of salt, unit and group chooses the group, so the choice depends on the unit's own
  rows.
- values of a column: a hash chooses one row of each unit, with or without a value. It is in one bin (a range of
  values, or "missing"), so one count of the histogram changes by 1.
- distinct values of a column: a hash chooses one value of each unit that has any, so at most one value appears or
  vanishes, and the number of distinct values changes by at most 1.

A unit that is replaced leaves one bin and enters another: two counts change by 1 each. The numbers of units and of
distinct values change by at most 1 in that case too. `group_size` units move each of these as many times as far. Each
part gets noise for its own share of the spend, and the shares add up to the whole. The number of parts and of their
bins follows from the question and the types of the columns, so the released table has a public shape.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import ClassVar, Literal

import polars as pl

from dp_polars._display.text import amount
from dp_polars._plan.base import USUALLY, Facts, FramePlan, StoredPlan
from dp_polars._plan.contribution import ONCE, ContributionBounds
from dp_polars._plan.query import Key, Spend
from dp_polars._plan.sensitivity import Sensitivity, sensitivity_of, sensitivity_of_bins
from dp_polars._plan.spend import Noise, Wanted, allot
from dp_polars._profile.ladders import COUNTS, Ladder, count_labels
from dp_polars._session.prices import check_price
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError

DEFAULT_SHARE = Fraction(1, 20)
"""The share of the session's budget that a profile costs if the call does not say."""

What = Literal["units", "rows per unit", "groups per unit", "rows per unit and group", "values", "distinct values"]
COUNTED: tuple[What, ...] = ("rows per unit", "groups per unit", "rows per unit and group")
"""The parts that are histograms of one number of each unit."""

# Numbers need less of the spend than histograms, whose noise adds up over bins. The rows of a unit over all groups
# suggest nothing if there are keys.
_WEIGHTS: dict[What, Fraction] = {"units": Fraction(1, 4), "distinct values": Fraction(1, 4)}
_ALONE = ContributionBounds(
    max_groups=1, max_groups_rule="one number of each unit", enforce_groups=False, domain_size=1
)
MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class ProfiledColumn:
    """A column to profile.

    Attributes
    ----------
    name, expression, dtype
        Its name, its expression as canonical text, and its type.
    ladder
        The bins for its values; None if only missing and other values are told apart.
    distinct
        Whether its distinct values are counted.
    source
        Its expression over the columns of the source; None if it has none.
    """

    name: str
    expression: str
    dtype: pl.DataType
    ladder: Ladder | None
    distinct: bool
    source: str | None

    def labels(self) -> list[str]:
        """Return the names of the bins. The first one is for missing values."""
        if self.ladder is None:
            return [MISSING, "not missing"]
        return [
            MISSING,
            *(
                f"{self.shown(low)} to {self.shown(high)}"
                for low, high in zip(self.ladder.lows, self.ladder.highs, strict=True)
            ),
        ]

    def value(self, stored: Fraction) -> object:
        """Return a stored number in the type of the column, as a Python object."""
        if isinstance(self.dtype, pl.Decimal):
            return stored / 10**self.dtype.scale
        if self.dtype.is_temporal():
            return pl.Series([int(stored)]).cast(self.dtype).item()
        return float(stored) if self.dtype.is_float() else int(stored)

    def shown(self, stored: Fraction) -> str:
        """Return a stored number as people write it."""
        if self.dtype.is_temporal():
            return str(self.value(stored))
        number = float(stored / 10**self.dtype.scale) if isinstance(self.dtype, pl.Decimal) else float(stored)
        return f"{number:,.15g}" if abs(number) < 1e6 else f"{number:g}"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a profile: a number or a histogram, with its share of the spend and its noise.

    `start` is the place of its first count among the counts of all parts, and `size` is how many it has.
    """

    what: What
    column: int | None
    share: Fraction
    sensitivity: Sensitivity
    noise: Noise
    start: int
    size: int

    @property
    def name(self) -> str:
        """The name of its cells in the engine's answer."""
        return self.what if self.column is None else f"{self.what} {self.column}"

    @property
    def sure(self) -> float:
        """A count that is larger is hardly noise alone: the noise of all bins stays below it in 99.99 % of profiles.

        A single bin far from the others decides a suggested cap, which may then be a thousand times too large. A
        profile has several histograms, so this must hardly ever happen.
        """
        return float(self.noise.error(1 - 2e-4 / self.size))

    def error(self, bins: int = 1) -> float:
        """Return what the noise of the sum of this many counts stays within, for 95 % of profiles."""
        return float(self.noise.error(0.95)) if bins == 1 else 1.96 * self.noise.deviation * math.sqrt(bins)


@dataclass(frozen=True, kw_only=True, repr=False)
class ProfilePlan(FramePlan, StoredPlan):
    """What a profile will measure and what it costs. Prints as a table; `preview` makes it and spends nothing.

    Attributes
    ----------
    keys
        The keys whose groups are counted.
    columns
        The columns whose values are looked at.
    parts
        What is measured, in the order of the released table.
    spend
        What the profile may cost.
    identity, source_unit, source_keys
        The identity of the table, and its unit and keys as expressions over its columns, by which a session finds
        adopted suggestions. None if they are not known.
    learned
        Once noisy numbers are released: what they say, as the profile prints it.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = dp.private(pl.DataFrame({"user": [1, 2], "km": [2, 4]}), dp.Session(epsilon=1.0, unit="user"))
    >>> plan = visits.preview.profile(columns=["km"], epsilon=0.1)
    >>> plan.cost.epsilon, [part.what for part in plan.parts]
    (Fraction(1, 10), ['units', 'rows per unit', 'values', 'distinct values'])
    """

    question: ClassVar[str] = "profile"

    keys: tuple[Key, ...]
    columns: tuple[ProfiledColumn, ...]
    parts: tuple[Part, ...]
    spend: Spend
    identity: bytes | None
    source_unit: tuple[str | None, ...]
    source_keys: tuple[str, ...] | None
    learned: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def title(self) -> str:
        """Return the question in a few words."""
        by = f" by {', '.join(key.name for key in self.keys)}" if self.keys else ""
        names = f" of {', '.join(column.name for column in self.columns)}" if self.columns else ""
        return f"profile{names}{by}"

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal questions, in every process. Stored profiles are found by them."""
        plain = [
            "profile", [[key.name, key.expression] for key in self.keys],
            [[column.name, column.expression, str(column.dtype)] for column in self.columns],
            asdict(self.spend), self.unit, self.steps, self.unchecked,
        ]  # fmt: skip
        return json.dumps(plain, default=str).encode()

    def find(self, what: What, column: int | None = None) -> Part | None:
        """Return a part by what it measures, or None if there is no such part."""
        return next((part for part in self.parts if (part.what, part.column) == (what, column)), None)

    def labels(self, part: Part) -> list[str]:
        """Return the names of the bins of a part."""
        if part.what in COUNTED:
            return count_labels()
        if part.what == "values" and part.column is not None:
            return self.columns[part.column].labels()
        return ["all"]

    def subtitle(self, part: Part) -> str:
        """Return what a part measures, with the name of its column."""
        return part.what if part.column is None else f"{part.what} of {self.columns[part.column].name}"

    def notes(self) -> Facts:
        """Return what a reader of the answer should know besides its noise."""
        why = dict(self.learned).get("reliable")
        return [*super().notes(), *([] if why is None else [("unreliable", why.removeprefix("no: "))])]

    def noise_in_short(self) -> str:
        """Return what hides a unit in the profile, in a few words."""
        kinds = dict.fromkeys(part.noise.mechanism.capitalize() for part in self.parts)
        return f"{' and '.join(kinds)} noise on {len(self.parts)} histograms and counts"

    def error_in_short(self) -> str:
        """Return how far off the counts may be."""
        errors = sorted(part.error() for part in self.parts)
        return f"each count within {amount(errors[0])} to {amount(errors[-1])} units, {USUALLY}"

    def facts(self) -> Facts:
        """Return a row for each part: what one unit changes, its share of the spend and its noise."""
        said = []
        for part in self.parts:
            law = part.noise.mechanism.capitalize()
            change = "one number of each unit in one bin" if part.size > 1 else "at most 1 for each unit"
            bins = f", {part.size} bins" if part.size > 1 else ""
            share = f"discrete {law}, {float(part.share):.1%} of the spend"
            said.append(
                (self.subtitle(part), f"{change}{bins}; each count within {amount(part.error(), 6)} for 95 % ({share})")
            )
        return said

    def accuracy(self) -> Facts:
        """Return what the profile cannot show."""
        return [("hidden", "a few heavy units can hide behind the noise")]


def profile_plan(
    terms: Terms,
    spend: Spend,
    *,
    keys: tuple[Key, ...],
    columns: tuple[ProfiledColumn, ...],
    unit: tuple[str, ...],
    steps: tuple[str, ...],
    unchecked: bool,
    identity: bytes | None,
    source_unit: tuple[str | None, ...],
    source_keys: tuple[str, ...] | None,
) -> ProfilePlan:
    """Return the plan of a profile under a session's terms."""
    if spend.share is not None and not 0 < spend.share <= 1:
        raise InvalidParameterError(
            f"share= is a fraction of the session's budget, above 0 and up to 1, but it is {float(spend.share):g}."
        )
    wanted = _wanted(unit, keys, columns)
    weights = [_weight(what, bool(keys)) for what, _ in wanted]
    shares = [weight / sum(weights) for weight in weights]
    sizes = [_size(what, column, columns) for what, column in wanted]
    moves = [_sensitivity(what, terms) for what, _ in wanted]
    asked = [Wanted(weight=share, sensitivity=sensitivity) for share, sensitivity in zip(shares, moves, strict=True)]
    granted, cost = allot(terms, spend, asked)
    check_price(terms, cost)
    parts = []
    for place, ((what, column), bought) in enumerate(zip(wanted, granted, strict=True)):
        if bought.noise is None:
            raise ValueError("every part of a profile has noise")
        parts.append(
            Part(
                what=what,
                column=column,
                share=shares[place],
                sensitivity=moves[place],
                noise=bought.noise,
                start=sum(sizes[:place]),
                size=sizes[place],
            )
        )
    return ProfilePlan(
        terms=terms, cost=cost, unit=unit, steps=steps, unchecked=unchecked, keys=keys, columns=columns,
        parts=tuple(parts), spend=spend, identity=identity, source_unit=source_unit, source_keys=source_keys,
    )  # fmt: skip


def _wanted(
    unit: tuple[str, ...], keys: tuple[Key, ...], columns: Sequence[ProfiledColumn]
) -> list[tuple[What, int | None]]:
    """Return what is measured. If every row is a unit, it has one row in one group, which is public."""
    found: list[tuple[What, int | None]] = [("units", None)]
    if unit:
        found.append(("rows per unit", None))
    if unit and keys:
        found += [("groups per unit", None), ("rows per unit and group", None)]
    for place, column in enumerate(columns):
        found.append(("values", place))
        if column.distinct:
            found.append(("distinct values", place))
    return found


def _weight(what: What, keyed: bool) -> Fraction:
    if what == "rows per unit" and keyed:
        return Fraction(1, 4)
    return _WEIGHTS.get(what, Fraction(1))


def _size(what: What, column: int | None, columns: Sequence[ProfiledColumn]) -> int:
    if what in COUNTED:
        return len(COUNTS) + 1
    if what == "values" and column is not None:
        ladder = columns[column].ladder
        return 2 if ladder is None else 1 + ladder.size
    return 1


def _sensitivity(what: What, terms: Terms) -> Sensitivity:
    """Return how far a change of one unit moves a part. The docstring of this module says why."""
    if what in ("units", "distinct values"):
        return sensitivity_of(_ALONE, terms, ONCE, 0, 1)
    return sensitivity_of_bins(_ALONE, terms, 1)
