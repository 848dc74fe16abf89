"""The mechanisms as plain functions on numbers, numpy arrays and Polars Series.

For experts who account for privacy themselves, and for the engines of this library. **They charge nothing**: no
session knows of a call. The caller says how far one unit can move the input (`sensitivity`) and answers for it.
Randomness comes from the operating system; samples are exact.
"""

from dp_polars.mechanisms.accuracy import (
    exponential_regret,
    gaussian_error,
    gaussian_rho,
    laplace_epsilon,
    laplace_error,
)
from dp_polars.mechanisms.additive import gaussian, laplace
from dp_polars.mechanisms.frequencies import estimate_frequencies
from dp_polars.mechanisms.partitions import select_partitions
from dp_polars.mechanisms.randomized_response import randomized_response
from dp_polars.mechanisms.selection import exponential, permute_and_flip, report_noisy_max
from dp_polars.mechanisms.sparse_vector import above_threshold, numeric_sparse, sparse, sparse_error

__all__ = [
    "above_threshold",
    "estimate_frequencies",
    "exponential",
    "exponential_regret",
    "gaussian",
    "gaussian_error",
    "gaussian_rho",
    "laplace",
    "laplace_epsilon",
    "laplace_error",
    "numeric_sparse",
    "permute_and_flip",
    "randomized_response",
    "report_noisy_max",
    "select_partitions",
    "sparse",
    "sparse_error",
]
