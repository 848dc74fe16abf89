"""Invalid parameters are refused with an explanation, and importing stays cheap."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dp_polars import theory as c
from dp_polars.errors import InvalidParameterError

LOSS = c.PrivacyLoss.randomized_response(1)
HALF = [0.5, 0.5]

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "basic scalar": (lambda: c.basic(0.1), "list"),
    "basic text": (lambda: c.basic("0.1"), "list"),
    "basic negative": (lambda: c.basic([-0.1]), "at least 0"),
    "basic negative delta": (lambda: c.basic([0.1], [-1e-6]), "at least 0"),
    "basic nan": (lambda: c.basic([math.nan]), "finite"),
    "advanced zero epsilon": (lambda: c.advanced(0, 5, slack=1e-6), "greater than 0"),
    "advanced zero slack": (lambda: c.advanced(0.1, 5, slack=0), "slack"),
    "advanced count": (lambda: c.advanced(0.1, 0, slack=1e-6), "count"),
    "advanced fractional count": (lambda: c.advanced(0.1, 2.5, slack=1e-6), "whole"),
    "advanced form": (lambda: c.advanced(0.1, 5, slack=1e-6, form="tight"), "form"),
    "optimal slack": (lambda: c.optimal(0.1, 5, slack=1), "slack"),
    "optimal delta": (lambda: c.optimal(0.1, 5, slack=1e-6, delta=-0.1), "delta"),
    "group size": (lambda: c.group_privacy(0.1, 0, 0), "size"),
    "group rho": (lambda: c.group_zcdp(0, 2), "rho"),
    "pure": (lambda: c.pure_to_zcdp(-1), "epsilon"),
    "exponential": (lambda: c.zcdp_of_exponential_mechanism("1"), "number"),
    "gaussian sigma": (lambda: c.zcdp_of_gaussian(1, 0), "sigma"),
    "zcdp rho": (lambda: c.zcdp_to_delta(-1, 1), "rho"),
    "zcdp epsilon": (lambda: c.zcdp_to_delta(1, -1), "negative"),
    "zcdp huge epsilon": (lambda: c.zcdp_to_delta(1, 1e300), "1e18"),
    "zcdp delta zero": (lambda: c.zcdp_to_epsilon(1, 0), "delta"),
    "zcdp delta one": (lambda: c.approximate_to_zcdp(1, 1), "delta"),
    "zcdp infinite": (lambda: c.approximate_to_zcdp(math.inf, 1e-6), "finite"),
    "gaussian delta": (lambda: c.gaussian_delta(1, sigma=-1), "sigma"),
    "lengths": (lambda: c.max_divergence(HALF, [0.2, 0.3, 0.5]), "same outcomes"),
    "mixed kinds": (lambda: c.max_divergence({"a": 1}, [1.0]), "both"),
    "negative mass": (lambda: c.kl_divergence([1.5, -0.5], HALF), "negative"),
    "negative fraction": (
        lambda: c.kl_divergence([Fraction(3, 2), Fraction(-1, 2)], HALF),
        "negative",
    ),
    "sum": (lambda: c.hockey_stick([0.5, 0.4], HALF, 0), "sum to"),
    "sum of fractions": (lambda: c.hockey_stick([Fraction(1, 3)], [1], 0), "sum to"),
    "nan mass": (lambda: c.hockey_stick([math.nan, 1.0], HALF, 0), "finite"),
    "empty": (lambda: c.max_divergence([], []), "non-empty"),
    "empty dicts": (lambda: c.max_divergence({}, {}), "non-empty"),
    "two dimensions": (lambda: c.max_divergence(np.eye(2), np.eye(2)), "one-dimensional"),
    "ragged": (lambda: c.max_divergence([[1], [1, 2]], HALF), "flat"),
    "text": (lambda: c.max_divergence(["a", "b"], HALF), "probabilities"),
    "truth values": (lambda: c.max_divergence([True, False], HALF), "probabilities"),
    "none": (lambda: c.max_divergence({"a": None}, {"a": 1}), "number"),
    "approximate delta": (lambda: c.approximate_max_divergence(HALF, HALF, 1), "delta"),
    "hockey epsilon": (lambda: c.hockey_stick(HALF, HALF, math.inf), "finite"),
    "order": (lambda: c.renyi_divergence(HALF, HALF, 0.5), "order"),
    "order nan": (lambda: c.renyi_of_gaussian(math.nan, sigma=1), "order"),
    "renyi sigma": (lambda: c.renyi_of_gaussian(2, sigma=0), "sigma"),
    "renyi scale": (lambda: c.renyi_of_laplace(2, scale=0), "scale"),
    "renyi epsilon": (lambda: c.renyi_of_randomized_response(2, 0), "epsilon"),
    "conversion lengths": (lambda: c.renyi_to_epsilon([2, 3], [0.1], 1e-6), "pair up"),
    "conversion order one": (lambda: c.renyi_to_epsilon([1], [0.1], 1e-6), "greater than 1"),
    "conversion nothing": (lambda: c.renyi_to_epsilon([], [], 1e-6), "pair up"),
    "conversion negative": (lambda: c.renyi_to_epsilon([2], [-0.1], 1e-6), "at least 0"),
    "conversion nan": (lambda: c.renyi_to_epsilon([2], [math.nan], 1e-6), "at least 0"),
    "conversion text": (lambda: c.renyi_to_epsilon([2], ["a"], 1e-6), "numbers"),
    "accountant curve": (lambda: c.RenyiAccountant().compose(0.1), "function"),
    "accountant count": (lambda: c.RenyiAccountant().compose(lambda _: 0.1, 0), "count"),
    "accountant bad curve": (lambda: c.RenyiAccountant().compose(lambda _: -1.0), "at least 0"),
    "accountant delta": (lambda: c.RenyiAccountant().epsilon(0), "delta"),
    "accountant epsilon": (lambda: c.RenyiAccountant().delta(-1), "epsilon"),
    "guarantee epsilon": (lambda: c.Guarantee(-1.0, 0.0), "epsilon"),
    "guarantee nan": (lambda: c.Guarantee(math.nan, 0.0), "epsilon"),
    "guarantee delta": (lambda: c.Guarantee(1.0, 2.0), "delta"),
    "guarantee text": (lambda: c.Guarantee("1", 0.0), "numbers"),
    "loss shapes": (lambda: c.PrivacyLoss([0, 1], [1]), "equal length"),
    "loss text": (lambda: c.PrivacyLoss("ab", [1]), "numbers"),
    "loss order": (lambda: c.PrivacyLoss([1, 0], HALF), "increasing"),
    "loss infinite": (lambda: c.PrivacyLoss([math.inf], [1]), "finite"),
    "loss negative": (lambda: c.PrivacyLoss([0, 1], [1.5, -0.5]), "negative"),
    "loss mass": (lambda: c.PrivacyLoss([0, 1], [0.5, 0.4]), "sum to"),
    "loss infinite mass": (lambda: c.PrivacyLoss([0], [1], infinite=0.5), "sum to"),
    "loss mu": (lambda: c.PrivacyLoss([0], [1], mu=-1), "mu"),
    "loss gaussian": (lambda: c.PrivacyLoss.gaussian(0), "sigma"),
    "loss response": (lambda: c.PrivacyLoss.randomized_response(0), "epsilon"),
    "loss laplace": (lambda: c.PrivacyLoss.discrete_laplace(1, 2.5), "sensitivity"),
    "loss wide laplace": (lambda: c.PrivacyLoss.discrete_laplace(1, 2**18), "upper bound"),
    "loss epsilon": (lambda: LOSS.delta(math.nan), "finite"),
    "loss delta": (lambda: LOSS.epsilon(1), "delta"),
    "loss tail": (lambda: LOSS.tail("1"), "number"),
    "loss compose": (lambda: LOSS.compose(1.0), "PrivacyLoss"),
    "loss count": (lambda: LOSS.self_compose(0), "count"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_an_explanation(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(InvalidParameterError, match=words):
        call()


def test_numpy_numbers_are_welcome() -> None:
    assert c.pure_to_zcdp(np.float64(0.5)) == c.pure_to_zcdp(0.5)
    assert c.optimal(0.1, np.int64(9), slack=1e-6) == c.optimal(0.1, 9, slack=1e-6)
    assert c.basic(np.full(10, 0.1)).epsilon == 1.0


def test_results_are_plain_floats() -> None:
    values = [
        c.hockey_stick(HALF, [0.4, 0.6], 0), c.max_divergence(HALF, [0.4, 0.6]),
        c.approximate_max_divergence(HALF, [0.4, 0.6], 0.01), c.kl_divergence(HALF, [0.4, 0.6]),
        c.renyi_divergence(HALF, [0.4, 0.6], 3), c.gaussian_delta(1, sigma=1), LOSS.mean,
        LOSS.tail(0), LOSS.delta(0), LOSS.epsilon(0.1), c.optimal(0.1, 10, slack=1e-6).epsilon,
    ]  # fmt: skip
    assert {type(value) for value in values} == {float}


def test_every_public_name_is_documented_with_an_example() -> None:
    assert sorted(c.__all__) == sorted(set(c.__all__))
    for name in c.__all__:
        value = getattr(c, name)
        if callable(value):
            assert ">>>" in (value.__doc__ or ""), name


@pytest.mark.slow
def test_importing_needs_no_test_library() -> None:
    code = (
        "import sys, dp_polars.theory as c;"
        "c.PrivacyLoss.gaussian(20).self_compose(9).epsilon(1e-6);"
        "print([m for m in ('scipy', 'dp_accounting', 'mpmath') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
