"""Plans: what will happen to a query, how far one unit can move the answer, which noise is added, and what it costs.

A query passes through these modules, in this order. Each step turns one frozen object into the next.

- `query`: what was asked (`Query`), in the form that every front end builds.
- `contribution`: the caps on what one unit contributes.
- `compile`: turns the needs of the aggregates into what an engine computes and what gets noise.
- `statistics`: what the compiler returns.
- `grid`: the power-of-two grids that values are rounded to.
- `sensitivity`: how far one unit can move the exact answers.
- `spend`: the mechanism that a spend buys, and its price in the session.
- `discovery`: what decides which groups are shown if keys are not public.
- `plan`: `plan_of`, which puts all of this together, and `Plan`, its result.
- `description`: the table that a plan prints.
- `units_needed`: how many units a discovered group needs, in words.

Beside this path:

- `auto`: caps and bounds that are estimated from the data with a fraction of the spend.
- `auto_bounds`: how pairs of bounds are scored for that.
- `ranks`: how far the rank of a chosen quantile may be off, and where the ends of its interval are chosen.
- `cut`: what is known about what caps and bounds cut off.
- `rollup`: totals over the last keys.
- `base`: what the plans of all features have in common.
- `digest`: digests of public frames, for the fingerprint of a query.
- `canonical`: a text form of parts of a plan, and an order of aggregates that does not depend on how they are listed.
- `draw`: what identifies a draw of noise. Presenting the same draw in another way is free.

Features have plans of their own (`_choices.plan`, `_streams.plan`, ...), which build on `base` and `spend`.

May import: `_aggregates`, `_session`, `_engines.request`, `_display.fact_table`, `_sampling`, `mechanisms`, `theory`,
`_numbers` and `errors`. Never: data. A plan depends on the query, the schema and the session's terms alone, so nothing
here imports an engine, a release or a front end.
"""
