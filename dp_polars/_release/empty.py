"""Warn about answers without a single group. Only sees what is released."""

from __future__ import annotations

import sys
import warnings

from dp_polars._plan.plan import Plan
from dp_polars._plan.units_needed import nothing_shown_text
from dp_polars._session.releases import Release
from dp_polars.errors import DPWarning


def warn_if_empty(release: Release, plan: Plan) -> None:
    """Warn if keys were discovered and no group is shown.

    What one unit can change: nothing beyond the release. Whether a released frame has rows is known to whoever gets it,
    and the text follows from the plan.
    """
    if not plan.query.keys or plan.query.domain is not None or release.frame.height:
        return
    made = release.plan if isinstance(release.plan, Plan) else plan
    warnings.warn(nothing_shown_text(made, release.label), DPWarning, stacklevel=first_level_outside())


def first_level_outside() -> int:
    """Return the level of the stack at which the user's own code called this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "dp_polars":
        level, frame = level + 1, frame.f_back
    return level
