"""The Polars engine: Polars reads, filters and packs rows into integers, `bounding` does the rest."""

from dp_polars._engines.polars.engine import parts_for, run_bounded

__all__ = ["parts_for", "run_bounded"]
