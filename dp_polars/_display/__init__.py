"""What people see: text for a terminal, HTML for a notebook, charts. It shows public facts and releases, never rows."""
