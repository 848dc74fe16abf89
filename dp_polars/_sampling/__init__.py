"""Exact samplers over uniform random bits.

Every function here turns uniform random bits into a sample that has exactly the distribution it names. Floats decide
an outcome only where a bound on all rounding errors shows that exact arithmetic would decide the same; everywhere
else integers decide. The caller passes in the source of the bits. Nothing here reads data or knows what a sample is
used for.

- `uniform`: the source of random bits, and uniform integers.
- `bernoulli`: comparing a uniform number with exp(-x) exactly, and the coins built on that.
- `distributions`: the discrete Laplace and Gaussian distributions, sampled one number at a time.
- `noise`: many samples of these distributions at once, from a lookup table.

May import: numpy, `_numbers`. Never: anything else of the library.
"""

from dp_polars._sampling.bernoulli import bernoulli, bernoulli_exp_each
from dp_polars._sampling.noise import discrete_gaussian, discrete_laplace
from dp_polars._sampling.uniform import SYSTEM_BITS, BitSource, uniform_integer, uniform_integers

__all__ = [
    "SYSTEM_BITS",
    "BitSource",
    "bernoulli",
    "bernoulli_exp_each",
    "discrete_gaussian",
    "discrete_laplace",
    "uniform_integer",
    "uniform_integers",
]
