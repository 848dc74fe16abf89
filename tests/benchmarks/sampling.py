"""Exact samplers against numpy's unsafe ones: samples per CPU second and ratios, all in one run."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dp_polars import mechanisms
from dp_polars._sampling import (
    SYSTEM_BITS,
    bernoulli,
    discrete_gaussian,
    discrete_laplace,
    uniform_integers,
)
from dp_polars._sampling.bernoulli import enclose_exp, enclosed_coins
from tests.benchmarks.measure import Row, cpu_seconds, show

N = 10**6


def run() -> bool:
    generator = np.random.default_rng()
    unsafe_laplace = cpu_seconds(lambda: generator.laplace(0, 10, N))
    unsafe_normal = cpu_seconds(lambda: generator.normal(0, 10, N))
    rows = [
        Row("numpy laplace (unsafe)", f"{N / unsafe_laplace / 1e6:6.1f} M/s", unsafe_laplace),
        Row("numpy normal (unsafe)", f"{N / unsafe_normal / 1e6:6.1f} M/s", unsafe_normal),
    ]
    for scale in (Fraction(1, 1000), *map(Fraction, (1, 3, 10, 100, 10**3, 10**4, 10**5, 10**6, 10**9, 10**12))):
        named = 1 <= scale <= 10**6
        laplace = cpu_seconds(lambda s=scale: discrete_laplace(s, N, SYSTEM_BITS))
        gaussian = cpu_seconds(lambda s=scale: discrete_gaussian(s * s, N, SYSTEM_BITS))
        for name, seconds, unsafe, limit in (
            ("laplace", laplace, unsafe_laplace, 4),
            ("gaussian", gaussian, unsafe_normal, 10 if scale < 5 else 8),
        ):
            ratio = seconds / unsafe
            shown = f"{N / seconds / 1e6:6.1f} M/s   {ratio:5.2f} x numpy"
            rows.append(Row(f"discrete {name}, scale {scale}", shown, ratio, limit if named else None))
    noise = show(f"noise, {N:,} samples", rows)

    third, one = Fraction(1, 3), Fraction(1)
    rows = []
    for name, work in (
        ("Bernoulli(1/3)", lambda: bernoulli(third, N, SYSTEM_BITS)),
        ("Bernoulli(exp(-1))", lambda: enclosed_coins(lambda bits: enclose_exp(one, bits), N, SYSTEM_BITS)),
        ("uniform below 1000", lambda: uniform_integers(1000, N, SYSTEM_BITS)),
    ):
        seconds = cpu_seconds(work)
        rows.append(Row(name, f"{N / seconds / 1e6:6.1f} M/s", seconds))
    show(f"choices, {N:,} samples", rows)

    rows = []
    for scale in (Fraction(1, 1000), Fraction(1), Fraction(1000), Fraction(10**12)):
        for name, work in (
            ("Laplace", lambda s=scale: discrete_laplace(s, 1, SYSTEM_BITS)),
            ("Gaussian", lambda s=scale: discrete_gaussian(s * s, 1, SYSTEM_BITS)),
        ):
            micros = cpu_seconds(work, calls=200) * 1e6
            rows.append(Row(f"discrete {name}, scale {scale}", f"{micros:6.0f} us", micros, 200))
    micros = cpu_seconds(lambda: mechanisms.laplace(100, sensitivity=1, epsilon=0.1), calls=200) * 1e6
    rows.append(Row("mechanisms.laplace on one integer", f"{micros:6.0f} us", micros, 200))
    single = show("one sample", rows)

    scores = generator.integers(0, 1000, N)
    rows = []
    for name, choose, limit in (
        ("permute_and_flip", mechanisms.permute_and_flip, 0.2),
        ("exponential", mechanisms.exponential, None),
        ("report_noisy_max, Laplace", lambda s, **w: mechanisms.report_noisy_max(s, noise="laplace", **w), None),
    ):
        seconds = cpu_seconds(lambda c=choose: c(scores, sensitivity=1, epsilon=1), repeats=3)
        rows.append(Row(name, f"{seconds:6.3f} CPU s", seconds, limit))
    return show(f"choosing among {N:,} candidates", rows) and noise and single
