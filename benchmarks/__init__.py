"""Speed and memory as ratios in one run on one machine: ``make bench``."""
