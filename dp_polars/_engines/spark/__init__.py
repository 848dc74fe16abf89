"""The Spark engine: a bounded request becomes one deterministic SQL text, which a cluster runs.

Rows stay on the cluster. Bounded integer aggregates come to the driver as Arrow, and noise is drawn there, so a task
that Spark runs twice changes nothing. The package never imports pyspark: it calls methods of the user's DataFrame.

- `types`: Spark's types, the Polars types that stand for them, and how each is stored in SQL;
- `source`: a Spark DataFrame as a source of private rows, and how a text is run on its session;
- `lowering`: operations of the expression language as SQL text, and which of them are refused;
- `texts`: parts that all texts share: rows as a text, salted hashes, and floats in one form;
- `steps`: filters, new columns and lookups of a private frame as nested SELECTs;
- `unit_steps`: steps that combine the rows of a unit, and which of their functions are refused;
- `aggregation`: a bounded request as one SQL text;
- `engine`: the engine itself, and how its answers are put together.

May import: `_engines.base`, `_engines.request`, `_engines.rows`, `_engines.unit_steps`, `_expressions`, `_sampling`,
`errors`, and `_engines.polars`, which chooses the rows of a snapshot.
"""
