"""Codes of short texts by the words in which they are held: equal texts and no others have equal codes."""

import numpy as np
import polars as pl
import pytest

from dp_polars._engines.polars import known_columns
from dp_polars._engines.polars.codes import HashCollisionError
from dp_polars._engines.polars.growing_codes import TooManyValuesError
from dp_polars._engines.polars.short_texts import LongTextError, ShortTexts

SHORT = ["", "\0", "\0\0", "a", "a\0", "b", "ü", "日本", "twelve bytes", "twelve byteS", "region-07", "region-70", None]


def column(values, rows=3000, seed=1):
    return pl.Series("text", values).gather(np.random.default_rng(seed).integers(0, len(values), rows))


@pytest.mark.slow
@pytest.mark.parametrize("values", [SHORT, SHORT[:-1], [None], [f"v{i}" for i in range(300)], [*SHORT, "x" * 13]])
@pytest.mark.parametrize("pieces", [1, 3])
def test_codes_are_places_among_the_sorted_values(values, pieces, monkeypatch):
    monkeypatch.setattr(known_columns, "BATCH", 500)
    text = column([*values], rows=3000)
    text = text if pieces == 1 else pl.concat([text[:700], text[700:701], text[701:]], rechunk=False)
    found = known_columns._coded(text)
    assert found.values.to_list() == sorted(set(text.to_list()), key=lambda one: (one is not None, one or ""))
    assert found.values.gather(found.codes).to_list() == text.to_list()


def test_a_long_text_is_refused_wherever_it_is():
    for values in (["x" * 13], ["a", None, "x" * 13], ["a"] * 5000 + ["thirteen byte"]):
        with pytest.raises(LongTextError):
            ShortTexts("text").numbers_of(pl.Series("text", values))


def test_texts_that_share_a_hash_are_told_apart(monkeypatch):
    text = column(SHORT)
    expected = known_columns._coded(text)
    init = ShortTexts.__init__

    def without_hash(self, name):
        init(self, name)
        self._factors = [np.uint64(1), np.uint64(0)]

    monkeypatch.setattr(ShortTexts, "__init__", without_hash)
    with pytest.raises(HashCollisionError):
        ShortTexts("text").numbers_of(text)
    found = known_columns._coded(text)
    assert found.values.equals(expected.values)
    assert found.codes.equals(expected.codes)


def test_too_many_texts_have_no_codes(monkeypatch):
    monkeypatch.setattr("dp_polars._engines.polars.short_texts.MOST_VALUES", 10)
    text = pl.Series("text", [f"v{i}" for i in range(11)])
    with pytest.raises(TooManyValuesError):
        ShortTexts("text").numbers_of(text)
    assert known_columns._coded(text) is None
