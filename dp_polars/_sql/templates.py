"""The SQL texts, which are files: in `sql/` of the project, and in the package when it is installed."""

from __future__ import annotations

from pathlib import Path

_PLACES = (Path(__file__).parent / "templates", Path(__file__).parents[2] / "sql")


def sql_text(name: str) -> str:
    """Return a SQL text by its name."""
    for place in _PLACES:
        path = place / f"{name}.sql"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError(f"dp_polars is installed without its SQL text {name}.sql.")
