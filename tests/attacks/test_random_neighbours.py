"""Random statements: without one unit, or with other rows for it, nobody else's row changes by a bit."""

import random

import polars as pl
import pytest

from tests.attacks.test_unit_memory import rows_below

GONE = 3
X = ["0.0", "-0.0", "nan", "inf", "1e308", "-1e308", "1e-308", "0.1", "7.25"]
S = ["", "a", "A", "ä", "a\u0308", "1", "-0", None, "x,y", "2020-02-30"]
VALUES = [
    "sum(x)", "avg(x)", "min(x)", "max(s)", "median(x)", "stddev(x)", "var_pop(x)", "mode(s)", "quantile_cont(x, 0.3)",
    "quantile_disc(n, 0.7)", "string_agg(s, ',' ORDER BY n)", "count(DISTINCT s)", "first(s ORDER BY n)", "sum(n)",
    "arg_max(s, x)", "bool_or(n > 3)", "count(*) FILTER (WHERE x > 0)", "any_value(s ORDER BY x)",
]  # fmt: skip
ENDS = ["", "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING", "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"]
FUNCTIONS = ["sum(x)", "sum(n)", "min(x)", "max(s)", "count(s)", "avg(n)"]
PLAIN = ["row_number()", "rank()", "dense_rank()", "lag(x)", "lead(s, 2)", "first_value(s)"]


def source(dice, depth):
    """Return a query with the columns user, x, n and s."""
    if not depth:
        return "SELECT user, x, n, s FROM t"
    one, two = source(dice, depth - 1), source(dice, dice.randrange(depth))
    window = "PARTITION BY user ORDER BY n, x, s"
    return dice.choice(
        [
            f"SELECT user, {dice.choice(VALUES[:2])} AS x, n, min(s) AS s FROM ({one}) GROUP BY user, n",
            f"SELECT user, x, n, s FROM ({one}) WHERE n > {dice.randrange(4)} OR s IS NULL",
            f"SELECT DISTINCT user, x, n, s FROM ({one})",
            f"SELECT user, x, row_number() OVER ({window}) AS n, s FROM ({one})",
            f"SELECT user, sum(x) OVER ({window} {dice.choice(ENDS)}) AS x, n, s FROM ({one})",
            f"SELECT user, x, n, s FROM ({one}) UNION ALL SELECT user, x, n, s FROM ({two})",
            f"SELECT user, x, n, s FROM ({one}) {dice.choice(['INTERSECT', 'EXCEPT', 'UNION'])} "
            f"SELECT user, x, n, s FROM ({two})",
            f"SELECT a.user, a.x, b.n, b.s FROM ({one}) a {dice.choice(['', 'LEFT'])} JOIN ({two}) b "
            "ON a.user = b.user AND a.n = b.n",
            f"SELECT user, coalesce(a.x, b.x) AS x, coalesce(a.n, b.n) AS n, b.s FROM ({one}) a FULL JOIN ({two}) b "
            "USING (user)",
            f"SELECT user, x, n, unnest(string_split(s, ',')) AS s FROM ({one})",
            f"SELECT user, x, n, s FROM ({one}) QUALIFY rank() OVER ({window}) <= 2",
            f"SELECT user, x, n, s FROM ({one}) WHERE user NOT IN (SELECT user FROM ({two}) WHERE n = 2)",
        ]
    )


def statement(dice):
    """Return a question. Several columns are computed at once, among them sums of floats in each kind of order."""
    inner = source(dice, dice.randrange(3))
    if dice.random() < 0.5:
        made = ["sum(x)", dice.choice(VALUES)]
        below = f"FROM ({inner}) GROUP BY user, n"
    else:
        window = "PARTITION BY user ORDER BY n, x, s"
        made = [f"{dice.choice(['sum(x)', 'avg(x)'])} OVER ({window} {ends})" for ends in ENDS]
        made += [
            f"{dice.choice(FUNCTIONS)} OVER ({window} {dice.choice(ENDS)})",
            f"{dice.choice(PLAIN)} OVER ({window})",
        ]
        below = f"FROM ({inner})"
    columns = [f"{one} AS v{number}" for number, one in enumerate(made)]
    counts = [f"dp_count(v{number}) AS c{number}" for number in range(len(made))]
    return f"SELECT {', '.join(counts)} FROM (SELECT user, {', '.join(columns)} {below})"


def people(dice, users, *, finite):
    """Return rows with hostile floats, or with finite ones, whose sums tell in which order they were added up."""

    def number():
        return dice.uniform(-9, 9) * 10.0 ** dice.randrange(-6, 9) if finite else float(dice.choice(X))

    rows = [(one, number(), dice.randrange(5), dice.choice(S)) for one in users]
    return pl.DataFrame(rows, schema={"user": pl.Int64, "x": pl.Float64, "n": pl.Int64, "s": pl.String}, orient="row")


def others(frame):
    """Return everybody else's rows as sorted texts that tell every bit."""
    rows = frame.filter(pl.col("user") != GONE).select(sorted(frame.columns)).rows()
    return sorted(repr([one.hex() if isinstance(one, float) else one for one in row]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_nobody_elses_row_changes_by_a_bit(seed):
    dice = random.Random(seed)
    for _ in range(4):
        asked = statement(dice)
        finite = dice.random() < 0.6
        whole = people(dice, [dice.randrange(8) for _ in range(60)], finite=finite)
        rest = whole.filter(pl.col("user") != GONE)
        replaced = pl.concat([people(dice, [GONE] * dice.choice([1, 40]), finite=finite), rest]).sample(
            fraction=1, shuffle=True, seed=seed
        )
        expected = others(rows_below(asked, whole))
        for neighbour in (rest, replaced, pl.concat([rest.tail(20), rest.head(rest.height - 20)], rechunk=False)):
            assert others(rows_below(asked, neighbour)) == expected, asked
