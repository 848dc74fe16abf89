"""DuckDB as a source of rows.

- `rows`: a table as a source that the Polars engine reads, and what identifies the table.

May import: `_engines.base`, `_engines.rows`, `_engines.polars`, `_expressions`. Never: `_sql`, which uses it.
"""
