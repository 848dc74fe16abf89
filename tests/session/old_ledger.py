"""Write a ledger of format 1 with exactly the statements that the first version executed."""

import sqlite3

SCHEMA = """
PRAGMA application_id = 1685089394;
PRAGMA user_version = 1;
CREATE TABLE agreement (terms TEXT NOT NULL, defaults TEXT NOT NULL);
CREATE TABLE spent (epsilon TEXT NOT NULL, rho TEXT NOT NULL, delta TEXT NOT NULL, gaussian_delta TEXT NOT NULL);
CREATE TABLE release (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    label TEXT NOT NULL,
    key BLOB,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'committed', 'failed')),
    epsilon TEXT NOT NULL, rho TEXT NOT NULL, delta TEXT NOT NULL, gaussian_delta TEXT NOT NULL,
    reserved_at TEXT NOT NULL,
    finished_at TEXT
);
CREATE INDEX release_by_key ON release (key, id) WHERE key IS NOT NULL;
CREATE TABLE result (release_id INTEGER PRIMARY KEY REFERENCES release (id), frame BLOB NOT NULL);
"""
TERMS = (
    '{"adjacency": "add_remove", "conversion_delta": "0", "epsilon": "1", "gaussian_delta": "0", "group_size": 1, '
    '"measure": "pure", "native_delta": "0", "rho": null, "unit": ["user"]}'
)
DEFAULTS = '{"max_groups": null, "max_rows_per_group": null, "per_unit": [], "queries": null}'
RHO = "4503599627370497/144115188075855872"  # the rho of epsilon 1/4, rounded up; any number would do
INSERT = (
    "INSERT INTO release (label, key, state, epsilon, rho, delta, gaussian_delta, reserved_at, finished_at) "
    "VALUES (?, ?, ?, '1/4', ?, '0', '0', '2026-01-01T00:00:00+00:00', ?)"
)


def write_old_ledger(path, frame: bytes, states=("committed", "failed")) -> None:
    """Write charges of epsilon 1/4 in these states. Committed ones have the key b"old" and this frame."""
    from fractions import Fraction

    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("BEGIN;" + SCHEMA)
    connection.execute("INSERT INTO agreement VALUES (?, ?)", (TERMS, DEFAULTS))
    for number, state in enumerate(states, 1):
        finished = None if state == "reserved" else "2026-01-01T00:00:01+00:00"
        connection.execute(INSERT, (f"old {number}", b"old" if state == "committed" else None, state, RHO, finished))
        if state == "committed":
            connection.execute("INSERT INTO result VALUES (?, ?)", (number, frame))
    sums = (str(Fraction(len(states), 4)), str(Fraction(RHO) * len(states)))
    connection.execute("INSERT INTO spent VALUES (?, ?, '0', '0')", sums)
    connection.execute("COMMIT")
    connection.close()
