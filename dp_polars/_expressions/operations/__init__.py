"""The operations of the expression language: the types that they accept and return, and why they never fail.

Every operation is **row-wise**: its value in a row depends only on its arguments in that row and on public parameters.
It is also **total**: it has a value, possibly null, for every value of the types that it accepts, and never fails. The
reason for this stands beside each operation. `tests/expressions/test_evidence.py` runs every operation on every
combination of types that it accepts, with hostile values: a row alone, among others, shuffled, and in batches of
several sizes.

`apply` is the only way to build an operation. It converts arguments to the types that the operation works on: integers
to Int64, floats to Float64, categories to texts, and constants exactly to the type of the column beside them.

An entry of the table looks like this. The decorator registers the operation under its name, and the function checks the
arguments and parameters and returns the tree:

    @operation("name", "Why it never fails.", spoken="what users call it", samples=(parameters for the tests,))
    def _name(x: Expression, *, parameter: int) -> Expression: ...

- `base`: the table itself, `apply`, and conversions to the types that operations work on;
- `logic`: logic, comparisons and choices;
- `numbers`: arithmetic, rounding, functions of floats, and intervals;
- `conversion`: casts, and tables of old and new values;
- `texts`: search, replacement, slices and parsing;
- `times`: dates, datetimes, durations and times of day;
- `nested`: lists, arrays and structs.
"""

from dp_polars._expressions.operations import conversion, logic, nested, numbers, texts, times
from dp_polars._expressions.operations.base import OPERATIONS, Operation, apply

__all__ = ["OPERATIONS", "Operation", "apply", "conversion", "logic", "nested", "numbers", "texts", "times"]
