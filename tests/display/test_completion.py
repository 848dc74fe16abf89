"""Completion after a dot offers queries and steps, and nothing internal."""

import polars as pl
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from jedi import cache as jedi_cache
from parso.cache import parser_cache

import dp_polars as dp

ASKED = {"count", "sum", "noisy_max", "top_k", "sparse_vector", "randomized_response", "group_by", "online_queries"}
FRAME = pl.DataFrame({"user": [1], "region": ["north"]})


@pytest.fixture(scope="module")
def completer():
    """A completer that all tests share: what it learns about a package takes longer than a question to it."""
    shell = InteractiveShell()
    shell.user_ns.update(df=FRAME, lf=FRAME.lazy(), private=FRAME.dp, preview=FRAME.dp.preview, dp=dp)
    yield shell.Completer
    jedi_cache.clear_time_caches(True)
    parser_cache.clear()


def offered(completer, text):
    with provisionalcompleter():
        return [one.text.removeprefix(".") for one in completer.completions(text, len(text))]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["df.dp.", "lf.dp.", "df.dp.preview.", "private.", "preview."])
def test_a_notebook_as_it_comes_offers_every_question_and_nothing_else(completer, text):
    assert completer.use_jedi, "the default of IPython"
    names = offered(completer, text)
    assert set(names) >= ASKED
    assert not [name for name in names if name.startswith("_")]
    assert offered(completer, text + "noisy_") == ["noisy_max", "noisy_min"]


@pytest.mark.slow
@pytest.mark.parametrize("call", ["df.dp.count(", "df.dp.preview.sum('x', ", "private.noisy_max('region', "])
def test_options_are_completed_inside_a_call(completer, call):
    assert {"epsilon=", "share=", "max_rows_per_group=", "session="} <= set(offered(completer, call))
    assert offered(completer, call + "max_g") == ["max_groups="]


def test_without_jedi_names_come_from_dir(completer, monkeypatch):
    monkeypatch.setattr(completer, "use_jedi", False)
    assert set(offered(completer, "private.")) >= ASKED
    # IPython then evaluates no attribute of a Polars frame by itself (not even Series.str) unless it is told to.
    monkeypatch.setattr(completer, "evaluation", "unsafe")
    for text in ("df.dp.", "lf.dp.", "df.dp.preview."):
        names = offered(completer, text)
        assert set(names) >= ASKED
        assert not [name for name in names if name.startswith("_")]


PROPERTIES = {"preview", "columns", "schema"}


def test_dir_lists_what_people_may_call():
    for thing in (FRAME.dp, FRAME.lazy().dp, FRAME.dp.preview, dp.private(FRAME)):
        names = dir(thing)
        assert names == sorted(names)
        assert set(names) >= ASKED
        assert all(callable(getattr(thing, name)) for name in names if name not in PROPERTIES)
        assert not [name for name in names if name.startswith("_")]
    assert "preview" in dir(FRAME.dp)
    assert "preview" not in dir(FRAME.dp.preview)
    assert {"plot", "connect"} <= set(dir(dp))
