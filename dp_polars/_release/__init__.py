"""The only place that reserves, adds noise and commits.

`charging` is the way from a charge to a release, for everything that is released at once: reserve the price, read, add
noise, commit. `run` does a query in between: let the engine aggregate, `noise` the exact integers, `present` the rest.
`source` says when two sources are the same; `deferred` makes a lazy frame of a release that happens once. `stream`
opens what is charged once and asked again and again, over a `snapshot` of the rows. `rehearsal` notes how releases of a
throwaway session are made, for `dp.audit` alone.
"""
