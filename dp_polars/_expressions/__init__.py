"""The expression language of private rows: a small typed tree that front ends parse into and engines compute.

- `tree`: columns, constants and operations, each with its type; their canonical text; checked expressions;
- `operations/`: the table of operations, the types that they accept, and why each never fails;
- `constants`: public values, converted to the type of a column exactly or not at all;
- `types`: kinds of types, and the limits of the language;
- `from_polars`: the parser of Polars expressions (the parser of SQL is `_sql.expressions`);
- `unit_functions`: the functions of steps that combine the rows of one unit, such as `first` and `cum_sum`;
- `unit_expressions`: Polars expressions that use these functions;
- `check`: checks user expressions and runs them on hostile values before any private row is read;
- `hostile`: made-up values on which functions usually fail;
- `readable`: expressions as people write them, for labels and plans;
- `messages`: why an expression is refused.

May import: `errors`; `check` alone also imports the list of engines. Never: anything that reads a private row, plans or
charges. An operation that is not in the table cannot be expressed.
"""

from dp_polars._expressions.constants import constant
from dp_polars._expressions.operations import OPERATIONS, apply
from dp_polars._expressions.tree import Apply, Column, Constant, Expression, canonical

__all__ = ["OPERATIONS", "Apply", "Column", "Constant", "Expression", "apply", "canonical", "constant"]
