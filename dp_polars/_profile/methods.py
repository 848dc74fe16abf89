"""The method `profile` of a private frame, and the question behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Never, TypeVar

import polars as pl

from dp_polars._expressions import Expression
from dp_polars._expressions.check import check_expression
from dp_polars._frame.aggregate_question import check_unit, keys_of, plain_value, unit_columns
from dp_polars._frame.options import (
    By,
    ExpressionLike,
    ProfileOptions,
    check_options,
    fresh_of,
    labelled,
    options_in,
    spend_of,
)
from dp_polars._frame.question import FrameMethods, Origin, Question, View, named
from dp_polars._numbers import Number
from dp_polars._plan.query import Spend
from dp_polars._profile.ladders import ladder_of
from dp_polars._profile.plan import DEFAULT_SHARE, ProfiledColumn, ProfilePlan, profile_plan
from dp_polars._profile.profile import TableProfile
from dp_polars._profile.release import run_profile
from dp_polars._release.charge import Identity
from dp_polars._release.run import ExactAnswers
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars.errors import InvalidParameterError

Answer = TypeVar("Answer")

MOST_COLUMNS = 100


@dataclass(frozen=True)
class ProfileQuestion(Question[ProfilePlan]):
    """A planned profile, and the rows with the columns that the engine reads."""

    fresh: bool = False
    """Whether a new profile is paid for even if one is stored."""
    engine: ExactAnswers | None = None
    """The engine that counts; None for the one that reads the source of the rows."""

    def release(self, identity: Identity) -> Release:
        """Return the stored release of this profile, or charge its price and make one."""
        release = run_profile(
            self.plan, self.rows, self.session, identity=identity, fresh=self.fresh, engine=self.engine
        )
        profile = TableProfile(release)
        if not profile.plan.learned:
            self.session.remember(release, replace(profile.plan, learned=tuple(profile.learned())))
        return release

    def answer(self, origin: Origin) -> TableProfile:
        """Return the profile. It is made at once, for a LazyFrame too."""
        return TableProfile(self.release(origin.identity))


class Profiling(FrameMethods, Generic[Answer]):
    """Profiles of tables."""

    def profile(
        self, by: By = None, *, columns: Sequence[ExpressionLike] = (),
        epsilon: Number | None = None, share: Number | None = None, rho: Number | None = None, fresh: bool = False,
        label: str | None = None, session: Session | None = None,
        **unknown: Never,
    ) -> Answer:  # fmt: skip
        """Measure what you need to know before you choose caps and bounds, in one release with a small spend.

        The profile tells how many units there are, how many rows a unit has, in how many groups of `by` it is, and how
        many rows it has in one of these groups; and for each of `columns`, how many values are missing, between which
        values most of them lie, and roughly how many distinct values there are. It suggests `max_groups`,
        `max_rows_per_group` and `bounds`, and says what share of units or values each would cut. `session.adopt` makes
        the suggestions defaults.

        Each unit contributes one number to each of these: its number of rows or groups, or the value in one of its
        rows, which a hash chooses. So a few units with very many rows can hide behind the noise. Distinct values are
        counted among one value of each unit, so there may be more of them.

        Parameters
        ----------
        by
            The keys whose groups are counted: names or row-wise expressions. Their values are not released.
        columns
            The columns to look at: names or row-wise expressions. Each takes a part of the spend.
        epsilon, ..., session
            The spend and other options: see `dp.ProfileOptions`. By default the profile costs 5 % of the session. In a
            session with `queries=n`, it is one of the n questions and costs 1/n.

        Returns
        -------
        TableProfile
            The profile, which prints as a table and has a chart (`plot`).

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": [i % 9_000 for i in range(27_000)], "spent": [5.0, 7.0, 9.0] * 9_000})
        >>> with dp.Session(epsilon=2.0, unit="user"):
        ...     profile = visits.dp.profile(columns=["spent"], epsilon=1.0)
        >>> profile.max_rows_per_group, profile.bounds
        (3, {'spent': (3.0, 10.0)})
        """
        options = options_in(locals(), ProfileOptions)
        answer: Answer = self._resolve(
            options, named("profile", lambda view: profile_question(view, by, columns, options))
        )
        return answer


def profile_question(view: View, by: By, columns: Sequence[ExpressionLike], options: ProfileOptions) -> ProfileQuestion:
    """Return the question that a call asks, or raise an error that says what is wrong. Nothing is read or spent."""
    check_options(options, "profile", ProfileOptions, ("by", "columns"))
    schema = view.rows.schema
    check_unit(view.unit, schema)
    keys, key_columns = keys_of(by, view)
    listed = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else [columns]
    if len(listed) > MOST_COLUMNS:
        raise InvalidParameterError(
            f"A profile looks at up to {MOST_COLUMNS} columns, because they share the spend. Name fewer in columns=."
        )
    profiled: list[ProfiledColumn] = []
    trees: list[Expression] = []
    for item in listed:
        checked = check_expression(item, schema=schema, what="profile")
        if checked.columns & set(view.unit):
            raise InvalidParameterError(
                f"{checked.name} reads the unit column, whose values identify people. Leave it out of columns=."
            )
        column, tree = _profiled(view, checked.name, checked.canonical, checked.tree)
        profiled.append(column)
        trees.append(tree)
    if len({column.name for column in profiled}) < len(profiled):
        raise InvalidParameterError("columns= has two columns with the same name. Give one of them an alias.")
    sources = () if view.sources is None else view.sources()
    found = [view.source_expression(key.tree) for key in key_columns]
    plan = profile_plan(
        view.terms,
        _spend(options, view),
        keys=keys,
        columns=tuple(profiled),
        unit=view.unit,
        steps=view.steps,
        unchecked=view.unchecked,
        identity=sources[0] if len(sources) == 1 else None,
        source_unit=view.source_unit(),
        source_keys=None if None in found else tuple(text for text in found if text is not None),
    )
    made = unit_columns(view)
    made |= {f"key{i}": item.tree for i, item in enumerate(key_columns)}
    made |= {f"value{i}": tree for i, tree in enumerate(trees)}
    return ProfileQuestion(labelled(plan, options), view.rows.make(made, keep=False), view.session, fresh_of(options))


def _spend(options: ProfileOptions, view: View) -> Spend:
    """Return the spend of a profile. In a session with `queries=n`, it is one of the n questions."""
    queries = view.defaults.queries
    if any(options.get(name) is not None for name in ("epsilon", "share", "rho")) or (queries or 0) > 1:
        return spend_of(options, view.session)
    if queries == 1:
        raise InvalidParameterError(
            "This session is planned for one query (queries=1), and the profile would be that one. Open it with "
            "queries=2, or say share=0.05 here and share=0.95 for the question.",
            code="spend-missing",
        )
    return Spend(share=DEFAULT_SHARE)


def _profiled(view: View, name: str, expression: str, tree: Expression) -> tuple[ProfiledColumn, Expression]:
    """Return a column to profile, and its tree in a type that engines take."""
    dtype = tree.dtype
    comparable = not (dtype.is_nested() or dtype in (pl.Object, pl.Null, pl.Unknown))
    column = ProfiledColumn(
        name=name,
        expression=expression,
        dtype=dtype,
        ladder=ladder_of(dtype),
        distinct=comparable and dtype != pl.Boolean,
        source=view.source_expression(tree),
    )
    return column, plain_value(tree)
