"""Reading logs, whoever wrote them: what is to be read, up to where, and in which parts. A log is a ``LogSource``."""
