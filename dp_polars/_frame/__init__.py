"""Front ends that build queries: `df.dp` for Polars, with its checked expressions and its options."""
