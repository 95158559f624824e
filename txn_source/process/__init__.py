"""What a process does around the calls of a log: signals, forks, waiting, work in threads of its own."""
