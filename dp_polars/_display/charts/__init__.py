"""Charts of releases, of the budget and of plans, for Altair (the extra `plot`). They hold released values only."""
