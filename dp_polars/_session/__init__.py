"""Sessions: what releases cost, whether the budget allows them, and the record of every charge.

- `session`: `Session`, through which every release is charged; the current session.
- `terms`: the terms that a session was opened with, the units of its tables, and its defaults.
- `cost`: the cost of a release, and an amount of budget.
- `prices`: the cost of each kind of release, and the smallest price.
- `accounts`: the account in which shares of the budget are counted.
- `periods`: periods, whose promises add up.
- `filters`: the filter that accepts or refuses a cost, its proof, and the largest spend that it accepts.
- `ledger`: charges, closings and facts, in one SQLite database.
- `ledger_file`: the file of that database: schema, creation, migration and errors.
- `open_charges`: the locks that tell a running query from one whose process died.
- `exclusive_lock`: one user at a time for a connection, even with signals and forks.
- `interrupts`: signals that wait while the ledger is in use.
- `suggestions`: the caps and bounds that a session adopted from a profile.
- `releases`: releases and reservations, and the form in which frames are stored.

May import: `errors`, `_numbers`, `theory`, and `_display` for how sessions and releases look.
Never: anything that reads data or draws noise, such as plans, engines, mechanisms, SQL and frames.
"""
