"""Exact samplers over uniform random bits.

The output of every function here is a deterministic function of uniform random bits, and has exactly the
distribution it names: no float decides an outcome unless an interval that encloses every rounding error agrees
with itself; otherwise integer arithmetic decides. The bits come from an object handed in. Nothing here knows what
the numbers are used for, and nothing here reads data.

The way down: `laplace`, `gaussian` (noise) and `bernoulli`, `uniform` (choices) use `table` for many samples at a
time and `scalar` for few; both rest on `lazy`, which compares a uniform number, known to as many bits as needed,
with an enclosure of `exp(-x)`.
"""

from dp_polars._sampling.bernoulli import bernoulli, bernoulli_exp, bernoulli_exp_each
from dp_polars._sampling.bits import SYSTEM_BITS, BitSource
from dp_polars._sampling.noise import discrete_gaussian, discrete_laplace
from dp_polars._sampling.uniform import uniform_integer, uniform_integers

__all__ = [
    "SYSTEM_BITS",
    "BitSource",
    "bernoulli",
    "bernoulli_exp",
    "bernoulli_exp_each",
    "discrete_gaussian",
    "discrete_laplace",
    "uniform_integer",
    "uniform_integers",
]
