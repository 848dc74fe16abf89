"""Differential privacy inside Polars and DuckDB, with one budget that cannot overspend.

>>> import dp_polars as dp
>>> session = dp.Session(epsilon=1.0, unit="user_id")
>>> session.remaining.epsilon
1.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars import composition, mechanisms
from dp_polars.accounting import ROW, Budget, Closing, Cost, Fact, Release, Reservation, Session, Terms
from dp_polars.accounting.current import current_session, set_session
from dp_polars.accounting.pricing import exponential_cost, gaussian_cost, pure_cost
from dp_polars.asking.aggregates import (
    Asked,
    corr,
    count,
    count_units,
    cov,
    histogram,
    linear_regression,
    max,
    mean,
    median,
    min,
    n_unique,
    quantile,
    std,
    sum,
    var,
)
from dp_polars.asking.domain import Bins, bins
from dp_polars.asking.frame import PrivateFrame
from dp_polars.asking.namespace import private, put_namespace
from dp_polars.asking.online_queries import OnlineQueries
from dp_polars.asking.options import ChoiceOptions, OpeningOptions, Options
from dp_polars.asking.responses import ResponseOptions
from dp_polars.asking.streams import Stream
from dp_polars.errors import (
    BudgetExceeded,
    DPError,
    DPWarning,
    EngineError,
    ExpressionNotAllowed,
    InvalidDataError,
    InvalidParameterError,
    LedgerError,
    LedgerMismatch,
    SessionClosed,
    StatementNotAllowed,
)
from dp_polars.mechanisms.frequencies import estimate_frequencies
from dp_polars.planning.online import OnlinePlan
from dp_polars.planning.plan import Plan
from dp_polars.planning.stream import StreamPlan
from dp_polars.planning.synthesis import SynthesisPlan
from dp_polars.releasing.online import OnlineAnswer
from dp_polars.releasing.synthesis import Synthesis

if TYPE_CHECKING:
    from dp_polars.auditing.audit import audit
    from dp_polars.auditing.result import AuditResult
    from dp_polars.showing.charts.plot import plot
    from dp_polars.sql.connection import GuardedConnection, connect
    from dp_polars.sql.functions import register

__all__ = [
    "ROW",
    "Asked",
    "AuditResult",
    "Bins",
    "Budget",
    "BudgetExceeded",
    "ChoiceOptions",
    "Closing",
    "Cost",
    "DPError",
    "DPWarning",
    "EngineError",
    "ExpressionNotAllowed",
    "Fact",
    "GuardedConnection",
    "InvalidDataError",
    "InvalidParameterError",
    "LedgerError",
    "LedgerMismatch",
    "OnlineAnswer",
    "OnlinePlan",
    "OnlineQueries",
    "OpeningOptions",
    "Options",
    "Plan",
    "PrivateFrame",
    "Release",
    "Reservation",
    "ResponseOptions",
    "Session",
    "SessionClosed",
    "StatementNotAllowed",
    "Stream",
    "StreamPlan",
    "Synthesis",
    "SynthesisPlan",
    "Terms",
    "audit",
    "bins",
    "composition",
    "connect",
    "corr",
    "count",
    "count_units",
    "cov",
    "current_session",
    "estimate_frequencies",
    "exponential_cost",
    "gaussian_cost",
    "histogram",
    "linear_regression",
    "max",
    "mean",
    "mechanisms",
    "median",
    "min",
    "n_unique",
    "plot",
    "private",
    "pure_cost",
    "quantile",
    "register",
    "set_session",
    "std",
    "sum",
    "var",
]

put_namespace()


def __getattr__(name: str) -> object:
    """Import DuckDB's side, audits and charts only when they are asked for."""
    if name == "audit":
        from dp_polars.auditing.audit import audit

        return audit
    if name == "AuditResult":
        from dp_polars.auditing.result import AuditResult

        return AuditResult
    if name in ("connect", "GuardedConnection"):
        from dp_polars.sql import connection

        return getattr(connection, name)
    if name == "register":
        from dp_polars.sql.functions import register

        return register
    if name == "plot":
        from dp_polars.showing.charts.plot import plot

        return plot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


__version__ = "0.1.0.dev0"
