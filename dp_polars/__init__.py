"""Differential privacy inside Polars, DuckDB and Spark, with one budget that cannot be overspent.

>>> import dp_polars as dp
>>> session = dp.Session(epsilon=1.0, unit="user_id")
>>> session.remaining.epsilon
1.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars import _aggregates, mechanisms, theory
from dp_polars._aggregates import *  # noqa: F403 - exactly its __all__: a new aggregate needs no line here
from dp_polars._choices.plan import ChoicePlan
from dp_polars._frame.dashboard import Dashboard
from dp_polars._frame.options import ChoiceOptions, OpeningOptions, Options, ProfileOptions, ResponseOptions
from dp_polars._frame.private_frame import PrivateFrame, concat, private, register_namespace
from dp_polars._many.domain import Bins, bins
from dp_polars._many.online_plan import OnlinePlan
from dp_polars._many.online_queries import OnlineQueries
from dp_polars._many.online_release import OnlineAnswer
from dp_polars._many.synthesis import Synthesis
from dp_polars._many.synthesis_plan import SynthesisPlan
from dp_polars._plan.plan import Plan
from dp_polars._profile.plan import ProfilePlan
from dp_polars._profile.profile import TableProfile
from dp_polars._session.cost import Budget, Cost
from dp_polars._session.ledger import Closing, Fact
from dp_polars._session.prices import exponential_cost, gaussian_cost, pure_cost
from dp_polars._session.releases import Release, Reservation
from dp_polars._session.session import Session, current_session, set_session
from dp_polars._session.terms import ROW, Terms
from dp_polars._streams.plan import StreamPlan
from dp_polars._streams.stream import Stream
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
    PolicyError,
    SessionClosed,
    StatementNotAllowed,
)
from dp_polars.mechanisms.frequencies import estimate_frequencies

if TYPE_CHECKING:
    from dp_polars._audit.audit import audit
    from dp_polars._audit.result import AuditResult
    from dp_polars._display.charts.plot import plot
    from dp_polars._display.report import Report
    from dp_polars._policy.analyst import AnalystConnection
    from dp_polars._policy.policy import Policy
    from dp_polars._sql.connection import GuardedConnection, connect
    from dp_polars._sql.functions import register

__all__ = [
    "ROW",
    "AnalystConnection",
    "AuditResult",
    "Bins",
    "Budget",
    "BudgetExceeded",
    "ChoiceOptions",
    "ChoicePlan",
    "Closing",
    "Cost",
    "DPError",
    "DPWarning",
    "Dashboard",
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
    "Policy",
    "PolicyError",
    "PrivateFrame",
    "ProfileOptions",
    "ProfilePlan",
    "Release",
    "Report",
    "Reservation",
    "ResponseOptions",
    "Session",
    "SessionClosed",
    "StatementNotAllowed",
    "Stream",
    "StreamPlan",
    "Synthesis",
    "SynthesisPlan",
    "TableProfile",
    "Terms",
    "audit",
    "bins",
    "concat",
    "connect",
    "current_session",
    "estimate_frequencies",
    "exponential_cost",
    "gaussian_cost",
    "mechanisms",
    "plot",
    "private",
    "pure_cost",
    "register",
    "set_session",
    "theory",
]
__all__ += _aggregates.__all__

register_namespace()


def __getattr__(name: str) -> object:
    """Import DuckDB's side, audits and charts only when they are asked for."""
    if name == "audit":
        from dp_polars._audit.audit import audit

        return audit
    if name == "AuditResult":
        from dp_polars._audit.result import AuditResult

        return AuditResult
    if name in ("connect", "GuardedConnection"):
        from dp_polars._sql import connection

        return getattr(connection, name)
    if name == "Policy":
        from dp_polars._policy.policy import Policy

        return Policy
    if name == "AnalystConnection":
        from dp_polars._policy.analyst import AnalystConnection

        return AnalystConnection
    if name == "register":
        from dp_polars._sql.functions import register

        return register
    if name == "Report":
        from dp_polars._display.report import Report

        return Report
    if name == "plot":
        from dp_polars._display.charts.plot import plot

        return plot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


__version__ = "0.1.0"
