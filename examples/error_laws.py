"""Show how the error of k counting queries grows with k, for six ways to answer them with the same epsilon.

Theory gives these relative errors for n rows over a domain of |X| cells: k / (epsilon n) for Laplace noise on each
query, sqrt(|X|) / (epsilon n) for Laplace noise on the whole table, sqrt(k) / (epsilon n) for Gaussian noise,
(ln|X| ln k / (epsilon n))^(1/3) for multiplicative weights, and 1 / (epsilon sqrt(n)) for the local model with few
queries. Noise on queries is best for few queries, and learning a distribution is best for very many: multiplicative
weights promise little more than alpha * n (here 0.15 of 4,000), whatever k is.

The table prints the largest error of k random three-way marginals, in rows. "One guess" is the error of a uniform
distribution. MWEM learns from at most 300 of the marginals.
"""

import math
import warnings

import numpy as np
import polars as pl

import dp_polars as dp

ROWS, BITS, EPSILON, DELTA = 4_000, 12, 1.0, 1e-6
NAMES = [f"b{i}" for i in range(BITS)]


def people(rng: np.random.Generator) -> pl.DataFrame:
    """Return rows of twelve yes-or-no answers, in which yes is rare."""
    return pl.DataFrame({name: rng.random(ROWS) < 0.08 for name in NAMES})


def marginals(rng: np.random.Generator, count: int) -> list[pl.Expr]:
    """Return random conditions on three of the answers."""
    chosen = [rng.choice(NAMES, 3, replace=False).tolist() for _ in range(count)]
    return [pl.all_horizontal(pl.col(name) == bool(rng.integers(2)) for name in names) for names in chosen]


def counts(frame: pl.DataFrame, queries: list[pl.Expr], weight: str | None = None) -> np.ndarray:
    """Return how many rows, or how much weight, satisfy each condition."""
    of = [query.sum() if weight is None else pl.col(weight).filter(query).sum() for query in queries]
    return np.array(frame.select(one.alias(str(i)) for i, one in enumerate(of)).row(0), dtype=float)


def session() -> dp.Session:
    """Return a session for one method."""
    return dp.Session(epsilon=EPSILON, unit=dp.ROW)


def answers(frame: pl.DataFrame, queries: list[pl.Expr], true: np.ndarray) -> dict[str, np.ndarray]:
    """Return the answers of each method, in rows."""
    exact, k = true.astype(np.int64), len(queries)
    found = {
        "Laplace on queries": dp.mechanisms.laplace(exact, sensitivity=k, epsilon=EPSILON),
        "Gaussian on queries": dp.mechanisms.gaussian(exact, sensitivity=math.sqrt(k), epsilon=EPSILON, delta=DELTA),
    }
    with session():
        cells = dp.private(frame).group_by(*NAMES).agg(n=dp.count(), keys=domain_frame(), epsilon=EPSILON)
    found["Laplace on the table"] = counts(cells, queries, "n")
    with session():
        online = dp.private(frame).online_queries(NAMES, alpha=0.15, max_updates=20, epsilon=EPSILON)
        found["multiplicative weights"] = np.array([one.count for one in online.ask_many(queries)])
    with session():
        made = dp.private(frame).synthesize(NAMES, queries=queries[:300], rounds=20, epsilon=EPSILON)
    found["MWEM"] = counts(made.distribution, queries, "probability") * made.size
    found["local model"] = local(frame, queries)
    return {name: np.clip(one, 0, ROWS) for name, one in found.items()}


def domain_frame() -> pl.DataFrame:
    """Return every combination of answers."""
    frame = pl.DataFrame({NAMES[0]: [False, True]})
    for name in NAMES[1:]:
        frame = frame.join(pl.DataFrame({name: [False, True]}), how="cross")
    return frame


def local(frame: pl.DataFrame, queries: list[pl.Expr]) -> np.ndarray:
    """Return estimates from randomized responses, for which everybody splits epsilon over all questions."""
    epsilon = EPSILON / len(queries)
    told = frame.select(query.alias(str(i)) for i, query in enumerate(queries))
    seen = []
    for column in told.iter_columns():
        responses = dp.mechanisms.randomized_response(column.to_numpy(), epsilon=epsilon)
        estimate = dp.mechanisms.estimate_frequencies(responses, epsilon=epsilon)
        seen.append(estimate["frequency"][1] * ROWS)
    return np.array(seen)


def main() -> None:
    """Print the largest error of each method by the number of queries."""
    rng = np.random.default_rng(7)
    frame, rows = people(rng), []
    for k in (1, 10, 100, 1_000):
        queries = marginals(rng, k)
        true = counts(frame, queries)
        found = answers(frame, queries, true)
        found["one guess"] = np.full(k, ROWS / 8)
        rows.append({"queries": k, **{name: round(float(np.abs(own - true).max())) for name, own in found.items()}})
    with pl.Config(tbl_hide_dataframe_shape=True, tbl_cols=-1, tbl_width_chars=100, tbl_hide_column_data_types=True):
        print(f"Largest error in rows, of {ROWS:,}; epsilon {EPSILON:g}, {2**BITS:,} cells")
        table = pl.DataFrame(rows)
        print(
            table.transpose(include_header=True, header_name="k =", column_names=[str(k) for k in table["queries"]])[1:]
        )


if __name__ == "__main__":
    warnings.simplefilter("error")
    main()
