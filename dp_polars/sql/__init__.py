"""Private questions in SQL.

The way of a statement:

- `tree`: DuckDB parses it; nodes, their children and their place in the text;
- `allowed`, `rowwise`: which expressions look at one row and nothing else;
- `relations`: which rows a FROM gives, whose they are, and that every step keeps a unit's rows apart;
- `statement`: cuts a statement at its private aggregations: below, questions; above, ordinary SQL on released rows;
- `connection`: the guarded connection, `dp.connect`.
"""
