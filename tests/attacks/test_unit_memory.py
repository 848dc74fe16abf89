"""What one unit's rows become is limited, so nobody's presence decides whether memory suffices."""

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars import unit_steps as computed
from dp_polars._engines.rows import MOST_COPIES_IN_ALL
from dp_polars._expressions.types import MOST_TEXT
from dp_polars._sql.queries import PlannedStatement
from tests.attacks.children import run

HUNDRED = f"[{', '.join(map(str, range(100)))}]"


def rows_below(statement, people):
    """Return the private rows below the aggregate of a statement, as they are before they are bounded."""
    con = dp.connect(None, dp.Session(epsilon=1, unit="user", max_rows_per_group=1)).register("t", people)
    planned = con._planned(statement, {}, {"epsilon": 0.5})
    assert isinstance(planned, PlannedStatement)
    return computed._read(planned.queries[0].query.rows, None)


def nested(depth, inner="SELECT user, x FROM t"):
    for number in range(depth):
        inner = f"SELECT user, x, unnest({HUNDRED}) AS e{number} FROM ({inner})"
    return f"SELECT dp_sum(x, 0, 1) AS s FROM ({inner})"


def test_unnest_again_and_again_is_bounded_for_each_unit_by_its_own_rows(monkeypatch):
    monkeypatch.setattr(computed, "MOST_PAIRS", 2_000)
    people = pl.DataFrame({"user": [1, 2, 2, *[3] * 3_000], "x": 1})
    many = rows_below(nested(4), people).group_by("user").len().sort("user")
    assert many.rows() == [(1, 2_000), (2, 2_000), (3, 3_000)]
    alone = rows_below(nested(4), people.filter(pl.col("user") != 3)).group_by("user").len().sort("user")
    assert alone.rows() == many.rows()[:2]


@pytest.mark.slow
def test_whether_somebody_is_there_does_not_decide_whether_the_memory_suffices():
    code = (
        "users = [1, 2] + [42] * int(sys.argv[1])\n"
        "con = dp.connect(None, session(max_groups=1)).register('t', pl.DataFrame({'user': users, 'x': 1}))\n"
        f"print(len(con.sql({nested(4, 'SELECT user, x FROM t WHERE user = 42')!r}, epsilon=HUGE).fetchall()))"
    )
    assert run(code, "0") == run(code, "1")


TWO = "range(100) a(i), range(100) b(j)"


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT dp_count(*) FROM (SELECT user FROM t WHERE user = 42), {TWO}, range(2) c(k)",
        f"SELECT dp_count(*) FROM (SELECT DISTINCT user, i, j FROM (SELECT user FROM t WHERE user = 42), {TWO})",
        "SELECT dp_count(*) FROM (SELECT DISTINCT user, i, j FROM (SELECT DISTINCT user, i FROM t, range(100) a(i)), "
        "range(2) b(j))",
    ],
)
def test_public_rows_multiply_a_row_a_limited_number_of_times_in_all(statement):
    con = dp.connect(None, dp.Session(epsilon=1, unit="user", max_rows_per_group=1))
    con.register("t", pl.DataFrame({"user": [1], "x": [1]}))
    with pytest.raises(dp.DPError, match="memory must not run out"):
        con.preview(statement, epsilon=0.1)


def test_public_rows_within_the_limit_are_joined():
    found = rows_below(f"SELECT dp_count(i) AS n FROM t, {TWO}", pl.DataFrame({"user": [1], "x": [1]}))
    assert found.height == MOST_COPIES_IN_ALL


JOINED = f"SELECT user, x, string_agg(s, '{'z' * 4_000}' ORDER BY s) AS j FROM t GROUP BY user, x"


def test_texts_that_are_joined_with_a_long_separator_are_cut_where_all_texts_are():
    people = pl.DataFrame({"user": [1] * 9_000 + [2, 2, 3], "x": 0, "s": [*["ab"] * 9_000, "c", None, None]})
    found = rows_below(f"SELECT dp_count_distinct(j) AS n FROM ({JOINED})", people).sort("user")
    assert found["j"].to_list() == [("z" * 4_000).join(["ab"] * 9)[:MOST_TEXT], "c", None]


@pytest.mark.slow
def test_a_long_separator_between_many_texts_does_not_fill_the_memory():
    code = (
        "n = 1_500_000 if sys.argv[1] == '1' else 0\n"
        "people = pl.select(user=pl.repeat(42, n), x=pl.int_range(n) // 1_000, s=pl.repeat('a', n))\n"
        "con = dp.connect(None, session(max_groups=1)).register('t', people.cast({'user': pl.Int64}))\n"
        f"print(len(con.sql({f'SELECT dp_count(*) AS n FROM ({JOINED}) WHERE j <> $$b$$'!r}, epsilon=HUGE).fetchall()))"
    )
    assert run(code, "0") == run(code, "1")


def test_the_budget_is_no_table():
    con = dp.connect(None, dp.Session(epsilon=1, unit="user"))
    with pytest.raises(dp.StatementNotAllowed):
        con.preview("SELECT * FROM dp_budget()")
