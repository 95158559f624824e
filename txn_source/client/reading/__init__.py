"""Planning a read, and reading its slices from whichever copy there is."""
