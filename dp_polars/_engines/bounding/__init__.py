"""Contribution bounding on sorted integers, shared by all engines that hold rows in memory.

Every row belongs to one unit and one group. A row is packed into unsigned integers,

    unit | order | group | value

where `order` is a hash of salt, unit and group, and `group` numbers the groups in the order of their key values. After
sorting, the rows of a unit are adjacent. Its groups follow each other in the order of the hash, ties in the order of
the keys. If the order can be computed from the numbers of unit and group, rows are packed without it. Then it is
computed for runs (all rows of one unit in one group) after sorting, and only where some unit has too many groups.

What one unit can change: which `max_groups` groups a unit keeps depends on the salt and on its own rows alone. Rows of
other units may change the number of a group, but never the order of two groups. Each unit keeps exactly
min(its groups, max_groups) groups. For sums and counts, a unit with more than `max_rows` rows in a group (or in all
groups together, with `across`) is scaled down instead of cut, so no row is preferred for its position. For cells
(quantiles, histograms, distinct values) it keeps `max_rows` of its rows, chosen by a hash of its own values. All sums
are of integers and exact.

Why it is fast: each lane takes one sort of integers and a few passes over the runs, in blocks that stay in the cache.
No row is hashed into a table or joined.

- `lane`: bounding for one lane of a request, for all rows at once or for one part of the units after another;
- `sorters`: take rows in any order and pass them on as sorted blocks;
- `row_store`: memory for rows that wait to be sorted, and short numbers for long units;
- `blocks`: packed rows, how they are sorted, and the runs of whole units that result;
- `sums`: capped contributions and exact sums per group;
- `cells`: counts of kept values, and profiles of units.

The slow reference implementation is `tests/engines/reference.py`.

Threads share the work: rows are packed in several threads, the packed words are sorted in pieces, and blocks of whole
units are bounded in any order. Sums are of integers, so the order changes nothing.

May import: `_engines.request` and `_engines.workers`. Never: any other part of the package; it works on numpy arrays
alone.
"""

from dp_polars._engines.bounding.blocks import ORDER_BITS, GroupCap
from dp_polars._engines.bounding.lane import LaneBounding, LaneResult
from dp_polars._engines.bounding.sorters import CodedRows

__all__ = ["ORDER_BITS", "CodedRows", "GroupCap", "LaneBounding", "LaneResult"]
