"""Engines: they read private rows, bound what each unit contributes, and return exact integers per group.

- `request`: what an engine is asked to compute, and its exact answer;
- `rows`: the rows of a private frame, a source and the steps applied to it;
- `unit_steps`: steps that combine the rows of one unit;
- `nulls`: which columns can't be null;
- `normal_form`: when two ways to write rows mean the same rows;
- `base`: the protocol that every engine follows, and what identifies a source;
- `registry`: the list of engines;
- `workers`: threads that share the work on the rows of one question;
- `bounding/`: contribution bounding on sorted integers, shared by engines that hold rows in memory;
- `polars/`: the Polars engine;
- `duckdb/`: DuckDB tables as sources of rows, which the Polars engine reads;
- `spark/`: the Spark engine.

To add an engine, write a folder with a `Source` for its rows and a class that follows `base.Engine`, and add an
instance to `registry.ENGINES`. If it holds rows in memory, `bounding` does the aggregation.

May import: `_expressions`, `_sampling`, `errors`.
Never: front ends and features (`_frame`, `_sql`, `_choices`, ...), plans, releases or sessions. Planning imports
`request` and nothing else from here.
"""
