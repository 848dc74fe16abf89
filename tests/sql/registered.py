"""Registering functions takes longer than asking them, so tests that only read share a database that has them."""

from dp_polars._sql.catalog import Database
from dp_polars._sql.functions import BUDGET_TYPE, Functions


def let_functions_charge(raw, session):
    """Put another session behind the macros of a connection on which `dp.register` was called."""
    functions = Functions(Database(raw), session)
    raw.remove_function("dp_ask")
    raw.create_function("dp_ask", functions.ask, ["VARCHAR"], "VARCHAR", side_effects=True)
    raw.remove_function("dp_left")
    raw.create_function("dp_left", functions.budget, [], BUDGET_TYPE, side_effects=True)
