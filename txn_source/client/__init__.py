"""The log for its users: producers, transactions, planning and reading, the same for an embedded and a remote log."""
