"""The language of private rows: a small typed tree that every front end parses into and every engine runs.

- `tree`: columns, constants and operations, each with its type; their canonical text.
- `operations`: the list of operations, the types they take, and why each is row-wise and total.
- `constants`: public values, converted to the type of a column exactly or not at all.
- `types`: kinds of types, and the limits (lengths, depths) of the language.
- `from_polars`: the parser of Polars expressions; that of SQL is `dp_polars._sql.expressions`.
- `hostile`: values that break functions, for rehearsals before a question and for tests.
- `messages`: why something is refused, in the user's words.

Nothing here reads a row or imports an engine. What is not on the list of operations can't be written down.
"""

from dp_polars._expressions.constants import constant
from dp_polars._expressions.operations import OPERATIONS, apply
from dp_polars._expressions.tree import Apply, Column, Constant, Expression, canonical

__all__ = ["OPERATIONS", "Apply", "Column", "Constant", "Expression", "apply", "canonical", "constant"]
