"""Logs that others wrote, read in place: each format has a folder, and ``foreign_log`` is what they have in common."""
