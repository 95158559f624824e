"""How a token travels with a call."""

from __future__ import annotations

AUTHORIZATION_KEY = "authorization"
"""In a call's gRPC metadata: ``Bearer``, a space, and a token."""
MAX_TOKEN_BYTES = 8000
