"""Nothing is spent twice or lost when processes die between two steps, or with old files, backups, copies and forks.

A process that is killed loses its lock. The next process that looks finds that a query died and closes the session.
"""

import asyncio
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._session.releases import to_ipc
from tests.long.soak import soak
from tests.session.old_ledger import write_old_ledger

FRAME = pl.DataFrame({"count": [1]})
ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


def session_at(path):
    return dp.Session(epsilon=1.0, unit="user", ledger=path)


def charge(session, epsilon=0.1):
    return session.reserve(dp.pure_cost(epsilon), label="q").commit(FRAME)


def start(program, *arguments, **options):
    setup = "import os, signal, sys, time, polars as pl, dp_polars as dp\nFRAME = pl.DataFrame({'x': [1]})\n"
    text = setup + textwrap.dedent(program)
    words = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT, **options)


# ---------------------------------------------------------------- killed between two steps

STEPS = """
import resource
import dp_polars._session.ledger as ledger, dp_polars._session.open_charges as open_charges
import dp_polars._session.ledger_file as storage, dp_polars._release.charge as charging

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def fill():  # from now on no file can grow
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

path, step, what = sys.argv[1:]
fault = {"die": die, "fill": fill}[what]

def before(owner, name):
    original = getattr(owner, name)
    def stepped(*given, **named):
        fault()
        return original(*given, **named)
    setattr(owner, name, stepped)

def after(owner, name):
    original = getattr(owner, name)
    def stepped(*given, **named):
        result = original(*given, **named)
        fault()
        return result
    setattr(owner, name, stepped)

session = dp.Session.from_ledger(path)
{
    "before the charge": lambda: before(ledger.Ledger, "_check_count"),
    "before the row": lambda: before(ledger.Ledger, "_charge"),
    "before the lock": lambda: before(open_charges.OpenCharges, "start"),
    "after the lock": lambda: after(open_charges.OpenCharges, "start"),
    "before the count": lambda: before(open_charges.OpenCharges, "record_count"),
    "after the charge": lambda: after(ledger.Ledger, "reserve"),
    "before rows are read": lambda: before(charging, "guarded"),
    "after rows are read": lambda: after(charging, "guarded"),
    "before the commit": lambda: before(ledger.Ledger, "commit"),
    "inside the commit": lambda: after(ledger.Ledger, "_finish"),
    "after the commit": lambda: before(open_charges.OpenCharges, "end"),
    "after the release": lambda: after(ledger.Ledger, "commit"),
    "while it fails": lambda: (before(ledger.Ledger, "_close_by"), setattr(charging, "guarded", lambda *_: 1 / 0)),
    "after it failed": lambda: (after(ledger.Ledger, "fail"), setattr(charging, "guarded", lambda *_: 1 / 0)),
}[step]()
try:
    dp.private(pl.DataFrame({"user": [1, 2]}), session, name="two", data_version="1").count_units(epsilon=0.25)
    print("answered", flush=True)
except BaseException as error:
    print(type(error).__name__, flush=True)
"""

FORKING = """
import dp_polars._release.charge  # what a step needs is loaded once, and nothing has started a thread yet
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        sys.argv[1:] = line.rstrip("\\n").split("\\t")
        try:
            exec(STEPS)
        finally:
            os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forking():
    """A process that forks a child for each step, so that the package is imported once."""
    process = start(f"STEPS = {STEPS!r}\n{FORKING}", stdin=subprocess.PIPE)
    yield process
    process.communicate(timeout=120)


NOT_CHARGED = ("before the charge", "before the row", "before the lock", "after the lock")
RELEASED = ("after the commit", "after the release")
DIED = {
    "before the count": "died",
    "after the charge": "died",
    "before rows are read": "died",
    "after rows are read": "died",
    "before the commit": "died",
    "inside the commit": "died",
    "while it fails": "died",
    "after it failed": "failed",
}


@pytest.mark.slow
@pytest.mark.parametrize("step", [*NOT_CHARGED, *RELEASED, *DIED])
def test_killed_between_any_two_steps(forking, path, step):
    session = session_at(path)
    forking.stdin.write(f"{path}\t{step}\tdie\n")
    forking.stdin.flush()
    assert int(forking.stdout.readline()) == -signal.SIGKILL
    assert session.spent.epsilon == (0 if step in NOT_CHARGED else 0.25)
    again = dp.private(pl.DataFrame({"user": [1, 2]}), session, name="two", data_version="1")
    if step in DIED:
        with pytest.raises(dp.SessionClosed):
            again.count_units(epsilon=0.25)
        assert [(one.charge, one.cause) for one in session.closings] == [(1, DIED[step])]
        assert [one.state for one in session.releases] == ["failed"]
        session.reopen(reason="killed on purpose")
    again.count_units(epsilon=0.25)
    assert not session.closed
    # A release that was committed before the kill is found again and costs nothing.
    assert session.spent.epsilon == (0.25 if step in (*NOT_CHARGED, *RELEASED) else 0.5)
    assert dp.Session.from_ledger(path).spent == session.spent


@pytest.mark.slow
@pytest.mark.parametrize("step", [*NOT_CHARGED, *RELEASED, *DIED])
def test_a_disk_that_fills_up_between_any_two_steps(forking, path, step):
    """An answer comes out only with its charge, rows are read only after the charge, and the ledger stays usable."""
    session = session_at(path)
    forking.stdin.write(f"{path}\t{step}\tfill\n")
    forking.stdin.flush()
    outcome, code = forking.stdout.readline().strip(), int(forking.stdout.readline())
    assert code == 0
    charged = session.spent.epsilon
    assert charged in (0, 0.25)
    if step in ("before the charge", "before the row"):
        assert charged == 0
    if step in (*RELEASED, *DIED) and step != "before the count":
        assert charged == 0.25
    if step in RELEASED:
        assert outcome == "answered"
    elif step == "after it failed":
        assert outcome == "ZeroDivisionError"  # the failure of the step itself, which was written down in time
    else:
        assert outcome == "LedgerError"
    # Somebody with a disk that has room finds a usable ledger, and an answer that was given is found again.
    again = dp.private(pl.DataFrame({"user": [1, 2]}), session, name="two", data_version="1")
    if session.closed:
        with pytest.raises(dp.SessionClosed):
            again.count_units(epsilon=0.25)
        session.reopen(reason="the disk was full")
    again.count_units(epsilon=0.25)
    assert session.spent.epsilon == (charged if step in RELEASED else charged + 0.25)
    assert dp.Session.from_ledger(path).spent == session.spent


@pytest.mark.slow
def test_a_running_question_of_another_process_is_no_dead_one(path):
    session = session_at(path)
    program = """
        session = dp.Session.from_ledger(sys.argv[1])
        with session.reserve(dp.pure_cost(0.25), label="slow") as reservation:
            print("reading", flush=True)
            sys.stdin.readline()
            reservation.commit(FRAME)
        print("done", flush=True)
        """
    child = start(program, path, stdin=subprocess.PIPE)
    assert child.stdout.readline() == "reading\n"
    charge(session)
    assert not session.closed
    assert [one.state for one in session.releases] == ["reserved", "committed"]
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "done\n"
    child.wait(timeout=60)
    assert not session.closed
    assert [one.state for one in session.releases] == ["committed", "committed"]
    child.stdin.close()
    child.stdout.close()


def test_a_ledger_that_is_closed_with_a_charge_at_work_leaves_a_dead_one(path):
    first = session_at(path)
    first.reserve(dp.pure_cost(0.25), label="left")
    second = session_at(path)
    assert not second.closed  # as far as anybody knows, the same process still works on it
    first.close()
    assert second.closed


@pytest.mark.slow
def test_two_sessions_of_one_process_do_not_lose_each_others_locks(path):
    """POSIX locks are lost when any handle of the file is closed, so the process has only one."""
    first, second = session_at(path), session_at(path)
    held = first.reserve(dp.pure_cost(0.25), label="at work")
    for _ in range(3):
        charge(second)
    second.close()
    program = "session = dp.Session.from_ledger(sys.argv[1])\nprint(session.closed, flush=True)"
    child = start(program, path)
    assert child.communicate(timeout=60)[0] == "False\n"
    held.commit(FRAME)


@pytest.mark.slow
def test_a_lock_file_that_is_deleted_closes_the_session_and_nothing_worse(path):
    session = session_at(path)
    session.reserve(dp.pure_cost(0.25), label="at work")
    Path(f"{path}-running").unlink()
    program = "session = dp.Session.from_ledger(sys.argv[1])\nprint(session.closed, flush=True)"
    assert start(program, path).communicate(timeout=60)[0] == "True\n"
    with pytest.raises(dp.SessionClosed):
        charge(session)


# ---------------------------------------------------------------- forks and tasks


FORK = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
session = dp.Session(epsilon=1.0, unit="user", ledger=sys.argv[1])
with session.reserve(dp.pure_cost(0.25), label="of the parent") as reservation:
    child = os.fork()
    if child == 0:
        code = 9
        try:
            try:
                reservation.fail()
            except dp.LedgerError:
                # The parent still works on its charge. The child has its own lock for its own charge.
                other = session.reserve(dp.pure_cost(0.125), label="of the child")
                other.fail(closes=False)
                code = 0 if not session.closed else 8
            with reservation:
                pass  # leaving the block in the child finishes nothing
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reservation.commit(FRAME)
assert not session.closed
assert [one.state for one in session.releases] == ["committed", "failed"]
"""


@pytest.mark.slow
def test_a_forked_child_neither_finishes_nor_loses_its_parents_charge(path):
    child = start(FORK, path)
    child.communicate(timeout=60)
    assert child.returncode == 0


@pytest.mark.slow
def test_a_forked_child_that_dies_is_noticed_while_its_parent_lives(path):
    program = """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        session = dp.Session(epsilon=1.0, unit="user", ledger=sys.argv[1])
        mine = session.reserve(dp.pure_cost(0.25), label="of the parent")
        child = os.fork()
        if child == 0:
            session.reserve(dp.pure_cost(0.25), label="of the child")
            os._exit(0)
        os.waitpid(child, 0)
        print([one.charge for one in session.closings])
        """
    assert start(program, path).communicate(timeout=60)[0] == "[2]\n"


def test_tasks_share_one_budget_and_one_closing():
    session = dp.Session(epsilon=1.0, unit="user")

    async def work(number):
        with session.reserve(dp.pure_cost(0.0625), label=str(number)) as reservation:
            await asyncio.sleep(0)
            if number == 5:
                raise ZeroDivisionError
            return reservation.commit(FRAME)

    async def all_of_them():
        return await asyncio.gather(*(work(number) for number in range(16)), return_exceptions=True)

    found = asyncio.run(all_of_them())
    assert session.spent.epsilon == 1.0
    assert [type(one) for one in found].count(ZeroDivisionError) == 1
    # Tasks take turns: those before number 5 were answered, and those after it were under way when it failed.
    assert [type(one) for one in found[6:]] == [dp.SessionClosed] * 10
    assert session.closed


def test_a_cancelled_task_counts_as_a_failure():
    session = dp.Session(epsilon=1.0, unit="user")

    async def work():
        with session.reserve(dp.pure_cost(0.5), label="cancelled"):
            await asyncio.sleep(60)

    async def cancelling():
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelling())
    assert session.closed


# ---------------------------------------------------------------- disks that fail


@pytest.mark.slow
def test_a_disk_that_is_full_when_a_failure_is_written_down_closes_the_session_all_the_same(path):
    session = session_at(path)
    program = """
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        session = dp.Session.from_ledger(sys.argv[1])
        try:
            with session.reserve(dp.pure_cost(0.25), label="q"):
                size = os.stat(sys.argv[1]).st_size
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
                raise ZeroDivisionError
        except dp.LedgerError:
            print("not written")
        """
    assert start(program, path).communicate(timeout=60)[0] == "not written\n"
    assert session.closed
    assert [one.cause for one in session.closings] == ["died"]


def test_a_full_database_charges_and_releases_nothing(path):
    session = session_at(path)
    charge(session)
    pages = session._ledger._connection.execute("PRAGMA page_count").fetchone()[0]
    session._ledger._connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill():
        for _ in range(200):
            noise = pl.DataFrame({"n": [random.getrandbits(60) for _ in range(300)]})
            with session.reserve(dp.pure_cost(0.001), label="q") as reservation:
                reservation.commit(noise)

    with pytest.raises(dp.LedgerError, match="the disk is full"):
        fill()
    states = [one.state for one in dp.Session.from_ledger(path).releases]
    assert set(states[:-1]) == {"committed"}
    # A full disk does not depend on anybody's row: the charge fails, and the session stays open.
    assert states[-1] in ("failed", "committed")
    assert not session.closings


# ---------------------------------------------------------------- older and newer files


def test_a_ledger_of_the_first_format_can_record_facts(path):
    write_old_ledger(path, to_ipc(FRAME))
    session = dp.Session.from_ledger(path)
    assert session.facts == ()
    assert session._record("column types", "/visits.csv", '[["x", "DATE"]]') == '[["x", "DATE"]]'
    assert [fact.subject for fact in dp.Session.from_ledger(path).facts] == ["/visits.csv"]


def test_a_ledger_of_the_first_format_is_brought_up_to_date(path):
    write_old_ledger(path, to_ipc(FRAME))
    session = dp.Session.from_ledger(path)
    assert session.spent.epsilon == 0.5
    assert session.stored(b"old").frame.equals(FRAME)
    assert [(one.label, one.state) for one in session.releases] == [("old 1", "committed"), ("old 2", "failed")]
    assert not session.closings
    charge(session, 0.25)
    assert dp.Session(epsilon=1.0, unit="user", ledger=path).spent.epsilon == 0.75
    with pytest.raises(dp.BudgetExceeded):
        charge(session, 0.5)


def test_a_charge_of_the_first_format_that_was_never_finished_counts_as_dead(path):
    write_old_ledger(path, to_ipc(FRAME), ["committed", "reserved"])
    session = dp.Session.from_ledger(path)
    assert [(one.charge, one.cause) for one in session.closings] == [(2, "died")]
    assert session.stored(b"old").frame.equals(FRAME)


def test_a_process_of_the_older_version_can_no_longer_charge(path):
    write_old_ledger(path, to_ipc(FRAME))
    old = sqlite3.connect(path)
    assert old.execute("SELECT count(*) FROM release").fetchone() == (2,)
    dp.Session.from_ledger(path).close()
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        old.execute("INSERT INTO release (label) VALUES ('q')")
    old.close()


@pytest.mark.slow
def test_a_crash_in_the_middle_leaves_the_old_file_whole(path):
    write_old_ledger(path, to_ipc(FRAME))
    program = """
        import dp_polars._session.ledger_file as storage
        parts = storage._FROM_1.split(";")
        class Last(str):
            def split(self, _):
                yield from parts[:-2]
                os.kill(os.getpid(), signal.SIGKILL)
        storage._FROM_1 = Last()
        dp.Session.from_ledger(sys.argv[1])
        """
    child = start(program, path)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM release").fetchone() == (2,)
    assert dp.Session.from_ledger(path).spent.epsilon == 0.5


@pytest.mark.slow
def test_two_processes_that_migrate_at_once_do_it_once(path):
    """Both have imported the package when they hear of a ledger, so they meet in each of several."""
    program = """
        print("ready", flush=True)
        for path in sys.stdin:
            session = dp.Session.from_ledger(path.strip())
            print(session.spent.epsilon, flush=True)
            session.close()
        """
    children = [start(program, stdin=subprocess.PIPE) for _ in range(2)]
    assert [child.stdout.readline() for child in children] == ["ready\n"] * 2
    for number in range(6):
        old = path.with_name(f"{number}.db")
        write_old_ledger(old, to_ipc(FRAME))
        for child in children:
            child.stdin.write(f"{old}\n")
            child.stdin.flush()
        assert [child.stdout.readline() for child in children] == ["0.5\n"] * 2
        assert len(session_at(old).releases) == 2
    for child in children:
        child.communicate(timeout=60)
        assert child.returncode == 0


def test_a_newer_format_is_refused_and_left_alone(path):
    session_at(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 5")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(dp.LedgerError, match="its format is 5, and this version reads formats 1 to 4"):
        session_at(path)
    assert path.read_bytes() == before


# ---------------------------------------------------------------- backups and copies


def test_a_restored_backup_is_noticed(path, tmp_path):
    session = session_at(path)
    charge(session)
    shutil.copy(path, tmp_path / "backup.db")
    charge(session)
    session.close()
    shutil.copy(tmp_path / "backup.db", path)
    with pytest.raises(dp.LedgerError, match="has 1 charges, but 2 were made"):
        session_at(path)


def test_a_backup_restored_under_an_open_session_is_noticed(path, tmp_path):
    session = session_at(path)
    charge(session)
    shutil.copy(path, tmp_path / "backup.db")
    charge(session)
    (tmp_path / "backup.db").replace(path)
    with pytest.raises(dp.LedgerError, match="moved or replaced"):
        charge(session)
    with pytest.raises(dp.LedgerError, match="but 2 were made"):
        session_at(path)


def test_a_file_that_vanishes_under_an_open_session_is_noticed(path):
    session = session_at(path)
    path.unlink()
    with pytest.raises(dp.LedgerError, match="moved or replaced"):
        charge(session)


def test_a_copy_is_a_ledger_of_its_own_and_only_the_owner_can_know(path, tmp_path):
    """Copies are not detected, as the guarantees say: two copies are two budgets."""
    session = session_at(path)
    charge(session)
    session.close()
    shutil.copy(path, tmp_path / "copy.db")
    assert session_at(tmp_path / "copy.db").spent.epsilon == 0.1


# ---------------------------------------------------------------- many releases


@pytest.mark.slow
def test_a_soak_in_its_short_form(path):
    found = soak(path, 500, random.Random(11), failures=100)
    assert found["releases"] + found["failures"] == 500
    assert found["failures"] > 0
