"""Messages about options on a guarded connection name them as SQL writes them."""

import re

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._sql.option_words import in_sql_words
from dp_polars.errors import InvalidParameterError

pytestmark = pytest.mark.slow

VISITS = pl.DataFrame({"user": [1, 2], "region": ["a", "b"], "spent": [1.0, 2.0], "more": [1.0, 2.0]})


@pytest.fixture(scope="module")
def con():
    return dp.connect(None, dp.Session(epsilon=1.0, delta=1e-6, unit="user")).register("visits", VISITS)


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("dp_avg(spent)", "Say bounds := (0, 100), chosen without looking at the data, or bounds := 'auto' to"),
        ("dp_geometric_mean(spent)", "Say bounds := (1, 100), chosen without looking at the data."),
        ("dp_histogram(spent)", "Say bounds := (0, 100), chosen without looking at the data."),
        ("dp_corr(spent, more)", "Say bounds := ((0, 1), (0, 100)), a pair for each column, chosen"),
        ("dp_sum(spent, 9, 0, epsilon := 0.1)", "bounds := (lower, upper) needs lower < upper."),
        ("dp_count(*)", "Say epsilon := 0.1 (its own guarantee), share := 0.05 (a part of the session), within := 50"),
        ("dp_count(*, epsilon := 0.1)", "Say max_rows_per_group := 10 (here or in the session)"),
        ("dp_sum(spent, bounds := 'auto', within := 5)", "With 'auto', say epsilon or share instead."),
    ],
)
def test_messages_say_what_to_write_in_a_select(con, select, message):
    with pytest.raises(InvalidParameterError, match=re.escape(message)) as caught:
        con.sql(f"SELECT {select} FROM visits")
    assert not re.search(r"\b(bounds|epsilon|share|max_groups|max_rows_per_group|within)=", str(caught.value))


def test_the_code_of_an_error_stays_and_options_of_the_call_keep_their_form(con):
    with pytest.raises(InvalidParameterError) as caught:
        con.sql("SELECT dp_avg(spent) FROM visits")
    assert caught.value.code == "bounds-missing"
    with pytest.raises(InvalidParameterError, match="max_groups") as caught:
        con.sql("SELECT region, dp_count_units() FROM visits GROUP BY region", epsilon=0.1, max_groups=0)
    assert ":=" not in str(caught.value)


def test_frames_keep_the_words_of_python():
    with pytest.raises(InvalidParameterError, match=re.escape("Say bounds=(0, 100)")):
        dp.private(VISITS, dp.Session(epsilon=1.0, unit="user")).mean("spent", epsilon=0.1)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ('bounds="auto"', "bounds := 'auto'"),
        ("keys=[...], or", "keys := [...], or"),
        ("queries=20 and confidence=0.95", "queries=20 and confidence=0.95"),
        ("a == b, epsilon==1", "a == b, epsilon==1"),
        ("epsilon= or rho=.", "epsilon or rho."),
        ("my_epsilon=3", "my_epsilon=3"),
    ],
)
def test_only_options_of_sql_are_rewritten(text, changed):
    assert in_sql_words(text) == changed


def test_a_summary_suggests_caps_and_bounds_in_sql_with_the_errors_of_its_numbers():
    """Of 9,000 units, the noise of an epsilon of 1 hides less than a tenth, except with probability 1e-9."""
    rows = pl.DataFrame({"user": range(9_000), "region": ["a", "b", "c"] * 3_000, "spent": [5.0] * 9_000})
    con = dp.connect(None, dp.Session(epsilon=2.0, unit="user")).register("visits", rows)
    table = con.sql("SUMMARIZE visits", by=["region"], columns=["spent"], epsilon=1.0).pl()
    assert table["suggested"].drop_nulls().str.contains(":= ").all()
    shown = {row["name"]: row for row in table.to_dicts()}
    assert abs(shown["units"]["distinct"] - 9_000) < 40 * shown["units"]["distinct_error"] < 9_000
    assert abs(shown["spent"]["distinct"] - 1) < 40 * shown["spent"]["distinct_error"]
    assert shown["spent"]["missing_error"] > 0
    assert shown["groups per unit"]["cut_error"] > 0
    assert shown["rows per unit"]["distinct_error"] is None
    own = dp.TableProfile(con._session.releases[-1]).table
    assert own["suggested"].drop_nulls().str.contains("=").all()
    assert not own["suggested"].drop_nulls().str.contains(":=").any()
