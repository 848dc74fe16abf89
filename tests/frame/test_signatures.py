"""Methods list their options as arguments, so that editors complete them, and all lists agree with the options."""

import inspect
import typing

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._choices.methods import Choices
from dp_polars._frame.methods import Questions
from dp_polars._frame.options import DEFAULTS
from dp_polars._frame.private_frame import PrivateGroups
from dp_polars._local.methods import Responses
from dp_polars._many.methods import ManyQueries
from dp_polars._profile.methods import Profiling
from dp_polars._streams.stream import Streams

OPTIONS = {
    Questions: dp.Options,
    Choices: dp.ChoiceOptions,
    Streams: dp.OpeningOptions,
    ManyQueries: dp.OpeningOptions,
    Responses: dp.ResponseOptions,
    Profiling: dp.ProfileOptions,
}
METHODS = [
    (owner, name, method)
    for owner in OPTIONS
    for name, method in vars(owner).items()
    if not name.startswith("_") and callable(method) and name != "group_by"
]


def same(annotation):
    return str(annotation).replace('"', "'")


@pytest.mark.parametrize(("owner", "name", "method"), METHODS, ids=lambda item: item if isinstance(item, str) else "")
def test_a_method_lists_the_options_of_its_kind(owner, name, method):
    parameters = inspect.signature(method).parameters
    assert parameters["unknown"].kind is inspect.Parameter.VAR_KEYWORD
    for option, annotation in OPTIONS[owner].__annotations__.items():
        listed = parameters[option]
        written = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
        assert listed.kind is inspect.Parameter.KEYWORD_ONLY
        assert same(listed.annotation) == same(written), option
        assert listed.default is DEFAULTS.get(option), option


def test_there_are_methods_of_every_kind():
    assert len(METHODS) > 25
    assert {owner for owner, _, _ in METHODS} == set(OPTIONS)


def test_agg_lists_the_options_for_type_checkers():
    overloads = typing.get_overloads(PrivateGroups.agg)
    (listed,) = (one for one in map(inspect.signature, overloads) if "epsilon" in one.parameters)
    assert set(dp.Options.__annotations__) <= set(listed.parameters)


def test_a_default_counts_as_not_given_and_an_unknown_option_is_named():
    visits = pl.DataFrame({"user": [1, 1, 2], "region": ["a", "b", "a"]})
    usual = {"keys": ["a", "b"], "max_rows_per_group": 1, "epsilon": 0.1}
    with dp.Session(epsilon=1.0, unit="user"):
        preview = visits.dp.preview
        plan = preview.count("region", **usual)
        given = preview.count("region", **usual, share=None, cut=False, min_units=1, fresh=False, label=None)
        assert plan.fingerprint() == given.fingerprint()
        for wrong in ({"max_row": 3}, {"epsilom": 0.1}):
            with pytest.raises(dp.InvalidParameterError, match="Did you mean"):
                preview.count("region", **{**usual, **wrong})
        with pytest.raises(dp.InvalidParameterError, match="cut"):
            preview.count("region", **usual, cut=0)
        with pytest.raises(dp.InvalidParameterError):
            preview.count("region", **usual, min_units=True)
        # An answer may be called like an option, and keeps its place.
        answer = visits.dp.group_by("region").agg(share=dp.count(), n=dp.count_units(), **usual)
    assert answer.columns == ["region", "share", "n"]
