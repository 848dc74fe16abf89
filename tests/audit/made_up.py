"""Made-up data and sessions for audits, and faults that an audit must see."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import polars as pl

from dp_polars._audit import copies
from dp_polars._choices import release as selection
from dp_polars._engines.polars import engine
from dp_polars._release import noise, run
from tests.bits import SeededBits

SCHEMA = {"user": pl.Int64, "key": pl.String, "value": pl.Int64}
KEYS = ["a", "b", "c", "d"]

ALMOST_SURE = 1 - 1e-7
"""An honest question is flagged with a probability of at most 1e-7."""


def frame_of(rows):
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


CROWD = [(unit, KEYS[unit % 4], unit % 9) for unit in range(100, 140)]


def without(rows, *units):
    return [row for row in rows if row[0] not in units]


def seed(patch, number=1):
    """Make audits of one query repeatable: the bits of the noise and the salts of the caps."""
    bits = SeededBits(number)
    for module in (copies, run, selection):
        patch.setattr(module, "SYSTEM_BITS", bits)
    patch.setattr(engine.secrets, "randbits", Random(number).getrandbits)


def too_little_noise(patch, part=Fraction(9, 10)):
    """Put a fault into the library: deviations of Laplace and Gaussian noise, and of a choice, are a part of theirs."""
    laplace, gaussian, peel = noise.discrete_laplace, noise.discrete_gaussian, selection.peel
    patch.setattr(noise, "discrete_laplace", lambda scale, *given: laplace(scale * part, *given))
    patch.setattr(noise, "discrete_gaussian", lambda variance, *given: gaussian(variance * part**2, *given))
    patch.setattr(
        selection, "peel", lambda scores, k, rate, *given, **words: peel(scores, k, rate / part, *given, **words)
    )
