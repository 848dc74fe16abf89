"""The options of all methods, and how they become a spend, caps and public keys."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypedDict, TypeVar

import polars as pl

from dp_polars._numbers import Number, confidence_of, count_of, delta_of, epsilon_of, exact, flag_of, positive
from dp_polars._plan.base import BasePlan
from dp_polars._plan.query import Cap, Key, MechanismChoice, Spend
from dp_polars._session.session import Session, check_text
from dp_polars._session.terms import Defaults
from dp_polars.errors import InvalidParameterError

ExpressionLike = pl.Expr | str
By = ExpressionLike | Sequence[ExpressionLike] | None

PublicKeys = Sequence[Any] | pl.Series | pl.DataFrame | pl.LazyFrame | Mapping[str, Sequence[Any] | pl.Series]

MAX_DOMAIN = 10_000_000
MOST_LABEL = 200
"""Largest number of characters in a label."""


class Options(TypedDict, total=False):
    """The options of every aggregate.

    Attributes
    ----------
    epsilon, share, rho, within
        The spend, in one of these ways: the epsilon of this release, a share of the session's budget, a rho, or the
        error that an answer should stay within (with probability `confidence`, 0.95 by default).
    delta
        The delta for discovering keys. By default it is as large a share of the session's delta as the spend is of the
        budget.
    mechanism
        "laplace" or "gaussian". The default is the one with less noise, or the cheaper one if they are nearly equal.
    keys
        The public keys: a list for one key; for several, a frame with a column for each, or a mapping with the values
        of each, `{"month": [1, 2], "carrier": ["AA", "UA"]}`, which stands for all combinations.
    max_groups, max_rows_per_group
        The most groups that one unit counts in, and the most rows that it adds to one group. "auto" estimates them
        privately with a part of the spend. If both are "auto" and keys are public, counts, sums, means, quantiles and
        whatever else depends on rows have one cap on the rows of a unit in all groups together instead, as if
        `max_rows` were "auto" (with Gaussian noise only for up to 3 keys).
    max_rows
        The most rows that one unit counts with in all groups together, in place of `max_groups` and
        `max_rows_per_group`. The noise is that of one group with this many rows, and most units with many groups have
        few rows in most of them, so it usually cuts off less. "auto" estimates it. Where no cap on rows is enough,
        `max_groups` is needed as well: if keys are discovered, and for counts of units and `per="unit"` if keys are
        many. Both caps then hold.
    min_units
        Discovered groups with fewer units are suppressed, up to the noise of the mechanism.
    confidence
        Adds the columns `_low` and `_high` with the interval of the privacy noise, or `_rank_error` for quantiles,
        which are off in rank. The interval does not include what caps and bounds cut off, and it is not a sampling
        interval.
    if_rows
        The size of a group for which the expected error is computed if it depends on the data, as that of a mean, a
        variance, a correlation or a median does: a group of this many rows of different units, spread evenly between
        the bounds. Use it in a preview, or with `within`.
    nonnegative
        Shows answers below 0 as 0.
    rollup
        For several public keys: adds the totals over the last key, the last two keys, and so on. All totals agree.
    cut
        Spends a tenth on how many units caps and bounds cut in each group. `cut_by_cap` is the number of units with
        more rows than `max_rows_per_group`, and `cut_by_bounds` that of units with a value outside the bounds.
    fresh
        Pays for new noise even if the same release is stored.
    label
        The name of this release in the ledger, at most 200 characters. The default says what was asked. It is public,
        and it doesn't make the same question another one.
    session
        The session that pays, if it is not the current one.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = pl.DataFrame({"user": [1, 1, 2], "region": ["a", "b", "a"]})
    >>> usual: dp.Options = {"keys": ["a", "b"], "max_rows_per_group": 1, "epsilon": 0.2}
    >>> with dp.Session(epsilon=1.0, unit="user"):
    ...     visits.dp.count("region", confidence=0.95, **usual).columns
    ['region', 'count', 'count_low', 'count_high']
    """

    epsilon: Number | None
    share: Number | None
    rho: Number | None
    within: Number | None
    delta: Number | None
    mechanism: MechanismChoice | None
    keys: PublicKeys | None
    max_groups: Cap | None
    max_rows_per_group: Cap | None
    max_rows: Cap | None
    min_units: int
    confidence: float | None
    if_rows: int | None
    nonnegative: bool
    rollup: bool
    cut: bool
    fresh: bool
    label: str | None
    session: Session | None


class OpeningOptions(TypedDict, total=False):
    """The options of streams, online queries and syntheses.

    Attributes
    ----------
    epsilon, share, rho
        The spend, in one of these ways: an epsilon, a share of the session's budget, or a rho.
    max_rows_per_group
        The most rows that one unit counts with.
    label
        The name of this release in the ledger, at most 200 characters. The default says what was asked. It is public,
        and it doesn't make the same question another one.
    session
        The session that pays, if it is not the current one.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> usual: dp.OpeningOptions = {"share": 0.1, "max_rows_per_group": 1}
    >>> with dp.Session(epsilon=1.0, unit="user"):
    ...     float(pl.DataFrame({"user": [1, 2]}).dp.preview.above_threshold(10, **usual).epsilon)
    0.1
    """

    epsilon: Number | None
    share: Number | None
    rho: Number | None
    max_rows_per_group: int | None
    label: str | None
    session: Session | None


class ChoiceOptions(TypedDict, total=False):
    """The options of a choice among candidates.

    Attributes
    ----------
    epsilon, share, rho
        The spend, in one of these ways: the epsilon of this release, a share of the session's budget, or a rho.
    delta
        The delta for discovering candidates or the keys of `by`. By default it is as large a share of the session's
        delta as the spend is of the budget.
    keys
        The public keys of `by`: a list for one key, a frame or a mapping for several, as in `dp.Options`.
    max_groups
        The most groups of `by` that one unit counts in.
    max_rows_per_group
        The most rows that one unit adds to the score of a candidate.
    fresh
        Pays for a new choice even if the same release is stored.
    label
        The name of this release in the ledger, at most 200 characters. The default says what was asked. It is public,
        and it doesn't make the same question another one.
    session
        The session that pays, if it is not the current one.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> usual: dp.ChoiceOptions = {"share": 0.1, "max_rows_per_group": 1}
    >>> with dp.Session(epsilon=1.0, unit="user"):
    ...     pl.DataFrame({"user": [1, 2], "vote": ["a", "b"]}).dp.noisy_max("vote", ["a", "b"], **usual).columns
    ['vote']
    """

    epsilon: Number | None
    share: Number | None
    rho: Number | None
    delta: Number | None
    keys: PublicKeys | None
    max_groups: int | None
    max_rows_per_group: int | None
    fresh: bool
    label: str | None
    session: Session | None


class ResponseOptions(TypedDict, total=False):
    """The options of `randomized_response`.

    Attributes
    ----------
    epsilon
        The epsilon of each response. The price is `group_size` times that.
    share, rho
        Instead of epsilon: the whole price, as a share of the session's budget or as a rho.
    fresh
        Pays for new responses even if the same release is stored.
    label
        The name of this release in the ledger, at most 200 characters. The default says what was asked. It is public,
        and it doesn't make the same question another one.
    session
        The session that pays, if not the current one.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> usual: dp.ResponseOptions = {"epsilon": 1.0, "fresh": True}
    >>> with dp.Session(epsilon=1.0, unit="user", adjacency="replace"):
    ...     pl.DataFrame({"user": [1, 2], "vote": [True, False]}).dp.randomized_response("vote", **usual).height
    2
    """

    epsilon: Number | None
    share: Number | None
    rho: Number | None
    fresh: bool
    label: str | None
    session: Session | None


class ProfileOptions(TypedDict, total=False):
    """The options of `profile`.

    Attributes
    ----------
    epsilon, share, rho
        The spend, in one of these ways: the epsilon of this release, a share of the session's budget, or a rho. By
        default a share of 5 %, or 1/n in a session with `queries=n`, where the profile is one of the n questions.
    fresh
        Pays for a new profile even if the same one is stored.
    label
        The name of this release in the ledger, at most 200 characters. The default says what was asked.
    session
        The session that pays, if it is not the current one.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> usual: dp.ProfileOptions = {"share": 0.1}
    >>> with dp.Session(epsilon=1.0, unit="user"):
    ...     float(pl.DataFrame({"user": [1, 2]}).dp.preview.profile(**usual).cost.epsilon)
    0.1
    """

    epsilon: Number | None
    share: Number | None
    rho: Number | None
    fresh: bool
    label: str | None
    session: Session | None


AnyPlan = TypeVar("AnyPlan", bound=BasePlan)
AnyOptions = Options | OpeningOptions | ChoiceOptions | ResponseOptions | ProfileOptions


SomeOptions = TypeVar("SomeOptions", Options, OpeningOptions, ChoiceOptions, ResponseOptions, ProfileOptions)


DEFAULTS: dict[str, Any] = {"min_units": 1, "nonnegative": False, "rollup": False, "cut": False, "fresh": False}
"""The defaults of options in the signatures of methods. All other options have the default None."""


def options_in(arguments: Mapping[str, Any], kind: type[SomeOptions]) -> SomeOptions:
    """Return the options of one kind among the arguments of a method, and the unknown ones, which are refused later.

    Methods list all options as arguments, so that editors complete them. An option that has its default is left out.

    Parameters
    ----------
    arguments
        The arguments of a method, by name: its `locals()`. Its `unknown` holds those that are not options.
    kind
        The options that the method takes, for example `Options`.
    """
    given = {name: arguments[name] for name in kind.__annotations__ if name in arguments}
    found = {name: value for name, value in given.items() if value is not DEFAULTS.get(name)}
    return kind(**{**found, **arguments["unknown"]})


class RowsStayPrivate:
    """The base class of private frames and their previews. Arguments that must be public are checked against it."""


def refuse_private(given: Any, what: str) -> None:
    """Refuse a private frame where a public one is needed."""
    if isinstance(given, RowsStayPrivate):
        raise InvalidParameterError(
            f"{what} takes public rows, but this frame is private: its rows would show in the answer without noise. "
            "Pass a frame of public values, or release what you need first, for example with df.dp.count(...). A frame "
            "that is public goes in as it is, without .dp. Two private frames can be joined on the unit. If one lacks "
            "the unit, as line items lack the customer of their order, add it to the frame before .dp: "
            "items.join(orders.select('order_id', 'customer_id'), on='order_id').dp.",
            code="private-frame",
        )


def check_options(options: AnyOptions, aggregate: str, kind: type = Options, also: Sequence[str] = ()) -> None:
    """Refuse unknown options. `also` names the arguments of the method, which count as known."""
    known = sorted({*kind.__annotations__, *also})
    for name in options:
        if name not in known:
            near = [other for other in known if other.startswith(name)] or difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"Its options are {', '.join(known)}."
            raise InvalidParameterError(f"{aggregate} has no option {name}. {hint}", code="unknown-option")


def spend_of(
    given_options: AnyOptions,
    session: Session,
    *,
    with_error: bool = False,
    instead: Mapping[str, Number] | None = None,
) -> Spend:
    """Return the spend, which must be given in one way only, or the session's default.

    `instead` is a spend that replaces the one of the options.
    """
    options: dict[str, Any] = dict(given_options)
    if instead:
        options |= {**dict.fromkeys(("epsilon", "share", "rho", "within")), **instead}
    epsilon, share, rho, within = (
        options.get("epsilon"),
        options.get("share"),
        options.get("rho"),
        options.get("within"),
    )
    given = {"epsilon": epsilon, "share": share, "rho": rho, "within": within}
    said = [name for name, value in given.items() if value is not None]
    if len(said) > 1:
        raise InvalidParameterError(f"Give the spend in one way, not as {' and '.join(said)}.")
    delta, mechanism, confidence = options.get("delta"), options.get("mechanism"), options.get("confidence")
    if mechanism not in (None, "laplace", "gaussian"):
        raise InvalidParameterError(f"mechanism must be 'laplace' or 'gaussian', got {mechanism!r}.")
    if not said:
        if session.defaults.queries is None:
            raise InvalidParameterError(
                "This release needs a spend. Say epsilon=0.1 (its own guarantee), share=0.05 (a part of the session)"
                + (", within=50 (a wanted error)" if with_error else "")
                + " or rho=; or open the session with queries=20 for equal shares.",
                code="spend-missing",
            )
        share = Fraction(1, session.defaults.queries)
    return Spend(
        epsilon=None if epsilon is None else epsilon_of(epsilon),
        share=None if share is None else exact(share, "share"),
        rho=None if rho is None else positive(rho, "rho"),
        within=None if within is None else positive(within, "within"),
        confidence=0.95 if confidence is None else confidence_of(confidence),
        delta=None if delta is None else delta_of(delta),
        mechanism=mechanism,
    )


def labelled(plan: AnyPlan, options: Mapping[str, Any]) -> AnyPlan:
    """Return a plan with the label that the user gave the question, if there is one."""
    label = options.get("label")
    if label is None:
        return plan
    check_text(label, "label")
    if len(label) > MOST_LABEL:
        raise InvalidParameterError(f"label= has {len(label):,} characters; the ledger keeps at most {MOST_LABEL}.")
    return replace(plan, given_label=label)


def is_set(options: Mapping[str, Any], name: str) -> bool:
    """Return whether an option that is True or False is given as True."""
    return name in options and flag_of(options[name], name)


def fresh_of(options: Mapping[str, Any]) -> bool:
    """Return whether a new release is paid for even if one is stored."""
    return is_set(options, "fresh")


def cap_of(options: AnyOptions, name: str, defaults: Defaults) -> tuple[Cap | None, str]:
    """Return a cap and where it came from: the call or the session."""
    given, rule = options.get(name), f"{name} in the call"
    if given is None:
        given, rule = getattr(defaults, name), f"{name} of the session"
    if given is None or given == "auto":
        return given, f"estimated: {rule}"
    return count_of(given, name), rule  # type: ignore[arg-type]


def domain_of(options: Options | ChoiceOptions, keys: tuple[Key, ...]) -> tuple[pl.DataFrame | None, str]:
    """Return the public keys in order and where they came from; None if keys are discovered."""
    if not keys:
        if options.get("keys") is not None:
            raise InvalidParameterError("keys= lists public keys, but there is nothing to group by: pass by=.")
        return None, ""
    given = options.get("keys")
    if given is not None:
        return given_domain(given, keys), "keys= in the call"
    columns = [own_domain(key) for key in keys]
    known = [column for column in columns if column is not None]
    if len(known) < len(keys):
        return None, ""
    if math.prod(len(column) for column in known) > MAX_DOMAIN:
        raise InvalidParameterError(
            f"These keys have more than {MAX_DOMAIN:,} combinations; list those you want in keys=."
        )
    frame = known[0].to_frame()
    for column in known[1:]:
        frame = frame.join(column.to_frame(), how="cross")
    nulls = ", and null" if any(key.nullable for key in keys) else ""
    return frame, f"all values of Enum and Boolean keys{nulls}"


def own_domain(key: Key) -> pl.Series | None:
    """Return all values of a Boolean or Enum column, and null if it can be null; None for other types."""
    null = [None] if key.nullable else []
    if key.dtype == pl.Boolean:
        return pl.Series(key.name, [*null, False, True])
    if isinstance(key.dtype, pl.Enum):
        return pl.Series(key.name, [*null, *key.dtype.categories], dtype=key.dtype)
    return None


_WORDS = (pl.String, pl.Enum, pl.Categorical, pl.Binary)


def _listed(values: list[Any], key: Key, what: str) -> pl.DataFrame:
    """Return listed values as a frame. A value of another kind is refused and not converted."""
    words = key.dtype in _WORDS
    try:
        column = pl.Series(key.name, values, dtype=pl.String if words and key.dtype != pl.Binary else key.dtype)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise InvalidParameterError(_unlike({key.name: key.dtype}, what)) from None
    return column.to_frame()


def _unlike(types: dict[str, pl.DataType], what: str) -> str:
    return f"{what}= can't be read as {', '.join(f'{name}: {kind}' for name, kind in types.items())}."


def candidates_of(given: Any, key: Key) -> tuple[pl.DataFrame | None, str]:
    """Return the public candidates and where they came from; None if they are discovered."""
    if given is not None:
        return given_domain(given, (key,), "candidates"), "candidates= in the call"
    domain = own_domain(key)
    return (None, "") if domain is None else (domain.drop_nulls().to_frame(), f"all values of {key.name}'s type")


def _product(given: Mapping[Any, Any], keys: tuple[Key, ...]) -> pl.DataFrame:
    """Return all combinations of the values that a mapping lists for each key."""
    names = [key.name for key in keys]
    if set(given) != set(names):
        raise InvalidParameterError(
            f"keys= must list the values of each key, {', '.join(names)}, but it has "
            f"{', '.join(map(str, given)) or 'none'}."
        )
    columns = [given_domain(given[key.name], (key,), f"keys[{key.name!r}]") for key in keys]
    if math.prod(column.height for column in columns) > MAX_DOMAIN:
        raise InvalidParameterError(f"keys= has more than {MAX_DOMAIN:,} combinations; pass a frame of those you want.")
    frame = columns[0]
    for column in columns[1:]:
        frame = frame.join(column, how="cross")
    return frame


def given_domain(given: Any, keys: tuple[Key, ...], what: str = "keys") -> pl.DataFrame:
    """Return listed public values, checked, cast to the types of the keys and sorted.

    `what` is the argument that listed them.
    """
    names = [key.name for key in keys]
    types = {key.name: key.dtype for key in keys}
    refuse_private(given, f"{what}=")
    if isinstance(given, pl.LazyFrame):
        given = given.collect()  # listed keys are public
    if isinstance(given, Mapping) and what == "keys":
        frame = _product(given, keys)
    elif isinstance(given, pl.DataFrame):
        if sorted(given.columns) != sorted(names):
            raise InvalidParameterError(
                f"{what}= must have exactly the columns {', '.join(names)}, but the frame has "
                f"{', '.join(given.columns) or 'none'}."
            )
        frame = given.select(names)
    elif len(keys) > 1:
        example = ", ".join(f"{name!r}: [...]" for name in names)
        raise InvalidParameterError(
            f"keys= for several keys is a mapping with the values of each, keys={{{example}}}, which stands for all "
            f"combinations, or a frame with the columns {', '.join(names)} and a row for each combination."
        )
    elif isinstance(given, pl.Series):
        frame = pl.DataFrame({names[0]: given})
    elif isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise InvalidParameterError(
            f"{what}= is a list of the public values of {names[0]}, for example {what}=['a', 'b']."
        )
    else:
        frame = _listed(list(given), keys[0], what)
    try:
        if any((kind in _WORDS) != (types[name] in _WORDS) for name, kind in frame.schema.items()):
            raise InvalidParameterError(_unlike(types, what))
        if frame.schema != pl.Schema(types):
            frame = frame.cast(dict(types))  # type: ignore[arg-type]
        if frame.schema != pl.Schema(types):  # a cast of lists and structs casts what they hold
            raise InvalidParameterError(_unlike(types, what))
    except pl.exceptions.PolarsError:
        raise InvalidParameterError(_unlike(types, what)) from None
    if frame.height == 0 or frame.height > MAX_DOMAIN:
        raise InvalidParameterError(f"{what}= must list between 1 and {MAX_DOMAIN:,} values, got {frame.height:,}.")
    flat = frame.width == 1 and not frame.dtypes[0].is_nested()  # counting the values of a Series is far cheaper
    if (frame.to_series() if flat else frame).n_unique() != frame.height:
        raise InvalidParameterError(f"{what}= lists a value twice.")
    return frame.sort(names)
