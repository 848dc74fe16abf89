"""Private questions in SQL.

The way of a statement:

- `connection`: the guarded connection, `dp.connect`; `functions`: the same questions as functions, `dp.register`;
- `tree`: DuckDB parses it; nodes, their children and their place in the text;
- `statement`: cuts it at its private aggregations into `questions` below and `ordinary` SQL on released rows above;
- `relations`: which rows a FROM gives and whose they are; `projection`: the same after SELECT and WHERE; `tables`: what
  names mean there; `names`, `calls`;
- `expressions`: reads SQL over private rows into the language of private rows; `types`: SQL types and those of Polars;
- `catalog`: which table a name stands for, and what was declared of it; `files`, `frames`, `delimited`, `column_types`:
  registered files and frames;
- `sandbox`: the empty database in which everything public or released runs; `verify`: a last look at what runs there;
- `asking`: plans and asks the questions, and makes tables of their answers; `responses`, `local`: the local model;
  `texts`: the SQL files.

DuckDB computes nothing on private rows: it hands over columns, and `dp_polars._engines` does the rest.
"""
