"""The checks: each yields findings about a subject, and has looked twice at what looked wrong."""
