"""PipelineDP on its local backend asked one question by region: `python pipeline_dp_.py DATA QUESTION EPSILON ...`."""

from __future__ import annotations

import math
from importlib.metadata import version

import pipeline_dp
import pyarrow.parquet as pq
import shared
from pipeline_dp.dp_computations import compute_sigma

METRICS = {
    "count": pipeline_dp.Metrics.COUNT,
    "sum": pipeline_dp.Metrics.SUM,
    "mean": pipeline_dp.Metrics.MEAN,
    "variance": pipeline_dp.Metrics.VARIANCE,
    "median": pipeline_dp.Metrics.PERCENTILE(50),
}
SHARES = {**shared.STATISTICS, "median": 4}  # levels of the quantile tree


def load(path):
    table = pq.read_table(path, columns=["user", "region", "value"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def answer(rows, ask):
    delta = ask.delta / ask.queries
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=ask.own_epsilon, total_delta=delta)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    params = pipeline_dp.AggregateParams(
        metrics=[METRICS[ask.question]],
        noise_kind=noise_kind(ask),
        max_partitions_contributed=ask.max_groups,
        max_contributions_per_partition=ask.max_rows,
        min_value=ask.lower,
        max_value=ask.upper,
    )
    result = engine.aggregate(rows, params, extractors, public_partitions=shared.REGIONS)
    accountant.compute_budgets()
    return {region: metrics[0] for region, metrics in result}


def noise_kind(ask):
    """Return the noise of the smaller expected error; PipelineDP splits epsilon and delta evenly over what it adds."""
    shares, laplace = SHARES[ask.question], pipeline_dp.NoiseKind.LAPLACE
    epsilon, delta = ask.own_epsilon, ask.delta / ask.queries
    if not ask.delta:
        return laplace
    if ask.question == "median":  # a vector of levels: one Gaussian for all
        sigma = compute_sigma(epsilon, delta, math.sqrt(shares * ask.max_groups))
    else:
        sigma = compute_sigma(epsilon / shares, delta / shares, math.sqrt(ask.max_groups))
    gaussian_is_less = math.sqrt(2 / math.pi) * sigma < shares * ask.max_groups / epsilon
    return pipeline_dp.NoiseKind.GAUSSIAN if gaussian_is_less else laplace


if __name__ == "__main__":
    asked = dict.fromkeys(shared.QUESTIONS, (answer,))
    shared.main(load, asked, version("pipeline-dp"), lambda ask: f"{noise_kind(ask).value} noise")
