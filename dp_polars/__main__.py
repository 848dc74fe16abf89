"""`python -m dp_polars` is the command `dp-polars`."""

from __future__ import annotations

import sys

from dp_polars._cli import main

if __name__ == "__main__":
    sys.exit(main())
