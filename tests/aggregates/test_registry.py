"""The registry of aggregates is the one list that functions, frame methods, SQL and the documentation follow."""

import inspect
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._aggregates import REGISTRY, Aggregate, AggregateCall
from dp_polars._aggregates.base import Shape
from dp_polars._frame.methods import Questions
from dp_polars._frame.options import Options
from dp_polars._sql.allowed_functions import AGGREGATES
from tests.docs_tables import AGGREGATES_PAGE, aggregates_page
from tests.plan.queries import aggregate

KINDS = pytest.mark.parametrize("kind", sorted(REGISTRY))


def own_parameters(function):
    """Return the parameters of a function that are the aggregate's own, with their defaults."""
    shared = {"self", "by", "weight", "unknown", *Options.__annotations__}
    return {name: one.default for name, one in inspect.signature(function).parameters.items() if name not in shared}


@KINDS
def test_the_function_and_the_frame_method_take_the_same_arguments(kind):
    function, method = getattr(dp, kind), getattr(Questions, kind)
    assert kind in dp.__all__
    assert own_parameters(function) == own_parameters(method)
    assert "weight" in inspect.signature(function).parameters
    assert inspect.signature(method).parameters["unknown"].kind is inspect.Parameter.VAR_KEYWORD


@KINDS
def test_arguments_are_the_columns_the_options_and_the_bounds_that_the_class_declares(kind):
    one = REGISTRY[kind]
    parameters = own_parameters(getattr(dp, kind))
    declared = {**one.options, **({"bounds": None} if one.bounded else {})}
    assert len(parameters) == len(one.columns) + len(declared)
    named = {name: default for name, default in parameters.items() if name in declared}
    positional = dict.fromkeys(one.sql_positional, inspect.Parameter.empty)
    assert named == declared | positional
    assert not set(declared) & set(Options.__annotations__)


@KINDS
def test_a_call_becomes_the_aggregate_itself(kind):
    call = REGISTRY[kind].call(*["x", "y"][: len(REGISTRY[kind].columns)])
    assert isinstance(call, AggregateCall)
    assert call.kind == kind


@KINDS
def test_needs_share_the_whole_spend(kind):
    needs = aggregate(kind).needs()
    assert sum((need.share for need in needs), Fraction(0)) == 1


@KINDS
def test_the_schema_has_the_answer_and_an_interval_only_where_one_is_known(kind):
    one = aggregate(kind)
    plain, wide = one.schema(interval=False), one.schema(interval=True)
    assert list(plain) == [one.name]
    ends = {f"{one.name}_low", f"{one.name}_high"} if one.shape is not Shape.RANK else {f"{one.name}_rank_error"}
    assert set(wide) - set(plain) == (ends if one.unfolds is None else set())
    assert all(isinstance(dtype, pl.DataType) for dtype in wide.values())


def test_every_sql_name_belongs_to_one_aggregate():
    names = [name for one in REGISTRY.values() for name in one.sql_names]
    assert len(names) == len(set(names)) == len(AGGREGATES)
    assert all(name.startswith("dp_") for name in names)


def test_an_aggregate_is_declared_once():
    with pytest.raises(ValueError, match="two aggregates named count"):
        type("Other", (Aggregate,), {"kind": "count"})


def test_the_page_of_aggregates_is_made_from_the_registry():
    assert AGGREGATES_PAGE.read_text() == aggregates_page(), "run python -m tests.docs_tables"
