"""Signals, forks, threads and waiting: services of the process that every layer above uses."""
