"""Bytes on storage: writing, reading and checking segments."""
