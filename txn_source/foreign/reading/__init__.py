"""Reading logs that others wrote: from options to ranges, to a cut, to tasks, to rows."""
