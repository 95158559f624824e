"""What tests of other folders have."""

from __future__ import annotations

from tests.cli.conftest import spawn

__all__ = ["spawn"]
