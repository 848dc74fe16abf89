"""What releases cost, whether a session can afford them, and the record that it was charged.

`terms` is what was agreed, `cost` what a release declares, `pricing` how a spend becomes a cost, `filters` the rule
that accepts or refuses, `price` the smallest price, `ledger` the record (SQLite, in memory or in a file), `running`
the locks of charges at work, `fact` what the owner says about the data, `session` the door to all of them.
Nothing here reads data or draws noise.
"""

from dp_polars._session.budget import Budget
from dp_polars._session.cost import Cost
from dp_polars._session.facts import Fact
from dp_polars._session.ledger import Closing
from dp_polars._session.release_record import Release
from dp_polars._session.reservation import Reservation
from dp_polars._session.session import Session
from dp_polars._session.terms import ROW, Terms

__all__ = ["ROW", "Budget", "Closing", "Cost", "Fact", "Release", "Reservation", "Session", "Terms"]
