"""From a question to a plan: what may change, by how much, with which noise, at what price.

`query` is what was asked, `bounds` what one unit may contribute; `making` and `building` say what engines compute and
what of that gets noise, as `pieces` on their `grid`, `sensitivity` how far one unit moves them; `spend` the mechanism
and its price, `plan` all of it together; `stream` is the plan of a stream. `auto` is for caps and bounds that are
estimated, `totals` for tables with totals. Each is a frozen value, made from the one before. Nothing here reads a row:
a plan depends on the query, the schema and the session's terms alone.
"""
