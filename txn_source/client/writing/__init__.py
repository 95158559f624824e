"""Producers: what was sent is gathered, written to segments, synced, and then registered."""
