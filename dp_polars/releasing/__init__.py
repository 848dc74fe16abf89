"""The only place that reserves, adds noise and commits.

`run` is the way of a plan to a release: reserve the price, let the engine aggregate, `noise` the exact integers,
`present` what people get, commit. `source` says when two sources are the same; `deferred` makes a lazy frame of a
release that happens once. `stream` opens what is charged once and asked again and again, over a `snapshot` of the rows.
"""
