"""Means of groups that are too small for their noise: the release says so, from noisy numbers, in Polars and SQL.

Nothing here is left to chance but whether noise makes an empty group look like a large one. This happens in less than
one of 50 groups, and in all of 30 groups with a probability below 1e-50.
"""

import warnings

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._release.small_groups import small_groups

pytestmark = pytest.mark.slow

EMPTY = [f"empty {i:02}" for i in range(30)]
ROWS = pl.DataFrame({"user": range(20_000), "shop": ["full"] * 20_000, "paid": [float(i % 5) for i in range(20_000)]})
KEYS = ["full", *EMPTY]
BOUNDS = (0, 10)


def a_session(**words):
    return dp.Session(**{"epsilon": 1.0, "unit": "user", "max_groups": 1, "max_rows_per_group": 1, **words})


def frame_of(session):
    return dp.private(ROWS, session)


@pytest.mark.parametrize("noise", [{"epsilon": 0.2}, {"share": 0.5}])
def test_a_release_names_the_groups_that_are_too_small(noise):
    """With Laplace noise a mean has a basis, and with Gaussian noise a sum and a count."""
    session = a_session(delta=1e-6)
    with pytest.warns(dp.DPWarning, match="the mean of paid tells next to nothing in .. of 31 groups"):
        frame_of(session).mean("paid", by="shop", bounds=BOUNDS, keys=KEYS, **noise)
    release = session.releases[-1]
    (told,) = [text for name, text in release.notes if name == "too small"]
    assert "empty" in told
    assert "full" not in told
    assert told[:60] in str(release)
    assert "too small" in release._repr_html_()
    assert "Too small: the " in release.report().markdown
    assert "spend more" not in release.report().markdown  # who reads a report can't spend
    assert release.plan.too_small[0].count >= 20


def test_sql_says_the_same_and_a_presentation_of_the_same_numbers_too():
    session = a_session()
    con = dp.connect(None, session).register("sales", ROWS)
    query = "SELECT shop, dp_avg(paid, 0, 10) AS m FROM sales GROUP BY shop"
    with pytest.warns(dp.DPWarning, match="Too small for the noise: the mean of paid"):
        con.sql(query, epsilon=0.2, keys=KEYS)
    told = [note for note in con.notes if note.startswith("too small: ")]
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the interval tells it, so there is no warning
        con.sql(query, epsilon=0.2, keys=KEYS, confidence=0.95)
    assert [note for note in con.notes if note.startswith("too small: ")] == told
    assert len(session.releases) == 1


@pytest.mark.parametrize("ask", ["var", "std", "geometric_mean"])
def test_other_ratios_say_it_too(ask):
    session = a_session()
    with pytest.warns(dp.DPWarning, match="tells next to nothing"):
        getattr(frame_of(session), ask)("paid", by="shop", bounds=(1, 10), keys=KEYS, epsilon=0.2)


def test_answers_without_keys_and_large_groups_say_nothing():
    session = a_session()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame_of(session).mean("paid", bounds=BOUNDS, epsilon=0.2)
        frame_of(session).count("shop", keys=KEYS, epsilon=0.2)  # its expected error is in the release
        frame_of(session).mean("paid", by="shop", bounds=BOUNDS, keys=["full"], epsilon=0.2)
    assert not any(name == "too small" for release in session.releases for name, _ in release.notes)


def test_an_answer_without_keys_says_it():
    nobody = dp.private(ROWS.clear(), a_session())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for place in range(30):
            nobody.filter(pl.col("user") > place).mean("paid", bounds=BOUNDS, epsilon=0.001)
    texts = [str(one.message) for one in caught]
    assert any("the mean of paid tells next to nothing: " in text for text in texts)
    assert not any("groups" in text for text in texts)


def numbers(plan, table):
    """Return noisy numbers of a mean by shop with a basis: for each group, the sums of its two polynomials in rows."""
    (own,) = plan.measurements
    steps = [[round(one * own.statistic.whole) for one in row] for row in table.values()]
    columns = pl.Series(own.name, steps, dtype=pl.Array(pl.Int64, 2))
    return pl.DataFrame([pl.Series("key0", list(table)), columns])


def test_noisy_numbers_and_the_plan_decide():
    """The error of a mean is about 2 * error / rows of half the width of its bounds."""
    plan = frame_of(a_session()).preview.mean("paid", by="shop", bounds=BOUNDS, keys=["a", "b"], epsilon=0.5)
    (own,) = plan.measurements
    assert own.statistic.source == "basis"
    error = own.error(0.95) / own.statistic.whole
    cases = {
        "as large as its range": (0.9 * error, 1.0 * error),
        "smaller than its range": (1.1 * error, 1.1 * error),
        "on a bound, with much noise": (-0.1 * error, 6 * error),
        "on a bound, with little noise": (-0.1 * error, 30 * error),
        "fewer than no rows": (-error, -2 * error),
    }
    found = small_groups(numbers(plan, cases), plan)
    assert [(one.count, one.of) for one in found] == [(3, 5)]
    assert found[0].names == ("as large as its range", "on a bound, with much noise", "fewer than no rows")


def test_names_of_groups_are_harmless_and_short():
    keys = ["full", *(f"\x1b[2J{'x' * 300}{i}" for i in range(30))]
    session = a_session()
    with pytest.warns(dp.DPWarning, match="tells next to nothing") as caught:
        frame_of(session).mean("paid", by="shop", bounds=BOUNDS, keys=keys, epsilon=0.2)
    text = str(caught[0].message)
    assert "\x1b" not in text
    assert len(text) < 300
