"""Upkeep of a log by whoever operates it: is it whole, and what to do if it isn't."""
