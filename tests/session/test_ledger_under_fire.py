"""Eight processes charge one ledger and are killed at random moments, again and again.

At every moment, the sum of the charges is within the budget, every release that a caller received is committed in the
ledger, and the file opens again.
"""

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dp

PROCESSES, KILLS = 8, 200
EPSILON = Fraction(1, 10**5)  # the smallest price, so that no machine uses up the budget while the test runs
LAST = 100  # charges that are left for the final race
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["dp_polars", "tests.session.test_ledger_under_fire"])


def work(path: str, receipts: str) -> None:
    """Charge until the budget is used up, and write down each release only after it was received."""
    session = dp.Session.from_ledger(path)
    out = os.open(receipts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with contextlib.suppress(dp.BudgetExceeded):
        while True:
            try:
                reservation = session.reserve(dp.pure_cost(EPSILON), label="q")
                release = reservation.commit(pl.DataFrame({"n": [reservation.id]}))
            except dp.SessionClosed:  # another process was killed in the middle of a charge
                with contextlib.suppress(dp.InvalidParameterError):  # another process has reopened the session first
                    session.reopen(reason="killed on purpose")
                continue
            os.write(out, f"{release.entry.id}\n".encode())


def start(path, folder, number):
    process = CONTEXT.Process(target=work, args=(str(path), str(folder / str(number))))
    process.start()
    return process


def kill(process) -> bool:
    """Kill a process and return whether that, and not its own end, stopped it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), "a process failed by itself"
    return process.exitcode != 0


@pytest.mark.slow
def test_killed_processes_never_overspend_nor_lose_a_release(tmp_path):
    path, folder = tmp_path / "budget.db", tmp_path / "receipts"
    folder.mkdir()
    session = dp.Session(epsilon=1.0, unit="user", ledger=path)
    dice = random.Random(1)
    running = {number: start(path, folder, number) for number in range(PROCESSES)}
    kills, seen = 0, Counter()
    # Go on until every kind of moment was hit often enough, however slowly processes start on this machine.
    while kills < KILLS or seen["failed"] < KILLS // 10 or seen["committed"] < KILLS:
        time.sleep(dice.uniform(0, 0.03))
        number = dice.choice(list(running))
        kills += kill(running.pop(number))
        running[max(running) + PROCESSES] = start(path, folder, max(running) + PROCESSES)
        if kills % 20 == 0:  # the file opens undamaged at any time
            with dp.Session.from_ledger(path) as reader:
                seen = Counter(entry.state for entry in reader.releases)
    assert all(kill(process) for process in running.values())
    charges = len(session.releases)
    most = dp.pure_cost(1 - (charges + LAST) * EPSILON)
    try:
        session.reserve(most, label="all but the last")
    except dp.SessionClosed:  # one of the last kills came in the middle of a charge
        session.reopen(reason="killed on purpose")
        session.reserve(most, label="all but the last")
    racers = [start(path, folder, f"last {number}") for number in range(PROCESSES)]
    for process in racers:
        process.join()
    assert [process.exitcode for process in racers] == [0] * PROCESSES

    ledger = dp.Session.from_ledger(path)
    states = {entry.id: entry.state for entry in ledger.releases}
    assert ledger.spent.epsilon == session.spent.epsilon == 1.0
    # Every charge counts, even those of dead processes: nothing is given back.
    assert sum(entry.cost.epsilon for entry in ledger.releases) == 1
    assert len(states) == charges + 1 + LAST
    received = [int(line) for file in folder.iterdir() for line in file.read_text().split("\n")[:-1]]
    assert len(received) == len(set(received))  # no release was handed out twice
    assert all(states[identifier] == "committed" for identifier in received)
    committed = list(states.values()).count("committed")
    # A kill loses at most one receipt per process, between the commit and the line that writes it down.
    assert committed - kills - PROCESSES <= len(received) <= committed
