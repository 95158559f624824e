"""The console: a log in the browser, for whoever operates it."""
