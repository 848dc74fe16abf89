"""A soak test: as many releases as a session can have, in one ledger, by several sessions, with failures in between.

After each part, the sums match the rows, nothing is overspent, every release that was handed out is stored, and the
file opens again. `python -m tests.long soak` makes all 100,000 releases; the tests make a few thousand.
"""

import contextlib
import random
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import polars as pl

import dp_polars as dp
from dp_polars._session.prices import SMALLEST_SHARE

RELEASES = SMALLEST_SHARE.denominator
FAILURES = 1000  # one in so many charges fails and closes the session


def soak(path: Path, releases: int, dice: random.Random, failures: int = FAILURES) -> dict[str, float]:
    """Use up a budget in this many equal charges, where one in `failures` fails, and return what was counted."""
    price = dp.pure_cost(Fraction(1, releases))
    sessions = [dp.Session(epsilon=1.0, unit="user", ledger=path) for _ in range(3)]
    handed: dict[int, int] = {}
    failed = 0
    started = time.process_time()
    with contextlib.suppress(dp.BudgetExceeded):
        while True:
            session = dice.choice(sessions)
            with contextlib.suppress(ZeroDivisionError), session.reserve(price, label="soak") as reservation:
                if dice.randrange(failures) == 0:
                    failed += 1
                    raise ZeroDivisionError
                value = dice.getrandbits(40)
                handed[reservation.commit(pl.DataFrame({"n": [value]})).id] = value
            if sessions[0].closed:
                assert all(one.closed for one in sessions)
                dice.choice(sessions).reopen(reason="the soak goes on")
    seconds = time.process_time() - started
    for session in sessions:
        assert session.spent.epsilon == 1.0
        session.close()
    again = dp.Session.from_ledger(path)
    entries = again.releases
    assert len(entries) == releases == len(handed) + failed
    assert sum(one.cost.epsilon for one in entries) == 1
    assert again.reopenings == failed == len(again.closings)
    assert {one.id for one in entries if one.state == "committed"} == set(handed)
    for number in dice.sample(sorted(handed), min(200, len(handed))):
        assert again.release(number).frame["n"].item() == handed[number]
    again.close()
    return {"releases": len(handed), "failures": failed, "CPU ms a release": 1000 * seconds / releases}


def main() -> bool:
    """Run the long form and print what was counted."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        found = soak(Path(folder) / "budget.db", RELEASES, random.Random(7))
    print("soak:", ", ".join(f"{name} {value:,.3g}" for name, value in found.items()), file=sys.stdout)
    print(f"soak: {time.monotonic() - started:,.0f} s, all held")
    return True
