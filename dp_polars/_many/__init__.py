"""Many questions for one charge: online queries over a domain, and synthetic rows."""
