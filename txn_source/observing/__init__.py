"""What a process tells of its own work: what it has read, whose request it carries out, spans."""
