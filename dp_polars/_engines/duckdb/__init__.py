"""DuckDB as a source of rows."""
