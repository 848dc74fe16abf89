"""Private questions in SQL.

The way of a statement:

- `connection`: the guarded connection, `dp.connect`; `functions`: the same questions as functions, `dp.register`;
- `tree`: DuckDB parses it; nodes, their children and their place in the text;
- `statement`: cuts it at its private aggregations into `questions` below and `ordinary` SQL on released rows above;
- `relations`: which rows a FROM gives, whose they are, and that every step keeps a unit's rows apart; `projection`: the
  same for SELECT and WHERE; `rowwise`, `allowed`: which expressions look at one row and nothing else; `names`, `calls`;
- `catalog`: what is known about tables and functions; `verify`: a last look at every text before it runs;
- `asking`: plans and asks the questions, and makes tables of their answers; `texts`: the SQL files.
"""
