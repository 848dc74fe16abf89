"""The mechanisms as plain functions on numbers, numpy arrays and Polars Series.

They are meant for experts who do their own privacy accounting, and the rest of the library is built on them. **They
charge nothing**: no session knows of a call. The caller states how far one unit can move the input (`sensitivity`) and
is responsible for that number. Random bits come from the operating system, and samples are exact.

- `additive`: the Laplace and the Gaussian mechanism.
- `accuracy`: the error that a spend gives, the spend that an error needs, and tails of the noise.
- `selection`: the exponential mechanism, permute-and-flip, and report noisy max.
- `sparse_vector`: AboveThreshold, Sparse and NumericSparse, and their error.
- `partitions`: which groups may be shown if the groups themselves come from the data.
- `randomized_response`: randomized response and the law of a response.
- `frequencies`: estimates of the true frequencies behind randomized responses.

Modules that only the library uses:

- `_numeric_input`: the numbers that mechanisms accept, as flat arrays.
- `_grid`: floats on a power-of-two grid, and sums that saturate.
- `_calibration`: the variance of Gaussian noise for an (epsilon, delta).
- `_noise_tails`: tails of noise for whole arrays, given a threshold, and of linear combinations.
- `_quantiles`: choosing a point by its rank in many groups at once.
- `_multiplicative_weights`: a public table that learns from noisy measurements.
- `_small_database`: choosing a small synthetic table among all tables of its size.

May import: `_sampling`, `theory`, `_numbers`, `errors`, numpy, polars. Never: sessions, plans or engines.
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
