"""DuckDB SQL with private aggregates: `dp.connect` and `dp.register`.

A statement passes through these modules, in this order:

- `connection`: receives the text (`GuardedConnection.sql`) and returns the result;
- `syntax_tree`: parses the text with DuckDB's own parser, and finds, changes and makes nodes of the tree;
- `analysis`: decides what is private, follows the units, and cuts the tree at the private aggregations, with the help
  of `relations` (the rows of tables, SELECT and WHERE), `unit_steps` and `unit_functions` (groups, windows and distinct
  rows within a unit), `joins` (with public rows), `private_joins` (of private rows, on the unit), `scope` (what names
  mean), `aggregate_calls` (calls of private aggregates and their options), `grouping_sets` (ROLLUP and CUBE),
  `plain_sql` (COUNT and AVG as private aggregates, with a policy), `interval_ends` (`dp_low(n)` and its siblings),
  `expressions` (SQL expressions over private rows as typed expressions) and `allowed_functions` (the functions that a
  statement may call);
- `queries`: plans and releases the queries over private rows, with the same plans, releases and ledger as Polars;
- `spark_tables`: tables of a Spark session, for `dp.connect(spark, session)`;
- `sandbox`: checks the SQL above the private aggregations and runs it on the released rows, in an empty database.

Beside this path:

- `catalog`: tables, views, registered files and frames, and what their owner declared about them;
- `files`, `text_files`, `delta_tables`, `frames`: open and identify registered files and frames; `file_states`: when
  a file last changed; `types`: SQL and Polars types;
- `functions`: the aggregates as functions on a user's own connection (`dp.register`), from the templates in `sql/`;
- `local_statements`: the two statements of the local model; `summaries`: SUMMARIZE, a profile of private rows;
  `descriptions`: DESCRIBE and SHOW TABLES; `public_facts`: information_schema and dp_budget(); `pivots`: PIVOT of
  answers; `option_words`: messages about options as SQL writes them.

DuckDB computes nothing on private rows. It hands over columns, and `dp_polars._engines` computes.

May import: every package except `_policy`, `_audit` and `_cli`. Imported only by `_policy`, `_cli`, `ibis` and
`dp_polars` itself.
"""
