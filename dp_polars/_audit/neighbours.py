"""Whether two made-up frames differ as a session's neighbours do."""

from __future__ import annotations

import polars as pl

from dp_polars._session.terms import Terms, _Row
from dp_polars.errors import InvalidParameterError

_MANY = "\0many"


def check_neighbours(first: pl.DataFrame, second: pl.DataFrame, terms: Terms) -> bool:
    """Refuse frames that are no neighbours; return whether it could be seen that they are."""
    if first.schema != second.schema:
        raise InvalidParameterError(
            "first and second have different columns or types; neighbours differ in rows alone. Cast them alike."
        )
    units = [] if isinstance(terms.unit, _Row) else list(terms.unit)
    if not set(units) <= set(first.columns):
        return False  # the question itself says what the unit is called
    counted = [frame.group_by(frame.columns).len(_MANY) for frame in (first, second)]
    only = [one.join(other, on=one.columns, how="anti", nulls_equal=True) for one, other in (counted, counted[::-1])]
    if isinstance(terms.unit, _Row):
        both = counted[0].join(counted[1], on=first.columns, how="full", nulls_equal=True, suffix="\0", coalesce=True)
        change = both.select(pl.col(_MANY).fill_null(0).cast(pl.Int64) - pl.col(f"{_MANY}\0").fill_null(0)).to_series()
        gone, new = int(change.clip(lower_bound=0).sum()), int((-change).clip(lower_bound=0).sum())
        changed, replaced = max(gone, new), gone > 0 and new > 0
        same_size = gone == new
    else:
        touched = pl.concat([table.select(units) for table in only]).unique()
        changed = touched.height
        there = [
            touched.join(frame.select(units).unique(), on=units, how="semi", nulls_equal=True).height
            for frame in (first, second)
        ]
        replaced = sum(there) > changed
        same_size = there[0] == there[1]
    if not changed:
        raise InvalidParameterError(
            "first and second have the same rows, so there is nothing to tell apart. Let one of them lack a unit."
        )
    most = terms.group_size
    if terms.adjacency == "replace":
        # The rows of a unit may change, or one unit leaves and another comes.
        if isinstance(terms.unit, _Row):
            fits = same_size and changed <= most
        else:
            fits = same_size and changed <= most * 2 and max(there) <= most
        wanted = f"the rows of {_units(most)} are replaced by others"
    else:
        fits = changed <= most and (not replaced if not isinstance(terms.unit, _Row) else gone + new <= most)
        wanted = f"all rows of {_units(most)} are added or removed"
    if not fits:
        raise InvalidParameterError(
            f"first and second are no neighbours in this session: {wanted}, and here more changed. A bound on epsilon "
            "would mean nothing; make one frame from the other, for example first.filter(pl.col('user_id') != 1)."
        )
    return True


def _units(number: int) -> str:
    return "one unit" if number == 1 else f"at most {number} units"
