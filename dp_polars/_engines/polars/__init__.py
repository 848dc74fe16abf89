"""The Polars engine: Polars reads and filters rows and packs them into integers, and `bounding` does the rest.

From a private frame to rows in memory:

- `scan`: a Polars plan as a source; passes over it, in several threads, that provably see every row;
- `evaluation`: the steps of a private frame, applied to one batch of rows at a time;
- `unit_steps`: steps that combine the rows of one unit, computed in memory;
- `program`: expressions computed on a batch, such that a row that fails becomes null and disturbs no other;
- `lowering`: each operation of the expression language as a Polars expression;
- `memory`: upper bounds on the memory that a batch needs.

From rows to exact bounded aggregates:

- `engine`: the engine protocol, and the bounded aggregation of a request;
- `held_frame`: a frame in memory, and what is known about its columns;
- `known_columns`: codes of keys that are kept with such a frame;
- `sorted_rows`: units and groups of such a frame, kept in sorted order for the next question;
- `growing_codes`: codes of texts that are learned while rows are read; `read_once`: rows that wait for them;
- `short_texts`: codes of texts of a frame in memory that are short enough to be compared as integers;
- `group_order`: the order in which units keep their groups;
- `codes`: exact integer codes for keys and units; `hash_table`: the table behind them;
- `units`: which unit a row belongs to, as one or two 64-bit words;
- `value_codes`: values as integers on a grid, as bins or as hashes;
- `row_units`: the aggregation when every row is a unit of its own;
- `kept_rows`: a random choice of the rows that each unit keeps;
- `stream_answers`: exact answers to the queries of a stream;
- `file_plans`: when two Polars plans read the same files, and whether lines of a file decide types.

May import: what `_engines` may import, and `_engines.base`, `_engines.bounding`. Never: `registry`, `duckdb`.
"""

from dp_polars._engines.polars.engine import PolarsEngine, run_bounded

__all__ = ["PolarsEngine", "run_bounded"]
