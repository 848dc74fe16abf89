"""Put the namespace `dp` on Spark's DataFrames: `import dp_polars.spark`.

Afterwards `spark_df.dp` is the same as `dp.private(spark_df)`, as `df.dp` is for Polars frames. This loads pyspark,
which `import dp_polars` never does. `dp.private(spark_df, session)` needs no such import.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from dp_polars._frame.private_frame import PrivateFrame

try:
    from pyspark.sql import DataFrame
except ImportError:
    raise ImportError(
        "Spark's client is not installed. It comes with the extra spark: pip install 'dp-polars[spark]'."
    ) from None


def _private(frame: Any) -> PrivateFrame[pl.DataFrame]:
    """Return the private frame of a Spark DataFrame. See `dp.private`."""
    return PrivateFrame(frame)


# The classic DataFrame and that of Connect both inherit from this one.
DataFrame.dp = property(_private)  # type: ignore[attr-defined]
