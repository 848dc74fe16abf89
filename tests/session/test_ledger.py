"""The ledger file refuses everything that is not an undamaged ledger, and a failure never releases anything."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._session.ledger import Ledger

FRAME = pl.DataFrame({"count": [1]})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture
def session(path):
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="user", ledger=path)
    session.reserve(dp.pure_cost(0.25), label="first").commit(FRAME)
    return session


# ---------------------------------------------------------------- opening again


def test_a_ledger_opens_again_with_what_was_spent(path, session):
    session.close()
    again = dp.Session(epsilon=1.0, delta=1e-6, unit="user", ledger=str(path))
    assert again.spent.epsilon == 0.25
    assert dp.Session.from_ledger(path).terms == again.terms


def test_from_ledger_brings_the_defaults_back(path):
    words = {"per_unit": ["country"], "max_groups": 3, "max_rows_per_group": "auto", "max_rows": 20, "queries": 20}
    dp.Session(epsilon=1.0, unit=dp.ROW, adjacency="replace", ledger=path, **words)
    again = dp.Session.from_ledger(path)
    assert vars(again.defaults) == {**words, "per_unit": ("country",), "account": None}
    assert again.terms.unit is dp.ROW
    assert again.terms.adjacency == "replace"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"epsilon": 2.0}, "epsilon is 1, not 2"),
        ({"delta": 1e-7}, "delta is 1e-06, not 1e-07"),
        ({"delta": None}, "delta is 1e-06, not 0"),
        ({"epsilon": None, "rho": 0.5}, "rho is none, not 0.5"),
        ({"key_delta": 1e-7}, "split of delta"),
        ({"unit": ["user", "day"]}, "unit is user, not user, day"),
        ({"unit": dp.ROW}, "unit is user, not dp.ROW"),
        ({"adjacency": "replace"}, "adjacency is add_remove, not replace"),
        ({"group_size": 2}, "group_size is 1, not 2"),
    ],
)
def test_other_terms_are_refused_and_named(path, session, words, text):
    with pytest.raises(dp.LedgerMismatch, match=text):
        dp.Session(**{"epsilon": 1.0, "delta": 1e-6, "unit": "user", **words}, ledger=path)
    assert session.spent.epsilon == 0.25


def test_other_defaults_are_no_other_terms(path, session):
    again = dp.Session(epsilon=1.0, delta=1e-6, unit="user", ledger=path, max_groups=7)
    assert again.defaults.max_groups == 7


def test_no_ledger_to_open(tmp_path):
    with pytest.raises(dp.LedgerError, match="There is no ledger at"):
        dp.Session.from_ledger(tmp_path / "none.db")
    with pytest.raises(dp.LedgerError, match=r"cannot be (opened|created)"):
        dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "no" / "such" / "folder.db")
    with pytest.raises(dp.LedgerError):
        dp.Session(epsilon=1.0, unit="user", ledger=tmp_path)


def test_odd_names_are_only_names(tmp_path):
    path = tmp_path / "a b?mode=memory#%20é.db"
    dp.Session(epsilon=1.0, unit="user", ledger=path).reserve(dp.pure_cost(0.5), label="q")
    assert dp.Session.from_ledger(path).spent.epsilon == 0.5
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, path.name + "-running"]


# ---------------------------------------------------------------- damaged and foreign files


def charge(session, epsilon=0.1):
    session.reserve(dp.pure_cost(epsilon), label="q").commit(FRAME)


def test_an_empty_file_is_not_a_new_budget(path):
    path.touch()
    with pytest.raises(dp.LedgerError, match="not a dp_polars ledger"):
        dp.Session(epsilon=1.0, unit="user", ledger=path)


def test_a_text_file_is_not_a_ledger(path):
    path.write_text("hello " * 1000)
    with pytest.raises(dp.LedgerError, match="not a ledger"):
        dp.Session(epsilon=1.0, unit="user", ledger=path)
    assert path.read_text() == "hello " * 1000


def test_another_programs_database_is_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    before = path.read_bytes()
    with pytest.raises(dp.LedgerError, match="not a dp_polars ledger"):
        dp.Session(epsilon=1.0, unit="user", ledger=path)
    assert path.read_bytes() == before


def test_a_cut_file_is_refused(path, session):
    for _ in range(5):
        charge(session)
    session.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 // 4096 * 4096])
    with pytest.raises(dp.LedgerError):
        dp.Session.from_ledger(path)


def test_scrambled_pages_are_refused(path, session):
    for _ in range(40):
        charge(session, 0.01)
    session.close()
    content = bytearray(path.read_bytes())
    for start in range(4096, len(content), 4096):
        content[start : start + 200] = os.urandom(200)
    path.write_bytes(content)
    with pytest.raises(dp.LedgerError):
        dp.Session.from_ledger(path)


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE spent SET epsilon = '0'",
        "DELETE FROM charge",
        "UPDATE charge SET epsilon = '1/1000'",
        "UPDATE spent SET rho = 'nonsense'",
        "UPDATE agreement SET terms = '{}'",
    ],
)
def test_rows_and_sums_that_disagree_are_refused(path, session, tampering):
    session.close()
    with sqlite3.connect(path) as connection:
        connection.execute(tampering)
    with pytest.raises(dp.LedgerError, match="damaged"):
        dp.Session.from_ledger(path)


def test_another_version_is_refused(path, session):
    session.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(dp.LedgerError, match="another version"):
        dp.Session.from_ledger(path)


def test_a_file_that_vanishes_is_not_replaced_by_a_fresh_budget(path, session):
    session.close()
    path.unlink()
    with pytest.raises(dp.LedgerError, match="There is no ledger"):
        dp.Session.from_ledger(path)


# ---------------------------------------------------------------- disks that fail


def run(program: str, *arguments: str, **options) -> str:
    """Run a program in its own process, which may lose permissions or disk space, and return what it printed."""
    setup = "import sys, polars as pl, dp_polars as dp\nFRAME = pl.DataFrame({'x': list(range(1000))})\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + textwrap.dedent(program), *arguments],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2], **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_full_disk_releases_nothing_and_keeps_the_ledger_whole(path, session):
    limit = path.stat().st_size + 64 * 1024

    printed = run(
        """
        import random, resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))  # a full disk
        session = dp.Session.from_ledger(sys.argv[1])
        received = 0
        try:
            for _ in range(40):
                frame = pl.DataFrame({"x": [random.getrandbits(60) for _ in range(1000)]})
                session.reserve(dp.pure_cost(0.01), label="q").commit(frame)
                received += 1
        except dp.LedgerError as error:
            print(received, error)
        """,
        str(path),
        str(limit),
    )
    received, text = printed.split(" ", 1)
    assert "Nothing is released" in text
    assert "disk" in text
    entries = dp.Session.from_ledger(path).releases
    assert sum(entry.state == "committed" for entry in entries) == int(received) + 1
    assert 0 < int(received) < 40


@pytest.mark.slow
def test_a_read_only_ledger_releases_nothing(path, session, tmp_path):
    session.close()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    printed = run(
        """
        import os
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        session = dp.Session.from_ledger(sys.argv[1])
        print(session.spent.epsilon)
        try:
            session.reserve(dp.pure_cost(0.1), label="q")
        except dp.LedgerError as error:
            print(error)
        """,
        str(path),
    )
    tmp_path.chmod(0o755)
    spent, text = printed.split("\n", 1)
    assert float(spent) == 0.25
    assert "read-only" in text
    assert "Nothing is released" in text
    assert dp.Session.from_ledger(path).spent.epsilon == 0.25


def test_a_locked_ledger_says_so(path, session, monkeypatch):
    from dp_polars._session import ledger_file as storage

    monkeypatch.setattr(storage, "BUSY_SECONDS", 0.05)
    impatient = dp.Session.from_ledger(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(dp.LedgerError, match="another process held it"):
        charge(impatient)
    holder.execute("ROLLBACK")
    charge(impatient)


def test_a_frame_that_cannot_be_stored_is_not_released(session, monkeypatch):
    """A result is in the ledger before anyone gets it. Otherwise the charge stays and nothing is returned."""
    reservation = session.reserve(dp.pure_cost(0.1), label="q")
    monkeypatch.setattr(Ledger, "commit", lambda *_: (_ for _ in ()).throw(dp.LedgerError("no")))
    with pytest.raises(dp.LedgerError):
        reservation.commit(FRAME)
    monkeypatch.undo()
    assert [entry.state for entry in session.releases] == ["committed", "reserved"]
    assert session.spent.epsilon == 0.35


def test_errors_never_quote_sqlite_or_the_label(path, session):
    session._ledger._connection.close()
    secret = "label-that-must-not-show"
    with pytest.raises(dp.LedgerError) as failed:
        session.reserve(dp.pure_cost(0.1), label=secret)
    assert secret not in str(failed.value)
    assert failed.value.__suppress_context__


def test_the_file_holds_no_draft_after_creation(path, session):
    session.close()
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, path.name + "-running"]


@pytest.mark.slow
def test_two_processes_that_create_at_once_get_one_budget(tmp_path):
    """Both have imported the package when they hear of a ledger, so they meet in each of several."""
    program = """
        print("ready", flush=True)
        for path in sys.stdin:
            session = dp.Session(epsilon=1.0, unit="user", ledger=path.strip())
            for _ in range(7):
                try:
                    session.reserve(dp.pure_cost(0.1), label="q").commit(FRAME)
                except dp.BudgetExceeded:
                    pass
            session.close()
            print("done", flush=True)
        """
    setup = "import sys, polars as pl, dp_polars as dp\nFRAME = pl.DataFrame({'x': [1]})\n" + textwrap.dedent(program)
    words = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([sys.executable, "-c", setup], **words) for _ in range(2)]
    assert [child.stdout.readline() for child in children] == ["ready\n"] * 2
    for number in range(6):
        path = tmp_path / f"{number}.db"
        for child in children:
            child.stdin.write(f"{path}\n")
            child.stdin.flush()
        assert [child.stdout.readline() for child in children] == ["done\n"] * 2
        with contextlib.closing(dp.Session.from_ledger(path)) as session:
            assert session.spent.epsilon == 1.0
            assert len(session.releases) == 10
    for child in children:
        child.communicate()
        assert child.returncode == 0


def test_a_ledger_in_memory_has_the_schema_and_the_settings_of_a_file(tmp_path):
    memory = dp.Session(epsilon=1.0, unit="user")._ledger._connection
    file = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "budget.db")._ledger._connection
    asked = ["SELECT type, name, sql FROM sqlite_master ORDER BY type, name", "SELECT terms FROM agreement"]
    asked += [f"PRAGMA {name}" for name in ("application_id", "user_version", "synchronous", "trusted_schema")]
    for text in asked:
        assert memory.execute(text).fetchall() == file.execute(text).fetchall()
    other = dp.Session(epsilon=1.0, unit="user")._ledger._connection
    identity = "SELECT identity FROM agreement"
    assert memory.execute(identity).fetchall() != other.execute(identity).fetchall()
