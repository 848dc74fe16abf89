"""Privacy accounting for reading and planning: composition, conversions, divergences and accountants.

Every function states what holds for releases whose parameters are fixed in advance, rounded to the safe side. Nothing
here charges a budget; the filters that do so live in `dp_polars._session`.

- `composition`: basic, advanced and optimal composition, group privacy, and the `Guarantee` they return.
- `conversions`: between pure, approximate and zero-concentrated differential privacy.
- `divergence`: divergences of two discrete distributions.
- `renyi`: Renyi divergences of common mechanisms, and the moments accountant.
- `privacy_loss`: the distribution of the privacy loss and its exact (epsilon, delta) curve.
- `_convolution`, `_normal`, `_rounding`: sums of losses, normal tails, and rounding to the safe side.

May import: numpy, `_numbers`, `errors`. Never: mechanisms, sessions, engines or data.

Examples
--------
>>> from dp_polars import theory
>>> theory.basic([0.1] * 10)
Guarantee(epsilon=1.0, delta=0.0)
"""

from __future__ import annotations

from dp_polars.theory.composition import (
    Guarantee,
    advanced,
    basic,
    group_privacy,
    group_zcdp,
    optimal,
)
from dp_polars.theory.conversions import (
    approximate_to_zcdp,
    gaussian_delta,
    pure_to_zcdp,
    zcdp_of_exponential_mechanism,
    zcdp_of_gaussian,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from dp_polars.theory.divergence import (
    approximate_max_divergence,
    hockey_stick,
    kl_divergence,
    max_divergence,
)
from dp_polars.theory.privacy_loss import PrivacyLoss
from dp_polars.theory.renyi import (
    DEFAULT_ORDERS,
    RenyiAccountant,
    renyi_divergence,
    renyi_of_gaussian,
    renyi_of_laplace,
    renyi_of_randomized_response,
    renyi_to_epsilon,
)

__all__ = [
    "DEFAULT_ORDERS",
    "Guarantee",
    "PrivacyLoss",
    "RenyiAccountant",
    "advanced",
    "approximate_max_divergence",
    "approximate_to_zcdp",
    "basic",
    "gaussian_delta",
    "group_privacy",
    "group_zcdp",
    "hockey_stick",
    "kl_divergence",
    "max_divergence",
    "optimal",
    "pure_to_zcdp",
    "renyi_divergence",
    "renyi_of_gaussian",
    "renyi_of_laplace",
    "renyi_of_randomized_response",
    "renyi_to_epsilon",
    "zcdp_of_exponential_mechanism",
    "zcdp_of_gaussian",
    "zcdp_to_delta",
    "zcdp_to_epsilon",
]
