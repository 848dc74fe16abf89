"""Releases: charge the price, read the rows, add noise, and commit the answer to the ledger.

This package and the release modules of the features are the only places that see exact numbers.

- `charge`: the only way to private rows. It reserves the price first, guards the work, and commits the result. It also
  finds what was drawn before, and presents it as it is asked for now.
- `run`: the work for a query, from its plan to its release, and warnings about what was released.
- `auto`: estimates the caps and bounds that a plan leaves open, before the query itself runs.
- `noise`: adds noise to exact aggregates and decides which discovered groups are shown.
- `quantiles`: chooses values at quantiles by the exponential mechanism.
- `rollup`: computes totals and makes noisy tables agree with them.
- `noisy_numbers`: the noisy numbers from which an aggregate computes its answer. Only sees what is released.
- `intervals`: the confidence limits from which the ends of intervals are computed. Only sees what is released.
- `answers`: the frame that a user gets. Only sees what is released.
- `expected_error`: the error of answers in a made-up group of a given size. Reads no private rows.
- `small_groups`: finds groups that are too small for their noise. Only sees what is released.
- `rehearsal`: records how the releases of a throwaway session are made, for `dp.audit` alone.

Features have release modules of their own: `_choices.release`, `_streams.release`, `_local.release`,
`_profile.release`, `_many.histogram`, `_many.online_release` and `_many.synthesis_release`. They charge through
`charge`, too.

May import: `_plan`, `_engines`, `_session`, `_aggregates`, `_sampling`, `mechanisms`, `errors`. Never: features, front
ends or `_display`.
"""
