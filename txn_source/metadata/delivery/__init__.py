"""What consumers get: sessions, who is woken, and what comes next."""
