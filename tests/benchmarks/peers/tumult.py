"""Tumult Analytics on local Spark asked one question by region: `python tumult.py DATA QUESTION EPSILON DELTA ...`."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings

import shared
from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    PureDPBudget,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
    __version__,
)
from tmlt.analytics.utils import cleanup

KEYS = {"region": shared.REGIONS}


def load(path, folder):
    """Start Spark on this machine's cores with its workers in this environment, and cache the rows."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", folder).config("spark.driver.memory", "4g")
    builder = builder.config("spark.sql.shuffle.partitions", os.cpu_count()).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    frame = builder.getOrCreate().read.parquet(path).select("user", "region", "value").cache()
    frame.count()
    return frame


def answer(frame, ask):
    """Ask in a session that has the budget of this question alone."""
    session = Session.from_dataframe(budget(ask), "rows", frame, protected_change=AddRowsWithID("user"))
    bounded = QueryBuilder("rows").enforce(MaxGroupsPerID("region", ask.max_groups))
    bounded = bounded.enforce(MaxRowsPerGroupPerID("region", ask.max_rows))
    query = aggregate(bounded.groupby(KeySet.from_dict(KEYS)), ask)
    return dict(map(tuple, session.evaluate(query, session.remaining_privacy_budget).collect()))


def aggregate(groups, ask):
    if ask.question == "count":
        return groups.count()
    name = "average" if ask.question == "mean" else ask.question
    return getattr(groups, name)("value", ask.lower, ask.upper)


def budget(ask):
    """Return the budget with the smaller error: Tumult adds Gaussian noise only for zCDP."""
    if shared.prefers_gaussian(ask):
        return RhoZCDPBudget(ask.own_rho)
    return PureDPBudget(ask.own_epsilon)


def note(ask):
    return "zCDP" if shared.prefers_gaussian(ask) else "pure epsilon"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as warehouse:
        asked = dict.fromkeys(shared.QUESTIONS, (answer,))
        shared.main(lambda path: load(path, warehouse), asked, __version__, note)
        cleanup()
