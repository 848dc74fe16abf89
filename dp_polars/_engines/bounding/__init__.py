"""Contribution bounding on sorted integers: the part that all engines share.

What one unit can change: every row belongs to one unit and one group. A row is put into unsigned integers,

    unit | order | group | value

where `order` is a hash of (salt, unit, group) by their values and `group` numbers the groups in the order of their
values. After sorting, the rows of a unit stand together, its groups one after another in the order of the hash, ties by
the order of the key values. So which `max_groups` groups a unit keeps depends on the salt and on its own rows alone:
rows of other units may change a group's number, never the order of two groups. Each unit keeps exactly
min(its groups, max_groups). For sums and counts a unit with more than `max_rows` rows in a group is scaled down, not
cut, so no row is preferred for its position; for cells (quantiles, histograms, distinct values) it keeps `max_rows` of
them by a hash of its own values. Sums are of integers, in limbs where 64 bits might not hold them.

Why it is fast: one sort of integers for each lane of a request and a few passes over the runs, in blocks that stay in
the cache; nothing is hashed into tables or joined. The way of the rows:

- `lanes`: what each lane of a request collects, of all rows at once or of a part of the units after another;
- `bound`: chooses a plan by how many bits a row needs; the plan never changes the answer;
- `packed`: a row in one integer, all together or in parts by unit;
- `slots`: short numbers for most units of 64 bits or more, so that their rows fit one integer too;
- `wide`: rows that need more bits, in parts by unit, whose units are numbered first;
- `blocks`: sorted rows of whole units; `moments`, `sums`: capped sums by group; `cells`: values that are kept.

The slow reference is `tests/engines/reference.py`.
"""

from dp_polars._engines.bounding.blocks import ORDER_BITS, GroupCap
from dp_polars._engines.bounding.lane import LaneBounding, LaneResult
from dp_polars._engines.bounding.units import Rows

__all__ = ["ORDER_BITS", "GroupCap", "LaneBounding", "LaneResult", "Rows"]
