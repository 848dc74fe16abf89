"""A profile after its charge: read one number of each unit, count, add noise. The only module here that sees rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.registry import engine_for
from dp_polars._engines.request import HASH_BITS, BoundedRequest, Cells, Exact, GroupSum, Lane, Profile, ValueColumn
from dp_polars._engines.rows import PrivateRows
from dp_polars._profile.ladders import COUNTS
from dp_polars._profile.plan import COUNTED, Part, ProfilePlan
from dp_polars._release.charge import Identity, release_once
from dp_polars._release.run import ExactAnswers
from dp_polars._sampling import SYSTEM_BITS, BitSource, discrete_gaussian, discrete_laplace
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars.mechanisms._grid import add_saturating

Numbers = NDArray[np.int64]

SCHEMA = {"what": pl.String(), "column": pl.String(), "bin": pl.String(), "units": pl.Int64()}
"""The columns of a released profile."""

_MOST = COUNTS[-1] + 1


def run_profile(
    plan: ProfilePlan,
    rows: PrivateRows,
    session: Session,
    *,
    identity: Identity,
    fresh: bool,
    engine: ExactAnswers | None = None,
) -> Release:
    """Return the stored profile of a source, or charge the plan's price and make one."""
    make = ProfileRun(plan, rows, engine or engine_for(rows).aggregate)
    release = release_once(session, plan, identity=identity, fresh=fresh, make=make)
    if release.plan is None:  # another process made it; the same question has the same plan
        session.remember(release, plan)
    return release


@dataclass(frozen=True, repr=False)
class ProfileRun:
    """What happens between the charge for a profile and its release."""

    plan: ProfilePlan
    rows: PrivateRows
    engine: ExactAnswers

    def __call__(self) -> tuple[pl.DataFrame, ProfilePlan]:
        """Return the noisy counts, and the plan."""
        return released_table(noisy_counts(self.read(), self.plan, SYSTEM_BITS), self.plan), self.plan

    def read(self) -> list[Numbers]:
        """Return the exact counts of each part, which are private."""
        answers = [self.engine(self.rows, request) for request in requests_of(self.plan)]
        return [exact_counts(part, self.plan, answers) for part in self.plan.parts]


def requests_of(plan: ProfilePlan) -> list[BoundedRequest]:
    """Return what the engine has to look up: one request for units and values, and one for groups if there are any.

    Units are told apart exactly, which costs no delta.
    """
    max_rows = 1 if plan.unit else None  # row of each unit
    lanes = [Lane(sums=(GroupSum(name="units", of="units"),), profiles=_profiles(plan, ("rows per unit",)))]
    for part in plan.parts:
        if part.column is None:
            continue
        if part.what == "distinct values":
            column = ValueColumn(place=part.column, low=0, high=(1 << HASH_BITS) - 1, kind="hash")
            lanes.append(Lane(columns=(column,), cells=Cells(name=part.name, max_rows=max_rows, distinct=True)))
            continue
        ladder = plan.columns[part.column].ladder
        column = ValueColumn(place=part.column, low=0, high=0, kind="presence")
        if ladder is not None:
            column = ValueColumn(place=part.column, low=0, high=ladder.size - 1, kind="bin", edges=ladder.edges)
        cells = Cells(name=part.name, max_rows=max_rows, missing=True)
        lanes.append(Lane(columns=(column,), everyone=True, cells=cells))
    requests = [_request(plan, 0, tuple(lanes))]
    grouped = _profiles(plan, ("groups per unit", "rows per unit and group"))
    if grouped:
        requests.append(_request(plan, len(plan.keys), (Lane(profiles=grouped),)))
    return requests


def _profiles(plan: ProfilePlan, wanted: tuple[str, ...]) -> tuple[Profile, ...]:
    return tuple(
        Profile(name=part.name, of="groups" if part.what == "groups per unit" else "rows", most=_MOST)
        for part in plan.parts
        if part.what in wanted
    )


def _request(plan: ProfilePlan, keys: int, lanes: tuple[Lane, ...]) -> BoundedRequest:
    return BoundedRequest(units=len(plan.unit), keys=keys, max_groups=None, domain=None, lanes=lanes)


def exact_counts(part: Part, plan: ProfilePlan, answers: list[Exact]) -> Numbers:
    """Return the exact counts of a part, one for each of its bins."""
    if part.what == "units":
        return np.array([answers[0].groups["units"].sum()], np.int64)
    table = next(answer.cells[part.name] for answer in answers if part.name in answer.cells)
    if part.what == "distinct values":
        return np.array([table.height], np.int64)
    values, counts = table["value"].to_numpy(), table["count"].to_numpy()
    places = np.searchsorted(np.array(COUNTS), values) if part.what in COUNTED else values + 1
    found = np.zeros(part.size, np.int64)
    np.add.at(found, places, counts)
    return found


def noisy_counts(exact: list[Numbers], plan: ProfilePlan, source: BitSource) -> Numbers:
    """Return the noisy counts of all parts, one after the other."""
    found = []
    for counts, part in zip(exact, plan.parts, strict=True):
        draw = discrete_laplace if part.noise.mechanism == "laplace" else discrete_gaussian
        found.append(add_saturating(counts, draw(part.noise.parameter, part.size, source)))
    return np.concatenate(found)


def released_table(noisy: Numbers, plan: ProfilePlan) -> pl.DataFrame:
    """Return the released table. Its rows and all columns but `units` follow from the plan."""
    rows = [
        (part.what, None if part.column is None else plan.columns[part.column].name, label)
        for part in plan.parts
        for label in plan.labels(part)
    ]
    columns = dict(zip(("what", "column", "bin"), map(list, zip(*rows, strict=True)), strict=True))
    return pl.DataFrame({**columns, "units": noisy}, schema=SCHEMA)
