"""From a question to a plan: what may change, by how much, with which noise, at what price.

`query` is what was asked, `bounds` what one unit may contribute, `sensitivity` how far that moves the answer, `spend`
the mechanism and its price, `plan` all of it together. Each is a frozen value, each made from the one before. Nothing
here reads a row: a plan depends on the query, the schema and the session's terms alone.
"""
